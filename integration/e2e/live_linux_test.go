package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// task is what the authority says of a task.
func (w *world) task(id string) api.TaskResult {
	w.t.Helper()
	var out api.TaskResult
	if err := w.Call(api.TaskShow, api.TaskParams{Task: id}, &out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestT1_T2_ALiveTaskOutlivesEveryProcess: whoever is killed with a call open, the
// session ends and its call is unknown; the task is live as before, the token that was
// used is used, and a fresh one of the same task works.
func TestT1_T2_ALiveTaskOutlivesEveryProcess(t *testing.T) {
	w := newWorld(t)
	for _, victim := range []string{"runtime", "bridge", "authority", "posternd"} {
		t.Run(victim, func(t *testing.T) {
			w.t = t
			tok, task := w.token(w.a, runtimeUID)
			before := w.task(task)
			r := w.connect(w.a, runtimeUID, tok).initialize()
			had := len(w.calls(w.a))
			c := r.expect("7")
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stubborn","arguments":{"ms":60000}}}`)
			until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == had+1 })
			call := w.records(w.a)[0]

			switch victim {
			case "runtime": // as one that is restarted by its host, which asks at once
			case "bridge":
				kill(t, w.jailPID("bridge"))
			case "authority":
				kill(t, w.authorityPID())
			case "posternd":
				w.Kill9()
				w.noJails(t)
				if err := w.Up(); err != nil {
					t.Fatal(err)
				}
			}
			if victim != "runtime" {
				select {
				case <-r.ended:
				case <-time.After(answerWait):
					t.Fatal("the session lives on")
				}
				until(t, "the authority answers", func() bool { return w.Call(api.Status, nil, nil) == nil })
				until(t, "the session is closed", func() bool { return w.task(task).Sessions == 0 })
				if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_used" {
					t.Errorf("the token that was used: %s", got)
				}
			}
			fresh := w.fresh(task)
			if got := r.wait(c).outcome(); got == "ok" {
				t.Errorf("the open call was answered: %s", got)
			}
			if got := w.connect(w.a, runtimeUID, tok).refused(); got != "token_invalid" {
				t.Errorf("the former token: %s", got)
			}
			for _, row := range w.records(w.a) {
				if row.Call == call.Call && row.State != "unknown" {
					t.Errorf("when the fresh token is there, the call that was open is %s", row.State)
				}
			}
			next := w.connect(w.a, runtimeUID, fresh).initialize()
			if got := next.call("echo", `{}`); got.outcome() != "ok" {
				t.Errorf("the fresh token: %s", got.raw)
			}
			if row := w.records(w.a)[0]; row.Task != task || row.State == "denied" {
				t.Errorf("the record of its call: %+v", row)
			}
			after := w.task(task)
			before.Sessions, after.Sessions = 0, 0
			if after != before {
				t.Errorf("the task was\n%+v and is\n%+v", before, after)
			}
			w.must("task", "revoke", task)
			if _, _, errb, exit := w.minted("token", task); exit != 65 || !strings.Contains(errb, "task_ended") {
				t.Errorf("a token of an ended task: exit %d %s", exit, errb)
			}
			if n := len(w.calls(w.a)); n != had+2 {
				t.Errorf("the server received %d calls of two", n-had)
			}
		})
	}
}

// TestT5_ClosingACommandEndsNothing: commands that look on are killed, and connect is
// closed; the task, its bridge and its server live on, and other sessions with them.
func TestT5_ClosingACommandEndsNothing(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID, "--binds", "2")
	first, second := w.connect(w.a, runtimeUID, tok).initialize(), w.connect(w.a, runtimeUID, tok).initialize()
	for _, r := range []*runtime{first, second} {
		if got := r.call("echo", `{}`); got.outcome() != "ok" {
			t.Fatal(got.raw)
		}
	}
	bridge, server := w.jailPID("bridge"), w.jailPID("server")
	for _, args := range [][]string{{"activity", "--follow", "--since", "2020-01-01T00:00:00Z"}, {"--json", "activity", "--follow", "--since", "2020-01-01T00:00:00Z", "--project", "a"}} {
		f := w.begin(0, args...)
		f.line()
		f.cmd.Process.Kill()
		f.wait()
	}
	first.close()
	until(t, "its session is over", func() bool { return w.task(task).Sessions == 1 })
	if got := second.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("the other session: %s", got.raw)
	}
	second.close()
	until(t, "no session is left", func() bool { return w.task(task).Sessions == 0 })
	if got := w.task(task); got.Ended != 0 {
		t.Errorf("the task ended: %+v", got)
	}
	if b, s := w.jailPID("bridge"), w.jailPID("server"); b != bridge || s != server {
		t.Errorf("bridge %d and server %d are %d and %d", bridge, server, b, s)
	}
	if got := w.connect(w.a, runtimeUID, w.fresh(task)).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("a fresh token: %s", got.raw)
	}
}

