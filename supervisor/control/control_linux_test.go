package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

func TestControl2_WhatIsNotUnderstoodChangesNothing(t *testing.T) {
	r := newRig(t)
	before := r.stored()
	c := r.as(root)
	for _, line := range []string{
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files"},"as":"root"}`,
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files","uid":0}}`,
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files","server":"files"}}`,
		`{"id":1,"action":"connection.revoke","action":"connection.revoke","params":{"project":"shop","server":"files"}}`,
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files"},"dry_run":"no"}`,
		`{"id":1,"action":"connection.revoke","params":["shop","files"]}`,
		`{"id":1,"action":"connection.revoke","params":{"Project":"shop","server":"files"}}`,
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files"}} {}`,
		`{"id":1,"action":"connection.revoke","params":{"project":"shop","server":"files"}`,
		`{"id":-1,"action":"connection.revoke","params":{"project":"shop","server":"files"}}`,
		"{\"id\":1,\"action\":\"connection.revoke\",\"params\":{\"project\":\"shop\",\"server\":\"files\\ud800\"}}",
		`{"id":1,"action":"connection.revoke"}`,
		`{"id":1,"action":"connection.revoked","params":{"project":"shop","server":"files"}}`,
		`{"id":1,"action":"project.add","params":{"label":"x","workspace":"/","owner":"alice"}}`,
		`{"id":1,"action":"","params":{}}`,
		`{"id":1,"action":"connection.grant","params":{"project":"shop","server":"files","tools":["write_rows"],"tier":"all"}}`,
		`{"id":1,"action":"connection.grant","params":{"project":"shop","server":"files","tools":[]}}`,
		`{"id":1,"action":"connection.grant","params":{"project":"shop","server":"files","tools":"*"}}`,
		`{"id":1,"action":"project.member.add","params":{"project":"shop","account":"otto","role":"admin"}}`,
		`{"id":1,"action":"activity","params":{"state":"running"}}`,
		`null`, `[]`, `{}`, `x`, ``,
	} {
		resp, ok := c.line(line + "\n")
		if !ok || resp.Refusal == nil || resp.Refusal.Code != refusal.BadRequest {
			t.Errorf("%s: %+v", line, resp)
		}
	}
	for _, name := range []string{"*", "write_*", "no_such", "odd", "read_rows "} {
		if detail, code := c.ask(api.ConnectionGrant, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows", name}}); code != refusal.NotFound && code != refusal.ToolQuarantined {
			t.Errorf("%q: %q %s", name, string(code), detail)
		}
	}
	if after := r.stored(); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
	// Their twin, on the same connection.
	must[api.RevokeResult](c, api.ConnectionRevoke, api.ConnectionParams{Project: "shop", Server: "files"})
	if r.stored() == before {
		t.Error("a request that is understood changes nothing")
	}
}

