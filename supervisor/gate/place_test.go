package gate

import (
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// A session's calls go to its own task's instance where the server is of scope task:
// in the view, at the start and in every bound; two tasks share neither.
func TestGate7_J2_CallsOfATaskGoToItsOwnPlace(t *testing.T) {
	w := newWorld(t)
	other := w.bind(w.newTask(alice, shop))
	again := w.bind(w.task)
	slot := func(tools []wire.Tool) (n uint64) {
		for _, x := range tools {
			if x.Connection == w.conn {
				n = x.Slot
			}
		}
		return n
	}
	if at := w.g.Place(shopSet, w.ses, w.conn); at != (Place{Conn: w.conn}) || slot(w.g.View(shopSet, w.ses)) != 0 {
		t.Fatalf("a server of scope project: %+v", at)
	}
	w.editServer(func(s *registry.RootServer) { s.Revisions[s.Current].PerTask = true })
	mine, theirs := w.g.Place(shopSet, w.ses, w.conn), w.g.Place(shopSet, other, w.conn)
	if mine != (Place{w.conn, w.task}) || theirs.Conn != w.conn || theirs == mine || w.g.Place(shopSet, again, w.conn) != mine {
		t.Fatalf("%+v, %+v", mine, theirs)
	}
	one, two, three := slot(w.g.View(shopSet, w.ses)), slot(w.g.View(shopSet, other)), slot(w.g.View(shopSet, again))
	if one == 0 || two == 0 || one == two || one != three {
		t.Errorf("slots %d, %d, %d", one, two, three)
	}
	for _, x := range []struct {
		ses  wire.Start
		want Place
	}{{wire.Start{Session: w.ses, Connection: w.conn, Tool: "read_rows"}, mine}, {wire.Start{Session: other, Connection: w.conn, Tool: "read_rows"}, theirs}} {
		if plan, _, code := w.g.MayStart(shopSet, x.ses, Seen{}); code != "" || plan.At != x.want {
			t.Errorf("%+v %q", plan, string(code))
		}
	}

	// An open call keeps only its own instance from being stopped for idleness.
	call := w.admitted("mine", w.ask(w.ses, w.conn, "read_rows"))
	if !w.g.Busy(shopSet, mine) || w.g.Busy(shopSet, theirs) {
		t.Error("another task's call counts")
	}
	// The bound of one instance's calls is its own.
	w.g.perPlace[placeKey{shopSet, mine}] = MaxPerConnection
	w.refused("the instance is full", w.ask(w.ses, w.conn, "read_rows"), refusal.LimitCalls)
	w.admitted("the other's is not", w.ask(other, w.conn, "read_rows"))
	w.g.perPlace[placeKey{shopSet, mine}] = 1
	// What one task's instance lists says nothing of another's.
	w.g.Listed(shopSet, mine, w.running(w.conn), []byte("[]"))
	w.refused("its instance lists the tool no more", w.ask(w.ses, w.conn, "read_rows"), refusal.ToolChanged)
	w.admitted("the other's does", w.ask(other, w.conn, "read_rows"))
	if v := w.g.Standing(shopSet.Project, w.conn, "read_rows"); v.Allow {
		t.Error("a person who looks is told nothing of it")
	}
	if !w.g.Unlisted(shopSet, mine) {
		t.Error("it was not forgotten")
	}
	w.admitted("after its end", w.ask(w.ses, w.conn, "read_rows"))
	w.ended(call, wire.Completed)
	w.commit()
	if r := w.record(call); r.State != store.Completed {
		t.Errorf("%+v", r)
	}

	// The task's end.
	if w.g.TaskOver(w.task) || !w.g.TaskOver(ids.Task("tsk_"+strings.TrimPrefix(string(other), "ses_"))) {
		t.Error("TaskOver")
	}
	w.do(w.reg().EndTask(w.task, "revoked", w.now))
	if !w.g.TaskOver(w.task) {
		t.Error("the task has ended")
	}
	w.g.ForgetTask(w.task)
	if len(w.g.slots) != 1 {
		t.Errorf("kept: %v", w.g.slots)
	}
}
