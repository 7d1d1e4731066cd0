package e2e

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"postern/supervisor/api"
)

// Sixteen sessions call without a pause while the grant is taken back and given
// again. A call that was sent after a revocation had returned, and was answered
// before the next grant began, must have been refused; and the server must not
// have received it.
func TestA2_C086_NoCallSucceedsAfterARevocationReturned(t *testing.T) {
	const callers, rounds = 16, 25
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID, "--binds", itoa(callers))

	// The time line: revoked holds (returned, until) pairs.
	type span struct{ from, to time.Time }
	var mu sync.Mutex
	var revoked []span
	type answered struct {
		sent, got time.Time
		ok        bool
	}
	history := make([][]answered, callers)
	var stop atomic.Bool
	var answers atomic.Int64
	more := func(n int64) {
		from := answers.Load()
		until(t, "callers are answered", func() bool { return answers.Load() >= from+n })
	}
	var wg sync.WaitGroup
	for n := range callers {
		r := w.connect(w.a, runtimeUID, tok).initialize()
		wg.Go(func() {
			for !stop.Load() {
				sent := time.Now()
				m := r.call("echo", `{}`)
				answers.Add(1)
				history[n] = append(history[n], answered{sent, time.Now(), m.outcome() == "ok"})
				if o := m.outcome(); o != "ok" && o != "tool_not_granted" && o != "busy" && o != "call_revoked" && o != "server_exited" {
					t.Errorf("caller %d: %s", n, m.raw)
					return
				}
			}
		})
	}
	p := api.ConnectionParams{Project: w.a.id, Server: "count", Tools: []string{"echo"}}
	for range rounds {
		if err := w.Call(api.ConnectionRevoke, p, nil); err != nil {
			t.Fatal(err)
		}
		s := span{from: time.Now()}
		more(2 * callers) // one that each had sent before, and one that ran into the refusal
		s.to = time.Now()
		mu.Lock()
		revoked = append(revoked, s)
		mu.Unlock()
		if err := w.Call(api.ConnectionGrant, p, nil); err != nil {
			t.Fatal(err)
		}
		more(callers)
	}
	stop.Store(true)
	wg.Wait()
	var ok, refused, within int
	for n, h := range history {
		for _, a := range h {
			if a.ok {
				ok++
			} else {
				refused++
			}
			for _, s := range revoked {
				if a.sent.After(s.from) && a.got.Before(s.to) {
					within++
					if a.ok {
						t.Errorf("caller %d: a call was made %v after the revocation had returned", n, a.sent.Sub(s.from))
					}
				}
			}
		}
	}
	if ok == 0 || refused == 0 || within == 0 {
		t.Fatalf("the test saw nothing: %d made, %d refused, %d wholly within a revocation", ok, refused, within)
	}
	t.Logf("%d calls made, %d refused, %d of them wholly within a revocation", ok, refused, within)
	if got := len(w.calls(w.a)); got < ok {
		t.Errorf("the server received %d calls, %d were answered", got, ok)
	}
}

// A call in flight is reported by the revocation, cancelled upstream, and ends.
func TestARevocationNamesWhatWasAdmittedBefore(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	c := r.expect("77")
	r.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"slow","arguments":{"ms":20000}}}`)
	until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == 1 })
	var out api.RevokeResult
	if err := w.Call(api.ConnectionRevoke, api.ConnectionParams{Project: w.a.id, Server: "count", Tools: []string{"slow"}}, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Stands) != 1 || out.Stands[0].Tool != "slow" || !out.Stands[0].CancelSent || out.Stands[0].Call == "" || out.Fenced != 1 || out.Note == "" {
		t.Errorf("revoke answers %+v", out)
	}
	// It had reached the server: it must not be told like one that had not.
	if got := r.wait(c).outcome(); got != "call_revoked" {
		t.Errorf("the revoked call was answered: %s", got)
	}
	until(t, "its record has ended", func() bool { return w.records(w.a)[0].State != "admitted" })
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("what is still granted: %s", got.raw)
	}
	if got := r.call("slow", `{"ms":1}`); got.outcome() != "tool_not_granted" {
		t.Errorf("what was revoked: %s", got.raw)
	}
}

// Each narrowing change is effective at the very next call of a live session.
func TestNarrowingTakesEffectInALiveSession(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID, "--binds", "8")
	for _, c := range []struct {
		name         string
		narrow, back []string
		want         string
	}{
		{"revoke", []string{"connection", "revoke", "a", "count", "echo"}, []string{"connection", "grant", "a", "count", "echo"}, "tool_not_granted"},
		{"disable", []string{"connection", "disable", "a", "count"}, []string{"connection", "enable", "a", "count"}, "connection_disabled"},
		{"suspend", []string{"account", "suspend", "alice"}, []string{"account", "activate", "alice"}, ""},
	} {
		r := w.connect(w.a, runtimeUID, tok).initialize()
		if got := r.call("echo", `{}`); got.outcome() != "ok" {
			t.Fatalf("%s, before: %s", c.name, got.raw)
		}
		w.must(c.narrow...)
		n := len(w.calls(w.a))
		if got := r.call("echo", `{}`).outcome(); got == "ok" || c.want != "" && got != c.want {
			t.Errorf("%s, after: %s", c.name, got)
		}
		if len(w.calls(w.a)) != n {
			t.Errorf("%s: the server received the refused call", c.name)
		}
		w.must(c.back...)
		if c.want != "" {
			if got := r.call("echo", `{}`); got.outcome() != "ok" {
				t.Errorf("%s, given back in the same session: %s", c.name, got.raw)
			}
		}
	}
	r := w.connect(w.a, runtimeUID, tok).initialize()
	w.must("task", "revoke", task)
	if got := r.call("echo", `{}`).outcome(); got == "ok" {
		t.Error("a session of a revoked task calls a tool")
	}
	// A deleted project ends for ever; its records stay.
	w.must("project", "delete", "a")
	if got := w.connect(w.a, runtimeUID, tok).refused(); got == "" || got == "ok" {
		t.Errorf("a deleted project: %s", got)
	}
	if len(w.records(w.a)) == 0 {
		t.Error("the records of a deleted project are gone")
	}
}
