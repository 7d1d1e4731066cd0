package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// draining is a world whose open calls get a time when posternd is asked to end.
func draining(t *testing.T, seconds int) (*world, project) {
	t.Helper()
	w := &world{Rig: rig.ForTest(t, rig.Config{Bin: built.bin, Hosts: []rig.Host{{ID: "agents", UID: hostUID}}, Drain: seconds}), t: t}
	w.must("account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	w.must("server", "add", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count")
	return w, w.addProject("a", "alice", aliceUID)
}

// begun sends a call and returns where its answer will be, once the server has it.
func (w *world) begun(p project, r *runtime, tool, args string) chan message {
	w.t.Helper()
	before := len(w.calls(p))
	r.mu.Lock()
	r.next++
	id := fmt.Sprint(r.next)
	r.mu.Unlock()
	c := r.expect(id)
	if err := r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)); err != nil {
		w.t.Fatal(err)
	}
	until(w.t, "the server has the call", func() bool { return len(w.calls(p)) > before })
	return c
}

// states counts the project's records by state and code.
func (w *world) states(p project) map[string]int {
	out := map[string]int{}
	for _, row := range w.records(p) {
		out[row.State+" "+row.Code] += max(1, row.Count)
	}
	return out
}

// drain asks as root and reads the answer.
func (w *world) drain(args ...string) (api.DrainResult, string) {
	w.t.Helper()
	out, errb, exit := w.CLI(0, append([]string{"--json", "drain"}, args...)...)
	if exit != 0 {
		w.t.Fatalf("drain %v: exit %d\n%s%s", args, exit, out, errb)
	}
	var d api.DrainResult
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		w.t.Fatal(err)
	}
	return d, errb
}

// An open call ends by itself and its runtime has the answer; nothing new begins; lists
// are served; nobody but root may; and taken back, everything works again.
func TestX2_DrainLetsOpenCallsEndAndTakesNothingNew(t *testing.T) {
	w, p := draining(t, 0)
	tok, task := w.token(p, runtimeUID, "--binds", "3")
	r := w.connect(p, runtimeUID, tok).initialize()
	open := w.begun(p, r, "slow", `{"ms":3000}`)

	if _, errb, exit := w.CLI(aliceUID, "drain", "--now"); exit != 77 {
		t.Errorf("alice drains: exit %d, %s", exit, errb)
	}
	dry, _ := w.drain("--dry-run")
	if dry.State != "serving" || len(dry.Calls) != 1 || dry.Calls[0].Tool != "slow" || len(dry.Tasks) != 1 || dry.Tasks[0].Task != task {
		t.Errorf("the dry run: %+v", dry)
	}
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("after a dry run: %s", got.raw)
	}
	// Its end is told a moment after its answer, and it is open until then.
	until(t, "its end is recorded", func() bool { return w.states(p)["completed "] == 1 })

	type answer struct {
		api.DrainResult
		progress string
	}
	done := make(chan answer, 1)
	go func() { d, progress := w.drain("--timeout", "60s"); done <- answer{d, progress} }()
	var st api.StatusResult
	until(t, "it drains", func() bool { return w.Call(api.Status, nil, &st) == nil && st.State == "draining" })
	if got := r.call("echo", `{}`); got.outcome() != "draining" {
		t.Errorf("a new call: %s", got.raw)
	}
	if got := w.connect(p, runtimeUID, tok).ask("initialize", `{}`); got.outcome() == "ok" {
		t.Errorf("a new session: %s", got.raw)
	}
	if got := r.wait(open); got.text() != "slept" {
		t.Errorf("the open call: %s", got.raw)
	}
	d := <-done
	if d.State != "drained" || len(d.Calls) != 1 || len(d.Ended) != 0 || d.Sessions != 1 {
		t.Errorf("%+v", d)
	}
	if d.progress != "" { // it is for a terminal, and this is none
		t.Errorf("progress in a pipe: %q", d.progress)
	}
	<-r.ended
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{}, &ps); err != nil || len(ps.Rows) != 0 {
		t.Errorf("jails are left: %+v, %v", ps.Rows, err)
	}
	if err := w.Call(api.Status, nil, &st); err != nil || st.State != "drained" {
		t.Errorf("status %q, %v", st.State, err)
	}
	if got := w.states(p); got["completed "] != 2 || got["denied draining"] == 0 || got["unknown draining"] != 0 {
		t.Errorf("records: %v", got)
	}

	if d, _ := w.drain("--cancel"); d.State != "serving" {
		t.Errorf("%+v", d)
	}
	if got := w.connect(p, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("after it was taken back: %s", got.raw)
	}
}

