package gate

import (
	"testing"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// bindAs binds with a token, or without one.
func (w *world) bindAs(project int, uid uint32, tok string) (Bound, refusal.Code) {
	return w.g.Bind(BindRequest{Project: id[ids.Project](project), UID: uid, Token: tok})
}

func TestATokenIsForItsUserProjectNumberAndTime(t *testing.T) {
	w := newWorld(t)
	check := func(says string, project int, uid uint32, tok string, want refusal.Code) {
		t.Helper()
		b, code := w.bindAs(project, uid, tok)
		if code != want || (code == "") != (b.Session != "") {
			t.Fatalf("%s: %+v, %q, want %q", says, b, string(code), string(want))
		}
		if code != "" {
			if n := w.denials(code); n == 0 {
				t.Fatalf("%s: it is not recorded", says)
			}
		}
	}
	tok := w.mint(w.task, aliceUID, 2, time.Minute)
	check("another user", shop, bobUID, tok, refusal.TokenWrongUID)
	check("root", shop, 0, tok, refusal.TokenWrongUID)
	check("the host itself", shop, hostUID, tok, refusal.TokenWrongUID)
	check("another project", blog, aliceUID, tok, refusal.TokenInvalid)
	check("no token's text", shop, aliceUID, "ptk_", refusal.TokenInvalid)
	check("another token", shop, aliceUID, "ptk_Z"+tok[5:], refusal.TokenInvalid)
	check("once", shop, aliceUID, tok, "")
	if !w.g.TokenLive(w.task) {
		t.Error("a token with a bind left can bind no more")
	}
	b, code := w.bindAs(shop, aliceUID, tok)
	if code != "" || w.g.TokenLive(w.task) || b.Task != w.task || b.Set != shopSet {
		t.Fatalf("the last permitted bind: %+v %q", b, string(code))
	}
	check("once too often", shop, aliceUID, tok, refusal.TokenUsed)

	tok = w.mint(w.task, aliceUID, 9, time.Minute)
	w.boot += time.Minute - 1
	check("in time", shop, aliceUID, tok, "")
	w.boot++
	check("too late by the clock of the machine", shop, aliceUID, tok, refusal.TokenExpired)
	w.boot--
	w.now = w.now.Add(time.Minute)
	check("too late by the clock on the wall", shop, aliceUID, tok, refusal.TokenExpired)
	w.now = w.now.Add(-2 * time.Minute)
	check("the wall's clock was set back: that prolongs nothing", shop, aliceUID, tok, "")
	w.boot++
	check("nor now", shop, aliceUID, tok, refusal.TokenExpired)
	w.boot = 0
	w.bootN = "next"
	check("after a reboot", shop, aliceUID, tok, refusal.TokenExpired)
	w.bootN = "boot"
	w.boot = time.Hour

	fresh := w.mint(w.task, aliceUID, 1, time.Minute)
	check("a fresh token ends the former", shop, aliceUID, tok, refusal.TokenInvalid)
	w.do(w.reg().EndTask(w.task, "revoked", w.now))
	check("of an ended task", shop, aliceUID, fresh, refusal.TokenInvalid)
}

func TestATokenBindsNothingThatWouldNotBeAdmitted(t *testing.T) {
	for _, f := range factors {
		w := memoryWorld(t)
		tok := w.mint(w.task, aliceUID, 1, time.Minute)
		f.take(w)
		about := f.code == refusal.AccountSuspended || f.code == refusal.AccountDeleted || f.code == refusal.AccountUnknown || f.code == refusal.ProjectDeleted ||
			f.code == refusal.ProjectUnknown || f.code == refusal.HostUnknown || f.code == refusal.HostNotAssigned || f.code == refusal.NotMember ||
			f.code == refusal.PrincipalRefused || f.code == refusal.ModeRefused
		_, code := w.bindAs(shop, aliceUID, tok)
		switch {
		case f.code == refusal.TaskEnded && code != refusal.TokenInvalid,
			about && code != f.code,
			!about && f.code != refusal.TaskEnded && code != "":
			t.Errorf("%s: bind is answered %q", f.name, string(code))
		}
		if live := w.g.SessionLive(w.ses); live != (!about && f.code != refusal.TaskEnded) {
			t.Errorf("%s: the session is live: %v", f.name, live)
		}
	}
}

func TestAPersonBindsWhereTheProjectLetsPeople(t *testing.T) {
	w := newWorld(t)
	check := func(says string, project int, uid uint32, want refusal.Code) ids.Task {
		t.Helper()
		b, code := w.bindAs(project, uid, "")
		if code != want {
			t.Fatalf("%s: %+v, %q, want %q", says, b, string(code), string(want))
		}
		return b.Task
	}
	check("by default", shop, aliceUID, refusal.PersonBindOff)
	w.editProject(func(p *registry.RootProject) { p.PersonBind = true })
	first := check("where it is on", shop, aliceUID, "")
	task := w.reg().Task(first)
	if task.Host != registry.LocalHost || task.Mode != policy.ModeCode || task.Principal != access.Local(id[ids.Account](alice)) || task.Account != id[ids.Account](alice) {
		t.Fatalf("%+v", task)
	}
	check("another project", blog, aliceUID, refusal.PersonBindOff)
	check("no such project", 9, aliceUID, refusal.ProjectUnknown)
	check("a host", shop, hostUID, refusal.PeerRefused)
	check("root", shop, 0, refusal.AccountUnknown)
	check("nobody's uid", shop, 4711, refusal.AccountUnknown)
	check("an account without a role", shop, bobUID, refusal.NotMember)
	w.do(w.reg().AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Viewer))
	check("a viewer", shop, bobUID, refusal.NotMember)
	w.do(w.reg().AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member))
	bobs := check("a member", shop, bobUID, "")
	if bobs == first {
		t.Fatal("two people share a task")
	}
	if again := check("again", shop, aliceUID, ""); again != first {
		t.Fatal("a live task is not reused")
	}
	tasks := len(w.reg().AllTasks())
	w.do(w.reg().EndTask(first, "revoked", w.now))
	next := check("after the task was revoked", shop, aliceUID, "")
	if next == first || len(w.reg().AllTasks()) != tasks+1 {
		t.Fatal("an ended task is used")
	}
	w.do(w.reg().Suspend(id[ids.Account](alice), true, 0))
	check("suspended", shop, aliceUID, refusal.AccountSuspended)
	w.do(w.reg().Suspend(id[ids.Account](alice), false, 0))
	check("active again", shop, aliceUID, "")
	if err := w.g.SetRoot(edited(w.reg().Root(), func(r *registry.Root) {
		p := r.Projects[shopSet.Project]
		p.PersonBind = false
		r.Projects[p.ID] = p
	})); err != nil {
		t.Fatal(err)
	}
	check("switched off", shop, aliceUID, refusal.PersonBindOff)
	if w.reg().Task(next).Ended == 0 || w.reg().Task(bobs).Ended == 0 {
		t.Fatal("a person's task outlives person_bind")
	}
	if w.reg().Task(w.task).Ended != 0 {
		t.Fatal("a host's task does not")
	}
}

