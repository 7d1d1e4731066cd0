package workers

import (
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// drainRevised lets the instances of a project run out whose revision is no longer the
// one that their connection's calls go to. Its calls are refused already: the gate
// compares revisions.
func (w *Workers) drainRevised(p ids.Project, out *Narrowed) {
	for _, s := range w.sets {
		if s.key.Project != p || s.ended {
			continue
		}
		for _, inst := range s.insts {
			if inst.state != instIdle && !w.gate.Runs(p, inst.at.Conn, inst.revision) {
				was := inst.state
				w.drain(inst)
				if inst.state != was { // else it was told of by the change that began its end
					out.add(w.gate.Using(inst.jail), inst.state == instDraining)
				}
			}
		}
	}
}

// drain has an instance take no other call. One that has none, or is not ready yet, is
// stopped at once.
func (w *Workers) drain(inst *instance) {
	switch {
	case inst.state == instDraining, inst.state == instEnding:
		return
	case inst.state != instReady:
		w.stopInstance(inst, 0)
		return
	}
	w.tell(inst.set, wire.Retired{Connection: inst.at.Conn, Slot: w.gate.Slot(inst.at), Instance: inst.jail})
	if inst.state != instReady { // its bridge did not read, and is ended with all that it has
		return
	}
	inst.state, inst.drained = instDraining, time.Now().Add(DrainWait)
	w.tickDrain(inst, time.Now())
}

// tickDrain stops a draining instance that has nothing left to do, or no time.
func (w *Workers) tickDrain(inst *instance, now time.Time) {
	calls := w.gate.CallsOf(inst.jail)
	if len(calls) > 0 && now.Before(inst.drained) {
		return
	}
	for _, c := range calls {
		w.log.Warn("a call of a former revision did not end in time", "call", c, "connection", inst.at.Conn)
		w.cancel(inst.set.key, c, refusal.ServerRevisionChanged)
	}
	w.stopInstance(inst, StopGrace)
}
