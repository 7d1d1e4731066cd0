package workers

import (
	"context"
	"time"

	"postern/bridge/wire"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// Bounds of a drain.
const (
	MaxDrain   = time.Hour              // for open calls
	EndsWait   = 100 * time.Millisecond // for the ends of calls that are on their way, where open calls get no time
	DrainGrace = 2 * time.Second        // for sessions to close in order, once no call is open; then their bridge is ended
	DrainEvery = 500 * time.Millisecond // between two reports of how it goes
)

// endedByDrain is what stands in the record of a call that the drain ended.
const endedByDrain = "it was open when the time that the drain gave was over"

// Drained is what came of a drain.
type Drained struct {
	Tasks     []gate.LiveTask // with sessions, when it began
	Calls     []gate.OpenCall // open when it began
	Ended     []gate.OpenCall // of them, given up as unknown when the time was over
	Sessions  int             // closed
	Cancelled bool            // it was taken back before it was over
}

// closing is one drain, from the refusal of new work to the end of every jail.
//
//	open calls ──▶ all over, or the time is ──▶ sessions close ──▶ bridges and servers end ──▶ done
type closing struct {
	out     Drained
	until   time.Time // for open calls
	closing time.Time // for sessions; zero while calls are open
	killed  time.Time // for jails; zero while sessions are open
	over    bool
	done    chan struct{}
}

// Live is what a drain that began now would find. It runs on the loop.
func (w *Workers) Live() Drained { return Drained{Tasks: w.gate.LiveTasks(), Calls: w.gate.Open()} }

// Drain refuses new sessions and calls, gives open calls the time, ends what is left
// then, and closes every session and jail. It returns when that is done, or when another
// took it back. Nothing new is taken afterwards, until Undrain. A drain under way goes on
// with the shorter time, and goes on when ctx ends. progress, if not nil, is called again
// and again with how many calls are open and the time that they have left.
func (w *Workers) Drain(ctx context.Context, most time.Duration, progress func(open int, left time.Duration)) (Drained, error) {
	var d *closing
	if err := w.Do(ctx, func() { d = w.beginClosing(time.Now(), most) }); err != nil {
		return Drained{}, err
	}
	tick := time.NewTicker(DrainEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.done:
			return d.out, nil
		case <-w.over:
			return d.out, refusal.Draining
		case <-ctx.Done():
			return Drained{}, ctx.Err()
		case <-tick.C:
		}
		var open int
		var left time.Duration
		if progress != nil && w.Do(ctx, func() { open, left = w.gate.OpenCalls(), max(0, time.Until(d.until)) }) == nil {
			progress(open, left)
		}
	}
}

// Undrain takes new sessions and calls again. It runs on the loop, and tells whether
// there was anything to take back.
//
// It asks record first, where there is something to take back, and does nothing without it.
func (w *Workers) Undrain(record func() error) (bool, error) {
	d := w.closing
	if d == nil || w.leaving {
		return false, nil
	}
	if err := record(); err != nil {
		return false, err
	}
	w.closing, w.draining = nil, false
	w.gate.SetDraining(false)
	for _, s := range w.sets {
		if s.ready && !s.ended {
			w.tell(s, wire.Drain{Over: true})
		}
	}
	if !d.over {
		d.out.Cancelled = true
		close(d.done)
	}
	return true, nil
}

// DrainState says how far it is: "", draining or drained. It runs on the loop.
func (w *Workers) DrainState() string {
	switch {
	case w.closing == nil:
		return ""
	case w.closing.over:
		return "drained"
	}
	return "draining"
}

// leave drains because posternd ends, and tells it when that is done.
func (w *Workers) leave(most time.Duration) {
	w.leaving = true // nobody takes this back
	d := w.beginClosing(time.Now(), most)
	if d.over {
		w.order(order.Drained{Ended: uint64(len(d.out.Ended))})
	}
}

func (w *Workers) beginClosing(now time.Time, most time.Duration) *closing {
	until := now.Add(min(max(EndsWait, most), MaxDrain))
	if d := w.closing; d != nil {
		if until.Before(d.until) {
			d.until = until
		}
		return d
	}
	d := &closing{out: w.Live(), until: until, done: make(chan struct{})}
	w.closing, w.draining = d, true
	w.gate.SetDraining(true)
	w.log.Info("draining", "open_calls", len(d.out.Calls), "tasks", len(d.out.Tasks), "for", time.Until(until).Round(time.Millisecond))
	for _, s := range w.everySet() {
		switch {
		case s.probe != nil, !s.ready: // nobody is in it yet
			w.endSetWith(s, "Postern is draining", refusal.Draining)
		default:
			w.tell(s, wire.Drain{})
		}
	}
	w.tickClosing(now)
	return d
}

// everySet lists the bridges, those of probes too, so that ending one of them does not
// disturb the walk.
func (w *Workers) everySet() []*set {
	seen := map[*set]bool{}
	for _, s := range w.sets {
		seen[s] = true
	}
	for _, s := range w.byFD {
		seen[s] = true
	}
	out := make([]*set, 0, len(seen))
	for s := range seen {
		out = append(out, s)
	}
	return out
}

// tickClosing takes the next step of a drain, where it is time for it.
func (w *Workers) tickClosing(now time.Time) {
	d := w.closing
	if d == nil || d.over {
		return
	}
	if d.closing.IsZero() {
		if w.gate.OpenCalls() > 0 && now.Before(d.until) {
			return
		}
		w.endOpen(d)
		d.out.Sessions = w.Count().Sessions
		for _, s := range w.sets {
			for session := range s.sessions {
				w.endSession(s.key, session, refusal.Draining)
			}
		}
		d.closing = now.Add(DrainGrace)
	}
	if d.killed.IsZero() {
		if w.Count().Sessions > 0 && now.Before(d.closing) {
			return
		}
		for _, s := range w.everySet() {
			w.endSetWith(s, "Postern is draining", refusal.Draining)
		}
		d.killed = now.Add(KillWait)
	}
	if len(w.jails) > 0 && now.Before(d.killed) {
		return // posternd tells of each when it is gone
	}
	d.over = true
	w.log.Info("drained", "ended_calls", len(d.out.Ended), "closed_sessions", d.out.Sessions)
	close(d.done)
	if w.leaving {
		w.order(order.Drained{Ended: uint64(len(d.out.Ended))})
	}
}

// endOpen gives up the calls that are still open: each becomes unknown, its runtime is
// answered, and its server hears a cancel.
func (w *Workers) endOpen(d *closing) {
	d.out.Ended = w.gate.Open()
	for _, c := range d.out.Ended {
		w.log.Warn("a call was ended by the drain, and what it did is unknown", "call", c.Call, "tool", c.Tool, "task", c.Task, "project", c.Set.Project, "age", c.Age.Round(time.Millisecond))
		w.gate.GiveUp(c.Call, refusal.Draining, endedByDrain)
		w.cancel(c.Set, c.Call, refusal.Draining)
	}
}
