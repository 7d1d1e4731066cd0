package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"postern/supervisor/api"
)

// sys has the server do something to the machine and returns what came of it.
func (r *runtime) sys(op string, more ...string) string {
	r.t.Helper()
	args := fmt.Sprintf(`{"op":%q%s}`, op, strings.Join(more, ""))
	m := r.call("sys", args)
	if m.outcome() != "ok" {
		return m.outcome()
	}
	return m.text()
}

func at(path string) string { return fmt.Sprintf(`,"path":%q`, path) }

// perTask registers a server that does to the machine what it is told, once for each
// task, and grants it to a.
func (w *world) perTask() {
	w.t.Helper()
	w.must("server", "add", "own", "--profile", "static", "--scope", "task", "--package", filepath.Join(built.fixtures, "hostile"), "--", "/package/hostile")
	w.must("connection", "add", "a", "own")
	w.must("connection", "grant", "a", "own", "sys")
}

// servers are the rows of ps of a's instances for each task.
func (w *world) servers() map[string]api.PsRow {
	w.t.Helper()
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]api.PsRow{}
	for _, row := range ps.Rows {
		if row.Kind == "server" && row.Task != "" {
			rows[row.Task] = row
		}
	}
	return rows
}

// Two tasks of one project call the same server of scope task. Each reaches its own
// files, reads them back after its instance, the authority and posternd were started
// again, and nothing of the other's or of the project's, by whatever way. What a task
// had is gone with it.
func TestJ2_C13_ATaskSeesItsOwnDirectoryAlone(t *testing.T) {
	w := newWorld(t)
	w.perTask()
	tokOne, one := w.token(w.a, runtimeUID, "--binds", "2")
	tokTwo, two := w.token(w.a, runtimeUID)
	r1, r2 := w.connect(w.a, runtimeUID, tokOne).initialize(), w.connect(w.a, runtimeUID, tokTwo).initialize()
	dir := func(task string) string { return filepath.Join(w.RootDir, "work", task) }

	for _, r := range []*runtime{r1, r2} {
		if got := r.sys("write", at("/workspace/mine")); got != "written" {
			t.Fatalf("its own file: %s", got)
		}
	}
	// What root puts beside each file tells them apart.
	for _, task := range []string{one, two} {
		path := filepath.Join(dir(task), "secret")
		if err := os.WriteFile(path, []byte("of "+task), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, aliceUID, aliceUID); err != nil {
			t.Fatal(err)
		}
	}
	for task, r := range map[string]*runtime{one: r1, two: r2} {
		if got := r.sys("read", at("/workspace/secret")); got != "of "+task {
			t.Errorf("%s reads its own: %q", task, got)
		}
		if st, err := os.Stat(filepath.Join(dir(task), "mine")); err != nil || st.Sys().(*syscall.Stat_t).Uid != aliceUID {
			t.Errorf("on disk: %v, not the owner's", err)
		}
	}

	rows := w.servers()
	if len(rows) != 2 || rows[one].Jail == rows[two].Jail || rows[one].UID == rows[two].UID {
		t.Fatalf("the instances: %+v", rows)
	}
	if out := w.must("ps", "--project", "a"); !strings.Contains(out, one) || !strings.Contains(out, two) {
		t.Errorf("ps names no task:\n%s", out)
	}
	// A second session of a task has the same instance.
	again := w.connect(w.a, runtimeUID, tokOne).initialize()
	if got := again.sys("read", at("/workspace/secret")); got != "of "+one || len(w.servers()) != 2 {
		t.Errorf("a second session of the task: %q, %d instances", got, len(w.servers()))
	}

	// The other's, by path, by the host's and other processes' roots, by links made
	// inside, by every descriptor.
	other, pid := dir(two), rows[two].PID
	for _, path := range []string{
		other + "/secret", "/workspace/../" + two + "/secret", "/workspace/../work/" + two + "/secret", fmt.Sprintf("/proc/%d/root/workspace/secret", pid),
		fmt.Sprintf("/proc/%d/cwd/secret", pid), "/proc/1/root" + other + "/secret", "/proc/self/root" + other + "/secret", "/proc/self/cwd/../" + two + "/secret",
		w.a.workspace + "/secret.txt", "/workspace/secret.txt", "/proc/1/root" + w.a.workspace + "/secret.txt",
	} {
		if got := r1.sys("read", at(path)); !strings.HasPrefix(got, "refused: ") {
			t.Errorf("reads %s: %q", path, got)
		}
	}
	for i, to := range []string{other + "/secret", "../" + two + "/secret", other, w.a.workspace, w.a.workspace + "/secret.txt", fmt.Sprintf("/proc/%d/root/workspace", pid)} {
		link := fmt.Sprintf("/workspace/link%d", i)
		if got := r1.sys("symlink", at(link), fmt.Sprintf(`,"to":%q`, to)); got != "linked" {
			t.Fatalf("a link of its own: %s", got)
		}
		for _, path := range []string{link, link + "/secret", link + "/secret.txt"} {
			if got := r1.sys("read", at(path)); !strings.HasPrefix(got, "refused: ") {
				t.Errorf("reads %s to %s: %q", path, to, got)
			}
		}
		if got := r1.sys("link", at(fmt.Sprintf("/workspace/hard%d", i)), fmt.Sprintf(`,"to":%q`, to)); got == "linked" {
			t.Errorf("a hard link to %s", to)
		}
	}
	for _, to := range []string{two + "/secret", "secret.txt"} {
		for line := range strings.Lines(r1.sys("fds", at(to))) {
			if !strings.HasSuffix(strings.TrimSpace(line), "true") || strings.Contains(line, "secret of") || strings.Contains(line, two) {
				t.Errorf("by a descriptor: %s", line)
			}
		}
	}
	if got := r1.sys("procs"); strings.Contains(got, fmt.Sprint("/proc/", pid)) || strings.Count(got, "/proc/") > 1 {
		t.Errorf("it sees the processes %s", got)
	}
	if got := r1.sys("list", at("/workspace")); strings.Contains(got, "secret.txt") || !strings.Contains(got, "mine") {
		t.Errorf("its directory holds %s", got)
	}
	for _, name := range []string{".mcp.json", ".git/hooks/pre-commit", ".claude/settings.json"} {
		if got := r1.sys("write", at("/workspace/"+name)); !strings.HasPrefix(got, "refused: ") {
			t.Errorf("a protected name: %s %s", name, got)
		}
	}
	// The project's own server sees nothing of the tasks'.
	for _, path := range []string{"/workspace/mine", "/workspace/secret", other + "/secret"} {
		if got := r1.call("read", `{"path":"`+path+`"}`); got.outcome() != "isError" {
			t.Errorf("the project's server reads %s: %s", path, got.raw)
		}
	}
	if got := r1.call("read", `{"path":"/workspace/secret.txt"}`); got.text() != "the secret of a" {
		t.Errorf("the project's server reads the project's: %s", got.raw)
	}
	for _, name := range []string{"mine", "secret"} {
		if _, err := os.Lstat(filepath.Join(w.a.workspace, name)); err == nil {
			t.Errorf("%s lies in the project's directory", name)
		}
	}

	// One instance ends: its next call has another, with its files. The other's lives.
	kill(t, rows[one].PID)
	until(t, "the task's server answers again", func() bool { return r1.sys("read", at("/workspace/secret")) == "of "+one })
	if now := w.servers(); now[one].Jail == rows[one].Jail || now[two].Jail != rows[two].Jail {
		t.Errorf("after one was killed: %+v", now)
	}
	// Everything ends: the tasks live on, and have what they had.
	w.Kill9()
	w.noJails(t)
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	back := func(task string) *runtime {
		t.Helper()
		return w.connect(w.a, runtimeUID, w.fresh(task)).initialize()
	}
	r1, r2 = back(one), back(two)
	for task, r := range map[string]*runtime{one: r1, two: r2} {
		if got := r.sys("read", at("/workspace/secret")); got != "of "+task {
			t.Errorf("%s after the restart: %q", task, got)
		}
	}

	// A task's end takes its directory and its instance; the other's stays. A task that
	// ends while nothing of it runs, and one that ends while posternd is down, too.
	w.must("task", "revoke", one)
	until(t, "the ended task's directory is gone", func() bool { _, err := os.Lstat(dir(one)); return os.IsNotExist(err) })
	if now := w.servers(); len(now) != 1 || now[two].Task != two {
		t.Errorf("after the task ended: %+v", now)
	}
	if got := r2.sys("read", at("/workspace/secret")); got != "of "+two {
		t.Errorf("the other task: %q", got)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir(two)); err != nil {
		t.Errorf("a live task's directory while nothing runs: %v", err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	w.must("task", "revoke", two)
	until(t, "the directory of a task that ended without an instance is gone", func() bool { _, err := os.Lstat(dir(two)); return os.IsNotExist(err) })
}
