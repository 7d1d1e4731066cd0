package gate

import (
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/registry"
)

// two declares the two users of the channel.
func two(first, second string) string {
	return "channels:\n  local:\n    owners: [" + string(id[ids.Account](alice)) + "]\n  whatsapp:\n    default_mode: code\n    access:\n      users: {\"+5511999998888\": " + first + ", \"+5511777776666\": " + second + "}\n"
}

func (w *world) cuts() map[ids.Session]refusal.Code {
	out := map[ids.Session]refusal.Code{}
	for _, c := range w.g.Reconsider(id[ids.Project](shop)).Sessions {
		out[c.Session] = c.Code
	}
	return out
}

func TestGate4_SessionsOfOneCeilingShareASetAndOthersDoNot(t *testing.T) {
	w := newWorld(t)
	w.write(two("{level: read}", "{level: full}"))
	first, again, second := w.session(w.taskFor(contact, "")), w.session(w.taskFor(contact, "search")), w.session(w.taskFor(other, ""))
	if first.set != again.set || first.set == second.set || first.set == shopSet || second.set == shopSet {
		t.Fatalf("%v %v %v", first.set, again.set, second.set)
	}
	w.write(two("{level: read}", "{level: read}"))
	if third := w.session(w.taskFor(other, "")); third.set != first.set {
		t.Errorf("an equal ceiling: %v and %v", third.set, first.set)
	}
	// A session is known to its own set's bridge alone.
	if d := w.g.Admit(first.set, wire.Admit{Session: w.ses, Connection: w.conn, Tool: "read_rows"}, w.running(w.conn), Seen{}); d.Code != refusal.SessionEnded {
		t.Errorf("another set's session: %q", string(d.Code))
	}
	// The set of a ceiling that is needed again has the same number: its bridge's
	// failures are remembered.
	w.g.SessionEnded(first.ses, "x")
	w.g.SessionEnded(again.ses, "x")
	w.g.SetEnded(first.set, refusal.ServerExited, "")
	if next := w.session(w.taskFor(contact, "")); next.set != first.set {
		t.Errorf("%v, want %v", next.set, first.set)
	}
}

// A ceiling that changes alone takes its set along: live sessions go on under it.
func TestB7_ACeilingThatChangesWorksInTheLiveSession(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, 2, "write_rows")
	w.write(two("{level: read}", "{level: full}"))
	b := w.session(w.taskFor(contact, "code"))
	steps := []struct {
		entry string
		write refusal.Code
	}{{"{level: read}", refusal.AccessRefused}, {"{level: full, write: true}", ""}, {"{level: read}", refusal.AccessRefused}, {"{level: read, write: true}", ""}, {"{level: chat}", refusal.AccessRefused}}
	for _, step := range steps {
		w.write(two(step.entry, "{level: full}"))
		if cut := w.cuts(); len(cut) != 0 {
			t.Fatalf("%s: %v", step.entry, cut)
		}
		if got := w.says(b, "write_rows"); got != step.write {
			t.Errorf("%s: %q", step.entry, string(got))
		}
	}
	// What its servers remember is from before: nobody new joins it.
	w.write(two("{level: read}", "{level: read}"))
	if n := w.session(w.taskFor(other, "")); n.set == b.set {
		t.Error("a newcomer joins a set whose ceiling has changed")
	}
}

// Where the principals of a set part, nobody in it reaches more than it had: who gains
// is ended with a code of its own, who loses stays.
func TestGate2_ASetNeverWidensForTheOthersInIt(t *testing.T) {
	w := newWorld(t)
	w.grant(w.conn, 2, "write_rows")
	w.write(two("{level: read}", "{level: read}"))
	first, second := w.session(w.taskFor(contact, "code")), w.session(w.taskFor(other, "code"))
	if first.set != second.set {
		t.Fatal("they do not share")
	}
	w.write(two("{level: full, write: true}", "{level: read}"))
	if cut := w.cuts(); len(cut) != 1 || cut[first.ses] != refusal.CeilingChanged {
		t.Fatalf("%v", cut)
	}
	if a, b := w.says(first, "write_rows"), w.says(second, "write_rows"); a != refusal.AccessRefused || b != refusal.AccessRefused {
		t.Errorf("in the same set: %q, %q", string(a), string(b))
	}
	if got := w.says(first, "read_rows"); got != "" {
		t.Errorf("what it had: %q", string(got))
	}
	w.g.SessionEnded(first.ses, "told to")
	if next := w.session(w.taskFor(contact, "code")); next.set == second.set || w.says(next, "write_rows") != "" {
		t.Error("the next connection has not what the policy gives")
	}
	// Narrower: it stays, held to less.
	third := w.session(w.taskFor(other, "code"))
	w.write(two("{level: full, write: true}", "{level: chat}"))
	w.write(two("{level: full, write: true}", "{level: read}"))
	fourth := w.session(w.taskFor(contact, "code"))
	if fourth.set == third.set {
		t.Fatal("they share")
	}
	w.write("channels:\n  local:\n    owners: [" + string(id[ids.Account](alice)) + "]\n  whatsapp:\n    default_mode: code\n    access:\n      users: {\"+5511999998888\": {level: full, write: true}, \"+5511777776666\": {level: full, write: true}}\n")
	a, b := w.session(w.taskFor(contact, "code")), w.session(w.taskFor(other, "code"))
	if a.set != b.set {
		t.Fatalf("%v %v", a.set, b.set)
	}
	w.write(two("{level: full, write: true}", "{level: read}"))
	cut := w.cuts()
	if cut[a.ses] != "" || cut[b.ses] != "" {
		t.Errorf("%v", cut)
	}
	if x, y := w.says(a, "write_rows"), w.says(b, "write_rows"); x != "" || y != refusal.AccessRefused {
		t.Errorf("%q %q", string(x), string(y))
	}
}

