package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"postern/bridge/wire"
)

// Arguments go up where the view says that they are recorded, to the byte what is called
// with, and never more than a message holds.
func TestE1_ArgumentsGoUpWhereTheViewSaysSo(t *testing.T) {
	a := newAuthority(t)
	a.count("kept", "unkept")
	a.set(func() { a.tools[0].Args = true })
	c := a.passed().initialize()
	fits := `{"x":"` + strings.Repeat("y", wire.MaxArgs-8) + `"}`
	for i, row := range []struct{ tool, args, want string }{
		{"kept", `{"a": 12345678901234567890.10, "\u0062":"\u2028"}`, `{"a": 12345678901234567890.10, "\u0062":"\u2028"}`},
		{"unkept", `{"a":1}`, ""},
		{"kept", fits, fits},
		{"kept", fits + " ", ""},
		{"kept", strings.Replace(fits, "y", "yy", 1), ""},
		{"kept", `{}`, `{}`},
	} {
		id := fmt.Sprint(10 + i)
		c.call(id, row.tool, row.args)
		c.line()
		m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == id })
		if row.args == fits+" " { // a space around the value is not of it
			row.want = fits
		}
		sum := sha256.Sum256(m.Args)
		if string(m.Args) != row.want || row.want != "" && (m.Digest != hex.EncodeToString(sum[:]) || m.Size != int64(len(m.Args))) {
			t.Errorf("%s %.60s: %.60q of %d bytes, digest %s", row.tool, row.args, m.Args, m.Size, m.Digest)
		}
	}
}
