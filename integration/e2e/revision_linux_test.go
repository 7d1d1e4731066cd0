package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// TestP3_C096_ANewRevisionInUse: a server is changed while a call runs. The call
// finishes, everything else is refused by name until a person accepts what was shown,
// the former instance and its copy go with the call, and an owner who is not root
// learns nothing of the command.
func TestP3_C096_ANewRevisionInUse(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	slow := r.expect("77")
	r.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"slow","arguments":{"ms":6000}}}`)
	until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == 2 })

	next := filepath.Join(w.Dir, "next")
	raw, err := os.ReadFile(filepath.Join(built.fixtures, "count", "count"))
	if err == nil {
		err = os.MkdirAll(next, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(next, "count"), raw, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(next, "unheard-of"), []byte("1"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.must("server", "update", "count", "--profile", "static", "--package", next, "--tier", "write=reversible", "--", "/package/count", "/workspace/calls.log", "--secret-looking-argument")
	if got := r.call("echo", `{}`).outcome(); got != "server_revision_changed" {
		t.Errorf("after the update: %s", got)
	}
	if ps := w.must("ps", "--project", w.a.id); !strings.Contains(ps, "draining") {
		t.Errorf("ps does not show that it drains:\n%s", ps)
	}
	var gc api.ServerGCResult
	if err := json.Unmarshal([]byte(w.must("--json", "server", "gc", "--dry-run")), &gc); err != nil || len(gc.Kept) != 2 || len(gc.Removed) != 0 {
		t.Errorf("while it drains: %+v, %v", gc, err)
	}
	if got := w.readiness(w.a); got != "stale_revision" {
		t.Errorf("readiness is %s", got)
	}
	// What the owner may see of it, by each way there is, holds nothing of the command.
	for _, args := range [][]string{{"connection", "show", "a", "count"}, {"connection", "list", "a"}, {"server", "show", "count"}, {"ps"}, {"project", "show", "a"}, {"activity"},
		{"explain", "--project", "a", "echo"}, {"server", "diff", "count"}, {"server", "list"}, {"server", "gc", "--dry-run"}, {"connection", "accept", "a", "count", "--dry-run"}} {
		for _, form := range [][]string{args, append([]string{"--json"}, args...)} {
			out, errb, _ := w.CLI(aliceUID, form...)
			for _, secret := range []string{"secret-looking", "/package", "unheard-of", "calls.log", next} {
				if strings.Contains(out+errb, secret) {
					t.Errorf("postern %q tells an owner of %q:\n%s%s", form, secret, out, errb)
				}
			}
		}
	}
	// Root is shown what was changed, in a dry run that changes nothing.
	shown := w.must("connection", "accept", "a", "count", "--dry-run")
	for _, want := range []string{"  + --secret-looking-argument", "Of the package's files 1 were added, 0 removed and 0 changed.", "  + unheard-of", "Without --dry-run: accepted"} {
		if !strings.Contains(shown, want) {
			t.Errorf("accept --dry-run does not show %q:\n%s", want, shown)
		}
	}
	if got := w.readiness(w.a); got != "stale_revision" {
		t.Errorf("after a dry run readiness is %s", got)
	}
	if got := r.wait(slow); got.text() != "slept" {
		t.Errorf("the call that was admitted before: %s", got.raw)
	}
	until(t, "the former copy is removed", func() bool {
		return json.Unmarshal([]byte(w.must("--json", "server", "gc", "--dry-run")), &gc) == nil && len(gc.Kept) == 1
	})
	w.must("connection", "accept", "a", "count", "--yes")
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("accepted, in the same session: %s", got.raw)
	}
	if got := w.readiness(w.a); got != "ready" {
		t.Errorf("readiness is %s", got)
	}
	var states map[string]int
	until(t, "the end of the last call is recorded", func() bool {
		states = map[string]int{}
		for _, row := range w.records(w.a) {
			states[row.State]++
		}
		return states["admitted"]+states["started"] == 0
	})
	if states["completed"] != 3 || states["unknown"]+states["cancelled"]+states["failed"] != 0 {
		t.Errorf("%v", states)
	}
}

func (w *world) readiness(p project) string {
	w.t.Helper()
	var con api.ConnectionResult
	if err := w.Call(api.ConnectionShow, api.ConnectionParams{Project: p.id, Server: "count"}, &con); err != nil {
		w.t.Fatal(err)
	}
	return con.Readiness
}

// TestP3_AcceptIsOfWhatWasShown: the revision that a person looked at, and no later one.
func TestP3_AcceptIsOfWhatWasShown(t *testing.T) {
	w := newWorld(t)
	update := func(arg string) string {
		out := w.must("--json", "server", "update", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--tier", "write=reversible", "--", "/package/count", "/workspace/calls.log", arg)
		var s api.ServerResult
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			var doc map[string]any
			json.Unmarshal([]byte(out), &doc)
			return fmt.Sprint(doc["revision"])
		}
		return s.Revision
	}
	looked := update("one")
	later := update("two")
	p := api.ConnectionParams{Project: w.a.id, Server: "count", Revision: looked}
	if err := w.Call(api.ConnectionAccept, p, nil); err == nil || !strings.Contains(err.Error(), "newer revision") {
		t.Errorf("a revision that nobody saw: %v", err)
	}
	p.Revision = later
	if err := w.Call(api.ConnectionAccept, p, nil); err != nil {
		t.Error(err)
	}
	var list api.ConnectionListResult
	if err := w.Call(api.ConnectionList, api.ProjectParams{Project: w.a.id}, &list); err != nil || !slices.ContainsFunc(list.Connections, func(c api.ConnectionResult) bool { return c.Accepted == later }) {
		t.Errorf("%+v, %v", list, err)
	}
}