// Each change: its dry run says what the change then does, writes nothing, and
// is refused where the change is.
func TestControl3_ADryRunIsTheChangeWithoutWriting(t *testing.T) {
	r := newRig(t)
	con := func(tools ...string) api.ConnectionParams {
		return api.ConnectionParams{Project: "shop", Server: "files", Tools: tools}
	}
	member := func(a string) api.MemberParams { return api.MemberParams{Project: "shop", Account: a} }
	task := string(r.newTask(bob))
	for _, row := range []struct {
		action api.Action
		uid    uint32
		params any
		want   refusal.Code
	}{
		{api.ConnectionGrant, root, con("write_rows"), ""},
		{api.ConnectionGrant, root, con("odd"), refusal.ToolQuarantined},
		{api.ConnectionGrant, root, con("nothing"), refusal.NotFound},
		{api.ConnectionGrant, root, con("write_rows", "write_rows"), refusal.BadRequest},
		{api.ConnectionRevoke, owner, con("nothing"), refusal.ToolNotGranted},
		{api.ConnectionRevoke, owner, con("write_rows"), ""},
		{api.ConnectionAdd, root, api.ConnectionParams{Project: "shop", Server: "files"}, refusal.AlreadyExists},
		{api.ConnectionAdd, root, api.ConnectionParams{Project: "shop", Server: "notes"}, ""},
		{api.ConnectionAdd, root, api.ConnectionParams{Project: "shop", Server: "nothing"}, refusal.ServerUnknown},
		{api.ConnectionAccept, root, api.ConnectionParams{Project: "shop", Server: "notes"}, refusal.ServerUnavailable},
		{api.ConnectionAccept, root, con("read_rows"), ""},
		{api.ConnectionAccept, root, con("write_rows"), refusal.ToolNotGranted},
		{api.ConnectionDisable, owner, con(), ""},
		{api.ConnectionEnable, root, con(), ""},
		{api.MemberAdd, root, member("otto"), ""},
		{api.MemberAdd, root, member("nobody"), refusal.NotFound},
		{api.MemberAdd, root, member("alice"), refusal.AlreadyExists},
		{api.MemberRemove, owner, member("otto"), ""},
		{api.MemberRemove, owner, member("otto"), refusal.NotFound},
		{api.TaskNew, host, api.TaskNewParams{Project: "shop", ForUID: owner, Binds: 65}, refusal.BadRequest},
		{api.TaskNew, host, api.TaskNewParams{Project: "shop", ForUID: owner, TTLMs: -1}, refusal.BadRequest},
		{api.TaskNew, host, api.TaskNewParams{Project: "shop", ForUID: other}, refusal.NotMember},
		{api.TaskNew, host, api.TaskNewParams{Project: "shop", ForUID: owner}, ""},
		{api.TaskRevoke, owner, api.TaskParams{Task: task}, ""},
		{api.TaskToken, host, api.TaskParams{Task: task}, refusal.TaskEnded},
		{api.AccountSuspend, owner, api.Selected{Selector: "alice"}, ""},
		{api.AccountActivate, root, api.Selected{Selector: "alice"}, ""},
		{api.ProjectDelete, owner, api.Selected{Selector: "blog"}, ""},
	} {
		before := r.stored()
		detail, code := r.as(row.uid).ask(row.action, row.params, dry)
		if code != row.want {
			t.Errorf("%s %+v, dry: %q %s, want %q", row.action, row.params, string(code), detail, string(row.want))
		}
		if strings.Contains(string(detail), "ptk_") {
			t.Errorf("%s: a dry run makes a token", row.action)
		}
		if r.stored() != before {
			t.Errorf("%s %+v: a dry run wrote", row.action, row.params)
		}
		detail, code = r.as(row.uid).ask(row.action, row.params)
		if code != row.want {
			t.Errorf("%s %+v: %q %s, want %q", row.action, row.params, string(code), detail, string(row.want))
		}
		if (r.stored() != before) != (code == "") && row.action != api.ProjectDelete { // blog has nothing
			t.Errorf("%s %+v: answered %q and wrote %v", row.action, row.params, string(code), r.stored() != before)
		}
	}
	r.await("the tombstone was asked for once, by the change", func() bool {
		n := 0
		for _, o := range r.orders {
			if x, ok := o.(order.Retire); ok && x.Project == id[ids.Project](blog) {
				n++
			}
		}
		return n == 1
	})
}

func TestControl3_AStaleVersionOrALabelOfTwoIsRefused(t *testing.T) {
	r := newRig(t)
	c := r.as(root)
	con := api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}}
	bare := api.ConnectionParams{Project: "shop", Server: "files"}
	v := must[api.ConnectionResult](c, api.ConnectionShow, bare).Version
	for a, p := range map[api.Action]api.ConnectionParams{api.ConnectionGrant: con, api.ConnectionRevoke: bare, api.ConnectionDisable: bare, api.ConnectionEnable: bare, api.ConnectionAccept: bare} {
		before := r.stored()
		for _, stale := range []uint64{v - 1, v + 1} {
			if detail, code := c.ask(a, p, at(stale)); code != refusal.StaleSelector {
				t.Errorf("%s at %d: %q %s", a, stale, string(code), detail)
			}
		}
		if r.stored() != before {
			t.Errorf("%s wrote", a)
		}
	}
	got := must[api.ConnectionResult](c, api.ConnectionGrant, con, at(v))
	if got.Version != v+1 || !strings.Contains(got.Notice, "any argument") || !slices.ContainsFunc(got.Tools, func(x api.ToolResult) bool {
		return x.Tool == "write_rows" && x.Granted && x.State == "visible" && x.Tier != ""
	}) {
		t.Errorf("%+v", got)
	}
	if detail, code := c.ask(api.ConnectionGrant, con, at(v)); code != refusal.StaleSelector {
		t.Errorf("the second of two: %q %s", string(code), detail)
	}
	a := must[api.RevokeResult](c, api.AccountSuspend, api.Selected{Selector: "otto"})
	if detail, code := c.ask(api.AccountSuspend, api.Selected{Selector: "bob"}, at(7)); code != refusal.StaleSelector {
		t.Errorf("%+v: %q %s", a, string(code), detail)
	}

	next := facts()
	for n := range next.Projects {
		p := next.Projects[n]
		p.Label = "shop"
		next.Projects[n] = p
	}
	for n := range next.Servers {
		s := next.Servers[n]
		s.Label = "files"
		next.Servers[n] = s
	}
	r.on(func() { r.g.Registry().SetRoot(next) })
	before := r.stored()
	for uid, code := range map[uint32]refusal.Code{root: refusal.StaleSelector, owner: refusal.StaleSelector, member: ""} { // bob sees one shop only
		if detail, got := r.as(uid).ask(api.ProjectShow, api.Selected{Selector: "shop"}); got != code {
			t.Errorf("%d: %q %s", uid, string(got), detail)
		}
	}
	if detail, got := c.ask(api.ConnectionAdd, api.ConnectionParams{Project: string(id[ids.Project](blog)), Server: "files"}); got != refusal.StaleSelector {
		t.Errorf("%q %s", string(got), detail)
	}
	if r.stored() != before {
		t.Error("an ambiguous name changed something")
	}
	must[api.ConnectionResult](c, api.ConnectionAdd, api.ConnectionParams{Project: string(id[ids.Project](blog)), Server: string(id[ids.Server](files))})
}

