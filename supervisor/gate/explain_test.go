package gate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
)

// first is the granted tool that every test calls.
func (w *world) first() Named { return w.g.Tools(w.reg().Task(w.task))[0] }

func codes(e Explained) (out []refusal.Code) {
	for _, r := range e.Reasons {
		if r.Code != "" {
			out = append(out, r.Code)
		}
	}
	return out
}

func TestA6_ExplainAgreesWithTheGateForEachFactorAndTouchesNothing(t *testing.T) {
	for _, f := range factors {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t)
			n := w.first()
			before := w.g.Explain(w.reg().Task(w.task), n, Health{})
			if !before.Verdict.Allow || len(codes(before)) != 0 {
				t.Fatalf("before: %+v", before.Verdict)
			}
			f.take(w)
			want := w.call().Code
			w.commit()
			stored, records, open := w.stored(), len(w.records()), w.g.OpenCalls()
			e := w.g.Explain(w.reg().Task(w.task), n, Health{})
			w.commit()
			if !bytes.Equal(stored, w.stored()) || records != len(w.records()) || open != w.g.OpenCalls() {
				t.Error("explaining wrote or opened something")
			}
			if e.Verdict.Allow || e.Verdict.Code != f.code || want != f.code && want != refusal.SessionEnded {
				t.Errorf("explained %q, called %q, want %q", string(e.Verdict.Code), string(want), string(f.code))
			}
			if got := codes(e); !slices.Equal(got, append([]refusal.Code{e.Verdict.Code}, e.Verdict.Also...)) {
				t.Errorf("the reasons say %q, the verdict %+v", got, e.Verdict)
			}
			for _, r := range e.Reasons {
				if r.Asked && (r.Read == "" || r.From == "") {
					t.Errorf("%s read %q from %q", r.Rule, r.Read, r.From)
				}
				if strings.Contains(r.Read+r.From, "0x") || strings.Contains(r.Read+r.From, "%!") {
					t.Errorf("%s: %q, %q", r.Rule, r.Read, r.From)
				}
			}
			if f.give == nil {
				return
			}
			f.give(w)
			if again := w.g.Explain(w.reg().Task(w.task), n, Health{}); !again.Verdict.Allow {
				t.Errorf("it is back: %+v", again.Verdict)
			}
		})
	}
}

func TestA6_EveryFailingRuleStandsInTheExplanation(t *testing.T) {
	w := newWorld(t)
	n := w.first()
	w.do(w.reg().Suspend(id[ids.Account](alice), true, 0))
	w.do(w.reg().Revoke(w.conn, []string{n.Tool}, 0))
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Required = true })
	e := w.g.Explain(w.reg().Task(w.task), n, Health{Held: true})
	want := []refusal.Code{refusal.AccountSuspended, refusal.ToolNotGranted, refusal.CredentialMissing, refusal.LimitStarts}
	if got := codes(e); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

// What keeps a server from starting now is that it failed before, and why it failed comes first.
func TestA6_AReplacedDirectoryComesBeforeTheStartsItHeldBack(t *testing.T) {
	w := newWorld(t)
	for h, want := range map[Health][]refusal.Code{
		{Held: true}:                 {refusal.LimitStarts},
		{Held: true, Replaced: true}: {refusal.ProjectReplaced, refusal.LimitStarts},
		{Replaced: true}:             {refusal.ProjectReplaced},
		{}:                           nil,
	} {
		e := w.g.Explain(w.reg().Task(w.task), w.first(), h)
		if got := codes(e); !slices.Equal(got, want) || len(want) > 0 && e.Verdict.Code != want[0] {
			t.Errorf("%+v: %q, %+v, want %q", h, got, e.Verdict, want)
		}
	}
}

// A tool of another project, and one of nobody's, are explained in the same words.
func TestGate4_AForeignToolIsExplainedLikeAnUnknownName(t *testing.T) {
	w := newWorld(t)
	foreign := w.connect(blog, notes)
	w.grant(foreign, class.Unmarked, w.first().Tool)
	task := w.reg().Task(w.task)
	if found := w.g.Find(task, "notes."+w.first().Tool); found != nil {
		t.Fatalf("a foreign tool is found: %+v", found)
	}
	a := w.g.Explain(task, Named{Tool: "notes.x", Connection: foreign}, Health{})
	b := w.g.Explain(task, Named{Tool: "nothing"}, Health{})
	if a.Verdict.Code != refusal.ToolUnknown || b.Verdict.Code != refusal.ToolUnknown || len(a.Reasons) != len(b.Reasons) {
		t.Fatalf("%+v, %+v", a.Verdict, b.Verdict)
	}
	for i := range a.Reasons {
		if a.Reasons[i] != b.Reasons[i] {
			t.Errorf("%+v and %+v", a.Reasons[i], b.Reasons[i])
		}
	}
}

