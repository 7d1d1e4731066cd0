//go:build vm

package vm

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The kernel that Debian 12 has by itself is below the floor. The package is installed,
// and everything that could start says which kernel it wants and where to get it; nothing
// is started halfway. The same Debian with the kernel of its backports is where Vm1, C178
// and the quickstart run too.
func TestDebian12_ItsOwnKernelIsRefusedByName(t *testing.T) {
	t.Cleanup(func() { exec.Command("dpkg", "--purge", "postern").Run() })
	began := time.Now()
	told, err := exec.Command("dpkg", "-i", one(t, "0.0.1")).CombinedOutput() // what a person sees of it
	if err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	if got := installed(t); got != "ii 0.0.1" {
		t.Errorf("dpkg says %q", got)
	}
	if !bytes.Contains(told, []byte("the service did not start")) || !bytes.Contains(told, []byte("postern doctor")) {
		t.Errorf("the installation does not tell where to look:\n%s", told)
	}
	if state, status, restarts := show(t, "ActiveState"), show(t, "ExecMainStatus"), show(t, "NRestarts"); state != "failed" || status != "78" || restarts != "0" {
		t.Errorf("the unit is %s, with status %s and %s restarts", state, status, restarts)
	}
	until(t, "the journal has the end of posternd", func() bool { return strings.Contains(said(t, began), "exited") })
	journal := said(t, began)
	for _, want := range []string{`the kernel is Linux "6.1.`, "6.12 is the oldest", "12 with the backports kernel"} {
		if !strings.Contains(journal, want) {
			t.Errorf("no %q in the journal:\n%s", want, journal)
		}
	}

	for _, dir := range []string{"/run/postern", "/sys/fs/cgroup/postern", unitDir} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is %s (%v)", dir, err)
		}
	}
	for _, dir := range []string{"/var/lib/postern", "/var/lib/postern-root"} {
		if made, _ := filepath.Glob(filepath.Join(dir, "*")); len(made) != 0 {
			t.Errorf("it has made %q", made)
		}
	}
	if left := leased(t); len(left) != 0 {
		t.Errorf("these run under leased uids: %v", left)
	}
	if out, err := exec.Command("pgrep", "-fa", "^/usr/libexec/postern/").Output(); err == nil {
		t.Errorf("these run: %s", out)
	}

	out, err := exec.Command("postern", "doctor").CombinedOutput()
	t.Logf("%s", out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("doctor ends with %v", err)
	}
	for _, want := range []string{"kernel is missing", "cure: ", "6.12", "backports"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in what doctor says", want)
		}
	}
	// The configuration can be checked on a host that cannot build jails.
	command(t, libexec+"/posternd", "-check")
}
