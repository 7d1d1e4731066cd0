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
	"postern/item"
	"postern/refusal"
)

// request is one of the requests that are admitted before a server hears of them.
type request struct {
	method string
	kind   item.Kind
	member string // of params, which names the item
}

// requests are all of them, by their methods.
var requests = map[string]request{
	mcp.MethodToolsCall:  {mcp.MethodToolsCall, item.Tool, "name"},
	mcp.MethodPromptsGet: {mcp.MethodPromptsGet, item.Prompt, "name"},
	mcp.MethodRead:       {mcp.MethodRead, item.Resource, "uri"},
	mcp.MethodSubscribe:  {mcp.MethodSubscribe, item.Resource, "uri"},
	mcp.MethodComplete:   {mcp.MethodComplete, item.Prompt, "ref"}, // or of a resource, as its ref says
}

// phase is how far a call got.
type phase int

const (
	waiting phase = iota // for a view or a tool server
	asking               // Admit is with the authority
	running              // admitted, and the tool server's
	over
)

// call is one request of a runtime that is admitted: a tools/call, or a prompts/get,
// resources/read, subscription or completion.
type call struct {
	s       *session
	live    *live
	key     string // mcp.IDKey of id
	id      mcp.Value
	token   mcp.Value // for progress; nil when none was asked for
	what    request
	name    string    // as the runtime called it
	peer    mcp.Peer  // what the runtime speaks
	elicits bool      // the runtime can ask its user
	level   mcp.Level // from which a modern runtime wants log messages; 0 for none
	done    func(ok bool)

	completes mcp.Completion // of a completion
	unasked   mcp.Value      // answers that it brings to no question of ours; nil for none

	// Where it brings the answer to a question of the server.
	resumes *handle
	replies map[string]mcp.Value
	rounds  int

	// Set before the Admit and not changed any more.
	in      *instance // nil where the call can only be refused
	tool    string    // the item's key, by the upstream's name
	digest  [32]byte  // of the arguments
	paths   *wire.Paths
	number  int64 // the id towards the tool server
	line    []byte
	source  []byte // the runtime's line, kept where the call may have to be made again
	raw     []byte // the runtime's line while the call begins
	started time.Time

	// Guarded by Bridge.mu.
	phase    phase
	call     ids.Call
	gone     bool   // the runtime does not wait any more, or was answered early
	why      string // the reason for that
	code     refusal.Code
	returned bool
	timer    *time.Timer
	again    []byte    // the runtime's line, where a view older than a grant may have misled us; asked once more
	handle   string    // under which a question of the server waits for a retry
	question mcp.Value // the id under which its server then waits for the answer
	prev     *call     // the call that this one goes on with, at the same server
	heir     *call
	alive    time.Time // when the authority was last told so
}

// itemKey is the key by which the runtime means the item.
func (c *call) itemKey() string { return c.what.kind.Key(c.name) }

// begin takes the short way where the route is known and the server runs, and
// otherwise leaves the reader to wait elsewhere.
func (c *call) begin(m *mcp.Message, line []byte) {
	b := c.s.b
	b.mu.Lock()
	c.live.call = c
	routes := c.s.routes
	t, known := routes.find(c.itemKey())
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
		c.raw = line
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
	t, known := routes.find(c.itemKey())
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
	c.raw = line
	c.ask(m, t, in)
}

