package hostile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/supervisor/api"
)

func (w *world) restoring(args ...string) (string, string, int) {
	return w.CLI(0, append([]string{"restore", "--root-dir", w.RootDir, "--state-dir", w.StateDir}, args...)...)
}

func (w *world) granted(p project) (tools []string, enabled bool) {
	w.t.Helper()
	var con api.ConnectionResult
	if err := w.Call(api.ConnectionShow, api.ConnectionParams{Project: p.id, Server: "count"}, &con); err != nil {
		w.t.Fatal(err)
	}
	for _, x := range con.Tools {
		if x.Granted {
			tools = append(tools, x.Tool)
		}
	}
	slices.Sort(tools)
	return tools, con.Enabled
}

// A backup is made while calls run; it comes back over a state that has changed since.
// What was revoked, used up or ended meanwhile is callable only after root has enabled
// it again; what else was there before is kept, and the audit says what was done.
func TestRestore_X2_NothingComesBackByItself(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	open, _ := w.task(w.a, runtimeUID, 1) // not used up when the backup is made
	dir := filepath.Join(w.Dir, "backup")
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { ended <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if m := r.call("echo", `{}`); m.outcome() != "ok" {
				t.Errorf("while a backup is made: %s", m.raw)
				return
			}
			n++
		}
	}()
	out, errb, exit := w.CLI(0, "--json", "backup", dir)
	close(stop)
	if n := <-ended; exit != 0 || n == 0 {
		t.Fatalf("%s%s; %d calls meanwhile", out, errb, n)
	}
	var m api.BackupManifest
	if err := json.Unmarshal([]byte(out), &m); err != nil || len(m.Files) != 3 {
		t.Fatalf("%v %s", err, out)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi, err)
	}
	// Nobody but root, nothing over something that is there, and no rest of a copy.
	if _, _, exit := w.CLI(aliceUID, "backup", filepath.Join(w.a.workspace, "backup")); exit != 77 {
		t.Errorf("alice's backup: exit %d", exit)
	}
	if _, err := os.Lstat(filepath.Join(w.a.workspace, "backup")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("alice's backup left %v", err)
	}
	if _, errb, exit := w.CLI(0, "backup", dir); exit == 0 || !strings.Contains(errb, "is there already") {
		t.Errorf("a second one: exit %d %s", exit, errb)
	}
	if _, errb, exit := w.restoring(dir); exit != 75 || !strings.Contains(errb, "stop it first") {
		t.Errorf("while posternd runs: exit %d %s", exit, errb)
	}

	// Time goes on: a tool is revoked, another granted, a project comes, a token is used up.
	w.must("connection", "revoke", w.a.id, "count", "slow")
	w.must("connection", "grant", w.b.id, "count", "destroy")
	c := w.addProject("c", "bob", bobUID)
	if conn, code := w.bind(w.a, runtimeUID, open); code != "" {
		t.Fatal(code)
	} else {
		conn.Close()
	}
	r.call("echo", `{"after":1}`)
	var before api.StatusResult
	if err := w.Call(api.Status, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}

	// A file that was changed is refused, and nothing is touched.
	facts := filepath.Join(dir, "policy.db")
	whole, err := os.ReadFile(facts)
	if err != nil {
		t.Fatal(err)
	}
	broken := slices.Clone(whole)
	broken[len(broken)-1] ^= 1
	os.WriteFile(facts, broken, 0o600)
	if _, errb, exit := w.restoring(dir); exit == 0 || !strings.Contains(errb, "digest") {
		t.Errorf("a changed file: exit %d %s", exit, errb)
	}
	os.WriteFile(facts, whole, 0o600)
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if tools, enabled := w.granted(w.a); !enabled || slices.Contains(tools, "slow") {
		t.Errorf("after a refused restore: %v %v", tools, enabled)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}

	// One that was interrupted is not served.
	pending := filepath.Join(w.RootDir, "restore.pending")
	os.WriteFile(pending, []byte("before-x\n"), 0o600)
	if err := w.Up(); err == nil || !strings.Contains(w.Log.String(), "postern restore again") {
		t.Errorf("posternd started in the middle of a restore: %v", err)
	}
	out, errb, exit = w.restoring(dir)
	if exit != 0 || !strings.Contains(out, "interrupted") {
		t.Fatalf("exit %d %s%s", exit, out, errb)
	}
	if err := w.Up(); err != nil {
		t.Fatalf("after the restore: %v", err)
	}
	tools, enabled := w.granted(w.a)
	if enabled || !slices.Contains(tools, "slow") {
		t.Errorf("restored: %v, enabled %v", tools, enabled)
	}
	if tools, _ := w.granted(w.b); slices.Contains(tools, "destroy") {
		t.Error("a grant made after the backup is there")
	}
	// A person comes in and finds nothing to call; the token of then is dead.
	at := w.open(w.a, aliceUID, "")
	for _, tool := range []string{"echo", "slow"} {
		if m := at.call(tool, `{}`); m.outcome() == "ok" {
			t.Errorf("%s after a restore: %s", tool, m.raw)
		}
	}
	at.c.Close()
	if conn, code := w.bind(w.a, runtimeUID, open); code == "" || strings.HasPrefix(code, "no answer") {
		t.Errorf("a token that was used up after the backup: %q", code)
	} else {
		conn.Close()
	}
	var after api.StatusResult
	if err := w.Call(api.Status, nil, &after); err != nil || after.StatusCounts == nil || after.Incarnation <= before.Incarnation {
		t.Errorf("incarnation %+v, was %+v: %v", after.StatusCounts, before.StatusCounts, err)
	}
	w.must("project", "show", c.id) // root facts were kept
	if log, err := os.ReadFile(filepath.Join(w.RootDir, "audit.log")); err != nil || strings.Count(string(log), `"action":"restore"`) != 1 {
		t.Errorf("the audit: %v %s", err, log)
	}
	// Root looks, takes what is too much, and enables.
	w.must("connection", "revoke", w.a.id, "count", "slow")
	w.must("connection", "enable", w.a.id, "count")
	w.works(w.a)

	// With the root facts and as it was: the project that came later is gone, calls go on.
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if out, errb, exit := w.restoring("--facts", "--enabled", dir); exit != 0 {
		t.Fatalf("exit %d %s%s", exit, out, errb)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if _, _, exit := w.CLI(0, "project", "show", c.id); exit == 0 {
		t.Error("the root facts were not restored")
	}
	if tools, enabled := w.granted(w.a); !enabled || !slices.Contains(tools, "slow") {
		t.Errorf("as it was: %v, enabled %v", tools, enabled)
	}
	w.works(w.a)
	if left, _ := filepath.Glob(filepath.Join(w.StateDir, "before-*")); len(left) != 2 {
		t.Errorf("former stores: %v", left)
	}
	for _, name := range []string{filepath.Join(w.StateDir, "restore.new"), filepath.Join(w.RootDir, "restore.new"), pending, filepath.Join(w.StateDir, "restored")} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// On another host there is nothing yet: everything comes from the backup, and what is
// missing is said.
func TestRestore_X2_OnAnEmptyHost(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.Dir, "backup")
	w.must("backup", dir)
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	root, state := filepath.Join(w.Dir, "root2"), filepath.Join(w.Dir, "state2")
	out, errb, exit := w.CLI(0, "restore", "--root-dir", root, "--state-dir", state, dir)
	if exit != 0 || !strings.Contains(out, `package of server "count" is not here`) {
		t.Fatalf("exit %d %s%s", exit, out, errb)
	}
	first := [2]string{w.RootDir, w.StateDir}
	w.RootDir, w.StateDir = root, state
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if tools, enabled := w.granted(w.a); enabled || len(tools) != len(granted) {
		t.Errorf("%v %v", tools, enabled)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	w.RootDir, w.StateDir = first[0], first[1]
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	w.works(w.a)
}

// A restore that is killed at any moment leaves the former state or the new one, or
// what posternd does not start on; running it again finishes it, and the former store
// is still there.
func TestRestore_X2_KilledAnywhere(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.Dir, "backup")
	w.must("backup", dir)
	w.must("connection", "grant", w.a.id, "count", "destroy")
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	former, err := os.ReadFile(filepath.Join(w.StateDir, "policy.db"))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 25 {
		c := exec.Command(filepath.Join(w.Bin, "postern"), "restore", "--root-dir", w.RootDir, "--state-dir", w.StateDir, dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		c.Process.Kill()
		c.Wait()
	}
	_, err = os.Lstat(filepath.Join(w.RootDir, "restore.pending"))
	if err == nil {
		if err := w.Up(); err == nil {
			t.Error("posternd started in the middle of a restore")
		}
	}
	t.Logf("in the middle of one at the end: %v", err == nil)
	if out, errb, exit := w.restoring(dir); exit != 0 {
		t.Fatalf("exit %d %s%s", exit, out, errb)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if tools, enabled := w.granted(w.a); enabled || slices.Contains(tools, "destroy") || !slices.Contains(tools, "echo") {
		t.Errorf("%v %v", tools, enabled)
	}
	w.must("connection", "enable", w.a.id, "count")
	w.works(w.a)
	kept := 0
	stores, _ := filepath.Glob(filepath.Join(w.StateDir, "before-*", "policy.db"))
	for _, name := range stores {
		if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, former) {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("the former store is there %d times in %v", kept, stores)
	}
}
