package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// startOnce runs posternd until it is ready, which ends it, or until it refuses.
func startOnce(t *testing.T, cfg Config) (ready bool, err error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var log buffer
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})
	cfg.Ready = func() { ready = true; end() }
	err = Run(ctx, cfg)
	return ready, err
}

// otherPrograms is another directory with the programs.
func otherPrograms(t *testing.T, from string) string {
	t.Helper()
	dir := newDir(t)
	for _, name := range []string{authorityProgram, bridgeProgram, jailProgram} {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), raw, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What makes every jail fail, and what nobody has thought of, is found by a jail that is
// tried before posternd says that it is ready: the step is named, and it is a mistake that
// another start would find again. The same posternd without it becomes ready, and nothing
// of the jail that was tried is left.
func TestTrial_AJailThatCannotBeIsFoundBeforeReady(t *testing.T) {
	cfg := newConfig(t)
	if ready, err := startOnce(t, cfg); !ready || err != nil {
		t.Fatalf("ready %t, %v", ready, err)
	}
	noexec := func(name string) func(*testing.T, string) {
		return func(t *testing.T, _ string) { // as NoExecPaths= does: a mount that nothing is executed from
			path := filepath.Join(cfg.RootDir, programsDir, name)
			if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
			if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOEXEC, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	server, err := os.ReadFile(filepath.Join(cfg.Libexec, "server"))
	if err != nil {
		t.Fatal(err)
	}
	instead := func(raw []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, bridgeProgram), raw, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, libexec string)
		want   []string
	}{
		"postern-jail on noexec":      {noexec(jailProgram), []string{`step "clone" failed`, "permission denied"}},
		"the program on noexec":       {noexec(bridgeProgram), []string{"permission denied", "failed"}},
		"a program that is none":      {instead([]byte("no program\n")), []string{"exec format error"}},
		"a program that says nothing": {instead(server), []string{"its program started", "it ended with status"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := cfg
			bad.Libexec = otherPrograms(t, cfg.Libexec)
			c.change(t, bad.Libexec)
			ready, err := startOnce(t, bad)
			if ready || !errors.Is(err, ErrConfig) {
				t.Fatalf("ready %t, %v", ready, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		if left, _ := filepath.Glob(pattern + cfg.Cgroup + "/*/*/cgroup.procs"); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// What may be otherwise in a moment is no mistake of the configuration.
func TestTrial_AHostThatIsBusyIsTriedAgain(t *testing.T) {
	for _, err := range []error{errNoWord, unix.EAGAIN, unix.ENOMEM} {
		if !passing(err) {
			t.Errorf("%v does not pass", err)
		}
	}
	for _, err := range []error{errEnded, unix.EPERM, unix.EACCES, unix.EROFS, unix.ENOENT} {
		if passing(err) {
			t.Errorf("%v passes", err)
		}
	}
}

// The lines that drop-ins added are named, and not those of the unit itself.
func TestTrial_WhatDropInsAddIsNamed(t *testing.T) {
	unit := slices.Concat(directives("/usr/lib/systemd/system/postern.service", "[Service]\nKillMode=mixed\nPrivateTmp=yes\n"),
		directives("/etc/systemd/system/postern.service.d/a.conf", "[Service]\nNoExecPaths=/usr\nPrivateTmp=\nLimitNOFILE=9\nLimitMEMLOCK=1\nLimitMEMLOCK=0\n"))
	text := addedTo(unit)
	for want, in := range map[string]bool{"NoExecPaths= (/etc/systemd/system/postern.service.d/a.conf:2)": true, "LimitNOFILE= (": true, "LimitMEMLOCK= (/etc/systemd/system/postern.service.d/a.conf:6)": true, "a.conf:5": false, "KillMode": false, "PrivateTmp": false} {
		if strings.Contains(text, want) != in {
			t.Errorf("%q in it: %t: %s", want, !in, text)
		}
	}
	if text := addedTo(unit[:2]); text != "" {
		t.Errorf("no drop-in, and it says %q", text)
	}
}

// An error about a directory names the directives that can have changed it, and is the
// error that it was.
func TestSurroundings_WhatChangedADirectoryIsNamed(t *testing.T) {
	s := surroundings{unit: directives("/x.conf", "[Service]\nStateDirectory=postern\n")}
	if err := s.changedBy(unix.EPERM, "StateDirectory"); !errors.Is(err, unix.EPERM) || !strings.HasSuffix(err.Error(), "StateDirectory= (/x.conf:2)") {
		t.Errorf("%v", err)
	}
	if err := s.changedBy(unix.EPERM, "NoExecPaths"); err != unix.EPERM {
		t.Errorf("%v", err)
	}
}

// What a service manager sets of a process is read as the kernel has it, and the same
// process without it has nothing in its way.
func TestSurroundings_SecureBitsAndPolicyAreRead(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		set  func() error
		want string
	}{
		"nothing":     {func() error { return nil }, ""},
		"SecureBits=": {func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, 1<<0, 0, 0, 0) }, "SecureBits="},
		"CPUSchedulingPolicy=": {func() error {
			return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedRR, Priority: 1}, 0)
		}, "CPUSchedulingPolicy="},
		"CPUSchedulingResetOnFork=": {func() error {
			return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedRR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
		}, ""},
	} {
		type seen struct {
			out []error
			err error
		}
		got := make(chan seen)
		go func() {
			runtime.LockOSThread() // never unlocked: what was set ends with the thread
			if err := c.set(); err != nil {
				got <- seen{err: err}
				return
			}
			s, err := lookAround()
			got <- seen{s.inTheWay(), err}
		}()
		s := <-got
		if s.err != nil {
			t.Errorf("%s: %v", name, s.err)
			continue
		}
		if text := errors.Join(s.out...); c.want == "" && text != nil || c.want != "" && (len(s.out) != 1 || !strings.Contains(text.Error(), c.want)) {
			t.Errorf("%s: %v", name, text)
		}
	}
}

// changedAround changes mounts as a unit's directive does, and tells what posternd says.
func changedAround(dir, change string) string {
	var err error
	switch change {
	case "read-only":
		err = errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	case "writable": // a mount of its own, as ReadWritePaths= makes one
		err = unix.Mount(dir, dir, "", unix.MS_BIND, "")
	}
	s, lookErr := lookAround()
	if err := errors.Join(err, lookErr); err != nil {
		return err.Error()
	}
	return fmt.Sprint(s.shutOff([]needed{{"root-dir", filepath.Join(dir, "below")}}))
}

// What a process finds mounted otherwise than process 1 of the host is what is told.
func TestSurroundings_AMountOfItsOwnIsSeen(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	for change, want := range map[string]string{"none": "[]", "writable": "[]", "read-only": dir + `/below" is read-only`} {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{"POSTERN_LAUNCH_ROLE=surroundings", "POSTERN_LAUNCH_DIR=" + dir, "POSTERN_LAUNCH_CHANGE=" + change}
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // what is mounted there is private
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: no %q in %q, %v", change, want, out, err)
		}
	}
}

// A run directory through which only root comes is refused, as RuntimeDirectoryMode= makes
// it; one that others or a group pass is taken.
func TestRunDir_OneThatNobodyPassesIsRefused(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		mode uint32
		gid  int
		ok   bool
	}{{0o711, 0, true}, {0o755, 0, true}, {0o750, 64321, true}, {0o700, 0, false}, {0o750, 0, false}, {0o700, 64321, false}} {
		dir := filepath.Join(newDir(t), "run")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 0, c.gid), unix.Chmod(dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		r, err := openRunDir(dir)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "RuntimeDirectoryMode=") {
			t.Errorf("mode %04o, gid %d: %v", c.mode, c.gid, err)
		}
		if err == nil {
			r.dir.Close()
		}
	}
}
