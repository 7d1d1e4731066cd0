//go:build vm

package vm

import (
	"errors"
	"fmt"
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
	libexec     = "/usr/libexec/postern"
	unitFile    = "/usr/lib/systemd/system/postern.service"
	metricsFile = "/usr/lib/systemd/system/postern-metrics.service"
	dropIns     = "/run/systemd/system/postern.service.d"
	unitDir     = mountpoint + "/system.slice/postern.service"
	aliceUID    = 61001

	// The uids that jails lease where postern.yaml names none.
	leasedFirst, leasedCount = 1_879_048_192, 8192

	patience = 10 * time.Minute // an emulated machine beside other work
)

// command runs a program and returns what it wrote to stdout.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var out, notes strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), notes.String())
	}
	return out.String()
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

// show reads one property of the unit.
func show(t *testing.T, property string) string {
	t.Helper()
	return strings.TrimSpace(command(t, "systemctl", "show", "-P", property, "postern"))
}

// oneUnit: no connection, no session and no jail is a unit of its own, which an upgrade
// or a reload could start again.
func oneUnit(t *testing.T) {
	t.Helper()
	listed := strings.TrimSpace(command(t, "systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", "postern*"))
	if !strings.HasPrefix(listed, "postern.service ") || strings.Contains(listed, "\n") {
		t.Errorf("these units are there, and not the one alone:\n%s", listed)
	}
}

func mainPID(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(show(t, "MainPID"))
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
	// As a package does it: the files, then the users and the directories.
	for from, to := range map[string]string{"systemd/postern.service": unitFile, "systemd/postern-metrics.service": metricsFile, "sysusers.d/postern.conf": "/usr/lib/sysusers.d/postern.conf", "tmpfiles.d/postern.conf": "/usr/lib/tmpfiles.d/postern.conf"} {
		command(t, "install", "-D", "-m", "0644", "../../packaging/"+from, to)
	}
	command(t, "systemd-sysusers", "postern.conf")
	command(t, "systemd-tmpfiles", "--create", "postern.conf")
	command(t, "systemctl", "daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "-u", "postern", "--no-pager", "-n", "60", "-o", "cat").CombinedOutput()
			t.Logf("%s", out)
		}
		exec.Command("systemctl", "stop", "postern").Run()
		os.Remove(unitFile)
		os.Remove(metricsFile)
		for _, dir := range []string{dropIns, "/etc/postern", "/var/lib/postern", "/var/lib/postern-root"} {
			os.RemoveAll(dir)
		}
		exec.Command("systemctl", "daemon-reload").Run()
	})
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
	command(t, "systemctl", "start", "postern") // returns when posternd says that it is ready
	if !serving() {
		t.Error("it is started, and the authority does not serve")
	}

	w := newShop(t)

	// The host is as good as the page for operators says, with posternd running on it.
	// The one thing that this kernel is too old for is named, and no reason to refuse.
	for line := range strings.Lines(command(t, "postern", "doctor")) {
		t.Log(strings.TrimSpace(line))
	}

	first := session(t, w.project)
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
	second := session(t, w.project)

	// A posternd that is killed takes everything with it, and systemd starts another.
	before = mainPID(t)
	command(t, "kill", "-9", fmt.Sprint(before))
	<-second
	until(t, "systemd starts another", func() bool { pid := mainPID(t); return pid != 0 && pid != before && serving() })
	if left := leased(t); len(left) != 0 {
		t.Errorf("these outlived the posternd that was killed: %v", left)
	}
	session(t, w.project)

	command(t, "systemctl", "stop", "postern")
	if state := show(t, "ActiveState"); state != "inactive" {
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
	if out, err := exec.Command("systemctl", "start", "postern").CombinedOutput(); err == nil {
		t.Errorf("it started: %s", out)
	}
	if state := show(t, "ActiveState"); state != "failed" {
		t.Errorf("the unit is %s", state)
	}
	if status, restarts := show(t, "ExecMainStatus"), show(t, "NRestarts"); status != "78" || restarts != "0" {
		t.Errorf("status %s and %s restarts", status, restarts)
	}
	command(t, "systemctl", "reset-failed", "postern")
}
