package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

// Whoever is killed in the middle of a call: its record becomes unknown, the tool
// server receives it once, and the next session works.
func TestKill9LeavesUnknownAndReplaysNothing(t *testing.T) {
	w := newWorld(t)
	for _, victim := range []string{"bridge", "server", "authority", "posternd"} {
		t.Run(victim, func(t *testing.T) {
			tok, _ := w.token(w.a, runtimeUID)
			r := w.connect(w.a, runtimeUID, tok).initialize()
			before := len(w.calls(w.a))
			c := r.expect("7")
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stubborn","arguments":{"ms":60000}}}`)
			until(t, "the server has the call", func() bool { return len(w.calls(w.a)) == before+1 })
			call := w.records(w.a)[0]
			if call.State != "admitted" || call.Tool != "stubborn" {
				t.Fatalf("the record of an open call: %+v", call)
			}

			began := time.Now()
			switch victim {
			case "bridge", "server":
				kill(t, w.jailPID(victim))
			case "authority":
				kill(t, w.authorityPID())
			case "posternd":
				w.Kill9()
				w.noJails(t)
				if err := w.Up(); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.wait(c).outcome(); got == "ok" {
				t.Errorf("the call was answered: %s", got)
			}
			var now api.ActivityRow
			until(t, "its record is unknown", func() bool {
				if w.Call(api.Status, nil, nil) != nil {
					return false
				}
				for _, row := range w.records(w.a) {
					if row.Call == call.Call {
						now = row
					}
				}
				return now.State == "unknown"
			})
			t.Logf("unknown after %v, code %q", time.Since(began).Round(time.Millisecond), now.Code)
			if n := len(w.calls(w.a)); n != before+1 {
				t.Errorf("the server received %d calls for one", n-before)
			}
			if victim == "server" { // its own session lives on, with a new instance
				if got := r.call("echo", `{}`); got.outcome() != "ok" {
					t.Errorf("the next call of the session: %s", got.raw)
				}
				return
			}
			next, _ := w.token(w.a, runtimeUID)
			if got := w.connect(w.a, runtimeUID, next).initialize().call("echo", `{}`); got.outcome() != "ok" {
				t.Errorf("a session afterwards: %s", got.raw)
			}
		})
	}
	for _, row := range w.records(w.a) {
		if row.State == "admitted" || row.State == "started" {
			until(t, "no record stays open", func() bool { return w.records(w.a)[0].State != "admitted" })
		}
	}
}

// kill -9 of posternd while servers run: within a second no process of a leased uid
// is left, and its next start finds nothing else of the last one either.
func TestC115_NothingOutlivesPosternd(t *testing.T) {
	w := newWorld(t)
	for _, p := range []project{w.a, w.b} {
		tok, _ := w.token(p, runtimeUID)
		if got := w.connect(p, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
			t.Fatal(got.raw)
		}
	}
	if n := len(w.leased()); n != 4 {
		t.Fatalf("%d processes of leased uids run, not two bridges and two servers", n)
	}
	w.Kill9()
	w.noJails(t)
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + w.Cgroup() + "/jal_*")
	if len(groups) != 0 {
		t.Errorf("groups of the last run: %v", groups)
	}
	tok, _ := w.token(w.a, runtimeUID)
	if got := w.connect(w.a, runtimeUID, tok).initialize().call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("after the restart: %s", got.raw)
	}
}

func TestC113_TheServersEnvironmentIsTheProfiles(t *testing.T) {
	for name, value := range map[string]string{"AWS_SECRET_ACCESS_KEY": "leak", "LD_PRELOAD": "", "NOTIFY_SOCKET": "/leak", "LISTEN_FDS": "1", "SSH_AUTH_SOCK": "/leak"} {
		t.Setenv(name, value)
	}
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	got := r.call("env", `{}`)
	if got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	for line := range strings.Lines(got.text()) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "LANG", "TMPDIR":
		default:
			t.Errorf("the server has %s", line)
		}
	}
	if !strings.Contains(got.text(), "PATH=") {
		t.Errorf("the server has no PATH: %q", got.text())
	}
	// Three pipes, and what the server opened by itself.
	fds := r.call("fds", `{}`).text()
	for line := range strings.Lines(fds) {
		n, target, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case n <= "2" && strings.HasPrefix(target, "pipe:"), target == "/workspace/calls.log", strings.HasPrefix(target, "anon_inode:"), target == "":
		default:
			t.Errorf("the server has descriptor %s", line)
		}
	}
	if strings.Count(fds, "pipe:") != 3 {
		t.Errorf("the server's descriptors: %s", fds)
	}
}

// jailPID is the process of a's only jail of a kind.
func (w *world) jailPID(kind string) int {
	w.t.Helper()
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
		w.t.Fatal(err)
	}
	for _, row := range ps.Rows {
		if row.Kind == kind {
			return row.PID
		}
	}
	w.t.Fatalf("a has no %s", kind)
	return 0
}

func (w *world) authorityPID() int {
	w.t.Helper()
	var st api.RootStatusResult
	if err := w.Call(api.RootStatus, nil, &st); err != nil {
		w.t.Fatal(err)
	}
	return st.Authority
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to kill: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// leased lists the processes of the rig's uid range.
func (w *world) leased() []string {
	var out []string
	for _, l := range w.Left() {
		if strings.HasPrefix(l, "process ") {
			out = append(out, l)
		}
	}
	return out
}

// noJails waits at most a second for the end of every jailed process.
func (w *world) noJails(t *testing.T) {
	t.Helper()
	end := time.Now().Add(time.Second)
	for len(w.leased()) > 0 {
		if time.Now().After(end) {
			t.Fatalf("after a second: %v\n%s", w.leased(), states())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func states() string {
	out, _ := exec.Command("ps", "-eo", "pid,ppid,uid,stat,wchan,args").Output()
	var keep []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 3 && len(f[2]) > 6 {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}
