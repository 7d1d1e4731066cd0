package bridge

import (
	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/refusal"
)

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
		b.gathered = append(b.gathered, c)
		if err := c.in.srv.Gather(c.number, c.line, c); err != nil {
			c.unsent(err)
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

// unsent ends a call that its server did not take.
func (c *call) unsent(err error) {
	if err != upstream.ErrBusy {
		c.s.b.dropped(c.in)
	}
	c.Answer(nil, 0, err)
}

// flush sends the calls that were gathered. It belongs to the authority's reader.
func (b *Bridge) flush() {
	for _, c := range b.gathered {
		if err := c.in.srv.Flush(); err != nil && c.in.srv.Forget(c.number) {
			c.unsent(err)
		}
	}
	clear(b.gathered)
	b.gathered = b.gathered[:0]
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
