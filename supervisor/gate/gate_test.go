package gate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// other gives blog a connection, a grant and a session of its own.
func (w *world) other() (ids.Connection, ids.Session, Set) {
	w.t.Helper()
	c := w.connect(blog, files)
	w.grant(c, class.Unmarked, "read_rows")
	s := w.bind(w.newTask(alice, blog))
	return c, s, Set{id[ids.Project](blog), onlySet}
}

func TestGate4_WhatIsForeignAnswersLikeWhatDoesNotExist(t *testing.T) {
	w := newWorld(t)
	conn, ses, set := w.other()
	admit := func(s Set, session ids.Session, c ids.Connection, tool string) Decision {
		return w.g.Admit(s, wire.Admit{Session: session, Connection: c, Tool: tool, RequestID: "1"}, id[ids.Revision](files), Seen{})
	}
	none, nobody := id[ids.Connection](999), id[ids.Session](999)
	for _, row := range []struct {
		says           string
		foreign, wrong Decision
		want           refusal.Code
	}{
		{"a session of another project", admit(shopSet, ses, w.conn, "read_rows"), admit(shopSet, nobody, w.conn, "read_rows"), refusal.SessionEnded},
		{"a session of another set of the project", admit(Set{shopSet.Project, 2}, w.ses, w.conn, "read_rows"), admit(Set{shopSet.Project, 2}, nobody, w.conn, "read_rows"), refusal.SessionEnded},
		{"a session, asked by a probe", admit(Set{}, w.ses, w.conn, "read_rows"), admit(Set{}, nobody, w.conn, "read_rows"), refusal.SessionEnded},
		{"a connection of another project", admit(shopSet, w.ses, conn, "read_rows"), admit(shopSet, w.ses, none, "read_rows"), refusal.ToolUnknown},
		{"a tool that the connection does not have", admit(shopSet, w.ses, w.conn, "no_such"), admit(shopSet, w.ses, none, "no_such"), refusal.ToolUnknown},
		{"a served name that there is not", admit(shopSet, w.ses, "", "no_such"), admit(shopSet, w.ses, "", "nor_this"), refusal.ToolUnknown},
	} {
		if row.foreign != row.wrong || row.foreign.Code != row.want {
			t.Errorf("%s: %+v, what does not exist: %+v", row.says, row.foreign, row.wrong)
		}
	}
	start := func(s Set, session ids.Session, c ids.Connection) refusal.Code {
		_, _, code := w.g.MayStart(s, wire.Start{Session: session, Connection: c, Tool: "read_rows"}, Seen{})
		return code
	}
	if a, b := start(shopSet, w.ses, conn), start(shopSet, w.ses, none); a != b || a != refusal.ToolUnknown {
		t.Errorf("a start of a foreign connection: %q, %q", string(a), string(b))
	}
	if a, b := start(shopSet, ses, w.conn), start(shopSet, nobody, w.conn); a != b || a != refusal.SessionEnded {
		t.Errorf("a start by a foreign session: %q, %q", string(a), string(b))
	}
	if w.g.View(shopSet, ses) != nil || w.g.View(shopSet, nobody) != nil || w.g.View(set, w.ses) != nil || len(w.g.View(set, ses)) == 0 {
		t.Error("a view is shown to another set")
	}
	before := w.denials(refusal.BadRequest)
	w.g.Denied(shopSet, wire.Denied{Session: ses, Code: refusal.BadRequest})
	if got := w.denials(refusal.BadRequest); got != before {
		t.Error("a denial was recorded for a foreign session")
	}
	w.g.Denied(set, wire.Denied{Session: ses, Code: refusal.BadRequest, Tool: "x\ny", RequestID: "\x1b[2J"})
	if got := w.denials(refusal.BadRequest); got != before+1 {
		t.Error("the own one was not")
	}
	if r := w.records()[0]; strings.ContainsAny(r.Tool+r.RequestID, "\n\x1b") {
		t.Errorf("a record holds %q %q", r.Tool, r.RequestID)
	}

	// A call is ended by the set it was admitted for.
	mine := w.admitted("shop", w.call())
	theirs := admit(set, ses, conn, "read_rows").Call
	w.commit()
	if err := w.g.Ended(shopSet, wire.Ended{Call: theirs, Outcome: wire.Completed}); err == nil {
		t.Error("a bridge ended another bridge's call")
	}
	if err := w.g.Ended(Set{}, wire.Ended{Call: mine, Outcome: wire.Completed}); err == nil {
		t.Error("a probe ended a call")
	}
	if err := w.g.Ended(shopSet, wire.Ended{Call: id[ids.Call](5), Outcome: wire.Completed}); err != nil {
		t.Errorf("a call that is not open: %v", err)
	}
	if w.g.OpenCalls() != 2 {
		t.Errorf("%d open", w.g.OpenCalls())
	}
	w.g.SetEnded(shopSet, refusal.ServerExited, "")
	if w.g.OpenCalls() != 1 || w.g.Busy(shopSet, Place{Conn: w.conn}) || !w.g.Busy(set, Place{Conn: conn}) {
		t.Error("the end of one set ended another's call")
	}
	if got := w.g.Reconsider(shopSet.Project); len(got.Calls) != 0 {
		t.Errorf("%+v", got)
	}
	w.do(w.reg().Revoke(conn, nil, 0))
	if got := w.g.Reconsider(shopSet.Project); len(got.Calls) != 0 {
		t.Errorf("another project's call: %+v", got)
	}
	if got := w.g.Reconsider(set.Project); len(got.Calls) != 1 || got.Calls[0].Call != theirs {
		t.Errorf("%+v", got)
	}
}

