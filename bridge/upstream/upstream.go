// Package upstream knows one tool server over its pipes: the handshake in the
// server's era, its list of tools, and the calls in flight.
//
// It runs with the bridge's privilege, which is none. Everything a tool server
// writes is hostile: noise, lies, floods, answers to questions nobody asked.
//
// Invariants:
//   - upstream-1: an answer ends exactly the call whose id it carries; any other is
//     counted and dropped.
//   - upstream-2: progress reaches a call only before its answer.
//   - upstream-3: when the server ends, every call in flight ends at once; none is repeated.
//   - upstream-4: a line too long, malformed or not JSON ends at most one call.
//   - upstream-5: the server learns of no capability of a runtime but that its user may
//     be asked, and its own requests are refused, but for ping and what Asked takes.
//
// It starts no process and stops none; it does not know what may be called.
package upstream

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"postern/bridge/mcp"
	"postern/bridge/stream"
)

// Errors with which a call ends.
var (
	// ErrExited is given to calls whose server is gone.
	ErrExited = errors.New("the server ended")
	// ErrAnswer is given to a call whose answer was malformed.
	ErrAnswer = errors.New("the answer is malformed")
	// ErrTooLong is given to a call whose answer exceeded mcp.MaxLine.
	ErrTooLong = errors.New("the answer is too large")
	// ErrBusy is returned by Call when the server does not read what waits for it already.
	ErrBusy = errors.New("the server does not read")
)

// Call is one request in flight. Its methods are called on the reader's goroutine and
// must not wait.
type Call interface {
	// Answer ends the call; exactly one of a and err is not nil. The answer is valid
	// during the call only. Size counts the bytes that came.
	Answer(a *mcp.Answer, size int, err error)
	// Progress passes on a progress notification's params.
	Progress(members []mcp.Member)
}

// Listener is a Call that ends when the server acknowledges it: a subscription to a
// modern server.
type Listener interface {
	Call
	Acknowledged(uris map[string]bool)
}

// Config is one server's pipes, which the Server owns from here on.
type Config struct {
	Stdin, Stdout, Stderr int                              // Stderr may be -1
	Version               string                           // of Postern
	Changed               func()                           // the server says that its tools or prompts changed; must not wait
	Note                  func(*mcp.Answer)                // any other notification that may be for somebody; valid during the call only, must not wait
	Asked                 func(*mcp.Answer) (bool, string) // the server asks the user; tells whether it will be answered by Reply, or why not; must not wait; may be nil
	Skipped               func()                           // one of Counts has risen; must not wait; may be nil
	Ended                 func()                           // no call can be made any more; told before the calls in flight are ended; may be nil
	Bounds                Bounds
	Lines                 *stream.Budget // for its long lines, with other servers; may be nil
}

// Bounds are those of one server; 0 is the bound named beside it, and Line, Depth
// and Queue only narrow it.
type Bounds struct {
	Line   int // mcp.MaxLine
	Depth  int // mcp.MaxDepth
	Blocks int // mcp.MaxBlocks
	Stderr int // MaxStderr
	Pages  int // mcp.MaxPages
	Queue  int // stream.MaxQueued
}

// or returns the bound, or what holds without one.
func or(bound, otherwise int) int {
	if bound > 0 {
		return bound
	}
	return otherwise
}

// Counts is what was seen beside answers.
type Counts struct{ Noise, Unmatched, TooLong, Requests int64 }

// Server is one running tool server.
type Server struct {
	cfg    Config
	peer   mcp.Peer
	both   bool // found by Probe
	in     *stream.Input
	out    *stream.Output
	stderr ring
	next   atomic.Int64
	counts struct{ noise, unmatched, tooLong, requests atomic.Int64 }
	offers mcp.Offers

	mu      sync.Mutex
	pending map[int64]flight
	lost    map[int64]Call // given up, and never answered
	unsure  bool           // more were given up than is kept
	dead    error

	closing sync.Once
}

type flight struct {
	call      Call
	line      []byte
	cancelled bool // the server was asked to end it, which is done once
}

// New wraps the pipes of a server that is already running. It reads nothing yet.
func New(cfg Config) *Server {
	return &Server{
		cfg:     cfg,
		peer:    mcp.Peer{Version: cfg.Version},
		in:      stream.NewInput(cfg.Stdout, -1, -1, min(or(cfg.Bounds.Line, mcp.MaxLine), mcp.MaxLine), nil, cfg.Lines),
		stderr:  ring{most: or(cfg.Bounds.Stderr, MaxStderr)},
		out:     stream.NewOutput(cfg.Stdin, -1, min(or(cfg.Bounds.Queue, stream.MaxQueued), stream.MaxQueued), nil), // what calls hold is bounded by who makes them
		pending: map[int64]flight{},
		lost:    map[int64]Call{},
	}
}

