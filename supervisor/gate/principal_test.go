package gate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
)

// write lets an access policy decide, as new root facts do.
func (w *world) write(doc string) {
	w.t.Helper()
	p, _ := access.Parse([]byte(doc))
	if err := w.g.SetRoot(edited(w.reg().Root(), func(r *registry.Root) { r.Access = p })); err != nil {
		w.t.Fatal(err)
	}
}

// whatsapp declares a channel with one user, blocked or with a level.
func whatsapp(entry, mode string) string {
	return fmt.Sprintf("channels:\n  local:\n    owners: [%q]\n  whatsapp:\n    default_mode: %s\n    access:\n      users: {\"+5511999998888\": %s, \"+5511777776666\": {level: read}}\n", id[ids.Account](alice), mode, entry)
}

const contact, other = "whatsapp:+5511999998888", "whatsapp:+5511777776666"

// taskFor makes a task of a principal by the host, with everything checked as control does.
func (w *world) taskFor(principal, mode string) ids.Task {
	w.t.Helper()
	t := registry.Task{ID: id[ids.Task](w.n()), Account: id[ids.Account](alice), Host: "agent", Project: id[ids.Project](shop), Principal: principal, Mode: mode, Created: 1}
	if _, code := w.g.MayMake(&t); code != "" {
		w.t.Fatalf("%s: %s", principal, code)
	}
	w.do(w.reg().NewTask(t))
	return t.ID
}

// session is a live session of a principal with its set.
type bound struct {
	ses ids.Session
	set Set
}

func (w *world) session(task ids.Task) bound {
	w.t.Helper()
	b, code := w.g.Bind(BindRequest{Project: id[ids.Project](shop), UID: aliceUID, Token: w.mint(task, aliceUID, 1, time.Minute)})
	if code != "" {
		w.t.Fatalf("bind: %s", code)
	}
	return bound{b.Session, b.Set}
}

// says asks for a tool as a session, ends the call again, and returns the code.
func (w *world) says(b bound, tool string) refusal.Code {
	w.t.Helper()
	d := w.g.Admit(b.set, wire.Admit{Session: b.ses, Connection: w.conn, Tool: tool, RequestID: "1"}, w.running(w.conn), Seen{})
	if d.Code == "" {
		w.commit()
		if err := w.g.Ended(b.set, wire.Ended{Call: d.Call, Outcome: wire.Completed}); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, tool := range w.g.View(b.set, b.ses) {
		if got := w.g.Admit(b.set, wire.Admit{Session: b.ses, Connection: tool.Connection, Tool: tool.Tool, RequestID: "2"}, w.running(w.conn), Seen{}); (got.Code == "") != tool.Callable {
			w.t.Fatalf("%s is shown as callable: %v, and answered %q", tool.Name, tool.Callable, string(got.Code))
		} else if got.Code == "" {
			w.commit()
			w.g.Ended(b.set, wire.Ended{Call: got.Call, Outcome: wire.Completed})
		}
	}
	return d.Code
}

// apart lets the connection's server write nothing, so that tasks of channels may use it.
func (w *world) apart() {
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Writes = false })
}

