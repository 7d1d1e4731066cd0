package bridge

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/stream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/refusal"
)

// session is one runtime on one bound connection.
type session struct {
	b   *Bridge
	id  ids.Session
	out *stream.Output // nil until the hand-over

	bounds sessionBounds
	turn   chan struct{} // holds one while one of its requests waits for a view

	// The rest is guarded by Bridge.mu.
	conn       int  // the lifeline; -1 once closed
	passed     bool // MCP runs on descriptors that were handed over, not on conn
	ended      bool
	reason     string
	legacy     string             // the revision that initialize agreed on
	elicits    bool               // it can ask its user, as initialize said
	level      mcp.Level          // of log messages, as logging/setLevel said
	live       map[string]*live   // requests without an answer, by mcp.IDKey
	listens    map[string]*listen // open subscriptions, by mcp.IDKey
	subs       map[string]sub     // what resources/subscribe subscribed to, by URI
	unsure     bool               // the view may have changed: no update passes until it was looked at
	missed     map[string]bool    // URIs that were updated meanwhile
	asks       map[string]*asks   // our requests to it without an answer, by their ids
	asked      uint64             // counts them
	handles    map[string]*handle // questions that wait for a retry
	listed     map[string]bool    // the lists that it has asked for, by method
	routes     *routes            // nil when it must be asked again
	generation int                // counts what made routes nil
	held       int                // bytes of calls that wait
	denials    int
	denialsAt  time.Time
	notes      int
	notesAt    time.Time
	gone       chan struct{} // closed when it is over
}

// sessionBounds are what holds for one runtime.
type sessionBounds struct {
	requests, line, depth, queue int
	lineWait                     time.Duration
}

// narrowed returns the bridge's own bounds where nothing narrower is set.
func narrowed(m wire.SessionBounds) sessionBounds {
	or := func(n int64, most int) int {
		if n > 0 && n < int64(most) {
			return int(n)
		}
		return most
	}
	return sessionBounds{
		requests: or(int64(m.Requests), MaxInFlight), line: or(m.Line, mcp.MaxLine), depth: or(int64(m.Depth), mcp.MaxDepth),
		queue: or(m.Queue, stream.MaxQueued), lineWait: time.Duration(m.LineWaitMs) * time.Millisecond,
	}
}

// live is one request that has no answer yet.
type live struct {
	call     *call // nil for a list
	answered atomic.Bool
}

func (b *Bridge) accept(id ids.Session, bounds wire.SessionBounds, conn int) {
	s := &session{b: b, id: id, conn: conn, bounds: narrowed(bounds), turn: make(chan struct{}, 1), live: map[string]*live{}, listens: map[string]*listen{}, subs: map[string]sub{}, missed: map[string]bool{},
		asks: map[string]*asks{}, handles: map[string]*handle{}, listed: map[string]bool{}, gone: make(chan struct{})}
	b.mu.Lock()
	_, again := b.sessions[id]
	full := len(b.sessions) >= MaxSessions
	if !again && !full {
		b.sessions[id] = s
	}
	b.mu.Unlock()
	switch {
	case again:
		closeOne(conn)
		return
	case full:
		row := refusal.Of(refusal.TooManySession)
		_ = sendAll(conn, mcp.AppendError(nil, nil, row.Form.JSONRPC(), row.Sentence, refusalData(row.Code)))
		closeOne(conn)
		_ = b.link.tell(wire.SessionEnded{Session: id, Reason: row.Sentence})
		return
	}
	b.run.Go(s.run)
}

// run is the session's whole life, on the one goroutine that reads its runtime.
func (s *session) run() {
	why := s.serve()
	s.b.mu.Lock()
	s.endLocked(why)
	why = s.reason
	conn := s.conn
	s.conn = -1
	delete(s.b.sessions, s.id)
	calls := s.callsLocked()
	subs := s.subsLocked()
	s.b.mu.Unlock()
	close(s.gone)
	closeOne(conn)
	s.b.unsubscribe(subs)
	for _, c := range calls {
		c.abandon("the session ended")
	}
	_ = s.b.link.tell(wire.SessionEnded{Session: s.id, Reason: why})
}

// endLocked makes the session end from wherever it waits. The first reason stays.
func (s *session) endLocked(why string) {
	if s.ended {
		return
	}
	s.ended, s.reason = true, cut(why, wire.MaxText)
	if s.conn < 0 {
		return
	}
	if s.passed {
		// The last line of a lifeline: without it the connector reports a bridge that died.
		_ = sendAll(s.conn, mcp.AppendEnded(nil, s.reason))
	}
	shutdown(s.conn)
}

func (s *session) end(why string) {
	s.b.mu.Lock()
	s.endLocked(why)
	s.b.mu.Unlock()
}

func (s *session) callsLocked() []*call {
	var calls []*call
	for key, l := range s.live {
		delete(s.live, key)
		l.answered.Store(true)
		if l.call != nil {
			calls = append(calls, l.call)
		}
	}
	for name, h := range s.handles {
		s.dropHandleLocked(name)
		if h.held != nil {
			calls = append(calls, h.held)
		}
	}
	return calls
}

