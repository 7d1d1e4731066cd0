package workers

import (
	"slices"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

// perTask makes the server of every connection one of scope task.
func (r *rig) perTask() {
	r.t.Helper()
	root := facts()
	for _, s := range root.Servers {
		for _, v := range s.Revisions {
			v.PerTask = true
		}
	}
	v := r.setFacts(root)
	r.await("the facts", func() bool { return r.acked(v) })
}

// startIn asks for the instance of the session's slot, as an honest bridge does.
func (b *bridge) startIn(s ids.Session, c ids.Connection, slot uint64) (wire.Started, refusal.Code) {
	m := b.question(c, func(seq uint64) wire.Up {
		return wire.Start{Seq: seq, Session: s, Connection: c, Slot: slot, Tool: "read_rows", RequestID: "1"}
	})
	switch m := m.(type) {
	case wire.Started:
		return m, ""
	case wire.NotStarted:
		if m.Slot != slot {
			b.r.t.Errorf("asked for slot %d, answered for %d", slot, m.Slot)
		}
		return wire.Started{}, m.Code
	}
	return wire.Started{}, "no answer"
}

// Two tasks of a project have an instance each, in one bridge. A bridge that names the
// other task's instance, or its slot, gets nothing by it. When a task ends, its instance
// does, and posternd is told, once, that its directory is needed no more.
func TestWorkers6_EachTaskHasItsOwnInstance(t *testing.T) {
	r := newRig(t)
	r.perTask()
	path := r.socket(shop)
	b, s1 := r.session(path, shop)
	_, s2, line := r.bind(path, bobUID, bindPlain) // bob is a member: another task
	if s2 == "" {
		t.Fatalf("bind: %s", line)
	}
	slot := func(s ids.Session) uint64 { return b.view(s)[0].Slot }
	n1, n2 := slot(s1), slot(s2)
	if n1 == 0 || n2 == 0 || n1 == n2 {
		t.Fatalf("slots %d and %d", n1, n2)
	}
	c := r.conn[shop]
	for _, wrong := range []uint64{0, n2, 99} {
		if _, code := b.startIn(s1, c, wrong); code != refusal.Busy {
			t.Errorf("slot %d for the first session: %q", wrong, string(code))
		}
	}
	in1, code1 := b.startIn(s1, c, n1)
	in2, code2 := b.startIn(s2, c, n2)
	if code1 != "" || code2 != "" || in1.Instance == in2.Instance || in1.Slot != n1 || in2.Slot != n2 {
		t.Fatalf("%+v %q, %+v %q", in1, string(code1), in2, string(code2))
	}
	var tasks []ids.Task
	r.await("two orders", func() bool {
		tasks = nil
		for _, o := range only[order.LaunchServer](r) {
			tasks = append(tasks, o.Task)
		}
		return len(tasks) == 2
	})
	if tasks[0] == tasks[1] || slices.Contains(tasks, "") {
		t.Fatalf("started for %v", tasks)
	}
	if _, code := b.admit(s1, c, in1.Instance, "read_rows"); code != "" {
		t.Errorf("its own instance: %q", string(code))
	}
	if _, code := b.admit(s1, c, in2.Instance, "read_rows"); code == "" {
		t.Error("the other task's instance was admitted")
	}
	rows, err := r.w.Ps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(rows, func(x Row) bool { return x.Kind != "server" })); n != 2 {
		t.Errorf("ps shows %d servers", n)
	}

	// A directory of a former life whose task never was, or has ended, is given up.
	stranger := fresh[ids.Task]()
	r.say(order.TaskDirs{Tasks: []ids.Task{stranger, tasks[1]}})
	r.await("the stranger's directory is given up", func() bool { return slices.Contains(only[order.TaskGone](r), order.TaskGone{Task: stranger}) })

	r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) {
		return reg.EndTask(tasks[0], "revoked", time.Now())
	})
	r.await("the ended task's directory is given up", func() bool { return slices.Contains(only[order.TaskGone](r), order.TaskGone{Task: tasks[0]}) })
	r.mu.Lock()
	if !r.jails[in1.Instance].gone || r.jails[in2.Instance].gone {
		t.Error("the instances: the ended task's lives, or the other's does not")
	}
	if n := len(only[order.TaskGone](r)); n != 2 {
		t.Errorf("%d tasks were given up", n)
	}
	r.mu.Unlock()
	if _, code := b.admit(s2, c, in2.Instance, "read_rows"); code != "" {
		t.Errorf("the other task's call: %q", string(code))
	}
	r.settled("nothing is kept for the ended task", func() bool {
		return r.w.sets[b.key].insts[gate.Place{Conn: c, Task: tasks[0]}] == nil && !r.w.dirs[tasks[0]] && r.w.dirs[tasks[1]]
	})
}
