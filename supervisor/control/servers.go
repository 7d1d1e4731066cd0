package control

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

func pinText(p *registry.Pin) string { return hex.EncodeToString(p.Digest[:]) }

// serverProbe probes the current revision of a server and pins what it lists.
func (a *actions) serverProbe(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ServerProbeParams](c)
	if err != nil {
		return nil, err
	}
	if !c.Who.Root {
		return nil, rootOnly()
	}
	var srv registry.RootServer
	var rev *registry.RootRevision
	var project ids.Project // whose credential it is given
	if err := a.do(ctx, func() error {
		var err error
		if srv, err = a.pickServer(p.Selector); err == nil && (srv.Deleted || srv.Revisions[srv.Current] == nil) {
			err = api.Refuse(refusal.ServerUnknown, "The registration of %q is deleted.", srv.Label)
		}
		if err != nil {
			return err
		}
		rev = srv.Revisions[srv.Current]
		project, err = a.probedFor(c, srv, rev, p.Project)
		return err
	}); err != nil {
		return nil, err
	}
	if c.Req.DryRun {
		return api.CatalogueResult{Server: string(srv.ID), Revision: string(rev.ID), Tools: []api.ToolResult{}}, nil
	}
	c.Event(api.Progress{Text: "starting " + srv.Label + " in a jail with an empty workspace"})
	found, failure := a.Workers.Probe(ctx, srv.ID, rev.ID, project, ids.New[ids.Connection](a.Now(), random()), rev.Start.Milliseconds())
	if errors.Is(failure, refusal.CredentialMissing) {
		return nil, told(failure) // it says nothing of the server, which was not started
	}
	var pins []registry.Pin
	if failure == nil {
		pins, failure = gate.Pins(found.Data, found.Kept)
	}
	why := ""
	if failure != nil {
		why = strings.ToValidUTF8(failure.Error()[:min(len(failure.Error()), 1024)], "")
	}
	var out api.CatalogueResult
	err = a.do(ctx, func() error {
		ch, err := a.reg.PutCatalogue(rev.ID, a.Now(), why, found.Era, pins)
		if err == nil {
			err = a.Gate.Apply(ch)
		}
		if err != nil {
			return err
		}
		out = a.catalogue(srv)
		for id := range a.reg.Root().Projects {
			if a.reg.View(id).ByServer[srv.ID] != "" {
				a.Workers.Changed(id)
			}
		}
		return nil
	})
	if err == nil && failure != nil {
		return nil, api.Refuse(refusal.ServerUnavailable, "%s.", why)
	}
	return out, err
}

// probedFor names the project whose credential a probe is given: none where the server
// needs none, else the one that was named and has one. What is found is pinned for the
// revision, whoever's credential it was found with.
func (a *actions) probedFor(c *Call, srv registry.RootServer, rev *registry.RootRevision, selector string) (ids.Project, error) {
	switch {
	case !rev.Required && selector != "":
		return "", api.Refuse(refusal.BadRequest, "%q needs no credential; it is probed without a project.", srv.Label)
	case !rev.Required:
		return "", nil
	case selector == "":
		return "", api.Refuse(refusal.CredentialMissing, "%q is probed with the credential of a project; name it with --project.", srv.Label)
	}
	proj, err := a.pickProject(c.Who, selector)
	if err == nil && a.reg.Assigned(proj.ID, srv.ID) == (registry.Credential{}) {
		err = api.Refuse(refusal.CredentialMissing, "Project %q has none for %q.", proj.Label, srv.Label)
	}
	return proj.ID, err
}

// catalogue is what the last probe of the current revision found.
func (a *actions) catalogue(srv registry.RootServer) api.CatalogueResult {
	out := api.CatalogueResult{Server: string(srv.ID), Revision: string(srv.Current), Tools: []api.ToolResult{}}
	rev, cat := srv.Revisions[srv.Current], a.reg.Catalogue(srv.Current)
	if rev == nil || cat == nil {
		return out
	}
	out.Probed, out.Error = cat.Probed, cat.Error
	for _, name := range cat.Order {
		pin := cat.Tools[name]
		hints := class.Hints{ReadOnly: class.Claim(pin.ReadOnly), Destructive: class.Claim(pin.Destructive)}
		if kindOf(name) != "" {
			hints = class.Hints{ReadOnly: class.Yes} // see registry.Tool
		}
		classes, source := class.Of(rev.Classes[name], name, hints)
		t := api.ToolResult{Tool: name, Kind: kindOf(name), Pin: pinText(pin), Classes: classes.Strings(), ClassSource: source.String(),
			Tier: class.TierOf(rev.Tiers[name], class.Unmarked, classes, hints).String(), State: "offered"}
		t.Title, t.Description = gate.Describe(pin.Raw)
		if pin.Quarantine != "" {
			t.State, t.Reason = "quarantined", pin.Quarantine
		}
		out.Tools = append(out.Tools, t)
	}
	shorten(out.Tools)
	out.Unmatched = declaredForNothing(rev, cat)
	return out
}

// serverCatalogue shows what a server offers: to root, and to whoever has a role in
// a project, so that an owner can say what to ask for. No command is in it.
func (a *actions) serverCatalogue(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.Selected](c)
	if err != nil {
		return nil, err
	}
	var out api.CatalogueResult
	err = a.do(ctx, func() error {
		if !c.Who.Root && len(a.projectsOf(a.account(c.Who).ID)) == 0 {
			return api.Refuse(refusal.NotPermitted, "What servers offer is shown to root, and to whoever has a part in a project.")
		}
		srv, err := a.pickServer(p.Selector)
		if err == nil {
			out = a.catalogue(srv)
		}
		return err
	})
	return out, err
}