// ask builds what would be sent and asks whether it may be. Without an instance the
// authority can only refuse, and it says with which code.
func (c *call) ask(m *mcp.Message, t wire.Tool, in *instance) {
	b := c.s.b
	args := m.Param("arguments")
	if c.what.method == mcp.MethodComplete {
		args = c.completes.Asked(m)
	}
	c.digest = sha256.Sum256(args)
	digest, size := c.digest, len(args)
	var replies mcp.Value
	switch {
	case c.resumes != nil:
		replies = mcp.JoinReplies(c.resumes.questions, c.replies)
	case in != nil && in.srv.Peer().Modern && c.elicits:
		replies = c.unasked
	}
	if replies != nil {
		digest = sha256.Sum256(append(append(bytes.Clone(args), '\n'), replies...))
		size += len(replies)
	}
	admit := wire.Admit{
		Session: c.s.id, Connection: t.Connection, Tool: t.Tool,
		Digest: hex.EncodeToString(digest[:]), Size: int64(size), RequestID: requestID(c.id),
	}
	if t.Tool == "" {
		admit.Tool = c.itemKey()
	}
	c.in, c.tool, c.started = in, admit.Tool, time.Now()
	if c.resumes != nil {
		admit.Continues = c.resumes.first
	}
	switch {
	case in == nil:
	case c.resumes != nil && c.resumes.held != nil && c.resumes.held.in != in:
		c.refuse(refusal.ServerExited, true) // the server that asked is gone
		return
	default:
		admit.Instance = in.id
		c.readPaths(m, t)
		admit.Paths = c.paths
		c.build(m, in, replies)
	}
	c.raw = nil
	b.mu.Lock()
	if c.phase != waiting || c.gone {
		b.mu.Unlock()
		return
	}
	tooMuch := c.s.held+c.size() > MaxHeld || b.held+c.size() > MaxHeldAll || (in != nil && in.calls >= MaxConnCalls)
	if !tooMuch {
		c.phase = asking
		admit.Seq = b.nextSeqLocked()
		b.asked[admit.Seq] = c
		c.s.held += c.size()
		b.held += c.size()
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

func (c *call) size() int { return len(c.line) + len(c.source) }

// build makes the line that goes to the server if the call is admitted.
func (c *call) build(m *mcp.Message, in *instance, replies mcp.Value) {
	peer := in.srv.Peer()
	if c.resumes != nil && c.resumes.held != nil { // its server waits for the answer alone
		c.number = c.resumes.held.number
		c.line = mcp.AppendResponse(nil, c.resumes.asked, c.replies[c.resumes.questions[0].Key])
		return
	}
	c.number = in.srv.NextID()
	_, name := item.Split(c.tool)
	if peer.Modern && c.what.method == mcp.MethodSubscribe {
		c.line = peer.AppendRequest(nil, c.number, mcp.MethodListen, `"notifications":`+mcp.Filter{URIs: []string{name}}.Filters())
		return
	}
	x := mcp.Extra{Elicit: c.elicits}
	if peer.Modern {
		x.Level = c.wants().String()
		if c.resumes == nil {
			x.Responses = replies
		} else {
			x.State = c.resumes.state
			if len(c.resumes.questions) > 0 {
				x.Responses = replies
			}
		}
		if !c.peer.Modern && c.elicits { // what it asks is asked here, and the call made again
			if x.Elicit = c.raw != nil && len(c.raw) <= MaxSource; x.Elicit {
				c.source = bytes.Clone(c.raw)
			}
		}
	}
	about := mcp.Subject{Member: c.what.member, Name: name}
	if c.what.method == mcp.MethodComplete {
		about.Raw = c.completes.Ref(name)
	}
	c.line = peer.AppendCall(make([]byte, 0, 256+len(c.raw)+len(name)), c.number, m, c.what.method, about, x)
}

// readPaths takes the path arguments, where the tool has any, out of the very value
// that is sent if the call is admitted.
func (c *call) readPaths(m *mcp.Message, t wire.Tool) {
	if t.Paths != nil && c.paths == nil {
		c.paths = t.Paths.Of(m.Param("arguments"))
	}
}

// overLocked gives back what the call held, and what the calls held that it goes on
// with. It returns those, which end as this one does. It may be called once.
func (c *call) overLocked() (before []ids.Call) {
	c.phase = over
	c.s.held -= c.size()
	c.s.b.held -= c.size()
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
	c.line, c.source = nil, nil // a server may be long in answering what was given up
	c.s.dropHandleLocked(c.handle)
	if c.prev != nil && c.prev.phase == running {
		before = append(c.prev.overLocked(), c.prev.call)
	}
	return before
}

// settle takes the right to answer the runtime; see session.finish.
func (c *call) settle() bool { return c.s.finish(c.live, c.key) }

// reply gives the answer to whoever made the request: a runtime, or the bridge itself.
func (c *call) reply(line []byte, ok bool) bool {
	if c.done != nil {
		c.done(ok)
		return true
	}
	return c.s.send(line)
}

// refuse answers the call with a refusal, in the form that the table gives it.
func (c *call) refuse(code refusal.Code, report bool) {
	c.s.b.mu.Lock()
	if c.phase == waiting {
		c.phase = over
	}
	c.s.b.mu.Unlock()
	c.abandonQuestion()
	if c.settle() {
		c.reply(c.refusal(code), false)
	}
	if report {
		c.s.denied(code, c.itemKey(), requestID(c.id))
	}
}

// refuseUnentered refuses a call that never got a place among the live ones.
func (c *call) refuseUnentered(code refusal.Code) {
	c.s.send(c.refusal(code))
	c.s.denied(code, c.itemKey(), requestID(c.id))
}

func (c *call) refusal(code refusal.Code) []byte {
	row := refusal.Of(code)
	switch {
	case row.Form == refusal.InvalidParams:
		// The same words whether the name is another project's or nobody's.
		return c.unknown()
	case row.Form == refusal.Result && c.what.kind == item.Tool:
		return c.peer.AppendRefusal(nil, c.id, string(row.Code), row.Code.Help(), row.Sentence)
	case row.Form == refusal.Result: // only a tool's result can say no
		return mcp.AppendError(nil, c.id, refusal.ServerError.JSONRPC(), row.Sentence, refusalData(row.Code))
	}
	return mcp.AppendError(nil, c.id, row.Form.JSONRPC(), row.Sentence, refusalData(row.Code))
}

func (c *call) unknown() []byte {
	switch c.what.kind {
	case item.Prompt:
		return mcp.AppendError(nil, c.id, mcp.CodeInvalidParams, "Unknown prompt: "+cut(c.name, mcp.MaxToolName), nil)
	case item.Resource:
		code := mcp.CodeInvalidParams
		if !c.peer.Modern {
			code = mcp.CodeNoResource
		}
		uri := c.name
		if c.completes.URI != "" {
			uri = c.completes.URI
		}
		var data mcp.Value // the revisions want the URI there
		if len(uri) <= item.MaxURI {
			data = mcp.Value("{" + mcp.URIParam(uri) + "}")
		}
		return mcp.AppendError(nil, c.id, code, "Resource not found: "+cut(uri, mcp.MaxToolName), data)
	}
	return mcp.AppendError(nil, c.id, mcp.CodeInvalidParams, "Unknown tool: "+cut(c.name, mcp.MaxToolName), nil)
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
	case c != nil:
		c.abandonQuestion()
		if c.settle() {
			c.reply(c.refusal(code), false)
		}
	}
}

// admitted sends the call to its tool server, from the authority's own goroutine.
func (b *Bridge) admitted(m wire.Admitted) {
	b.mu.Lock()
	c := b.asked[m.Seq]
	delete(b.asked, m.Seq)
	next := b.answeredLocked(false)
	send := false
	var held *call
	gone := false
	if c != nil {
		c.call, gone = m.Call, c.gone
		if c.resumes != nil {
			held = c.resumes.held
		}
		if send = !c.gone && c.in != nil && (held == nil || held.phase == running && !held.gone); send {
			c.phase = running
			b.calls[m.Call] = c
			if held != nil {
				held.heir, c.prev = c, held
			}
		} else {
			c.overLocked()
		}
	}
	b.mu.Unlock()
	b.tellNext(next)
	switch {
	case c == nil:
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Cancelled, Code: refusal.CallCancelled})
	case send && held != nil:
		c.goOn(held)
	case send:
		if err := c.in.srv.Call(c.number, c.line, c); err != nil {
			if err != upstream.ErrBusy {
				b.dropped(c.in)
			}
			c.Answer(nil, 0, err)
		}
		c.stopIfLate()
	case c.in == nil:
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Failed, Code: refusal.ServerUnavailable})
		c.refuse(refusal.ServerUnavailable, false)
	case held != nil && !gone: // the server that asked has ended meanwhile
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Cancelled, Code: refusal.ServerExited})
		c.refuse(refusal.ServerExited, false)
	default: // cancelled while the authority decided: the server never saw it
		_ = b.link.tell(wire.Ended{Call: m.Call, Outcome: wire.Cancelled, Code: refusal.CallCancelled})
		c.abandonQuestion()
	}
}

