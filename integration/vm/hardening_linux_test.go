//go:build vm

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dropInFile is where tests add to the unit.
var dropInFile = filepath.Join(dropIns, "test.conf")

// dropIn adds lines to the unit's [Service] section, and takes them back with the test. A
// second one replaces the first.
func dropIn(t *testing.T, lines string) {
	t.Helper()
	if err := os.MkdirAll(dropIns, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dropInFile, []byte("[Service]\n"+lines+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "daemon-reload")
	t.Cleanup(func() {
		if os.Remove(dropInFile) == nil { // else the one before it is being taken back
			exec.Command("systemctl", "daemon-reload").Run()
			exec.Command("systemctl", "reset-failed", "postern").Run()
		}
	})
}

// said is what posternd and systemd wrote since then.
func said(t *testing.T, since time.Time) string {
	t.Helper()
	return command(t, "journalctl", "-u", "postern", "--no-pager", "-o", "cat", "--since", fmt.Sprintf("@%d", since.Unix()))
}

// filters are directives that install system call filters.
var filters = []string{"SystemCallFilter=~@swap", "SystemCallArchitectures=native", "RestrictNamespaces=yes", "RestrictAddressFamilies=AF_UNIX AF_NETLINK", "RestrictRealtime=yes",
	"RestrictSUIDSGID=yes", "LockPersonality=yes", "MemoryDenyWriteExecute=yes", "ProtectClock=yes", "ProtectHostname=yes", "ProtectKernelLogs=yes", "ProtectKernelModules=yes",
	"ProtectKernelTunables=yes", "PrivateDevices=yes"}

// named is how the directive in line n of the drop-in is named.
func named(directive string, n int) string {
	name, _, _ := strings.Cut(directive, "=")
	return fmt.Sprintf("%s= (%s:%d)", name, dropInFile, n)
}

// One start tells of all that is in the way, not of the first of it.
func TestC169_AllThatIsInTheWayIsNamedAtOnce(t *testing.T) {
	install(t)
	want := []string{"ProtectControlGroups=", "ProcSubset=", "LimitCORE=0:1", "CAP_SYS_PTRACE"}
	for i, f := range filters {
		want = append(want, named(f, i+2)) // below [Service]
	}
	dropIn(t, strings.Join(filters, "\n")+"\nProtectControlGroups=yes\nProcSubset=pid\nLimitCORE=0\nCapabilityBoundingSet=~CAP_SYS_PTRACE")
	refused(t, want...)
}

// What would make every jail fail is an error at the start that names the setting, with
// the status that is not tried again; without it the same unit starts, which another test
// shows. Directives that install filters are told from each other by the unit's own files.
func TestC167_C169_C170_WhatIsInTheWayIsNamedAtTheStart(t *testing.T) {
	install(t)
	type way struct{ name, lines, want string }
	ways := []way{
		{"no delegation", "Delegate=no\nDelegateSubgroup=", "set Delegate=yes"},
		{"ProtectControlGroups", "ProtectControlGroups=yes", "ProtectControlGroups="},
		{"PrivateUsers", "PrivateUsers=yes", "PrivateUsers="},
		{"ProcSubset", "ProcSubset=pid", "ProcSubset="},
		{"LimitCORE", "LimitCORE=0", "LimitCORE=0:1"},
		{"a capability", "CapabilityBoundingSet=~CAP_SYS_PTRACE", "CAP_SYS_PTRACE"},
	}
	for _, line := range filters {
		name, _, _ := strings.Cut(line, "=")
		ways = append(ways, way{name, line, "set to no: " + named(line, 2)})
	}
	for _, c := range ways {
		dropIn(t, c.lines)
		t.Run(c.name, func(t *testing.T) { refused(t, c.want) })
	}

	// Of the host, not of the unit.
	if err := os.Remove(dropInFile); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "daemon-reload")
	const most = "/proc/sys/user/max_user_namespaces"
	before := file(t, most)
	if err := os.WriteFile(most, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(most, []byte(before), 0)
	refused(t, "new user namespace: no space left on device, errno 28")
	out, err := exec.Command("postern", "doctor").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "max_user_namespaces") {
		t.Errorf("doctor, %v:\n%s", err, out)
	}
}

// refused: the unit does not start, is not tried again, and says all of this.
func refused(t *testing.T, want ...string) {
	t.Helper()
	exec.Command("systemctl", "reset-failed", "postern").Run() // else the fifth in two minutes is one too many
	began := time.Now()
	if out, err := exec.Command("systemctl", "start", "postern").CombinedOutput(); err == nil {
		t.Errorf("it started: %s", out)
		command(t, "systemctl", "stop", "postern")
	}
	if status, restarts := show(t, "ExecMainStatus"), show(t, "NRestarts"); status != "78" || restarts != "0" {
		t.Errorf("status %s and %s restarts", status, restarts)
	}
	lacking := func() (out []string) {
		text := said(t, began)
		for _, w := range want {
			if !strings.Contains(text, w) {
				out = append(out, w)
			}
		}
		return out
	}
	until(t, "the journal says why", func() bool { return len(lacking()) == 0 || strings.Contains(said(t, began), "exited") })
	if not := lacking(); len(not) > 0 {
		t.Errorf("no %q in:\n%s", not, said(t, began))
	}
}
