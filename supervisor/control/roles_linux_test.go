package control

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"testing"

	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

type none struct{}

// newTask makes a task of the host for an account in shop.
func (r *rig) newTask(account int) ids.Task {
	r.t.Helper()
	a := id[ids.Account](account)
	t := registry.Task{ID: fresh[ids.Task](), Account: a, Host: "agent", Project: id[ids.Project](shop), Principal: access.Local(a), Mode: policy.ModeCode, Created: 1}
	r.on(func() {
		c, err := r.g.Registry().NewTask(t)
		if err == nil {
			err = r.g.Apply(c)
		}
		if err != nil {
			r.t.Error(err)
		}
	})
	return t.ID
}

// TestControl1_WhoMayWhat asks for every action as everybody. What changes anything
// is asked as a dry run, which goes through the same function; at the end nothing
// is stored that was not before.
func TestControl1_WhoMayWhat(t *testing.T) {
	r := newRig(t)
	alices, bobs := r.newTask(alice), r.newTask(bob)
	r.on(func() {}) // alices has a token's uid
	tok := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner})

	const (
		ok   = refusal.Code("")
		no   = refusal.NotPermitted
		gone = refusal.ProjectUnknown
		away = refusal.NotFound
		what = refusal.TaskUnknown
		host = refusal.HostUnknown
	)
	// Whoever was an owner and is suspended or deleted, and a uid of the jails, are
	// answered as a stranger is.
	const suspended, deleted = 61005, 61006
	next := facts()
	for n := range 2 {
		a := registry.RootAccount{ID: id[ids.Account](5 + n), Name: []string{"sue", "dan"}[n], UIDs: []uint32{uint32(suspended + n)}}
		next.Accounts[a.ID] = a
	}
	last := facts()
	last.Accounts = maps.Clone(next.Accounts)
	dan := last.Accounts[id[ids.Account](6)]
	dan.Deleted = true
	last.Accounts[dan.ID] = dan
	r.on(func() {
		reg := r.g.Registry()
		reg.SetRoot(next)
		for n := range 2 {
			ch, err := reg.AddMember(id[ids.Project](shop), id[ids.Account](5+n), registry.Owner)
			if err == nil {
				err = r.g.Apply(ch)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	must[api.ProjectShowResult](r.as(suspended), api.ProjectShow, api.Selected{Selector: "shop"})
	r.on(func() {
		reg := r.g.Registry()
		ch, err := reg.Suspend(id[ids.Account](5), true, 0)
		if err == nil {
			err = r.g.Apply(ch)
		}
		if err != nil {
			t.Error(err)
		}
		reg.SetRoot(last)
	})
	nobodies := []struct {
		name string
		uid  uint32
	}{{"suspended", suspended}, {"deleted", deleted}, {"jail", last.FirstUID + 3}}
	if got := must[api.AccountResult](r.as(suspended), api.AccountShow, api.Selected{Selector: "sue"}); got.Status != "suspended" {
		t.Errorf("a suspended account is told %+v", got)
	}

	b, s := r.session(owner, "") // alice's own, with a record
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	r.pair("+5511900002222")
	r.on(func() { r.g.Flush() })
	shops := api.ProjectParams{Project: "shop"}
	con := api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"read_rows"}}
	bare := api.ConnectionParams{Project: "shop", Server: "files"}
	asked := map[api.Action]bool{}
	for _, row := range []struct {
		action api.Action
		params any
		// root, owner, member, viewer, other account, host, stranger
		want [7]refusal.Code
	}{
		{api.Status, none{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.Backup, none{}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.Drain, api.DrainParams{}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.Ps, none{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.Ps, shops, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.Metrics, none{}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.Quota, api.QuotaParams{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.Quota, api.QuotaParams{Project: "shop"}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.Logs, api.LogsParams{Project: "shop"}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.Activity, api.ActivityParams{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.Activity, api.ActivityParams{Project: "shop"}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.ArtifactList, api.ArtifactListParams{}, [7]refusal.Code{no, ok, ok, ok, ok, no, no}},
		{api.ArtifactList, api.ArtifactListParams{Project: "shop"}, [7]refusal.Code{no, ok, ok, ok, gone, no, no}},
		{api.ArtifactGet, api.ArtifactGetParams{Artifact: string(fresh[ids.Artifact]())}, [7]refusal.Code{no, away, away, away, away, no, no}},
		{api.AccountList, none{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.AccountShow, api.Selected{Selector: "alice"}, [7]refusal.Code{ok, ok, away, away, away, away, away}},
		{api.AccountSuspend, api.Selected{Selector: "alice"}, [7]refusal.Code{ok, ok, away, away, away, away, away}},
		{api.AccountActivate, api.Selected{Selector: "alice"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ProjectList, none{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.ProjectShow, api.Selected{Selector: "shop"}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.ProjectShow, api.Selected{Selector: string(id[ids.Project](shop))}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.ProjectShow, api.Selected{Selector: "blog"}, [7]refusal.Code{ok, ok, gone, gone, gone, ok, gone}},
		{api.ProjectDelete, api.Selected{Selector: "shop"}, [7]refusal.Code{ok, ok, no, no, gone, no, gone}},
		{api.MemberAdd, api.MemberParams{Project: "shop", Account: "otto"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.MemberRemove, api.MemberParams{Project: "shop", Account: "vera"}, [7]refusal.Code{ok, ok, no, ok, gone, no, gone}},
		{api.MemberRemove, api.MemberParams{Project: "shop", Account: "bob"}, [7]refusal.Code{ok, ok, ok, no, gone, no, gone}},
		{api.ServerProbe, api.Selected{Selector: "files"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ServerCatalogue, api.Selected{Selector: "files"}, [7]refusal.Code{ok, ok, ok, ok, no, no, no}},
		{api.ConnectionAdd, api.ConnectionParams{Project: "shop", Server: "notes"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ConnectionList, shops, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.ConnectionShow, bare, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.ConnectionGrant, con, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ConnectionAccept, bare, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ConnectionEnable, bare, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.ConnectionRevoke, con, [7]refusal.Code{ok, ok, no, no, gone, no, gone}},
		{api.ConnectionDisable, bare, [7]refusal.Code{ok, ok, no, no, gone, no, gone}},
		{api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner}, [7]refusal.Code{host, host, host, host, host, ok, host}},
		{api.TaskToken, api.TaskParams{Task: tok.Task}, [7]refusal.Code{host, host, host, host, host, ok, host}},
		{api.TaskList, shops, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.TaskList, none{}, [7]refusal.Code{ok, ok, ok, ok, ok, ok, ok}},
		{api.TaskShow, api.TaskParams{Task: string(alices)}, [7]refusal.Code{ok, ok, what, ok, what, ok, what}},
		{api.TaskShow, api.TaskParams{Task: string(bobs)}, [7]refusal.Code{ok, ok, ok, ok, what, ok, what}},
		{api.AccessPair, api.PairParams{Channel: "whatsapp"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.AccessPaired, none{}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.AccessRedeem, api.RedeemParams{Principal: "whatsapp:+5511900001111", Code: "x"}, [7]refusal.Code{host, host, host, host, host, ok, host}},
		{api.AccessUnpair, api.UnpairParams{Principal: "whatsapp:+5511900002222"}, [7]refusal.Code{ok, no, no, no, no, no, no}},
		{api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Task: string(alices)}, Tool: "read_rows"}, [7]refusal.Code{ok, ok, what, ok, what, ok, what}},
		{api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Project: "shop"}, Tool: "nothing"}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Project: "blog"}, Tool: "read_rows"}, [7]refusal.Code{ok, ok, gone, gone, gone, ok, gone}},
		{api.Capabilities, api.CapabilitiesParams{AskerParams: api.AskerParams{Task: string(alices)}}, [7]refusal.Code{ok, ok, what, ok, what, ok, what}},
		{api.Capabilities, api.CapabilitiesParams{AskerParams: api.AskerParams{Project: "shop"}}, [7]refusal.Code{ok, ok, ok, ok, gone, ok, gone}},
		{api.Check, api.CheckParams{Task: string(alices), Tool: "WebFetch"}, [7]refusal.Code{ok, ok, what, what, what, ok, what}},
		{api.Check, api.CheckParams{Project: "shop", Tool: "WebFetch"}, [7]refusal.Code{what, ok, what, what, gone, what, gone}},
		{api.ActivityShow, api.RecordParams{Record: string(call)}, [7]refusal.Code{ok, ok, away, ok, away, away, away}},
		{api.TaskRevoke, api.TaskParams{Task: string(alices)}, [7]refusal.Code{ok, ok, what, no, what, ok, what}},
		{api.TaskRevoke, api.TaskParams{Task: string(bobs)}, [7]refusal.Code{ok, ok, ok, no, what, ok, what}},
	} {
		before := r.stored()
		for i, role := range roles {
			c := r.as(role.uid)
			detail, code := c.ask(row.action, row.params, dry)
			if code != row.want[i] {
				t.Errorf("%s %+v by %s: %q %s, want %q", row.action, row.params, role.name, string(code), detail, string(row.want[i]))
			}
			// What root alone may is not refused as if a part in the project were enough, and
			// what an owner may is not refused as if it were root's alone.
			if onlyRoot := bytes.Contains(detail, []byte("Only root may")); code == no && i > 0 && row.want[0] == ok && row.action != api.Metrics && onlyRoot != (row.want[1] == no) || code == no && len(detail) == 0 {
				t.Errorf("%s %+v by %s is refused in the words %q", row.action, row.params, role.name, detail)
			}
			c.c.Close()
		}
		for _, nobody := range nobodies {
			c := r.as(nobody.uid)
			if detail, code := c.ask(row.action, row.params, dry); code != row.want[len(roles)-1] {
				t.Errorf("%s %+v by %s: %q %s, want %q as a stranger", row.action, row.params, nobody.name, string(code), detail, string(row.want[len(roles)-1]))
			}
			c.c.Close()
		}
		asked[row.action] = true
		if after := r.stored(); after != before {
			t.Errorf("%s %+v: a dry run or a refused request changed\n%s\nto\n%s", row.action, row.params, before, after)
		}
	}
	for _, a := range api.Actions() {
		if api.ServedBy(a) == api.ControlSocket && !asked[a] {
			t.Errorf("nobody is asked about %s: it needs a row", a)
		}
	}
}

func TestControl1_EveryActionOfThisSocketIsServed(t *testing.T) {
	r := newRig(t)
	for _, a := range api.Actions() {
		served := api.ServedBy(a) == api.ControlSocket
		_, code := r.as(root).ask(a, map[string]int{"nobody knows this": 1})
		if code != refusal.BadRequest {
			t.Errorf("%s: %q", a, string(code))
		}
		detail, _ := r.as(root).ask(a, map[string]int{"nobody knows this": 1})
		if here := string(detail) != fmt.Sprintf("There is no action %q here.", a); here != served {
			t.Errorf("%s: served %v, %s", a, here, detail)
		}
	}
}

// Lists show what the asker may see, and nothing else.
func TestControl1_ListsShowOnlyTheOwn(t *testing.T) {
	r := newRig(t)
	r.newTask(alice)
	r.newTask(bob)
	for _, row := range []struct {
		uid                       uint32
		accounts, projects, tasks int
	}{{root, 4, 2, 2}, {owner, 1, 2, 2}, {member, 1, 1, 1}, {viewer, 1, 1, 2}, {other, 1, 0, 0}, {host, 0, 2, 2}, {stranger, 0, 0, 0}} {
		c := r.as(row.uid)
		a, p, k := must[api.AccountListResult](c, api.AccountList, none{}), must[api.ProjectListResult](c, api.ProjectList, none{}), must[api.TaskListResult](c, api.TaskList, none{})
		if len(a.Accounts) != row.accounts || len(p.Projects) != row.projects || len(k.Tasks) != row.tasks {
			t.Errorf("%d sees %d accounts, %d projects, %d tasks", row.uid, len(a.Accounts), len(p.Projects), len(k.Tasks))
		}
	}
	r.session(owner, "")
	for _, row := range []struct {
		uid  uint32
		rows int
	}{{root, 1}, {owner, 1}, {member, 1}, {viewer, 1}, {other, 0}, {host, 1}, {stranger, 0}} {
		if got := must[api.PsResult](r.as(row.uid), api.Ps, none{}); len(got.Rows) != row.rows {
			t.Errorf("%d sees %+v", row.uid, got.Rows)
		}
	}
	for _, uid := range []uint32{owner, member, host, stranger} {
		if st := must[api.StatusResult](r.as(uid), api.Status, none{}); st.State != "serving" || st.Version != "test" || st.StatusCounts != nil {
			t.Errorf("%d: %+v", uid, st)
		}
	}
	st := must[api.StatusResult](r.as(root), api.Status, none{})
	if st.State != "serving" || st.Bridges != 1 || st.Sessions != 1 || st.Servers != 1 || st.Version != "test" || st.Incarnation != 1 {
		t.Errorf("%+v", st)
	}
	if _, err := r.w.Ps(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// A deleted account's uid is nobody's; a uid that two accounts claim is nobody's.
func TestControl1_AUidWithoutOneAccountIsAStranger(t *testing.T) {
	r := newRig(t)
	edit := func(change func(*registry.Root)) {
		next := facts()
		change(next)
		r.on(func() { r.g.Registry().SetRoot(next) })
	}
	edit(func(f *registry.Root) {
		a := f.Accounts[id[ids.Account](alice)]
		a.Deleted = true
		f.Accounts[a.ID] = a
	})
	if _, code := r.as(owner).ask(api.ProjectShow, api.Selected{Selector: "shop"}); code != refusal.ProjectUnknown {
		t.Errorf("a deleted account: %q", string(code))
	}
	edit(func(f *registry.Root) {
		a := f.Accounts[id[ids.Account](otto)]
		a.UIDs = append(a.UIDs, owner)
		f.Accounts[a.ID] = a
	})
	if _, code := r.as(owner).ask(api.ProjectShow, api.Selected{Selector: "shop"}); code != refusal.ProjectUnknown {
		t.Errorf("a uid of two accounts: %q", string(code))
	}
	edit(func(*registry.Root) {})
	must[api.ProjectShowResult](r.as(owner), api.ProjectShow, api.Selected{Selector: "shop"})
}