// The ceiling, the mode and what they say together, as they stand at each call.
func TestC4_CeilingAndModeAreComposedAtEachAdmission(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, class.Reversible, "write_rows", "run_it")
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Fork = true })
	w.write(whatsapp("{level: full, write: true}", "code"))
	task := w.taskFor(contact, "code")
	b := w.session(task)
	for _, row := range []struct {
		says, entry, mode string
		read, write, run  refusal.Code
	}{
		{"full with write", "{level: full, write: true}", "code", "", "", ""},
		{"full without write", "{level: full}", "code", "", refusal.AccessRefused, ""},
		{"read", "{level: read}", "code", "", refusal.AccessRefused, refusal.AccessRefused},
		{"read with write", "{level: read, write: true}", "code", "", "", refusal.AccessRefused},
		{"chat", "{level: chat}", "code", refusal.AccessRefused, refusal.AccessRefused, refusal.AccessRefused},
		{"a narrower floor than the task's mode", "{level: full, write: true}", "search", refusal.ModeFloor, refusal.ModeFloor, refusal.ModeFloor},
		{"both", "{level: chat}", "search", refusal.AccessAndMode, refusal.AccessAndMode, refusal.AccessAndMode},
		{"blocked", "{blocked: true}", "code", refusal.PrincipalBlocked, refusal.PrincipalBlocked, refusal.PrincipalBlocked},
		{"an entry with a mistake", "{level: most}", "code", refusal.AccessUnavailable, refusal.AccessUnavailable, refusal.AccessUnavailable},
		{"full again", "{level: full, write: true}", "code", "", "", ""},
	} {
		w.write(whatsapp(row.entry, row.mode))
		for tool, want := range map[string]refusal.Code{"read_rows": row.read, "write_rows": row.write, "run_it": row.run} {
			if got := w.says(b, tool); got != want {
				t.Errorf("%s: %s is answered %q, want %q", row.says, tool, string(got), string(want))
			}
		}
	}
	// The owner's own session has seen nothing of this, and nothing of the channel's.
	if got := w.says(bound{w.ses, shopSet}, "write_rows"); got != "" {
		t.Errorf("the owner: %q", string(got))
	}
}

func TestC4_TheRefusalNamesTheRightRule(t *testing.T) {
	for code, want := range map[refusal.Code][]bool{ // names the access policy, names the mode, offers another mode
		refusal.AccessRefused: {true, false, false}, refusal.ModeRefused: {false, true, true}, refusal.AccessAndMode: {true, true, false},
	} {
		s := refusal.Of(code).Sentence
		if got := []bool{has(s, "access policy"), has(s, "mode"), has(s, "another mode")}; !slices.Equal(got, want) {
			t.Errorf("%s: %q", code, s)
		}
	}
}

func has(s, part string) bool {
	for i := range len(s) - len(part) + 1 {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

// A mode is data: search takes what only reads, whatever is granted.
func TestC11_AGrantedToolThatReadsPassesSearch(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, class.Reversible, "write_rows", "run_it")
	w.write(whatsapp("{level: full, write: true}", "code") + "modes:\n  rows: {whitelist_mode: true, allowed: [\"files/write_rows\"]}\n")
	for mode, want := range map[string]map[string]refusal.Code{
		"search": {"read_rows": "", "write_rows": refusal.ModeRefused, "run_it": refusal.ModeRefused},
		"rows":   {"read_rows": refusal.ModeRefused, "write_rows": "", "run_it": refusal.ModeRefused},
		"auto":   {"read_rows": "", "write_rows": ""},
		"code":   {"read_rows": "", "write_rows": ""},
	} {
		b := w.session(w.taskFor(contact, mode))
		for tool, code := range want {
			if got := w.says(b, tool); got != code {
				t.Errorf("%s: %s is answered %q, want %q", mode, tool, string(got), string(code))
			}
		}
	}
}

// In standard no tool that runs programs is offered whose jail may start none; an
// owner's own floor has such tools in an isolated pod alone.
func TestC11_C12_ProgramsRunWhereProfileAndFloorAllow(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, class.Reversible, "run_it")
	own := bound{w.ses, shopSet}
	if got := w.says(own, "run_it"); got != refusal.ProfileRefused {
		t.Errorf("a jail without fork: %q", string(got))
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Fork = true })
	if got := w.says(own, "run_it"); got != "" {
		t.Errorf("a jail with fork, where the operator named the mode: %q", string(got))
	}
	w.root(func(r *registry.Root) { r.Access = nil })
	if got := w.says(own, "run_it"); got != refusal.ModeRefused {
		t.Errorf("an owner's floor in standard: %q", string(got))
	}
	w.editProject(func(p *registry.RootProject) { p.ExecutionProfile = policy.ProfileIsolatedPod })
	if got := w.says(own, "run_it"); got != "" {
		t.Errorf("an owner's floor in an isolated pod: %q", string(got))
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Fork = false })
	if got := w.says(own, "run_it"); got != "" {
		t.Errorf("the pod's profile does not ask what the jail may: %q", string(got))
	}
}

