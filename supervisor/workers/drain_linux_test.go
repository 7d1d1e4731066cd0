package workers

import (
	"slices"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// revise gives the files server another revision, and returns when the loop decides by it.
func (r *rig) revise(n int) ids.Revision {
	r.t.Helper()
	next := facts()
	srv := next.Servers[id[ids.Server](files)]
	rev := *srv.Revisions[srv.Current]
	rev.ID = id[ids.Revision](n)
	srv.Revisions[rev.ID], srv.Current = &rev, rev.ID
	next.Servers[srv.ID] = srv
	v := r.setFacts(next)
	r.await("the new revision", func() bool { return r.acked(v) })
	pins, err := gate.Pins([]byte(catalogueText), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.PutCatalogue(rev.ID, time.Now(), "", "", pins)
	})
	return rev.ID
}

func (r *rig) accept(rev ids.Revision) {
	r.t.Helper()
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.Accept(r.conn[shop], rev, nil, "root", 0, time.Now())
	})
}

// stateOf is what ps says of a jail.
func (r *rig) stateOf(jail ids.Jail) (state string) {
	r.t.Helper()
	if err := r.do(func() error {
		if o := r.w.jails[jail]; o.inst != nil {
			state = instStates[o.inst.state]
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return state
}

func retired(b *bridge) (out []wire.Retired) {
	for _, m := range b.heard {
		if m, ok := m.(wire.Retired); ok {
			out = append(out, m)
		}
	}
	return out
}

func TestWorkers7_P3_CallsOfAFormerRevisionFinishAndThenItEnds(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	rev := r.revise(71)
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.ServerRevisionChanged {
		t.Fatalf("a call to the former revision: %q", string(code))
	}
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.ServerRevisionChanged {
		t.Fatalf("a start before it is accepted: %q", string(code))
	}
	r.await("the bridge is told once", func() bool {
		return len(retired(b)) == 1 && retired(b)[0].Instance == inst && len(b.cancels) == 0 && len(b.exits) == 0
	})
	if got := r.stateOf(inst); got != "draining" {
		t.Fatalf("ps says %q", got)
	}
	// Accepted while it drains: the next one starts when this one is gone, and not beside it.
	r.accept(rev)
	next := make(chan ids.Jail, 1)
	go func() {
		j, code := b.start(s, r.conn[shop], "read_rows")
		if code != "" {
			t.Errorf("after it was accepted: %q", string(code))
		}
		next <- j
	}()
	r.await("the start", func() bool { return len(only[order.LaunchServer](r)) == 1 })
	if got := r.stateOf(inst); got != "draining" {
		t.Fatalf("a start ended it: %q", got)
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Completed})
	r.record(c, store.Completed)
	if j := <-next; j == inst || j == "" {
		t.Fatalf("%s again", j)
	}
	r.await("the end of the former", func() bool { return r.jails[inst].gone })
	if l := only[order.LaunchServer](r); len(l) != 2 || l[1].Revision != rev {
		t.Fatalf("%+v", l)
	}
	if _, code := b.admit(s, r.conn[shop], r.servers[len(r.servers)-1].jail, "read_rows"); code != "" {
		t.Fatalf("a call to the new one: %q", string(code))
	}
}

func TestWorkers7_WithoutACallItEndsAtOnce(t *testing.T) {
	r := newRig(t)
	b, _, inst := r.ready(r.socket(shop))
	r.revise(71)
	r.await("its end", func() bool { return r.jails[inst].gone && len(b.exits) == 1 })
	if rows, err := r.w.Ps(t.Context()); err != nil || slices.ContainsFunc(rows, func(x Row) bool { return x.State == "down" }) {
		t.Errorf("an end that was asked for is shown as a failure: %+v, %v", rows, err)
	}
}

func TestWorkers7_ACallThatDoesNotEndInTimeIsCancelled(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	r.revise(71)
	if err := r.do(func() error { r.w.jails[inst].inst.drained = time.Now().Add(-time.Millisecond); return nil }); err != nil {
		t.Fatal(err)
	}
	r.await("the cancellation and the end", func() bool {
		return len(b.cancels) == 1 && b.cancels[0].Call == c && b.cancels[0].Code == refusal.ServerRevisionChanged && r.jails[inst].gone
	})
	b.send(wire.Ended{Call: c, Outcome: wire.Unknown, Code: refusal.ServerExited})
	r.record(c, store.Unknown)
}

// A revocation does not wait for what drains.
func TestWorkers7_ARevocationCancelsWhatDrains(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	r.revise(71)
	n := r.narrow(shop, revokeRead(r.conn[shop]))
	if len(n.Stands) != 1 || n.Stands[0].Call != c || !n.Stands[0].CancelSent {
		t.Fatalf("%+v", n)
	}
	if n := r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) { return reg.Enable(r.conn[shop], false, 0) }); n.Fenced != 1 {
		t.Fatalf("%+v", n)
	}
	r.await("its end", func() bool { return r.jails[inst].gone })
}
