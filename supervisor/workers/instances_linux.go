package workers

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// start asks for the server of a connection on behalf of one call. The gate is
// asked first what an admission would be asked, so that a refused call starts
// nothing; seen is what was found of the call's paths, nothing at first.
func (w *Workers) start(s *set, m wire.Start, seen gate.Seen) {
	// A bridge repeats a Start when a server ends, for it may have been taken for one of
	// that server. What has its answer, and its record, needs no second one.
	if slices.Contains(s.noes, m.Seq) {
		return
	}
	refuse := func(code refusal.Code, text string) { w.notStarted(s, m, code, text) }
	if !s.sessions[m.Session] {
		refuse(refusal.SessionEnded, "")
		return
	}
	plan, look, code := w.gate.MayStart(s.key, m, seen)
	if look != nil {
		w.look(s, look, func(seen gate.Seen) { w.start(s, m, seen) })
		return
	}
	if code != "" { // the gate has recorded it
		s.refused(m.Seq)
		w.tell(s, wire.NotStarted{Seq: m.Seq, Session: m.Session, Connection: m.Connection, Slot: m.Slot, Code: code})
		return
	}
	if m.Slot != w.gate.Slot(plan.At) { // the view is older than a change of the server's scope
		refuse(refusal.Busy, "")
		return
	}
	inst := s.insts[plan.At]
	if inst == nil {
		inst = &instance{at: plan.At, set: s}
		s.insts[plan.At] = inst
	}
	if slices.ContainsFunc(inst.waiting, func(w wire.Start) bool { return w.Seq == m.Seq }) {
		return
	}
	if len(inst.waiting) >= wire.MaxAsked { // no honest bridge asks so often
		refuse(refusal.Busy, "")
		return
	}
	if inst.state == instIdle && inst.revision != plan.Revision {
		inst.back.anew()
	}
	now := time.Now()
	switch {
	case inst.state == instReady, inst.state == instListing:
		// A bridge asks for what it has only after it lost it, which counts as an end of
		// the server's own, or when what runs is of a former revision. The next one
		// starts when this one is gone.
		inst.lost = inst.revision == plan.Revision
		w.stopInstance(inst, 0)
		inst.waiting = append(inst.waiting, m)
		return
	case inst.state == instLaunching, inst.state == instDraining, inst.state == instEnding:
		inst.waiting = append(inst.waiting, m)
		return
	case now.Before(inst.back.until):
		refuse(refusal.LimitStarts, inst.back.lastErr)
		return
	}
	inst.state, inst.since, inst.used = instLaunching, now, now
	inst.server, inst.revision = plan.Server, plan.Revision
	inst.names, inst.moved = w.openNames(s.key.Project), w.moved(s.key.Project)
	inst.credential = w.gate.Credential(s.key.Project, plan.Server, plan.Revision)
	inst.stopMs, inst.idleMs = plan.StopMs, plan.IdleMs
	inst.waiting = append(inst.waiting, m)
	inst.data, inst.parts = nil, 0
	if plan.At.Task != "" {
		w.dirs[plan.At.Task] = true
	}
	w.ask(func(seq uint64) order.Up {
		return order.LaunchServer{Seq: seq, Project: s.key.Project, Set: s.key.Number, Server: plan.Server, Revision: plan.Revision, Task: plan.At.Task, Moved: inst.moved}
	}, func(d order.Down, fds []int) { w.serverLaunched(inst, plan.StartMs, d, fds) })
}

// notStarted refuses a call for want of its server, and records that it was refused.
func (w *Workers) notStarted(s *set, m wire.Start, code refusal.Code, text string) {
	s.refused(m.Seq)
	w.gate.NotStarted(s.key, m, code, text)
	w.tell(s, wire.NotStarted{Seq: m.Seq, Session: m.Session, Connection: m.Connection, Slot: m.Slot, Code: code, Text: clip(text)})
}

// refused keeps which Start had no for an answer.
func (s *set) refused(seq uint64) {
	if len(s.noes) == wire.MaxAsked {
		s.noes = s.noes[1:]
	}
	s.noes = append(s.noes, seq)
}