// A task of a channel reaches only servers that cannot write where others' tasks are.
func TestC13_TasksOfChannelsShareNoWritableDirectory(t *testing.T) {
	w := newWorld(t)
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Writes = true })
	w.write(two("{level: full, write: true}", "{level: read}"))
	b := w.session(w.taskFor(contact, "code"))
	if got := w.says(b, "read_rows"); got != refusal.WorkspaceShared {
		t.Fatalf("a jail that writes: %q", string(got))
	}
	if got := w.says(bound{w.ses, shopSet}, "read_rows"); got != "" {
		t.Errorf("the owner's own task: %q", string(got))
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].PerTask = true })
	if got := w.says(b, "read_rows"); got != "" {
		t.Errorf("a directory for each task: %q", string(got))
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].PerTask = false })
	w.apart()
	if got := w.says(b, "read_rows"); got != "" {
		t.Errorf("a jail that only reads: %q", string(got))
	}
}

// A host is asked about at the task, at the bind and at each call.
func TestT6_AHostIsCheckedAtTaskBindAndEveryAdmission(t *testing.T) {
	for says, take := range map[string]func(*registry.RootHost){
		"the project": func(h *registry.RootHost) { h.AllProjects, h.Projects = false, map[ids.Project]bool{} },
		"the account": func(h *registry.RootHost) { h.Accounts = map[ids.Account]bool{} },
		"the channel": func(h *registry.RootHost) { h.Channels = nil },
		"itself":      nil,
	} {
		t.Run(says, func(t *testing.T) {
			w := newWorld(t)
			w.write(two("{level: read}", "{level: read}"))
			task := w.taskFor(contact, "")
			tok := w.mint(w.taskFor(contact, ""), aliceUID, 1, 1<<40)
			b := w.session(task)
			own := bound{w.ses, shopSet}
			if a, b := w.says(b, "read_rows"), w.says(own, "read_rows"); a != "" || b != "" {
				t.Fatalf("%q %q", string(a), string(b))
			}
			edit := func(r *registry.Root) {
				h := r.Hosts["agent"]
				if take == nil {
					delete(r.Hosts, "agent")
					return
				}
				take(&h)
				r.Hosts["agent"] = h
			}
			kept := w.reg().Root()
			w.root(edit) // not ended yet: each question refuses by itself
			want := refusal.HostNotAssigned
			if take == nil {
				want = refusal.HostUnknown
			}
			if got := w.says(b, "read_rows"); got != want {
				t.Errorf("a call: %q", string(got))
			}
			if got := w.says(own, "read_rows"); (got == "") != (says == "the channel") {
				t.Errorf("a call of the account's own task: %q", string(got))
			}
			if _, code := w.bindAs(shop, aliceUID, tok); code != want {
				t.Errorf("a bind: %q", string(code))
			}
			if _, err := w.reg().NewTask(registry.Task{ID: id[ids.Task](w.n()), Account: id[ids.Account](alice), Host: "agent", Project: id[ids.Project](shop), Principal: contact, Mode: "search", Created: 1}); err == nil {
				t.Error("a task was made")
			}
			// As root facts they end its tasks for ever, also for a host that comes back.
			w.root(func(r *registry.Root) { r.Hosts = kept.Hosts })
			if err := w.g.SetRoot(edited(w.reg().Root(), edit)); err != nil {
				t.Fatal(err)
			}
			if w.reg().Task(task).Ended == 0 {
				t.Fatal("the task lives")
			}
			if err := w.g.SetRoot(edited(w.reg().Root(), func(r *registry.Root) { r.Hosts = kept.Hosts })); err != nil {
				t.Fatal(err)
			}
			if got := w.says(b, "read_rows"); got != refusal.TaskEnded {
				t.Errorf("after the host came back: %q", string(got))
			}
			if got := w.says(w.session(w.taskFor(contact, "")), "read_rows"); got != "" {
				t.Errorf("a new task: %q", string(got))
			}
		})
	}
}