func TestFindTakesEveryNameOfATool(t *testing.T) {
	w := newWorld(t)
	task, n := w.reg().Task(w.task), w.first()
	for _, name := range []string{n.Tool, n.Served, "files." + n.Tool} {
		if got := w.g.Find(task, name); len(got) != 1 || got[0] != n {
			t.Errorf("%q: %+v", name, got)
		}
	}
	second := w.connect(shop, notes)
	// Nothing of notes is granted: the served name still means one thing.
	if got := w.g.Find(task, n.Tool); len(got) != 1 || got[0] != n {
		t.Errorf("the served name: %+v", got)
	}
	if got := w.g.Find(task, "notes."+n.Tool); len(got) != 1 || got[0].Connection != second {
		t.Errorf("by connection: %+v", got)
	}
	both := w.g.Find(task, "odd")
	if len(both) != 2 || both[0].Connection == both[1].Connection {
		t.Errorf("a name of two: %+v", both)
	}
	for _, name := range []string{"", "nothing", "files.", ".odd", "FILES.odd"} {
		if got := w.g.Find(task, name); len(got) != 0 {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

func TestA6_ASupposedTaskIsAskedLikeALiveOne(t *testing.T) {
	w := newWorld(t)
	n := w.first()
	shops, _ := w.reg().Project(id[ids.Project](shop))
	s := w.g.Suppose(shops, access.Local(shops.Owner), policy.ModeCode)
	if s.ID != "" || s.Host != "agent" || s.Account != shops.Owner {
		t.Fatalf("%+v", s)
	}
	if e := w.g.Explain(s, n, Health{}); !e.Verdict.Allow {
		t.Errorf("%+v", e.Verdict)
	}
	// Nobody's channel, and a person who may not connect without a token.
	if e := w.g.Explain(w.g.Suppose(shops, "pigeon:7", policy.ModeCode), n, Health{}); e.Verdict.Allow || !slices.Contains(codes(e), refusal.HostUnknown) || !slices.Contains(codes(e), refusal.PrincipalRefused) {
		t.Errorf("%+v", e.Verdict)
	}
	w.root(func(r *registry.Root) { r.Hosts = nil })
	if e := w.g.Explain(w.g.Suppose(shops, access.Local(shops.Owner), policy.ModeCode), n, Health{}); e.Verdict.Code != refusal.HostNotAssigned {
		t.Errorf("%+v", e.Verdict)
	}
	w.root(func(r *registry.Root) {
		p := r.Projects[shops.ID]
		p.PersonBind = true
		r.Projects[shops.ID] = p
	})
	shops.PersonBind = true
	if e := w.g.Explain(w.g.Suppose(shops, access.Local(shops.Owner), policy.ModeCode), n, Health{}); !e.Verdict.Allow {
		t.Errorf("%+v", e.Verdict)
	}
	if len(w.reg().AllTasks()) != 1 {
		t.Error("a supposed task was made")
	}
}

// What denied a call is in its record, every rule of it.
func TestA6_TheRecordOfADenialNamesEveryRule(t *testing.T) {
	w := newWorld(t)
	n := w.first()
	w.do(w.reg().Revoke(w.conn, []string{n.Tool}, 0))
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Required = true })
	w.refused("two rules", w.call(), refusal.ToolNotGranted)
	w.commit()
	if got := w.records()[0].Policy; !strings.HasSuffix(got, " denies=tool_not_granted,credential_missing") {
		t.Errorf("recorded %q", got)
	}
	w.admittedPolicy(t)
}

// admittedPolicy checks the twin: what is admitted has no rule that denied.
func (w *world) admittedPolicy(t *testing.T) {
	t.Helper()
	twin := newWorld(t)
	twin.admitted("in order", twin.call())
	if got := twin.records()[0].Policy; strings.Contains(got, "denies") || !strings.Contains(got, "grant=") {
		t.Errorf("recorded %q", got)
	}
}

func TestC10_EveryStateHasItsCause(t *testing.T) {
	up := Health{Probed: true}
	ask := func(w *world, h Health) Standing {
		e := w.g.Explain(w.reg().Task(w.task), w.first(), h)
		return StandingOf(&e, h)
	}
	for _, row := range []struct {
		name string
		take func(*world)
		h    Health
		want State
		code refusal.Code
	}{
		{"in order", func(*world) {}, up, Visible, ""},
		{"its server is down", func(*world) {}, Health{Down: "it ended with status 3", Probed: true}, Unhealthy, refusal.ServerUnavailable},
		{"its server is held back", func(*world) {}, Health{Down: "it ended with status 3", Held: true, Probed: true}, Unhealthy, refusal.LimitStarts},
		{"not granted", func(w *world) { w.do(w.reg().Revoke(w.conn, []string{w.first().Tool}, 0)) }, up, Registered, refusal.ToolNotGranted},
		{"the account is suspended", func(w *world) { w.do(w.reg().Suspend(id[ids.Account](alice), true, 0)) }, up, DeniedPolicy, refusal.AccountSuspended},
		{"the connection is disabled", func(w *world) { w.do(w.reg().Enable(w.conn, false, 0)) }, up, Unavailable, refusal.ConnectionDisabled},
		{"a credential is missing", func(w *world) {
			w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Required = true })
		}, up, NotConfigured, refusal.CredentialMissing},
		{"destructive", func(w *world) {
			w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Tiers[w.first().Tool] = class.Destructive })
		}, up, DeniedPolicy, refusal.ApprovalRequired},
		{"the definition was changed", func(w *world) { w.probe(files, strings.Replace(catalogue, "reads ", "reads and sends", 1)) }, up, Unavailable, refusal.ToolChanged},
		{"the running server says something else", func(w *world) {
			w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte(strings.Replace(catalogue, "reads ", "reads and sends", 1)))
		}, up, Unhealthy, refusal.ToolChanged},
		{"malformed", func(w *world) {
			w.probe(files, strings.Replace(catalogue, `"inputSchema":{"type":"object","x":1e400}`, `"inputSchema":7`, 1))
		}, up, Unhealthy, refusal.ToolQuarantined},
	} {
		w := newWorld(t)
		row.take(w)
		s := ask(w, row.h)
		if s.State != row.want || s.Code != row.code || row.code != "" && s.Reason == "" {
			t.Errorf("%s: %+v, want %s, %s", row.name, s, row.want, string(row.code))
		}
	}
	for _, row := range []struct {
		h    Health
		want State
	}{{Health{}, NotConfigured}, {Health{Probed: true, Failed: "it printed nothing"}, Unhealthy}, {Health{Probed: true}, NotConfigured}} {
		if s := BareStanding(row.h); s.State != row.want || s.Reason == "" {
			t.Errorf("%+v: %+v", row.h, s)
		}
	}
}

