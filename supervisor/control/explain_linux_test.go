package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

func forTask(t ids.Task, tool string) api.ExplainParams {
	return api.ExplainParams{AskerParams: api.AskerParams{Task: string(t)}, Tool: tool}
}

func TestA6_ExplainOverTheSocket(t *testing.T) {
	r := newRig(t)
	task := r.newTask(alice)
	before := r.stored()
	yes := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "read_rows"))
	if !yes.Allowed || yes.Code != "" || yes.State != "visible" || yes.Server != "files" || yes.Task != string(task) || yes.ProjectLabel != "shop" || yes.Advice != "" {
		t.Errorf("%+v", yes)
	}
	for _, x := range yes.Rules {
		if x.Answer != "passes" || x.Read == "" || x.From == "" || x.Code != "" {
			t.Errorf("%+v", x)
		}
	}
	no := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "write_rows"))
	if no.Allowed || no.Code != "tool_not_granted" || no.Sentence != refusal.Of(refusal.ToolNotGranted).Sentence || no.Advice == "" || no.Help != "refusals#tool_not_granted" || no.State != "registered" {
		t.Errorf("%+v", no)
	}
	i := slices.IndexFunc(no.Rules, func(x api.RuleResult) bool { return x.Answer == "denies" })
	if i < 0 || no.Rules[i].Rule != "grant" || no.Rules[i].Sentence != no.Sentence || !slices.ContainsFunc(no.Rules, func(x api.RuleResult) bool { return x.Answer == "not asked" && x.Rule == "pin" }) {
		t.Errorf("%+v", no.Rules)
	}
	unknown := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "nothing"))
	if unknown.Code != "tool_unknown" || unknown.Allowed || unknown.Connection != "" {
		t.Errorf("%+v", unknown)
	}
	// An ambiguous name lists what it can mean; by its connection it means one thing.
	r.on(func() {
		pins := r.g.Registry().Catalogue(id[ids.Revision](files))
		var list []registry.Pin
		for _, name := range pins.Order {
			list = append(list, *pins.Tools[name])
		}
		ch, err := r.g.Registry().PutCatalogue(id[ids.Revision](notes), time.Now(), "", "", list)
		if err == nil {
			err = r.g.Apply(ch)
		}
		if err == nil {
			ch, err = r.g.Registry().AddConnection(fresh[ids.Connection](), id[ids.Project](shop), id[ids.Server](notes), registry.Keyless, time.Now())
		}
		if err == nil {
			err = r.g.Apply(ch)
		}
		if err != nil {
			t.Error(err)
		}
	})
	detail, code := r.as(owner).ask(api.Explain, forTask(task, "odd"))
	if code != refusal.StaleSelector || !strings.Contains(string(detail), `"files.odd", "notes.odd"`) {
		t.Errorf("%q: %s", string(code), detail)
	}
	if one := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "notes.read_rows")); one.Server != "notes" || one.Code != "tool_not_granted" {
		t.Errorf("%+v", one)
	}
	for _, bad := range []api.ExplainParams{{Tool: "read_rows"}, {AskerParams: api.AskerParams{Project: "shop"}}, {AskerParams: api.AskerParams{Task: string(task), Mode: "code"}, Tool: "x"},
		{AskerParams: api.AskerParams{Project: "shop"}, Tool: strings.Repeat("x", api.MaxSelector+1)}} {
		if _, code := r.as(owner).ask(api.Explain, bad); code != refusal.BadRequest {
			t.Errorf("%+v: %q", bad, string(code))
		}
	}
	if after := r.stored(); strings.Count(after, "tsk_") != strings.Count(before, "tsk_") {
		t.Error("a task was made")
	}
}

// A project whose directory is another one kept its server from starting, and was
// explained by that pause alone.
func TestA6_AReplacedDirectoryIsExplainedAsOne(t *testing.T) {
	r := newRig(t)
	task := r.newTask(alice)
	if yes := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "read_rows")); !yes.Allowed {
		t.Fatalf("%+v", yes)
	}
	r.replaced.Store(true)
	no := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "read_rows"))
	i := slices.IndexFunc(no.Rules, func(x api.RuleResult) bool { return x.Answer == "denies" })
	if no.Code != "project_replaced" || i < 0 || no.Rules[i].Rule != "project" || !strings.Contains(no.Rules[i].Read, "another directory") || no.Rules[i].From == "" {
		t.Errorf("%+v", no)
	}
	if _, code := r.as(stranger).ask(api.Explain, forTask(task, "read_rows")); code != refusal.TaskUnknown {
		t.Errorf("a stranger is told %q", string(code))
	}
}