func TestControl4_OneClientDelaysNoOther(t *testing.T) {
	r := newRig(t)
	silent, half, deaf := r.as(stranger), r.as(stranger), r.as(stranger)
	half.c.Write([]byte(`{"id":1,"action":"sta`))
	_ = silent
	line, _ := api.Encode(api.Request{ID: 1, Action: api.Status})
	deaf.c.SetWriteDeadline(time.Now().Add(time.Second))
	for err := error(nil); err == nil; _, err = deaf.c.Write([]byte(strings.Repeat(string(line), 100))) {
	} // until nobody takes more: its answers are not read
	begin := time.Now()
	for _, role := range roles {
		must[api.StatusResult](r.as(role.uid), api.Status, none{})
	}
	must[api.RevokeResult](r.as(owner), api.ConnectionDisable, api.ConnectionParams{Project: "shop", Server: "files"})
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("others waited %v", took)
	}
	resp, ok := half.line("tus\"}\n")
	if !ok || resp.Refusal != nil {
		t.Errorf("the slow one is answered %+v", resp)
	}
}

func TestControl4_LongLines(t *testing.T) {
	r := newRig(t)
	c := r.as(stranger)
	pad := func(n int) string {
		s := `{"id":1,"action":"status","request_id":"`
		return s + strings.Repeat("x", n-len(s)-2) + "\"}"
	}
	if resp, ok := c.line(pad(api.MaxLine-1) + "\n"); !ok || resp.Refusal != nil {
		t.Fatalf("a line of the limit: %+v", resp.Refusal)
	}
	if resp, ok := c.line(pad(api.MaxLine+64) + "\n"); !ok || resp.Refusal == nil || resp.Refusal.Code != refusal.TooLarge {
		t.Fatalf("a longer one: %+v, %v", resp, ok)
	}
	if _, ok := c.read(); ok {
		t.Fatal("the connection goes on after a line too long")
	}
	must[api.StatusResult](r.as(stranger), api.Status, none{})
}

func TestControl4_ConnectionsAreBoundedByUserAndRootFindsRoom(t *testing.T) {
	r := newRig(t)
	for uid := uint32(61100); uid < 61100+MaxClients/MaxPerUID; uid++ {
		for range MaxPerUID {
			must[api.StatusResult](r.as(uid), api.Status, none{})
		}
		if resp, ok := r.as(uid).read(); !ok || resp.Refusal == nil || resp.Refusal.Code != refusal.TooManySession {
			t.Fatalf("one more of uid %d: %+v", uid, resp)
		}
	}
	if resp, ok := r.as(owner).read(); !ok || resp.Refusal == nil || resp.Refusal.Code != refusal.TooManySession {
		t.Fatalf("when all is full: %+v", resp)
	}
	must[api.RevokeResult](r.as(root), api.AccountSuspend, api.Selected{Selector: "otto"})
}