// A task that is moved in memory, however that came about, reaches the other project no more.
func TestGate4_ATaskOfAnotherProjectIsUnknown(t *testing.T) {
	w := memoryWorld(t)
	w.editTask(func(t *registry.Task) { t.Project = id[ids.Project](blog) })
	w.refused("in its former project", w.call(), refusal.TaskUnknown)
	if w.g.SessionLive(w.ses) {
		t.Fatal("its session lives")
	}
}

func TestGate3_ReconsiderNamesExactlyTheCallsThatAreNoLongerAllowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := memoryWorld(t)
		second := w.connect(shop, notes)
		w.grant(second, class.Unmarked, "read_rows", "list_dir")
		bobs := func() ids.Session {
			w.do(w.reg().AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member))
			return w.bind(w.newTask(bob, shop))
		}()
		type key struct {
			ses  ids.Session
			conn ids.Connection
			tool string
		}
		open := map[ids.Call]key{}
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			k := key{rapid.SampledFrom([]ids.Session{w.ses, bobs}).Draw(rt, "session"), rapid.SampledFrom([]ids.Connection{w.conn, second}).Draw(rt, "connection"),
				rapid.SampledFrom([]string{"read_rows", "list_dir"}).Draw(rt, "tool")}
			d := w.ask(k.ses, k.conn, k.tool)
			if d.Code != "" {
				rt.Fatalf("%+v: %s", k, d.Code)
			}
			open[d.Call] = k
		}
		w.commit()
		gone := func(key) bool { return false }
		switch rapid.IntRange(0, 4).Draw(rt, "what") {
		case 0:
			w.do(w.reg().Revoke(w.conn, []string{"read_rows"}, 0))
			gone = func(k key) bool { return k.conn == w.conn && k.tool == "read_rows" }
		case 1:
			w.do(w.reg().Enable(second, false, 0))
			gone = func(k key) bool { return k.conn == second }
		case 2:
			w.do(w.reg().RemoveMember(id[ids.Project](shop), id[ids.Account](bob), w.now))
			gone = func(k key) bool { return k.ses == bobs }
		case 3:
			w.do(w.reg().Suspend(id[ids.Account](alice), true, 0))
			gone = func(k key) bool { return k.ses == w.ses }
		case 4: // something that narrows nothing here
			w.do(w.reg().AddMember(id[ids.Project](blog), id[ids.Account](bob), registry.Viewer))
		}
		r := w.g.Reconsider(shopSet.Project)
		named := map[ids.Call]bool{}
		for _, s := range r.Calls {
			if named[s.Call] || s.Code == "" || s.Set != shopSet {
				rt.Fatalf("%+v", s)
			}
			named[s.Call] = true
		}
		for c, k := range open {
			if named[c] != gone(k) {
				rt.Errorf("%+v: named %v, gone %v", k, named[c], gone(k))
			}
			if d := w.ask(k.ses, k.conn, k.tool); (d.Code != "") != gone(k) {
				rt.Errorf("%+v is answered %q", k, string(d.Code))
			}
		}
	})
}

func TestGate3_WhatReconsiderSaysOfSessionsAndConnections(t *testing.T) {
	w := newWorld(t)
	w.now = w.now.Add(3 * time.Second)
	c := w.admitted("", w.call())
	w.now = w.now.Add(2 * time.Second)
	w.do(w.reg().EndTask(w.task, "revoked", w.now))
	r := w.g.Reconsider(shopSet.Project)
	if len(r.Sessions) != 1 || r.Sessions[0] != (Cut{shopSet, w.ses, refusal.TaskEnded}) || r.Gone || len(r.Off) != 0 {
		t.Fatalf("%+v", r)
	}
	if len(r.Calls) != 1 || r.Calls[0].Call != c || r.Calls[0].Age != 2*time.Second || r.Calls[0].CancelSent {
		t.Fatalf("%+v", r.Calls)
	}
	w.do(w.reg().Enable(w.conn, false, 0))
	if r := w.g.Reconsider(shopSet.Project); len(r.Off) != 1 || r.Off[0] != w.conn {
		t.Fatalf("a disabled connection: %+v", r)
	}
	w.do(w.reg().Enable(w.conn, true, 0))
	w.editProject(func(p *registry.RootProject) { p.Deleted = true })
	if r := w.g.Reconsider(shopSet.Project); !r.Gone {
		t.Fatal("a deleted project is not gone")
	}
	if r := w.g.Reconsider(id[ids.Project](77)); !r.Gone || len(r.Calls)+len(r.Sessions) != 0 {
		t.Fatalf("an unknown project: %+v", r)
	}
}

