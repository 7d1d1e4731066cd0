package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every command of a whole Postern with --json: each document of docs/json.md is printed
// once at least, and the rig holds each that is printed against the page.
func TestEveryDocumentIsPrintedAsThePageHasIt(t *testing.T) {
	w := newWorld(t)
	do := func(uid int, args ...string) string {
		t.Helper()
		out, errb, exit := w.CLI(uid, append([]string{"--json"}, args...)...)
		if exit != 0 {
			t.Errorf("postern %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errb)
		}
		return out
	}
	root := func(args ...string) string { t.Helper(); return do(0, args...) }

	// Reading.
	w.pictures()
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{"text":"x"}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	if got := r.call("draw", `{"n":1,"bytes":4000}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	var listed struct{ Rows []struct{ Artifact string } }
	until(t, "an artifact", func() bool {
		return json.Unmarshal([]byte(do(aliceUID, "artifact", "list")), &listed) == nil && len(listed.Rows) > 0
	})
	do(aliceUID, "artifact", "get", listed.Rows[0].Artifact, "--out", filepath.Join(w.a.workspace, "got"))
	for _, args := range [][]string{
		{"status"}, {"ps"}, {"quota"}, {"quota", "--all"}, {"doctor"}, {"version"}, {"top", "--once", "--interval", "300ms"}, {"logs", "a"}, {"activity"}, {"activity", "export"},
		{"account", "list"}, {"account", "show", "alice"}, {"project", "list"}, {"project", "show", "a"}, {"server", "list"}, {"server", "show", "count"}, {"server", "diff", "count"},
		{"server", "gc", "--dry-run"}, {"server", "probe", "count"}, {"connection", "list", "a"}, {"connection", "show", "a", "count"}, {"credential", "list"}, {"task", "list"}, {"task", "show", task},
		{"profile", "list"}, {"profile", "show", "node"}, {"profile", "show", "node", "--source"}, {"access", "show"}, {"access", "matrix"}, {"capabilities", "--task", task}, {"explain", "--task", task, "echo"},
		{"check", "--task", task, "echo"}, {"client-config", "--project", "a", "--for", "claude"}, {"debug", "bundle", "-o", filepath.Join(w.Dir, "bundle.tar.gz")}, {"backup", filepath.Join(w.Dir, "backup")},
	} {
		out, errb, exit := w.CLI(0, append([]string{"--json"}, args...)...)
		if exit != 0 && args[0] != "doctor" && args[0] != "check" { // a host of tests may lack a layer; echo is no runtime's own tool
			t.Errorf("postern %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errb)
		}
	}
	do(aliceUID, "server", "show", "count")
	var records struct{ Rows []struct{ Call string } }
	if err := json.Unmarshal([]byte(root("activity", "--project", "a")), &records); err != nil || len(records.Rows) == 0 {
		t.Fatal(err)
	}
	called := slices.IndexFunc(records.Rows, func(x struct{ Call string }) bool { return x.Call != "" })
	root("activity", "show", records.Rows[called].Call)
	profile := filepath.Join(w.Dir, "mine.yaml")
	if err := os.WriteFile(profile, []byte("name: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, exit := w.CLI(0, "--json", "profile", "check", profile); exit != 78 {
		t.Errorf("a profile with mistakes: exit %d", exit)
	}
	w.follows(func() { r.call("echo", `{}`) }, "activity", "--follow")
	w.follows(func() {}, "logs", "a", "--follow")
	w.follows(func() {}, "top", "--interval", "300ms")

	// Changing.
	root("account", "add", "carol", "--uid", "61003")
	root("account", "suspend", "carol", "--dry-run")
	root("account", "suspend", "carol")
	root("account", "activate", "carol")
	root("project", "member", "add", "a", "carol")
	root("project", "member", "remove", "a", "carol")
	root("account", "delete", "carol")
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(w.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(w.Dir, name), aliceUID, aliceUID); err != nil {
			t.Fatal(err)
		}
	}
	root("project", "add", "c", "--workspace", filepath.Join(w.Dir, "one"), "--owner", "alice")
	root("project", "set", "c", "--record-arguments", "on", "--dry-run")
	root("project", "set", "c", "--record-arguments", "on")
	root("project", "move", "c", filepath.Join(w.Dir, "two"), "--dry-run")
	root("project", "move", "c", filepath.Join(w.Dir, "two"))
	files := []string{"--profile", "static", "--package", filepath.Join(built.fixtures, "count")}
	root(slices.Concat([]string{"server", "add", "more", "--dry-run"}, files, []string{"--", "/package/count"})...)
	root(slices.Concat([]string{"server", "add", "more"}, files, []string{"--", "/package/count"})...)
	root(slices.Concat([]string{"server", "update", "more", "--dry-run"}, files, []string{"--", "/package/count", "x"})...)
	root("connection", "add", "c", "more")
	root("connection", "grant", "c", "more", "echo", "read", "--dry-run")
	root("connection", "grant", "c", "more", "echo", "read")
	root(slices.Concat([]string{"server", "update", "more"}, files, []string{"--", "/package/count", "/workspace/calls.log"})...)
	root("connection", "accept", "c", "more", "--dry-run")
	root("connection", "accept", "c", "more")
	root("connection", "revoke", "c", "more", "read", "--dry-run")
	root("connection", "revoke", "c", "more", "read")
	root("connection", "disable", "c", "more", "--dry-run")
	root("connection", "disable", "c", "more")
	root("connection", "enable", "c", "more")
	root("server", "delete", "more", "--dry-run")
	root("server", "delete", "more")
	w.needing("secret", "API_TOKEN", "--credential-env", "API_TOKEN")
	w.secret(theSecret, "credential", "add", "mine", "--project", "a", "--server", "secret")
	w.secret(nextSecret, "credential", "rotate", "mine")
	root("credential", "revoke", "mine", "--dry-run")
	root("credential", "revoke", "mine")
	w.fresh(task)
	do(aliceUID, "task", "revoke", task)
	root("access", "set", "sms", "--admission", "restricted")
	root("access", "set", "sms", "+5511999998888", "read")
	root("access", "preset", "sms", "+5511999998888", "developer")
	root("access", "default", "sms", "chat")
	root("access", "groups", "sms", "on")
	root("access", "group", "sms", "120363@g.us", "read")
	const who = "sms:+5511900001111"
	var made struct{ Code string }
	if err := json.Unmarshal([]byte(root("access", "pair", "sms")), &made); err != nil {
		t.Fatal(err)
	}
	do(hostUID, "access", "redeem", who, made.Code)
	root("access", "show")
	root("access", "unpair", who, "--dry-run")
	root("access", "unpair", who)
	root("readonly", "on")
	root("readonly", "off")
	root("project", "delete", "c", "--dry-run")
	root("project", "delete", "c")
	root("drain", "--now")

	// A refusal is a document of its own.
	if out, _, exit := w.CLI(0, "--json", "project", "show", "nowhere"); exit == 0 || !strings.HasPrefix(out, `{"refusal":`) {
		t.Errorf("exit %d, %s", exit, out)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	root("restore", "--root-dir", w.RootDir, "--state-dir", w.StateDir, filepath.Join(w.Dir, "backup"))
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	// What posternd itself prints, its own tests hold against the page.
	if left := slices.DeleteFunc(w.Unseen(), func(s string) bool { return strings.HasPrefix(s, "posternd ") }); len(left) > 0 {
		t.Errorf("nobody printed: %s", strings.Join(left, ", "))
	}
}

// follows runs a command that goes on until it is interrupted, until it has printed a line
// of what do does again and again.
func (w *world) follows(do func(), args ...string) {
	w.t.Helper()
	args = append([]string{"--run-dir", w.RunDir, "--json"}, args...)
	c := exec.Command(filepath.Join(w.Bin, "postern"), args...)
	path := filepath.Join(w.Dir, "followed")
	to, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer to.Close()
	printed := func() []byte { raw, _ := os.ReadFile(path); return raw }
	c.Stdout, c.Dir, c.Env = to, "/", []string{"PATH=/usr/bin"}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	until(w.t, strings.Join(args, " "), func() bool {
		do()
		return strings.Contains(string(printed()), "\n")
	})
	c.Process.Signal(os.Interrupt)
	c.Wait()
	w.Printed(args, printed())
}

// secret is fromFile with --json.
func (w *world) secret(secret string, args ...string) {
	w.t.Helper()
	w.fromFile(secret, append([]string{"--json"}, args...)...)
}
