package registry

import (
	"testing"
	"time"

	"postern/ids"
	"postern/supervisor/store"
)

// A task ended, or did not, by whether it was made before its project was moved as clocks
// tell it. A clock that was set back between the two let a task from before go on in the
// new directory, after a crash of the authority, and ended each task that was made since.
func TestATaskIsOfOneDirectoryWhateverTheClocksSay(t *testing.T) {
	p := id[ids.Project](shop)
	movedAt := func(ms int64) *Root {
		root := facts()
		rp := root.Projects[p]
		rp.Moved = ms
		root.Projects[p] = rp
		return root
	}
	const before, after = 1_000, 2_000 // what the project's Moved is
	for says, created := range map[string]int64{"a clock that runs": 1_500, "one that was set back": 500, "one that stands": 2_000, "one that was set forward": 9_000} {
		w := newWorld(t)
		w.r.SetRoot(movedAt(before))
		task := w.task(alice, shop, "agent")
		task.Created = created
		w.do(w.r.NewTask(task))
		w.do(w.r.Reconcile(movedAt(before), now), nil)
		if w.r.Task(task.ID).Ended != 0 {
			t.Errorf("%s: its own directory ended it", says)
		}
		reopen := func() {
			var err error
			if w.r, err = Load(w.s); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // this life of the authority, and one that was not there
			if c := w.r.Reconcile(movedAt(after), now); len(c.Put) != 1 || c.Put[0].(Task).ID != task.ID || c.Put[0].(Task).Ended == 0 {
				t.Errorf("%s: after a move: %+v", says, c)
			}
			reopen()
		}
		w.do(w.r.Reconcile(movedAt(after), now), nil)
		w.r.SetRoot(movedAt(after))
		// The twin: one that is made since goes on, also in the next life.
		next := w.task(alice, shop, "agent")
		next.Created = created
		w.do(w.r.NewTask(next))
		for range 2 {
			if c := w.r.Reconcile(movedAt(after), now); !c.Empty() {
				t.Errorf("%s: made since: %+v", says, c)
			}
			reopen()
			w.r.SetRoot(movedAt(after))
		}
	}
}

// Of a task that was made before that was written, the times have to tell.
func TestATaskFromBeforeDirectoriesWereWritten(t *testing.T) {
	p := id[ids.Project](shop)
	for created, ends := range map[int64]bool{1_000: true, 2_000: true, 2_001: false} {
		w := newWorld(t)
		task := w.task(alice, shop, "agent")
		task.Created, task.Moved = created, -1
		w.do(Change{Put: []store.Row{task}}, nil)
		var err error
		if w.r, err = Load(w.s); err != nil {
			t.Fatal(err)
		}
		root := facts()
		rp := root.Projects[p]
		rp.Moved = 2_000
		root.Projects[p] = rp
		w.do(w.r.Reconcile(root, time.UnixMilli(3_000)), nil)
		w.r.SetRoot(root)
		if got := w.r.Task(task.ID).Ended != 0; got != ends {
			t.Errorf("made at %d: ended %v", created, got)
		}
		// It was there when the project was moved again, whatever the time of that is.
		rp.Moved = 1
		root = facts()
		root.Projects[p] = rp
		w.do(w.r.Reconcile(root, time.UnixMilli(4_000)), nil)
		if w.r.Task(task.ID).Ended == 0 {
			t.Errorf("made at %d: it outlived a move that it saw", created)
		}
	}
}
