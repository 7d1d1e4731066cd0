package workers

import (
	"context"
	"slices"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
	"postern/supervisor/store"
)

// drained begins a drain and returns what comes of it.
func (r *rig) drained(most time.Duration) chan Drained {
	out := make(chan Drained, 1)
	go func() {
		d, err := r.w.Drain(context.Background(), most, func(int, time.Duration) {})
		if err != nil {
			r.t.Errorf("drain: %v", err)
		}
		out <- d
	}()
	r.settled("it drains", func() bool { return r.w.draining })
	return out
}

// of reads the record of a call.
func (r *rig) of(c ids.Call) store.Call {
	r.t.Helper()
	if err := r.do(r.g.Flush); err != nil {
		r.t.Fatal(err)
	}
	p, err := r.s.Calls(store.Query{})
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(p.Calls, func(x store.Call) bool { return x.ID == c })
	if i < 0 {
		r.t.Fatalf("%s has no record", c)
	}
	return p.Calls[i]
}

// The open call is waited for and keeps its outcome; nothing new begins meanwhile; then
// every session and jail ends; and once it is taken back everything begins again.
func TestWorkers8_X2_ADrainWaitsForOpenCallsAndTakesNothingNew(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	b, s, inst := r.ready(path)
	open, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(code)
	}
	out := r.drained(time.Minute)

	if _, _, line := r.bind(path, aliceUID, bindPlain); refusalIn(line) != refusal.Draining {
		t.Errorf("a session began: %q", line)
	}
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.Draining {
		t.Errorf("a call is answered %q", code)
	}
	if tools := b.view(s); len(tools) != 2 {
		t.Errorf("who is in sees %d tools", len(tools))
	}
	if _, err := r.w.Probe(context.Background(), id[ids.Server](files), id[ids.Revision](files), "", fresh[ids.Connection](), 1000); err == nil {
		t.Error("a probe was started")
	}
	r.await("the bridge is told", func() bool { return slices.Contains(b.heard, wire.Down(wire.Drain{})) })
	select {
	case d := <-out:
		t.Fatalf("it is over with a call open: %+v", d)
	default:
	}

	b.send(wire.Ended{Call: open, Outcome: wire.Completed, Size: 3})
	d := <-out
	if len(d.Calls) != 1 || d.Calls[0].Call != open || len(d.Ended) != 0 || d.Sessions != 1 || len(d.Tasks) != 1 || d.Tasks[0].Calls != 1 || d.Cancelled {
		t.Errorf("%+v", d)
	}
	if rec := r.of(open); rec.State != store.Completed {
		t.Errorf("the call that ended by itself is %v, %q", rec.State, rec.Code)
	}
	b.isGone("it drained")
	r.await("the session was told why", func() bool { return len(b.ended) == 1 && b.ended[0].Code == refusal.Draining })
	r.settled("no jail is left", func() bool { return len(r.w.jails) == 0 && r.w.DrainState() == "drained" })
	if _, _, line := r.bind(path, aliceUID, bindPlain); refusalIn(line) != refusal.Draining {
		t.Errorf("drained, and a session began: %q", line)
	}

	if err := r.do(func() error {
		if back, err := r.w.Undrain(func() error { return refusal.StoreUnavailable }); back || err == nil || r.w.DrainState() != "drained" {
			t.Errorf("taken back without a record: %v %v %q", back, err, r.w.DrainState())
		}
		if !undrain(r.w) || undrain(r.w) || r.w.DrainState() != "" {
			t.Error("it is taken back once")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	again, s, inst := r.ready(path)
	if _, code := again.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Errorf("after it was taken back a call is answered %q", code)
	}
}

// A call that is open when the time is over is unknown, its bridge hears a cancel, and
// what its bridge says afterwards changes nothing.
func TestWorkers8_X2_WhatIsOpenWhenTheTimeIsOverIsUnknown(t *testing.T) {
	for name, most := range map[string]time.Duration{"no time": 0, "some time": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			b, s, inst := r.ready(r.socket(shop))
			open, code := b.admit(s, r.conn[shop], inst, "read_rows")
			if code != "" {
				t.Fatal(code)
			}
			began := time.Now()
			d := <-r.drained(most)
			if took := time.Since(began); took < most {
				t.Errorf("it took %v", took)
			}
			if len(d.Ended) != 1 || d.Ended[0].Call != open || d.Ended[0].Tool != "read_rows" {
				t.Errorf("%+v", d)
			}
			r.await("the cancel", func() bool {
				return len(b.cancels) == 1 && b.cancels[0] == wire.Cancel{Call: open, Code: refusal.Draining}
			})
			if rec := r.of(open); rec.State != store.Unknown || rec.Code != refusal.Draining || rec.Reason != endedByDrain {
				t.Errorf("%v, %q, %q", rec.State, rec.Code, rec.Reason)
			}
			b.isGone("it drained")
		})
	}
}