// Run reads the server's lines until it ends, then ends every call in flight. It
// closes stdout and stderr.
func (s *Server) Run() error {
	var stderr sync.WaitGroup
	if s.cfg.Stderr >= 0 {
		stderr.Go(func() { s.stderr.fill(s.cfg.Stderr) })
	}
	err := s.read()
	s.in.Release()
	s.Abandon()
	closeFD(s.cfg.Stdout)
	stderr.Wait()
	return err
}

// Abandon ends every call in flight without waiting for the server to end, and closes
// its stdin. Twice is harmless.
func (s *Server) Abandon() {
	s.mu.Lock()
	s.dead = ErrExited
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	// Whoever hears that a call has ended may make the next one at once: it must not
	// find this server.
	if s.cfg.Ended != nil {
		s.cfg.Ended()
	}
	for _, f := range pending {
		f.call.Answer(nil, 0, ErrExited)
	}
	s.Close()
}

// Close closes the server's stdin, which asks it to end. Twice is harmless.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.out.Close()
		closeFD(s.cfg.Stdin)
	})
}

// Peer is what the server speaks. It is fixed once Open returned.
func (s *Server) Peer() mcp.Peer { return s.peer }

// Stderr returns the last bytes that the server wrote to its stderr.
func (s *Server) Stderr() []byte { return s.stderr.bytes() }

// Counts returns what was dropped so far.
func (s *Server) Counts() Counts {
	return Counts{s.counts.noise.Load(), s.counts.unmatched.Load(), s.counts.tooLong.Load(), s.counts.requests.Load()}
}

// NextID returns an id that no other request to this server has.
func (s *Server) NextID() int64 { return s.next.Add(1) }

// Call sends line, the request id, and reports to c. With an error nothing is reported.
func (s *Server) Call(id int64, line []byte, c Call) error {
	s.mu.Lock()
	if s.dead != nil {
		s.mu.Unlock()
		return ErrExited
	}
	s.pending[id] = flight{call: c, line: line}
	s.mu.Unlock()
	if err := s.out.Send(line, nil); err != nil {
		if s.Forget(id) {
			if errors.Is(err, stream.ErrFull) {
				return ErrBusy
			}
			return ErrExited
		}
	}
	return nil
}

// Cancel asks the server to end request id, ahead of whatever waits to be sent. It
// tells whether the request was withdrawn before the server could see it; then it is
// over and nothing more is reported.
func (s *Server) Cancel(id int64, reason string) (withdrawn bool) {
	s.mu.Lock()
	f, ok := s.pending[id]
	if !ok || f.cancelled {
		s.mu.Unlock()
		return false
	}
	f.cancelled = true
	s.pending[id] = f
	s.mu.Unlock()
	if s.out.Withdraw(f.line) && s.Forget(id) {
		return true
	}
	// An output that fails belongs to a server that is ending, which ends the call.
	_ = s.out.SendFirst(mcp.AppendCancel(nil, id, reason))
	return false
}

// Forget stops waiting for request id; a late answer is dropped. It tells whether the
// request was still in flight.
func (s *Server) Forget(id int64) bool {
	c, ok := s.take(id)
	if _, ours := c.(*exchange); ok && !ours {
		s.mu.Lock()
		if len(s.lost) < maxLost {
			s.lost[id] = c
		} else {
			s.unsure = true
		}
		s.mu.Unlock()
	}
	return ok
}

// maxLost is how many calls that were given up are remembered: the server may still be
// working at them.
const maxLost = 256

// Flights returns the calls that the server may be speaking for: those in flight, and
// those given up that it never answered. sure tells that there can be no other.
func (s *Server) Flights() (calls []Call, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.pending {
		if _, ours := f.call.(*exchange); !ours {
			calls = append(calls, f.call)
		}
	}
	for _, c := range s.lost {
		calls = append(calls, c)
	}
	return calls, !s.unsure
}

// Heir makes c the one who hears how request id ends. It tells false when that is over.
func (s *Server) Heir(id int64, c Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.pending[id]
	if ok && !f.cancelled {
		f.call = c
		s.pending[id] = f
	}
	return ok && !f.cancelled
}

// Reply answers a request of the server.
func (s *Server) Reply(line []byte) { _ = s.out.Send(line, nil) }

