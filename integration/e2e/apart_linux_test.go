package e2e

import (
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// One OS user runs the runtimes of both projects, each bound by its own token on
// an inherited descriptor. Nothing of a is within b's reach.
func TestProjectsAreApart(t *testing.T) {
	w := newWorld(t)
	tokA, _ := w.token(w.a, runtimeUID)
	tokB, _ := w.token(w.b, runtimeUID)
	w.must("connection", "grant", "a", "count", "write")
	a, b := w.connect(w.a, runtimeUID, tokA).initialize(), w.connect(w.b, runtimeUID, tokB).initialize()

	if got := a.call("write", `{"path":"/workspace/of-a.txt","text":"a"}`); got.outcome() != "ok" {
		t.Fatalf("a's own write: %s", got.raw)
	}
	if !slices.Contains(a.tools(), "write") || slices.Contains(b.tools(), "write") {
		t.Errorf("a lists %v, b lists %v", a.tools(), b.tools())
	}
	if got := b.call("echo", `{"x":1}`); got.outcome() != "ok" {
		t.Fatalf("b's own echo: %s", got.raw)
	}

	before := len(w.calls(w.a))
	for _, name := range []string{"a.echo", "a/echo", w.a.id + ".echo", "nonsense", "count/echo", "ECHO", "echo ", "ｅcho"} {
		if got := b.call(name, `{}`); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("b calls %q: %s", name, got.raw)
		}
	}
	if got := b.call("write", `{"path":"/workspace/x","text":"x"}`); got.outcome() != "tool_not_granted" {
		t.Errorf("b calls what only a was granted: %s", got.raw)
	}
	// The files of a: not by its path, not by another process's root.
	for _, path := range []string{w.a.workspace + "/secret.txt", "/workspace/../ws-a/secret.txt", "/proc/1/root" + w.a.workspace + "/secret.txt", "/etc/shadow", "/proc/self/root/etc/shadow"} {
		if got := b.call("read", `{"path":"`+path+`"}`); got.outcome() != "isError" || strings.Contains(got.raw, "secret of") {
			t.Errorf("b reads %s: %s", path, got.raw)
		}
	}
	if got := b.call("read", `{"path":"/workspace/secret.txt"}`); got.text() != "the secret of b" {
		t.Errorf("b reads its own: %s", got.raw)
	}
	if n := len(w.calls(w.a)); n != before {
		t.Errorf("a's server received %d calls from b", n-before)
	}

	// The user that runs both: cannot signal a's processes, read its workspace or open root.sock.
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
		t.Fatal(err)
	}
	if len(ps.Rows) != 2 {
		t.Errorf("a runs %d jails, not a bridge and a server", len(ps.Rows))
	}
	for _, row := range ps.Rows {
		if out, err := as(runtimeUID, "/bin/kill", "-0", itoa(row.PID)); err == nil {
			t.Errorf("the user signals %s %d: %s", row.Kind, row.PID, out)
		}
		if out, err := as(runtimeUID, "/bin/cat", "/proc/"+itoa(row.PID)+"/environ"); err == nil {
			t.Errorf("the user reads %s's environment: %q", row.Kind, out)
		}
	}
	if _, err := as(runtimeUID, "/bin/cat", w.a.workspace+"/secret.txt"); err == nil {
		t.Error("the user reads a's workspace")
	}
	if out, err := as(aliceUID, "/bin/cat", w.a.workspace+"/secret.txt"); err != nil || out != "the secret of a" {
		t.Errorf("the owner reads her workspace: %q %v", out, err)
	}
	if _, err := as(runtimeUID, filepath.Join(w.Bin, "postern"), "--run-dir", w.RunDir, "server", "list"); err == nil {
		t.Error("the user lists servers over root.sock")
	}
	if out, err := as(runtimeUID, filepath.Join(w.Bin, "postern"), "--run-dir", w.RunDir, "project", "list", "--json"); err != nil || strings.Contains(out, "prj_") {
		t.Errorf("the user lists projects: %q %v", out, err)
	}
}

