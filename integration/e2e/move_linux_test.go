package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// directory makes one that can be a workspace, with a secret of its own.
func (w *world) directory(name string, uid int) string {
	w.t.Helper()
	dir := filepath.Join(w.Dir, name)
	file := filepath.Join(dir, "secret.txt")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("the secret of "+name), 0o600), os.Chown(dir, uid, uid), os.Chown(file, uid, uid)); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// A project that is moved has its grants and records, and not its tasks; what runs for it
// from then on has the new directory and nothing of the former one.
func TestP2_AMovedProjectKeepsItsGrantsAndNotItsTasks(t *testing.T) {
	w := newWorld(t)
	there := w.directory("there", aliceUID)
	tok, _ := w.token(w.a, runtimeUID, "--binds", "2")
	r := w.connect(w.a, runtimeUID, tok).initialize()
	read := func(r *runtime) string { return r.call("read", `{"path":"/workspace/secret.txt"}`).text() }
	if got := read(r); got != "the secret of a" {
		t.Fatal(got)
	}
	until(t, "its outcome is recorded", func() bool { return w.records(w.a)[0].State == "completed" })
	before := w.records(w.a)
	shown := w.must("--json", "connection", "show", "a", "count")

	// What cannot be a workspace at add cannot be one by a move, and nothing has ended.
	for dir, why := range map[string]string{w.b.workspace: "workspace_overlap", w.RootDir: "", filepath.Join(w.Dir, "nowhere"): "", w.directory("bobs", bobUID): ""} {
		_, errb, exit := w.CLI(0, "--json", "project", "move", "a", dir)
		if exit != 65 {
			t.Errorf("moved to %s, want %s: exit %d %s", dir, why, exit, errb)
		}
	}
	w.must("project", "move", "a", there, "--dry-run")
	if _, errb, exit := w.CLI(aliceUID, "project", "move", "a", there); exit == 0 {
		t.Errorf("an account moved it: %s", errb)
	}
	if got := read(r); got != "the secret of a" {
		t.Errorf("after refused moves: %s", got)
	}

	// An open call is in the way, or is ended and named.
	open := r.expect(`"open"`)
	if err := r.send(`{"jsonrpc":"2.0","id":"open","method":"tools/call","params":{"name":"slow","arguments":{"ms":25000}}}`); err != nil {
		t.Fatal(err)
	}
	until(t, "the call is open", func() bool { rows := w.records(w.a); return rows[0].Tool == "slow" && rows[0].State == "admitted" })
	if _, errb, exit := w.CLI(0, "project", "move", "a", there); exit != 75 || !strings.Contains(errb, "--now") {
		t.Errorf("with an open call: exit %d %s", exit, errb)
	}
	var cut struct {
		api.Cut
		Workspace string `json:"workspace"`
	}
	if err := json.Unmarshal([]byte(w.must("--json", "project", "move", "a", there, "--now")), &cut); err != nil || len(cut.Stands) != 1 || cut.Stands[0].Tool != "slow" || cut.Workspace != there {
		t.Errorf("%v %+v", err, cut)
	}
	if got := r.wait(open); got.outcome() == "ok" {
		t.Errorf("the open call: %s", got.raw)
	}
	<-r.ended
	if pids := w.instances("count"); len(pids) != 0 {
		t.Errorf("servers of before run: %v", pids)
	}
	if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_invalid" && got != "task_ended" {
		t.Errorf("a token of before: %s", got)
	}
	tok, _ = w.token(w.a, runtimeUID, "--binds", "2")
	r = w.connect(w.a, runtimeUID, tok).initialize()
	if got := read(r); got != "the secret of there" {
		t.Errorf("a new task reads %q", got)
	}
	if now := w.must("--json", "connection", "show", "a", "count"); now != shown {
		t.Errorf("the grants were\n%s\nand are\n%s", shown, now)
	}
	if now := w.records(w.a); now[len(now)-1].Call != before[len(before)-1].Call {
		t.Errorf("the records from before: %+v", now)
	}
	// It is so after a restart: what was made since goes on.
	if err := errors.Join(w.Down(), w.Up()); err != nil {
		t.Fatal(err)
	}
	r = w.connect(w.a, runtimeUID, tok).initialize()
	if got := read(r); got != "the secret of there" {
		t.Errorf("after a restart: %q", got)
	}
	r.close()

	// The same path anew: refused until root says that it is the project's.
	if err := os.Rename(there, there+"-old"); err != nil {
		t.Fatal(err)
	}
	w.directory("there-new", aliceUID)
	if err := os.Rename(filepath.Join(w.Dir, "there-new"), there); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Down(), w.Up()); err != nil { // nothing of it runs
		t.Fatal(err)
	}
	r = w.connect(w.a, runtimeUID, w.fresh(w.taskOf("a"))).initialize()
	if got := r.call("read", `{"path":"/workspace/secret.txt"}`); got.outcome() != "project_replaced" {
		t.Errorf("another directory at the path: %s", got.raw)
	}
	r.close()
	w.must("project", "move", "a", there, "--now")
	tok, _ = w.token(w.a, runtimeUID)
	r = w.connect(w.a, runtimeUID, tok).initialize()
	// A server that failed to start rests for a while.
	until(t, "after it was said it is read", func() bool { return read(r) == "the secret of there-new" })
}

