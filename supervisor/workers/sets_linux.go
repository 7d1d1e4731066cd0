package workers

import (
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// waitingBind is a bound connection that waits for its bridge.
type waitingBind struct {
	fd      int
	session ids.Session
}

// setFor returns the bridge of key, starting it where there is none. It returns
// nil with a code where none may start now.
func (w *Workers) setFor(key gate.Set) (*set, refusal.Code) {
	if s := w.sets[key]; s != nil {
		return s, ""
	}
	now := time.Now()
	back := w.restarts[key]
	switch {
	case w.draining:
		return nil, refusal.Draining
	case len(w.sets) >= MaxSets:
		return nil, refusal.Busy
	case back != nil && now.Before(back.until):
		return nil, refusal.LimitStarts
	}
	s := &set{key: key, link: link{fd: -1}, since: now, sessions: map[ids.Session]bool{}, insts: map[gate.Place]*instance{}}
	w.sets[key] = s
	w.ask(func(seq uint64) order.Up {
		return order.LaunchBridge{Seq: seq, Project: key.Project, Set: key.Number}
	}, func(m order.Down, fds []int) { w.bridgeLaunched(s, m, fds) })
	return s, ""
}

func (w *Workers) bridgeLaunched(s *set, m order.Down, fds []int) {
	l, ok := m.(order.Launched)
	if !ok || len(fds) != 1 {
		closeAll(fds)
		if n, ok := m.(order.NotLaunched); ok {
			s.lastErr = n.Text
			w.log.Error("a bridge was not started", "project", s.key.Project, "code", n.Code, "reason", n.Text)
			w.endSetWith(s, n.Text, n.Code)
			return
		}
		w.endSet(s, "posternd did not answer in time")
		return
	}
	s.jail = l.Jail
	w.jails[l.Jail] = owner{set: s}
	if s.ended {
		closeAll(fds)
		w.stopJail(l.Jail, 0)
		return
	}
	w.adopt(s, fds[0])
}

// adopt takes the authority's end of a bridge's wire.
func (w *Workers) adopt(s *set, fd int) {
	s.link.fd = fd
	if err := w.watch(fd); err != nil {
		w.log.Error("a bridge's wire cannot be watched", "error", err)
		w.endSet(s, "its wire cannot be watched")
		return
	}
	w.byFD[fd] = s
}

func (w *Workers) bridgeReady(s *set) {
	s.ready = true
	s.since = time.Now()
	if s.probe != nil {
		s.probe.begin(w, s)
		return
	}
	s.idle = time.Now()
	waiting := s.waiting
	s.waiting = nil
	for _, b := range waiting {
		w.handOver(s, b)
	}
}

// handOver passes a bound connection down; the bridge writes the answer on it.
func (w *Workers) handOver(s *set, b waitingBind) {
	defer unix.Close(b.fd)
	if s.ended { // by the hand-over before this one
		answerError(b.fd, refusal.ServerUnavailable, s.lastErr)
		w.gate.SessionEnded(b.session, s.lastErr)
		return
	}
	if !w.gate.SessionLive(b.session) {
		answerError(b.fd, refusal.TaskEnded, "")
		w.gate.SessionEnded(b.session, "it was revoked before its bridge was ready")
		return
	}
	s.sessions[b.session] = true
	s.idle = time.Time{}
	w.tell(s, wire.Session{Session: b.session, Bounds: w.gate.SessionBounds()}, b.fd)
}

func (w *Workers) sessionEnded(s *set, m wire.SessionEnded) {
	if !s.sessions[m.Session] {
		return
	}
	delete(s.sessions, m.Session)
	w.gate.SessionEnded(m.Session, m.Reason)
	if len(s.sessions) == 0 {
		s.idle = time.Now()
	}
}

// endSession tells a bridge that one of its sessions is over.
func (w *Workers) endSession(key gate.Set, session ids.Session, code refusal.Code) {
	if s := w.sets[key]; s != nil && s.sessions[session] {
		w.tell(s, wire.SessionEnd{Session: session, Code: code})
	}
}

func (w *Workers) endSet(s *set, why string) { w.endSetWith(s, why, refusal.ServerUnavailable) }

// endSetWith ends a bridge and everything it holds: its wire is closed at once, so
// that nothing it still sends is heard, its sessions end, its open calls become
// unknown, and its jail and its servers' jails are ended. Twice is harmless.
func (w *Workers) endSetWith(s *set, why string, code refusal.Code) {
	if s.ended {
		return
	}
	s.ended = true
	w.dropArriving(s)
	now := time.Now()
	if s.lastErr == "" {
		s.lastErr = why
	}
	if s.link.fd >= 0 {
		delete(w.byFD, s.link.fd)
		s.link.close()
	}
	for _, b := range s.waiting {
		answerError(b.fd, code, why)
		unix.Close(b.fd)
		w.gate.SessionEnded(b.session, why)
	}
	s.waiting = nil
	for session := range s.sessions {
		w.gate.SessionEnded(session, why)
	}
	s.sessions = nil
	w.gate.SetEnded(s.key, refusal.ServerExited, s.jail)
	for _, inst := range s.insts {
		w.stopInstance(inst, 0)
	}
	if s.jail != "" {
		grace := time.Duration(0)
		if s.probe != nil && s.probe.listed {
			grace = StopGrace // it is about to end by itself
		}
		w.stopJail(s.jail, grace)
	}
	if s.reading != nil {
		s.reading.done("its bridge ended: " + why)
	}
	if s.probe != nil {
		s.probe.over(why)
		return
	}
	delete(w.sets, s.key)
	back := w.restarts[s.key]
	if back == nil {
		back = &backoff{}
	}
	switch {
	case why == "it was idle" || w.draining:
		delete(w.restarts, s.key)
	case s.ready:
		back.ended(now, now.Sub(s.since), why)
		back.restarts++
		w.totals.Bridges++
		if back.fails == 1 {
			back.until = now // one loss is not yet a storm
		}
		w.restarts[s.key] = back
	default:
		back.failed(now, why)
		w.restarts[s.key] = back
	}
}

// exited takes note that a jail is gone.
func (w *Workers) exited(x order.Exited) {
	o, ok := w.jails[x.Jail]
	if !ok {
		return
	}
	delete(w.jails, x.Jail)
	for f := range w.fences {
		f.exited(w, x.Jail)
	}
	switch {
	case o.inst != nil:
		w.instanceGone(o.inst, how(x))
		w.gate.JailEnded(x.Jail, codeOf(x), how(x)+" ("+string(x.Jail)+")")
	case o.set != nil:
		kind := "bridge"
		if o.set.probe != nil {
			kind = "probe"
		}
		if !o.set.ended || o.set.lastErr == wireClosed { // a wire closes a moment before its process is reaped
			w.log.Warn("a bridge ended", "kind", kind, "project", o.set.key.Project, "jail", x.Jail, "how", how(x))
		} else {
			w.log.Debug("a bridge was ended", "kind", kind, "project", o.set.key.Project, "jail", x.Jail, "reason", o.set.lastErr, "how", how(x))
		}
		w.endSet(o.set, how(x))
		w.gate.JailEnded(x.Jail, "", "the bridge: "+how(x)+" ("+string(x.Jail)+")")
	}
}
