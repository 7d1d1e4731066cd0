package e2e

import (
	"testing"
	"time"

	"postern/supervisor/api"
)

// TestP1_U2_AnAccountIsCutOffInTheMiddleOfACall: the session ends without waiting for
// the runtime's next word, its open call is cancelled, and others go on. What the account
// could see it sees no more.
func TestP1_U2_AnAccountIsCutOffInTheMiddleOfACall(t *testing.T) {
	const bound = 5 * time.Second // a second where nothing else runs
	w := newWorld(t)
	w.must("project", "set", "a", "--person-bind")
	w.must("project", "set", "b", "--person-bind")
	for _, c := range []struct {
		name  string
		p     project
		other project
		cut   func()
	}{
		{"suspended", w.a, w.b, func() { w.must("account", "suspend", "alice") }},
		{"deleted", w.b, w.a, func() {
			w.must("account", "activate", "alice")
			w.must("account", "delete", "bob")
		}},
	} {
		had := len(w.calls(c.p))
		r := w.connect(c.p, c.p.owner, "").initialize()
		call := r.expect("77")
		r.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"slow","arguments":{"ms":25000}}}`)
		until(t, "the server has the call", func() bool { return len(w.calls(c.p)) > had })
		if _, _, exit := w.CLI(c.p.owner, "project", "show", c.p.id); exit != 0 {
			t.Fatalf("%s, before: %d", c.name, exit)
		}
		var other *runtime
		if c.name == "suspended" {
			other = w.connect(c.other, c.other.owner, "").initialize()
		}
		began := time.Now()
		c.cut()
		select {
		case <-r.ended:
			took := time.Since(began)
			t.Logf("%s: the session ended %v after the command began", c.name, took.Round(time.Millisecond))
			if took > bound {
				t.Errorf("%s: it took %v", c.name, took)
			}
		case <-time.After(answerWait):
			t.Fatalf("%s: the session lives on", c.name)
		}
		if got := r.wait(call); got.outcome() == "ok" {
			t.Errorf("%s: the open call was answered: %s", c.name, got.raw)
		}
		until(t, "its record has ended", func() bool { s := w.records(c.p)[0].State; return s == "cancelled" || s == "unknown" })
		if out, _, exit := w.CLI(c.p.owner, "project", "show", c.p.id); exit == 0 {
			t.Errorf("%s: it still reads its project:\n%s", c.name, out)
		}
		if out, _, exit := w.CLI(c.p.owner, "connection", "disable", c.p.id, "count"); exit == 0 {
			t.Errorf("%s: it still changes its project:\n%s", c.name, out)
		}
		if got := w.connect(c.p, c.p.owner, "").refused(); got == "" || got == "ok" {
			t.Errorf("%s: it connects again: %s", c.name, got)
		}
		if other != nil {
			if got := other.call("echo", `{}`); got.outcome() != "ok" {
				t.Errorf("%s: another account's session: %s", c.name, got.raw)
			}
			other.close()
		}
	}
	var list api.ActivityResult
	if err := w.Call(api.Activity, api.ActivityParams{Project: w.b.id}, &list); err != nil || len(list.Rows) == 0 {
		t.Errorf("the records of a deleted account are gone: %+v, %v", list, err)
	}
}
