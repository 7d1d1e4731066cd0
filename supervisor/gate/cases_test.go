package gate

import (
	"testing"

	"postern/bridge/wire"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
)

// Tiers, by the operator's mark, the owner's, and neither, at the admission.
func TestA7_ADestructiveCallNeedsAnotherMarkOrAnApproval(t *testing.T) {
	w := newWorld(t)
	own := bound{w.ses, shopSet}
	mark := func(tier class.Tier) {
		w.editServer(func(s *registry.RootServer) {
			s.Revisions[s.Current].Tiers["write_rows"] = tier
			s.Revisions[s.Current].Fork = true
		})
	}
	for _, row := range []struct {
		says            string
		operator, owner class.Tier
		want            refusal.Code
		tier            class.Tier
	}{
		{"the server says it destroys", class.Unmarked, class.Unmarked, refusal.ApprovalRequired, class.Destructive},
		{"the owner marks it", class.Unmarked, class.Reversible, "", class.Reversible},
		{"the operator marks it", class.Reversible, class.Unmarked, "", class.Reversible},
		{"the owner raises the operator's", class.Reversible, class.Destructive, refusal.ApprovalRequired, class.Destructive},
		{"the operator says it destroys", class.Destructive, class.Unmarked, refusal.ApprovalRequired, class.Destructive},
	} {
		mark(row.operator)
		w.grant(w.conn, row.owner, "write_rows")
		if got := w.says(own, "write_rows"); got != row.want {
			t.Errorf("%s: %q", row.says, string(got))
		}
		if k, _ := w.reg().Tool(own.set.Project, w.conn, "write_rows"); k.Tier != row.tier {
			t.Errorf("%s: the grant shows %v", row.says, k.Tier)
		}
	}
	// An owner cannot lower what the operator says.
	mark(class.Destructive)
	if _, err := w.reg().Grant(registry.Granting{Connection: w.conn, Tools: []string{"write_rows"}, Tier: class.Observe, By: "root", Now: w.now}); err == nil {
		t.Error("a mark was lowered")
	}
}

// Whatever a runtime calls first, and however it spells it, there is one check.
func TestA3_C076_C077_EverySpellingMeetsOneCheckAndNoListIsNeeded(t *testing.T) {
	w := newWorld(t)
	ask := func(name string) refusal.Code {
		return w.g.Admit(shopSet, wire.Admit{Session: w.ses, Tool: name, RequestID: "1"}, "", Seen{}).Code
	}
	if got := ask("write_rows"); got != refusal.ToolNotGranted { // no list was ever asked for
		t.Errorf("%q", string(got))
	}
	for _, name := range []string{"files.write_rows", "files/write_rows", "files__write_rows", "mcp__files__write_rows", "WRITE_ROWS", "write_rows ", "notes.read_rows", "*", "files/*"} {
		if got := ask(name); got != refusal.ToolUnknown && got != refusal.ToolNotGranted {
			t.Errorf("%q: %q", name, string(got))
		}
	}
	if w.g.OpenCalls() != 0 {
		t.Error("a call is open")
	}
	w.admitted("the granted one", w.call())
}

// Two principals, two lists, each exactly what may be called; a renamed tool is nobody's.
func TestA3_C094_AListIsExactlyWhatMayBeCalled(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, class.Reversible, "write_rows")
	w.write(two("{level: read}", "{level: full, write: true}"))
	first, second := w.session(w.taskFor(contact, "code")), w.session(w.taskFor(other, "code"))
	listed := func(b bound) (out []string) {
		for _, tool := range w.g.View(b.set, b.ses) {
			if tool.Callable {
				out = append(out, tool.Name)
			}
		}
		return out
	}
	if a, b := listed(first), listed(second); len(a) != 2 || len(b) != 3 {
		t.Errorf("%q %q", a, b)
	}
	for tool, want := range map[string][2]refusal.Code{"read_rows": {"", ""}, "write_rows": {refusal.AccessRefused, ""}, "read_rows2": {refusal.ToolUnknown, refusal.ToolUnknown}} {
		if a, b := w.says(first, tool), w.says(second, tool); a != want[0] || b != want[1] { // says compares each list with the answers
			t.Errorf("%s: %q %q", tool, string(a), string(b))
		}
	}
}