func (w *Workers) serverLaunched(inst *instance, startMs int64, m order.Down, fds []int) {
	defer closeAll(fds) // the bridge has its copies once they are sent
	l, ok := m.(order.Launched)
	if !ok || len(fds) != 3 {
		code, text := refusal.ServerUnavailable, "posternd did not answer in time"
		if n, ok := m.(order.NotLaunched); ok {
			code, text = n.Code, n.Text
		}
		w.log.Warn("a tool server was not started", "project", inst.set.key.Project, "connection", inst.at.Conn, "code", string(code), "reason", text)
		was := inst.state
		inst.state = instIdle
		if was == instEnding {
			// It was outdated before it was there, so its failure says nothing about what
			// those who wait for the next one get.
			w.startWaiting(inst)
			return
		}
		if code != refusal.CredentialMissing { // nothing was tried, so nothing needs a pause
			inst.back.failed(time.Now(), text)
		}
		waiting := inst.waiting
		inst.waiting = nil
		for _, m := range waiting {
			w.notStarted(inst.set, m, code, text)
		}
		return
	}
	inst.jail = l.Jail
	w.jails[l.Jail] = owner{set: inst.set, inst: inst}
	if inst.set.ended || inst.state != instLaunching {
		w.stopJail(l.Jail, 0)
		return
	}
	inst.state, inst.since, inst.unlisted = instListing, time.Now(), time.Time{}
	inst.waiting = nil
	w.tell(inst.set, wire.Started{Connection: inst.at.Conn, Slot: w.gate.Slot(inst.at), Instance: inst.jail, Revision: inst.revision, StartMs: startMs, Era: w.era(inst.revision), Bounds: w.gate.Bounds(inst.server, inst.revision)}, fds...)
}

// catalogue collects the parts of what an instance lists. When they are whole the
// gate compares them with the pins, and only then is the instance ready.
func (w *Workers) catalogue(s *set, m wire.Catalogue) error {
	if s.probe != nil {
		return s.probe.catalogue(w, s, m)
	}
	inst := w.jails[m.Instance].inst
	if inst == nil || inst.set != s || inst.at.Conn != m.Connection || inst.jail != m.Instance || (inst.state != instListing && inst.state != instReady) {
		return nil // it has ended meanwhile
	}
	whole, err := inst.collect(m)
	if err != nil {
		return err
	}
	if !whole {
		return nil
	}
	data := inst.data
	inst.data, inst.parts = nil, 0
	if inst.state == instListing { // a later list says nothing about how to start
		w.learn(inst.revision, m)
	}
	if m.Error != "" && inst.state == instReady {
		w.unlisted(inst, m.Error)
		return nil
	}
	if m.Error != "" {
		inst.back.failed(time.Now(), m.Error)
		w.log.Warn("a tool server did not list its tools", "project", s.key.Project, "connection", inst.at.Conn, "reason", m.Error)
		w.stopInstance(inst, 0)
		return nil
	}
	changed, err := w.gate.Listed(s.key, inst.at, inst.revision, data)
	if err != nil {
		inst.back.failed(time.Now(), err.Error())
		w.stopInstance(inst, 0)
		return nil
	}
	again := inst.state == instReady
	inst.state = instReady
	w.mended(inst)
	if !inst.unlisted.IsZero() {
		inst.unlisted, inst.back.lastErr = time.Time{}, ""
		w.log.Info("a tool server lists its tools again", "project", s.key.Project, "connection", inst.at.Conn)
	}
	switch {
	case changed:
		w.changed(s.key.Project)
	case again: // of nothing that is granted; its runtimes hear what it said all the same
		w.tell(s, wire.Changed{Connection: inst.at.Conn, Slot: w.gate.Slot(inst.at)})
	}
	return nil
}

// unlisted keeps a server that says that its tools changed and cannot list them: what it
// works at goes on. Nothing can be compared with the pins, so it is called no more until
// a list comes, for which its bridge asks again; where none comes in time, the server ends
// and the next call starts another.
func (w *Workers) unlisted(inst *instance, why string) {
	now := time.Now()
	if inst.unlisted.IsZero() {
		inst.unlisted = now
		w.log.Warn("a tool server does not list its tools after a change: it is not called until it does", "project", inst.set.key.Project, "connection", inst.at.Conn, "reason", why)
	}
	inst.back.lastErr = "its tools changed and it does not list them: " + why
	inst.back.down = inst.back.lastErr
	if now.Sub(inst.unlisted) >= UnlistedMost {
		inst.back.failed(now, inst.back.lastErr)
		w.stopInstance(inst, 0)
	}
}

// mended takes note that a server can be called. How those ended that ran before it, or
// for others at the same connection, is no reason any more why it could not be.
func (w *Workers) mended(now *instance) {
	now.back.down = ""
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if s.key.Project == now.set.key.Project && inst.at.Conn == now.at.Conn && inst.state == instIdle {
				inst.back.down = ""
			}
		}
	}
}

// learn remembers what a revision speaks, for its next start. One that could not be
// spoken to is asked the other way first: there are servers that end at the first
// request that they do not know. It is a hint, and no more.
func (w *Workers) learn(rev ids.Revision, m wire.Catalogue) {
	switch was := w.era(rev); {
	case m.Error == "" && m.Era != "both" && was == "both": // it was started in one of the two
	case m.Error == "":
		w.eras[rev] = m.Era
	case was == "":
		w.eras[rev] = "modern"
	default:
		w.eras[rev] = ""
	}
}

