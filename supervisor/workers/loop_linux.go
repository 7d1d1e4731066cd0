package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"postern/bridge/pace"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// maxBinding bounds the goroutines that read bind lines.
const maxBinding = 512

// New makes the loop; it starts nothing and owns cfg.Orders from now on.
func New(cfg Config) (*Workers, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &Workers{
		cfg: cfg, over: make(chan struct{}), gate: cfg.Gate, log: cfg.Log, orders: link{fd: cfg.Orders}, ep: ep, wake: wake,
		asked: map[uint64]asked{}, jails: map[ids.Jail]owner{}, sets: map[gate.Set]*set{}, byFD: map[int]*set{},
		listeners: map[int]ids.Project{}, doors: map[ids.Project]int{}, fences: map[*fence]bool{}, restarts: map[gate.Set]*backoff{}, files: map[ids.Task]bool{}, eras: map[ids.Revision]string{}, dirs: map[ids.Task]bool{},
		fetches: fetches{waiting: map[ids.Project][]fetch{}, asked: map[ids.Project]bool{}},
		binding: binding{byUID: map[uint32]int{}, all: semaphore.NewWeighted(maxBinding)},
	}
	for _, fd := range []int{wake, cfg.Orders} {
		if err := w.watch(fd); err != nil {
			unix.Close(ep)
			unix.Close(wake)
			return nil, err
		}
	}
	return w, nil
}

