package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The line that installs the filters is named by its file and number, and no other; one
// that a later drop-in took back is none.
func TestSurroundings_C169_TheLineOfTheUnitIsNamed(t *testing.T) {
	early, late := t.TempDir(), t.TempDir()
	write := func(path, text string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(filepath.Join(early, "postern.service.d", "10-first.conf"), "[Service]\nRestrictRealtime=yes\n")
	write(filepath.Join(late, "postern.service.d", "10-first.conf"), "[Service]\nLockPersonality=yes\n") // the other has its name
	write(filepath.Join(late, "postern.service.d", "20-back.conf"), "[Service]\nPrivateDevices=\nRestrictRealtime=no\n")
	write(filepath.Join(late, "other.service.d", "x.conf"), "[Service]\nProtectClock=yes\n")
	main := write(filepath.Join(late, "postern.service"), "[Unit]\nProtectHostname=yes\n[Service]\n# ProtectKernelLogs=yes\nPrivateDevices=yes\nRestrictNamespaces=yes\n")
	all := write(filepath.Join(late, "service.d", "all.conf"), "[Service]\n\nProtectKernelTunables = yes\n")

	dirs := []string{early, late}
	s := surroundings{status: strings.Replace(goodStatus, "filters:\t0", "filters:\t2", 1), uidMap: goodMap, mounts: goodMounts, release: "6.12.0", unit: readUnit(dirs, unitOf("0::/system.slice/postern.service/supervisor\n"))}
	out := s.inTheWay()
	if len(out) != 1 {
		t.Fatalf("%v", out)
	}
	text := out[0].Error()
	if want := "RestrictNamespaces= (" + main + ":6), ProtectKernelTunables= (" + all + ":3)"; !strings.HasSuffix(text, want) {
		t.Errorf("it ends in something else than %q: %s", want, text)
	}
	for _, name := range []string{"PrivateDevices", "RestrictRealtime", "LockPersonality", "ProtectClock", "ProtectHostname", "ProtectKernelLogs"} {
		if strings.Contains(text, name) {
			t.Errorf("%s is not in effect and is named: %s", name, text)
		}
	}

	// The files alone are no reason: where the kernel has no filter, nothing is in the way.
	s.status = goodStatus
	if out := s.inTheWay(); len(out) != 0 {
		t.Errorf("no filter is in force, and it says %v", out)
	}
	if got := readUnit(dirs, unitOf("0::/user.slice/user-0.slice/session-1.scope\n")); len(got) != 0 {
		t.Errorf("outside a unit: %v", got)
	}
}

// The unit that is shipped gives what the start asks for, has nothing in it that the
// start would refuse, and gives no capability that nobody has a reason for.
func TestSurroundings_TheShippedUnitIsWhatTheStartAsksFor(t *testing.T) {
	raw, err := os.ReadFile("../../packaging/systemd/postern.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := directives("postern.service", string(raw))
	if found := inEffect(unit, append([]string{"PrivateUsers", "PrivatePIDs", "ProtectControlGroups", "ProcSubset", "SecureBits", "CPUSchedulingPolicy", "StateDirectory"}, filtering...)...); len(found) != 0 {
		t.Errorf("the start refuses %s", where(found))
	}
	want := []string{"CAP_SYSLOG"} // a jail starts without; kmsg_linux.go
	for _, c := range capabilities {
		want = append(want, c.name)
	}
	slices.Sort(want)
	for name, value := range map[string]string{"CapabilityBoundingSet": strings.Join(want, " "), "NoNewPrivileges": "yes", "Delegate": "yes", "OOMPolicy": "continue", "KillMode": "mixed", "LimitCORE": "0:1", "RuntimeDirectoryMode": "0711", "RestartPreventExitStatus": "77 78"} {
		found := inEffect(unit, name)
		if len(found) != 1 {
			t.Errorf("%s= is not set", name)
			continue
		}
		have := strings.Fields(found[0].value)
		slices.Sort(have)
		if strings.Join(have, " ") != value {
			t.Errorf("%s=%s, and not %s", name, found[0].value, value)
		}
	}
}
