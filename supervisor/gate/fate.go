package gate

import (
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/store"
)

// fate is how a jail ended. The zero fate is not known.
type fate struct {
	code   refusal.Code // instead of server_exited; "" where nothing better is known
	reason string
}

// fallen are outcomes of calls that died with a jail, by that jail. A bridge sees its
// server's pipes close before posternd has heard how the jail ended, so the outcome
// waits for a moment. A crash meanwhile loses the reason and not the outcome: the call
// is open in the file, and the next start ends it as unknown.
type fallen map[ids.Jail][]fell

type fell struct {
	seq   int64
	o     store.Outcome
	until time.Time
}

func (f fallen) len() (n int) {
	for _, list := range f {
		n += len(list)
	}
	return n
}

// endWith ends a call that died with a jail: at once where it is known how that ended,
// or where nobody will tell, else with the jail's end.
func (g *Gate) endWith(c *call, jail ids.Jail, o store.Outcome) {
	switch {
	case c.fate.reason != "":
		g.end(c, c.fate.of(o))
	case jail == "", g.fallen.len() >= MaxFallen:
		g.end(c, o)
	default:
		g.fallen[jail] = append(g.fallen[jail], fell{c.rec.Seq, o, g.now().Add(FateWait)})
		g.forget(c)
	}
}

// JailEnded tells how a jail ended: the calls that died with it say so. code is for
// what is worth a code of its own, "" otherwise.
func (g *Gate) JailEnded(jail ids.Jail, code refusal.Code, reason string) {
	how := fate{code, activity.Clean(reason, activity.MaxReason)}
	for _, f := range g.fallen[jail] {
		g.ledger.End(f.seq, how.of(f.o))
	}
	delete(g.fallen, jail)
	for _, c := range g.open { // their bridge has not reported yet
		if c.jail == jail {
			c.fate = how
		}
	}
}

// TickFates writes down the outcomes whose jail nobody tells of.
func (g *Gate) TickFates(now time.Time) {
	for id, o := range g.owing {
		if now.After(o.until) {
			delete(g.owing, id)
		}
	}
	for jail, list := range g.fallen {
		for len(list) > 0 && now.After(list[0].until) {
			g.ledger.End(list[0].seq, list[0].o)
			list = list[1:]
		}
		if g.fallen[jail] = list; len(list) == 0 {
			delete(g.fallen, jail)
		}
	}
}

// Leave makes every outcome that still waits durable: the authority ends.
func (g *Gate) Leave() error {
	g.TickFates(g.now().Add(2 * FateWait))
	return g.Flush()
}

func (f fate) of(o store.Outcome) store.Outcome {
	if o.Reason = f.reason; f.code != "" && o.Code == refusal.ServerExited {
		o.Code = f.code
	}
	return o
}
