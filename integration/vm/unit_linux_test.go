//go:build vm

package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"postern/integration/rig"
)

const (
	libexec  = "/usr/libexec/postern"
	unitFile = "/etc/systemd/system/postern.service"
	unitDir  = mountpoint + "/system.slice/postern.service"
	aliceUID = 61001

	// The uids that jails lease where postern.yaml names none.
	leasedFirst, leasedCount = 1_879_048_192, 8192

	patience = 3 * time.Minute // an emulated machine beside other work
)

// shippedUnit is the unit that the operators' page shows, so that it is this one
// which is known to work.
func shippedUnit(t *testing.T) string {
	t.Helper()
	_, after, ok := strings.Cut(file(t, "../../docs/operators.md"), "```\n[Unit]\n")
	unit, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("docs/operators.md shows no unit")
	}
	return "[Unit]\n" + unit
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it did not come about: %s", what)
}

// serving asks the authority for something, so that it is known to be up.
func serving() bool { return exec.Command("postern", "account", "list").Run() == nil }

func mainPID(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(command(t, "systemctl", "show", "-P", "MainPID", "postern")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// install puts the built programs where `make install` does, and the unit.
func install(t *testing.T) {
	t.Helper()
	if err := rig.Build("../..", libexec); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(libexec+"/postern", "/usr/bin/postern"); err != nil {
		t.Fatal(err)
	}
	command(t, "../../scripts/user")
	if err := os.WriteFile(unitFile, []byte(shippedUnit(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "-u", "postern", "--no-pager", "-n", "60", "-o", "cat").CombinedOutput()
			t.Logf("%s", out)
		}
		exec.Command("systemctl", "stop", "postern").Run()
		os.Remove(unitFile)
		exec.Command("systemctl", "daemon-reload").Run()
	})
}

// session opens one as alice and calls a tool. What it returns is open until the test
// ends, or posternd.
func session(t *testing.T, project string) (ended chan struct{}) {
	t.Helper()
	c := exec.Command("postern", "connect", "--project", project)
	c.SysProcAttr, c.Dir = rig.As(aliceUID), "/"
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	t.Cleanup(func() { c.Process.Kill(); <-ended })
	lines, answered := bufio.NewReader(out), make(chan string, 1)
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"vm","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"from a jail"}}}`,
	} {
		if _, err := io.WriteString(in, m+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		defer close(ended)
		defer c.Wait()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.Contains(line, `"id":2`) {
				answered <- line
			}
		}
	}()
	select {
	case line := <-answered:
		if !strings.Contains(line, "from a jail") {
			t.Errorf("the tool answered %s", line)
		}
	case <-ended:
		t.Fatalf("the session ended at once: %s", said.String())
	case <-time.After(patience):
		t.Fatal("the tool did not answer in time")
	}
	return ended
}

// leased lists the processes that run under a uid of jails.
func leased(t *testing.T) []string {
	t.Helper()
	var found []string
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		raw, err := os.ReadFile(p)
		if err != nil || strings.Contains(string(raw), "\nState:\tZ") {
			continue // gone, or dead and not yet reaped
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
				if uid, _ := strconv.Atoi(f[1]); uid >= leasedFirst && uid < leasedFirst+leasedCount {
					found = append(found, filepath.Base(filepath.Dir(p)))
				}
			}
		}
	}
	return found
}

