package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"postern/ids"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

// MaxNamed bounds the tools that an ambiguous name is answered with.
const MaxNamed = 16

// asked finds for whom a question is asked: a task that the peer may see, or who a
// principal of a project of theirs would be. It runs on the loop.
func (a *actions) asked(w Who, p api.AskerParams) (*registry.Task, registry.RootProject, error) {
	var none registry.RootProject
	switch {
	case p.Task != "" && (p.Project != "" || p.Principal != "" || p.Mode != ""):
		return nil, none, api.Refuse(refusal.BadRequest, "A task has its project, principal and mode; name it alone.")
	case p.Task != "":
		t, err := a.seenTask(w, p.Task)
		if err != nil {
			return nil, none, err
		}
		proj, _ := a.reg.Project(t.Project)
		return t, proj, nil
	case p.Project == "":
		return nil, none, api.Refuse(refusal.BadRequest, "Name a task, or a project and a principal.")
	}
	proj, err := a.pickProject(w, p.Project)
	if err != nil {
		return nil, none, err
	}
	p.Principal = a.principalFor(w, proj, p.Principal)
	modes := a.reg.Root().Access.Modes()
	if p.Mode != "" && !modes.Known(p.Mode) {
		return nil, none, api.Refuse(refusal.ModeUnknown, "%q; there are %s.", p.Mode, strings.Join(modes.Names(), ", "))
	}
	t := a.Gate.Suppose(proj, p.Principal, p.Mode)
	if t.Mode == "" { // as a task made without one
		t.Mode = a.Gate.Resolved(t).Floor.Mode
	}
	return t, proj, nil
}

// principalFor is who is asked about: whoever asks, where they connect to the project
// themselves, else the project's owner. Root may name an account in place of its id.
func (a *actions) principalFor(w Who, proj registry.RootProject, named string) string {
	if named == "" {
		acc := a.account(w).ID
		if role := a.reg.Role(acc, proj.ID); !w.Root && (role == registry.Owner || role == registry.Member) {
			return access.Local(acc)
		}
		return access.Local(proj.Owner)
	}
	if name, local := strings.CutPrefix(named, access.Channel+":"); local && w.Root {
		if acc, err := a.pickAccount(name); err == nil {
			return access.Local(acc.ID)
		}
	}
	return named
}

func askerResult(t *registry.Task, p registry.RootProject) api.AskerResult {
	return api.AskerResult{Task: string(t.ID), Account: string(t.Account), Host: t.Host, Project: string(t.Project), ProjectLabel: p.Label, Principal: t.Principal, Mode: t.Mode}
}

// health is what is known of a connection's server beside the rules, on the loop.
func (a *actions) health(c *registry.Connected) gate.Health {
	h := gate.Health{Down: a.Workers.Down(c.Project, c.ID), Held: a.Workers.Held(c.Project, c.ID)}
	if cat := a.reg.Catalogue(c.Accepted); cat != nil {
		h.Probed, h.Failed = true, cat.Error
	}
	return h
}

// explain answers whether a call could be made now, and every rule's reason. It calls
// nothing, starts nothing and records nothing.
func (a *actions) explain(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ExplainParams](c)
	if err != nil {
		return nil, err
	}
	if p.Tool == "" || len(p.Tool) > api.MaxSelector {
		return nil, api.Refuse(refusal.BadRequest, "Name one tool: as connection.tool, as it is served, or by its own name.")
	}
	replaced, err := a.replaced(ctx, c.Who, p.AskerParams)
	if err != nil {
		return nil, err
	}
	var out api.ExplainResult
	err = a.do(ctx, func() error {
		t, proj, err := a.asked(c.Who, p.AskerParams)
		if err != nil {
			return err
		}
		n := gate.Named{Tool: p.Tool, Served: p.Tool}
		found := a.Gate.Find(t, p.Tool)
		if _, _, native := class.OfNative(p.Tool); native && len(found) == 0 {
			e := a.Gate.ExplainNative(t, p.Tool)
			out = explained(&e, gate.StandingOf(&e, gate.Health{}))
			out.AskerResult, out.Native, out.Facts = askerResult(t, proj), true, a.reg.Root().Version
			return nil
		}
		switch len(found) {
		case 0: // a name of nobody's is explained like any other
		case 1:
			n = found[0]
		default:
			return api.Refuse(refusal.StaleSelector, "%q is several tools: %s.", p.Tool, namedList(found))
		}
		var h gate.Health
		if con := a.reg.View(proj.ID).Connections[n.Connection]; con != nil {
			h = a.health(con)
		}
		h.Replaced = replaced
		e := a.Gate.Explain(t, n, h)
		out = explained(&e, gate.StandingOf(&e, h))
		out.AskerResult, out.Server, out.Facts = askerResult(t, proj), n.Label, a.reg.Root().Version
		return nil
	})
	return out, err
}

// replaced asks posternd whether the project's directory is still the registered one: it
// is the reason for which a server does not start, and not that it is held back since.
// Where posternd does not answer in time, nothing is known.
func (a *actions) replaced(ctx context.Context, who Who, p api.AskerParams) (bool, error) {
	var project ids.Project
	if err := a.do(ctx, func() error {
		_, proj, err := a.asked(who, p)
		project = proj.ID
		return err
	}); err != nil {
		return false, err
	}
	seen, err := a.Workers.Look(ctx, &gate.Ask{Project: project})
	return seen.Code == refusal.ProjectReplaced, err
}

