package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// stands reads what root's facts say of a project.
func (r *rig) stands(id ids.Project) Project {
	r.t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.cfg.RootDir, factsName))
	if err != nil {
		r.t.Fatal(err)
	}
	var f struct {
		Projects []Project `json:"projects"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		r.t.Fatal(err)
	}
	for _, p := range f.Projects {
		if p.ID == id {
			return p
		}
	}
	r.t.Fatalf("no project %s in %s", id, raw)
	return Project{}
}

// holding gives cfg a postern-jail that waits while there is a pipe of the returned name.
func holding(t *testing.T, cfg *Config) (pipe string) {
	t.Helper()
	dir := newDir(t)
	kept := filepath.Join(cfg.RootDir, programsDir) // from where it is started
	pipe = filepath.Join(kept, "pipe")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{authorityProgram: filepath.Join(dir, authorityProgram), bridgeProgram: filepath.Join(dir, bridgeProgram), "server": filepath.Join(dir, "server"), jailProgram: filepath.Join(kept, "held")} {
		raw, err := os.ReadFile(filepath.Join(cfg.Libexec, from))
		if err == nil {
			err = os.WriteFile(to, raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-o", filepath.Join(dir, jailProgram), "./testdata/hold")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cfg.Libexec = dir
	return pipe
}

// A tool server that was just being started when its project was moved was not among those
// that the move ended: it ran in the former directory after the move had returned. One that
// never comes about holds the move up for as long as a jail may take to be built, no longer.
func TestAServerThatIsStartedWhileItsProjectIsMovedIsEnded(t *testing.T) {
	cfg := newConfig(t)
	pipe := holding(t, &cfg)
	r := start(t, cfg)
	p, was := r.project("alice", 1000)
	server, rev := r.server("echo", "/workspace/made")
	d := r.drive()
	for _, answers := range []bool{true, false} {
		now := r.workspace(fmt.Sprintf("there-%v", answers), 1000)
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev, Moved: r.stands(p).Moved})
		var hold *os.File
		waitFor(t, "it is being started", func() bool {
			fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				hold = os.NewFile(uintptr(fd), pipe)
			}
			return err == nil
		})
		if err := os.Remove(pipe); err != nil { // only the one
			t.Fatal(err)
		}
		type answer struct {
			result  map[string]any
			refused *api.Refusal
		}
		moved := make(chan answer, 1)
		began := time.Now()
		go func() {
			m, refused := r.ask(api.ProjectMove, api.ProjectMoveParams{Project: string(p), Workspace: now})
			moved <- answer{m, refused}
		}()
		waitFor(t, "the move is written", func() bool { return r.stands(p).Workspace == now })
		var got answer
		if answers {
			select { // what returns now returned too early
			case got = <-moved:
				t.Error("the move returned while a server is being started in the former directory")
				moved <- got
			case <-time.After(time.Second):
			}
			hold.Close()
		}
		got = <-moved
		if took := time.Since(began); got.refused != nil || took > 3*moveWait {
			t.Fatalf("%+v after %v", got, took)
		}
		if got.result["warnings"] != nil {
			t.Errorf("%v", got.result["warnings"])
		}
		// No process is left that has the former directory, whatever the authority was told.
		made := filepath.Join(was, "made")
		os.Remove(made)
		d.give(order.StatJails{Seq: 2})
		switch m, _ := d.next(func(m order.Down) bool {
			switch m.(type) {
			case order.Stats, order.Launched:
				return true
			}
			return false
		}); m := m.(type) {
		case order.Launched:
			if unix.Kill(m.PID, 0) == nil {
				t.Errorf("process %d lives", m.PID)
			}
		case order.Stats:
			if len(m.Rows) != 0 {
				t.Errorf("%+v", m.Rows)
			}
		}
		hold.Close()
		// The authority that has not heard of it is refused; the twin is started, in the new one.
		d.give(order.LaunchServer{Seq: 3, Project: p, Server: server, Revision: rev, Moved: 1})
		d.next(func(m order.Down) bool {
			n, ok := m.(order.NotLaunched)
			return ok && n.Seq == 3 && n.Code == refusal.ProjectReplaced
		})
		d.give(order.LaunchServer{Seq: 4, Project: p, Server: server, Revision: rev, Moved: r.stands(p).Moved})
		_, files := d.next(func(m order.Down) bool { l, ok := m.(order.Launched); return ok && l.Seq == 4 })
		if s := hear(t, files[1]); s.Wrote != "" {
			t.Errorf("%+v", s)
		}
		if gone(filepath.Join(now, "made")) || !gone(made) {
			t.Error("it does not work in the new directory alone")
		}
		for _, f := range files {
			f.Close()
		}
		d.next(func(m order.Down) bool { _, ok := m.(order.Exited); return ok })
		was = now
	}
}

// A launch that does not come back is told, does not hold the move up, and never runs; one
// of another project does not matter.
func TestAMoveThatCannotEndALaunchSaysSo(t *testing.T) {
	p, q := newID[ids.Project](time.Now()), newID[ids.Project](time.Now())
	log := &buffer{}
	s := &Supervisor{cfg: Config{Log: hclog.New(&hclog.LoggerOptions{Output: log})}, jails: map[ids.Jail]*running{}, building: map[*running]chan struct{}{},
		facts: Facts{Projects: []Project{{Project: order.Project{ID: p}}, {Project: order.Project{ID: q}}}}}
	launch := func(id ids.Project) *running {
		j := &running{row: order.JailRow{Kind: kindServer, Project: id}}
		if refused := s.build(j); refused != nil {
			t.Fatal(refused)
		}
		return j
	}
	one, two, other := launch(p), launch(p), launch(q)
	s.facts.Projects[0].Moved = 7
	if refused := s.build(&running{row: one.row}); refused == nil || refused.Code != refusal.ProjectReplaced {
		t.Errorf("a launch that begins now: %v", refused)
	}
	if refused := s.proceed(two); refused == nil || refused.Code != refusal.ProjectReplaced {
		t.Errorf("a launch that waited for a file system: %v", refused)
	}
	if refused := s.proceed(other); refused != nil {
		t.Errorf("one of another project: %v", refused)
	}
	s.built(one)
	got := s.endElsewhere(p, 50*time.Millisecond)
	if len(got) != 1 || !strings.HasPrefix(got[0], "1 of its servers") || !strings.Contains(log.String(), string(p)) {
		t.Errorf("%q\n%s", got, log)
	}
	s.built(two)
	if got := s.endElsewhere(p, time.Minute); got != nil {
		t.Errorf("%q", got)
	}
}

// Whatever the clock does, no two moves look the same.
func TestEachMoveIsAnother(t *testing.T) {
	alice, p := newID[ids.Account](time.Now()), newID[ids.Project](time.Now())
	f := Facts{Accounts: []order.Account{{ID: alice, Name: "alice"}}, Projects: []Project{{Project: order.Project{ID: p, Owner: alice, Workspace: "/srv/a"}}}}
	seen := map[int64]bool{0: true}
	for _, ms := range []int64{5_000, 5_000, 5_000, 1_000, 999, 0, -7, 5_001, 5_001, 9_000} {
		g, x, _, refused := f.moveProject(api.ProjectMoveParams{Project: string(p), Workspace: "/srv/b"}, time.UnixMilli(ms))
		if refused != nil {
			t.Fatal(refused)
		}
		if x.Moved <= f.Projects[0].Moved || seen[x.Moved] {
			t.Errorf("moved at %d after %d, at %d", x.Moved, f.Projects[0].Moved, ms)
		}
		seen[x.Moved] = true
		f = g
	}
}

// A server whose profile gives it no directory was taken for one of a former directory, and
// killed at each start after a move, for ever.
func TestAServerWithoutADirectoryStartsInAProjectThatWasMoved(t *testing.T) {
	cfg := newConfig(t)
	cfg.Profiles = maps.Clone(cfg.Profiles)
	own := cfg.Profiles["static"]
	own.Name, own.Digest, own.Workspace = "nowhere", strings.Repeat("1", 64), false
	cfg.Profiles["nowhere"] = own
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	r.server("echo")
	m := r.must(api.ServerAdd, api.ServerParams{Label: "nowhere", Profile: "nowhere", Package: filepath.Join(r.dir, "pkg-echo"), Command: []string{"/package/server"}})
	server, rev := ids.Server(m["server"].(string)), ids.Revision(m["revision"].(string))
	task, taskRev := r.perTask("notes")
	d := r.drive()
	run := func(server ids.Server, rev ids.Revision, n byte) (order.Launched, []*os.File) {
		t.Helper()
		x := order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev, Moved: r.stands(p).Moved}
		if n > 0 {
			x.Task = taskID(n)
		}
		d.give(x)
		l, files := d.launched()
		hear(t, files[1])
		return l, files
	}
	for i := range byte(3) { // before each move, and with what the move before found
		l, files := run(server, rev, 0)
		ofTask, more := run(task, taskRev, i+1)
		to := r.workspace(fmt.Sprintf("there-%d", i), 1000)
		r.must(api.ProjectMove, api.ProjectMoveParams{Project: string(p), Workspace: to})
		for _, j := range []order.Launched{l, ofTask} { // what the tasks from before told them ends with those
			if err := unix.Kill(j.PID, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("process %d after a move: %v", j.PID, err)
			}
			expect[order.Exited](d)
		}
		for _, f := range append(files, more...) {
			f.Close()
		}
	}
	// Once more, with nothing alive: they start and stay.
	l, files := run(server, rev, 0)
	ofTask, more := run(task, taskRev, 9)
	d.give(order.StatJails{Seq: 2})
	if m, _ := expect[order.Stats](d); len(m.Rows) != 2 {
		t.Errorf("alive are %+v, want %s and %s", m.Rows, l.Jail, ofTask.Jail)
	}
	for _, f := range append(files, more...) {
		f.Close()
	}
}

// A file is fetched from the directory that its server worked in, or not at all, whenever
// its project is moved.
func TestAFileIsNeverFetchedFromAnotherDirectory(t *testing.T) {
	r := start(t, newConfig(t))
	p, was := r.project("alice", 1000)
	server, rev := r.server("pictures")
	lay(t, filepath.Join(was, "a.png"), "0", 1000, 0o600)
	d := r.drive()
	launch := func() (ids.Jail, []*os.File) {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev, Moved: r.stands(p).Moved})
		l, files := d.launched()
		return l.Jail, files
	}
	got := map[string]int{}
	for i := range 8 {
		jail, files := launch()
		if raw, why := d.fetch(jail, "/workspace/a.png"); raw != fmt.Sprint(i) {
			t.Errorf("before move %d: %q, %s", i, raw, why)
		}
		now := r.workspace(fmt.Sprintf("there-%d", i), 1000)
		lay(t, filepath.Join(now, "a.png"), fmt.Sprint(i+1), 1000, 0o600)
		moved := make(chan *api.Refusal, 1)
		go func() {
			_, refused := r.ask(api.ProjectMove, api.ProjectMoveParams{Project: string(p), Workspace: now})
			moved <- refused
		}()
		for done := false; !done; {
			select {
			case refused := <-moved:
				if done = true; refused != nil {
					t.Fatal(refused)
				}
			default:
			}
			raw, why := d.fetch(jail, "/workspace/a.png")
			if raw != "" && raw != fmt.Sprint(i) || raw == "" && why != notDir || done && raw != "" {
				t.Errorf("move %d, returned %v: %q, %q", i, done, raw, why)
			}
			got[why]++
		}
		for _, f := range files {
			f.Close()
		}
	}
	t.Logf("fetched, and why not: %v", got)
}
