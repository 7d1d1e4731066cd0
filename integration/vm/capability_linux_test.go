//go:build vm

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/integration/rig"
)

const otherUID = 61003

// place is where the calls are made: files of others, and a process of another user.
type place struct {
	dir string
	pid int
}

// reason is a capability of the unit with a call of the kind that docs/operators.md gives
// for it, and that fails without it.
type reason struct {
	capability string
	call       func(place) error
}

var reasons = []reason{
	{"CAP_CHOWN", func(p place) error { return unix.Chown(filepath.Join(p.dir, "own"), otherUID, otherUID) }},
	{"CAP_DAC_OVERRIDE", func(p place) error {
		f, err := os.OpenFile(filepath.Join(p.dir, "closed/file"), os.O_WRONLY, 0)
		return errors.Join(err, f.Close())
	}},
	{"CAP_FOWNER", func(p place) error { return unix.Unlink(filepath.Join(p.dir, "sticky/file")) }},
	{"CAP_KILL", func(p place) error { return unix.Kill(p.pid, 0) }},
	{"CAP_NET_ADMIN", func(place) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		lo, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		lo.SetUint16(unix.IFF_UP)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}},
	{"CAP_SETGID", func(place) error { return onThread(unix.SYS_SETRESGID, otherUID, otherUID, otherUID) }},
	{"CAP_SETPCAP", func(place) error { return onThread(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, unix.CAP_WAKE_ALARM, 0) }},
	{"CAP_SETUID", func(place) error { return onThread(unix.SYS_SETRESUID, otherUID, otherUID, otherUID) }},
	{"CAP_SYS_ADMIN", func(place) error { return onThread(unix.SYS_UNSHARE, unix.CLONE_NEWNS, 0, 0) }},
	{"CAP_SYS_PTRACE", func(p place) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.pid))
		return errors.Join(err, f.Close())
	}},
	{"CAP_SYSLOG", func(place) error {
		f, err := os.Open("/dev/kmsg")
		return errors.Join(err, f.Close())
	}},
}

// onThread makes a call on a thread that ends with it, so that the next call is made by
// the one that this process began as.
func onThread(call, a, b, c uintptr) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		_, _, errno := unix.RawSyscall(call, a, b, c)
		if errno != 0 {
			done <- errno
			return
		}
		done <- nil
	}()
	return <-done
}

// makeCalls makes each call once, and names those that the kernel did not permit.
func makeCalls(args []string) int {
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return 1
	}
	for _, r := range reasons {
		if err := r.call(place{args[0], pid}); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			fmt.Println(r.capability)
		} else if err != nil {
			fmt.Println(r.capability, err)
		}
	}
	return 0
}

// furnish makes the place anew.
func (p place) furnish(t *testing.T) {
	t.Helper()
	at := func(name string) string { return filepath.Join(p.dir, name) }
	err := errors.Join(os.RemoveAll(p.dir), os.Mkdir(p.dir, 0o755), os.WriteFile(at("own"), nil, 0o600))
	for _, dir := range []string{"closed", "sticky"} {
		err = errors.Join(err, os.Mkdir(at(dir), 0o700), os.WriteFile(at(dir+"/file"), nil, 0o600), os.Chown(at(dir+"/file"), otherUID, otherUID), os.Chown(at(dir), aliceUID, aliceUID))
	}
	if err = errors.Join(err, os.Chmod(at("sticky"), 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
}

// capabilitiesOfUnit reads what the shipped unit leaves to posternd.
func capabilitiesOfUnit(t *testing.T) []string {
	t.Helper()
	for line := range strings.Lines(file(t, "../../packaging/systemd/postern.service")) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet="); ok {
			return strings.Fields(list)
		}
	}
	t.Fatal("the unit bounds no capability")
	return nil
}

// Each capability of the unit is there for a call that works with all of them, and that
// fails, alone among them, where that one is missing. So the unit has none too many, and
// its page a row for each.
func TestEachCapabilityOfTheUnitHasAReason(t *testing.T) {
	all := capabilitiesOfUnit(t)
	var have []string
	for _, r := range reasons {
		have = append(have, r.capability)
	}
	if !slices.Equal(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(have))) {
		t.Fatalf("the unit has %q, and reasons are known for %q", all, have)
	}
	page := file(t, "../../docs/operators.md")
	for _, c := range all {
		if !strings.Contains(page, "`"+c+"`") {
			t.Errorf("docs/operators.md does not say what %s is for", c)
		}
	}

	sleeper := exec.Command("sleep", "infinity")
	sleeper.SysProcAttr = rig.As(aliceUID)
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
	p := place{"/run/postern-vm-capabilities", sleeper.Process.Pid}
	defer os.RemoveAll(p.dir)
	denied := func(set []string) string {
		p.furnish(t)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(command(t, "systemd-run", "--quiet", "--wait", "--pipe", "--collect", "-p", "CapabilityBoundingSet="+strings.Join(set, " "), "-p", "NoNewPrivileges=yes", "--", exe, roleCalls, p.dir, strconv.Itoa(p.pid)))
	}
	if got := denied(all); got != "" {
		t.Errorf("with all of them these fail: %s", got)
	}
	for _, c := range all {
		if got := denied(slices.DeleteFunc(slices.Clone(all), func(x string) bool { return x == c })); got != c {
			t.Errorf("without %s these fail: %q", c, got)
		}
	}
}

// Without one of them the unit does not start and says which; the one that only names what
// ended a jail is missed by nothing else.
func TestAMissingCapabilityIsNamedAtTheStart(t *testing.T) {
	install(t)
	for _, c := range capabilitiesOfUnit(t) {
		if c != "CAP_SYSLOG" {
			dropIn(t, "CapabilityBoundingSet=~"+c)
			t.Run(c, func(t *testing.T) { refused(t, "posternd lacks "+c+", which it needs ") })
		}
	}

	if err := os.Remove(dropInFile); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl", "daemon-reload")
	const because = "its system call filter ended it"
	again(t)
	command(t, "postern", "account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	addServer(t, "hostile", "--profile", "static", "--package", fixture(t, "hostile"), "--", "/package/hostile")
	w := addProject(t, "hostile", "hostile", "sys")
	why := func() string {
		c := opened(t, w.project, "sys", `{"op":"getpid"}`, "returned")
		c.wait(t, c.call(3, "sys", `{"op":"int80"}`))
		r := w.records(t)
		return r[len(r)-1].Reason
	}
	if got := why(); !strings.HasPrefix(got, because+": 32-bit call 20") {
		t.Errorf("with CAP_SYSLOG: %q", got)
	}
	dropIn(t, "CapabilityBoundingSet=~CAP_SYSLOG")
	again(t)
	if got := why(); !strings.HasPrefix(got, because) || strings.HasPrefix(got, because+":") {
		t.Errorf("without CAP_SYSLOG: %q", got)
	}
}