func TestSessionsOfAProjectAreBounded(t *testing.T) {
	w := memoryWorld(t)
	tok := w.mint(w.task, aliceUID, 1, time.Minute)
	for i := len(w.g.sessions); i < MaxSessions; i++ {
		n := id[ids.Session](5000 + i)
		w.g.sessions[n] = &session{id: n, task: w.reg().Task(w.task), set: shopSet}
	}
	if _, code := w.bindAs(shop, aliceUID, tok); code != refusal.TooManySession {
		t.Fatalf("%q", string(code))
	}
	other := w.mint(w.newTask(alice, blog), aliceUID, 1, time.Minute)
	if _, code := w.bindAs(blog, aliceUID, other); code != "" {
		t.Fatalf("another project: %q", string(code))
	}
	w.g.SessionEnded(w.ses, "room")
	if _, code := w.bindAs(shop, aliceUID, tok); code != "" {
		t.Fatalf("with room: %q; the refused bind used the token up", string(code))
	}
}

// TestSessions_T2_OfAHostAreBounded: one host may not fill the authority by way of many
// projects. Another host and a person are not held to what it has, and a session that
// ends makes room.
func TestSessions_T2_OfAHostAreBounded(t *testing.T) {
	w := memoryWorld(t)
	w.root(func(r *registry.Root) {
		h := r.Hosts["agent"]
		h.ID, h.UID = "other", hostUID+1
		r.Hosts["other"] = h
	})
	w.editProject(func(p *registry.RootProject) { p.PersonBind = true })
	bind := func(host string) refusal.Code {
		t.Helper()
		task := registry.Task{ID: id[ids.Task](w.n()), Account: id[ids.Account](alice), Host: host, Project: shopSet.Project, Principal: access.Local(id[ids.Account](alice)), Mode: policy.ModeCode, Created: 1}
		w.do(w.reg().NewTask(task))
		_, code := w.bindAs(shop, aliceUID, w.mint(task.ID, aliceUID, 1, time.Minute))
		return code
	}
	first := w.reg().Task(w.task)
	for i := len(w.g.sessions); i < MaxHostSessions; i++ {
		n := id[ids.Session](5000 + i)
		w.g.sessions[n] = &session{id: n, task: first, set: Set{Project: id[ids.Project](1000 + i/MaxSessions), Number: onlySet}}
	}
	tok := w.mint(w.task, aliceUID, 1, time.Minute)
	if _, code := w.bindAs(shop, aliceUID, tok); code != refusal.TooManySession {
		t.Errorf("one more of the host: %q", string(code))
	}
	if code := bind("other"); code != "" {
		t.Errorf("another host: %q", string(code))
	}
	if _, code := w.bindAs(shop, aliceUID, ""); code != "" {
		t.Errorf("a person: %q", string(code))
	}
	w.g.SessionEnded(w.ses, "room")
	if _, code := w.bindAs(shop, aliceUID, tok); code != "" {
		t.Errorf("with room: %q; the refused bind used the token up", string(code))
	}
}