// A token opens its own project's socket and no other.
func TestAnotherProjectsSocketRefusesTheToken(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	if got := w.connect(w.b, runtimeUID, tok).refused(); got != "token_invalid" {
		t.Errorf("a's token at b's socket: %s", got)
	}
	if got := w.connect(w.a, aliceUID, tok).refused(); got != "token_wrong_uid" {
		t.Errorf("another user's token: %s", got)
	}
	if got := w.connect(w.a, runtimeUID, "").refused(); got != "person_bind_off" {
		t.Errorf("no token: %s", got)
	}
	// The refusals used nothing up.
	if got := w.connect(w.a, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("its own user at its own socket: %s", got.raw)
	}
	if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_used" {
		t.Errorf("the token a second time: %s", got)
	}
}

func TestNobodyWidensButRoot(t *testing.T) {
	w := newWorld(t)
	w.must("project", "set", "a", "--person-bind=true")
	for _, uid := range []int{aliceUID, runtimeUID, hostUID} {
		for _, args := range [][]string{
			{"connection", "grant", "a", "count", "write"}, {"connection", "enable", "a", "count"}, {"connection", "accept", "a", "count"},
			{"connection", "add", "a", "count"}, {"project", "member", "add", "a", "bob"}, {"account", "activate", "alice"}, {"server", "probe", "count"},
			{"account", "add", "eve", "--uid", "61003"}, {"project", "set", "b", "--person-bind=true"}, {"server", "delete", "count"},
		} {
			out, errb, exit := w.CLI(uid, args...)
			// To accept is to look first, and who sees no project sees none to accept for.
			unseen := args[1] == "accept" && uid != aliceUID && exit == 65 && strings.Contains(errb, "project_unknown")
			if exit != 77 && !unseen {
				t.Errorf("uid %d: postern %s: exit %d %s%s", uid, strings.Join(args, " "), exit, out, errb)
			}
		}
	}
	r := w.connect(w.a, aliceUID, "").initialize()
	if got := r.call("write", `{"path":"/workspace/x","text":"x"}`); got.outcome() != "tool_not_granted" {
		t.Errorf("after all that: %s", got.raw)
	}
	if n := len(w.calls(w.a)); n != 0 {
		t.Errorf("the server received %d calls", n)
	}
	// The owner narrows by herself.
	if _, errb, exit := w.CLI(aliceUID, "connection", "revoke", "a", "count", "echo"); exit != 0 {
		t.Errorf("the owner revokes: exit %d %s", exit, errb)
	}
	if got := r.call("echo", `{}`); got.outcome() != "tool_not_granted" {
		t.Errorf("after the owner revoked: %s", got.raw)
	}
}

func TestForgedIdentityReachesNothing(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.b, runtimeUID)
	b := w.connect(w.b, runtimeUID, tok).initialize()
	for _, params := range []string{
		`{"name":"echo","arguments":{},"project":"` + w.a.id + `"}`,
		`{"name":"echo","arguments":{},"account":"x"}`,
		`{"name":"echo","arguments":{},"task":"x"}`,
		`{"name":"echo","arguments":{},"_meta":{"postern/project":"` + w.a.id + `"}}`,
		`{"name":"echo","arguments":{},"principal":"local:x","mode":"auto"}`,
	} {
		if got := b.ask("tools/call", params); got.outcome() != "identity_in_request" {
			t.Errorf("%s: %s", params, got.raw)
		}
	}
	c := b.expect("900")
	b.send(`{"jsonrpc":"2.0","id":900,"method":"tools/call","project":"` + w.a.id + `","params":{"name":"echo","arguments":{}}}`)
	if got := b.wait(c); got.outcome() != "identity_in_request" {
		t.Errorf("beside params: %s", got.raw)
	}
	if n := len(w.calls(w.a)) + len(w.calls(w.b)); n != 0 {
		t.Errorf("%d calls reached a server", n)
	}
	// An argument of that name is the server's own.
	if got := b.call("echo", `{"project":"`+w.a.id+`"}`); got.outcome() != "ok" || !strings.Contains(string(got.Result.Structured), w.a.id) {
		t.Errorf("an argument: %s", got.raw)
	}
	// A request to the CLI socket cannot name an identity either.
	conn, err := net.Dial("unix", filepath.Join(w.RunDir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte(`{"id":1,"action":"project.list","account":"root"}` + "\n"))
	buf := make([]byte, 4096)
	n, _ := conn.Read(buf)
	if !strings.Contains(string(buf[:n]), "bad_request") {
		t.Errorf("control.sock: %s", buf[:n])
	}
}

func as(uid int, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.SysProcAttr, c.Dir, c.Env = rig.As(uid), "/", []string{"PATH=/usr/bin:/bin"}
	out, err := c.Output()
	return string(out), err
}
