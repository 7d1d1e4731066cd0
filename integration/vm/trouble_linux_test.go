//go:build vm

package vm

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	burst      = 30 // connections at once; a trigger limit of a socket unit is 20 in 2 s
	burstTime  = 2 * time.Second
	hostUID    = 61002
	cutOff     = 3_600_000 // milliseconds: a call that no drain waits for
	drainFor   = 20        // seconds
	shortCalls = 4
	shortCall  = 5000 // milliseconds
)

// again starts the unit once more; systemd counts no start before it.
func again(t *testing.T) {
	t.Helper()
	command(t, "systemctl", "reset-failed", "postern")
	command(t, "systemctl", "restart", "postern")
}

// configure writes postern.yaml and has it read.
func configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile("/etc/postern/postern.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "reload", "postern")
}

// The unit as it is shipped, under what befalls it. One installation serves all of this,
// one thing after the other; after each the service is the one that it was, or systemd's
// next, and a session works.
func TestTheShippedUnitInTrouble(t *testing.T) {
	install(t)
	command(t, "systemctl", "start", "postern")
	w := newShop(t)
	step := func(name string, run func(t *testing.T)) {
		if !t.Run(name, func(t *testing.T) { run(t); session(t, w.project) }) {
			out, _ := exec.Command("journalctl", "-u", "postern", "--no-pager", "-n", "60", "-o", "cat").CombinedOutput()
			t.Logf("after %s:\n%s", name, out)
		}
	}
	step("StatusAndReload", func(t *testing.T) { statusAndReload(t, w) })
	step("C163_ABurstOfConnections", func(t *testing.T) { burstOfConnections(t, w) })
	step("C164_C178_ARestartWhileConnected", func(t *testing.T) { restartWhileConnected(t, w) })
	step("OutOfMemory", func(t *testing.T) { outOfMemory(t) })
	step("RestartUnderLoad", func(t *testing.T) { restartUnderLoad(t, w) })
	step("Metrics", func(t *testing.T) { metrics(t, w) })
	step("Credential", func(t *testing.T) { credential(t, w) })
	step("C169_ProtectProc", func(t *testing.T) {
		dropIn(t, "ProtectProc=invisible")
		again(t)
	})
	step("Watchdog", func(t *testing.T) { watchdog(t, w) })

	if n := len(leased(t)); n == 0 {
		t.Error("nothing runs under leased uids at the end of it, so that the next means nothing")
	}
	command(t, "systemctl", "stop", "postern")
	if left := leased(t); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// What is said in one line follows what runs; a change of the configuration holds without
// a restart, and one with a mistake is told and changes nothing.
func statusAndReload(t *testing.T, w shop) {
	opened(t, w.project, "echo", `{}`, "structuredContent")
	until(t, "the status tells of the session", func() bool {
		return strings.HasPrefix(show(t, "StatusText"), "Serving: 1 sessions, 0 calls open, ")
	})
	t.Logf("StatusText: %s", show(t, "StatusText"))
	score := strings.Split(strings.TrimSpace(command(t, "systemd-analyze", "security", "--no-pager", "postern.service")), "\n")
	t.Logf("systemd-analyze security: %s", score[len(score)-1])

	pid := mainPID(t)
	host := func() error { // a task, as the program of a host
		cmd := exec.Command("postern", "task", "new", "--project", w.project, "--for-uid", fmt.Sprint(aliceUID), "--token-file")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: hostUID, Gid: hostUID}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if host() == nil {
		t.Error("a user who is no host made a task")
	}
	configure(t, fmt.Sprintf("drain_seconds: %d\nhosts:\n  - id: agents\n    uid: %d\n    accounts: [\"*\"]\n    projects: [\"*\"]\n", drainFor, hostUID))
	until(t, "the host that was added makes a task", func() bool { return host() == nil })

	configure(t, "drain_seconds: nine\nhosts: 7\n")
	until(t, "the status tells of the mistakes", func() bool { return strings.Contains(show(t, "StatusText"), "the configuration has mistakes") })
	if text := command(t, "journalctl", "-u", "postern", "--no-pager", "-o", "cat", "-n", "20"); !strings.Contains(text, "postern.yaml:1") || !strings.Contains(text, "postern.yaml:2") {
		t.Errorf("not both mistakes with their lines in:\n%s", text)
	}
	if err := host(); err != nil {
		t.Errorf("what held before does not any more: %v", err)
	}
	if show(t, "ActiveState") != "active" || mainPID(t) != pid {
		t.Error("a reload was a restart")
	}
	configure(t, fmt.Sprintf("drain_seconds: %d\n", drainFor))
	until(t, "the status tells of no mistake", func() bool { return !strings.Contains(show(t, "StatusText"), "mistakes") })
}

// Neither many connections at once nor a project whose server ends at its start is the
// service's end, and the next connection works.
func burstOfConnections(t *testing.T, w shop) {
	pid := mainPID(t)
	broken := addProject(t, "broken", "count", "echo")
	// The probe had no such directory; here the server cannot open its log, and ends.
	log := filepath.Join(broken.workspace, "calls.log")
	if err := os.Mkdir(log, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, project := range []string{w.project, broken.project} {
		began := time.Now()
		for range burst {
			c, err := net.Dial("unix", filepath.Join("/run/postern/p", project, "bridge.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if took := time.Since(began); took > burstTime {
			t.Errorf("%d connections took %v, which is no burst", burst, took)
		}
	}
	var clients []*client
	for range burst {
		c := connect(t, broken.project)
		c.initialize()
		clients = append(clients, c)
	}
	for i, c := range clients {
		if line, why := c.wait(t, c.call(2, "echo", `{}`)); strings.Contains(line, `"structuredContent"`) || !strings.Contains(line, "postern/refusal") && why == "" {
			t.Errorf("client %d of a server that ends at its start: %q %q", i, line, why)
		}
	}
	if show(t, "ActiveState") != "active" || mainPID(t) != pid || show(t, "NRestarts") != "0" {
		t.Error("the service did not live on")
	}
	oneUnit(t)
	session(t, w.project)

	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	until(t, "the next connection works once the server does", func() bool {
		c := connect(t, broken.project)
		c.initialize()
		line, _ := c.wait(t, c.call(2, "echo", `{}`))
		return strings.Contains(line, `"structuredContent"`)
	})
}

// The sockets come back as they were, in a directory that no other unit claims.
func restartWhileConnected(t *testing.T, w shop) {
	stat := func() string {
		return command(t, "stat", "-c", "%n %F %a %U:%G", "/run/postern", "/run/postern/control.sock", filepath.Join("/run/postern/p", w.project), filepath.Join("/run/postern/p", w.project, "bridge.sock"))
	}
	before := stat()
	c := opened(t, w.project, "echo", `{}`, "structuredContent")
	oneUnit(t)
	again(t)
	<-c.ended
	if after := stat(); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	owners := command(t, "sh", "-c", `systemctl show -p Id -p RuntimeDirectory '*.service' '*.socket' '*.mount' | grep -c '^RuntimeDirectory=.*postern'`)
	if strings.TrimSpace(owners) != "1" {
		t.Errorf("%s units own /run/postern", strings.TrimSpace(owners))
	}
	if made := command(t, "sh", "-c", `systemd-tmpfiles --cat-config | grep -c '^[^#].*/run/postern' || :`); strings.TrimSpace(made) != "0" {
		t.Errorf("tmpfiles.d has %s lines of it", strings.TrimSpace(made))
	}
}

// A jail that uses up its memory is ended, and nothing else is.
func outOfMemory(t *testing.T) {
	pid := mainPID(t)
	addServer(t, "hungry", "--profile", "static", "--package", fixture(t, "hostile"), "--", "/package/hostile")
	h := addProject(t, "hungry", "hungry", "sys")
	c := opened(t, h.project, "sys", `{"op":"getpid"}`, "returned")
	if line, why := c.wait(t, c.call(3, "sys", `{"op":"memory"}`)); strings.Contains(line, "held") || why != "" {
		t.Errorf("the call that used up the memory: %q %q", line, why)
	}
	until(t, "the next call of the same session works", func() bool {
		line, why := c.wait(t, c.call(4, "sys", `{"op":"getpid"}`))
		return why != "" || strings.Contains(line, "returned")
	})
	if r := h.records(t); !slices.ContainsFunc(r, func(r record) bool { return r.State == "unknown" && r.Code == "server_memory" }) {
		t.Errorf("the records: %+v", r)
	}
	if show(t, "ActiveState") != "active" || mainPID(t) != pid {
		t.Error("the service did not live on")
	}
}

// A restart lets open calls end for as long as was said, and loses none: each has an
// answer and a record of how it ended, and the jails end with the drain.
func restartUnderLoad(t *testing.T, w shop) {
	c := opened(t, w.project, "echo", `{}`, "structuredContent")
	before, had := w.calls(), len(w.records(t))
	var short []chan string
	for i := range shortCalls {
		short = append(short, c.call(10+i, "slow", fmt.Sprintf(`{"ms":%d}`, shortCall)))
	}
	long := c.call(3, "slow", fmt.Sprintf(`{"ms":%d}`, cutOff))
	until(t, "the server has all calls", func() bool { return w.calls() == before+shortCalls+1 })
	jails, began := leased(t), time.Now()
	again(t)
	for i, answer := range short {
		if line, why := c.wait(t, answer); !strings.Contains(line, "slept") {
			t.Errorf("short call %d: %q %q", i, line, why)
		}
	}
	if line, why := c.wait(t, long); strings.Contains(line, "slept") {
		t.Errorf("the long call: %q %q", line, why)
	}
	<-c.ended
	ends := map[string]int{}
	for _, r := range w.records(t)[had:] {
		ends[r.State+" "+r.Code]++
	}
	for _, p := range jails {
		if _, err := os.Stat(filepath.Join("/proc", p)); err == nil {
			t.Errorf("process %s of a jail outlived the restart", p)
		}
	}
	if text := said(t, began); !strings.Contains(text, `"@message":"drained"`) || !strings.Contains(text, `"ended_calls":1`) {
		t.Errorf("the journal does not tell of the one call that was cut off:\n%s", text)
	}
	if ends["completed "] != shortCalls || ends["unknown draining"] != 1 || len(ends) != 2 {
		t.Errorf("the records: %v", ends)
	}
}

// The secret that a drop-in names reaches the jail, and posternd keeps none.
func credential(t *testing.T, w shop) {
	const secret = "from systemd"
	if err := os.WriteFile("/root/tickets.token", []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove("/root/tickets.token")
	dropIn(t, "LoadCredential=shop-tickets:/root/tickets.token")
	again(t)
	command(t, "postern", "server", "add", "tickets", "--profile", "static", "--package", fixture(t, "secret"), "--credential", "required", "--credential-env", "TICKETS_TOKEN", "--", "/package/secret", "TICKETS_TOKEN")
	command(t, "postern", "credential", "add", "shop-tickets", "--project", "shop", "--server", "tickets", "--systemd", "shop-tickets")
	command(t, "postern", "server", "probe", "tickets", "--project", "shop")
	command(t, "postern", "connection", "add", "shop", "tickets")
	command(t, "postern", "connection", "grant", "shop", "tickets", "digest")
	opened(t, w.project, "digest", `{}`, fmt.Sprintf("%x", sha256.Sum256([]byte(secret))))
	if kept, _ := filepath.Glob("/var/lib/postern-root/credentials/*"); len(kept) != 0 {
		t.Errorf("posternd kept %q", kept)
	}
	command(t, "postern", "credential", "revoke", "shop-tickets")
}

// What stands still is replaced: the authority by posternd, posternd by systemd, after the
// unit's own times.
func watchdog(t *testing.T, w shop) {
	command(t, "systemctl", "reset-failed", "postern") // the restarts before are no concern here
	pid := mainPID(t)
	authority := func() int {
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(mainPID(t)), "-u", "postern").Output()
		n, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		return n
	}
	stuck := authority()
	session(t, w.project)
	if stuck == 0 || syscall.Kill(stuck, syscall.SIGSTOP) != nil {
		t.Fatalf("the authority is process %d", stuck)
	}
	began := time.Now()
	until(t, "the authority that stands still is replaced", func() bool { a := authority(); return a != 0 && a != stuck })
	t.Logf("replaced after %v", time.Since(began).Round(time.Second))
	until(t, "it serves", serving)
	if mainPID(t) != pid {
		t.Error("posternd was replaced too")
	}
	session(t, w.project)

	ran := leased(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	until(t, "the posternd that stands still is replaced", func() bool { p := mainPID(t); return p != 0 && p != pid })
	t.Logf("replaced after %v", time.Since(began).Round(time.Second))
	until(t, "the next one serves", serving)
	for _, p := range ran {
		if _, err := os.Stat(filepath.Join("/proc", p)); err == nil {
			t.Errorf("process %s of a jail outlived it", p)
		}
	}
	if n := show(t, "NRestarts"); n != "1" {
		t.Errorf("systemd counts %s restarts", n)
	}
}
