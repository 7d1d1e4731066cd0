package workers

import (
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/store"
)

// While something has a time the loop looks at it as often as ever; an idle time that ends
// is met; and where there is nothing it rests, for a second and no longer.
func TestTheLoopRestsWhereNothingHasATime(t *testing.T) {
	r := newRig(t)
	pause := func() (p time.Duration) {
		t.Helper()
		if err := r.do(func() error { p = r.w.pause(time.Now()); return nil }); err != nil {
			t.Fatal(err)
		}
		return p
	}
	rests := func(when string) {
		t.Helper()
		r.settled(when, func() bool { return r.w.pause(time.Now()) == RestEvery })
	}
	rests("with nothing")
	b, s, jail := r.ready(r.socket(shop))
	r.settled("it is ready", func() bool { return r.w.jails[jail].inst.state == instReady })
	rests("with a session")
	call, code := b.admit(s, r.conn[shop], jail, "read_rows")
	if code != "" {
		t.Fatal(code)
	}
	if p := pause(); p != TickEvery {
		t.Errorf("with an open call: %v", p)
	}
	b.send(wire.Ended{Call: call, Outcome: wire.Completed, Returned: true})
	r.record(call, store.Completed)
	rests("after the call")
	for says, how := range map[string]struct{ begin, end func() }{
		"an order without an answer": {func() { r.w.asked[99] = asked{until: time.Now().Add(time.Hour)} }, func() { delete(r.w.asked, 99) }},
		"a token in a file":          {func() { r.w.files[id[ids.Task](1)] = true }, func() { delete(r.w.files, id[ids.Task](1)) }},
		"a fence":                    {func() { r.w.fences[&fence{}] = true }, func() { clear(r.w.fences) }},
		"a drain":                    {func() { r.w.closing = &closing{} }, func() { r.w.closing = nil }},
		"a bridge that starts":       {func() { r.w.sets[b.key].ready = false }, func() { r.w.sets[b.key].ready = true }},
		"a question about stderr":    {func() { r.w.sets[b.key].reading = &reading{} }, func() { r.w.sets[b.key].reading = nil }},
		"a server that drains": {func() { r.w.jails[jail].inst.state = instDraining },
			func() { r.w.jails[jail].inst.state = instReady }},
	} {
		var during, after time.Duration
		if err := r.do(func() error { // no tick comes between
			how.begin()
			during = r.w.pause(time.Now())
			how.end()
			after = r.w.pause(time.Now())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if during != TickEvery || after != RestEvery {
			t.Errorf("%s: looked at after %v, and %v without it", says, during, after)
		}
	}
	// What ends sooner than the next look is met, and no later than it always was.
	for left, want := range map[time.Duration]time.Duration{300 * time.Millisecond: 300 * time.Millisecond, 30 * time.Millisecond: TickEvery, -time.Hour: TickEvery, time.Hour: RestEvery} {
		if err := r.do(func() error {
			now := time.Now()
			inst := r.w.jails[jail].inst
			inst.idleMs, inst.used = 60_000, now.Add(left-time.Minute)
			if got := r.w.pause(now); got != want {
				t.Errorf("a server that rests in %v: %v", left, got)
			}
			inst.idleMs = 0
			other := &set{key: gate.Set{Project: id[ids.Project](blog), Number: 9}, ready: true, idle: now.Add(left - BridgeIdle)}
			r.w.sets[other.key] = other
			if got := r.w.pause(now); got != want {
				t.Errorf("a bridge that rests in %v: %v", left, got)
			}
			delete(r.w.sets, other.key)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// What begins while the loop rests is not looked at later than what begins while it works.
func TestWhatBeginsInARestIsLookedAtInTime(t *testing.T) {
	r := newRig(t)
	least := time.Hour
	for range 3 {
		r.settled("it rests", func() bool { return r.w.pause(time.Now()) == RestEvery })
		time.Sleep(2 * TickEvery) // into the rest
		over := make(chan struct{})
		began := time.Now()
		if !r.w.Post(func() {
			r.w.askFor(TickEvery, func(seq uint64) order.Up { return order.TokenFileGone{Task: id[ids.Task](1)} }, func(order.Down, []int) { close(over) })
		}) {
			t.Fatal("the loop has ended")
		}
		<-over
		least = min(least, time.Since(began))
	}
	if least >= RestEvery {
		t.Errorf("an order without an answer was given up after %v, not %v", least, TickEvery)
	}
}
