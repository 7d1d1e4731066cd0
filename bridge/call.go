package bridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// phase is how far a call got.
type phase int

const (
	waiting phase = iota // for a view or a tool server
	asking               // Admit is with the authority
	running              // admitted, and the tool server's
	over
)

// call is one tools/call of a runtime.
type call struct {
	s     *session
	live  *live
	key   string // mcp.IDKey of id
	id    mcp.Value
	token mcp.Value // for progress; nil when none was asked for
	name  string    // as the runtime called it
	peer  mcp.Peer  // what the runtime speaks

	// Set before the Admit and not changed any more.
	in      *instance // nil where the call can only be refused
	tool    string    // the upstream's name
	paths   *wire.Paths
	number  int64 // the id towards the tool server
	line    []byte
	started time.Time

	// Guarded by Bridge.mu.
	phase    phase
	call     ids.Call
	gone     bool   // the runtime does not wait any more, or was answered early
	why      string // the reason for that
	code     refusal.Code
	returned bool
	timer    *time.Timer
	again    []byte // the runtime's line, where a view older than a grant may have misled us; asked once more
}

// begin takes the short way where the route is known and the server runs, and
// otherwise leaves the reader to wait elsewhere.
func (c *call) begin(m *mcp.Message, line []byte) {
	b := c.s.b
	b.mu.Lock()
	c.live.call = c
	routes := c.s.routes
	t, known := routes[c.name]
	in := b.instances[placeOf(t)]
	b.mu.Unlock()
	switch {
	case routes == nil, known && t.Callable && !in.isReady():
		own := bytes.Clone(line)
		b.run.Go(func() { c.beginSlowly(own) })
	case !known || !t.Callable:
		c.again = bytes.Clone(line)
		c.ask(m, t, nil)
	default:
		c.ask(m, t, in)
	}
}

// beginSlowly asks for a view, starts the tool server, or both.
func (c *call) beginSlowly(line []byte) {
	var p mcp.Parser
	m, f := p.Parse(line) // a copy of what was parsed already
	if f != nil {
		c.refuse(refusal.Internal, true)
		return
	}
	b := c.s.b
	b.mu.Lock()
	routes, generation := c.s.routes, c.s.generation
	b.mu.Unlock()
	if routes == nil {
		view, err := b.view(c.s.id)
		if err != nil {
			c.refuse(refusal.Busy, true)
			return
		}
		routes = c.s.remember(view, generation)
	}
	t, known := routes[c.name]
	if !known || !t.Callable {
		c.ask(m, t, nil)
		return
	}
	c.readPaths(m, t)
	in, code, recorded := b.instanceFor(c, t)
	if code != "" {
		c.refuse(code, !recorded)
		return
	}
	c.ask(m, t, in)
}

// ask builds what would be sent and asks whether it may be. Without an instance the
// authority can only refuse, and it says with which code.
func (c *call) ask(m *mcp.Message, t wire.Tool, in *instance) {
	b := c.s.b
	args := m.Param("arguments")
	digest := sha256.Sum256(args)
	admit := wire.Admit{
		Session: c.s.id, Connection: t.Connection, Tool: t.Tool,
		Digest: hex.EncodeToString(digest[:]), Size: int64(len(args)), RequestID: requestID(c.id),
	}
	if t.Tool == "" {
		admit.Tool = c.name
	}
	c.in, c.tool, c.started = in, admit.Tool, time.Now()
	if in != nil {
		admit.Instance = in.id
		c.readPaths(m, t)
		admit.Paths = c.paths
		c.number = in.srv.NextID()
		c.line = in.srv.Peer().AppendCall(make([]byte, 0, 128+len(args)+len(c.tool)), c.number, m, c.tool)
	}
	b.mu.Lock()
	if c.phase != waiting || c.gone {
		b.mu.Unlock()
		return
	}
	tooMuch := c.s.held+len(c.line) > MaxHeld || b.held+len(c.line) > MaxHeldAll || (in != nil && in.calls >= MaxConnCalls)
	if !tooMuch {
		c.phase = asking
		admit.Seq = b.nextSeqLocked()
		b.asked[admit.Seq] = c
		c.s.held += len(c.line)
		b.held += len(c.line)
		if in != nil {
			in.calls++
		}
	}
	b.mu.Unlock()
	if tooMuch {
		c.refuse(refusal.LimitCalls, true)
		return
	}
	b.ask(question{m: admit, still: func() bool {
		if !c.gone {
			return true
		}
		delete(b.asked, admit.Seq)
		c.overLocked()
		return false
	}})
}

