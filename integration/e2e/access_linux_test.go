package e2e

import (
	"testing"
	"time"
)

// A change of the access policy meets a live session: what runs is cancelled, the next
// call is refused before the server, the list is told to have changed and is empty; and
// all of it comes back in the same session.
func TestC8_AnEditNarrowsALiveSession(t *testing.T) {
	w := newWorld(t)
	w.must("access", "set", "local", "--default-mode", "code")
	w.must("access", "set", "local", "alice", "full", "--write")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" || len(r.tools()) == 0 {
		t.Fatal(got.raw)
	}
	before := len(w.calls(w.a))
	c := r.expect("77")
	r.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"slow","arguments":{"ms":20000}}}`)
	until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == before+1 })
	w.must("access", "set", "local", "alice", "chat", "--dry-run")
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatalf("a trial run takes away: %s", got.raw)
	}
	for len(r.notes) > 0 {
		<-r.notes
	}
	w.must("access", "set", "local", "alice", "chat")
	n := len(w.calls(w.a))
	if got := r.wait(c).outcome(); got != "call_revoked" {
		t.Errorf("the open call: %s", got)
	}
	if got := r.call("echo", `{}`).outcome(); got != "access_refused" {
		t.Errorf("the next call: %s", got)
	}
	if got := len(w.calls(w.a)); got != n {
		t.Errorf("the server received %d more", got-n)
	}
	for told := false; !told; {
		select {
		case m := <-r.notes:
			told = m.Method == "notifications/tools/list_changed"
		case <-time.After(answerWait):
			t.Fatal("the list is not told to have changed")
		}
	}
	if got := r.tools(); len(got) != 0 {
		t.Errorf("still listed: %q", got)
	}
	w.must("access", "set", "local", "alice", "full", "--write")
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("given back: %s", got.raw)
	}
}