func TestC12_AWiderModeThanTheFloorMakesNoTask(t *testing.T) {
	w := newWorld(t)
	make := func(principal, mode string) (string, refusal.Code) {
		task := registry.Task{Account: id[ids.Account](alice), Host: "agent", Project: id[ids.Project](shop), Principal: principal, Mode: mode}
		_, code := w.g.MayMake(&task)
		return task.Mode, code
	}
	w.write("channels:\n  whatsapp:\n    access:\n      users: {\"+5511999998888\": {level: full, write: true}}\n      groups: {enabled: true, \"12036@g.us\": {level: full, write: true}}\n")
	own := access.Local(id[ids.Account](alice))
	for _, row := range []struct {
		principal, mode, gets string
		code                  refusal.Code
	}{
		{own, "", "code", ""}, {own, "code", "code", ""}, {own, "search", "search", ""}, {own, "auto", "auto", ""}, {own, "everything", "everything", refusal.ModeUnknown},
		{contact, "", "search", ""}, {contact, "auto", "auto", ""}, {contact, "code", "code", refusal.ModeFloor},
		{"whatsapp:group/12036@g.us/+5511999998888", "", "search", ""}, {"whatsapp:group/12036@g.us/+5511999998888", "code", "code", refusal.ModeFloor},
		{"local:" + string(id[ids.Account](bob)), "", "", refusal.PrincipalRefused}, {"nobody", "", "", refusal.PrincipalRefused},
	} {
		if got, code := make(row.principal, row.mode); got != row.gets || code != row.code {
			t.Errorf("%s in %q: %q, %q", row.principal, row.mode, got, string(code))
		}
	}
	// A floor that narrows later refuses each call, and what it once allowed comes back.
	w.write(whatsapp("{level: full, write: true}", "code"))
	task := w.taskFor(contact, "code")
	b := w.session(task)
	w.write(whatsapp("{level: full, write: true}", "search"))
	if got := w.says(b, "read_rows"); got != refusal.ModeFloor {
		t.Errorf("%q", string(got))
	}
	if r := w.g.Reconsider(id[ids.Project](shop)); len(r.Sessions) != 0 {
		t.Errorf("the session ends: %+v", r.Sessions)
	}
	if _, code := w.bindAs(shop, aliceUID, w.mint(task, aliceUID, 1, time.Minute)); code != refusal.ModeFloor {
		t.Errorf("another session: %q", string(code))
	}
	w.write(whatsapp("{level: full, write: true}", "code"))
	if got := w.says(b, "read_rows"); got != "" {
		t.Errorf("%q", string(got))
	}
}

// What cannot be read denies, and heals in the same session.
func TestC8_C105_AnUnreadablePolicyDeniesAndHealsWithoutARestart(t *testing.T) {
	w := newWorld(t)
	w.write(whatsapp("{level: read}", "search"))
	b := w.session(w.taskFor(contact, ""))
	for says, doc := range map[string]string{"no YAML": "{", "another type": "[]", "a key nobody knows": whatsapp("{level: read}", "search") + "extra: 1\n", "its own entry": whatsapp("{level: 7}", "search")} {
		w.write(doc)
		if got := w.says(b, "read_rows"); got != refusal.AccessUnavailable {
			t.Errorf("%s: %q", says, string(got))
		}
		if r := w.g.Reconsider(id[ids.Project](shop)); len(r.Sessions) != 0 {
			t.Errorf("%s: sessions end: %+v", says, r.Sessions)
		}
		w.write(whatsapp("{level: read}", "search"))
		if got := w.says(b, "read_rows"); got != "" {
			t.Errorf("after %s: %q", says, string(got))
		}
	}
	// Only the entry with the mistake is denied.
	w.write(whatsapp("{level: 7}", "search"))
	if got := w.says(w.session(w.taskFor(other, "")), "read_rows"); got != "" {
		t.Errorf("another entry: %q", string(got))
	}
	w.write("") // a document that declares nothing: the channel is gone
	if got := w.says(b, "read_rows"); got != refusal.PrincipalRefused {
		t.Errorf("no channel: %q", string(got))
	}
	if r := w.g.Reconsider(id[ids.Project](shop)); len(r.Sessions) == 0 {
		t.Error("a stranger's session lives")
	}
}