// readPaths takes the path arguments, where the tool has any, out of the very value
// that is sent if the call is admitted.
func (c *call) readPaths(m *mcp.Message, t wire.Tool) {
	if t.Paths != nil && c.paths == nil {
		c.paths = t.Paths.Of(m.Param("arguments"))
	}
}

// overLocked gives back what the call held. It may be called once.
func (c *call) overLocked() {
	c.phase = over
	c.s.held -= len(c.line)
	c.s.b.held -= len(c.line)
	if c.in != nil {
		c.in.calls--
	}
	if c.call != "" {
		delete(c.s.b.calls, c.call)
		c.s.b.restLocked()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

// settle takes the right to answer the runtime; see session.finish.
func (c *call) settle() bool { return c.s.finish(c.live, c.key) }

// refuse answers the call with a refusal, in the form that the table gives it.
func (c *call) refuse(code refusal.Code, report bool) {
	c.s.b.mu.Lock()
	if c.phase == waiting {
		c.phase = over
	}
	c.s.b.mu.Unlock()
	if c.settle() {
		c.s.send(c.refusal(code))
	}
	if report {
		c.s.denied(code, c.name, requestID(c.id))
	}
}

// refuseUnentered refuses a call that never got a place among the live ones.
func (c *call) refuseUnentered(code refusal.Code) {
	c.s.send(c.refusal(code))
	c.s.denied(code, c.name, requestID(c.id))
}

func (c *call) refusal(code refusal.Code) []byte {
	row := refusal.Of(code)
	switch row.Form {
	case refusal.Result:
		return c.peer.AppendRefusal(nil, c.id, string(row.Code), row.Code.Help(), row.Sentence)
	case refusal.InvalidParams:
		// The same words whether the name is another project's or nobody's.
		return mcp.AppendError(nil, c.id, mcp.CodeInvalidParams, "Unknown tool: "+cut(c.name, mcp.MaxToolName), nil)
	}
	return mcp.AppendError(nil, c.id, row.Form.JSONRPC(), row.Sentence, refusalData(row.Code))
}

func (b *Bridge) refused(m wire.Refused) {
	b.mu.Lock()
	c := b.asked[m.Seq]
	delete(b.asked, m.Seq)
	var again []byte
	code := m.Code
	if c != nil {
		c.overLocked()
		if code == refusal.StaleSelector {
			code = refusal.Busy // what the runtime hears if a second look does not help
			if again, c.again = c.again, nil; again != nil && !c.gone {
				c.phase, c.s.routes = waiting, nil
				c.s.generation++
			}
		}
	}
	next := b.answeredLocked(false)
	b.mu.Unlock()
	b.tellNext(next)
	switch {
	case again != nil:
		b.run.Go(func() { c.beginSlowly(again) })
	case c != nil && c.settle():
		c.s.send(c.refusal(code))
	}
}

// admitted sends the call to its tool server, from the authority's own goroutine.
func (b *Bridge) admitted(m wire.Admitted) {
	b.mu.Lock()
	c := b.asked[m.Seq]
	delete(b.asked, m.Seq)
	next := b.answeredLocked(false)
	send := false
	if c != nil {
		c.call = m.Call
		if send = !c.gone && c.in != nil; send {
			c.phase = running
			b.calls[m.Call] = c
		} else {
			c.overLocked()
		}
	}
	b.mu.Unlock()
	b.tellNext(next)
	switch {
	case c == nil:
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Cancelled, Code: refusal.CallCancelled})
	case send:
		if err := c.in.srv.Call(c.number, c.line, c); err != nil {
			if err != upstream.ErrBusy {
				b.dropped(c.in)
			}
			c.Answer(nil, 0, err)
		}
		b.mu.Lock()
		late := c.gone && c.phase == running
		b.mu.Unlock()
		if late && c.in.srv.Cancel(c.number, c.why) { // stop came before the server knew the id
			c.close(wire.Cancelled)
		}
	case c.in == nil:
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Failed, Code: refusal.ServerUnavailable})
		c.refuse(refusal.ServerUnavailable, false)
	default: // cancelled while the authority decided: the server never saw it
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Cancelled, Code: refusal.CallCancelled})
	}
}

