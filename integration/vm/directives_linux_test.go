//go:build vm

package vm

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What a drop-in takes away, hides or bounds so that no jail comes about, or that nobody
// could connect, is told at the start with the directive, and is not tried again; the
// same unit without it starts and serves. A jail that is tried at the start finds what
// has no check of its own.
func TestC169_WhatADropInTakesFromEveryJailIsNamed(t *testing.T) {
	install(t)
	for _, c := range []struct{ lines, status, want string }{
		{"PrivatePIDs=yes", "78", named("PrivatePIDs=", 2)},
		{"SecureBits=noroot noroot-locked", "78", named("SecureBits=", 2)},
		{"CPUSchedulingPolicy=fifo\nCPUSchedulingPriority=1", "78", named("CPUSchedulingPolicy=", 2)},
		{"ProtectSystem=strict", "78", `"/var/lib/postern-root" is read-only: take out of the unit ` + named("ProtectSystem=", 2)},
		{"ReadOnlyPaths=/var/lib/postern-root", "78", named("ReadOnlyPaths=", 2)},
		{"InaccessiblePaths=/var/lib/postern-root", "78", "is made inaccessible: take out of the unit " + named("InaccessiblePaths=", 2)},
		{"TemporaryFileSystem=/var/lib", "78", "is on an empty file system of the unit's own: take out of the unit " + named("TemporaryFileSystem=", 2)},
		{"RuntimeDirectoryMode=0700", "78", "RuntimeDirectoryMode="},
		{"StateDirectory=postern", "78", named("StateDirectory=", 2)},
		{"LimitNOFILE=512", "78", `step "limits" failed`},
		{"LimitMEMLOCK=0", "78", named("LimitMEMLOCK=", 2)},
		{"LimitAS=4G", "78", named("LimitAS=", 2)},
		{"LimitNPROC=2", "78", named("LimitNPROC=", 2)},
		{"NoExecPaths=/var/lib", "78", "take out of it " + named("NoExecPaths=", 2)},
		{"InaccessiblePaths=/dev/full", "78", named("InaccessiblePaths=", 2)},
		{"User=nobody", "77", "must be started as root"},
	} {
		dropIn(t, c.lines)
		t.Run(strings.ReplaceAll(c.lines, "\n", ","), func(t *testing.T) { ends(t, c.status, c.want) })
		exec.Command("chown", "-R", "postern:postern", "/var/lib/postern").Run() // what StateDirectory= changed
		exec.Command("chmod", "0700", "/var/lib/postern").Run()
	}

	// The twin of all of these; and a workspace that is hidden is told, while posternd and
	// the other projects go on.
	dropIn(t, "")
	again(t)
	w := newShop(t)
	session(t, w.project)
	for _, c := range []struct{ line, want string }{
		{"InaccessiblePaths=" + w.workspace, "is made inaccessible: take out of the unit"},
		{"ReadOnlyPaths=" + w.workspace, "is read-only: take out of the unit"},
	} {
		began := time.Now()
		dropIn(t, c.line)
		again(t)
		if text := said(t, began); !strings.Contains(text, c.want) || !strings.Contains(text, w.workspace) {
			t.Errorf("%s: no %q in:\n%s", c.line, c.want, text)
		}
	}
	dropIn(t, "")
	again(t)
	session(t, w.project)
}

// journalWait is how long the journal may take for lines of a process that has ended.
const journalWait = time.Minute

// ends: the start fails with this status, is not tried again, and says this.
func ends(t *testing.T, status, want string) {
	t.Helper()
	exec.Command("systemctl", "reset-failed", "postern").Run() // else the fifth in two minutes is one too many
	began := time.Now()
	if out, err := exec.Command("systemctl", "start", "postern").CombinedOutput(); err == nil {
		t.Errorf("it started: %s", out)
		command(t, "systemctl", "stop", "postern")
	}
	if is, restarts := show(t, "ExecMainStatus"), show(t, "NRestarts"); is != status || restarts != "0" {
		t.Errorf("status %s and %s restarts", is, restarts)
	}
	for end := began.Add(journalWait); !strings.Contains(said(t, began), want) && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
	}
	if text := said(t, began); !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	} else {
		t.Logf("after %v:\n%s", time.Since(began).Round(time.Second), text)
	}
}
