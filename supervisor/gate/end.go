package gate

import (
	"fmt"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
)

// Ended takes a bridge's word for how one of its calls ended. A call of another
// set is a broken protocol; one that has its outcome already is not an error,
// because the authority may have given it up meanwhile.
func (g *Gate) Ended(set Set, m wire.Ended) error {
	c := g.open[m.Call]
	if c == nil {
		return nil
	}
	if c.set != set {
		return fmt.Errorf("call %s is another bridge's", m.Call)
	}
	o := store.Outcome{State: stateOf(m.Outcome), At: g.now().UnixNano(), Size: m.Size, Micros: m.Micros, Code: m.Code}
	if m.Code == refusal.ServerExited {
		g.endWith(c, c.jail, o)
		return nil
	}
	g.owes(c, m.Artifacts)
	g.end(c, o)
	return nil
}

// Alive takes a bridge's word that a call makes progress, or that its server waits for
// the runtime's user: its limit begins again, or it has as long as a user may take.
func (g *Gate) Alive(set Set, m wire.Alive) error {
	c := g.open[m.Call]
	if c == nil {
		return nil
	}
	if c.set != set {
		return fmt.Errorf("call %s is another bridge's", m.Call)
	}
	wait := c.limit
	if m.Waits {
		wait = max(wait, UserWait)
	}
	if c.warned { // it was told to end already
		return nil
	}
	if c.deadline = g.now().Add(wait); c.deadline.After(c.most) {
		c.deadline = c.most
	}
	return nil
}

func (g *Gate) end(c *call, o store.Outcome) {
	g.ledger.End(c.rec.Seq, o)
	g.counts.Ended[o.State]++
	g.forget(c)
}

// Abandon ends a call as unknown.
func (g *Gate) Abandon(id ids.Call, code refusal.Code) {
	if c := g.open[id]; c != nil {
		g.end(c, store.Outcome{State: store.Unknown, At: g.now().UnixNano(), Code: code})
	}
}

// SetEnded ends every open call of a bridge that is gone as unknown. jail is the
// bridge's, where how it ended is still to be told; "" where it never ran.
func (g *Gate) SetEnded(set Set, code refusal.Code, jail ids.Jail) {
	delete(g.sets, set)
	g.forgive(set)
	for _, c := range g.open {
		if c.set == set {
			g.endWith(c, jail, store.Outcome{State: store.Unknown, At: g.now().UnixNano(), Code: code})
		}
	}
}

// Late is a call past its deadline.
type Late struct {
	Set      Set
	Call     ids.Call
	Place    Place
	Deadline time.Time
	First    bool // it was not told before
}

// Late lists the calls past their deadline.
func (g *Gate) Late(now time.Time) []Late {
	var out []Late
	for id, c := range g.open {
		if now.Before(c.deadline) {
			continue
		}
		out = append(out, Late{Set: c.set, Call: id, Place: c.place, Deadline: c.deadline, First: !c.warned})
		c.warned = true
	}
	return out
}

// CloseSession ends a session at once and gives its open calls up as unknown.
func (g *Gate) CloseSession(id ids.Session) {
	for cid, c := range g.open {
		if c.session.id == id {
			g.Abandon(cid, refusal.SessionEnded)
		}
	}
	g.SessionEnded(id, "closed for a fresh token")
}
