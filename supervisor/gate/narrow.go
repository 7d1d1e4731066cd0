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
	Stale    []ids.Connection // whose running instances are of another revision, or of a connection that is off
	Gone     bool             // the project is deleted or unknown
}

// Reconsider asks the rules again about every session and every open call of a
// project. It changes nothing.
func (g *Gate) Reconsider(p ids.Project) Reconsidered {
	var out Reconsidered
	now := g.now()
	for id, c := range g.open {
		if c.set.Project != p {
			continue
		}
		g.question(c.session, c.rec.Connection, c.rec.Tool, c.rec.Revision)
		g.facts.Limits, g.facts.Session = policy.WithinLimits, true
		if v := policy.Decide(&g.facts); !v.Allow {
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
		if !c.Enabled || srv.Deleted || srv.Current != c.Accepted {
			out.Stale = append(out.Stale, id)
		}
	}
	out.Gone = g.Gone(p)
	return out
}

// Gone tells whether a project is deleted or unknown.
func (g *Gate) Gone(p ids.Project) bool { return g.reg.ProjectStanding(p) != policy.ProjectLive }
