package control

import (
	"strings"
	"testing"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

// A server that needs a credential is probed with that of the project which is named and
// has one: nothing is started without, and a refusal for want of it says nothing of the
// server. People of the project see whether one is assigned, and a connection is of the
// mode that the server is registered with.
func TestP7_AProbeIsGivenAProjectsCredential(t *testing.T) {
	r := newRig(t)
	shop, notes := id[ids.Project](1), id[ids.Server](2)
	assigned := map[registry.Assignment]registry.Credential{}
	facts := func() {
		root := facts()
		root.Servers[notes].Revisions[root.Servers[notes].Current].Required = true
		root.Assigned = assigned
		r.on(func() { r.g.Registry().SetRoot(root) })
	}
	facts()
	c := r.as(root)
	probes := func() (out []order.LaunchProbe) {
		r.event(func() {
			for _, m := range r.orders {
				if p, ok := m.(order.LaunchProbe); ok {
					out = append(out, p)
				}
			}
		})
		return out
	}
	refused := func(want refusal.Code, p api.ServerProbeParams) {
		t.Helper()
		if detail, code := c.ask(api.ServerProbe, p); code != want {
			t.Errorf("%+v: %q %s, want %q", p, string(code), detail, string(want))
		}
	}
	added := must[api.ConnectionResult](c, api.ConnectionAdd, api.ConnectionParams{Project: "shop", Server: "notes"})
	if added.Credential != registry.WithCredential || added.CredentialState != "missing" {
		t.Errorf("added: %+v", added)
	}
	refused(refusal.CredentialMissing, api.ServerProbeParams{Selector: "notes"})
	refused(refusal.CredentialMissing, api.ServerProbeParams{Selector: "notes", Project: "shop"})
	refused(refusal.ProjectUnknown, api.ServerProbeParams{Selector: "notes", Project: "none"})
	refused(refusal.BadRequest, api.ServerProbeParams{Selector: "files", Project: "shop"})
	if n := len(probes()); n != 0 {
		t.Errorf("%d probes were started", n)
	}
	shown := must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "notes"})
	if shown.CredentialState != "missing" || shown.Readiness != "unavailable" || !strings.Contains(shown.Reason, "no credential is assigned") {
		t.Errorf("the owner sees %+v", shown)
	}

	assigned = map[registry.Assignment]registry.Credential{{Project: shop, Server: notes}: {ID: id[ids.Credential](1), Generation: 1}}
	facts()
	got := must[api.CatalogueResult](c, api.ServerProbe, api.ServerProbeParams{Selector: "notes", Project: "shop"})
	if all := probes(); len(got.Tools) != 3 || len(all) != 1 || all[0].Project != shop || all[0].Server != notes {
		t.Errorf("%+v, orders %+v", got, all)
	}
	refused(refusal.CredentialMissing, api.ServerProbeParams{Selector: "notes", Project: "blog"})
	shown = must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "notes"})
	if shown.CredentialState != "assigned" || shown.Readiness != "configured" {
		t.Errorf("the owner sees %+v", shown)
	}
	// The twin: one that needs none is probed without, and its connection is keyless.
	must[api.CatalogueResult](c, api.ServerProbe, api.ServerProbeParams{Selector: "files"})
	if all := probes(); len(all) != 2 || all[1].Project != "" {
		t.Errorf("orders %+v", all)
	}
	if shown := must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "files"}); shown.Credential != registry.Keyless || shown.CredentialState != "" {
		t.Errorf("the owner sees %+v", shown)
	}
}