// TestC077_EverySpellingOfANameEndsAtOneCheck: whatever a runtime calls a tool that is
// not granted, it is that tool and refused, or nothing at all.
func TestC077_EverySpellingOfANameEndsAtOneCheck(t *testing.T) {
	w := newWorld(t)
	n := w.first()
	spellings := []string{n.Tool, "files." + n.Tool, "files__" + n.Tool, "mcp__files__" + n.Tool, "files/" + n.Tool, strings.ToUpper(n.Tool), n.Tool + " ", " " + n.Tool, n.Tool + "\u200b"}
	ask := func(name string) refusal.Code {
		return w.g.Admit(shopSet, wire.Admit{Session: w.ses, Tool: name, RequestID: "7", Digest: strings.Repeat("ab", 32), Size: 2}, "", Seen{}).Code
	}
	for i, name := range spellings {
		// By its own name the bridge is told to look again; no other spelling is a name.
		want := refusal.ToolUnknown
		if i == 0 {
			want = refusal.StaleSelector
		}
		if got := ask(name); got != want {
			t.Errorf("granted, as %q: %q, want %q", name, string(got), string(want))
		}
	}
	w.do(w.reg().Revoke(w.conn, []string{n.Tool}, 0))
	for _, name := range spellings {
		if got := ask(name); got != refusal.ToolNotGranted && got != refusal.ToolUnknown {
			t.Errorf("revoked, as %q: %q", name, string(got))
		}
		for _, found := range w.g.Find(w.reg().Task(w.task), name) {
			if e := w.g.Explain(w.reg().Task(w.task), found, Health{}); e.Verdict.Code != refusal.ToolNotGranted || found.Tool != n.Tool {
				t.Errorf("explained as %q: %+v of %+v", name, e.Verdict, found)
			}
		}
	}
	if w.g.OpenCalls() != 0 {
		t.Error("a call is open")
	}
}
