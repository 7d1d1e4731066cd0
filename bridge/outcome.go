package bridge

import (
	"time"

	"postern/bridge/mcp"
	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

var _ upstream.Call = (*call)(nil)

// Progress passes a server's progress to the runtime, if it asked for any and has no
// answer yet: after the answer, runtimes close the session over it. Such a call has its
// limit once more.
func (c *call) Progress(members []mcp.Member) {
	if c.token == nil {
		return
	}
	c.tellAlive(false)
	line := c.peer.AppendProgress(nil, c.token, members)
	_ = c.s.out.SendIdly(line, func() bool { return !c.live.answered.Load() }) // the answer tells
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
			end.Returned = c.s.gather(c.peer.AppendAnswer(make([]byte, 0, size+256), c.id, a), c.in)
			if !end.Returned {
				c.s.send(c.refusal(refusal.ServerAnswer)) // it is done, and must not be repeated
			}
		}
	case gone && end.Outcome == wire.Failed: // its acknowledgement of the cancellation
		end.Outcome, end.Code, end.Returned = wire.Cancelled, code, returned
	}
	end.Micros = time.Since(c.started).Microseconds()
	var kept []upload
	if err == nil && end.Code == "" && c.done == nil {
		kept = b.attachments(call, a)
		end.Artifacts = len(kept)
	}
	b.tellEnded(end, before, err == nil) // an answer comes from a reader, which flushes when nothing more comes
	b.upload(kept)                       // each piece goes behind what was gathered
}

// overLocked gives back what the call held, and what the calls held that it goes on
// with. It returns those, which end as this one does. It may be called once.
func (c *call) overLocked() (before []ids.Call) {
	c.phase = over
	c.s.held -= c.size()
	c.s.b.held -= c.size()
	if c.in != nil {
		if c.in.calls--; c.in.spentLocked() {
			go c.in.srv.Close() // may wait for a stuck write
		}
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

// tellEnded reports how a call ended, and with it those that it went on with. With soon
// it goes with whatever is told next, which is mostly the next call's Admit: whoever
// says soon flushes the link before it waits long.
func (b *Bridge) tellEnded(end wire.Ended, before []ids.Call, soon bool) {
	_ = b.link.gather(end)
	end.Artifacts = 0 // the result is the last call's
	for _, id := range before {
		end.Call = id
		_ = b.link.gather(end)
	}
	if !soon {
		b.link.flush()
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
	b.tellEnded(end, before, false)
}