// A new revision refuses every call that comes, and takes nothing from one that was
// admitted; whatever else refuses that one still does.
func TestGate3_ANewRevisionCancelsNothing(t *testing.T) {
	w := newWorld(t)
	c := w.admitted("", w.call())
	if !w.g.Runs(shopSet.Project, w.conn, w.running(w.conn)) {
		t.Fatal("the accepted revision is not what runs")
	}
	old := w.running(w.conn)
	w.editServer(func(s *registry.RootServer) { s.Current = id[ids.Revision](9) })
	if r := w.g.Reconsider(shopSet.Project); len(r.Calls)+len(r.Off)+len(r.Sessions) != 0 {
		t.Fatalf("a new revision: %+v", r)
	}
	if w.g.Runs(shopSet.Project, w.conn, old) || w.g.Runs(shopSet.Project, w.conn, id[ids.Revision](9)) {
		t.Fatal("something runs before the revision is accepted")
	}
	if d := w.ask(w.ses, w.conn, "read_rows"); d.Code != refusal.ServerRevisionChanged {
		t.Fatalf("%q", string(d.Code))
	}
	w.do(w.reg().Revoke(w.conn, []string{"read_rows"}, 0))
	if r := w.g.Reconsider(shopSet.Project); len(r.Calls) != 1 || r.Calls[0].Call != c || r.Calls[0].Code != refusal.ServerRevisionChanged {
		t.Fatalf("revoked as well: %+v", r)
	}
}

// New root facts end durably what they no longer hold, and it stays ended.
func TestGate3_RootFactsEndTasksForEver(t *testing.T) {
	w := newWorld(t)
	c := w.admitted("", w.call())
	less := edited(facts(), func(r *registry.Root) { delete(r.Hosts, "agent") })
	if err := w.g.SetRoot(less); err != nil {
		t.Fatal(err)
	}
	w.refused("without its host", w.call(), refusal.TaskEnded)
	if r := w.g.Reconsider(shopSet.Project); len(r.Calls) != 1 || r.Calls[0].Call != c || len(r.Sessions) != 1 {
		t.Fatalf("%+v", r)
	}
	if err := w.g.SetRoot(facts()); err != nil {
		t.Fatal(err)
	}
	w.refused("the host is back, the task is not", w.call(), refusal.TaskEnded)
	p, err := w.s.Policy()
	if err != nil || len(p.Tasks) != 1 || p.Tasks[0].Ended == 0 {
		t.Fatalf("%+v, %v", p.Tasks, err)
	}
}

func TestGate5_OneOutcomeForEachCall(t *testing.T) {
	w := newWorld(t)
	for outcome, state := range map[wire.Outcome]store.State{wire.Completed: store.Completed, wire.Failed: store.Failed, wire.Cancelled: store.Cancelled,
		wire.Unknown: store.Unknown, "made up": store.Unknown} {
		c := w.admitted(string(outcome), w.call())
		if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: outcome, Code: refusal.CallCancelled, Size: 11, Micros: 22}); err != nil {
			t.Fatal(err)
		}
		// What comes later is not an error, for the authority may have given it up meanwhile, and changes nothing.
		if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: wire.Failed, Size: 99}); err != nil {
			t.Fatal(err)
		}
		w.g.Abandon(c, refusal.CallTimeout)
		w.commit()
		if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: wire.Failed, Size: 99}); err != nil {
			t.Fatal(err)
		}
		w.commit()
		if r := w.record(c); r.State != state || r.Size != 11 || r.Micros != 22 || r.Code != refusal.CallCancelled {
			t.Fatalf("%s: %+v", outcome, r)
		}
	}
	c := w.admitted("given up", w.call())
	w.g.Abandon(c, refusal.CallTimeout)
	w.ended(c, wire.Completed)
	w.commit()
	if r := w.record(c); r.State != store.Unknown || r.Code != refusal.CallTimeout {
		t.Fatalf("%+v", r)
	}
	w.g.Abandon(id[ids.Call](3), refusal.CallTimeout)
	if w.g.OpenCalls() != 0 || w.g.Pending() {
		t.Fatal("something is left")
	}
}