// serve binds the runtime and reads it until something ends; it closes what was
// passed and returns why it ended.
func (s *session) serve() string {
	conn := s.conn
	if err := sendAll(conn, []byte(`{"postern":{"session":"`+string(s.id)+`"}}`+"\n")); err != nil {
		return "the connection took no answer"
	}
	std, err := handover(conn)
	if err != nil {
		_ = sendAll(conn, mcp.AppendError(nil, nil, mcp.CodeInvalidRequest, "hand-over: "+err.Error(), refusalData(refusal.BadRequest)))
		return "hand-over: " + err.Error()
	}
	out := stream.NewOutput(std.out, conn, s.bounds.queue, s.b.outgoing)
	s.b.mu.Lock()
	s.out, s.passed = out, std.in != conn
	s.b.mu.Unlock()
	in := stream.NewInput(std.in, conn, std.out, s.bounds.line, s.bounds.lineWait, std.first, s.b.incoming)
	why := s.read(in)
	in.Release()
	// What waits for a slow reader is dropped: the session is over.
	s.end(why) // wakes a writer that waits for the runtime
	out.Close()
	if std.in != conn {
		closeAll([]int{std.in, std.out})
	}
	return why
}

func (s *session) read(in *stream.Input) string {
	p := mcp.Parser{Depth: s.bounds.depth}
	for {
		if !in.Ready() {
			s.b.link.flush() // before it waits
		}
		line, err := in.Next()
		switch {
		case err == stream.ErrTooLong:
			head, _ := in.Edges()
			f := mcp.TooLong(s.bounds.line)
			f.ID = mcp.OversizeID(head, nil)
			s.refuse(f, "")
			continue
		case err == stream.ErrSlow: // the rest of it is passed over
			head, _ := in.Edges()
			s.sayNo(mcp.OversizeID(head, nil), refusal.LineUnfinished)
			continue
		case err == stream.ErrCrowded:
			head, _ := in.Edges()
			s.sayNo(mcp.OversizeID(head, nil), refusal.Busy)
			continue
		case errors.Is(err, io.EOF):
			return "end of input"
		case err == stream.ErrLifeline || err == stream.ErrPeer:
			return err.Error()
		case err != nil:
			return "input: " + err.Error()
		}
		if blank(line) {
			continue
		}
		m, f := p.Parse(line)
		if f != nil {
			if f.Handover {
				return "a second hand-over"
			}
			s.refuse(f, "")
			continue
		}
		s.front(m, line)
	}
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// send writes a line to the runtime. A runtime that does not read loses its session,
// because nothing could tell it anything any more. A long line for which others leave
// no room is not sent, and the caller has something shorter to say.
func (s *session) send(line []byte) bool { return s.took(s.out.Send(line, nil), len(line)) }

// gather is send for the answer of a tool server's reader, which flushes what it gathered.
func (s *session) gather(line []byte, in *instance) bool {
	if n := len(in.gathered); n == 0 || in.gathered[n-1] != s {
		in.gathered = append(in.gathered, s)
	}
	return s.took(s.out.Gather(line), len(line))
}

// took tells whether the runtime was sent a line of so many bytes, and what it means if not.
func (s *session) took(err error, size int) bool {
	if err != nil && !errors.Is(err, stream.ErrClosed) && !(errors.Is(err, stream.ErrCrowded) && size > stream.Free) {
		s.end("output: " + err.Error())
	}
	return err == nil
}

// refuse answers a message that was not acceptable, and reports it.
func (s *session) refuse(f *mcp.Fault, tool string) {
	s.send(mcp.AppendError(nil, f.ID, f.Code, f.Text(), refusalData(f.Refusal)))
	s.denied(f.Refusal, tool, requestID(f.ID))
}

// refusalData is the data member of every error that says no in the table's words.
func refusalData(code refusal.Code) mcp.Value {
	return mcp.Value(`{"code":"` + string(code) + `","help":"` + code.Help() + `"}`)
}

// denied reports a refusal that the authority did not make itself, so that it is
// recorded. A flood is cut: what it would say has been said.
func (s *session) denied(code refusal.Code, tool, id string) {
	s.b.mu.Lock()
	if now := time.Now(); now.Sub(s.denialsAt) > time.Second {
		s.denials, s.denialsAt = 0, now
	}
	s.denials++
	over := s.denials > DenialsPerSec
	s.b.mu.Unlock()
	if !over {
		_ = s.b.link.tell(wire.Denied{Session: s.id, Code: code, Tool: cut(tool, item.MaxKey), RequestID: id})
	}
}

// requestID is a runtime's id for the record: as it was written, and bounded.
func requestID(id mcp.Value) string { return cut(string(id), wire.MaxRequestID) }

// cut shortens s to at most most bytes, at the end of a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 {
		most--
	}
	return s[:most]
}