// taskOf is the live task of a project that was made last.
func (w *world) taskOf(project string) string {
	w.t.Helper()
	var all api.TaskListResult
	if err := json.Unmarshal([]byte(w.must("--json", "task", "list", "--project", project)), &all); err != nil {
		w.t.Fatal(err)
	}
	for _, x := range all.Tasks {
		if x.Ended == 0 {
			return x.Task
		}
	}
	w.t.Fatalf("no live task: %+v", all)
	return ""
}

// A backup of one host is restored on another: another root, state and run directory, and
// every directory another one. Nothing is given back by itself, and each step that the
// operators' page names gives back what it says.
func TestABackupIsRestoredOnAnotherHost(t *testing.T) {
	w := newWorld(t)
	w.needing("byenv", "API_TOKEN", "--credential-env", "API_TOKEN")
	w.fromFile(theSecret, "credential", "add", "tok", "--project", "a", "--server", "byenv")
	w.must("server", "probe", "byenv", "--project", "a")
	w.must("connection", "accept", "a", "byenv", "--yes")
	w.must("connection", "grant", "a", "byenv", "digest")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	r.close()
	call := w.records(w.a)[0].Call
	backup := filepath.Join(w.Dir, "backup")
	w.must("backup", backup)
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}

	// The other host: its own directories, and copies of the workspaces at the same paths.
	other := newBareWorld(t)
	kept := filepath.Join(other.Dir, "backup")
	for from, to := range map[string]string{backup: kept, w.a.workspace: w.a.workspace + "-copy", w.b.workspace: w.b.workspace + "-copy"} {
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, dir := range []string{w.a.workspace, w.b.workspace} {
		if err := errors.Join(os.Rename(dir, dir+"-former"), os.Rename(dir+"-copy", dir)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Down(); err != nil {
		t.Fatal(err)
	}
	out := other.must("restore", kept, "--facts", "--root-dir", other.RootDir, "--state-dir", other.StateDir)
	for _, want := range []string{`package of server "count" is not here`, `package of server "byenv" is not here`, "Every connection is disabled"} {
		if !strings.Contains(out, want) {
			t.Errorf("restore does not say %q:\n%s", want, out)
		}
	}
	if err := other.Up(); err != nil {
		t.Fatal(err)
	}
	if rows := other.records(w.a); len(rows) == 0 || rows[len(rows)-1].Call != call {
		t.Errorf("the records: %+v", rows)
	}
	if got := other.connect(w.a, runtimeUID, tok).refused(); got != "token_invalid" && got != "task_ended" {
		t.Errorf("a token of the former host: %s", got)
	}
	tok, _ = other.token(w.a, runtimeUID, "--binds", "8")
	says := func(tool, args string) string {
		t.Helper()
		r := other.connect(w.a, runtimeUID, tok).initialize()
		defer r.close()
		return r.call(tool, args).outcome()
	}
	if got := says("echo", `{}`); got == "ok" {
		t.Error("a call went through with every connection disabled")
	}
	// 1. Packages: the same package is the same revision.
	revision := other.revisionOf("count")
	other.must("server", "update", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--tier", "write=reversible", "--", "/package/count")
	if now := other.revisionOf("count"); now != revision {
		t.Errorf("the same package made revision %s of %s", now, revision)
	}
	other.must("connection", "enable", "a", "count")
	// 2. Directories.
	if got := says("read", `{"path":"/workspace/secret.txt"}`); got != "project_replaced" {
		t.Errorf("a directory that nobody has looked at: %q", got)
	}
	other.must("project", "move", "a", w.a.workspace, "--now")
	tok, _ = other.token(w.a, runtimeUID, "--binds", "8")
	r = other.connect(w.a, runtimeUID, tok).initialize()
	until(t, "after it was said it is read", func() bool { return r.call("read", `{"path":"/workspace/secret.txt"}`).text() == "the secret of a" })
	r.close()
	// The twin: the project that nobody spoke of.
	other.must("connection", "enable", "b", "count")
	tokB, _ := other.token(w.b, runtimeUID)
	if got := other.connect(w.b, runtimeUID, tokB).initialize().call("read", `{"path":"/workspace/secret.txt"}`); got.outcome() != "project_replaced" {
		t.Errorf("another project: %s", got.raw)
	}
	// 3. Credentials.
	other.must("server", "update", "byenv", "--profile", "static", "--package", filepath.Join(built.fixtures, "secret"), "--credential", "required", "--credential-env", "API_TOKEN", "--", "/package/secret", "API_TOKEN")
	if out := other.must("credential", "list"); !strings.Contains(out, "unreadable") {
		t.Errorf("a secret came from nowhere: %s", out)
	}
	other.fromFile(nextSecret, "credential", "rotate", "tok")
	other.must("connection", "enable", "a", "byenv")
	r = other.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("digest", `{}`); got.text() != digestOf(nextSecret) {
		t.Errorf("with its new secret: %s", got.raw)
	}
}

func (w *world) revisionOf(label string) string {
	w.t.Helper()
	var s struct {
		Revision string `json:"revision"`
	}
	if err := json.Unmarshal([]byte(w.must("--json", "server", "show", label)), &s); err != nil || s.Revision == "" {
		w.t.Fatal(err)
	}
	return s.Revision
}
