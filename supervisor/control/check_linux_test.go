package control

import (
	"slices"
	"strings"
	"testing"

	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
)

func TestA3_ACheckOverTheSocketIsDecidedAndRecorded(t *testing.T) {
	r := newRig(t)
	task := r.newTask(alice)
	workspace := "/srv/shop"
	r.on(func() {
		root := *r.g.Registry().Root()
		for pid, p := range root.Projects {
			p.Workspace = workspace
			root.Projects[pid] = p
		}
		r.g.Registry().SetRoot(&root)
	})
	for _, row := range []struct {
		name string
		p    api.CheckParams
		want refusal.Code
	}{
		{"inside", api.CheckParams{Tool: "Read", Paths: []string{workspace + "/a"}}, ""},
		{"outside", api.CheckParams{Tool: "Read", Paths: []string{"/etc/passwd"}}, refusal.PathOutside},
		{"one of two outside", api.CheckParams{Tool: "read_many_files", Paths: []string{workspace + "/a", workspace + "/../b"}}, refusal.PathOutside},
		{"unjudged", api.CheckParams{Tool: "Read", Unjudged: true}, refusal.PathOutside},
		{"programs", api.CheckParams{Tool: "Bash"}, refusal.ApprovalRequired},
		{"nobody's", api.CheckParams{Tool: "mcp__other__x"}, refusal.ToolUnknown},
	} {
		row.p.Task, row.p.ArgsDigest, row.p.ArgsSize = string(task), strings.Repeat("cd", 32), 7
		got := must[api.CheckResult](r.as(owner), api.Check, row.p)
		if got.Allowed != (row.want == "") || got.Code != string(row.want) || got.Task != string(task) || (got.Refusal == nil) != got.Allowed {
			t.Errorf("%s: %+v, want %q", row.name, got, string(row.want))
		}
		if got.Refusal != nil && (got.Refusal.Sentence != refusal.Of(row.want).Sentence || got.Refusal.Help != row.want.Help()) {
			t.Errorf("%s: %+v", row.name, got.Refusal)
		}
		rec := must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{Limit: 1}).Rows[0]
		state := "denied"
		if row.want == "" {
			state = "completed"
		}
		if rec.State != state || rec.Code != string(row.want) || rec.Tool != row.p.Tool || rec.Task != string(task) || rec.ArgsSize != 7 {
			t.Errorf("%s: recorded %+v", row.name, rec)
		}
	}
	// Which path it was is told to whoever may have the task explained, escaped, and bounded.
	long := "/etc/\x1b[2J" + strings.Repeat("x", 3000)
	got := must[api.CheckResult](r.as(owner), api.Check, api.CheckParams{Task: string(task), Tool: "Read", Paths: []string{long}})
	if len(got.Rules) != 1 || !strings.Contains(got.Rules[0].Read, `/etc/\x1b[2Jxxx`) || len(got.Rules[0].Read) > activity.MaxReason {
		t.Errorf("%+v", got.Rules)
	}
	got = must[api.CheckResult](r.as(owner), api.Check, api.CheckParams{Task: string(task), Tool: "read_many_files", Paths: []string{workspace + "/mine", "/etc/passwd"}})
	if len(got.Rules) != 1 || got.Rules[0].Read != `path 2 of 2, "/etc/passwd": it leads out of the directory` {
		t.Errorf("%+v", got.Rules)
	}
	// Every rule that denies is told, in the order of explain and with its words; what each
	// read, and where, to whoever may have the task explained.
	theirs := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: stranger, Principal: "whatsapp:+5511999998888"}).Task
	for _, with := range [][]option{nil, {dry}} {
		got := must[api.CheckResult](r.as(owner), api.Check, api.CheckParams{Task: theirs, Tool: "Bash"}, with...)
		var want []api.RuleResult
		for _, x := range must[api.ExplainResult](r.as(owner), api.Explain, api.ExplainParams{AskerParams: api.AskerParams{Task: theirs}, Tool: "Bash"}).Rules {
			if x.Answer == "denies" {
				want = append(want, x)
			}
		}
		if len(got.Also) == 0 || len(got.Rules) != 1+len(got.Also) || got.Rules[0].Read == "" || !strings.HasPrefix(got.Rules[0].From, "access.yaml:") {
			t.Errorf("%+v", got)
		}
		if !slices.Equal(got.Rules, want) {
			t.Errorf("check %+v\nexplain %+v", got.Rules, want)
		}
		own := must[api.CheckResult](r.as(stranger), api.Check, api.CheckParams{Task: theirs, Tool: "Bash"}, with...)
		for i, x := range own.Rules {
			if x.Read != "" || x.From != "" || x.Code != got.Rules[i].Code || x.Sentence == "" {
				t.Errorf("the runtime's own user is told %+v", x)
			}
		}
		if len(own.Rules) != len(got.Rules) {
			t.Errorf("the runtime's own user is told %d rules of %d", len(own.Rules), len(got.Rules))
		}
	}
	// A dry run records nothing.
	before := len(must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{}).Rows)
	if got := must[api.CheckResult](r.as(owner), api.Check, api.CheckParams{Task: string(task), Tool: "WebFetch"}, dry); !got.Allowed {
		t.Errorf("%+v", got)
	}
	if after := len(must[api.ActivityResult](r.as(owner), api.Activity, api.ActivityParams{}).Rows); after != before {
		t.Errorf("%d records became %d", before, after)
	}
	for _, bad := range []api.CheckParams{{Tool: "Read"}, {Task: string(task)}, {Task: string(task), Project: "shop", Tool: "Read"}, {Task: string(task), Tool: "Read", ArgsDigest: "ab"}, {Task: string(task), Tool: "Read", ArgsSize: -1},
		{Task: string(task), Tool: strings.Repeat("x", api.MaxSelector+1)}} {
		if _, code := r.as(owner).ask(api.Check, bad); code != refusal.BadRequest {
			t.Errorf("%+v: %q", bad, string(code))
		}
	}
}

// The user a task's runtime runs as asks for that task and for no other.
func TestControl1_ARuntimeChecksForItsOwnTaskOnly(t *testing.T) {
	r := newRig(t)
	const runtimes = 61077
	tok := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: runtimes})
	others := r.newTask(alice)
	if got := must[api.CheckResult](r.as(runtimes), api.Check, api.CheckParams{Task: tok.Task, Tool: "WebFetch"}); !got.Allowed {
		t.Errorf("its own: %+v", got)
	}
	for _, task := range []string{string(others), "tsk_nothing", ""} {
		detail, code := r.as(runtimes).ask(api.Check, api.CheckParams{Task: task, Tool: "WebFetch"})
		if code != refusal.TaskUnknown && task != "" || task == "" && code != refusal.BadRequest {
			t.Errorf("%q: %q %s", task, string(code), detail)
		}
	}
	if _, code := r.as(member).ask(api.Check, api.CheckParams{Task: tok.Task, Tool: "WebFetch"}); code != refusal.TaskUnknown {
		t.Errorf("another member: %q", string(code))
	}
}
