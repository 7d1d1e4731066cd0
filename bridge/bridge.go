// Package bridge is the loop of one bridge worker: it carries MCP between runtimes
// and tool servers, and asks the authority before each call.
//
// It runs jailed under a leased uid, without files, network or credentials. The
// runtimes, the tool servers and every byte of both are hostile; only what the
// authority sends on its socket is trusted.
//
// One call takes three goroutines and no hand-off between them: the session's reader
// sends Admit, the authority's reader sends the call to the tool server, and the tool
// server's reader sends the answer to the runtime. Ended waits for the next Admit, or
// until the server has said nothing for a while: it wakes the authority for nobody.
// Each of the three gathers what it sends while it has more to handle that has come
// already, and flushes before it waits: many calls at once cost few calls of the kernel.
//
// Invariants:
//   - bridge-1: nothing reaches a tool server that was not admitted, and what is sent
//     is what was asked about: the same bytes, the same instance.
//   - bridge-2: each request of a runtime has exactly one answer, or none once it was
//     cancelled; each admitted call has exactly one Ended.
//   - bridge-3: two sessions share no id, no token and no notification.
//   - bridge-4: Fenced is sent after the effect of everything received before.
//   - bridge-5: a session ends alone: its descriptors are closed at once, its calls are
//     cancelled, and no other session notices.
//   - bridge-6: reaching a bound ends the request that reached it and nothing else;
//     only a runtime that does not read its answers, or writes a line without an end,
//     loses its session.
//   - bridge-7: a session's calls reach the instance of its own slot, and no other.
//   - bridge-8: a subscription is admitted like a read, and looked at again after each
//     change; an update, a log message and a question of a server reach only the session
//     that they are certainly for.
//   - bridge-9: what carries bytes in a result is sent to the authority after the runtime
//     has the result and the authority the outcome; nothing waits for it.
//
// How a cancelled call ends: where the server had not been sent it, or answers with an
// error within CancelGrace, the outcome is cancelled; where it answers with a result
// all the same, completed and not returned; where it says nothing, as the protocol
// allows, unknown.
//
// It decides nothing and starts no process. Of the tools, prompts and resources it keeps
// only where a name leads, until the authority says that something changed; and of an
// open question what it takes to go on.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"postern/bridge/stream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// Bounds of the loop.
const (
	MaxInFlight    = 64               // requests of one session that have no answer yet
	MaxConnCalls   = 256              // admitted calls of one connection's server
	MaxHeld        = 32 << 20         // bytes of calls that one session may have waiting
	MaxHeldAll     = 48 << 20         // the same of all sessions together
	MaxIncoming    = 32 << 20         // bytes of long lines that runtimes have begun, of all sessions together
	MaxOutgoing    = 32 << 20         // bytes of long lines that runtimes have not read, of all sessions together
	MaxAnswers     = 48 << 20         // bytes of long lines that tool servers have begun, of all together
	MaxSessions    = 128              // each blocks one thread, and one more while its runtime does not read
	MaxInstances   = 64               // tool servers; each blocks two threads, and one more while it does not read
	ViewWait       = 10 * time.Second // for the authority's answer to View
	StartWait      = 60 * time.Second // for a tool server, at most
	CancelGrace    = time.Second      // for a server to confirm a cancellation
	SkippedEvery   = time.Second      // between two counts of what was skipped of one server's output
	RelistPause    = time.Second      // between two lists after a server said that it changed
	RelistMost     = 16 * time.Second // between two lists that cannot be read
	LookEvery      = 2 * time.Second  // between two lists of a server that are read because a runtime lists
	LookWait       = 2 * time.Second  // for one of those
	RestAfter      = 2 * time.Second  // without a call, until memory is given back
	DenialsPerSec  = 20               // refused messages reported for one session
	handshakeLeast = time.Second
)

// Config is what a bridge is started with.
type Config struct {
	FD      int    // the authority's SOCK_SEQPACKET socket, blocking; owned by the bridge
	Version string // of Postern, told to both sides
	Rest    func() // called when RestAfter passed since the last call ended; may be nil
}