func TestControl1_OnlyAHostMakesTasks(t *testing.T) {
	r := newRig(t)
	c := r.as(host)
	before := r.stored()
	for _, row := range []struct {
		says string
		p    api.TaskNewParams
		want refusal.Code
	}{
		{"a channel that is not the host's", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "telegram:+5511999998888"}, refusal.HostNotAssigned},
		{"a channel that the policy does not declare", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "mail:somebody"}, refusal.PrincipalRefused},
		{"a stranger", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:+5511000000000"}, refusal.PrincipalRefused},
		{"who is blocked", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:+5511777776666"}, refusal.PrincipalBlocked},
		{"no identity", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:*"}, refusal.PrincipalRefused},
		{"another account", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "local:" + string(id[ids.Account](bob))}, refusal.PrincipalRefused},
		{"a wider mode than the floor", api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:+5511999998888", Mode: "code"}, refusal.ModeFloor},
		{"another mode", api.TaskNewParams{Project: "shop", ForUID: owner, Mode: "chat"}, refusal.ModeUnknown},
		{"root", api.TaskNewParams{Project: "shop"}, refusal.BadRequest},
		{"a host", api.TaskNewParams{Project: "shop", ForUID: host}, refusal.BadRequest},
		{"a jail's user", api.TaskNewParams{Project: "shop", ForUID: 1_800_000_063}, refusal.BadRequest},
		{"a user the kernel cannot map", api.TaskNewParams{Project: "shop", ForUID: 65534}, refusal.BadRequest},
		{"no user at all", api.TaskNewParams{Project: "shop", ForUID: 1<<32 - 1}, refusal.BadRequest},
		{"an account without a role", api.TaskNewParams{Project: "shop", ForUID: other}, refusal.NotMember},
		{"a viewer", api.TaskNewParams{Project: "shop", ForUID: viewer}, refusal.NotMember},
		{"no such project", api.TaskNewParams{Project: "nothing", ForUID: owner}, refusal.ProjectUnknown},
		{"too long", api.TaskNewParams{Project: "shop", ForUID: owner, TTLMs: 24*3600*1000 + 1}, refusal.BadRequest},
		{"a time that wraps around", api.TaskNewParams{Project: "shop", ForUID: owner, TTLMs: 1<<63/1000000 + 1000}, refusal.BadRequest},
		{"too often", api.TaskNewParams{Project: "shop", ForUID: owner, Binds: 65}, refusal.BadRequest},
		{"less than never", api.TaskNewParams{Project: "shop", ForUID: owner, Binds: -1}, refusal.BadRequest},
	} {
		detail, code := c.ask(api.TaskNew, row.p)
		if code != row.want {
			t.Errorf("%s: %q %s, want %q", row.says, string(code), detail, string(row.want))
		}
	}
	if detail, code := c.ask(api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, Principal: "whatsapp:+5511000000000"}); !strings.Contains(string(detail), "whatsapp:+5511000000000") {
		t.Errorf("it is not refused by name: %q %s", string(code), detail)
	}
	if r.stored() != before {
		t.Error("a refused task is stored")
	}
	for principal, mode := range map[string]string{"whatsapp:+55 11 99999-8888": "search", "local:" + string(id[ids.Account](alice)): "code"} {
		got := must[api.TaskResult](c, api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, Principal: principal})
		if got.Principal != strings.NewReplacer(" ", "", "-", "").Replace(principal) && got.Principal != principal || got.Mode != mode || got.Account != string(id[ids.Account](alice)) {
			t.Errorf("%s: %+v", principal, got)
		}
	}
	for uid, account := range map[uint32]int{owner: alice, member: bob, 61999: alice} { // a runtime's own user acts for the owner
		got := must[api.TaskResult](c, api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: uid})
		if got.Account != string(id[ids.Account](account)) || got.Host != "agent" || got.Mode != "code" || got.Principal != "local:"+got.Account || !strings.HasPrefix(got.Token, "ptk_") || got.TokenFile != "" ||
			time.UnixMilli(got.Expires).Before(time.Now()) {
			t.Errorf("for %d: %+v", uid, got)
		}
	}
}

func TestATokenIsToldOnceAndNowhereElse(t *testing.T) {
	r := newRig(t)
	c := r.as(host)
	made := must[api.TaskResult](c, api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner})
	b, s := r.session(owner, made.Token)
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	for _, role := range roles {
		for _, q := range []struct {
			a api.Action
			p any
		}{{api.TaskList, none{}}, {api.TaskShow, api.TaskParams{Task: made.Task}}, {api.Activity, api.ActivityParams{}}, {api.Ps, none{}}, {api.Status, none{}}} {
			raw, _ := r.as(role.uid).ask(q.a, q.p)
			if strings.Contains(string(raw), "ptk_") || strings.Contains(string(raw), made.Token[4:]) {
				t.Errorf("%s shows a token to %s", q.a, role.name)
			}
		}
	}
	for says, text := range map[string]string{"the log": r.log.String(), "the store": r.stored()} {
		if strings.Contains(text, made.Token) || strings.Contains(text, made.Token[4:]) {
			t.Errorf("a token is in %s", says)
		}
	}
	for _, f := range []string{store.PolicyFile, store.ActivityFile, store.PolicyFile + "-wal", store.ActivityFile + "-wal"} {
		raw, err := os.ReadFile(r.dir + "/state/" + f)
		if err == nil && strings.Contains(string(raw), made.Token[4:]) {
			t.Errorf("a token is in %s", f)
		}
	}
	if got := must[api.TaskResult](c, api.TaskShow, api.TaskParams{Task: made.Task}); got.Sessions != 1 || got.Token != "" || got.Ended != 0 {
		t.Errorf("%+v", got)
	}

	// What is refused closes nothing.
	for _, p := range []api.TaskParams{{Task: made.Task, Binds: 1000}, {Task: made.Task, TTLMs: -5}, {Task: "tsk_x"}} {
		if detail, code := c.ask(api.TaskToken, p); code == "" {
			t.Fatalf("%s", detail)
		}
	}
	must[api.TaskResult](c, api.TaskToken, api.TaskParams{Task: made.Task}, dry)
	if _, code := b.admit(s, r.conn, "read_rows"); code != "" {
		t.Fatalf("a refused token closed the session: %q", string(code))
	}
	// A fresh one closes the former sessions, whose calls are unknown.
	again := must[api.TaskResult](c, api.TaskToken, api.TaskParams{Task: made.Task, File: true})
	if again.Token != "" || again.TokenFile == "" || again.Sessions != 0 {
		t.Fatalf("%+v", again)
	}
	raw, err := os.ReadFile(again.TokenFile)
	if err != nil || !strings.HasPrefix(string(raw), "ptk_") || string(raw) == made.Token+"\n" {
		t.Fatalf("%v", err)
	}
	if _, code := b.admit(s, r.conn, "read_rows"); code != refusal.SessionEnded {
		t.Fatalf("the former session: %q", string(code))
	}
	r.await("it is told so", func() bool { return b.sessions[s] == nil })
	page := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{})
	if i := slices.IndexFunc(page.Rows, func(x api.ActivityRow) bool { return x.Call == string(call) }); i < 0 || page.Rows[i].State != "unknown" {
		t.Fatalf("%+v", page.Rows)
	}
	r.session(owner, strings.TrimSuffix(string(raw), "\n"))
}

