package gate

import (
	"time"

	"postern/ids"
	"postern/policy"
	"postern/refusal"
)

// Stand is a call that was admitted before a change that no longer allows it.
// What it did stands.
type Stand struct {
	Set        Set
	Call       ids.Call
	Tool       string
	Age        time.Duration
	Code       refusal.Code // why it would be refused now
	CancelSent bool
	Drains     bool // it may finish at the revision that it was admitted to
}

// Cut is a session that a change ends.
type Cut struct {
	Set     Set
	Session ids.Session
	Code    refusal.Code
}

// Reconsidered is what a change means for what is open in a project.
type Reconsidered struct {
	Calls    []Stand
	Sessions []Cut
	Off      []ids.Connection // disabled, or of a deleted server
	Gone     bool             // the project is deleted or unknown
}

// Reconsider asks the rules again about every session and every open call of a
// project. It changes nothing. A call is not among the refused ones where the only
// reason is that its server has another revision now: nobody took anything away, and
// it may finish what it was admitted to for as long as its instance has to.
func (g *Gate) Reconsider(p ids.Project) Reconsidered {
	var out Reconsidered
	now := g.now()
	for id, c := range g.open {
		if c.set.Project != p {
			continue
		}
		g.question(c.session, c.rec.Connection, c.rec.Tool, c.rec.Revision)
		g.facts.Limits, g.facts.Session = policy.WithinLimits, true
		if v := policy.Decide(&g.facts); !v.Allow && (v.Code != refusal.ServerRevisionChanged || len(v.Also) > 0) {
			out.Calls = append(out.Calls, Stand{Set: c.set, Call: id, Tool: c.rec.Tool, Age: c.age(now), Code: v.Code})
		}
	}
	for id, s := range g.sessions {
		if s.set.Project != p {
			continue
		}
		code := g.standing(g.reg.Task(s.task.ID), p)
		switch {
		case code == refusal.AccessUnavailable, code == refusal.ModeFloor, code == refusal.ModeRefused:
			// Each call is refused until the policy can be read, or has the mode again. The
			// session outlives that, for its token may be good for no second one.
			code = ""
		case code == "" && g.outgrown(s):
			code = refusal.CeilingChanged
		}
		if code != "" {
			out.Sessions = append(out.Sessions, Cut{Set: s.set, Session: id, Code: code})
		}
	}
	for id, c := range g.reg.View(p).Connections {
		srv := g.reg.Root().Servers[c.Server]
		if !c.Enabled || srv.Deleted {
			out.Off = append(out.Off, id)
		}
	}
	out.Gone = g.Gone(p)
	return out
}

// Runs tells whether a revision is the one that a connection's calls go to.
func (g *Gate) Runs(p ids.Project, conn ids.Connection, rev ids.Revision) bool {
	c := g.reg.View(p).Connections[conn]
	return c != nil && c.Accepted == rev && g.reg.Root().Servers[c.Server].Current == rev
}

// CallsOf names the open calls of one instance.
func (g *Gate) CallsOf(jail ids.Jail) (out []ids.Call) {
	for id, c := range g.open {
		if c.jail == jail {
			out = append(out, id)
		}
	}
	return out
}

// Gone tells whether a project is deleted or unknown.
func (g *Gate) Gone(p ids.Project) bool { return g.reg.ProjectStanding(p) != policy.ProjectLive }

// Using lists the calls that are open at a tool server, by its jail, whether or not the
// rules would still allow them.
func (g *Gate) Using(jail ids.Jail) []Stand {
	var out []Stand
	now := g.now()
	for id, c := range g.open {
		if jail != "" && c.jail == jail {
			out = append(out, Stand{Set: c.set, Call: id, Tool: c.rec.Tool, Age: c.age(now)})
		}
	}
	return out
}
