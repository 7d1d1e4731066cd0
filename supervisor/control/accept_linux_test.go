package control

import (
	"maps"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

// relist records another catalogue of the files server.
func (r *rig) relist(raw string) {
	r.t.Helper()
	r.on(func() {
		pins, err := gate.Pins([]byte(raw), nil)
		if err != nil {
			r.t.Error(err)
			return
		}
		ch, err := r.g.Registry().PutCatalogue(id[ids.Revision](files), time.Now(), "", "", pins)
		if err == nil {
			err = r.g.Apply(ch)
		}
		if err != nil {
			r.t.Error(err)
		}
	})
}

func TestAChangedToolIsShownWordByWordAndAcceptedAsShown(t *testing.T) {
	r := newRig(t)
	c := r.as(0)
	con := api.ConnectionParams{Project: "shop", Server: "files"}
	if got := must[api.ConnectionResult](c, api.ConnectionShow, con); len(got.Changes) != 0 {
		t.Fatalf("changes before any: %+v", got.Changes)
	}
	changed := strings.Replace(catalogueText, `"name":"read_rows"`, `"name":"read_rows","description":"Reads, and mails it"`, 1)
	r.relist(changed)
	got := must[api.ConnectionResult](c, api.ConnectionShow, con)
	if len(got.Changes) != 1 || got.Changes[0].Tool != "read_rows" || got.Changes[0].State != "changed" || len(got.Changes[0].Members) != 1 || got.Changes[0].Members[0].Member != "description" {
		t.Fatalf("%+v", got.Changes)
	}
	accept := con
	accept.Tools, accept.Seen = []string{"read_rows"}, map[string]string{"read_rows": got.Changes[0].Pin}
	r.relist(strings.Replace(changed, "mails it", "mails it to them", 1))
	if detail, code := c.ask(api.ConnectionAccept, accept); code != refusal.StaleSelector {
		t.Fatalf("what was not shown was accepted: %q %s", string(code), detail)
	}
	got = must[api.ConnectionResult](c, api.ConnectionShow, con)
	accept.Seen["read_rows"] = got.Changes[0].Pin
	if got := must[api.ConnectionResult](c, api.ConnectionAccept, accept, dry); len(got.Changes) != 1 {
		t.Errorf("a dry run shows %+v", got.Changes)
	}
	done := must[api.ConnectionResult](c, api.ConnectionAccept, accept)
	if len(done.Changes) != 1 || shown(done.Changes[0].Members[0].Pieces) == "" {
		t.Errorf("the answer shows %+v", done.Changes)
	}
	if got := must[api.ConnectionResult](c, api.ConnectionShow, con); len(got.Changes) != 0 || got.Tools[0].State != "visible" {
		t.Errorf("after it: %+v", got)
	}
	r.relist(`[]`)
	if got := must[api.ConnectionResult](c, api.ConnectionShow, con); len(got.Changes) != 1 || got.Changes[0].State != "gone" {
		t.Errorf("a tool that is gone: %+v", got.Changes)
	}
}

func TestPromptsAndResourcesAreGrantedAndRevokedByName(t *testing.T) {
	r := newRig(t)
	c := r.as(0)
	r.relist(catalogueText + `[{"name":"review","description":"Reviews"}]`)
	con := api.ConnectionParams{Project: "shop", Server: "files", Prompts: []string{"review"}, Resources: []string{"file:///docs/"}}
	got := must[api.ConnectionResult](c, api.ConnectionGrant, con)
	state := map[string]string{}
	for _, x := range got.Tools {
		state[x.Tool] = x.Kind + " " + x.Served + " " + x.State + " " + x.Tier
	}
	if state["prompt:review"] != "prompt prompt:review visible observe" || state["resource:file:///docs/"] != "resource  visible observe" {
		t.Errorf("%q", state)
	}
	for _, bad := range []api.ConnectionParams{
		{Project: "shop", Server: "files", Prompts: []string{"nothing"}},
		{Project: "shop", Server: "files", Resources: []string{"file:///a/../b"}},
		{Project: "shop", Server: "files", Resources: []string{"*"}},
	} {
		if _, code := c.ask(api.ConnectionGrant, bad); code != refusal.NotFound && code != refusal.BadRequest {
			t.Errorf("%+v: %q", bad, string(code))
		}
	}
	con.Prompts = nil
	must[api.RevokeResult](c, api.ConnectionRevoke, con)
	got = must[api.ConnectionResult](c, api.ConnectionShow, con)
	for _, x := range got.Tools {
		if x.Tool == "resource:file:///docs/" || x.Tool == "prompt:review" && !x.Granted {
			t.Errorf("after the resource was revoked: %+v", x)
		}
	}
}

// TestAcceptC096_TheRevisionThatWasShown: who accepts sees what the server has become,
// also of what is not granted, and accepts no revision that came after.
func TestAcceptC096_TheRevisionThatWasShown(t *testing.T) {
	r := newRig(t)
	c := r.as(root)
	con := api.ConnectionParams{Project: "shop", Server: "files"}
	revise := func(n int, list string) string {
		next := facts()
		srv := next.Servers[id[ids.Server](files)]
		rev := *srv.Revisions[srv.Current]
		rev.ID = id[ids.Revision](n)
		srv.Revisions[rev.ID], srv.Current = &rev, rev.ID
		next.Servers[srv.ID] = srv
		r.on(func() {
			r.g.Registry().SetRoot(next)
			pins, err := gate.Pins([]byte(list), nil)
			if err == nil {
				var ch registry.Change
				if ch, err = r.g.Registry().PutCatalogue(rev.ID, time.Now(), "", "", pins); err == nil {
					err = r.g.Apply(ch)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
		return string(rev.ID)
	}
	second := revise(77, `[{"name":"read_rows","title":"Read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"odd","inputSchema":{}},{"name":"send","description":"sends\u001b[2J","inputSchema":{}}]`)
	got := must[api.ConnectionResult](c, api.ConnectionShow, con)
	said := map[string]string{}
	for _, ch := range got.Changes {
		if said[ch.Tool] = ch.State; ch.Ungranted {
			said[ch.Tool] += " ungranted"
		}
		for _, m := range ch.Members {
			if strings.ContainsRune(shown(m.Pieces), 0x1b) {
				t.Errorf("%+v", ch)
			}
		}
	}
	want := map[string]string{"odd": "new ungranted", "send": "new ungranted", "write_rows": "gone ungranted"}
	if !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
	third := revise(78, catalogueText)
	con.Revision = second
	if detail, code := c.ask(api.ConnectionAccept, con); code != refusal.StaleSelector {
		t.Fatalf("a revision that nobody saw was accepted: %q %s", string(code), detail)
	}
	if got := must[api.ConnectionResult](c, api.ConnectionShow, con); got.Accepted == third || got.Version != 2 {
		t.Fatalf("%+v", got)
	}
	con.Revision = third
	if got := must[api.ConnectionResult](c, api.ConnectionAccept, con); got.Accepted != third || got.Readiness != "ready" {
		t.Fatalf("%+v", got)
	}
}
