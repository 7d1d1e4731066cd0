package workers

import (
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// told is what is said of the files server of shop: why it cannot be called, whether it is
// held back, and what ps shows of those that are down.
func (r *rig) told() (down string, held bool, rows int) {
	r.t.Helper()
	if err := r.do(func() error {
		down, held = r.w.Down(id[ids.Project](shop), r.conn[shop]), r.w.Held(id[ids.Project](shop), r.conn[shop])
		for _, row := range r.w.rows(nil) {
			if row.State == "down" && row.LastError == down {
				rows++
			}
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return down, held, rows
}

// crash ends a server as a crash does, and waits until the loop knows.
func (r *rig) crash(b *bridge, jail ids.Jail) {
	r.t.Helper()
	r.kill(jail, order.Exited{Status: 3})
	r.settled("the crash is known", func() bool { return r.w.jails[jail].inst == nil })
	r.await("its bridge knows", func() bool { return len(b.exits) > 0 && b.exits[len(b.exits)-1].Instance == jail })
}

// A server that crashed and was started again with success was still told as one that
// cannot be called as soon as it rested.
func TestACrashThatHealedIsNotToldOfAServerThatRests(t *testing.T) {
	r := newRig(t)
	b, s, jail := r.ready(r.socket(shop))
	if down, held, rows := r.told(); down != "" || held || rows != 0 {
		t.Fatalf("at first: %q %v %d", down, held, rows)
	}
	r.crash(b, jail)
	if down, _, rows := r.told(); !strings.Contains(down, "status 3") || rows != 1 { // the twin: it is down
		t.Errorf("while it is down: %q, %d rows", down, rows)
	}
	again, code := b.start(s, r.conn[shop], "read_rows")
	if code != "" {
		t.Fatal(code)
	}
	if _, code := b.admit(s, r.conn[shop], again, "read_rows"); code != "" {
		t.Fatal(code)
	}
	// It rests, as after its idle time.
	if err := r.do(func() error { r.w.stopInstance(r.w.jails[again].inst, StopGrace); return nil }); err != nil {
		t.Fatal(err)
	}
	r.settled("it rests", func() bool { return r.w.jails[again].inst == nil })
	if down, held, rows := r.told(); down != "" || held || rows != 0 {
		t.Errorf("a server that was not needed is told as %q, held %v, %d rows", down, held, rows)
	}
}

// What befell a server of another ceiling is no reason any more when one of the connection
// was started since.
func TestACrashAtOneCeilingIsNotToldAfterAGoodStartAtAnother(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	b, _, jail := r.ready(path)
	r.crash(b, jail)
	if down, _, _ := r.told(); down == "" {
		t.Error("it is not told while it is down")
	}
	if err := r.do(func() error {
		other := &set{key: gate.Set{Project: id[ids.Project](shop), Number: 99}, link: link{fd: -1}, sessions: map[ids.Session]bool{}, insts: map[gate.Place]*instance{}}
		inst := &instance{at: gate.Place{Conn: r.conn[shop]}, set: other, revision: id[ids.Revision](files), state: instReady}
		r.w.mended(inst)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if down, _, rows := r.told(); down != "" || rows != 0 {
		t.Errorf("after a good start at another ceiling: %q, %d rows", down, rows)
	}
}

// How a server of a former revision ended is told of no other, and holds none back.
func TestACrashOfAFormerRevisionIsNotToldOfTheNext(t *testing.T) {
	r := newRig(t)
	b, s, jail := r.ready(r.socket(shop))
	r.crash(b, jail)
	r.event(func() { r.onServer = func(order.LaunchServer) refusal.Code { return refusal.ServerUnavailable } })
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.ServerUnavailable {
		t.Fatal(code)
	}
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.LimitStarts {
		t.Fatal(code)
	}
	if down, held, rows := r.told(); down == "" || !held || rows != 1 { // the twin: the same revision
		t.Errorf("while it is down: %q %v %d", down, held, rows)
	}
	r.event(func() { r.onServer = nil })
	rev := r.revise(7)
	if down, held, rows := r.told(); down != "" || held || rows != 0 {
		t.Errorf("of a revision that nobody accepted: %q %v %d", down, held, rows)
	}
	r.accept(rev)
	if down, held, rows := r.told(); down != "" || held || rows != 0 {
		t.Errorf("of the next revision: %q %v %d", down, held, rows)
	}
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != "" {
		t.Errorf("the next revision is held back for the former: %s", code)
	}
	// It is told of its own crashes.
	r.mu.Lock()
	next := b.instances[r.conn[shop]].Instance
	r.mu.Unlock()
	r.settled("it is ready", func() bool { return r.w.jails[next].inst.state == instReady })
	r.crash(b, next)
	if down, _, _ := r.told(); !strings.Contains(down, "status 3") {
		t.Errorf("a crash of the next revision: %q", down)
	}
}

// Who failed for want of a good credential is not held back with another.
func TestBackOffForgetsWhatFailed(t *testing.T) {
	b := backoff{}
	now := time.Unix(1e9, 0)
	b.failed(now, "no")
	b.restarts = 3
	b.anew()
	if b != (backoff{restarts: 3}) {
		t.Errorf("%+v", b)
	}
}
