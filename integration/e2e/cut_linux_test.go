package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"postern/supervisor/api"
)

// held has a call in flight at a project's counting server.
func (w *world) held(p project, r *runtime, id, ms int) chan message {
	w.t.Helper()
	n := len(w.calls(p))
	c := r.expect(fmt.Sprint(id))
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"ms":%d}}}`, id, ms))
	until(w.t, "the server has the call", func() bool {
		if len(c) > 0 {
			w.t.Fatalf("call %d: %s", id, (<-c).raw)
		}
		return len(w.calls(p)) == n+1
	})
	return c
}

// Each change that takes something away, of either socket, answers with the call that it
// found in flight; a dry run of it leaves the call alone and names none.
func TestA2_EveryNarrowingNamesTheCallsAdmittedBefore(t *testing.T) {
	w := newWorld(t)
	third := w.addProject("c", "alice", aliceUID)
	w.must("access", "set", "local", "--default-mode", "code")
	for _, name := range []string{"alice", "bob"} {
		w.must("access", "set", "local", name, "full", "--write")
	}
	w.must("project", "member", "add", "a", "bob", "--role", "member")
	w.must("project", "set", "a", "--person-bind")
	w.must("project", "set", "b", "--person-bind")
	count := []string{"count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--tier", "write=reversible", "--", "/package/count", "/workspace/calls.log"}
	back := func(args ...string) func() { return func() { w.must(args...) } }
	for i, c := range []struct {
		name   string
		p      project
		uid    int // who is bound as a person; 0: a runtime with a token
		change []string
		cancel bool
		state  string
		back   func()
	}{
		{"revoke", w.a, 0, []string{"connection", "revoke", "a", "count", "slow"}, true, "admitted", back("connection", "grant", "a", "count", "slow")},
		{"disable", w.a, 0, []string{"connection", "disable", "a", "count"}, true, "admitted", back("connection", "enable", "a", "count")},
		{"suspend", w.a, 0, []string{"account", "suspend", "alice"}, true, "admitted", back("account", "activate", "alice")},
		{"member remove", w.a, bobUID, []string{"project", "member", "remove", "a", "bob"}, true, "admitted", func() {}},
		{"task revoke", w.a, 0, []string{"task", "revoke", "TASK"}, true, "admitted", func() {}},
		{"access set", w.a, 0, []string{"access", "set", "local", "alice", "chat"}, true, "admitted", back("access", "set", "local", "alice", "full", "--write")},
		{"person bind", w.a, aliceUID, []string{"project", "set", "a", "--person-bind=off"}, true, "admitted", func() {}},
		{"open names", w.a, 0, []string{"project", "set", "a", "--open-name", ".envrc"}, false, "admitted", func() {}},
		{"server update", w.a, 0, append([]string{"server", "update"}, count...), false, "draining", func() {
			w.must("connection", "accept", "a", "count", "--yes")
			w.must("connection", "accept", "b", "count", "--yes")
			w.must("connection", "accept", "c", "count", "--yes")
		}},
		{"project delete", w.a, 0, []string{"project", "delete", "a"}, true, "admitted", func() {}},
		{"account delete", w.b, 0, []string{"account", "delete", "bob"}, true, "admitted", func() {}},
		{"server delete", third, 0, []string{"server", "delete", "count"}, true, "admitted", func() {}},
	} {
		uid, tok, task := c.uid, "", ""
		if uid == 0 {
			uid = runtimeUID
			tok, task = w.token(c.p, runtimeUID)
		}
		r := w.connect(c.p, uid, tok).initialize()
		ms := 25_000
		if c.state == "draining" {
			ms = 8_000 // it is waited for
		}
		open := w.held(c.p, r, 700+i, ms)
		args := slices.Clone(c.change)
		if at := slices.Index(args, "TASK"); at >= 0 {
			args[at] = task
		}
		at := slices.Index(args, "--")
		if at < 0 {
			at = len(args)
		}
		dry := w.must(slices.Insert(slices.Clone(args), at, "--dry-run")...)
		if strings.Contains(dry, "cal_") || w.records(c.p)[0].State != "admitted" {
			t.Errorf("%s: a dry run cut the call, or names it:\n%s", c.name, dry)
		}
		var got struct {
			api.Cut
		}
		out := w.must(append([]string{"--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want := w.records(c.p)[0].Call
		if len(got.Stands) != 1 || got.More != 0 || got.Stands[0].Call != want || got.Stands[0].Tool != "slow" || got.Stands[0].CancelSent != c.cancel || got.Stands[0].State != c.state || got.Stands[0].AgeMs <= 0 || !strings.HasPrefix(got.Note, api.Effects) {
			t.Errorf("%s: call %s, the answer is %+v", c.name, want, got.Cut)
		}
		if !c.cancel && c.state == "draining" {
			if got := r.wait(open).outcome(); got != "ok" {
				t.Errorf("%s: a call that drains: %s", c.name, got)
			}
		} else if got := r.wait(open).outcome(); got == "ok" {
			t.Errorf("%s: the call went on", c.name)
		}
		until(t, "its record has ended", func() bool { return w.records(c.p)[0].State != "admitted" })
		r.close()
		c.back()
	}
}

// A file has nobody to be answered: what its change cut is logged and shown to root.
func TestA2_AHostThatIsTakenOutOfTheFileIsAnsweredForInTheStatus(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	open := w.held(w.a, r, 77, 25_000)
	path := filepath.Join(w.Dir, "postern.yaml")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), "id: agents", "id: others")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var s api.RootStatusResult
	until(t, "the file was taken", func() bool {
		s = api.RootStatusResult{}
		return w.Call(api.RootStatus, struct{}{}, &s) == nil && s.Config.Cut != nil
	})
	if cut := s.Config.Cut; len(cut.Stands) != 1 || cut.Stands[0].Call != w.records(w.a)[0].Call || !cut.Stands[0].CancelSent {
		t.Errorf("%+v", cut)
	}
	if got := r.wait(open).outcome(); got == "ok" {
		t.Error("the call went on")
	}
	if log := w.Log.String(); !strings.Contains(log, "calls were admitted before a change of a file") || !strings.Contains(log, s.Config.Cut.Stands[0].Call) {
		t.Error("the log does not name the call")
	}
}
