package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/profiles"
)

// inheritEnv makes this test binary a launcher that has inherited something. Its value is
// what, then Config's two fields, the probe and its arguments, parted by spaces.
const inheritEnv = "POSTERN_TEST_INHERITED"

// takenOver stands for what, once exec has made it an attribute of every thread.
const takenOver = "taken-over"

// attributes are what fork and exec pass on, by their names.
var attributes = map[string]func() error{
	"nothing": func() error { return nil },
	// Addresses that are not random, and a kernel that says another version. Source:
	// linux/personality.h.
	"personality": func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0x0040000|0x0020000, 0, 0); errno != 0 {
			return errno
		}
		return nil
	},
	"merging": func() error { return unix.Prctl(unix.PR_SET_MEMORY_MERGE, 1, 0, 0, 0) },
	// PR_MDWE_REFUSE_EXEC_GAIN. Source: linux/prctl.h.
	"denied": func() error { return unix.Prctl(unix.PR_SET_MDWE, 1, 0, 0, 0) },
}

// inheriting gives this thread the attribute and becomes the launcher, so that it is one
// that was started with it; the launcher prints its own attributes, and then what the
// probe said or why there is no jail.
func inheriting() {
	arg := strings.Fields(os.Getenv(inheritEnv))
	err := func() error {
		if arg[0] != takenOver {
			runtime.LockOSThread()
			if err := attributes[arg[0]](); err != nil {
				return err
			}
			arg[0] = takenOver
			if err := os.Setenv(inheritEnv, strings.Join(arg, " ")); err != nil {
				return err
			}
			return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		}
		now, err := os.ReadFile("/proc/self/personality")
		if err != nil {
			return err
		}
		denied, err := unix.PrctlRetInt(unix.PR_GET_MDWE, 0, 0, 0, 0)
		if err != nil {
			return err
		}
		merges, err := unix.PrctlRetInt(unix.PR_GET_MEMORY_MERGE, 0, 0, 0, 0)
		if err != nil && err != unix.EINVAL {
			return err
		}
		fmt.Printf("launcher %s %d %d\n", strings.TrimSpace(string(now)), denied, merges)
		all, err := profiles.Builtin()
		if err != nil {
			return err
		}
		l, err := Open(Config{Init: arg[1], Cgroup: arg[2]})
		if err != nil {
			return err
		}
		defer l.Close()
		program, err := os.Open(arg[3])
		if err != nil {
			return err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		p := all["static"]
		p.Workspace, p.Proc = false, true
		jail, err := l.Launch(Request{Name: "inherited", Profile: p, UID: leasedID, GID: leasedID, Argv: append([]string{spec.ProgramFile}, arg[4:]...), Program: program, Stdout: w})
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, r)
		<-jail.Gone()
		return err
	}()
	if err != nil {
		fmt.Println("failed", err)
	}
	os.Exit(0)
}

// startedWith is what the launcher and its jail say where it was started with an attribute.
func startedWith(t *testing.T, what string, probes ...string) map[string]string {
	t.Helper()
	needs(t)
	parent := fmt.Sprintf("postern-test/inherited-%d-%s", os.Getpid(), what)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), inheritEnv+"="+strings.Join(append([]string{what, bench.init, parent, bench.probe}, probes...), " "))
	raw, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", what, err, raw)
	}
	if err := removeParents(parent); err != nil {
		t.Error(err)
	}
	return parse(string(raw))
}

// Whatever personality posternd was started with, and whether memory is merged there: what
// runs in a jail has none of it.
func TestStage_InheritedAttributesEndAtTheJail(t *testing.T) {
	const probe = "read=/proc/self/personality"
	for what, launcher := range map[string]string{"nothing": "00000000 0 0", "personality": "00060000 0 0"} {
		expect(t, startedWith(t, what, probe), map[string]string{"launcher": launcher, probe: "00000000", "failed": ""})
	}

	const asked = "ksm_merge_any:" // a line of ksm_stat
	if _, err := os.Stat("/proc/self/ksm_stat"); err != nil {
		t.Logf("merging is not tried: this kernel merges no memory: %v", err)
		return
	}
	said := startedWith(t, "merging", "read=/proc/self/ksm_stat")
	expect(t, said, map[string]string{"launcher": "00000000 0 1", "failed": ""})
	if inside := said[asked]; inside == "yes" {
		t.Errorf("memory of the jail is merged: %v", said)
	}
}

// A launcher under MemoryDenyWriteExecute= starts nothing, and says for which step's
// sake; the test above is the twin that starts.
func TestStage2_DeniedExecutableMemoryStartsNothing(t *testing.T) {
	said := startedWith(t, "denied", "exit=0")
	if said["launcher"] != "00000000 1 0" || !strings.HasPrefix(said["failed"], "jail: inherited: ") || !strings.Contains(said["failed"], "MemoryDenyWriteExecute=") {
		t.Errorf("said %v", said)
	}
}
