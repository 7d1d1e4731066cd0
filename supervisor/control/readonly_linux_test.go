package control

import (
	"testing"

	"postern/refusal"
	"postern/supervisor/api"
)

// In read-only mode every action of the socket that changes is refused by name, for root
// too and as a trial run, and nothing is recorded; every other one does what it did.
func TestReadOnly_EveryActionOfControlSock(t *testing.T) {
	r := newRig(t)
	tok := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner})
	b, s := r.session(owner, "")
	code := must[api.PairResult](r.as(root), api.AccessPair, api.PairParams{Channel: "whatsapp"}).Code
	r.pair("+5511900002222")
	mode := func(since int64) {
		next := facts()
		next.ReadOnly = since
		r.on(func() {
			if err := r.g.SetRoot(next); err != nil {
				t.Error(err)
			}
		})
	}
	con := api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}}
	bare := api.ConnectionParams{Project: "shop", Server: "files"}
	alicesTask := api.TaskParams{Task: tok.Task}
	type row struct {
		action api.Action
		params any
		uid    uint32
	}
	changes := []row{
		{api.AccountActivate, api.Selected{Selector: "bob"}, root}, {api.ProjectDelete, api.Selected{Selector: "blog"}, owner}, {api.ProjectDelete, api.Selected{Selector: "shop"}, root},
		{api.MemberAdd, api.MemberParams{Project: "shop", Account: "otto"}, root}, {api.ServerProbe, api.Selected{Selector: "notes"}, root},
		{api.ConnectionAdd, api.ConnectionParams{Project: "shop", Server: "notes"}, root}, {api.ConnectionGrant, con, root}, {api.ConnectionAccept, bare, root}, {api.ConnectionEnable, bare, root},
		{api.AccessPair, api.PairParams{Channel: "whatsapp"}, root}, {api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:+5511900001111", Code: code}, host},
	}
	rest := []row{ // in an order in which each has something to do
		{api.Status, none{}, root}, {api.Metrics, none{}, root}, {api.Quota, api.QuotaParams{}, root}, {api.Ps, none{}, owner}, {api.Logs, api.LogsParams{Project: "shop"}, owner}, {api.Activity, api.ActivityParams{}, owner},
		{api.AccountList, none{}, root}, {api.AccountShow, api.Selected{Selector: "alice"}, owner}, {api.ProjectList, none{}, owner}, {api.ProjectShow, api.Selected{Selector: "shop"}, owner},
		{api.ServerCatalogue, api.Selected{Selector: "files"}, owner}, {api.ConnectionList, api.ProjectParams{Project: "shop"}, owner}, {api.ConnectionShow, bare, owner},
		{api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner}, host}, {api.TaskToken, alicesTask, host}, {api.TaskList, none{}, owner}, {api.TaskShow, alicesTask, owner},
		{api.AccessPaired, none{}, root}, {api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Task: tok.Task}, Tool: "read_rows"}, owner},
		{api.Capabilities, api.CapabilitiesParams{AskerParams: api.AskerParams{Task: tok.Task}}, owner}, {api.Check, api.CheckParams{Task: tok.Task, Tool: "WebFetch"}, owner},
		{api.ArtifactList, api.ArtifactListParams{}, owner}, {api.Drain, api.DrainParams{Cancel: true}, root},
		{api.AccessUnpair, api.UnpairParams{Principal: "whatsapp:+5511900002222"}, root}, {api.TaskRevoke, alicesTask, owner}, {api.MemberRemove, api.MemberParams{Project: "shop", Account: "vera"}, owner},
		{api.ConnectionRevoke, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"read_rows"}}, owner}, {api.ConnectionDisable, bare, owner}, {api.AccountSuspend, api.Selected{Selector: "bob"}, root},
	}
	mode(1_790_000_000_000)
	call, code2 := b.admit(s, r.conn, "read_rows")
	if code2 != "" {
		t.Fatalf("a call: %q", string(code2))
	}
	rest = append([]row{{api.ActivityShow, api.RecordParams{Record: string(call)}, owner}}, rest...)
	asked := map[api.Action]bool{api.ArtifactGet: true, api.Backup: true} // their own tests ask for what is there
	for _, x := range changes {
		asked[x.action] = true
		if api.EffectOf(x.action) != api.Changes {
			t.Errorf("%s is said to be no change", x.action)
		}
		for _, how := range [][]option{nil, {dry}} {
			before := r.stored()
			r.on(func() { r.audited = nil })
			if detail, got := r.as(x.uid).ask(x.action, x.params, how...); got != refusal.ReadOnly {
				t.Errorf("%s: %q %s", x.action, string(got), detail)
			}
			r.on(func() {
				if len(r.audited) != 0 {
					t.Errorf("%s was refused and is recorded: %+v", x.action, r.audited)
				}
			})
			if after := r.stored(); after != before {
				t.Errorf("%s changed\n%s\nto\n%s", x.action, before, after)
			}
		}
	}
	for _, x := range rest {
		asked[x.action] = true
		if api.EffectOf(x.action) == api.Changes {
			t.Errorf("%s is said to be a change", x.action)
		}
		if detail, got := r.as(x.uid).ask(x.action, x.params); got != "" {
			t.Errorf("%s: %q %s", x.action, string(got), detail)
		}
	}
	for _, a := range api.Actions() {
		if api.ServedBy(a) == api.ControlSocket && !asked[a] {
			t.Errorf("nobody asked for %s", a)
		}
	}
	if st := must[api.StatusResult](r.as(stranger), api.Status, none{}); st.ReadOnly != 1_790_000_000_000 {
		t.Errorf("a stranger is told %+v", st)
	}
	// The code was not used up, and what waited can be done.
	mode(0)
	for _, x := range []row{{api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:+5511900001111", Code: code}, host}, {api.ConnectionEnable, bare, root}, {api.ConnectionGrant, con, root}, {api.AccountActivate, api.Selected{Selector: "bob"}, root}} {
		if detail, got := r.as(x.uid).ask(x.action, x.params); got != "" {
			t.Errorf("after the mode %s: %q %s", x.action, string(got), detail)
		}
	}
}
