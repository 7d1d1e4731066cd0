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
	"sync"
	"sync/atomic"
	"time"

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
	Handled               func()                           // every whole line that has come was handled, and the next is waited for; must not wait; may be nil
	Quiet                 func()                           // no line has come for QuietAfter since the last, or none will; must not wait; may be nil
	Bounds                Bounds
	Lines                 *stream.Budget // for its long lines, with other servers; may be nil
}

// QuietAfter is how long a server says nothing before Quiet. It is longer than a caller
// of one call after the other takes, and short for whoever reads the records.
const QuietAfter = 5 * time.Millisecond

// Bounds are those of one server; 0 is the bound named beside it, and all but Blocks,
// Stderr, Pages and LineWait only narrow it.
type Bounds struct {
	Line   int // mcp.MaxLine
	Depth  int // mcp.MaxDepth
	Blocks int // mcp.MaxBlocks
	Stderr int // MaxStderr
	Pages  int // mcp.MaxPages
	Queue  int // stream.MaxQueued

	Items       int // mcp.MaxTools, of one list
	Definition  int // mcp.MaxToolBytes
	Definitions int // MaxListBytes, of one list

	LineWait time.Duration // stream.LineWait
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
	s := &Server{
		cfg:     cfg,
		peer:    mcp.Peer{Version: cfg.Version},
		in:      stream.NewInput(cfg.Stdout, -1, -1, min(or(cfg.Bounds.Line, mcp.MaxLine), mcp.MaxLine), cfg.Bounds.LineWait, nil, cfg.Lines),
		stderr:  ring{most: or(cfg.Bounds.Stderr, MaxStderr)},
		out:     stream.NewOutput(cfg.Stdin, -1, min(or(cfg.Bounds.Queue, stream.MaxQueued), stream.MaxQueued), nil), // what calls hold is bounded by who makes them
		pending: map[int64]flight{},
		lost:    map[int64]Call{},
	}
	if cfg.Quiet != nil {
		s.in.OnQuiet(QuietAfter, cfg.Quiet)
	}
	return s
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
	if s.cfg.Quiet != nil {
		s.cfg.Quiet()
	}
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

// Stderr returns the last bytes that the server wrote to its stderr, and how many it had
// written before them.
func (s *Server) Stderr() (last []byte, past uint64) { return s.stderr.bytes() }

// Counts returns what was dropped so far.
func (s *Server) Counts() Counts {
	return Counts{s.counts.noise.Load(), s.counts.unmatched.Load(), s.counts.tooLong.Load(), s.counts.requests.Load()}
}

// NextID returns an id that no other request to this server has.
func (s *Server) NextID() int64 { return s.next.Add(1) }

// Call sends line, the request id, and reports to c. With an error nothing is reported.
func (s *Server) Call(id int64, line []byte, c Call) error {
	return s.call(id, line, c, func() error { return s.out.Send(line, nil) })
}

// Gather is Call, but the line may wait for the next Flush, which is the caller's duty.
func (s *Server) Gather(id int64, line []byte, c Call) error {
	return s.call(id, line, c, func() error { return s.out.Gather(line) })
}

// Flush sends what was gathered. With an error the server takes nothing any more.
func (s *Server) Flush() error {
	if err := s.out.Flush(); err != nil {
		return ErrExited
	}
	return nil
}

func (s *Server) call(id int64, line []byte, c Call, send func() error) error {
	s.mu.Lock()
	if s.dead != nil {
		s.mu.Unlock()
		return ErrExited
	}
	s.pending[id] = flight{call: c, line: line}
	s.mu.Unlock()
	if err := send(); err != nil {
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