// stopIfLate cancels a call whose stop came before the server knew its id.
func (c *call) stopIfLate() {
	b := c.s.b
	b.mu.Lock()
	late := c.gone && c.phase == running
	b.mu.Unlock()
	if late && c.in.srv.Cancel(c.number, c.why) {
		c.close(wire.Cancelled)
	}
}

// Progress passes a server's progress to the runtime, if it asked for any and has no
// answer yet: after the answer, runtimes close the session over it. Such a call has its
// limit once more.
func (c *call) Progress(members []mcp.Member) {
	if c.token == nil {
		return
	}
	c.tellAlive(false)
	line := c.peer.AppendProgress(nil, c.token, members)
	_ = c.s.out.Send(line, func() bool { return !c.live.answered.Load() }) // the answer tells
}

// tellAlive gives a running call, and those it goes on with, their time anew.
func (c *call) tellAlive(waits bool) {
	b := c.s.b
	b.mu.Lock()
	now := time.Now()
	tell := c.phase == running && (waits || now.Sub(c.alive) >= AliveEvery)
	if tell {
		c.alive = now
	}
	var all []ids.Call
	for p := c; tell && p != nil; p = p.prev {
		all = append(all, p.call)
	}
	b.mu.Unlock()
	for _, id := range all {
		_ = b.link.tell(wire.Alive{Call: id, Waits: waits})
	}
}

