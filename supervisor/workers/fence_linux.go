package workers

import (
	"context"
	"slices"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
)

// Narrowed is what came of a narrowing change.
type Narrowed struct {
	Stands   []gate.Stand // calls admitted before, which the change no longer allows
	Sessions int          // told to end
	Fenced   int          // bridges that acknowledged
	Killed   int          // bridges that did not, and were ended
}

// add names calls that the change touches beside those that it no longer allows.
func (n *Narrowed) add(calls []gate.Stand, drains bool) {
	for _, c := range calls {
		if !slices.ContainsFunc(n.Stands, func(o gate.Stand) bool { return o.Call == c.Call }) {
			c.Drains = drains
			n.Stands = append(n.Stands, c)
		}
	}
}

// fence waits for the bridges of a project to acknowledge.
type fence struct {
	until time.Time // then what has not answered is killed
	kill  time.Time // then nobody waits any more
	left  map[*set]uint64
	dying map[ids.Jail]bool
	out   Narrowed
	done  chan struct{}
	then  func(Narrowed) // on the loop, before done is closed; nil for none
}

// Narrow runs change on the loop and, when it worked, reconsiders every open call
// and session of the projects it touches, cancels and ends what is no longer
// allowed, and returns when each affected bridge has acknowledged its fence or
// is ended. No admission that the change forbids succeeds after it returned.
func (w *Workers) Narrow(ctx context.Context, change func() ([]ids.Project, error)) (Narrowed, error) {
	var f *fence
	var failed error
	if err := w.Do(ctx, func() {
		projects, err := change()
		if err != nil {
			failed = err
			return
		}
		f = w.raise(projects, FenceWait+KillWait, nil)
	}); err != nil {
		return Narrowed{}, err
	}
	if failed != nil {
		return Narrowed{}, failed
	}
	select {
	case <-f.done:
	case <-w.over:
		// The loop is gone, and every jail with it.
	}
	return f.out, nil
}

// raise reconsiders the projects and sends the fences. It runs on the loop, after
// the change is durable and in memory. Nobody waits longer than most.
func (w *Workers) raise(projects []ids.Project, most time.Duration, then func(Narrowed)) *fence {
	now := time.Now()
	f := &fence{until: now.Add(FenceWait), kill: now.Add(most), left: map[*set]uint64{}, dying: map[ids.Jail]bool{}, done: make(chan struct{}), then: then}
	for _, p := range projects {
		w.reconsider(p, &f.out)
		// A bridge that was ended a moment ago hears no more, but may still be writing.
		for j, o := range w.jails {
			if o.inst == nil && o.set.ended && o.set.key.Project == p {
				f.dying[j] = true
			}
		}
		// Told before the fence, so that a bridge passes no update of a resource any more
		// when it has answered, before it looked who may still have it.
		w.changed(p)
		for _, s := range w.sets {
			if s.key.Project != p || s.ended || !s.ready {
				continue
			}
			s.fence++
			w.tell(s, wire.Fence{N: s.fence})
			if s.ended {
				f.out.Killed++
				w.totals.Killed++
				f.dying[s.jail] = true
				continue // it is one that did not read
			}
			f.left[s] = s.fence
		}
	}
	w.totals.Fences++
	w.fences[f] = true
	f.settle(w)
	return f
}

// reconsider asks the gate again about everything of a project that is open.
func (w *Workers) reconsider(p ids.Project, out *Narrowed) {
	r := w.gate.Reconsider(p)
	for i, st := range r.Calls {
		r.Calls[i].CancelSent = w.cancel(st.Set, st.Call, refusal.CallRevoked)
	}
	for _, s := range r.Sessions {
		w.endSession(s.Set, s.Session, s.Code)
		out.Sessions++
	}
	for _, c := range r.Off {
		w.Drop(p, c)
	}
	out.Stands = append(out.Stands, r.Calls...)
	w.drainRevised(p, out)
	w.dropOutdated(p, out)
	if r.Gone {
		for _, s := range w.sets {
			if s.key.Project == p {
				w.endSetWith(s, "its project is gone", refusal.ProjectDeleted)
			}
		}
		w.unlisten(p)
	}
}

// CloseTask ends the sessions of a task that stays live, gives their open calls up
// as unknown, and returns when the bridges have acknowledged.
func (w *Workers) CloseTask(ctx context.Context, task ids.Task) error {
	var f *fence
	if err := w.Do(ctx, func() {
		projects := map[ids.Project]bool{}
		for _, c := range w.gate.TaskSessions(task) {
			w.endSession(c.Set, c.Session, c.Code)
			w.gate.CloseSession(c.Session)
			projects[c.Set.Project] = true
		}
		var list []ids.Project
		for p := range projects {
			list = append(list, p)
		}
		f = w.raise(list, FenceWait+KillWait, nil)
	}); err != nil {
		return err
	}
	select {
	case <-f.done:
	case <-w.over:
	}
	return nil
}

// reconsiderAll reconsiders every project that has a bridge, after the root facts
// changed, and calls then when the fences are answered.
func (w *Workers) reconsiderAll(then func(Narrowed)) {
	seen := map[ids.Project]bool{}
	var list []ids.Project
	for key := range w.sets {
		if !seen[key.Project] {
			seen[key.Project] = true
			list = append(list, key.Project)
		}
	}
	for p := range w.doors {
		if w.gate.Gone(p) {
			w.unlisten(p)
		}
	}
	w.raise(list, FactsWait, then)
}

// changed tells the bridges of a project that their views may differ now.
func (w *Workers) changed(p ids.Project) {
	for _, s := range w.sets {
		if s.key.Project == p && s.ready && !s.ended {
			w.tell(s, wire.Changed{})
		}
	}
}

// Changed is changed for other packages' changes that widen.
func (w *Workers) Changed(p ids.Project) { w.changed(p) }

func (w *Workers) fenced(s *set, n uint64) {
	for f := range w.fences {
		if want, ok := f.left[s]; ok && n >= want {
			delete(f.left, s)
			f.out.Fenced++
			f.settle(w)
		}
	}
}

func (f *fence) exited(w *Workers, j ids.Jail) {
	if f.dying[j] {
		delete(f.dying, j)
		f.settle(w)
	}
}

func (f *fence) tick(w *Workers, now time.Time) {
	if now.After(f.until) {
		for s := range f.left {
			delete(f.left, s)
			f.out.Killed++
			w.totals.Killed++
			f.dying[s.jail] = true
			w.log.Warn("a bridge did not acknowledge a fence and is ended", "project", s.key.Project, "jail", s.jail)
			w.endSet(s, "it did not acknowledge a fence")
		}
	}
	if now.After(f.kill) {
		clear(f.dying) // posternd quarantines what cannot be killed; its wire is closed
	}
	f.settle(w)
}

func (f *fence) settle(w *Workers) {
	for s := range f.left {
		if s.ended { // it was lost or ended meanwhile: its wire is closed, its jail may live a moment longer
			delete(f.left, s)
			f.out.Killed++
			w.totals.Killed++
			if _, alive := w.jails[s.jail]; alive {
				f.dying[s.jail] = true
			}
		}
	}
	if len(f.left) == 0 && len(f.dying) == 0 && w.fences[f] {
		delete(w.fences, f)
		if f.then != nil {
			f.then(f.out)
		}
		close(f.done)
	}
}