// A former token that still has a bind makes no session while the former sessions
// close: it ended before them.
func TestT2_AFormerTokenIsOverBeforeItsSessionsClose(t *testing.T) {
	r := newRig(t)
	c := r.as(host)
	made := must[api.TaskResult](c, api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, Binds: 3})
	r.session(owner, made.Token)
	bind := func(tok string) (code refusal.Code) {
		r.on(func() {
			_, code = r.g.Bind(gate.BindRequest{Project: id[ids.Project](shop), UID: owner, Token: tok})
		})
		return code
	}
	meanwhile := make(chan refusal.Code, 1)
	r.event(func() {
		r.onFence = func() {
			select {
			case meanwhile <- bind(made.Token):
			default:
			}
		}
	})
	again := must[api.TaskResult](c, api.TaskToken, api.TaskParams{Task: made.Task})
	if code := <-meanwhile; code != refusal.TokenInvalid {
		t.Errorf("while the sessions close: %q", string(code))
	}
	r.event(func() { r.onFence = nil })
	if got := must[api.TaskResult](c, api.TaskShow, api.TaskParams{Task: made.Task}); got.Sessions != 0 {
		t.Errorf("%d sessions are left", got.Sessions)
	}
	if code := bind(again.Token); code != "" {
		t.Errorf("the fresh one: %q", string(code))
	}
}

// TestE3_AFollowEndsWithWhatItsReaderMayRead: nothing is recorded after the change, and
// the follow ends all the same, also one that names no project.
func TestE3_AFollowEndsWithWhatItsReaderMayRead(t *testing.T) {
	const bound = 5 * time.Second // a second where nothing else runs
	begin := func(c *client, project string) {
		t.Helper()
		params, _ := api.EncodeValue(api.ActivityParams{Project: project, Since: 1, Follow: true})
		line, _ := api.Encode(api.Request{ID: 9, Action: api.Activity, Params: params})
		c.c.Write(line)
		if resp, ok := c.read(); !ok || resp.Event == nil {
			t.Fatalf("no frame: %+v", resp)
		}
	}
	for _, row := range []struct {
		says    string
		project string // "" is all
		want    refusal.Code
		cut     func(r *rig)
	}{
		{"the member was removed", "shop", refusal.ProjectUnknown, func(r *rig) {
			must[api.RevokeResult](r.as(root), api.MemberRemove, api.MemberParams{Project: "shop", Account: "bob"})
		}},
		{"the account was suspended", "", refusal.AccountSuspended, func(r *rig) { must[api.RevokeResult](r.as(root), api.AccountSuspend, api.Selected{Selector: "bob"}) }},
		{"the account was suspended, of one project", "shop", refusal.AccountSuspended, func(r *rig) { must[api.RevokeResult](r.as(root), api.AccountSuspend, api.Selected{Selector: "bob"}) }},
		{"the account was deleted", "", refusal.AccountUnknown, func(r *rig) {
			next := facts()
			bobs := next.Accounts[id[ids.Account](bob)]
			bobs.Deleted = true
			next.Accounts[bobs.ID] = bobs
			r.on(func() {
				if err := r.g.SetRoot(next); err != nil {
					t.Error(err)
				}
			})
		}},
		{"the uid is another account's", "", refusal.NotPermitted, func(r *rig) {
			next := facts()
			bobs, ottos := next.Accounts[id[ids.Account](bob)], next.Accounts[id[ids.Account](otto)]
			bobs.UIDs, ottos.UIDs = []uint32{61020}, append(ottos.UIDs, member)
			next.Accounts[bobs.ID], next.Accounts[ottos.ID] = bobs, ottos
			r.on(func() {
				if err := r.g.SetRoot(next); err != nil {
					t.Error(err)
				}
			})
		}},
		{"the project was deleted", "shop", refusal.ProjectUnknown, func(r *rig) {
			must[api.RevokeResult](r.as(root), api.ProjectDelete, api.Selected{Selector: "shop"})
		}},
	} {
		t.Run(row.says, func(t *testing.T) {
			r := newRig(t)
			b, s := r.session(member, "")
			if _, code := b.admit(s, r.conn, "read_rows"); code != "" {
				t.Fatal(string(code))
			}
			r.on(func() { r.g.Flush() })
			cut, others := r.as(member), r.as(root)
			begin(cut, row.project)
			begin(others, "")
			began := time.Now()
			row.cut(r)
			for { // his own call's end may still be told
				resp, ok := cut.read()
				if ok && resp.Event != nil {
					continue
				}
				if !ok || resp.Refusal == nil || resp.Refusal.Code != row.want {
					t.Fatalf("%+v, want %q", resp, string(row.want))
				}
				break
			}
			took := time.Since(began)
			t.Logf("it ended %v after the change began", took.Round(time.Microsecond))
			if took > bound {
				t.Errorf("it took %v", took)
			}
			// Another reader's goes on.
			r.on(func() {
				r.g.Bind(gate.BindRequest{Project: id[ids.Project](blog), UID: stranger})
				r.g.Flush()
			})
			for {
				resp, ok := others.read()
				if !ok || resp.Event == nil {
					t.Fatalf("another's follow: %+v", resp)
				}
				x, err := api.DecodeResult[api.ActivityRow](resp.Event)
				if err != nil {
					t.Fatal(err)
				}
				if x.Project == string(id[ids.Project](blog)) && x.State == "denied" {
					break
				}
			}
		})
	}
}

