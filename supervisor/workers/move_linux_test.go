package workers

import (
	"testing"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
)

// move pushes root facts in which shop has another directory, and returns when the loop
// decides by them.
func (r *rig) move(ms int64) {
	r.t.Helper()
	next := facts()
	p := next.Projects[id[ids.Project](shop)]
	p.Moved = ms
	next.Projects[p.ID] = p
	v := r.setFacts(next)
	r.await("the move", func() bool { return r.acked(v) })
}

// Between the move of a project and the end of its servers, the calls of a task that was
// made since went to a server of the former directory.
func TestNoCallIsAdmittedToAServerOfAFormerDirectory(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	b, was := r.session(path, shop)
	jail, code := b.start(was, r.conn[shop], "read_rows")
	if code != "" {
		t.Fatal(code)
	}
	if _, code := b.admit(was, r.conn[shop], jail, "read_rows"); code != "" {
		t.Fatalf("before the move: %s", code)
	}
	r.mu.Lock()
	r.unkillable[jail] = true // posternd takes its time
	r.mu.Unlock()
	r.move(5)
	if _, code := b.admit(was, r.conn[shop], jail, "read_rows"); code == "" {
		t.Error("a call of a session from before was admitted")
	}
	_, now := r.session(path, shop)
	if call, code := b.admit(now, r.conn[shop], jail, "read_rows"); code == "" {
		t.Errorf("%s was admitted to a server of the former directory", call)
	}
	r.mu.Lock()
	delete(b.instances, r.conn[shop]) // it asks for another, as it must
	r.mu.Unlock()
	type started struct {
		jail ids.Jail
		code refusal.Code
	}
	next := make(chan started, 1)
	go func() {
		j, code := b.start(now, r.conn[shop], "read_rows")
		next <- started{j, code}
	}()
	r.kill(jail, order.Exited{Signal: 9, Status: -1})
	got := <-next
	if got.code != "" || got.jail == jail {
		t.Fatalf("%+v", got)
	}
	if _, code := b.admit(now, r.conn[shop], got.jail, "read_rows"); code != "" {
		t.Errorf("at the server of the new directory: %s", code)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := only[order.LaunchServer](r); len(all) != 2 || all[0].Moved != 0 || all[1].Moved != 5 {
		t.Errorf("it was asked for %+v", all)
	}
}

// A server that was being started when its project was moved is none; whoever waits for
// the next one gets it at once, however the launch ended and whenever that is heard.
func TestAServerIsStartedAnewWhenItsProjectWasMovedMeanwhile(t *testing.T) {
	for _, first := range []string{"the launch's end", "the move"} {
		r := newRig(t)
		path := r.socket(shop)
		r.mu.Lock()
		r.onServer = func(order.LaunchServer) refusal.Code { return held }
		r.mu.Unlock()
		b, was := r.session(path, shop)
		ask := func(s ids.Session) chan refusal.Code {
			out := make(chan refusal.Code, 1)
			go func() {
				_, code := b.start(s, r.conn[shop], "read_rows")
				out <- code
			}()
			return out
		}
		before := ask(was)
		r.await("a launch", func() bool { return len(only[order.LaunchServer](r)) == 1 })
		r.mu.Lock()
		seq := only[order.LaunchServer](r)[0].Seq
		r.onServer = nil
		r.mu.Unlock()
		if first == "the move" {
			r.move(5)
			_, now := r.session(path, shop)
			after := ask(now)
			r.say(order.NotLaunched{Seq: seq, Code: refusal.ProjectReplaced, Text: "moved"})
			if code := <-before; code == "" {
				t.Error("a call from before got a server")
			}
			if code := <-after; code != "" {
				t.Errorf("a call that waited: %s", code)
			}
		} else {
			r.say(order.NotLaunched{Seq: seq, Code: refusal.ProjectReplaced, Text: "moved"})
			if code := <-before; code != refusal.ProjectReplaced {
				t.Errorf("a call from before: %q", code)
			}
			// Why none started in the former directory is no reason to wait in this one.
			r.move(5)
			_, now := r.session(path, shop)
			if _, code := b.start(now, r.conn[shop], "read_rows"); code != "" {
				t.Errorf("after the move: %s", code)
			}
		}
	}
	// The twin: where nothing was moved, a failed start holds the next one back.
	r := newRig(t)
	r.mu.Lock()
	r.onServer = func(order.LaunchServer) refusal.Code { return refusal.ProjectReplaced }
	r.mu.Unlock()
	b, s := r.session(r.socket(shop), shop)
	for _, want := range []refusal.Code{refusal.ProjectReplaced, refusal.LimitStarts} {
		if _, code := b.start(s, r.conn[shop], "read_rows"); code != want {
			t.Errorf("%q, want %q", code, want)
		}
	}
}
