package bridge

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// Bounds of what servers ask users.
const (
	MaxOpenQuestions = 8               // of one session
	MaxRounds        = 8               // of one call, with a server that ends its answer by a question
	MaxHeldRounds    = 32              // the same, with a server that waits for the answer
	MaxSource        = 256 << 10       // bytes of a request that may have to be made again for a legacy runtime
	AskWait          = 5 * time.Minute // for a user to answer
	AskYield         = time.Minute     // the same, where the server wants to ask about another call
	AliveEvery       = time.Second     // between two signs of life of one call
)

// A server may ask the user of a call, by a form. Four ways lead there:
//
//	legacy server, legacy runtime   its elicitation/create passes, under an id of ours
//	legacy server, modern runtime   the call is held; the runtime hears input_required,
//	                                and its retry is a new call that goes on with the held one
//	modern server, modern runtime   its input_required passes; the retry is a new call
//	modern server, legacy runtime   the runtime is asked, and the call made again as a new one
//
// Each new call is admitted by itself and its record names the first.

// handle is what a modern runtime's requestState stands for. It is kept here, never
// leaves as anything but a random name, and is used once.
type handle struct {
	first     ids.Call // whose question it is
	what      request
	name      string   // as the runtime called the item
	digest    [32]byte // of the arguments
	questions []mcp.Question
	rounds    int
	timer     *time.Timer
	since     time.Time

	held  *call     // at a legacy server, which waits
	asked mcp.Value // and the id under which it asked

	state  mcp.Value // what a modern server wants to be brought back
	source []byte    // a legacy runtime's request, which is made again
}

// newHandleLocked keeps h under a fresh name; "" where too many questions are open.
func (s *session) newHandleLocked(h *handle) string {
	if s.ended || len(s.handles)+len(s.asks) >= MaxOpenQuestions {
		return ""
	}
	var raw [24]byte
	rand.Read(raw[:]) // never fails
	name := base64.RawURLEncoding.EncodeToString(raw[:])
	h.since = time.Now()
	h.timer = time.AfterFunc(AskWait, func() {
		s.b.mu.Lock()
		late := s.handles[name] == h
		delete(s.handles, name)
		s.b.mu.Unlock()
		if late && h.held != nil {
			h.held.stop("the question was not answered in time", refusal.CallCancelled, nil)
		}
	})
	s.handles[name] = h
	return name
}

func (s *session) dropHandleLocked(name string) {
	if h := s.handles[name]; h != nil {
		h.timer.Stop()
		delete(s.handles, name)
	}
}

// resume finds what a retry goes on with. A handle that is presented is used up, and
// where it does not fit the request, what it stood for ends.
func (c *call) resume(m *mcp.Message) *mcp.Fault {
	name, f := m.Handle()
	if f == nil && name == "" {
		c.unasked, f = m.Unasked()
	}
	if f != nil || name == "" {
		return f
	}
	s := c.s
	s.b.mu.Lock()
	h := s.handles[name]
	s.dropHandleLocked(name)
	s.b.mu.Unlock()
	if h == nil {
		return mcp.BadHandle()
	}
	c.resumes = h
	if h.what != c.what || h.name != c.name || h.digest != sha256.Sum256(m.Param("arguments")) {
		c.abandonQuestion()
		return mcp.BadHandle()
	}
	var missing bool
	if c.replies, missing, f = m.Replies(h.questions); f != nil {
		c.abandonQuestion()
		return f
	}
	if missing && h.held != nil {
		// A server that waits for one answer gets the one that says nothing was answered.
		c.replies[h.questions[0].Key] = mcp.Value(`{"action":"cancel"}`)
	}
	c.rounds = h.rounds + 1
	return nil
}

// abandonQuestion ends a held call whose answer will not come.
func (c *call) abandonQuestion() {
	if c.resumes == nil || c.resumes.held == nil {
		return
	}
	held := c.resumes.held
	c.s.b.mu.Lock()
	taken := held.heir != nil
	c.s.b.mu.Unlock()
	if !taken {
		held.stop("its question was not answered", refusal.CallCancelled, nil)
	}
}

// goOn gives the held call's server its answer; c hears how the call ends.
func (c *call) goOn(held *call) {
	c.s.b.mu.Lock()
	held.question, held.handle = nil, ""
	line := c.line
	c.s.b.mu.Unlock()
	if !c.in.srv.Heir(c.number, c) {
		c.Answer(nil, 0, upstream.ErrExited)
		return
	}
	c.tellAlive(false)
	c.in.srv.Reply(line)
	c.stopIfLate()
}