// looking is a command that goes on.
type looking struct {
	w    *world
	cmd  *exec.Cmd
	out  chan string
	errb *strings.Builder
}

// begin starts a command of a user's.
func (w *world) begin(uid int, args ...string) *looking {
	w.t.Helper()
	l := &looking{w: w, cmd: exec.Command(filepath.Join(w.Bin, "postern"), append([]string{"--run-dir", w.RunDir}, args...)...), out: make(chan string, 4096), errb: &strings.Builder{}}
	l.cmd.Dir, l.cmd.Env, l.cmd.SysProcAttr, l.cmd.Stderr = "/", []string{"PATH=/usr/bin:/bin", "NO_COLOR=1"}, rig.As(uid), l.errb
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(l.out)
		for buf := make([]byte, 64<<10); ; {
			n, err := out.Read(buf)
			if n > 0 {
				l.out <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() { l.cmd.Process.Kill(); l.cmd.Wait() })
	return l
}

// line waits for something to be printed.
func (l *looking) line() string {
	l.w.t.Helper()
	select {
	case s, ok := <-l.out:
		if !ok {
			l.cmd.Wait()
			l.w.t.Fatalf("it ended: %s", l.errb)
		}
		return s
	case <-time.After(answerWait):
		l.w.t.Fatal("it prints nothing")
	}
	return ""
}

// wait returns the status when the command has ended.
func (l *looking) wait() int {
	l.w.t.Helper()
	late := time.After(answerWait)
	for {
		select {
		case _, ok := <-l.out:
			if !ok {
				var ee *exec.ExitError
				if err := l.cmd.Wait(); errors.As(err, &ee) {
					return ee.ExitCode()
				}
				return 0
			}
		case <-late:
			l.w.t.Fatalf("it goes on: %s", l.errb)
		}
	}
}

// TestE3_U2_AFollowEndsWithItsReader: in a project where nothing happens, a member who
// is removed and an account that is suspended see their follow end; the owner's goes on.
func TestE3_U2_AFollowEndsWithItsReader(t *testing.T) {
	const bound = 10 * time.Second // a second where nothing else runs
	w := newWorld(t)
	w.must("project", "member", "add", "a", "bob", "--role", "viewer")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	const from = "2020-01-01T00:00:00Z"
	for _, row := range []struct {
		says string
		args []string
		cut  []string
		want string
	}{
		{"removed", []string{"activity", "--follow", "--since", from, "--project", w.a.id}, []string{"project", "member", "remove", "a", "bob"}, "project_unknown"},
		{"suspended", []string{"--json", "activity", "--follow", "--since", from}, []string{"account", "suspend", "bob"}, "account_suspended"},
	} {
		if row.says == "suspended" {
			w.must("project", "member", "add", "a", "bob", "--role", "viewer")
		}
		his, hers := w.begin(bobUID, row.args...), w.begin(aliceUID, "activity", "--follow", "--since", from)
		his.line()
		hers.line()
		w.must(row.cut...)
		began := time.Now()
		exit := his.wait()
		took := time.Since(began)
		t.Logf("%s: ended %v after the command returned: status %d %s", row.says, took.Round(time.Millisecond), exit, his.errb)
		if exit != 65 || !strings.Contains(his.errb.String(), row.want) || took > bound {
			t.Errorf("%s: status %d after %v: %s", row.says, exit, took, his.errb)
		}
		if got := r.call("echo", `{}`); got.outcome() != "ok" {
			t.Fatal(got.raw)
		}
		hers.line()
	}
}

// TestP2_DeletingAProjectWaitsForItsOpenCalls: a server that does not listen to a
// cancellation is ended, and when the command returns its call has an end, no process of
// the project runs, and its records, its directory and the other project are as before.
func TestP2_DeletingAProjectWaitsForItsOpenCalls(t *testing.T) {
	const bound = 20 * time.Second // 250 ms for the bridge, and 5 s to see its jail end
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID, "--binds", "2")
	open := map[string]bool{}
	for n, tool := range []string{"stubborn", "slow"} {
		r := w.connect(w.a, runtimeUID, tok).initialize()
		r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"ms":60000}}}`)
		until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == n+1 })
		open[w.records(w.a)[0].Call] = true
	}
	others, _ := w.token(w.b, runtimeUID)
	other := w.connect(w.b, runtimeUID, others).initialize()
	if got := other.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	pids := []int{w.jailPID("bridge"), w.jailPID("server")}

	began := time.Now()
	var out api.RevokeResult
	if err := json.Unmarshal([]byte(w.must("--json", "project", "delete", "a")), &out); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("it took %v with two open calls", took.Round(time.Millisecond))
	if len(out.Stands) != 2 || out.Sessions != 2 || took > bound {
		t.Errorf("after %v: %+v", took, out)
	}
	for _, row := range w.records(w.a) {
		if open[row.Call] && row.State != "cancelled" && row.State != "unknown" {
			t.Errorf("when the command has returned the call of %s is %s", row.Tool, row.State)
		}
		delete(open, row.Call)
	}
	if len(open) != 0 {
		t.Errorf("records are missing: %v", open)
	}
	for _, pid := range pids {
		if b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat")); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("process %d of the deleted project runs: %s", pid, b)
		}
	}
	if b, err := os.ReadFile(filepath.Join(w.a.workspace, "secret.txt")); err != nil || string(b) != "the secret of a" {
		t.Errorf("its directory: %q %v", b, err)
	}
	if got := w.task(task); got.Ended == 0 {
		t.Errorf("its task lives: %+v", got)
	}
	if got := other.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("the other project: %s", got.raw)
	}
	// The same name and directory again are another project, to which nothing was granted.
	var again api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "a", Workspace: w.a.workspace, Owner: "alice"}, &again); err != nil {
		t.Fatal(err)
	}
	var shown api.ProjectShowResult
	if err := w.Call(api.ProjectShow, api.Selected{Selector: "a"}, &shown); err != nil || again.Project == w.a.id || len(shown.Connections)+len(shown.Members) != 0 {
		t.Errorf("%+v %v", shown, err)
	}
	if _, _, errb, exit := w.minted("token", task); exit != 65 {
		t.Errorf("a token of the deleted project's task: exit %d %s", exit, errb)
	}
}

// TestT6_WhatAHostLosesEndsItsTasksAtTheNextCall: root takes a project from a host, or
// the host itself, in postern.yaml. The next call of each of its sessions there is
// refused, and the server does not hear of it; the tasks stay ended when it comes back.
func TestT6_WhatAHostLosesEndsItsTasksAtTheNextCall(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.Dir, "postern.yaml")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(w.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	mayMake := func(p project) bool {
		_, _, exit := w.CLI(hostUID, "task", "new", "--project", p.id, "--for-uid", itoa(runtimeUID), "--token-file", "--dry-run")
		return exit == 0
	}
	for _, row := range []struct {
		says, yaml string
		bToo       bool
	}{
		{"a project", strings.Replace(string(whole), `projects: ["*"]`, `projects: ["`+w.b.id+`"]`, 1), false},
		{"itself", "hosts: []\n" + string(whole[strings.Index(string(whole), "drain_seconds"):]), true},
	} {
		tokA, taskA := w.token(w.a, runtimeUID)
		tokB, taskB := w.token(w.b, runtimeUID)
		unused, _ := w.token(w.a, runtimeUID)
		a, b := w.connect(w.a, runtimeUID, tokA).initialize(), w.connect(w.b, runtimeUID, tokB).initialize()
		for _, r := range []*runtime{a, b} {
			if got := r.call("echo", `{}`); got.outcome() != "ok" {
				t.Fatalf("%s, before: %s", row.says, got.raw)
			}
		}
		had := len(w.calls(w.a))
		write(row.yaml)
		until(t, row.says+" is gone", func() bool { return !mayMake(w.a) })
		if got := a.call("echo", `{}`).outcome(); got == "ok" {
			t.Errorf("%s: the next call: %s", row.says, got)
		}
		if n := len(w.calls(w.a)); n != had {
			t.Errorf("%s: the server received %d calls", row.says, n-had)
		}
		if got := w.connect(w.a, runtimeUID, unused).refused(); got == "ok" || got == "" {
			t.Errorf("%s: a token that was not used: %s", row.says, got)
		}
		if got := b.call("echo", `{}`).outcome(); (got == "ok") == row.bToo {
			t.Errorf("%s: the other project: %s", row.says, got)
		}
		write(string(whole))
		until(t, "the host is back", func() bool { return mayMake(w.a) && mayMake(w.b) })
		if got := w.task(taskA); got.Ended == 0 || got.Reason == "" {
			t.Errorf("%s: the task is live again: %+v", row.says, got)
		}
		if got := w.task(taskB); (got.Ended != 0) != row.bToo {
			t.Errorf("%s: the other project's task: %+v", row.says, got)
		}
		a.close()
		b.close()
	}
}
