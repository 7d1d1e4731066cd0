//go:build vm

package vm

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Where vm-check puts two packages of this tree, which differ in their version.
const packages = "/payload/packages"

// one finds the package of a version.
func one(t *testing.T, version string) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(packages, "postern_"+version+"_*.deb"))
	if len(found) != 1 {
		t.Fatalf("packages of version %s in %s: %q", version, packages, found)
	}
	return found[0]
}

func installed(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", "postern").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// A package's whole life on a host: what was granted outlives an upgrade and a removal,
// and nothing outlives a purge.
func TestC178_ThePackageIsInstalledUpgradedRemovedAndPurged(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "-u", "postern", "--no-pager", "-n", "60", "-o", "cat").CombinedOutput()
			t.Logf("%s", out)
		}
		exec.Command("dpkg", "--purge", "postern").Run()
	})
	began := time.Now()
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(began).Round(100*time.Millisecond))
		began = time.Now()
	}
	command(t, "dpkg", "-i", one(t, "0.0.1"))
	until(t, "the service serves after the installation", serving)
	took("installed, and it serves")
	if state := strings.TrimSpace(command(t, "systemctl", "is-enabled", "postern")); state != "enabled" {
		t.Errorf("the unit is %s", state)
	}

	w := newShop(t)
	took("a project with a server")

	// The upgrade, with a call open that nobody waits for longer than was said: it ends as
	// any drain ends it, no unit but the one is there, and nothing is tried again and again.
	// The files come first, and the service runs on over them: a session that begins in
	// between has a bridge from posternd's own copy, for the installed one's name is gone.
	if err := os.WriteFile("/etc/postern/postern.yaml", []byte("drain_seconds: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "reload", "postern")
	before := mainPID(t)
	command(t, "dpkg", "--unpack", one(t, "0.0.2"))
	if pid := mainPID(t); pid != before {
		t.Errorf("the new files alone restarted the service: %d was %d", pid, before)
	}
	took("the new files are there")
	c := opened(t, w.project, "echo", `{}`, "structuredContent")
	took("a session that began in between")
	had := w.calls()
	open := c.call(3, "slow", `{"ms":3600000}`)
	until(t, "the server has the call", func() bool { return w.calls() > had })
	oneUnit(t)
	command(t, "dpkg", "--configure", "postern")
	if line, why := c.wait(t, open); strings.Contains(line, `"result"`) {
		t.Errorf("the call that was cut off ended with %q %q", line, why)
	}
	<-c.ended
	until(t, "the new version serves", func() bool { pid := mainPID(t); return pid != 0 && pid != before && serving() })
	took("configured, and the new version serves")
	if got := installed(t); got != "ii 0.0.2" {
		t.Errorf("dpkg says %q", got)
	}
	if n := show(t, "NRestarts"); n != "0" {
		t.Errorf("systemd started it again %s times", n)
	}
	if r := w.records(t); len(r) == 0 || r[len(r)-1].State != "unknown" || r[len(r)-1].Code != "draining" {
		t.Errorf("the record of what was cut off: %+v", r)
	}
	session(t, w.project) // what was granted before holds
	took("a session of the new version")

	// Removed, it runs no more; what was granted waits for it.
	command(t, "dpkg", "-r", "postern")
	if left := leased(t); len(left) != 0 {
		t.Errorf("after the removal these run: %v", left)
	}
	if _, err := os.Stat("/usr/bin/postern"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal: %v", err)
	}
	if _, err := os.Stat("/var/lib/postern/policy.db"); err != nil {
		t.Errorf("the removal took the grants: %v", err)
	}
	command(t, "dpkg", "-i", one(t, "0.0.2"))
	until(t, "it serves again", serving)
	session(t, w.project)
	took("removed, installed again, and a session")

	command(t, "dpkg", "-P", "postern")
	took("purged")
	if left := leased(t); len(left) != 0 {
		t.Errorf("after the purge these run: %v", left)
	}
	for _, path := range []string{"/etc/postern", "/var/lib/postern", "/var/lib/postern-root", "/run/postern", "/usr/libexec/postern", "/lib/systemd/system/postern.service", "/usr/lib/systemd/system/postern.service"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the purge left %s (%v)", path, err)
		}
	}
	if _, err := os.Stat(w.workspace); err != nil {
		t.Errorf("the purge touched a project's directory: %v", err)
	}
}
