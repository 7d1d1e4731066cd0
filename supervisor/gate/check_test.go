package gate

import (
	"slices"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// podWorld is a world whose project may run programs.
func podWorld(t *testing.T) *world {
	w := newWorld(t)
	w.editProject(func(p *registry.RootProject) {
		p.ExecutionProfile, p.Workspace = policy.ProfileIsolatedPod, "/home/alice/shop"
	})
	return w
}

func (w *world) check(q Native, seen Seen) Checked {
	w.t.Helper()
	return w.g.Check(w.reg().Task(w.task), q, seen)
}

func TestA3_ACheckIsDecidedByTheRulesOfACallAndRecorded(t *testing.T) {
	inside := Seen{Asked: true, Inside: true}
	for _, row := range []struct {
		name string
		take func(*world)
		q    Native
		seen Seen
		want refusal.Code
	}{
		{"a read inside", func(*world) {}, Native{Tool: "Read", Paths: []string{"/home/alice/shop/a"}}, inside, ""},
		{"the web", func(*world) {}, Native{Tool: "WebFetch"}, Seen{}, ""},
		{"a write inside", func(*world) {}, Native{Tool: "write_file", Paths: []string{"/home/alice/shop/a"}}, inside, ""},
		{"a read outside", func(*world) {}, Native{Tool: "Read", Paths: []string{"/etc/passwd"}}, Seen{Asked: true}, refusal.PathOutside},
		{"a patch inside", func(*world) {}, Native{Tool: "apply_patch", Paths: []string{"/home/alice/shop/a"}}, inside, ""},
		{"a patch outside", func(*world) {}, Native{Tool: "apply_patch", Paths: []string{"/etc/passwd"}}, Seen{Asked: true}, refusal.PathOutside},
		{"a patch of nothing that is told", func(*world) {}, Native{Tool: "apply_patch"}, inside, refusal.PathOutside},
		{"no path where one belongs", func(*world) {}, Native{Tool: "Read"}, inside, refusal.PathOutside},
		{"paths that are none", func(*world) {}, Native{Tool: "Read", Unjudged: true}, inside, refusal.PathOutside},
		{"too many paths", func(*world) {}, Native{Tool: "Read", Paths: slices.Repeat([]string{"/home/alice/shop/a"}, MaxNativePaths+1)}, inside, refusal.PathOutside},
		{"a path longer than any", func(*world) {}, Native{Tool: "Read", Paths: []string{"/" + strings.Repeat("x", wire.MaxPath)}}, inside, refusal.PathOutside},
		{"as long as one may be", func(*world) {}, Native{Tool: "Read", Paths: []string{strings.Repeat("x", wire.MaxPath)}}, inside, ""},
		{"more bytes than a question has room for", func(*world) {}, Native{Tool: "Read", Paths: slices.Repeat([]string{strings.Repeat("x", wire.MaxPath)}, 5)}, inside, refusal.PathOutside},
		{"characters that no path has", func(*world) {}, Native{Tool: "Read", Paths: []string{"a\x01b"}}, inside, refusal.PathOutside},
		{"nobody could look", func(*world) {}, Native{Tool: "Read", Paths: []string{"/home/alice/shop/a"}}, Seen{Asked: true, Code: refusal.Busy}, refusal.Busy},
		{"the directory is another", func(*world) {}, Native{Tool: "Read", Paths: []string{"/home/alice/shop/a"}}, Seen{Asked: true, Code: refusal.ProjectReplaced}, refusal.ProjectReplaced},
		{"what runs programs", func(*world) {}, Native{Tool: "Bash"}, Seen{}, refusal.ApprovalRequired},
		{"a name of no table", func(*world) {}, Native{Tool: "Frobnicate"}, Seen{}, refusal.ToolUnknown},
		{"another case", func(*world) {}, Native{Tool: "webfetch"}, Seen{}, refusal.ToolUnknown},
		{"the account is suspended", func(w *world) { w.do(w.reg().Suspend(id[ids.Account](alice), true, 0)) }, Native{Tool: "WebFetch"}, Seen{}, refusal.AccountSuspended},
		{"the host is gone", func(w *world) { w.root(func(r *registry.Root) { delete(r.Hosts, "agent") }) }, Native{Tool: "WebFetch"}, Seen{}, refusal.HostUnknown},
		{"the task has ended", func(w *world) { w.do(w.reg().EndTask(w.task, "revoked", w.now)) }, Native{Tool: "WebFetch"}, Seen{}, refusal.TaskEnded},
		{"the project is deleted", func(w *world) { w.editProject(func(p *registry.RootProject) { p.Deleted = true }) }, Native{Tool: "WebFetch"}, Seen{}, refusal.ProjectDeleted},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := podWorld(t)
			row.take(w)
			row.q.RequestID, row.q.Digest, row.q.Size = "toolu_1", strings.Repeat("ab", 32), 9
			d := w.check(row.q, row.seen)
			if d.Ask != nil || d.Verdict.Code != row.want || d.Verdict.Allow != (row.want == "") {
				t.Fatalf("%+v, want %q", d, string(row.want))
			}
			w.commit()
			rec := w.records()[0]
			want := store.Denied
			if row.want == "" {
				want = store.Completed
			}
			if rec.State != want || rec.Code != row.want || rec.Task != w.task || rec.Tool != row.q.Tool || rec.Session != "" || rec.Connection != "" || rec.RequestID != "toolu_1" || rec.ArgsSize != 9 || rec.ArgsDigest[0] != 0xab {
				t.Errorf("recorded %+v", rec)
			}
			if row.want == "" && (rec.Ended == 0 || rec.Reason != checkedNote || rec.ID == "") || row.want != "" && !strings.Contains(rec.Policy, "denies=") {
				t.Errorf("recorded %+v", rec)
			}
			if w.g.OpenCalls() != 0 {
				t.Error("a check is open")
			}
			if e := w.g.ExplainNative(w.reg().Task(w.task), row.q.Tool); row.want != "" && row.want != refusal.PathOutside && row.seen.Code == "" && e.Verdict.Code != row.want {
				t.Errorf("explained %+v", e.Verdict)
			}
		})
	}
}