func TestVm1_TheShippedUnitStartsServesRestartsAndLeavesNothing(t *testing.T) {
	install(t)
	mounts := file(t, "/proc/self/mountinfo")
	command(t, "systemctl", "start", "postern")
	until(t, "the authority serves", serving)

	workspace, fixtures := filepath.Join("/srv", "shop"), t.TempDir()
	if err := errors.Join(os.MkdirAll(workspace, 0o700), os.Chown(workspace, aliceUID, aliceUID), os.Chmod(fixtures, 0o755)); err != nil {
		t.Fatal(err)
	}
	pkg, err := rig.BuildServer("../..", fixtures, "count")
	if err != nil {
		t.Fatal(err)
	}
	command(t, "postern", "account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	command(t, "postern", "server", "add", "count", "--profile", "static", "--package", pkg, "--", "/package/count")
	var added struct {
		Project string `json:"project"`
	}
	if err := json.Unmarshal([]byte(command(t, "postern", "--json", "project", "add", "shop", "--workspace", workspace, "--owner", "alice")), &added); err != nil {
		t.Fatal(err)
	}
	command(t, "postern", "project", "set", "shop", "--person-bind", "on")
	command(t, "postern", "connection", "add", "shop", "count")
	command(t, "postern", "connection", "grant", "shop", "count", "echo")

	// The host is as good as the page for operators says, with posternd running on it.
	// The one thing that this kernel is too old for is named, and no reason to refuse.
	for line := range strings.Lines(command(t, "postern", "doctor")) {
		t.Log(strings.TrimSpace(line))
	}

	first := session(t, added.Project)
	if groups, _ := filepath.Glob(unitDir + "/jails/*/jal_*"); len(groups) != 2 {
		t.Errorf("a bridge and a server run in these groups below the unit's: %q", groups)
	}
	if n := len(leased(t)); n != 2 {
		t.Errorf("%d processes run under leased uids", n)
	}
	if at := file(t, "/proc", fmt.Sprint(mainPID(t)), "cgroup"); strings.TrimSpace(at) != "0::/system.slice/postern.service/supervisor" {
		t.Errorf("posternd is in %q", at)
	}

	// A restart with a session open ends it, and the next one works.
	before := mainPID(t)
	command(t, "systemctl", "restart", "postern")
	<-first
	until(t, "the authority serves again", serving)
	if mainPID(t) == before {
		t.Error("it was not restarted")
	}
	second := session(t, added.Project)

	// A posternd that is killed takes everything with it, and systemd starts another.
	before = mainPID(t)
	command(t, "kill", "-9", fmt.Sprint(before))
	<-second
	until(t, "systemd starts another", func() bool { pid := mainPID(t); return pid != 0 && pid != before && serving() })
	if left := leased(t); len(left) != 0 {
		t.Errorf("these outlived the posternd that was killed: %v", left)
	}
	session(t, added.Project)

	command(t, "systemctl", "stop", "postern")
	if state := strings.TrimSpace(command(t, "systemctl", "show", "-P", "ActiveState", "postern")); state != "inactive" {
		t.Errorf("after stop the unit is %s", state)
	}
	if left := leased(t); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat(unitDir); !errors.Is(err, fs.ErrNotExist) {
		groups, _ := filepath.Glob(unitDir + "/*")
		t.Errorf("groups are left (%v): %q", err, groups)
	}
	if now := file(t, "/proc/self/mountinfo"); now != mounts {
		t.Errorf("mounts before:\n%s\nand after:\n%s", mounts, now)
	}
	if sockets, _ := filepath.Glob("/run/postern/*"); len(sockets) != 0 {
		t.Errorf("sockets are left: %q", sockets)
	}
}

// A mistake in the configuration is not a reason to try again.
func TestAMistakeEndsTheUnitForGood(t *testing.T) {
	install(t)
	if err := errors.Join(os.MkdirAll("/etc/postern", 0o755), os.WriteFile("/etc/postern/postern.yaml", []byte("hosts: 7\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll("/etc/postern")
	command(t, "systemctl", "start", "postern") // Type=simple: started is not yet checked
	until(t, "the unit failed", func() bool {
		return strings.TrimSpace(command(t, "systemctl", "show", "-P", "ActiveState", "postern")) == "failed"
	})
	if got := strings.Fields(command(t, "systemctl", "show", "-P", "ExecMainStatus", "-P", "NRestarts", "postern")); strings.Join(got, " ") != "78 0" && strings.Join(got, " ") != "0 78" {
		t.Errorf("status and restarts are %v", got)
	}
	command(t, "systemctl", "reset-failed", "postern")
}
