package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/supervisor/order"
)

// hostileTree fills dir with what a tool server could leave: directories deeper than
// any path and than the descriptors of a process, links and names that lead out, names
// that are none, modes that close.
func hostileTree(t *testing.T, dir, outside string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(at) }()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Symlinkat(outside, at, "link"))
	must(unix.Symlinkat("/", at, "root"))
	must(unix.Symlinkat("loop", at, "loop"))
	must(unix.Mkfifoat(at, "pipe", 0o600))
	must(os.Link(filepath.Join(outside, "kept"), filepath.Join(dir, "hard")))
	must(os.WriteFile(filepath.Join(dir, "bad\xff\n-rf"), nil, 0))
	for i := range 1500 {
		must(os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0))
	}
	for i := range depth {
		must(unix.Symlinkat(outside, at, "out"))
		must(unix.Mkdirat(at, "d", 0o700))
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		must(err)
		if i%100 == 0 {
			must(unix.Fchmod(next, 0))
		}
		unix.Close(at)
		at = next
	}
}

// withFew gives this process few descriptors for as long as the test runs.
func withFew(t *testing.T, most uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = most
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// The directory of a task holds what its server left there. Removing it takes few
// descriptors however deep it is, touches nothing outside, and where it is left from an
// earlier run it keeps no posternd from starting.
func TestLaunch11_AHostileTreeIsRemoved(t *testing.T) {
	cfg := newConfig(t)
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	server, rev := r.perTask("notes", "/workspace/made")
	work := filepath.Join(cfg.RootDir, workDir)
	outside := filepath.Join(r.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	untouched := func() {
		t.Helper()
		if raw, err := os.ReadFile(filepath.Join(outside, "kept")); string(raw) != "kept" {
			t.Errorf("outside: %q, %v", raw, err)
		}
	}
	withFew(t, 512)
	d := r.drive()
	one, two := taskID(1), taskID(2)
	for _, task := range []struct {
		deep int
		m    order.LaunchServer
	}{{1500, order.LaunchServer{Seq: 1, Task: one}}, {1, order.LaunchServer{Seq: 2, Task: two}}} {
		task.m.Project, task.m.Server, task.m.Revision = p, server, rev
		d.give(task.m)
		_, files := d.launched()
		hear(t, files[1])
		hostileTree(t, filepath.Join(work, string(task.m.Task)), outside, task.deep)
		for _, f := range files {
			f.Close()
		}
		expect[order.Exited](d)
	}
	d.give(order.TaskGone{Task: one})
	waitFor(t, "everything of the task is gone", func() bool {
		got, _ := os.ReadDir(work)
		return len(got) == 1 && got[0].Name() == string(two)
	})
	untouched()
	if log := r.log.String(); strings.Contains(log, "stays") {
		t.Error(log)
	}

	// Left by a posternd that did not come so far.
	left := filepath.Join(work, removedPrefix+"left")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	hostileTree(t, left, outside, 1500)
	r.down()
	start(t, cfg)
	waitFor(t, "what was left is gone", func() bool { return gone(left) })
	untouched()
	if got, _ := os.ReadDir(filepath.Join(work, string(two))); len(got) < 1500 {
		t.Error("the live task's directory was touched")
	}
}
