package control

import (
	"context"

	"postern/ids"
	"postern/item"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

// grantNotice stands at every grant.
const grantNotice = "A tool is granted with any argument: the jail bounds what it reaches, and of known filesystem operations the paths are judged."

// readiness says whether a connection can serve calls, with the reason beside it.
func (a *actions) readiness(c *registry.Connected) (state, reason string) {
	srv := a.reg.Root().Servers[c.Server]
	cat := a.reg.Catalogue(c.Accepted)
	rev := srv.Revisions[c.Accepted]
	switch {
	case srv.Deleted:
		return "revoked", "the server's registration is deleted"
	case !c.Enabled:
		return "revoked", "the connection is disabled"
	case srv.Current != c.Accepted:
		return "stale_revision", "the registration has a newer revision that is not accepted"
	case rev != nil && rev.Required && c.Credential == registry.Keyless:
		return "unavailable", "the server needs a credential, and the connection is keyless"
	case rev != nil && rev.Required && a.reg.Assigned(c.Project, c.Server) == registry.Credential{}:
		return "unavailable", "no credential is assigned"
	case cat == nil:
		return "configured", "the server has not been probed yet"
	case cat.Error != "":
		return "unavailable", "the last probe failed: " + cat.Error
	case len(c.Grants) == 0:
		return "configured", "no tool is granted"
	}
	if why := a.Workers.Down(c.Project, c.ID); why != "" {
		return "unavailable", "the server cannot be called: " + why
	}
	return "ready", ""
}

// credentialState is all that anyone but root learns of a credential; nothing of one that
// is not needed.
func (a *actions) credentialState(p ids.Project, s ids.Server, mode string) string {
	switch {
	case mode == registry.Keyless:
		return ""
	case a.reg.Assigned(p, s) == registry.Credential{}:
		return "missing"
	}
	return "assigned"
}

func (a *actions) connectionResult(p registry.RootProject, c *registry.Connected, tools bool) api.ConnectionResult {
	srv := a.reg.Root().Servers[c.Server]
	r := api.ConnectionResult{Connection: string(c.ID), Project: string(c.Project), Server: string(c.Server), Label: srv.Label, Enabled: c.Enabled,
		Credential: c.Credential, CredentialState: a.credentialState(c.Project, c.Server, c.Credential), Accepted: string(c.Accepted), Current: string(srv.Current), Version: c.Version}
	r.Readiness, r.Reason = a.readiness(c)
	if !tools {
		return r
	}
	seen := map[string]bool{}
	if cat := a.reg.Catalogue(c.Accepted); cat != nil {
		for _, name := range cat.Order {
			seen[name] = true
			r.Tools = append(r.Tools, a.toolResult(p.ID, c, name))
		}
	}
	rest := len(r.Tools)
	for name := range c.Grants {
		if !seen[name] {
			r.Tools = append(r.Tools, a.toolResult(p.ID, c, name))
		}
	}
	sortBy(r.Tools[rest:], func(t api.ToolResult) string { return t.Tool })
	shorten(r.Tools)
	return r
}

// kindOf names the kind of what is not a tool.
func kindOf(key string) string {
	if kind, _ := item.Split(key); kind != item.Tool {
		return kind.String()
	}
	return ""
}

// toolResult asks the gate about a tool as a task of the project with no ceiling would.
func (a *actions) toolResult(p ids.Project, c *registry.Connected, name string) api.ToolResult {
	k, _ := a.reg.Tool(p, c.ID, name)
	out := api.ToolResult{Tool: name, Kind: kindOf(name), Granted: k.Grant != nil, Classes: k.Classes.Strings(), ClassSource: k.Source.String(), Tier: k.Tier.String()}
	if k.Grant != nil && out.Kind != item.Resource.String() {
		out.Served = k.Grant.Served
	}
	if k.Pin != nil {
		out.Title, out.Description = gate.Describe(k.Pin.Raw)
		out.Pin = pinText(k.Pin)
		if k.Pin.Quarantine != "" {
			out.State, out.Reason = string(gate.Unhealthy), k.Pin.Quarantine
			return out
		}
	}
	e := gate.Explained{Verdict: a.Gate.Standing(p, c.ID, name), Known: k}
	s := gate.StandingOf(&e, a.health(c))
	out.State, out.Reason = string(s.State), string(s.Code)
	return out
}

func (a *actions) connectionAdd(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	var out api.ConnectionResult
	id := ids.New[ids.Connection](a.Now(), random())
	err = a.widen(ctx, c, func() (registry.Change, ids.Project, error) {
		proj, err := a.pickProject(c.Who, p.Project)
		if err != nil {
			return registry.Change{}, "", err
		}
		srv, err := a.pickServer(p.Server)
		if err != nil {
			return registry.Change{}, "", err
		}
		mode := a.reg.Mode(srv.ID)
		out = api.ConnectionResult{Connection: string(id), Project: string(proj.ID), Server: string(srv.ID), Label: srv.Label, Enabled: true,
			Credential: mode, CredentialState: a.credentialState(proj.ID, srv.ID, mode), Accepted: string(srv.Current), Current: string(srv.Current), Readiness: "configured", Reason: "no tool is granted", Version: 1, Notice: grantNotice}
		ch, err := a.reg.AddConnection(id, proj.ID, srv.ID, mode, a.Now())
		return ch, proj.ID, err
	})
	return out, err
}

func (a *actions) connectionList(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ListParams](c)
	if err != nil {
		return nil, err
	}
	var rows []api.ConnectionResult
	err = a.do(ctx, func() error {
		proj, err := a.pickProject(c.Who, p.Project)
		if err != nil {
			return err
		}
		for _, con := range a.reg.View(proj.ID).Connections {
			rows = append(rows, a.connectionResult(proj, con, false))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out api.ConnectionListResult
	out.Connections, out.Next, err = api.Paged(rows, p.After, func(r api.ConnectionResult) string { return r.Connection })
	return out, err
}

func (a *actions) connectionShow(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	return a.shown(ctx, c, p)
}

// shown is a connection as it stands now.
func (a *actions) shown(ctx context.Context, c *Call, p api.ConnectionParams) (api.ConnectionResult, error) {
	var out api.ConnectionResult
	var differ []changed
	err := a.do(ctx, func() error {
		proj, con, err := a.pickConnection(c.Who, p)
		if err == nil {
			out = a.connectionResult(proj, con, true)
			differ = a.changes(con)
		}
		return err
	})
	out.Changes = described(differ)
	return out, err
}

// change runs one widening change of a connection and shows what came of it.
func (a *actions) change(ctx context.Context, c *Call, p api.ConnectionParams, notice string, make func(*registry.Connected) (registry.Change, error)) (any, error) {
	if err := a.widen(ctx, c, func() (registry.Change, ids.Project, error) {
		proj, con, err := a.pickConnection(c.Who, p)
		if err != nil {
			return registry.Change{}, "", err
		}
		ch, err := make(con)
		return ch, proj.ID, err
	}); err != nil {
		return nil, err
	}
	out, err := a.shown(ctx, c, p)
	if c.Req.DryRun {
		notice = "Nothing was changed: this was a dry run. " + notice
	}
	out.Notice = notice
	return out, err
}

func (a *actions) connectionGrant(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	tier := class.Unmarked
	if p.Tier != "" {
		var ok bool
		if tier, ok = class.ParseTier(p.Tier); !ok {
			return nil, api.Refuse(refusal.BadRequest, "A tier is observe, reversible or destructive, not %q.", p.Tier)
		}
	}
	if len(p.Tools)+len(p.Prompts)+len(p.Resources) > registry.MaxTools {
		return nil, api.Refuse(refusal.BadRequest, "A grant names at most %d tools, prompts and resource prefixes.", registry.MaxTools)
	}
	items := p.Items()
	gs := make([]ids.Grant, len(items))
	for i := range gs {
		gs[i] = ids.New[ids.Grant](a.Now(), random())
	}
	return a.change(ctx, c, p, grantNotice, func(con *registry.Connected) (registry.Change, error) {
		return a.reg.Grant(registry.Granting{Connection: con.ID, Tools: items, Tier: tier, By: by(c.Who, a.account(c.Who)), At: c.Req.At, IDs: gs, Now: a.Now()})
	})
}

func (a *actions) connectionAccept(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	var was []changed
	out, err := a.change(ctx, c, p, "", func(con *registry.Connected) (registry.Change, error) {
		was = a.changes(con)
		current := a.reg.Root().Servers[con.Server].Current
		if p.Revision != "" && p.Revision != string(current) {
			return registry.Change{}, api.Refuse(refusal.StaleSelector, "The server has a newer revision than was shown, %s; look at it once more.", current)
		}
		for _, ch := range was {
			if seen, looked := p.Seen[ch.Tool]; looked && seen != ch.Pin {
				return registry.Change{}, api.Refuse(refusal.StaleSelector, "%q has changed again since it was shown; look at it once more.", ch.Tool)
			}
		}
		return a.reg.Accept(con.ID, current, p.Items(), by(c.Who, a.account(c.Who)), c.Req.At, a.Now())
	})
	if r, ok := out.(api.ConnectionResult); ok {
		r.Changes = described(was)
		out = r
	}
	return out, err
}

func (a *actions) connectionEnable(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	return a.change(ctx, c, p, "", func(con *registry.Connected) (registry.Change, error) {
		return a.reg.Enable(con.ID, true, c.Req.At)
	})
}

// cut runs one narrowing change of a connection.
func (a *actions) cut(ctx context.Context, c *Call, make func(*registry.Connected, api.ConnectionParams) (registry.Change, error)) (any, error) {
	p, err := params[api.ConnectionParams](c)
	if err != nil {
		return nil, err
	}
	out, err := a.narrow(ctx, c, p.Server, func() (registry.Change, []ids.Project, error) {
		proj, con, err := a.pickConnection(c.Who, p)
		if err == nil {
			err = a.mayNarrow(c.Who, proj.ID)
		}
		if err != nil {
			return registry.Change{}, nil, err
		}
		ch, err := make(con, p)
		return ch, []ids.Project{proj.ID}, err
	})
	return out, err
}

func (a *actions) connectionRevoke(ctx context.Context, c *Call) (any, error) {
	return a.cut(ctx, c, func(con *registry.Connected, p api.ConnectionParams) (registry.Change, error) {
		return a.reg.Revoke(con.ID, p.Items(), c.Req.At)
	})
}

func (a *actions) connectionDisable(ctx context.Context, c *Call) (any, error) {
	return a.cut(ctx, c, func(con *registry.Connected, _ api.ConnectionParams) (registry.Change, error) {
		return a.reg.Enable(con.ID, false, c.Req.At)
	})
}
