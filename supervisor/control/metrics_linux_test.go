package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/refusal"
	"postern/supervisor/api"
)

// Sums are for root and the one user that is configured, and name nobody.
func TestMetricsAreForRootAndTheConfiguredUser(t *testing.T) {
	r := newRig(t)
	b, s := r.session(owner, "")
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	if _, code := b.admit(s, r.conn, "no_such_tool"); code == "" {
		t.Fatal("an unknown tool was admitted")
	}
	b.send(wire.Ended{Call: call, Outcome: wire.Completed})
	var m api.MetricsResult
	for end := time.Now().Add(30 * time.Second); m.Ended["completed"] == 0 && time.Now().Before(end); { // each answer is another turn of the loop
		m = must[api.MetricsResult](r.as(root), api.Metrics, none{})
	}
	if m.State != "serving" || m.Admitted != 1 || m.Sessions != 1 || m.Bridges != 1 || m.Servers["ready"] != 1 || m.OpenCalls != 0 || m.FreeBytes == 0 || m.ActivityBytes == 0 {
		t.Errorf("%+v", m)
	}
	refused := uint64(0)
	for code, n := range m.Refused {
		if refusal.Of(refusal.Code(code)).Sentence == "" {
			t.Errorf("%q is not of the table", code)
		}
		refused += n
	}
	if refused == 0 {
		t.Error("the refusal is not counted")
	}
	for _, h := range []api.Histogram{m.Admission, m.Commit} {
		n := uint64(0)
		for _, c := range h.Counts {
			n += c
		}
		if len(h.Counts) != len(h.BoundsUsec)+1 || n == 0 || !slices.IsSorted(h.BoundsUsec) {
			t.Errorf("%+v", h)
		}
	}
	raw, err := api.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"shop", "files", "read_rows", "alice", string(call), "prj_", "acc_"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is in %s", secret, raw)
		}
	}
	for _, uid := range []uint32{owner, stranger, host} {
		if _, code := r.as(uid).ask(api.Metrics, none{}); code != refusal.NotPermitted {
			t.Errorf("uid %d: %q", uid, string(code))
		}
	}
	next := facts()
	next.MetricsUID = stranger
	r.on(func() { r.g.Registry().SetRoot(next) })
	must[api.MetricsResult](r.as(stranger), api.Metrics, none{})
	for _, uid := range []uint32{owner, host} {
		if _, code := r.as(uid).ask(api.Metrics, none{}); code != refusal.NotPermitted {
			t.Errorf("uid %d, where another one is configured: %q", uid, string(code))
		}
	}
	if got := must[api.StatusResult](r.as(stranger), api.Status, none{}); got.StatusCounts != nil {
		t.Errorf("it is told more than sums: %+v", got)
	}
}