func TestGate5_LateCallsAreToldOnceAndThenGivenUp(t *testing.T) {
	w := newWorld(t)
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Call = 10 * time.Second })
	d := w.call()
	if d.Limit != 10*time.Second {
		t.Fatalf("the registration's limit is not kept: %v", d.Limit)
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].Call = 0 })
	if d := w.ask(w.ses, w.conn, "list_dir"); d.Limit != DefaultCall {
		t.Fatalf("%v", d.Limit)
	}
	w.commit()
	if late := w.g.Late(w.now.Add(10*time.Second - 1)); len(late) != 0 {
		t.Fatalf("%+v", late)
	}
	at := w.now.Add(10 * time.Second)
	late := w.g.Late(at)
	if len(late) != 1 || late[0].Call != d.Call || !late[0].First || late[0].Set != shopSet || late[0].Place.Conn != w.conn || !late[0].Deadline.Equal(at) {
		t.Fatalf("%+v", late)
	}
	if late := w.g.Late(at); len(late) != 1 || late[0].First {
		t.Fatalf("%+v", late)
	}
	if late := w.g.Late(w.now.Add(DefaultCall)); len(late) != 2 {
		t.Fatalf("%+v", late)
	}
	w.g.Abandon(d.Call, refusal.CallTimeout)
	w.commit()
	if r := w.record(d.Call); r.State != store.Unknown || r.Code != refusal.CallTimeout {
		t.Fatalf("%+v", r)
	}
}

// An older incarnation's open calls are unknown before anything is admitted, and
// used binds and sessions survive.
func TestGate5_AfterARestartOpenCallsAreUnknown(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	w := worldOver(t, s)
	open := w.admitted("open", w.call())
	done := w.admitted("done", w.call())
	w.ended(done, wire.Completed)
	tok := w.mint(w.task, aliceUID, 2, time.Minute)
	if _, code := w.g.Bind(BindRequest{Project: shopSet.Project, UID: aliceUID, Token: tok}); code != "" {
		t.Fatal(code)
	}
	s.Close()
	s = openStore(t, dir)
	left, err := s.Recover(epoch.UnixNano() + 1)
	if err != nil || left.Calls != 1 || left.Sessions != 2 {
		t.Fatalf("%+v, %v", left, err)
	}
	r, err := registry.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	r.SetRoot(facts())
	again := *w
	again.s = s
	again.g = New(Config{Audit: unrecorded, Registry: r, Store: s, Now: w.g.now, Instant: w.g.instant, Random: w.g.random})
	if got := again.record(open).State; got != store.Unknown {
		t.Fatalf("%s", got)
	}
	if got := again.record(done).State; got != store.Completed {
		t.Fatalf("%s", got)
	}
	again.refused("a session of before", again.call(), refusal.SessionEnded)
	if err := again.g.Ended(shopSet, wire.Ended{Call: open, Outcome: wire.Completed}); err != nil {
		t.Fatal(err)
	}
	again.commit()
	if got := again.record(open).State; got != store.Unknown {
		t.Fatalf("it became %s", got)
	}
	if _, code := again.g.Bind(BindRequest{Project: shopSet.Project, UID: aliceUID, Token: tok}); code != "" {
		t.Fatalf("the second bind: %s", code)
	}
	if _, code := again.g.Bind(BindRequest{Project: shopSet.Project, UID: aliceUID, Token: tok}); code != refusal.TokenUsed {
		t.Fatalf("the third bind: %q", string(code))
	}
}

func TestGate6_AFloodOfDenialsIsFoldedAndStopsNoAdmission(t *testing.T) {
	w := newWorld(t)
	const flood = 500
	for i := range flood {
		w.refused("not granted", w.ask(w.ses, w.conn, "run_it"), refusal.ToolNotGranted)
		w.refused("unknown", w.ask(w.ses, id[ids.Connection](3000+i), fmt.Sprintf("tool_%d", i)), refusal.ToolUnknown)
		if i%100 == 0 {
			w.admitted("meanwhile", w.call())
		}
	}
	if n := w.denials(refusal.ToolNotGranted) + w.denials(refusal.ToolUnknown); n != 2*flood {
		t.Errorf("%d of %d denials are counted", n, 2*flood)
	}
	denied, admitted := 0, 0
	for _, r := range w.records() {
		if r.State == store.Denied {
			denied++
		} else {
			admitted++
		}
	}
	if denied > 12 || admitted != flood/100 {
		t.Errorf("%d denied records, %d admitted ones", denied, admitted)
	}
	w.g.SessionEnded(w.ses, "over")
	before := len(w.records())
	w.refused("of a session that is over", w.call(), refusal.SessionEnded)
	w.commit()
	if got := len(w.records()); got != before {
		t.Error("it was recorded as somebody's")
	}
}
