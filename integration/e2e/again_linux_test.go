package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A registration that is deleted and made again under its label is another server: what
// was granted to the first says so, to the runtime and to root, and the second is reached
// by a connection of its own, under names of its own.
func TestP3_ALabelThatIsUsedAgainIsAnotherServer(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{"text":"one"}`); got.outcome() != "ok" {
		t.Fatalf("%.300s", got.raw)
	}
	again := func() {
		t.Helper()
		w.must("server", "add", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count")
	}
	w.must("server", "delete", "count")
	before := len(w.calls(w.a))
	for _, when := range []string{"deleted", "registered again"} {
		if got := r.call("echo", `{"text":"two"}`); got.outcome() != "server_deleted" || !strings.Contains(got.raw, "The registration of this server is deleted.") {
			t.Errorf("%s: %.300s", when, got.raw)
		}
		for _, change := range [][]string{{"connection", "enable", "a", "count"}, {"connection", "grant", "a", "count", "echo"}, {"connection", "show", "a", "count"}} {
			if _, errb, exit := w.CLI(0, change...); exit == 0 || !strings.Contains(errb, "another server") {
				t.Errorf("%s: %v: exit %d, %s", when, change, exit, errb)
			}
		}
		out, _, _ := w.CLI(0, "explain", "--task", task, "echo")
		if !strings.Contains(out, "server_deleted") || !strings.Contains(out, "another server") {
			t.Errorf("%s: explain says\n%s", when, out)
		}
		if when == "deleted" {
			again()
		}
	}
	if got := len(w.calls(w.a)); got != before {
		t.Errorf("the server received %d calls", got-before)
	}
	w.must("connection", "add", "a", "count")
	w.must("connection", "grant", "a", "count", "echo")
	if got := r.call("count.echo", `{"text":"three"}`); got.outcome() != "ok" {
		t.Errorf("%.300s", got.raw)
	}
	if got := r.call("echo", `{"text":"four"}`); got.outcome() != "server_deleted" {
		t.Errorf("the first one's name: %.300s", got.raw)
	}
	// Disabled and enabled again, the new one is meant by the label.
	w.must("connection", "disable", "a", "count")
	if got := r.call("count.echo", `{"text":"five"}`); got.outcome() != "connection_disabled" {
		t.Errorf("%.300s", got.raw)
	}
	// Its server is ended; a call that comes before its bridge has seen that would be told
	// that the server it meant is not there.
	until(t, "its server has ended", func() bool {
		var ps api.PsResult
		return w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps) == nil && !slices.ContainsFunc(ps.Rows, func(r api.PsRow) bool { return r.Kind == "server" && r.Label == "count" })
	})
	w.must("connection", "enable", "a", "count")
	if got := r.call("count.echo", `{"text":"six"}`); got.outcome() != "ok" {
		t.Errorf("%.300s", got.raw)
	}
	var all api.ConnectionListResult
	if err := w.Call(api.ConnectionList, api.ListParams{Project: w.a.id}, &all); err != nil || len(all.Connections) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}