func TestC10_CapabilitiesTellEverythingThatIsKnown(t *testing.T) {
	r := newRig(t)
	task := r.newTask(alice)
	states := func(uid uint32) map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, x := range must[api.CapabilitiesResult](r.as(uid), api.Capabilities, api.CapabilitiesParams{AskerParams: api.AskerParams{Task: string(task)}}).Rows {
			if x.State != "visible" && x.Reason == "" {
				t.Errorf("%+v has no reason", x)
			}
			out[x.Server+"."+x.Tool] = x.State
		}
		return out
	}
	want := map[string]string{"files.read_rows": "visible", "files.write_rows": "registered", "files.odd": "unhealthy", "notes.": "not_configured"}
	same(t, "at first", states(owner), want)
	// A host sees no server that is not the project's.
	delete(want, "notes.")
	same(t, "to the host", states(host), want)

	// The server goes down: said, not hidden.
	b, s := r.session(owner, "")
	want["notes."] = "not_configured"
	same(t, "with its server up", states(owner), want)
	r.say(order.Exited{Jail: b.started[r.conn].Instance, Status: 3})
	r.settled("the end of the server", func() bool { return r.w.Down(id[ids.Project](shop), r.conn) != "" })
	want["files.read_rows"] = "unhealthy"
	same(t, "with its server down", states(owner), want)
	shown := must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "files"})
	if shown.Readiness != "unavailable" || !slices.ContainsFunc(shown.Tools, func(x api.ToolResult) bool { return x.Tool == "read_rows" && x.State == "unhealthy" }) {
		t.Errorf("connection show says %+v", shown)
	}
	// It is started again, and rests: how the one before ended is no reason any more.
	down := b.started[r.conn].Instance
	b.send(wire.Start{Seq: 2, Session: s, Connection: r.conn, Tool: "read_rows"})
	r.await("its server", func() bool { return b.started[r.conn].Instance != down })
	r.settled("it is ready", func() bool { return r.w.States()["ready"] == 1 })
	for _, when := range []string{"with its server up again", "while its server rests"} {
		r.settled(when, func() bool { return r.w.Down(id[ids.Project](shop), r.conn) == "" })
		want["files.read_rows"] = "visible"
		same(t, when, states(owner), want)
		shown = must[api.ConnectionResult](r.as(owner), api.ConnectionShow, api.ConnectionParams{Project: "shop", Server: "files"})
		if shown.Readiness != "ready" || shown.Reason != "" {
			t.Errorf("%s: connection show says %+v", when, shown)
		}
		if x := must[api.ExplainResult](r.as(owner), api.Explain, forTask(task, "read_rows")); x.State != "visible" || x.Reason != "" {
			t.Errorf("%s: explain says %+v", when, x)
		}
		if err := r.w.Do(t.Context(), func() { r.w.Drop(id[ids.Project](shop), r.conn) }); err != nil {
			t.Fatal(err)
		}
		r.settled("its end", func() bool { return r.w.Count().Servers == 0 })
	}
}

