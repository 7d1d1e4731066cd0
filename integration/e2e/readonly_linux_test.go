package e2e

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// While Postern is read-only calls reach their tool servers, hosts make tasks and what
// protects takes effect; whatever gives is refused by name, through a restart too.
func TestReadOnly_CallsGoOnAndNothingIsGiven(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID, "--binds", "2")
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if _, errb, exit := w.CLI(aliceUID, "readonly", "on"); exit == 0 {
		t.Errorf("an account switched the mode: %s", errb)
	}
	w.must("readonly", "on", "--dry-run")
	w.must("connection", "grant", "a", "count", "write", "--tier", "reversible")
	w.must("connection", "revoke", "a", "count", "write")
	w.must("readonly", "on")
	given := func() {
		t.Helper()
		for _, args := range [][]string{
			{"connection", "grant", "a", "count", "write"}, {"connection", "enable", "a", "count"}, {"project", "set", "a", "--person-bind", "on"}, {"account", "add", "carol", "--uid", "61003"},
			{"server", "add", "more", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count"}, {"server", "probe", "count"}, {"project", "delete", "b"},
			{"access", "set", "sms", "--admission", "open"}, {"access", "pair", "sms"},
		} {
			if out, errb, exit := w.CLI(0, args...); exit != 65 || !strings.Contains(errb, "read-only") {
				t.Errorf("%q: exit %d %s%s", args, exit, out, errb)
			}
		}
		if _, errb, exit := w.CLI(aliceUID, "project", "delete", "a"); exit != 65 || !strings.Contains(errb, "read-only") {
			t.Errorf("its owner: exit %d %s", exit, errb)
		}
		if out, _, exit := w.CLI(bobUID, "status"); exit != 0 || !strings.Contains(out, "read-only since") {
			t.Errorf("status: %s", out)
		}
		if out, _, _ := w.CLI(0, "doctor"); !strings.Contains(out, ", read-only") {
			t.Errorf("doctor: %s", out)
		}
	}
	given()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("a call of a session that was open: %s", got.raw)
	}
	tok2, task := w.token(w.b, runtimeUID)
	r2 := w.connect(w.b, runtimeUID, tok2).initialize()
	if got := r2.call("echo", `{}`); got.outcome() != "ok" || len(w.calls(w.b)) != 1 {
		t.Errorf("a call of a new task: %s", got.raw)
	}
	if _, errb, exit := w.CLI(aliceUID, "connection", "revoke", "a", "count", "slow"); exit != 0 {
		t.Errorf("revoke: %s", errb)
	}
	if got := r.call("slow", `{"ms":1}`); got.outcome() == "ok" {
		t.Errorf("what was revoked: %s", got.raw)
	}
	if _, errb, exit := w.CLI(bobUID, "task", "revoke", task); exit != 0 {
		t.Errorf("end a task: %s", errb)
	}
	<-r2.ended
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	given()
	r = w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("after a restart: %s", got.raw)
	}
	w.must("readonly", "off")
	w.must("connection", "grant", "a", "count", "slow")
	if got := r.call("slow", `{"ms":1}`); got.outcome() != "ok" {
		t.Errorf("after the mode: %s", got.raw)
	}
}

// Once the mode is answered nothing is given any more, however many were about to.
func TestReadOnly_NothingIsGivenAfterItIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.must("connection", "revoke", "a", "count", "slow")
	var all sync.WaitGroup
	stop := make(chan struct{})
	for _, p := range []project{w.a, w.b} {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, args := range [][]string{{"connection", "grant", p.label, "count", "slow"}, {"project", "set", p.label, "--person-bind", "on"}, {"project", "set", p.label, "--person-bind", "off"}} {
					w.CLI(0, args...)
				}
			}
		})
	}
	until(t, "changes are made", func() bool { return strings.Contains(w.must("--json", "project", "show", "a"), `"person_bind":true`) })
	w.must("readonly", "on")
	state := func() string {
		return w.must("--json", "project", "show", "a") + w.must("--json", "project", "show", "b") + w.must("--json", "connection", "show", "a", "count")
	}
	before := state()
	for range 10 {
		if now := state(); now != before {
			t.Fatalf("it changed from\n%s\nto\n%s", before, now)
		}
	}
	close(stop)
	all.Wait()
	if now := state(); now != before {
		t.Errorf("it changed from\n%s\nto\n%s", before, now)
	}
}