// A refused bind of one project tells nothing of another's task.
func TestRefusedBindsAreRecordedWhereTheyHappened(t *testing.T) {
	w := newWorld(t)
	tok := w.mint(w.task, aliceUID, 1, time.Minute)
	w.bindAs(blog, aliceUID, tok)
	w.bindAs(shop, bobUID, tok)
	w.bindAs(shop, bobUID, "")
	w.commit()
	r := w.records()
	if len(r) != 3 || r[0].State != store.Denied || r[0].Account != id[ids.Account](bob) || r[0].Host != registry.LocalHost || r[0].Code != refusal.PersonBindOff {
		t.Fatalf("%+v", r)
	}
	if r[1].Task != w.task || r[1].Host != "agent" || r[1].Project != shopSet.Project || r[1].Policy != "bind uid=1002" {
		t.Fatalf("%+v", r[1])
	}
	if r[2].Task != "" || r[2].Account != "" || r[2].Project != id[ids.Project](blog) {
		t.Fatalf("%+v", r[2])
	}
	for range 1000 {
		w.bindAs(shop, bobUID, tok)
	}
	w.commit()
	if n := len(w.records()); n > 10 {
		t.Fatalf("%d records of a flood", n)
	}
	if n := w.denials(refusal.TokenWrongUID); n != 1001 {
		t.Fatalf("%d of 1001 are counted", n)
	}
}

func TestWhatATaskHasIsKnown(t *testing.T) {
	w := newWorld(t)
	if uid, err := w.g.TaskUID(w.task); err != nil || uid != aliceUID {
		t.Fatal(uid, err)
	}
	if _, err := w.g.TaskUID(id[ids.Task](9)); err != refusal.TaskUnknown {
		t.Fatal(err)
	}
	none := w.newTask(alice, shop)
	if _, err := w.g.TaskUID(none); err != refusal.TokenInvalid {
		t.Fatal(err)
	}
	if got := w.g.TaskSessions(w.task); len(got) != 1 || got[0].Session != w.ses || w.g.Sessions(w.task) != 1 || w.g.Sessions(none) != 0 {
		t.Fatalf("%+v", got)
	}
	open := w.admitted("", w.call())
	w.g.CloseSession(w.ses)
	w.commit()
	if w.g.Sessions(w.task) != 0 || w.g.SessionLive(w.ses) || w.record(open).State != store.Unknown {
		t.Fatal("a closed session lives")
	}
	if n, err := w.s.Sessions(); err != nil || n[w.task] != 0 {
		t.Fatal(n, err)
	}
	w.do(w.reg().EndTask(w.task, "revoked", w.now))
	if _, err := w.g.TaskUID(w.task); err != refusal.TaskEnded {
		t.Fatal(err)
	}
}
