package gate

import (
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
)

// callIn admits a call for the instance in jail.
func (w *world) callIn(jail ids.Jail) ids.Call {
	w.t.Helper()
	w.next++
	d := w.g.Admit(shopSet, wire.Admit{Session: w.ses, Connection: w.conn, Instance: jail, Tool: "read_rows", Digest: strings.Repeat("ab", 32)}, id[ids.Revision](1), Seen{})
	if d.Code != "" {
		w.t.Fatalf("refused: %s", d.Code)
	}
	w.commit()
	return d.Call
}

func (w *world) died(c ids.Call) {
	w.t.Helper()
	if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: wire.Unknown, Code: refusal.ServerExited}); err != nil {
		w.t.Fatal(err)
	}
}

// A call that died with a jail has the jail's end in its record, whichever of the two
// words comes first; one that ended by itself, or in another jail, has not.
func TestGate5_ACallThatDiedWithItsJailSaysHow(t *testing.T) {
	const why = "the memory limit ended it (jal_1)"
	one, other := id[ids.Jail](1), id[ids.Jail](2)
	for name, run := range map[string]func(w *world, c ids.Call){
		"bridge first":   func(w *world, c ids.Call) { w.died(c); w.commit(); w.g.JailEnded(one, refusal.ServerMemory, why) },
		"posternd first": func(w *world, c ids.Call) { w.g.JailEnded(one, refusal.ServerMemory, why); w.died(c) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, beside, well := w.callIn(one), w.callIn(other), w.callIn(one)
			w.ended(well, wire.Completed)
			run(w, c)
			w.died(beside)
			w.flushed()
			if r := w.record(c); r.State != store.Unknown || r.Code != refusal.ServerMemory || r.Reason != why {
				t.Errorf("%+v", r)
			}
			if r := w.record(beside); r.State != store.Admitted || r.Reason != "" {
				t.Errorf("a call of a jail that nobody told of yet: %+v", r)
			}
			if r := w.record(well); r.State != store.Completed || r.Code != "" || r.Reason != "" {
				t.Errorf("a call that was answered: %+v", r)
			}
			if w.g.OpenCalls() != 0 {
				t.Errorf("%d calls count as open", w.g.OpenCalls())
			}
			// Where nobody tells, the outcome is written down without.
			w.g.TickFates(w.now.Add(FateWait + 1))
			w.flushed()
			if r := w.record(beside); r.State != store.Unknown || r.Code != refusal.ServerExited || r.Reason != "" {
				t.Errorf("after FateWait: %+v", r)
			}
			w.g.JailEnded(other, refusal.ServerMemory, why)
			w.flushed()
			if r := w.record(beside); r.Code != refusal.ServerExited {
				t.Errorf("an outcome was written twice: %+v", r)
			}
		})
	}
}

// Whoever leaves in order writes down what waits.
func TestGate5_LeavingWritesDownWhatWaits(t *testing.T) {
	w := newWorld(t)
	fell, well := w.callIn(id[ids.Jail](1)), w.callIn(id[ids.Jail](1))
	w.died(fell)
	w.ended(well, wire.Completed)
	if err := w.g.Leave(); err != nil {
		t.Fatal(err)
	}
	if a, b := w.record(fell), w.record(well); a.State != store.Unknown || a.Code != refusal.ServerExited || b.State != store.Completed {
		t.Errorf("%+v, %+v", a, b)
	}
}

// What a bridge took with it has the bridge's end; the code stays.
func TestGate5_ABridgesEndIsInItsCallsRecords(t *testing.T) {
	w := newWorld(t)
	bridge := id[ids.Jail](3)
	c := w.callIn(id[ids.Jail](1))
	w.g.SetEnded(shopSet, refusal.ServerExited, bridge)
	w.g.JailEnded(bridge, "", "the bridge: signal 9 ended it\nand more")
	w.flushed()
	if r := w.record(c); r.State != store.Unknown || r.Code != refusal.ServerExited || r.Reason != `the bridge: signal 9 ended it\nand more` {
		t.Errorf("%+v", r)
	}
}

// Outcomes that wait are bounded; beyond the bound they are written down at once.
func TestGate6_WaitingOutcomesAreBounded(t *testing.T) {
	w := newWorld(t)
	jail := id[ids.Jail](1)
	w.g.fallen[id[ids.Jail](9)] = make([]fell, MaxFallen)
	c := w.callIn(jail)
	w.died(c)
	w.flushed()
	if r := w.record(c); r.State != store.Unknown || r.Code != refusal.ServerExited {
		t.Errorf("%+v", r)
	}
	delete(w.g.fallen, id[ids.Jail](9))
	d := w.callIn(jail)
	w.died(d)
	w.flushed()
	if r := w.record(d); r.State != store.Admitted {
		t.Errorf("below the bound: %+v", r)
	}
}

func (w *world) flushed() {
	w.t.Helper()
	if err := w.g.Flush(); err != nil {
		w.t.Fatal(err)
	}
}