// era is what a revision speaks, as far as is known: as it was last heard, and before
// that as its probe found it, in whichever life of the authority.
func (w *Workers) era(rev ids.Revision) string {
	if era, heard := w.eras[rev]; heard {
		return era
	}
	return w.gate.Era(rev)
}

// collect adds one part; whole tells that it was the last.
func (i *instance) collect(m wire.Catalogue) (whole bool, err error) {
	if m.Part != i.parts || len(i.data)+len(m.Data) > wire.MaxCatalogue {
		return false, errParts
	}
	i.parts++
	i.data = append(i.data, m.Data...)
	return m.Last, nil
}

// stopInstance ends a tool server's jail. Its wire ends are the bridge's, which
// is told when the jail is gone.
func (w *Workers) stopInstance(inst *instance, grace time.Duration) {
	switch inst.state {
	case instIdle, instEnding:
		return
	case instLaunching:
		inst.state = instEnding // serverLaunched ends it
		return
	}
	inst.state = instEnding
	if inst.stopMs > 0 && grace > 0 {
		grace = time.Duration(inst.stopMs) * time.Millisecond
	}
	w.stopJail(inst.jail, grace)
}

func (w *Workers) instanceGone(inst *instance, why string) {
	now := time.Now()
	ending := (inst.state == instEnding || inst.state == instDraining) && !inst.lost
	inst.lost = false
	jail := inst.jail
	inst.state, inst.jail = instIdle, ""
	inst.was, inst.how = jail, why
	if !ending {
		inst.back.ended(now, now.Sub(inst.since), why)
		if inst.back.fails == 1 {
			inst.back.until = now // one loss is not yet a storm
		}
		inst.back.restarts++
		w.totals.Restarts++
		w.log.Warn("a tool server ended", "project", inst.set.key.Project, "connection", inst.at.Conn, "jail", jail, "how", why)
	}
	if w.gate.Unlisted(inst.set.key, inst.at) {
		w.changed(inst.set.key.Project)
	}
	if !inst.set.ready {
		return // a probe's server that ended before its bridge was ready: the bridge hears of it by the pipes
	}
	w.tell(inst.set, wire.Exited{Connection: inst.at.Conn, Slot: w.gate.Slot(inst.at), Instance: jail, How: clip(why)})
	w.startWaiting(inst)
}

// startWaiting asks anew for those who waited for the end of what was there.
func (w *Workers) startWaiting(inst *instance) {
	waiting := inst.waiting
	inst.waiting = nil
	for _, m := range waiting {
		if !inst.set.ended {
			w.start(inst.set, m, gate.Seen{})
		}
	}
}

// moved tells which of its directories a project has.
func (w *Workers) moved(p ids.Project) int64 {
	root, _ := w.gate.Registry().Project(p)
	return root.Moved
}

func (w *Workers) openNames(p ids.Project) []string {
	root, _ := w.gate.Registry().Project(p)
	return root.OpenNames
}

// dropOutdated ends the instances of a project that were started with other names open
// than it has now, in another directory, or with another credential. Directories of tasks
// have no names open. What is open at one of them ends with it, and is named.
func (w *Workers) dropOutdated(p ids.Project, out *Narrowed) {
	names, moved := w.openNames(p), w.moved(p)
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if s.key.Project != p {
				continue
			}
			other := inst.moved != moved || inst.credential != w.gate.Credential(p, inst.server, inst.revision)
			if inst.state == instIdle {
				if other { // why none started in the former directory, or by the former credential, is no reason now
					inst.back.anew()
				}
				continue
			}
			if other || inst.at.Task == "" && !slices.Equal(inst.names, names) {
				out.add(w.gate.Using(inst.jail), false)
				w.stopInstance(inst, 0)
			}
		}
	}
}

// Drop ends the instances of a connection, in every set of the project. It is
// called on the loop after a change that makes them stale.
func (w *Workers) Drop(project ids.Project, conn ids.Connection) {
	for _, s := range w.sets {
		if s.key.Project == project {
			for _, inst := range s.insts {
				if inst.at.Conn == conn {
					w.stopInstance(inst, 0)
				}
			}
		}
	}
}

func clip(s string) string {
	if len(s) > wire.MaxText {
		return s[:wire.MaxText]
	}
	return s
}

// answerError writes the one line that a connector gets when it is not bound.
// The descriptor is a connection that nobody else writes to; a peer that does
// not read loses the line.
func answerError(fd int, code refusal.Code, detail string) {
	unix.SendmsgN(fd, bindError(code, detail), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