// askedBy is a legacy server's elicitation/create. It does not say for which call, so it
// is passed on only where there is one call that it can be for.
func (b *Bridge) askedBy(in *instance, a *mcp.Answer) (bool, string) {
	flights, sure := in.srv.Flights()
	if len(flights) != 1 || !sure {
		b.yield(flights)
		return false, "with more calls than one in flight, or none, nobody can tell whose user is asked"
	}
	c := flights[0].(*call)
	params, err := mcp.ReadQuestion(bytes.Clone(a.Params))
	if err != nil {
		return false, err.Error()
	}
	q := mcp.Question{Key: "question", Params: params}
	id := bytes.Clone(a.ID)
	b.mu.Lock()
	able := c.elicits && c.phase == running && !c.gone && c.handle == "" && c.done == nil && !c.s.askingLocked(c)
	often := c.rounds >= MaxHeldRounds
	able = able && !often
	var name string
	if able && c.peer.Modern {
		h := &handle{first: c.firstLocked(), what: c.what, name: c.name, digest: c.digest, questions: []mcp.Question{q}, held: c, asked: id, rounds: c.rounds}
		name = c.s.newHandleLocked(h)
		c.handle = name
		if name != "" {
			c.question = id
		}
	} else if able {
		c.rounds++
		name = c.s.newAskLocked(&asks{c: c, held: true, reply: func(v mcp.Value) {
			c.tellAlive(false)
			in.srv.Reply(mcp.AppendResponse(nil, id, v))
		}})
	}
	b.mu.Unlock()
	switch {
	case often:
		return false, "it has asked as often as one call may"
	case !able:
		return false, "the runtime of this call cannot ask its user now"
	case name == "":
		return false, "too many questions are open"
	case c.peer.Modern:
		if !c.settle() {
			return true, "" // it was cancelled, and its server is told
		}
		c.tellAlive(true)
		c.s.send(c.peer.AppendInputRequired(nil, c.id, []mcp.Question{q}, name, c.name))
	default:
		c.tellAlive(true)
		c.s.send(mcp.AppendQuestion(nil, name, q, c.name))
	}
	return true, ""
}

// yield ends the questions that a legacy server has open for longer than AskYield. It
// wants to ask about another call, and as long as one waits nobody can tell whom: without
// this, a user who does not answer would keep everybody else from being asked.
func (b *Bridge) yield(flights []upstream.Call) {
	now := time.Now()
	var handles, others []*call
	b.mu.Lock()
	for _, f := range flights {
		c, ok := f.(*call)
		if !ok {
			continue
		}
		if h := c.s.handles[c.handle]; h != nil && now.Sub(h.since) >= AskYield {
			handles = append(handles, c)
		}
		for _, a := range c.s.asks {
			if a.c == c && a.held && now.Sub(a.since) >= AskYield {
				others = append(others, c)
			}
		}
	}
	b.mu.Unlock()
	for _, c := range handles {
		c.stop("its question was not answered while others waited", refusal.CallCancelled, nil)
	}
	for _, c := range others { // its server goes on with the answer that there is none
		c.s.dropAsks(c)
	}
}

// firstLocked is the call with which the chain began.
func (c *call) firstLocked() ids.Call {
	for c.prev != nil {
		c = c.prev
	}
	if c.resumes != nil {
		return c.resumes.first
	}
	return c.call
}

// goesOn handles an answer of a modern server that asks the user. It tells false for
// every other one.
func (c *call) goesOn(a *mcp.Answer, size int) bool {
	if !c.in.srv.Peer().Modern || c.what.method == mcp.MethodComplete { // nothing is asked about a completion
		return false
	}
	qs, state, is, err := a.InputRequired()
	if !is || err != nil || (len(qs) > 0 && !c.elicits) || c.rounds >= MaxRounds || c.done != nil || (!c.peer.Modern && c.source == nil) {
		return false // which is refused, as it promises what cannot be kept
	}
	b := c.s.b
	h := &handle{what: c.what, name: c.name, digest: c.digest, questions: cloned(qs), state: bytes.Clone(state), rounds: c.rounds}
	b.mu.Lock()
	if c.phase != running || c.gone {
		b.mu.Unlock()
		return false
	}
	h.first, h.source = c.firstLocked(), c.source
	var name string
	if c.peer.Modern {
		if name = c.s.newHandleLocked(h); name == "" {
			b.mu.Unlock()
			return false
		}
	}
	before := c.overLocked()
	end := wire.Ended{Call: c.call, Outcome: wire.Completed, Size: int64(size), Micros: time.Since(c.started).Microseconds()}
	b.mu.Unlock()
	if c.peer.Modern {
		if c.settle() {
			end.Returned = c.s.send(c.peer.AppendInputRequired(nil, c.id, h.questions, name, c.name))
		}
		b.tellEnded(end, before, false)
		return true
	}
	b.tellEnded(end, before, false)
	c.askHere(h)
	return true
}