func TestATokenThatCannotBeDeliveredLeavesNoTask(t *testing.T) {
	r := newRig(t)
	r.event(func() { r.noFile = refusal.TokenFileUID })
	c := r.as(host)
	if _, code := c.ask(api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, File: true}); code != refusal.TokenFileUID {
		t.Fatalf("%q", string(code))
	}
	got := must[api.TaskListResult](c, api.TaskList, none{})
	if len(got.Tasks) != 1 || got.Tasks[0].Ended == 0 {
		t.Fatalf("%+v", got)
	}
	r.event(func() { r.noFile = "" })
	made := must[api.TaskResult](c, api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner, File: true})
	if made.TokenFile == "" || made.Token != "" {
		t.Fatalf("%+v", made)
	}
}

func TestARevocationListsWhatWasAdmittedBefore(t *testing.T) {
	r := newRig(t)
	b, s := r.session(member, "")
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	done, _ := b.admit(s, r.conn, "read_rows")
	b.send(wire.Ended{Call: done, Outcome: wire.Completed})
	r.settled("one is open", func() bool { return r.g.OpenCalls() == 1 })
	got := must[api.RevokeResult](r.as(owner), api.ConnectionRevoke, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"read_rows"}})
	if len(got.Stands) != 1 || got.Stands[0].Call != string(call) || got.Stands[0].Tool != "read_rows" || !got.Stands[0].CancelSent || got.Stands[0].State != "admitted" || got.Stands[0].AgeMs < 0 ||
		got.Fenced != 1 || got.Killed != 0 || !strings.Contains(got.Note, "stands") {
		t.Fatalf("%+v", got)
	}
	if len(b.cancels) != 1 || b.cancels[0].Call != call {
		t.Fatalf("%+v", b.cancels)
	}
	if _, code := b.admit(s, r.conn, "read_rows"); code != refusal.ToolNotGranted {
		t.Fatalf("%q", string(code))
	}
	got = must[api.RevokeResult](r.as(owner), api.AccountSuspend, api.Selected{Selector: "alice"})
	if got.Sessions != 0 {
		t.Fatalf("another account's session: %+v", got)
	}
	got = must[api.RevokeResult](r.as(root), api.MemberRemove, api.MemberParams{Project: "shop", Account: "bob"})
	if got.Sessions != 1 || len(got.Stands) != 1 {
		t.Fatalf("%+v", got)
	}
	r.await("the session's end", func() bool { return len(b.sessions) == 0 })
	person := must[api.TaskListResult](r.as(root), api.TaskList, none{}).Tasks
	if len(person) != 1 || person[0].Ended == 0 || person[0].Host != registry.LocalHost {
		t.Fatalf("%+v", person)
	}
	if out := must[api.RevokeResult](r.as(root), api.TaskRevoke, api.TaskParams{Task: person[0].Task}); !strings.Contains(out.Note, "person_bind") {
		t.Errorf("%q", out.Note)
	}
}

