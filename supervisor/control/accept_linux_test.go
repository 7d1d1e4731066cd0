package control

import (
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
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
		ch, err := r.g.Registry().PutCatalogue(id[ids.Revision](files), time.Now(), "", pins)
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