// Answer ends the call, from the tool server's own goroutine.
func (c *call) Answer(a *mcp.Answer, size int, err error) {
	b := c.s.b
	if err == nil && c.goesOn(a, size) {
		return
	}
	b.mu.Lock()
	if c.phase != running {
		b.mu.Unlock()
		return
	}
	before := c.overLocked()
	gone, code, call := c.gone, c.code, c.call
	returned := c.returned
	b.mu.Unlock()
	c.s.dropAsks(c)

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
		if c.what.method == mcp.MethodSubscribe {
			c.subscribed()
		}
	}
	switch {
	case !gone && c.settle():
		switch {
		case end.Code != "":
			end.Returned = c.reply(c.refusal(end.Code), false)
		case c.done != nil:
			c.done(end.Outcome == wire.Completed)
		default:
			end.Returned = c.s.send(c.peer.AppendAnswer(make([]byte, 0, size+256), c.id, a))
			if !end.Returned {
				c.s.send(c.refusal(refusal.ServerAnswer)) // it is done, and must not be repeated
			}
		}
	case gone && end.Outcome == wire.Failed: // its acknowledgement of the cancellation
		end.Outcome, end.Code, end.Returned = wire.Cancelled, code, returned
	}
	end.Micros = time.Since(c.started).Microseconds()
	b.tellEnded(end, before)
}

// tellEnded reports how a call ended, and with it those that it went on with.
func (b *Bridge) tellEnded(end wire.Ended, before []ids.Call) {
	_ = b.link.tell(end)
	for _, id := range before {
		end.Call = id
		_ = b.link.tell(end)
	}
}

// abandon is for a runtime that cancelled or is gone: it gets no answer.
func (c *call) abandon(reason string) { c.stop(reason, refusal.CallCancelled, nil) }

// cancelled is the authority's word that an admitted call must end: the runtime is
// told why at once, and the tool server is asked to stop.
func (b *Bridge) cancelled(m wire.Cancel) {
	b.mu.Lock()
	c := b.calls[m.Call]
	for c != nil && c.heir != nil {
		c = c.heir // whoever waits now
	}
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
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	c.s.dropHandleLocked(c.handle)
	question := c.question
	c.question = nil
	b.mu.Unlock()
	if answer != nil && c.settle() {
		sent := c.reply(answer, false)
		b.mu.Lock()
		c.returned = sent
		b.mu.Unlock()
	}
	if run && c.in.srv.Cancel(c.number, reason) {
		c.close(wire.Cancelled)
	}
	if question != nil { // the server that waits for it can go on, and its silence is not taken for work
		c.in.srv.Reply(mcp.AppendResponse(nil, question, mcp.Value(`{"action":"cancel"}`)))
	}
	c.s.dropAsks(c)
	if !run {
		c.abandonQuestion()
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
	before := c.overLocked()
	end := wire.Ended{Call: c.call, Outcome: outcome, Code: c.code, Returned: c.returned, Micros: time.Since(c.started).Microseconds()}
	b.mu.Unlock()
	b.tellEnded(end, before)
}

var _ upstream.Call = (*call)(nil)
