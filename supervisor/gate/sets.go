package gate

import (
	"postern/ids"
	"postern/policy/access"
)

// A bridge and its tool servers serve the sessions of one ceiling of a project, so that
// one that is taken over by a narrow principal's runtime cannot act for a wider one.
//
// A ceiling can change while sessions live. Where all sessions of a set come to have
// the same new ceiling, the set takes it over and goes on: the change is notified and
// works in the live sessions. Where they part, a session whose ceiling is now narrower
// than the set's stays, held to both; one that would gain is ended with a code that
// says so, and finds the right set when it connects again. A set whose ceiling has
// changed takes no newcomers: what its servers remember is from before.
type ceilingSet struct {
	ceiling  access.Ceiling
	changed  bool
	sessions map[ids.Session]*session
}

// stride parts the numbers of sets of one ceiling that are live at the same time.
const stride = 1 << 16

// setFor names the set that a session of a ceiling joins: the live one of that ceiling
// that takes newcomers, else a new one. The number of a ceiling is the same each time,
// so that a bridge which keeps failing is recognized.
func (g *Gate) setFor(p ids.Project, c access.Ceiling) Set {
	n, ok := g.numbers[c]
	if !ok {
		n = uint64(len(g.numbers)) + 1
		g.numbers[c] = n
	}
	for ; ; n += stride {
		set := Set{p, n}
		have := g.sets[set]
		if have == nil {
			g.sets[set] = &ceilingSet{ceiling: c, sessions: map[ids.Session]*session{}}
			return set
		}
		if have.ceiling == c && !have.changed {
			return set
		}
	}
}

// regroup gives the sets the ceilings that their sessions have after the root facts
// changed. Principals the policy does not admit, or cannot judge, have none: their
// calls are refused whatever the set allows.
func (g *Gate) regroup() {
	for _, c := range g.sets {
		var now access.Ceiling
		one, some := true, false
		for _, s := range c.sessions {
			t := g.reg.Task(s.task.ID)
			if t == nil {
				continue
			}
			r := g.resolvedAs(t, s.whom(t))
			if !r.Admitted {
				continue
			}
			one = one && (!some || now == r.Ceiling)
			now, some = r.Ceiling, true
		}
		if some && one && now != c.ceiling {
			c.ceiling, c.changed = now, true
		}
	}
}

// outgrown tells whether a session's principal may now reach what its set may not.
func (g *Gate) outgrown(s *session) bool {
	c, t := g.sets[s.set], g.reg.Task(s.task.ID)
	if c == nil || t == nil {
		return false
	}
	r := g.resolvedAs(t, s.whom(t))
	return r.Admitted && !within(r.Ceiling, c.ceiling)
}

// within tells whether a ceiling surely allows nothing that the other does not.
func within(c, o access.Ceiling) bool {
	switch {
	case c == o, o.Unlimited:
		return true
	case c.Unlimited || c.Policy == nil || o.Policy == nil:
		return false
	}
	return c.Policy.Within(o.Policy)
}
