package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A probe that went well was warned of: its bridge, which ends by itself after its one
// catalogue, was killed a moment before it had, as one that outlived its grace.
func TestAProbeThatWentWellLeavesNoWarning(t *testing.T) {
	w := newBareWorld(t)
	w.must("server", "add", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count")
	for range 8 {
		w.must("server", "probe", "count")
	}
	began := time.Now()
	until(t, "nothing of it runs", func() bool { return len(w.leased()) == 0 })
	t.Logf("gone %v after the answer", time.Since(began))
	if log := w.Log.String(); strings.Contains(log, "[WARN]") {
		t.Errorf("a probe that went well is warned of:\n%s", log)
	}
	// The twin: a bridge that nobody asked to end.
	w.must("account", "add", "alice", "--uid", itoa(aliceUID))
	a := w.addProject("a", "alice", aliceUID)
	tok, _ := w.token(a, runtimeUID)
	if got := w.connect(a, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	w.a = a
	kill(t, w.jailPID("bridge"))
	until(t, "it is warned of", func() bool { return strings.Contains(w.Log.String(), "a bridge ended: kind=bridge project="+a.id) })
}