func namedList(found []gate.Named) string {
	var out []string
	for _, n := range found[:min(len(found), MaxNamed)] {
		out = append(out, fmt.Sprintf("%q", n.Label+"."+n.Tool))
	}
	return strings.Join(out, ", ")
}

func explained(e *gate.Explained, s gate.Standing) api.ExplainResult {
	out := api.ExplainResult{Tool: e.Tool, Served: e.Served, Connection: string(e.Connection), Allowed: e.Verdict.Allow, State: string(s.State), Reason: s.Reason, Rules: []api.RuleResult{}}
	if !e.Verdict.Allow {
		out.Code, out.Sentence, out.Advice, out.Help = tableWords(e.Verdict.Code)
	}
	for _, r := range e.Reasons {
		out.Rules = append(out.Rules, ruleResult(r))
	}
	return out
}

func ruleResult(r gate.Reason) api.RuleResult {
	row := api.RuleResult{Rule: r.Rule, Answer: "passes", Read: r.Read, From: r.From}
	switch {
	case !r.Asked:
		row.Answer = "not asked"
	case r.Code != "":
		row.Answer = "denies"
		row.Code, row.Sentence, _, _ = tableWords(r.Code)
	}
	return row
}

// tableWords are the table's for a code.
func tableWords(c refusal.Code) (code, sentence, advice, help string) {
	row := refusal.Of(c)
	return string(row.Code), row.Sentence, row.Code.Advice(), row.Code.Help()
}

// capabilities lists what a task, or a principal, has and has not, each with its
// state. Whatever is known is in it, and so is a server that nobody connected.
func (a *actions) capabilities(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.CapabilitiesParams](c)
	if err != nil {
		return nil, err
	}
	out := api.CapabilitiesResult{Rows: []api.CapabilityRow{}}
	err = a.do(ctx, func() error {
		t, proj, err := a.asked(c.Who, p.AskerParams)
		if err != nil {
			return err
		}
		out.AskerResult = askerResult(t, proj)
		listed := map[string]bool{}
		for _, n := range a.Gate.Tools(t) {
			con := a.reg.View(proj.ID).Connections[n.Connection]
			h := a.health(con)
			e := a.Gate.Explain(t, n, h)
			out.Rows = append(out.Rows, capabilityRow(n, &e, gate.StandingOf(&e, h)))
			listed[string(n.Connection)] = true
		}
		for _, con := range a.reg.View(proj.ID).Connections {
			if !listed[string(con.ID)] {
				out.Rows = append(out.Rows, a.bareRow(con))
			}
		}
		if a.role(c.Who, proj.ID) != "" { // whoever may look at catalogues sees what could be connected
			out.Rows = append(out.Rows, a.unconnected(proj)...)
		}
		if p.Native {
			for _, n := range class.Natives() {
				e := a.Gate.ExplainNative(t, n.Name)
				row := capabilityRow(gate.Named{Tool: n.Name}, &e, gate.StandingOf(&e, gate.Health{}))
				row.Kind, row.Runtimes = "native", n.Runtimes
				out.Rows = append(out.Rows, row)
			}
		}
		return nil
	})
	sortBy(out.Rows, func(r api.CapabilityRow) string {
		return r.Server + "\x00" + r.Kind + "\x00" + r.Tool + "\x00" + r.Connection
	})
	return out, err
}

func capabilityRow(n gate.Named, e *gate.Explained, s gate.Standing) api.CapabilityRow {
	return api.CapabilityRow{Kind: kindOf(n.Tool), Server: n.Label, Connection: string(n.Connection), Tool: n.Tool, Served: n.Served, State: string(s.State), Code: string(s.Code), Reason: reasonOf(s),
		Classes: e.Known.Classes.Strings(), ClassesBy: e.Known.Source.String(), Tier: e.Known.Tier.String()}
}

// reasonOf is never empty where something is amiss.
func reasonOf(s gate.Standing) string {
	if s.Code == "" || s.Reason != "" {
		return s.Reason
	}
	return refusal.Of(s.Code).Sentence
}

// bareRow is a connection of whose server no tool is known.
func (a *actions) bareRow(con *registry.Connected) api.CapabilityRow {
	row := api.CapabilityRow{Kind: "server", Server: a.reg.Root().Servers[con.Server].Label, Connection: string(con.ID)}
	s := gate.BareStanding(a.health(con))
	row.State, row.Code, row.Reason = string(s.State), string(s.Code), reasonOf(s)
	return row
}

// unconnected lists the servers that the project has no connection to.
func (a *actions) unconnected(p registry.RootProject) []api.CapabilityRow {
	var out []api.CapabilityRow
	by := a.reg.View(p.ID).ByServer
	servers := a.reg.Root().Servers
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		if srv := servers[id]; !srv.Deleted && by[id] == "" {
			out = append(out, api.CapabilityRow{Kind: "server", Server: srv.Label, State: string(gate.NotConfigured), Reason: "this project has no connection to it"})
		}
	}
	return out
}