// Bridge is one worker.
type Bridge struct {
	cfg  Config
	link *link
	run  sync.WaitGroup // sessions and what they started

	incoming, outgoing, answers *stream.Budget

	turn chan struct{} // holds one while a view is

	gathered []*call // their servers are flushed before the authority is waited for; Run's
	uploads  uploads

	// mu guards all that follows and the fields of sessions and calls that say so. It
	// is never held while anything is sent.
	mu        sync.Mutex
	seq       uint64
	sessions  map[ids.Session]*session
	instances map[place]*instance
	starts    map[place]*start
	ended     map[place]stderr // of the instance that ended last; at most MaxInstances
	views     map[uint64]chan viewReply
	asked     map[uint64]*call
	calls     map[ids.Call]*call
	held      int        // bytes of calls that wait, of all sessions
	open      int        // questions that the authority has not answered
	viewing   int        // those of them that ask for a view
	waiting   []question // beyond wire.MaxAsked
	unseen    []question // views beyond wire.MaxViews
	draining  bool
	rest      *time.Timer
	over      bool // Run is ending: nothing will be answered any more
	heard     bool // any message at all
}

// question is a message that the authority answers.
type question struct {
	m     wire.Up
	still func() bool // asked under mu; nil means always
}

type viewReply struct {
	tools []wire.Tool
	memfd int // -1 when the tools are in the message
}

// New makes a bridge on the authority's socket. It starts nothing.
func New(cfg Config) *Bridge {
	return &Bridge{
		cfg:       cfg,
		link:      newLink(cfg.FD),
		turn:      make(chan struct{}, 1),
		incoming:  stream.NewBudget(MaxIncoming),
		outgoing:  stream.NewBudget(MaxOutgoing),
		answers:   stream.NewBudget(MaxAnswers),
		sessions:  map[ids.Session]*session{},
		instances: map[place]*instance{},
		starts:    map[place]*start{},
		ended:     map[place]stderr{},
		views:     map[uint64]chan viewReply{},
		asked:     map[uint64]*call{},
		calls:     map[ids.Call]*call{},
	}
}

// Run serves until the authority closes its socket, or ctx ends; then it ends every
// session and returns. A probe returns after its one catalogue. Tool servers are
// asked to end by the end of their stdin; stopping them is their launcher's duty, so
// their readers are not waited for.
func (b *Bridge) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { shutdown(b.cfg.FD) })
	err := b.link.tell(wire.Hello{Version: b.cfg.Version})
	for err == nil {
		var m wire.Down
		var fds []int
		if !b.link.ready() {
			b.flush()
		}
		if m, fds, err = b.link.next(); err == nil {
			err = b.handle(m, fds)
		}
	}
	stop()
	b.end()
	if b.rest != nil {
		b.rest.Stop()
	}
	b.run.Wait()
	b.link.close()
	if errors.Is(err, io.EOF) || errors.Is(err, errProbed) {
		return nil
	}
	return fmt.Errorf("bridge: %w", err)
}

var errProbed = errors.New("the probe is done")

func (b *Bridge) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, s := range b.sessions {
		s.endLocked("the authority is gone")
	}
	for _, in := range b.instances {
		go in.srv.Abandon() // may wait for a stuck write
	}
	for seq, ch := range b.views {
		delete(b.views, seq)
		close(ch)
	}
	for c, st := range b.starts {
		delete(b.starts, c)
		st.code = refusal.Draining
		close(st.done)
	}
}

// handle has the whole effect of one message before it returns: bridge-4.
func (b *Bridge) handle(m wire.Down, fds []int) error {
	first := !b.heard
	b.heard = true
	switch m := m.(type) {
	case wire.Session:
		b.accept(m.Session, m.Bounds, fds[0])
	case wire.SessionEnd:
		b.mu.Lock()
		var calls []*call
		if s := b.sessions[m.Session]; s != nil {
			s.endLocked(string(m.Code))
			calls = s.callsLocked()
		}
		b.mu.Unlock()
		for _, c := range calls {
			c.abandon(refusal.Of(m.Code).Sentence)
		}
	case wire.ViewIs:
		b.viewed(m, fds)
	case wire.Started:
		if first {
			return b.probe(m, fds)
		}
		b.started(m, fds)
	case wire.NotStarted:
		b.notStarted(m)
	case wire.Retired:
		b.retired(m)
	case wire.Exited:
		b.exited(m)
	case wire.Admitted:
		b.admitted(m)
	case wire.Refused:
		b.refused(m)
	case wire.Cancel:
		b.cancelled(m)
	case wire.Changed:
		if m.Connection != "" {
			b.listChanged(place{m.Connection, m.Slot})
		} else {
			b.changed()
		}
	case wire.ReadStderr:
		b.run.Go(func() { b.tellStderr(m.Seq) })
	case wire.Fence:
		b.flush()
		return b.link.tell(wire.Fenced{N: m.N})
	case wire.Drain:
		b.mu.Lock()
		b.draining = !m.Over
		b.mu.Unlock()
		b.link.flush() // the ends of calls that wait for company
	}
	return nil
}