func TestAProbePinsAndAFailureSaysWhy(t *testing.T) {
	r := newRig(t)
	c := r.as(root)
	got := must[api.CatalogueResult](c, api.ServerProbe, api.Selected{Selector: "notes"})
	if len(got.Tools) != 3 || got.Unmatched != nil || got.Probed == 0 || got.Tools[0].Pin == "" || got.Tools[0].Title != "Read" || got.Tools[2].State != "quarantined" {
		t.Fatalf("%+v", got)
	}
	must[api.ConnectionResult](c, api.ConnectionAdd, api.ConnectionParams{Project: "shop", Server: "notes"})
	shown := must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "notes"})
	if shown.Readiness != "configured" || shown.Reason == "" || len(shown.Tools) != 3 || shown.Tools[0].Granted {
		t.Fatalf("a probe granted something: %+v", shown)
	}
	r.event(func() { r.list = `{"no":"list"}` })
	if detail, code := c.ask(api.ServerProbe, api.Selected{Selector: "notes"}); code != refusal.ServerUnavailable || len(detail) == 0 {
		t.Fatalf("%q %s", string(code), detail)
	}
	shown = must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "notes"})
	if shown.Readiness != "unavailable" || !strings.Contains(shown.Reason, "array") {
		t.Fatalf("%+v", shown)
	}
	shown = must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "files"})
	if shown.Readiness != "ready" {
		t.Fatalf("%+v", shown)
	}
}

func TestAProjectNamesItsOwner(t *testing.T) {
	r := newRig(t)
	shown := must[api.ProjectShowResult](r.as(owner), api.ProjectShow, api.Selected{Selector: "shop"})
	if shown.OwnerName != "alice" || shown.Owner == "" {
		t.Errorf("%+v", shown.ProjectResult)
	}
	for _, p := range must[api.ProjectListResult](r.as(owner), api.ProjectList, none{}).Projects {
		if p.OwnerName != "alice" || p.Owner == "" {
			t.Errorf("%+v", p)
		}
	}
}

func TestA7_AProbeTellsOfMarksThatMatchNoTool(t *testing.T) {
	r := newRig(t)
	r.on(func() {
		next := facts()
		next.Version = 2
		rev := next.Servers[id[ids.Server](2)].Revisions[id[ids.Revision](2)]
		rev.Tiers = map[string]class.Tier{"write_row": class.Destructive, "read_rows": class.Observe}
		if err := r.g.SetRoot(next); err != nil {
			t.Error(err)
		}
	})
	want := []string{`the tier of "write_row": the server lists no such tool; did you mean write_rows?`}
	if got := must[api.CatalogueResult](r.as(root), api.ServerProbe, api.Selected{Selector: "notes"}); !slices.Equal(got.Unmatched, want) {
		t.Errorf("%q", got.Unmatched)
	}
	if got := must[api.CatalogueResult](r.as(root), api.ServerCatalogue, api.Selected{Selector: "notes"}); !slices.Equal(got.Unmatched, want) {
		t.Errorf("%q", got.Unmatched)
	}
}