// A call that does not end in time is unknown, its runtime is told, and both the answer
// and the record say so. So it is at once with --now.
func TestX2_DrainEndsWhatIsOpenWhenTheTimeIsOver(t *testing.T) {
	for name, args := range map[string][]string{"time": {"--timeout", "1s"}, "now": {"--now"}} {
		t.Run(name, func(t *testing.T) {
			w, p := draining(t, 0)
			tok, _ := w.token(p, runtimeUID)
			r := w.connect(p, runtimeUID, tok).initialize()
			open := w.begun(p, r, "stubborn", `{"ms":60000}`)
			d, _ := w.drain(args...)
			if d.State != "drained" || len(d.Ended) != 1 || d.Ended[0].Tool != "stubborn" {
				t.Errorf("%+v", d)
			}
			if got := r.wait(open); got.outcome() != "draining" {
				t.Errorf("the runtime is told %s", got.raw)
			}
			rows := w.records(p)
			if len(rows) != 1 || rows[0].State != "unknown" || rows[0].Code != "draining" || rows[0].Reason == "" || rows[0].Call != d.Ended[0].Call {
				t.Errorf("%+v", rows)
			}
		})
	}
}

// A restart under load: what was sent is answered or its session's end is seen, every
// call that was admitted has its outcome, and each answer that said it worked is a
// record that says so.
func TestX2_ARestartUnderLoadLosesNoCall(t *testing.T) {
	w, p := draining(t, 20)
	const runtimes = 4
	tok, _ := w.token(p, runtimeUID, "--binds", fmt.Sprint(2*runtimes))
	var worked, refused, cut atomic.Int64
	var all sync.WaitGroup
	for range runtimes {
		r := w.connect(p, runtimeUID, tok).initialize()
		all.Go(func() {
			for {
				switch got := r.call("slow", `{"ms":20}`).outcome(); got {
				case "ok":
					worked.Add(1)
				case "draining":
					refused.Add(1)
					return
				case "1":
					cut.Add(1) // the session ended
					return
				default:
					t.Errorf("a call came to %q", got)
					return
				}
			}
		})
	}
	// One that is open all the while, and one that does not end by itself.
	slow := w.connect(p, runtimeUID, tok).initialize()
	open := w.begun(p, slow, "slow", `{"ms":2000}`)
	until(t, "there is load", func() bool { return worked.Load() > 40 })
	if err := w.Down(); err != nil {
		t.Fatalf("posternd ended with %v", err)
	}
	all.Wait()
	if got := slow.wait(open); got.text() != "slept" {
		t.Errorf("the call that was open: %s", got.raw)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for cursor, more := "", true; more; {
		var page api.ActivityResult
		if err := w.Call(api.Activity, api.ActivityParams{Project: p.id, Limit: 500, Cursor: cursor}, &page); err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			rows[row.State]++
		}
		cursor, more = page.Cursor, page.More
	}
	t.Logf("%d worked, %d refused, %d sessions cut; records %v", worked.Load(), refused.Load(), cut.Load(), rows)
	if rows["admitted"] != 0 || rows["unknown"] != 0 || rows["completed"] != int(worked.Load())+1 {
		t.Errorf("%d calls worked, and the records are %v", worked.Load()+1, rows)
	}
	// Tokens outlive it.
	if got := w.connect(p, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("after the restart: %s", got.raw)
	}
}

// A second signal does not wait: the open call is unknown, with nothing left behind.
func TestX2_ASecondSignalEndsAtOnce(t *testing.T) {
	w, p := draining(t, 600)
	tok, _ := w.token(p, runtimeUID)
	r := w.connect(p, runtimeUID, tok).initialize()
	w.begun(p, r, "stubborn", `{"ms":600000}`)
	if err := syscall.Kill(w.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var st api.StatusResult
	until(t, "it drains", func() bool { return w.Call(api.Status, nil, &st) == nil && st.State == "draining" })
	if _, errb, exit := w.CLI(0, "drain", "--cancel"); exit == 0 {
		t.Errorf("a stop was taken back: %s", errb)
	}
	began := time.Now()
	if err := w.Down(); err != nil { // the second signal
		t.Fatal(err)
	}
	t.Logf("ended %v after the second signal", time.Since(began).Round(time.Millisecond))
	<-r.ended
	if left := w.Left(); len(left) != 1 { // its directory, for it may come up again
		t.Errorf("left: %v", left)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if rows := w.records(p); len(rows) != 1 || rows[0].State != "unknown" {
		t.Errorf("%+v", rows)
	}
}