// Progress passes a server's progress to the runtime, if it asked for any and has no
// answer yet: after the answer, runtimes close the session over it.
func (c *call) Progress(members []mcp.Member) {
	if c.token == nil {
		return
	}
	line := c.peer.AppendProgress(nil, c.token, members)
	_ = c.s.out.Send(line, func() bool { return !c.live.answered.Load() }) // the answer tells
}

// Answer ends the call, from the tool server's own goroutine.
func (c *call) Answer(a *mcp.Answer, size int, err error) {
	b := c.s.b
	b.mu.Lock()
	if c.phase != running {
		b.mu.Unlock()
		return
	}
	c.overLocked()
	gone, code, call := c.gone, c.code, c.call
	returned := c.returned
	b.mu.Unlock()

	end := wire.Ended{Call: call, Size: int64(size)}
	switch {
	case err == upstream.ErrExited:
		end.Outcome, end.Code = wire.Unknown, refusal.ServerExited
	case err == upstream.ErrBusy: // it was not sent
		end.Outcome, end.Code = wire.Failed, refusal.Busy
	case err != nil, a.Promises() && (c.peer.Modern || c.in.srv.Peer().Modern):
		end.Outcome, end.Code = wire.Failed, refusal.ServerAnswer
	case a.Error != nil || a.IsError:
		end.Outcome, end.IsError = wire.Failed, a.IsError
	default:
		end.Outcome = wire.Completed
	}
	switch {
	case !gone && c.settle():
		if end.Code != "" {
			end.Returned = c.s.send(c.refusal(end.Code))
		} else {
			end.Returned = c.s.send(c.peer.AppendAnswer(make([]byte, 0, size+256), c.id, a))
			if !end.Returned {
				c.s.send(c.refusal(refusal.ServerAnswer)) // it is done, and must not be repeated
			}
		}
	case end.Outcome == wire.Failed: // its acknowledgement of the cancellation
		end.Outcome, end.Code, end.Returned = wire.Cancelled, code, returned
	case end.Outcome == wire.Completed:
		end.Returned = false
	}
	end.Micros = time.Since(c.started).Microseconds()
	_ = b.link.tell(end)
}

// abandon is for a runtime that cancelled or is gone: it gets no answer.
func (c *call) abandon(reason string) { c.stop(reason, refusal.CallCancelled, nil) }

// cancelled is the authority's word that an admitted call must end: the runtime is
// told why at once, and the tool server is asked to stop.
func (b *Bridge) cancelled(m wire.Cancel) {
	b.mu.Lock()
	c := b.calls[m.Call]
	b.mu.Unlock()
	if c != nil {
		c.stop(refusal.Of(m.Code).Sentence, m.Code, c.refusal(m.Code))
	}
}

// stop ends the wait for a call. What the server makes of it is learned from its
// answer, or not at all.
func (c *call) stop(reason string, code refusal.Code, answer []byte) {
	b := c.s.b
	b.mu.Lock()
	if c.gone || c.phase == over {
		b.mu.Unlock()
		return
	}
	c.gone, c.why, c.code = true, reason, code
	run := c.phase == running
	if run {
		c.timer = time.AfterFunc(CancelGrace, c.unconfirmed)
	} else if c.phase == waiting {
		c.phase = over
	}
	b.mu.Unlock()
	if answer != nil && c.settle() {
		sent := c.s.send(answer)
		b.mu.Lock()
		c.returned = sent
		b.mu.Unlock()
	}
	if run && c.in.srv.Cancel(c.number, reason) {
		c.close(wire.Cancelled)
	}
}

// unconfirmed ends the wait for a server that does not confirm: whatever it did stands.
func (c *call) unconfirmed() {
	if c.in.srv.Forget(c.number) {
		c.close(wire.Unknown)
	}
}

// close reports the end of a call that has no answer.
func (c *call) close(outcome wire.Outcome) {
	b := c.s.b
	b.mu.Lock()
	if c.phase != running {
		b.mu.Unlock()
		return
	}
	c.overLocked()
	end := wire.Ended{Call: c.call, Outcome: outcome, Code: c.code, Returned: c.returned, Micros: time.Since(c.started).Microseconds()}
	b.mu.Unlock()
	_ = b.link.tell(end)
}

var _ upstream.Call = (*call)(nil)