// A bridge that does not let go of its sessions is ended after a while, and one that
// cannot be killed is not waited for beyond its time.
func TestWorkers8_ADrainEndsWhoeverDoesNotLetGo(t *testing.T) {
	r := newRig(t)
	r.mu.Lock()
	r.setUp = func(b *bridge) { b.deaf = true; b.noAnswer = true }
	r.mu.Unlock()
	path := r.socket(shop)
	go r.bind(path, aliceUID, bindPlain)
	r.settled("a session", func() bool { return r.w.Count().Sessions == 1 })
	d := <-r.drained(time.Minute)
	if d.Sessions != 1 || len(d.Ended) != 0 {
		t.Errorf("%+v", d)
	}
	r.settled("no jail is left", func() bool { return len(r.w.jails) == 0 })
}

// The shorter of two times holds, and both who asked are answered.
func TestX2_ASecondDrainMayBeShorter(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Fatal(code)
	}
	first := r.drained(time.Hour)
	second, err := r.w.Drain(context.Background(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := <-first; len(d.Ended) != 1 || len(second.Ended) != 1 {
		t.Errorf("%+v, %+v", d, second)
	}
}

// A drain that is taken back leaves what is open, and the bridge takes calls again.
func TestX2_ADrainThatIsTakenBackEndsNothing(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	open, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(code)
	}
	out := r.drained(time.Hour)
	if err := r.do(func() error { undrain(r.w); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := <-out; !d.Cancelled || len(d.Ended) != 0 {
		t.Errorf("%+v", d)
	}
	r.await("the bridge is told", func() bool { return slices.Contains(b.heard, wire.Down(wire.Drain{Over: true})) })
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Errorf("a call is answered %q", code)
	}
	b.send(wire.Ended{Call: open, Outcome: wire.Completed})
	r.settled("one of two is open", func() bool { return r.g.OpenCalls() == 1 })
	b.alive("it was taken back")
}

// posternd that ends is told when nothing is left, and nobody takes that back.
func TestX2_PosterndIsToldWhenNothingIsLeft(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Fatal(code)
	}
	r.say(order.Drain{TimeoutMs: 200})
	r.settled("it drains", func() bool { return r.w.draining })
	if err := r.do(func() error {
		if undrain(r.w) {
			t.Error("the end of posternd was taken back")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.await("posternd is told", func() bool { return has[order.Drained](r) && only[order.Drained](r)[0].Ended == 1 })
	b.isGone("it drained")
}

// The loop answers posternd's question, with what is open.
func TestALoopThatTurnsGivesASignOfLife(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Fatal(code)
	}
	r.say(order.Ping{N: 7})
	r.await("a sign of life", func() bool { return has[order.Pong](r) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := only[order.Pong](r)[0]; p != (order.Pong{N: 7, Sessions: 1, Calls: 1}) {
		t.Errorf("%+v", p)
	}
}

// undrain takes a drain back, with a record that always succeeds.
func undrain(w *Workers) bool {
	back, err := w.Undrain(func() error { return nil })
	return back && err == nil
}