// restLocked starts the wait for rest when no call is left.
func (b *Bridge) restLocked() {
	if len(b.calls) > 0 || b.cfg.Rest == nil || b.over {
		return
	}
	if b.rest == nil {
		b.rest = time.AfterFunc(RestAfter, b.cfg.Rest)
		return
	}
	b.rest.Reset(RestAfter)
}

func (b *Bridge) nextSeqLocked() uint64 {
	b.seq++
	return b.seq
}

// ask sends a question, or keeps it until fewer than wire.MaxAsked are unanswered,
// or fewer views than wire.MaxViews.
func (b *Bridge) ask(q question) {
	b.tellNext(b.queue(q)) // the authority's end is seen by Run
}

// askSoon is ask, but the question goes when the link is flushed next: whoever reads
// several calls at once sends their questions at once.
func (b *Bridge) askSoon(q question) {
	if next := b.queue(q); next != nil {
		_ = b.link.gather(next)
	}
}

// queue takes a question and returns the one that may be asked now, nil if none.
func (b *Bridge) queue(q question) wire.Up {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, view := q.m.(wire.View); view {
		b.unseen = append(b.unseen, q)
	} else {
		b.waiting = append(b.waiting, q)
	}
	return b.nextLocked()
}

// answeredLocked counts one answer and returns the question that may now be asked,
// nil if none waits. The caller sends it when it holds no lock.
func (b *Bridge) answeredLocked(view bool) wire.Up {
	b.open--
	if view {
		b.viewing--
	}
	return b.nextLocked()
}

// nextLocked takes the next question that there is room for. Views have their own,
// because their answers are large and the authority does not wait for a full socket.
func (b *Bridge) nextLocked() wire.Up {
	for b.open < wire.MaxAsked {
		from, view := &b.waiting, false
		if len(b.unseen) > 0 && b.viewing < wire.MaxViews {
			from, view = &b.unseen, true
		}
		if len(*from) == 0 {
			return nil
		}
		q := (*from)[0]
		*from = (*from)[1:]
		if q.still != nil && !q.still() {
			continue
		}
		b.open++
		if view {
			b.viewing++
		}
		return q.m
	}
	return nil
}

func (b *Bridge) tellNext(m wire.Up) {
	if m != nil {
		_ = b.link.tell(m)
	}
}

// takeTurn waits until the session may ask for a view. A view can have as many bytes as all
// definitions of a project, so one is held at a time, and each session waits for that with
// one request: whoever asks often delays itself. It tells false when the session is over.
func (s *session) takeTurn() (release func(), ok bool) {
	for i, turn := range []chan struct{}{s.turn, s.b.turn} {
		select {
		case turn <- struct{}{}:
		case <-s.gone:
			if i > 0 {
				<-s.turn
			}
			return nil, false
		}
	}
	return func() { <-s.b.turn; <-s.turn }, true
}

// view asks the authority what the session may call now, and has it used.
func (b *Bridge) view(s *session, use func(view []wire.Tool, generation int)) error {
	release, ok := s.takeTurn()
	if !ok {
		return io.EOF
	}
	defer release()
	b.mu.Lock()
	generation := s.generation
	b.mu.Unlock()
	view, err := b.askView(s.id)
	if err == nil {
		use(view, generation)
	}
	return err
}

func (b *Bridge) askView(s ids.Session) ([]wire.Tool, error) {
	ch := make(chan viewReply, 1)
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return nil, io.EOF
	}
	seq := b.nextSeqLocked()
	b.views[seq] = ch
	b.mu.Unlock()
	b.ask(question{m: wire.View{Session: s, Seq: seq}})
	timer := time.NewTimer(ViewWait)
	defer timer.Stop()
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return nil, io.EOF
		case r.memfd < 0:
			return r.tools, nil
		}
		raw, err := readMemfd(r.memfd, wire.MaxView)
		if err != nil {
			return nil, err
		}
		return wire.DecodeTools(raw)
	case <-timer.C:
		b.mu.Lock()
		delete(b.views, seq)
		b.mu.Unlock()
		return nil, errors.New("no view in time")
	}
}

func (b *Bridge) viewed(m wire.ViewIs, fds []int) {
	r := viewReply{tools: m.Tools, memfd: -1}
	if len(fds) == 1 {
		r.memfd = fds[0]
	}
	b.mu.Lock()
	ch, ok := b.views[m.Seq]
	delete(b.views, m.Seq)
	next := b.answeredLocked(true)
	b.mu.Unlock()
	b.tellNext(next)
	if !ok {
		closeAll(fds)
		return
	}
	ch <- r // has room for the one answer
}