func same(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q", when, k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}

// TestC093_ADenialIsExplainedFromItsRecord: a tool that does not exist and one that is
// denied have records that differ, and each says why.
func TestC093_ADenialIsExplainedFromItsRecord(t *testing.T) {
	r := newRig(t)
	b, s := r.session(owner, "")
	call, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	if _, code := b.admit(s, r.conn, "write_rows"); code != refusal.ToolNotGranted {
		t.Fatal(string(code))
	}
	if _, code := b.admit(s, "", "nothing"); code != refusal.ToolUnknown {
		t.Fatal(string(code))
	}
	rows := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{}).Rows
	if len(rows) != 3 {
		t.Fatalf("%+v", rows)
	}
	show := func(name string) api.RecordResult {
		t.Helper()
		return must[api.RecordResult](r.as(owner), api.ActivityShow, api.RecordParams{Record: name})
	}
	unknown, denied := show(rows[0].Cursor), show(rows[1].Cursor)
	if unknown.Code != "tool_unknown" || denied.Code != "tool_not_granted" || denied.Tool != "write_rows" || unknown.Sentence == denied.Sentence {
		t.Errorf("%+v, %+v", unknown, denied)
	}
	if len(denied.Denies) != 1 || denied.Denies[0].Code != "tool_not_granted" || denied.Advice != refusal.ToolNotGranted.Advice() || denied.Help == "" || !strings.Contains(denied.Policy, "tier=") {
		t.Errorf("%+v", denied)
	}
	// What was denied then stays so in the record, whatever is granted since.
	must[api.ConnectionResult](r.as(root), api.ConnectionGrant, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}})
	if again := show(rows[1].Cursor); again.Code != denied.Code || len(again.Denies) != 1 {
		t.Errorf("%+v", again)
	}
	if now := must[api.ExplainResult](r.as(owner), api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Project: "shop"}, Tool: "write_rows"}); !now.Allowed {
		t.Errorf("%+v", now)
	}
	if admitted := show(string(call)); admitted.Call != string(call) || admitted.State != "admitted" || len(admitted.Denies) != 0 || admitted.Code != "" {
		t.Errorf("%+v", admitted)
	}
	for _, name := range []string{"p0", "p1", "p999", "x", "f1.0", "f999.0", "w1.1.1.1.1", string(fresh[ids.Call]()), strings.Repeat("p", 99)} {
		if _, code := r.as(owner).ask(api.ActivityShow, api.RecordParams{Record: name}); code != refusal.NotFound {
			t.Errorf("%q: %q", name, string(code))
		}
	}
	for _, name := range []string{rows[1].Cursor, string(call)} {
		if again := must[api.RecordResult](r.as(owner), api.ActivityShow, api.RecordParams{Record: name}); again.Cursor == "" {
			t.Errorf("%q: %+v", name, again)
		}
		if _, code := r.as(other).ask(api.ActivityShow, api.RecordParams{Record: name}); code != refusal.NotFound {
			t.Errorf("%q to somebody else: %q", name, string(code))
		}
	}
}

func TestC10_NativeToolsAreListedWithTheirState(t *testing.T) {
	r := newRig(t)
	task, c := r.newTask(alice), r.as(owner)
	ask := api.CapabilitiesParams{AskerParams: api.AskerParams{Task: string(task)}}
	count := func(p api.CapabilitiesParams) map[string]api.CapabilityRow {
		out := map[string]api.CapabilityRow{}
		for _, x := range must[api.CapabilitiesResult](c, api.Capabilities, p).Rows {
			if x.Kind == "native" {
				out[x.Tool] = x
			}
		}
		return out
	}
	if n := count(ask); len(n) != 0 {
		t.Errorf("unasked: %v", n)
	}
	ask.Native = true
	n := count(ask)
	for _, known := range class.Natives() {
		x := n[known.Name]
		if x.State == "" || x.State != "visible" && x.Reason == "" || len(x.Runtimes) == 0 {
			t.Errorf("%s: %+v", known.Name, x)
		}
		e := must[api.ExplainResult](c, api.Explain, forTask(task, known.Name))
		if e.Native && (e.State != x.State || e.Code != x.Code) {
			t.Errorf("%s is explained as %s, %s and listed as %s, %s", known.Name, e.State, e.Code, x.State, x.Code)
		}
	}
	if n["Bash"].State != "denied(policy)" || n["WebFetch"].State != "visible" {
		t.Errorf("%+v, %+v", n["Bash"], n["WebFetch"])
	}
}

// TestC174_AClientThatNeverListsAgainIsToldClearly: a tool is revoked in the middle of
// a session whose client goes on calling it. It hears the table's code each time, the
// session goes on, and who revoked what when is found from the record.
func TestC174_AClientThatNeverListsAgainIsToldClearly(t *testing.T) {
	r := newRig(t)
	must[api.ConnectionResult](r.as(root), api.ConnectionGrant, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"write_rows"}})
	b, s := r.session(owner, "")
	if _, code := b.admit(s, r.conn, "read_rows"); code != "" {
		t.Fatal(string(code))
	}
	must[api.RevokeResult](r.as(owner), api.ConnectionRevoke, api.ConnectionParams{Project: "shop", Server: "files", Tools: []string{"read_rows"}})
	for range 3 {
		if _, code := b.admit(s, r.conn, "read_rows"); code != refusal.ToolNotGranted {
			t.Fatalf("after the revocation: %q", string(code))
		}
	}
	if _, code := b.admit(s, r.conn, "write_rows"); code != "" {
		t.Fatalf("its sibling, in the same session: %q", string(code))
	}
	var denied api.ActivityRow
	for _, x := range must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{State: "denied"}).Rows {
		denied = x
	}
	rec := must[api.RecordResult](r.as(owner), api.ActivityShow, api.RecordParams{Record: denied.Cursor})
	if rec.Code != "tool_not_granted" || rec.Time == 0 || rec.Revision != string(id[ids.Revision](files)) || !strings.Contains(rec.Policy, "facts=") {
		t.Errorf("%+v", rec)
	}
}

