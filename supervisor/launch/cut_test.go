package launch

import (
	"strings"
	"testing"

	"postern/refusal"
	"postern/supervisor/order"
)

// Whatever stands in the reason of a refusal, it can be sent: names of a workspace are
// any bytes, and an end falls anywhere. What could not be sent would be waited for.
func TestAReasonOfAnyBytesIsSent(t *testing.T) {
	for _, s := range []string{"", ".", "\xff", "a name \xc3\x28 of a workspace.", strings.Repeat("\xff", 2*order.MaxText), strings.Repeat("é", order.MaxText), "x" + strings.Repeat("é", order.MaxText),
		"xx" + strings.Repeat("🚪", order.MaxText), strings.Repeat("\x01", order.MaxText), strings.Repeat(`"`, 2*order.MaxText)} {
		raw, err := order.EncodeDown(order.NotLaunched{Seq: 1, Code: refusal.WorkspaceRefused, Text: cut(s)})
		if err != nil {
			t.Errorf("%.20q: %v", s, err)
			continue
		}
		m, err := order.DecodeDown(raw)
		if got, ok := m.(order.NotLaunched); err != nil || !ok || len(got.Text) > order.MaxText || strings.HasSuffix(got.Text, ".") {
			t.Errorf("%.20q: %+v, %v", s, m, err)
		}
	}
	if got := cut("mount \"é\": no such file."); got != "mount \"é\": no such file" {
		t.Errorf("%q", got)
	}
}
