package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookAround reads what surroundings holds.
func lookAround() (s surroundings, err error) {
	var failed []error
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		failed = append(failed, err)
		return string(raw)
	}
	s.status, s.uidMap, s.mounts = read("/proc/self/status"), read("/proc/self/uid_map"), read("/proc/self/mountinfo")
	s.limits = read("/proc/self/limits")
	var u unix.Utsname
	failed = append(failed, unix.Uname(&u))
	s.release = unix.ByteSliceToString(u.Release[:])
	// A kernel that does not know the question is below the floor, which is told too.
	if s.denies, err = unix.PrctlRetInt(unix.PR_GET_MDWE, 0, 0, 0, 0); err != nil && err != unix.EINVAL {
		failed = append(failed, fmt.Errorf("prctl PR_GET_MDWE: %w", err))
	}
	s.noNamespace = tryNamespaces()
	if s.secureBits, err = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0); err != nil {
		failed = append(failed, os.NewSyscallError("prctl get_securebits", err))
	}
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		failed = append(failed, os.NewSyscallError("sched_getattr", err))
	} else if s.policy = int(attr.Policy); attr.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0 {
		s.policy |= schedResetOnFork
	}
	s.pid = os.Getpid()
	// It says what is the host's own doing. Where it cannot be read, nothing is told apart.
	host, _ := os.ReadFile("/proc/1/mountinfo")
	s.host = string(host)
	s.unit = readUnit(unitDirs, unitOf(read("/proc/self/cgroup")))
	return s, errors.Join(failed...)
}

// tried are the namespaces that jails have, a user namespace for the mapping of its
// mount among them.
var tried = []struct {
	name string
	flag uintptr
}{{"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"network", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"user", unix.CLONE_NEWUSER}, {"cgroup", unix.CLONE_NEWCGROUP}}

// tryNamespaces makes one of each, and says what cannot be made: which of them, by which
// call, with which error. It is "" where all can.
func tryNamespaces() string {
	all := uintptr(0)
	for _, ns := range tried {
		all |= ns.flag
	}
	if tryNamespace(all) == nil {
		return ""
	}
	for _, ns := range tried {
		if err := tryNamespace(ns.flag); err != nil {
			var errno syscall.Errno
			errors.As(err, &errno)
			return fmt.Sprintf("clone with a new %s namespace: %v, errno %d", ns.name, errno, int(errno))
		}
	}
	return ""
}

// tryNamespace starts a process in new namespaces. It is traced, so it stops before its
// first instruction, and is killed there.
func tryNamespace(flags uintptr) error {
	runtime.LockOSThread() // tracing belongs to the thread
	defer runtime.UnlockOSThread()
	attr := &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL, Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		// Not root's: to map that takes a capability (CAP_SETFCAP) that no jail does.
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 1, HostID: 1, Size: 1}}
		attr.GidMappings = attr.UidMappings
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"postern-namespaces"}, &os.ProcAttr{Env: []string{}, Sys: attr})
	if err != nil {
		return err
	}
	p.Kill()
	_, err = p.Wait()
	return err
}
