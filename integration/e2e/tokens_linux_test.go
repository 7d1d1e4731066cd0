package e2e

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/supervisor/api"
)

func TestATokenIsGoodForItsTimeOnly(t *testing.T) {
	w := newWorld(t)
	late, _ := w.token(w.a, runtimeUID, "--ttl", "1s")
	minted := time.Now()
	inTime, _ := w.token(w.a, runtimeUID, "--ttl", "30s")
	until(t, "a second has passed", func() bool { return time.Since(minted) > 1100*time.Millisecond })
	if got := w.connect(w.a, runtimeUID, late).refused(); got != "token_expired" {
		t.Errorf("a token that is late: %s", got)
	}
	if got := w.connect(w.a, runtimeUID, inTime).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("a token in time: %s", got.raw)
	}
}

func TestATokenIsGoodForItsBindsOnly(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID, "--binds", "2")
	first := w.connect(w.a, runtimeUID, tok).initialize()
	w.connect(w.a, runtimeUID, tok).initialize()
	if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_used" {
		t.Errorf("the third bind of two: %s", got)
	}
	// A fresh token closes the former sessions; it is the host's to ask for.
	if _, errb, exit := w.CLI(runtimeUID, "task", "revoke", task); exit == 0 {
		t.Errorf("the runtime's user revokes a task: %s", errb)
	}
	if _, errb, exit := w.CLI(hostUID, "task", "revoke", task); exit != 0 {
		t.Fatalf("the host revokes its task: exit %d %s", exit, errb)
	}
	if got := first.call("echo", `{}`).outcome(); got == "ok" {
		t.Error("a session of a revoked task calls a tool")
	}
	if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_invalid" && got != "task_ended" {
		t.Errorf("a token of a revoked task: %s", got)
	}
}

func TestC112_ATokenIsNowhereToBeRead(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("env", `{}`); got.outcome() != "ok" || strings.Contains(got.text(), tok) {
		t.Errorf("the server's environment: %s", got.raw)
	}
	secret := []byte(tok)
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, p := range procs {
		for _, name := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(p, name)); err == nil {
				looked++
				if bytes.Contains(b, secret) {
					t.Errorf("%s/%s holds the token", p, name)
				}
			}
		}
	}
	if looked < 20 {
		t.Fatalf("only %d files of /proc could be read", looked)
	}
	files := 0
	if err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		if bytes.Contains(b, secret) {
			t.Errorf("%s holds the token", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if files < 4 {
		t.Fatalf("only %d files were looked at", files)
	}
	for _, out := range []string{w.Log.String(), w.must("task", "show", task, "--json"), w.must("activity", "--json"), w.must("ps", "--json")} {
		if strings.Contains(out, tok) {
			t.Errorf("an answer or the log holds the token: %.200s", out)
		}
	}
}

// A token file is for a user that runs runtimes of one project. The test's user
// runs two projects' runtimes once b has a file for it.
func TestATokenFileIsForAUserOfOneProject(t *testing.T) {
	w := newWorld(t)
	out, errb, exit := w.CLI(hostUID, "task", "new", "--project", w.a.id, "--for-uid", itoa(runtimeUID), "--token-file")
	if exit != 0 {
		t.Fatalf("the first file: exit %d %s", exit, errb)
	}
	path := ""
	for field := range strings.FieldsSeq(out) {
		if strings.HasPrefix(field, filepath.Join(w.RunDir, "t")) {
			path = field
		}
	}
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if fi.Mode().Perm() != 0o400 || uidOf(fi) != runtimeUID {
		t.Errorf("the file has mode %v and uid %d", fi.Mode(), uidOf(fi))
	}
	if b, err := as(runtimeUID, "/bin/cat", path); err != nil || !strings.HasPrefix(b, "ptk_") {
		t.Errorf("its user reads it: %v", err)
	}
	if _, err := as(bobUID, "/bin/cat", path); err == nil {
		t.Error("another user reads it")
	}
	if out, errb, exit := w.CLI(hostUID, "task", "new", "--project", w.b.id, "--for-uid", itoa(runtimeUID), "--token-file"); exit != 65 || !strings.Contains(errb, "token_file_refused") {
		t.Errorf("a file of a second project for the same user: exit %d %s%s", exit, out, errb)
	}
	tok, _ := w.token(w.b, runtimeUID)
	if got := w.connect(w.b, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("the second project by a descriptor: %s", got.raw)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.connect(w.a, runtimeUID, strings.TrimSpace(string(b))).initialize()
	until(t, "the file is removed at its last bind", func() bool { _, err := os.Stat(path); return err != nil })
}

func TestOnlyAConfiguredHostMakesTasks(t *testing.T) {
	w := newWorld(t)
	for _, uid := range []int{0, aliceUID, runtimeUID} {
		if _, errb, exit := w.CLI(uid, "task", "new", "--project", w.a.id, "--for-uid", itoa(runtimeUID), "--token-file"); exit != 77 {
			t.Errorf("uid %d makes a task: exit %d %s", uid, exit, errb)
		}
	}
	for _, more := range [][]string{{"--mode", "nosuch"}, {"--principal", "whatsapp:+491701234567"}} {
		if _, _, errb, exit := w.tryToken(w.a, runtimeUID, more...); exit != 65 {
			t.Errorf("%v: exit %d %s", more, exit, errb)
		}
	}
	if _, _, errb, exit := w.tryToken(w.a, runtimeUID, "--mode", "code"); exit != 0 {
		t.Errorf("its permitted twin: exit %d %s", exit, errb)
	}
}

// However a token ends, its file goes with it.
func TestATokenFileGoesWithItsToken(t *testing.T) {
	w := newWorld(t)
	file := func(args ...string) (path, task string) {
		out, errb, exit := w.CLI(hostUID, append([]string{"--json", "task", "new", "--project", w.a.id, "--for-uid", itoa(runtimeUID), "--token-file"}, args...)...)
		if exit != 0 {
			t.Fatalf("exit %d %s", exit, errb)
		}
		var res api.TaskResult
		if err := json.Unmarshal([]byte(out), &res); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(res.TokenFile); err != nil {
			t.Fatal(err)
		}
		return res.TokenFile, res.Task
	}
	gone := func(path string) func() bool {
		return func() bool { _, err := os.Stat(path); return err != nil }
	}
	kept, _ := file("--ttl", "10m")
	late, _ := file("--ttl", "1s")
	until(t, "the file of an expired token is gone", gone(late))
	ended, task := file()
	if _, errb, exit := w.CLI(0, "task", "revoke", task); exit != 0 {
		t.Fatalf("revoke: %s", errb)
	}
	until(t, "the file of a revoked task is gone", gone(ended))
	if gone(kept)() {
		t.Error("the file of a live token is gone")
	}
	w.must("project", "delete", "a")
	until(t, "the file of a deleted project's task is gone", gone(kept))
}
