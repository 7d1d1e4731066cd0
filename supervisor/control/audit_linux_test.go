package control

import (
	"fmt"
	"slices"
	"testing"

	"postern/supervisor/api"
)

// Every action of the socket is here: it only reads, and then leaves no record whoever
// asks; or it changes something, and then leaves one, with its own name and asker, and
// none for a trial run, a refusal, or a repetition that changes nothing.
func TestC9_EveryActionLeavesOneRecordOfWhatItChanged(t *testing.T) {
	r := newRig(t)
	tok := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner})
	b, s := r.session(owner, "")
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	con := api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}}
	bare := api.ConnectionParams{Project: "shop", Server: "files"}
	records := func() (out []string) {
		r.on(func() {
			r.g.Flush()
			for _, w := range r.audited {
				out = append(out, w.By+" "+w.Action)
			}
			r.audited = nil
		})
		return out
	}
	code1 := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"}).Code
	records()
	reads := map[api.Action]any{
		api.Status: none{}, api.AccountList: none{}, api.AccountShow: api.Selected{Selector: "alice"}, api.ProjectList: none{}, api.ProjectShow: api.Selected{Selector: "shop"},
		api.ServerCatalogue: api.Selected{Selector: "files"}, api.ConnectionList: api.ProjectParams{Project: "shop"}, api.ConnectionShow: bare, api.TaskList: none{}, api.TaskShow: api.TaskParams{Task: tok.Task},
		api.Explain: api.ExplainParams{AskerParams: api.AskerParams{Task: tok.Task}, Tool: "read_rows"}, api.Capabilities: api.CapabilitiesParams{AskerParams: api.AskerParams{Task: tok.Task}},
		api.Check: api.CheckParams{Task: tok.Task, Tool: "WebFetch"}, api.ActivityShow: api.RecordParams{Record: string(call)}, api.Ps: none{}, api.Metrics: none{}, api.Quota: api.QuotaParams{}, api.Logs: api.LogsParams{Project: "shop"}, api.Activity: api.ActivityParams{}, api.AccessPaired: none{},
	}
	// Root is refused these, and they are reads all the same.
	own := map[api.Action]bool{api.ArtifactList: true, api.ArtifactGet: true}
	for a, params := range reads {
		if detail, code := r.as(root).ask(a, params); code != "" {
			t.Errorf("%s: %q %s", a, string(code), detail)
		}
		if got := records(); len(got) != 0 {
			t.Errorf("%s, which changes nothing, is recorded: %q", a, got)
		}
	}
	// In an order in which each has something to change.
	changes := []struct {
		action api.Action
		params any
		uid    uint32
		again  bool // the same again changes something again
	}{
		{api.Drain, api.DrainParams{Now: true}, root, true},
		{api.Drain, api.DrainParams{Cancel: true}, root, false},
		{api.ServerProbe, api.Selected{Selector: "notes"}, root, true},
		{api.MemberRemove, api.MemberParams{Project: "shop", Account: "vera"}, owner, false},
		{api.MemberAdd, api.MemberParams{Project: "shop", Account: "vera", Role: "viewer"}, root, false},
		{api.ConnectionAdd, api.ConnectionParams{Project: "shop", Server: "notes"}, root, false},
		{api.ConnectionGrant, con, root, true}, // it is given anew, to what the tool is now
		{api.ConnectionRevoke, con, owner, false},
		{api.ConnectionDisable, bare, owner, false},
		{api.ConnectionEnable, bare, root, false},
		{api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner}, host, true},
		{api.TaskToken, api.TaskParams{Task: tok.Task}, host, true},
		{api.TaskRevoke, api.TaskParams{Task: tok.Task}, owner, false},
		{api.AccessPair, api.PairParams{Channel: "whatsapp"}, root, true},
		{api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:+5511900001111", Code: code1}, host, false},
		{api.AccessUnpair, api.UnpairParams{Principal: "whatsapp:+5511900001111"}, root, false},
		{api.AccountSuspend, api.Selected{Selector: "bob"}, member, false},
		{api.AccountActivate, api.Selected{Selector: "bob"}, root, false},
		{api.ProjectDelete, api.Selected{Selector: "blog"}, owner, true}, // nothing is in it; posternd of this rig leaves no tombstone
		{api.ProjectDelete, api.Selected{Selector: "shop"}, owner, true}, // posternd of this rig leaves no tombstone, and so it can be deleted again
	}
	for _, row := range changes {
		for _, trial := range []struct {
			says string
			uid  uint32
			with []option
		}{{"a trial run", row.uid, []option{dry}}, {"a stranger's", stranger, nil}, {"an account's of nothing here", other, nil}} {
			detail, code := r.as(trial.uid).ask(row.action, row.params, trial.with...)
			if (code == "") != (trial.with != nil) {
				t.Errorf("%s, %s: %q %s", row.action, trial.says, string(code), detail)
			}
			if got := records(); len(got) != 0 {
				t.Errorf("%s: %s is recorded: %q", row.action, trial.says, got)
			}
		}
		detail, code := r.as(row.uid).ask(row.action, row.params)
		want := []string{fmt.Sprintf("uid %d %s", row.uid, row.action)}
		if got := records(); code != "" || !slices.Equal(got, want) {
			t.Errorf("%s: %q %s, recorded as %q, want %q", row.action, string(code), detail, got, want)
		}
		if row.again {
			continue
		}
		r.as(row.uid).ask(row.action, row.params)
		if got := records(); len(got) != 0 {
			t.Errorf("%s again, which changes nothing, is recorded: %q", row.action, got)
		}
	}
	// What needs more than this rig has is tested by itself.
	apart := []api.Action{api.Backup, api.ConnectionAccept}
	for _, a := range api.Actions() {
		_, read := reads[a]
		change := false
		for _, c := range changes {
			change = change || c.action == a
		}
		if api.ServedBy(a) == api.ControlSocket && !read && !own[a] && !change && !slices.Contains(apart, a) {
			t.Errorf("%s is neither among what reads nor among what changes", a)
		}
	}
}