// Every page and every frame of a follow is authorized when it is shown.
func TestActivityIsAuthorizedPageByPage(t *testing.T) {
	r := newRig(t)
	b, s := r.session(member, "")
	call, _ := b.admit(s, r.conn, "read_rows")
	b.admit(s, r.conn, "write_rows")
	r.settled("both are recorded", func() bool { return r.g.Flush() == nil })
	for _, row := range []struct {
		uid  uint32
		rows int
	}{{root, 2}, {owner, 2}, {member, 2}, {viewer, 2}, {other, 0}, {host, 0}, {stranger, 0}} {
		got := must[api.ActivityResult](r.as(row.uid), api.Activity, api.ActivityParams{})
		if len(got.Rows) != row.rows {
			t.Errorf("%d sees %d rows", row.uid, len(got.Rows))
		}
	}
	page := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Project: "shop", State: "denied", Limit: 1})
	if len(page.Rows) != 1 || page.Rows[0].Tool != "write_rows" || page.Rows[0].Code != string(refusal.ToolNotGranted) || page.Rows[0].ArgsDigest == "" || page.Rows[0].ArgsSize != 2 {
		t.Fatalf("%+v", page)
	}
	// A cursor is a place and no authority.
	cur := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Limit: 1}).Cursor
	for _, uid := range []uint32{root, member, viewer, other, host, stranger} {
		for _, p := range []api.ActivityParams{{Cursor: cur}, {Cursor: cur, Follow: true}, {Cursor: cur, Export: true}} {
			if detail, code := r.as(uid).ask(api.Activity, p); code != refusal.StaleSelector || !strings.Contains(string(detail), "another account") {
				t.Fatalf("%d: %q %s", uid, string(code), detail)
			}
		}
	}
	if got := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Cursor: cur}); len(got.Rows) != 1 || got.Rows[0].Call != string(call) {
		t.Fatalf("%+v", got)
	}
	if _, code := r.as(owner).ask(api.Activity, api.ActivityParams{Cursor: "p0x1"}); code != refusal.StaleSelector {
		t.Fatalf("%q", string(code))
	}
	// Nor is one of records that are not here, as after a backup was restored.
	live := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{}).Follow
	ahead := strings.Replace(live, "f", "fz", 1)
	if _, code := r.as(owner).ask(api.Activity, api.ActivityParams{Cursor: ahead}); code != refusal.StaleSelector {
		t.Fatalf("%q", string(code))
	}
	must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Cursor: live})

	// bob follows twice: by project, and everything he may see.
	by, all := r.as(member), r.as(member)
	follow := func(c *client, p api.ActivityParams) {
		p.Follow = true
		params, _ := api.EncodeValue(p)
		line, _ := api.Encode(api.Request{ID: 9, Action: api.Activity, Params: params})
		c.c.Write(line)
	}
	frame := func(c *client) *api.ActivityRow {
		resp, ok := c.read()
		if !ok || resp.Event == nil {
			return nil
		}
		row, err := api.DecodeResult[api.ActivityRow](resp.Event)
		if err != nil {
			t.Fatal(err)
		}
		return &row
	}
	follow(by, api.ActivityParams{Project: "shop", Since: 1})
	follow(all, api.ActivityParams{Since: 1})
	for _, c := range []*client{by, all} {
		for range 2 {
			if row := frame(c); row == nil {
				t.Fatal("the follow does not begin where it was asked to")
			}
		}
	}
	second, _ := b.admit(s, r.conn, "read_rows")
	for _, c := range []*client{by, all} {
		if row := frame(c); row == nil || row.Call != string(second) || row.State != "admitted" {
			t.Fatalf("%+v", row)
		}
	}
	b.send(wire.Ended{Call: second, Outcome: wire.Completed})
	for _, c := range []*client{by, all} {
		if row := frame(c); row == nil || row.Call != string(second) || row.State != "completed" {
			t.Fatalf("%+v", row)
		}
	}
	must[api.RevokeResult](r.as(root), api.MemberRemove, api.MemberParams{Project: "shop", Account: "bob"})
	b2, s2 := r.session(owner, "")
	if _, code := b2.admit(s2, r.conn, "read_rows"); code != "" {
		t.Fatal(string(code))
	}
	r.on(func() { r.g.Flush() })
	// The first is refused; the second stays open and silent, which a status on the
	// same account, asked afterwards, can not tell from slowness: so its next frame
	// must be what bob may see again, and nothing of what lay between.
	if resp, ok := by.read(); !ok || resp.Refusal == nil || resp.Refusal.Code != refusal.ProjectUnknown {
		t.Fatalf("the follow of a project goes on for a removed member: %+v", resp)
	}
	must[api.MemberResult](r.as(root), api.MemberAdd, api.MemberParams{Project: "shop", Account: "bob"})
	b3, s3 := r.session(member, "")
	third, code := b3.admit(s3, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	row := frame(all)
	for row != nil && row.Session == string(s) { // the end of his own former session's calls
		row = frame(all)
	}
	if row == nil || row.Call != string(third) {
		t.Fatalf("%+v, want %s", row, third)
	}
}

func TestADeletedProjectIsGoneForEverybody(t *testing.T) {
	r := newRig(t)
	b, s := r.session(member, "")
	call, _ := b.admit(s, r.conn, "read_rows")
	got := must[api.RevokeResult](r.as(owner), api.ProjectDelete, api.Selected{Selector: "shop"})
	if got.Sessions != 1 || len(got.Stands) != 1 || got.Stands[0].Call != string(call) {
		t.Fatalf("%+v", got)
	}
	r.await("root's tombstone is asked for", func() bool {
		return slices.ContainsFunc(r.orders, func(o order.Up) bool { x, ok := o.(order.Retire); return ok && x.Project == id[ids.Project](shop) })
	})
	if text := r.stored(); strings.Contains(text, "Tool:read_rows Served") {
		t.Error("grants are left")
	}
	page, err := r.s.Calls(store.Query{})
	if err != nil || len(page.Calls) == 0 {
		t.Fatal("the records went too", err)
	}
}

func TestErrorsAreToldInTheTablesWords(t *testing.T) {
	r := newRig(t)
	srv := &Server{log: hclog.New(&hclog.LoggerOptions{Output: r.log})}
	for says, row := range map[string]struct {
		err  error
		want refusal.Code
	}{
		"a code":            {refusal.Busy, refusal.Busy},
		"a refusal":         {api.Refuse(refusal.NotFound, "x"), refusal.NotFound},
		"a wrapped code":    {fmt.Errorf("x: %w", refusal.TaskEnded), refusal.TaskEnded},
		"too long a wait":   {context.DeadlineExceeded, refusal.Busy},
		"nobody waits":      {context.Canceled, refusal.Busy},
		"none of the table": {errors.New("open /secret/path: disk I/O error"), refusal.Internal},
	} {
		if got := srv.refuse(api.Status, row.err); got.Code != row.want || strings.Contains(got.Error(), "secret") {
			t.Errorf("%s: %+v", says, got)
		}
	}
	if !strings.Contains(r.log.String(), "secret") {
		t.Error("an error stops nowhere")
	}
	if got := told(fmt.Errorf("tool %q: %w", "x", refusal.ToolNotGranted)); got.Error() != api.Refuse(refusal.ToolNotGranted, "tool %q", "x").Error() {
		t.Errorf("%v", got)
	}
}