// A member was shown what the owner may do, and took it for what they may.
func TestA6_WhoeverConnectsIsToldOfThemselves(t *testing.T) {
	r := newRig(t)
	of := func(uid uint32, principal string) string {
		t.Helper()
		p := api.AskerParams{Project: "shop", Principal: principal}
		return must[api.ExplainResult](r.as(uid), api.Explain, api.ExplainParams{AskerParams: p, Tool: "read_rows"}).Principal
	}
	local := func(n int) string { return access.Local(id[ids.Account](n)) }
	for uid, want := range map[uint32]string{owner: local(alice), member: local(bob), viewer: local(alice), host: local(alice), root: local(alice)} {
		if got := of(uid, ""); got != want {
			t.Errorf("uid %d is told of %q, not %q", uid, got, want)
		}
	}
	if got := of(root, "local:bob"); got != local(bob) {
		t.Errorf("an account's name means %q to root", got)
	}
	// Whose name it is, nobody else is told.
	if got := of(owner, "local:bob"); got != "local:bob" {
		t.Errorf("an account's name means %q to an owner", got)
	}
}

func TestA6_AMemberWhomThePolicyDoesNotAdmitIsNamed(t *testing.T) {
	r := newRig(t)
	add := func(name, role string) string {
		t.Helper()
		return must[api.MemberResult](r.as(root), api.MemberAdd, api.MemberParams{Project: "shop", Account: name, Role: role}).Note
	}
	if note := add("otto", registry.Member); note != "" {
		t.Errorf("of one who is admitted: %q", note)
	}
	r.on(func() {
		next := facts()
		next.Version, next.Access = 2, nil // without a file owners alone are admitted
		if err := r.g.SetRoot(next); err != nil {
			t.Error(err)
		}
	})
	if note := add("bob", registry.Member); !strings.Contains(note, "postern access set local bob LEVEL") {
		t.Errorf("of one who is not: %q", note)
	}
	no := must[api.ExplainResult](r.as(root), api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Project: "shop", Principal: "local:bob"}, Tool: "read_rows"})
	if no.Allowed || no.Code != "principal_refused" {
		t.Errorf("%+v", no)
	}
	if note := add("bob", registry.Viewer); note != "" {
		t.Errorf("of one who only looks: %q", note)
	}
}

// What is wrong with the policy is in the status, for root with its line.
func TestC8_TheStatusTellsOfAMistakeInThePolicy(t *testing.T) {
	r := newRig(t)
	whole := must[api.StatusResult](r.as(root), api.Status, none{})
	if whole.Access != "read" || whole.AccessError != "" {
		t.Errorf("in order: %+v", whole)
	}
	r.on(func() {
		next := facts()
		next.Version = 2
		next.Access, _ = access.Parse([]byte("channels: {w: {access: {users: {x: {level: raed}}}}}"))
		if err := r.g.SetRoot(next); err != nil {
			t.Error(err)
		}
	})
	got := must[api.StatusResult](r.as(root), api.Status, none{})
	if got.Access != "mistaken" || got.AccessError != "access.yaml:1: channels.w.access.users.x.level: want chat, read or full" {
		t.Errorf("%+v", got)
	}
	if m := must[api.MetricsResult](r.as(root), api.Metrics, none{}); m.Access != "mistaken" {
		t.Errorf("%+v", m)
	}
	// Everybody is told that, and nobody else than root what the file says.
	if got := must[api.StatusResult](r.as(owner), api.Status, none{}); got.Access != "mistaken" || got.StatusCounts != nil {
		t.Errorf("%+v", got)
	}
}
