package bridge

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What went wrong often stands above a trace: the end that is shown holds both, begins
// with a line where it can, and never has more bytes than there is room for.
func TestTheEndOfStderr(t *testing.T) {
	trace := "node:internal/modules:1\n  throw err;\n\nError: Cannot find module '/package/x.js'\n" + strings.Repeat("    at a line of a trace of a runtime (node:internal:1:2)\n", 7)
	got := quotedEnd([]byte(strings.Repeat("noise of before\n", 100)+trace), maxStderrShown)
	if !strings.Contains(got, "Cannot find module") || !strings.HasPrefix(got, `"noise of before\n`) || len(got) > maxStderrShown {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := quotedEnd([]byte("short"), maxStderrShown); got != `"short"` {
		t.Errorf("%s", got)
	}
	for _, hostile := range []string{"", strings.Repeat("\x00", 16<<10), strings.Repeat("\x1b[31m\n", 4<<10), strings.Repeat("é", 4<<10), strings.Repeat("\xff", 5000)} {
		if got := quotedEnd([]byte(hostile), maxStderrShown); len(got) > maxStderrShown || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\n") || (hostile != "" && len(got) < maxStderrShown/8) {
			t.Errorf("%.8q: %d bytes: %s", hostile, len(got), got)
		}
	}
}