// Tell sends a request of our own whose answer nobody waits for.
func (s *Server) Tell(method, params string) {
	e := &exchange{done: make(chan struct{})}
	id := s.NextID()
	_ = s.Call(id, s.peer.AppendRequest(nil, id, method, params), e)
}

func (s *Server) skipped(n *atomic.Int64) {
	n.Add(1)
	if s.cfg.Skipped != nil {
		s.cfg.Skipped()
	}
}

func (s *Server) take(id int64) (Call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.pending[id]
	delete(s.pending, id)
	return f.call, ok
}

func (s *Server) read() error {
	p := mcp.Parser{Depth: s.cfg.Bounds.Depth}
	blocks := or(s.cfg.Bounds.Blocks, mcp.MaxBlocks)
	for {
		line, err := s.in.Next()
		if err == stream.ErrTooLong || err == stream.ErrCrowded {
			s.skipped(&s.counts.tooLong)
			head, tail := s.in.Edges()
			s.fail(mcp.Answer{ID: mcp.OversizeID(head, tail)}, mcp.MaxLine, ErrTooLong)
			continue
		}
		if err != nil {
			return fmt.Errorf("read the server's output: %w", err)
		}
		a, err := p.ReadAnswer(line)
		switch {
		case err == mcp.ErrNoise:
			s.skipped(&s.counts.noise)
		case err != nil:
			s.fail(*a, len(line), ErrAnswer)
		case a.Kind == mcp.Response && a.Blocks() > blocks:
			s.fail(*a, len(line), ErrTooLong)
		case a.Kind == mcp.Response:
			s.answer(a, len(line))
		case a.Kind == mcp.Notification:
			s.note(a)
		default:
			s.asked(a)
		}
	}
}

func (s *Server) answer(a *mcp.Answer, size int) {
	if n, ok := a.Number(); ok {
		if c, ok := s.take(n); ok {
			c.Answer(a, size, nil)
			return
		}
		s.mu.Lock()
		delete(s.lost, n)
		s.mu.Unlock()
	}
	s.skipped(&s.counts.unmatched)
}

// fail ends the call that a bad line belongs to. Where the line names none and only
// one call is in flight, it was that one's.
func (s *Server) fail(a mcp.Answer, size int, why error) {
	n, ok := a.Number()
	if !ok {
		s.mu.Lock()
		if len(s.pending) == 1 && a.ID == nil {
			for n = range s.pending {
				ok = true
			}
		}
		s.mu.Unlock()
	}
	if ok {
		if c, ok := s.take(n); ok {
			c.Answer(nil, size, why)
			return
		}
	}
	s.skipped(&s.counts.unmatched)
}

func (s *Server) note(a *mcp.Answer) {
	switch a.Method {
	case mcp.NoteProgress:
		token, members, ok := mcp.Progress(a.Params)
		if !ok {
			return
		}
		s.mu.Lock()
		f, ok := s.pending[token]
		s.mu.Unlock()
		if ok {
			f.call.Progress(members)
			return
		}
		s.skipped(&s.counts.unmatched)
	case mcp.NoteToolsChanged, mcp.NotePrompts:
		if s.cfg.Changed != nil {
			s.cfg.Changed()
		}
	case mcp.NoteAcknowledged:
		n, uris, ok := mcp.Acknowledged(a.Params)
		s.mu.Lock()
		l, is := s.pending[n].call.(Listener)
		if ok && is {
			delete(s.pending, n)
		}
		s.mu.Unlock()
		if ok && is {
			l.Acknowledged(uris)
		}
	case mcp.NoteResources, mcp.NoteUpdated, mcp.NoteMessage:
		if s.cfg.Note != nil {
			s.cfg.Note(a)
		}
	}
}

// asked answers a request of the server. A server that floods requests and reads no
// answers only loses answers.
func (s *Server) asked(a *mcp.Answer) {
	s.counts.requests.Add(1)
	if !s.out.Idle() || len(a.ID) > mcp.MaxID {
		return
	}
	line := mcp.AppendResponse(nil, a.ID, []byte("{}"))
	switch {
	case a.Method == mcp.MethodElicit && s.cfg.Asked != nil:
		taken, why := s.cfg.Asked(a)
		if taken {
			return
		}
		line = mcp.AppendError(nil, a.ID, mcp.CodeMethodNotFound, why, nil)
	case a.Method != mcp.MethodPing:
		line = mcp.AppendError(nil, a.ID, mcp.CodeMethodNotFound, "not offered to tool servers", nil)
	}
	_ = s.out.Send(line, nil) // a failing output is seen by the next call
}
