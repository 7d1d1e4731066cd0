package gate

import (
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
)

// Resolved says what the access policy makes of a task's principal now. It is asked
// again each time: the task holds who it acts for, and nothing of what that may.
func (g *Gate) Resolved(t *registry.Task) access.Resolved {
	who, err := access.ParsePrincipal(t.Principal)
	if err != nil {
		return access.Resolved{Code: refusal.PrincipalRefused}
	}
	return g.resolvedAs(t, who)
}

func (g *Gate) resolvedAs(t *registry.Task, who access.Principal) access.Resolved {
	root := g.reg.Root()
	p := root.Projects[t.Project]
	return root.Access.Resolve(who, access.Facts{Account: t.Account, Owner: p.Owner == t.Account, Profile: p.ExecutionProfile, Paired: g.reg.Paired(who)})
}

// whom reads the principal of a session's task, once. One that cannot be read is on no
// channel.
func (s *session) whom(t *registry.Task) access.Principal {
	if s.as != t.Principal {
		s.who, _ = access.ParsePrincipal(t.Principal)
		s.as = t.Principal
	}
	return s.who
}

// MayMake tells whether a task may be made as it stands: the principal is admitted,
// the mode exists and is no wider than the principal's floor. An empty mode becomes
// the floor's.
func (g *Gate) MayMake(t *registry.Task) (access.Resolved, refusal.Code) {
	r := g.Resolved(t)
	if !r.Admitted {
		return r, r.Code
	}
	modes := g.modes()
	if t.Mode == "" {
		t.Mode = r.Floor.Mode
	}
	switch {
	case !modes.Known(t.Mode):
		return r, refusal.ModeUnknown
	case !modes.Within(t.Mode, r.Floor):
		return r, refusal.ModeFloor
	}
	return r, ""
}

// compose asks the principal's ceiling and the task's mode about a tool. The set's own
// ceiling is asked too: in the bridge and the servers of one ceiling no session reaches
// more than that, whatever became of its principal since it was bound.
func (g *Gate) compose(s *session, t *registry.Task, k *registry.Tool, tool string) {
	who := s.whom(t)
	r := g.resolvedAs(t, who)
	f, label := &g.facts, k.Server.Label
	g.reach(r, t.Mode, label, tool, k.Classes)
	if c := g.sets[s.set]; f.Ceiling == policy.Allowed && c != nil && c.ceiling != r.Ceiling {
		f.Ceiling = c.ceiling.Answer(label, tool, k.Classes)
	}
	f.Apart = who.Channel == access.Channel || k.Revision != nil && (k.Revision.PerTask || !k.Revision.Writes)
}

// reach asks what a principal is now, its ceiling and a task's mode about one tool; a
// runtime's own has the server "".
func (g *Gate) reach(r access.Resolved, mode, server, tool string, has class.Set) {
	f := &g.facts
	f.Principal = policy.PrincipalOf(r.Code)
	f.Ceiling = r.Ceiling.Answer(server, tool, has)
	f.Mode = g.modes().Answer(mode, r.Floor, server, tool, has)
}

func (g *Gate) modes() policy.Modes { return g.reg.Root().Access.Modes() }

// told is the code that a runtime hears: where both the access policy and the mode
// refuse, changing either alone would not help, and it says so.
func told(v policy.Verdict) refusal.Code {
	if v.Code == refusal.AccessRefused {
		for _, c := range v.Also {
			if c == refusal.ModeRefused || c == refusal.ModeFloor {
				return refusal.AccessAndMode
			}
		}
	}
	return v.Code
}
