package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// perTask registers the test's server with scope task.
func (r *rig) perTask(label string, args ...string) (ids.Server, ids.Revision) {
	r.t.Helper()
	r.server(label, args...)
	m := r.must(api.ServerUpdate, api.ServerParams{Label: label, Profile: "static", Scope: "task", Package: filepath.Join(r.dir, "pkg-"+label),
		Command: append([]string{"/package/server"}, args...)})
	if m["scope"] != "task" {
		r.t.Fatalf("%v", m)
	}
	return ids.Server(m["server"].(string)), ids.Revision(m["revision"].(string))
}

func taskID(n byte) ids.Task {
	return ids.New[ids.Task](time.UnixMilli(1_790_000_000_000), [10]byte{9: n})
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

func gone(path string) bool { _, err := os.Lstat(path); return os.IsNotExist(err) }

// A server of scope task runs in its task's directory: its files are the owner's on
// disk, lie in no project's directory, outlast the instance and posternd, and go with
// the task. An order that names the task beside another project is refused, before a
// restart and after it.
func TestLaunch11_ATasksDirectoryIsItsOwn(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	p, ws := r.project("alice", 1000)
	q, _ := r.project("bob", 1001)
	server, rev := r.perTask("notes", "/workspace/made")
	shared, sharedRev := r.server("shared", "/workspace/made")
	work := filepath.Join(cfg.RootDir, workDir)
	one, two := taskID(1), taskID(2)
	d := r.drive()
	run := func(p ids.Project, task ids.Task) (order.Launched, []*os.File) {
		t.Helper()
		d.give(order.LaunchServer{Seq: 1, Project: p, Server: server, Revision: rev, Task: task})
		l, files := d.launched()
		if s := hear(t, files[1]); s.Wrote != "" {
			t.Fatalf("it cannot write: %+v", s)
		}
		return l, files
	}
	stop := func(files []*os.File) {
		t.Helper()
		for _, f := range files {
			f.Close()
		}
		expect[order.Exited](d)
	}
	refused := func(code refusal.Code, m order.LaunchServer) {
		t.Helper()
		m.Seq, m.Server, m.Revision = 9, orElseServer(m.Server, server), ids.Revision(orElse(string(m.Revision), string(rev)))
		d.give(m)
		d.notLaunched(code)
	}
	_, files := run(p, one)
	if owner := ownerOf(t, filepath.Join(work, string(one), "made")); owner != 1000 {
		t.Errorf("the file belongs to uid %d", owner)
	}
	if got, _ := os.ReadDir(ws); len(got) != 0 {
		t.Errorf("in the project's directory lie %v", got)
	}
	if !gone(filepath.Join(work, string(two))) {
		t.Error("another task has a directory before it has an instance")
	}
	refused(refusal.TaskUnknown, order.LaunchServer{Project: p})
	refused(refusal.TaskUnknown, order.LaunchServer{Project: p, Task: "../../../etc"})
	refused(refusal.TaskUnknown, order.LaunchServer{Project: q, Task: one})
	refused(refusal.BadRequest, order.LaunchServer{Project: p, Server: shared, Revision: sharedRev, Task: one})
	stop(files)

	// The directory outlasts the instance and posternd; names of protected files do not stay.
	os.WriteFile(filepath.Join(work, string(one), "kept"), []byte("kept"), 0o644)
	_, files = run(p, two)
	stop(files)
	r.down()
	r = start(t, cfg)
	d = r.drive()
	d.give(order.Ready{})
	if m, _ := expect[order.TaskDirs](d); len(m.Tasks) != 2 || m.Tasks[0] != one || m.Tasks[1] != two {
		t.Errorf("posternd names %v", m.Tasks)
	}
	refused(refusal.TaskUnknown, order.LaunchServer{Project: q, Task: one})
	l, files := run(p, one)
	if raw, _ := os.ReadFile(filepath.Join(work, string(one), "kept")); string(raw) != "kept" {
		t.Error("its file is gone")
	}
	d.give(order.StatJails{Seq: 2})
	if m, _ := expect[order.Stats](d); len(m.Rows) != 1 || m.Rows[0].Task != one {
		t.Errorf("%+v", m.Rows)
	}

	// The task's end ends what runs in it and takes the directory; nothing it links to.
	outside := filepath.Join(r.dir, "outside")
	os.WriteFile(outside, nil, 0o644)
	os.Symlink(outside, filepath.Join(work, string(one), "link"))
	os.Symlink(r.dir, filepath.Join(work, string(one), "dir"))
	for path, want := range map[string]order.Resolved{
		"made": {Inside: true}, "/workspace/new": {Inside: true}, "link": {}, "dir/x": {}, "../" + string(two) + "/made": {},
	} {
		d.give(order.Resolve{Seq: 3, Project: p, Task: one, Paths: []string{path}})
		if got, _ := expect[order.Resolved](d); got.Inside != want.Inside || got.Code != "" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	d.give(order.Resolve{Seq: 3, Project: q, Task: one, Paths: []string{"made"}})
	if got, _ := expect[order.Resolved](d); got.Inside || got.Code != refusal.TaskUnknown {
		t.Errorf("a path of another project's task: %+v", got)
	}
	d.give(order.TaskGone{Task: one})
	if x, _ := expect[order.Exited](d); x.Jail != l.Jail {
		t.Errorf("%+v ended, not %s", x, l.Jail)
	}
	waitFor(t, "the directory of the ended task is gone", func() bool { return gone(filepath.Join(work, string(one))) })
	if gone(outside) || gone(filepath.Join(work, string(two), "made")) {
		t.Error("more than the task's directory is gone")
	}
	d.give(order.TaskGone{Task: one}) // twice is harmless
	_, files2 := run(p, two)
	stop(files2)
	for _, f := range files {
		f.Close()
	}

	// What belongs to a project that is gone goes at the next start.
	d.give(order.Retire{Seq: 12, Project: p})
	expect[order.Done](d)
	r.down()
	start(t, cfg)
	waitFor(t, "nothing is left", func() bool {
		got, _ := os.ReadDir(work)
		return len(got) == 0
	})
}

func orElseServer(s, other ids.Server) ids.Server {
	return ids.Server(orElse(string(s), string(other)))
}

// Whatever an authority names, the directories it can make are bounded, in each project
// and together, and what is refused makes none.
func TestLaunch11_TaskDirectoriesAreBounded(t *testing.T) {
	needRoot(t)
	work, err := privateDir(filepath.Join(newDir(t), workDir))
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	p, q := newID[ids.Project](time.Now()), newID[ids.Project](time.Now())
	f := Facts{Accounts: []order.Account{{ID: "a"}}}
	for _, id := range []ids.Project{p, q} {
		f.Projects = append(f.Projects, Project{Project: order.Project{ID: id, Owner: "a"}})
	}
	dirs, err := openTaskDirs(work, f)
	if err != nil {
		t.Fatal(err)
	}
	take := func(n byte, p ids.Project) *api.Refusal {
		t.Helper()
		w, err := dirs.take(taskID(n), p, 1000, 1000)
		if err == nil {
			w.Dir.Close()
			dirs.giveBack(taskID(n))
			return nil
		}
		return refusedAs(err, refusal.Internal)
	}
	if r := take(1, p); r != nil {
		t.Fatal(r)
	}
	dirs.each[p] = maxTaskDirsEach
	if r := take(2, p); r == nil || r.Code != refusal.Busy {
		t.Errorf("over the project's bound: %v", r)
	}
	if r := take(1, p); r != nil {
		t.Errorf("a task that has one already: %v", r)
	}
	if r := take(3, q); r != nil {
		t.Errorf("another project: %v", r)
	}
	for i := range maxTaskDirs - len(dirs.all) {
		dirs.all[ids.Task(fmt.Sprint(i))] = &taskDir{}
	}
	if r := take(4, q); r == nil || r.Code != refusal.Busy {
		t.Errorf("over the bound of all: %v", r)
	}
	if got, _ := os.ReadDir(work.Name()); len(got) != 2 {
		t.Errorf("%v", got)
	}
	// Another owner's directory is not handed to the new one.
	if err := unix.Fchownat(int(work.Fd()), string(taskID(3)), 1001, 1001, 0); err != nil {
		t.Fatal(err)
	}
	if r := take(3, q); r == nil || r.Code != refusal.WorkspaceRefused {
		t.Errorf("a directory of another uid: %v", r)
	}
}