func cloned(qs []mcp.Question) []mcp.Question {
	out := make([]mcp.Question, len(qs))
	for i, q := range qs {
		out[i].Key = q.Key
		for _, p := range q.Params {
			out[i].Params = append(out[i].Params, mcp.Member{Name: p.Name, Value: bytes.Clone(p.Value)})
		}
	}
	return out
}

// askHere asks a legacy runtime what a modern server wants to know, and then makes the
// call again: another call, under the runtime's one request.
func (c *call) askHere(h *handle) {
	b := c.s.b
	next := &call{s: c.s, live: c.live, key: c.key, id: c.id, token: c.token, what: c.what, name: c.name, peer: c.peer, elicits: c.elicits,
		resumes: h, replies: map[string]mcp.Value{}, rounds: c.rounds + 1}
	source := h.source
	again := func() { b.run.Go(func() { next.beginSlowly(source) }) }
	type sending struct {
		id string
		q  mcp.Question
	}
	var all []sending
	b.mu.Lock()
	c.live.call = next
	left, failed := len(h.questions), c.s.ended
	for _, q := range h.questions {
		id := c.s.newAskLocked(&asks{c: next, reply: func(v mcp.Value) {
			b.mu.Lock()
			next.replies[q.Key] = v
			left--
			last := left == 0 && !next.gone && next.phase == waiting
			b.mu.Unlock()
			if last {
				next.timer.Stop()
				again()
			}
		}})
		failed = failed || id == ""
		all = append(all, sending{id, q})
	}
	next.timer = time.AfterFunc(AskWait, func() {
		b.mu.Lock()
		late := left > 0 && next.phase == waiting && !next.gone
		b.mu.Unlock()
		if late {
			next.refuse(refusal.CallTimeout, true)
			c.s.dropAsks(next)
		}
	})
	b.mu.Unlock()
	switch {
	case failed:
		next.timer.Stop()
		c.s.dropAsks(next)
		next.refuse(refusal.LimitCalls, true)
	case len(all) == 0: // it only wants its state back
		next.timer.Stop()
		again()
	}
	if failed {
		return
	}
	for _, q := range all {
		c.s.send(mcp.AppendQuestion(nil, q.id, q.q, c.name))
	}
}

// asks is one request of ours to a legacy runtime.
type asks struct {
	c     *call
	held  bool // a server waits for the answer
	since time.Time
	reply func(mcp.Value) // called once at most, without a lock
}

func (s *session) newAskLocked(a *asks) string {
	if s.ended || len(s.handles)+len(s.asks) >= MaxOpenQuestions {
		return ""
	}
	s.asked++
	id := "postern-" + strconv.FormatUint(s.asked, 10)
	a.since = time.Now()
	s.asks[id] = a
	return id
}

func (s *session) askingLocked(c *call) bool {
	for _, a := range s.asks {
		if a.c == c {
			return true
		}
	}
	return false
}

// answer takes a legacy runtime's response to a question. One to nothing is dropped.
func (s *session) answer(m *mcp.Message) {
	id, ok := mcp.IDString(m.ID)
	if !ok {
		return
	}
	s.b.mu.Lock()
	a := s.asks[id]
	delete(s.asks, id)
	s.b.mu.Unlock()
	if a != nil {
		a.reply(mcp.Reply(m.Result)) // an error counts as a question that was cancelled
	}
}

// dropAsks ends the questions of a call that is over: nobody will be told the answers.
func (s *session) dropAsks(c *call) {
	s.b.mu.Lock()
	var left []*asks
	for id, a := range s.asks {
		if a.c == c {
			left = append(left, a)
			delete(s.asks, id)
		}
	}
	s.b.mu.Unlock()
	for _, a := range left {
		if a.held {
			a.reply(mcp.Value(`{"action":"cancel"}`))
		}
	}
}