func (w *Workers) watch(fd int) error {
	if err := unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Post runs fn on the loop. It returns false when the loop has ended.
func (w *Workers) Post(fn func()) bool {
	w.posts.mu.Lock()
	defer w.posts.mu.Unlock()
	if w.posts.shut {
		return false
	}
	w.posts.fns = append(w.posts.fns, fn)
	if len(w.posts.fns) == 1 {
		var one = [8]byte{1}
		unix.Write(w.wake, one[:])
	}
	return true
}

// Do runs fn on the loop and waits for its end.
func (w *Workers) Do(ctx context.Context, fn func()) error {
	done := make(chan struct{})
	if !w.Post(func() { fn(); close(done) }) {
		return refusal.Draining
	}
	select {
	case <-done:
		return nil
	case <-w.over:
		return refusal.Draining
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run is the loop. It returns when ctx ends, or when posternd or the store is lost.
func (w *Workers) Run(ctx context.Context) error {
	defer w.shut()
	stop := context.AfterFunc(ctx, func() { w.Post(func() {}) })
	defer stop()
	w.order(order.Ready{})
	events := make([]unix.EpollEvent, 256)
	buf := make([]byte, wire.MaxMessage+1)
	next := time.Now().Add(TickEvery)
	var turn pace.Turn
	for ctx.Err() == nil {
		turn.Yield()
		wait := (max(time.Until(next), 0) + time.Millisecond - 1).Milliseconds() // not too short, or it would turn in vain
		if w.gate.Pending() {
			wait = min(wait, 50)
		}
		if len(w.unsent) > 0 {
			wait = min(wait, 1)
		}
		n, err := unix.EpollWait(w.ep, events, int(wait))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		w.turn = time.Now()
		if err := w.sendOrders(); err != nil {
			return fmt.Errorf("posternd: %w", err)
		}
		fns := w.posts.take()
		for _, fn := range fns {
			fn()
		}
		if soon := w.turn.Add(TickEvery); (n > 0 || len(fns) > 0) && next.After(soon) {
			next = soon // what was heard may have begun something that has a time
		}
		for _, e := range events[:max(n, 0)] {
			if err := w.hear(int(e.Fd), buf); err != nil {
				return err
			}
		}
		if err := w.commit(); err != nil {
			return err
		}
		w.sayTrouble()
		if now := time.Now(); !now.Before(next) {
			w.tick(now)
			if err := w.commit(); err != nil {
				return err
			}
			if err := w.gate.Tend(); err != nil {
				return err
			}
			next = now.Add(w.pause(now))
		}
		if w.lost != nil {
			return w.lost
		}
	}
	return w.gate.Leave() // an outcome that waited for company is not lost by a stop
}

func (w *Workers) hear(fd int, buf []byte) error {
	switch {
	case fd == w.wake:
		var b [8]byte
		unix.Read(w.wake, b[:])
	case fd == w.orders.fd:
		return w.hearPosternd(buf)
	case w.byFD[fd] != nil:
		w.hearBridge(w.byFD[fd], buf)
	default:
		if project, ok := w.listeners[fd]; ok {
			w.accept(fd, project)
		}
	}
	return nil
}

// sayTrouble logs when calls can no longer be recorded, and when they can again.
func (w *Workers) sayTrouble() {
	switch why := w.gate.Trouble(); {
	case why != "" && !w.troubled:
		w.log.Error("calls are denied, for they cannot be recorded; it heals by itself once they can", "why", why)
	case why == "" && w.troubled:
		w.log.Info("calls can be recorded again")
	}
	w.troubled = w.gate.Trouble() != ""
}

// commit makes the admissions of this turn durable and only then sends them.
func (w *Workers) commit() error {
	began, pending := time.Now(), w.gate.Pending()
	err := w.gate.Commit()
	if pending && (err != nil || !w.gate.Pending()) { // outcomes that wait for company are not written
		w.totals.Commit.observe(time.Since(began), 1)
	}
	if err != nil && !errors.Is(err, refusal.StoreUnavailable) {
		return err
	}
	admitted := 0
	for _, a := range w.answers {
		if a.set.ended || a.set.link.fd < 0 {
			continue
		}
		msg := a.msg
		if adm, ok := msg.(wire.Admitted); ok && err != nil {
			msg = wire.Refused{Seq: adm.Seq, Code: refusal.StoreUnavailable}
		} else if ok {
			admitted++
		}
		w.told(a.set, msg, a.set.link.gather(msg))
	}
	for _, a := range w.answers { // a bridge is woken once for all of its answers
		if !a.set.ended && a.set.link.fd >= 0 {
			w.told(a.set, a.msg, a.set.link.flush())
		}
	}
	if admitted > 0 {
		w.totals.Admission.observe(time.Since(w.turn), admitted)
	}
	w.answers = w.answers[:0]
	return nil
}

func (w *Workers) hearBridge(s *set, buf []byte) {
	s.pieces = 0
	for heard := 0; heard < MaxPerTurn; {
		n, err := s.link.recv(buf)
		if err == nil && n == 0 {
			return
		}
		if err != nil {
			w.endSet(s, wireClosed)
			return
		}
		n, err = w.hearAll(s, buf[:n])
		heard += n
		if err != nil {
			w.log.Warn("a bridge broke the protocol", "project", s.key.Project, "jail", s.jail, "error", err)
			w.endSet(s, "it broke the protocol")
		}
		if s.ended || s.pieces >= PiecesPerTurn {
			return
		}
	}
}

// hearAll acts on the messages of one datagram, in their order, and counts them.
func (w *Workers) hearAll(s *set, rest []byte) (n int, err error) {
	for rest != nil && err == nil && !s.ended {
		if n++; n > wire.MaxTogether {
			return n, errTogether
		}
		var one []byte
		one, rest = wire.Cut(rest)
		var m wire.Up
		if m, err = wire.DecodeUp(one); err == nil {
			err = w.handle(s, m)
		}
	}
	return n, err
}

var errTogether = fmt.Errorf("more than %d messages in a datagram", wire.MaxTogether)

// handle acts on one message of a bridge. An error ends the bridge.
func (w *Workers) handle(s *set, m wire.Up) error {
	if _, ok := m.(wire.Hello); ok == s.ready {
		return fmt.Errorf("%T out of order", m)
	}
	switch m := m.(type) {
	case wire.Hello:
		w.bridgeReady(s)
	case wire.View:
		w.view(s, m)
	case wire.Start:
		w.start(s, m, gate.Seen{})
	case wire.Catalogue:
		return w.catalogue(s, m)
	case wire.Admit:
		w.admit(s, m, gate.Seen{})
	case wire.Alive:
		return w.gate.Alive(s.key, m)
	case wire.Ended:
		return w.gate.Ended(s.key, m)
	case wire.Piece:
		return w.piece(s, m)
	case wire.Skipped:
		if inst := w.jails[m.Instance].inst; inst != nil && inst.set == s && inst.at.Conn == m.Connection {
			inst.skipped = m
		}
	case wire.Stderr:
		return w.stderr(s, m)
	case wire.SessionEnded:
		w.sessionEnded(s, m)
	case wire.Denied:
		if s.sessions[m.Session] {
			w.gate.Denied(s.key, m)
		}
	case wire.Fenced:
		w.fenced(s, m.N)
	}
	return nil
}

// admit decides one call; seen is what was found of its paths, nothing at first.
func (w *Workers) admit(s *set, m wire.Admit, seen gate.Seen) {
	if !s.sessions[m.Session] {
		w.answers = append(w.answers, answer{s, wire.Refused{Seq: m.Seq, Code: refusal.SessionEnded}})
		return
	}
	var running ids.Revision
	inst := s.insts[w.gate.Place(s.key, m.Session, m.Connection)]
	if inst != nil && inst.state == instReady && inst.jail == m.Instance && inst.unlisted.IsZero() {
		running = inst.revision
	}
	d := w.gate.Admit(s.key, m, running, seen)
	if d.Ask != nil {
		w.look(s, d.Ask, func(seen gate.Seen) { w.admit(s, m, seen) })
		return
	}
	if d.Code != "" {
		w.answers = append(w.answers, answer{s, wire.Refused{Seq: m.Seq, Code: d.Code}})
		return
	}
	inst.calls++
	inst.used = time.Now()
	w.answers = append(w.answers, answer{s, wire.Admitted{Seq: m.Seq, Call: d.Call, DeadlineMs: d.Limit.Milliseconds()}})
}

// view answers with the tools of the session: small ones in the message, large ones by memfd.
func (w *Workers) view(s *set, m wire.View) {
	if !s.sessions[m.Session] {
		w.tell(s, wire.ViewIs{Session: m.Session, Seq: m.Seq})
		return
	}
	tools := w.gate.View(s.key, m.Session)
	raw, err := wire.EncodeTools(tools) // names are a server's, and may be longer encoded
	if err == nil && len(raw) <= wire.MaxInline {
		w.tell(s, wire.ViewIs{Session: m.Session, Seq: m.Seq, Tools: tools})
		return
	}
	if err != nil {
		w.log.Error("a view could not be encoded", "project", s.key.Project, "error", err)
		w.tell(s, wire.ViewIs{Session: m.Session, Seq: m.Seq})
		return
	}
	fd, err := sealed("view", raw)
	if err != nil {
		w.log.Error("a view could not be handed over", "project", s.key.Project, "error", err)
		w.tell(s, wire.ViewIs{Session: m.Session, Seq: m.Seq})
		return
	}
	defer unix.Close(fd)
	w.tell(s, wire.ViewIs{Session: m.Session, Seq: m.Seq, Memfd: true}, fd)
}

// tell sends to a bridge; one that does not read is ended.
func (w *Workers) tell(s *set, m wire.Down, fds ...int) {
	if s.ended || s.link.fd < 0 {
		return
	}
	w.told(s, m, s.link.tell(m, fds...))
}

// told ends a bridge that could not be told.
func (w *Workers) told(s *set, m wire.Down, err error) {
	if err != nil {
		w.log.Warn("a bridge could not be told", "project", s.key.Project, "jail", s.jail, "message", fmt.Sprintf("%T", m), "error", err)
		w.endSet(s, "it did not read")
	}
}

// tick looks at everything that has a time.
func (w *Workers) tick(now time.Time) {
	for seq, a := range w.asked {
		if now.After(a.until) {
			delete(w.asked, seq)
			a.then(nil, nil)
		}
	}
	for _, late := range w.gate.Late(now) {
		switch {
		case now.Sub(late.Deadline) < EndGrace:
			if late.First {
				w.cancel(late.Set, late.Call, refusal.CallTimeout)
			}
		default:
			w.gate.Abandon(late.Call, refusal.CallTimeout)
			if s := w.sets[late.Set]; s != nil {
				if inst := s.insts[late.Place]; inst != nil {
					w.log.Warn("a call outlived its limit; its server is ended", "call", late.Call, "connection", late.Place.Conn)
					w.stopInstance(inst, 0)
				}
			}
		}
	}
	w.gate.TickFates(now)
	for _, s := range w.sets {
		w.tickSet(s, now)
	}
	for f := range w.fences {
		f.tick(w, now)
	}
	w.tickClosing(now)
	w.tickTokenFiles()
	w.tickTasks()
}

// pause is how long nothing needs to be looked at. Each time the loop wakes, Go's monitor
// wakes some fifty times after it, so an authority at rest looks once a second, and for an
// idle time that ends sooner then. Nothing is looked at later than TickEvery after its time.
func (w *Workers) pause(now time.Time) time.Duration {
	closing := w.closing != nil && !w.closing.over
	if len(w.asked) > 0 || len(w.fences) > 0 || len(w.files) > 0 || closing || w.lost != nil || w.gate.Waits() {
		return TickEvery
	}
	pause := RestEvery
	for _, s := range w.sets {
		if !s.ready || s.arriving != nil || s.reading != nil {
			return TickEvery
		}
		if len(s.sessions) == 0 {
			pause = min(pause, s.idle.Add(BridgeIdle).Sub(now))
		}
		for _, inst := range s.insts {
			switch {
			case inst.state == instDraining:
				return TickEvery
			case inst.state == instReady && inst.idleMs > 0:
				pause = min(pause, inst.used.Add(time.Duration(inst.idleMs)*time.Millisecond).Sub(now))
			}
		}
	}
	return max(pause, TickEvery)
}

func (w *Workers) tickSet(s *set, now time.Time) {
	s.reading.tick(now)
	switch {
	case s.ended:
	case !s.ready && now.Sub(s.since) > BridgeStart:
		w.endSet(s, "it did not start in time")
	case s.ready && s.probe == nil && len(s.sessions) == 0 && len(s.waiting) == 0 && !s.idle.IsZero() && now.Sub(s.idle) > BridgeIdle:
		w.endSet(s, "it was idle")
	case s.arriving != nil && now.Sub(s.arriving.since) > PieceWait:
		w.endSet(s, "it did not finish an artifact")
	default:
		for _, inst := range s.insts {
			if inst.state == instDraining {
				w.tickDrain(inst, now)
			}
			if inst.state == instReady && inst.idleMs > 0 && now.Sub(inst.used) > time.Duration(inst.idleMs)*time.Millisecond && !w.gate.Busy(s.key, inst.at) {
				w.stopInstance(inst, StopGrace)
			}
		}
	}
}

func (w *Workers) cancel(key gate.Set, call ids.Call, code refusal.Code) bool {
	s := w.sets[key]
	if s == nil || s.ended {
		return false
	}
	w.tell(s, wire.Cancel{Call: call, Code: code})
	return !s.ended
}

func (w *Workers) shut() {
	w.posts.mu.Lock()
	w.posts.shut = true
	w.posts.mu.Unlock()
	close(w.over)
	for _, s := range w.sets {
		for _, b := range s.waiting {
			unix.Close(b.fd)
		}
		s.link.close()
	}
	for fd := range w.listeners {
		unix.Close(fd)
	}
	w.orders.close()
	unix.Close(w.ep)
	unix.Close(w.wake)
}
