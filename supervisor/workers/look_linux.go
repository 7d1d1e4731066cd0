package workers

import (
	"context"

	"postern/bridge/wire"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// look asks posternd where the paths of one call lie, and goes on with then when the
// answer is there: the call is decided only then, by everything as it stands then. The
// loop does not wait, and other calls pass it by. Who asks more than an honest bridge
// can, or gets no answer in time, is told that nobody could look.
func (w *Workers) look(s *set, a *gate.Ask, then func(gate.Seen)) {
	if s.looks >= wire.MaxAsked || w.looks >= MaxLooks {
		then(gate.Seen{Asked: true, Code: refusal.Busy})
		return
	}
	s.looks++
	w.looks++
	moved := w.moved(a.Project)
	w.askFor(LookWait, func(seq uint64) order.Up {
		return order.Resolve{Seq: seq, Project: a.Project, Task: a.Task, Moved: moved, Paths: a.Paths, OfHost: a.OfHost}
	}, func(m order.Down, fds []int) {
		closeAll(fds)
		s.looks--
		w.looks--
		seen := gate.Seen{Asked: true, Code: refusal.Busy}
		if r, ok := m.(order.Resolved); ok {
			seen.Inside, seen.Code, seen.Which, seen.Why = r.Inside, r.Code, r.Which, r.Text
		}
		if !s.ended {
			then(seen)
		}
	})
}

// Look asks posternd where the paths of a check lie, for a goroutine other than the
// loop's. Who gets no answer in time is told that nobody could look.
func (w *Workers) Look(ctx context.Context, a *gate.Ask) (gate.Seen, error) {
	done := make(chan gate.Seen, 1)
	if err := w.Do(ctx, func() {
		if w.looks >= MaxLooks {
			done <- gate.Seen{Asked: true, Code: refusal.Busy}
			return
		}
		w.looks++
		moved := w.moved(a.Project)
		w.askFor(LookWait, func(seq uint64) order.Up {
			return order.Resolve{Seq: seq, Project: a.Project, Task: a.Task, Moved: moved, Paths: a.Paths, OfHost: a.OfHost}
		}, func(m order.Down, fds []int) {
			closeAll(fds)
			w.looks--
			seen := gate.Seen{Asked: true, Code: refusal.Busy}
			if r, ok := m.(order.Resolved); ok {
				seen.Inside, seen.Code, seen.Which, seen.Why = r.Inside, r.Code, r.Which, r.Text
			}
			done <- seen
		})
	}); err != nil {
		return gate.Seen{}, err
	}
	select {
	case seen := <-done:
		return seen, nil
	case <-w.over:
		return gate.Seen{}, refusal.Draining
	}
}
