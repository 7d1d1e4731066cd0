package bridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"postern/bridge/mcp"
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
	ready := in.readyLocked()
	b.mu.Unlock()
	switch {
	case routes == nil, known && t.Callable && !ready:
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
	defer c.s.b.link.flush()
	var p mcp.Parser
	m, f := p.Parse(line) // a copy of what was parsed already
	if f != nil {
		c.refuse(refusal.Internal, true)
		return
	}
	b := c.s.b
	b.mu.Lock()
	routes := c.s.routes
	b.mu.Unlock()
	if routes == nil {
		var err error
		if routes, err = c.s.routesNow(); err != nil {
			c.refuse(refusal.Busy, true)
			return
		}
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
	b.listed(in)
	c.raw = line
	c.ask(m, t, in)
}

// ask builds what would be sent and asks whether it may be, with the link's next flush. Without an instance the
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
		if t.Args && replies == nil && len(args) <= wire.MaxArgs && c.what.method != mcp.MethodComplete {
			admit.Args = bytes.Clone(args)
		}
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
	b.askSoon(question{m: admit, still: func() bool {
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