// Paths are looked at only where everything else allows, and as the host has them: what
// a jail calls /workspace is another directory there.
func TestC13_ACheckAsksAboutItsPathsOnce(t *testing.T) {
	w := podWorld(t)
	d := w.check(Native{Tool: "Read", Paths: []string{"/home/alice/shop/a/b", "/home/alice/shop", "/workspace/a", "/etc/passwd", "rel"}}, Seen{})
	if d.Ask == nil || d.Ask.Project != id[ids.Project](shop) || !d.Ask.OfHost || !slices.Equal(d.Ask.Paths, []string{"/home/alice/shop/a/b", "/home/alice/shop", "/workspace/a", "/etc/passwd", "rel"}) {
		t.Fatalf("%+v", d)
	}
	if len(w.records()) != 0 {
		t.Error("a question is recorded")
	}
	w.do(w.reg().Suspend(id[ids.Account](alice), true, 0))
	if d := w.check(Native{Tool: "Read", Paths: []string{"/home/alice/shop/a"}}, Seen{}); d.Ask != nil || d.Verdict.Code != refusal.AccountSuspended {
		t.Fatalf("%+v", d)
	}
}

// In the profile standard an owner runs no programs, and both reasons are told.
func TestC12_NoProgramsOutsideAnIsolatedPod(t *testing.T) {
	w := newWorld(t)
	w.root(func(r *registry.Root) { r.Access = nil }) // the floor is the owner's own
	d := w.check(Native{Tool: "Bash"}, Seen{})
	if d.Verdict.Code != refusal.ModeRefused || !slices.Contains(d.Verdict.Also, refusal.ApprovalRequired) {
		t.Fatalf("%+v", d.Verdict)
	}
	if d := w.check(Native{Tool: "WebSearch"}, Seen{}); !d.Verdict.Allow {
		t.Fatalf("its twin: %+v", d.Verdict)
	}
}

func TestA6_ANativeToolIsExplainedWithoutWhatItHasNot(t *testing.T) {
	w := podWorld(t)
	for _, name := range []string{"Bash", "Read", "Frobnicate"} {
		e := w.g.ExplainNative(w.reg().Task(w.task), name)
		for _, r := range e.Reasons {
			if r.Asked && (r.Read == "" || r.From == "") {
				t.Errorf("%s, %s: read %q from %q", name, r.Rule, r.Read, r.From)
			}
			if r.Asked && r.Code == "" && slices.Contains(notNative, r.Rule) {
				t.Errorf("%s: %s was asked", name, r.Rule)
			}
		}
	}
}

// A flood of checks that are refused becomes few records of that task.
func TestGate6_RefusedChecksAreFoldedByTask(t *testing.T) {
	w := podWorld(t)
	for range 100 {
		w.check(Native{Tool: "Bash"}, Seen{})
	}
	w.commit()
	if n := w.denials(refusal.ApprovalRequired); n != 100 || len(w.records()) > 9 {
		t.Fatalf("%d denials in %d records", n, len(w.records()))
	}
}
