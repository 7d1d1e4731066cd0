package gate

import (
	"cmp"
	"fmt"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/registry"
)

// Seen is what became of a call's path arguments. The zero value: nobody was asked yet.
type Seen struct {
	Asked  bool
	Inside bool
	Code   refusal.Code // why they could not be judged, "" where they were
	Which  int          // the first that does not lie inside
	Why    string       // it does not, in posternd's words, which name nothing that was found
}

// Ask is a question about paths that has to be answered before a call is decided: do
// they lie beneath the project's directory, or the task's own where Task is set?
type Ask struct {
	Project ids.Project
	Task    ids.Task
	Paths   []string
	OfHost  bool // a runtime's own, which sees the directory where it is
}

// paths judges the path arguments of a call whose other factors are in g.facts. It
// returns a question where every other rule allows the call and nobody has been asked;
// so what is refused anyway, and what has no paths, costs nothing.
func (g *Gate) paths(s *session, k *registry.Tool, tool string, p *wire.Paths, seen Seen) *Ask {
	takes := class.ArgumentsOf(tool)
	if takes.None() {
		return nil
	}
	switch {
	case p == nil || p.Unreadable || len(p.List) < takes.Least:
		g.facts.Paths = policy.PathsOutside
		return nil
	case len(p.List) == 0:
		return nil
	}
	return g.look(seen, func() *Ask {
		ask := &Ask{Project: s.set.Project, Paths: p.List}
		if k.Revision.PerTask {
			ask.Task = s.task.ID
		}
		return ask
	})
}

// look takes what was found of paths into g.facts, or asks for a look where nobody was
// asked and everything else allows.
func (g *Gate) look(seen Seen, ask func() *Ask) *Ask {
	switch {
	case !seen.Asked:
		if policy.Decide(&g.facts).Allow {
			return ask()
		}
	case seen.Code == refusal.ProjectReplaced:
		g.facts.Project = policy.ProjectReplaced
	case seen.Code != "": // verdict says it
	case !seen.Inside:
		g.facts.Paths = policy.PathsOutside
	}
	return nil
}

// verdict decides on g.facts. Paths that nobody could judge deny.
func (g *Gate) verdict(seen Seen) policy.Verdict {
	v := policy.Decide(&g.facts)
	if v.Allow && seen.Code != "" {
		v = policy.Verdict{Code: seen.Code}
	}
	return v
}

// pathReason says for a record which path argument a call was refused for: its place
// among those of the call, the name it stood under, and whether it is missing or lies
// outside. No value is in it, for whoever may read the record may not have seen the call.
func pathReason(tool string, p *wire.Paths, seen Seen) string {
	takes := class.ArgumentsOf(tool)
	switch {
	case p == nil:
		return "its path arguments were not told"
	case p.Unreadable:
		return "a path argument is no path, or there are more or longer ones than may be"
	case len(p.List) < takes.Least:
		return fmt.Sprintf("%d path arguments, and the tool needs %d: it is missing", len(p.List), takes.Least)
	case !seen.Asked || seen.Which < 0 || seen.Which >= len(p.List):
		return ""
	}
	under := ""
	if i := seen.Which; i < len(p.Under) && int(p.Under[i]) < len(takes.Names) {
		under = " (" + takes.Names[p.Under[i]] + ")"
	}
	return activity.Clean(fmt.Sprintf("path argument %d of %d%s: %s", seen.Which+1, len(p.List), under, cmp.Or(seen.Why, "it lies outside")), activity.MaxReason)
}

// pathArgs says which arguments of a tool the bridge is to send along, nil for none.
func pathArgs(tool string) *wire.PathArgs {
	if p := class.ArgumentsOf(tool); !p.None() {
		return &wire.PathArgs{Names: p.Names}
	}
	return nil
}
