package jail

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// userns makes a user namespace with the two maps and returns a descriptor of it. An
// id-mapped mount needs one, and nothing ever runs in it.
//
// The kernel makes a user namespace for a new process only. Starting a program for
// that took as long as building half a jail, so this process shares the launcher's
// memory as a child of vfork does, idles in a few instructions that touch none of it,
// and is killed as soon as its namespace is held here.
func userns(uids, gids []idPair) (*os.File, error) {
	pid, err := idle(unix.CLONE_NEWUSER)
	if err != nil {
		return nil, err
	}
	// Not reaped yet, so the number still means this process.
	defer endIdle(pid)
	for _, m := range []struct {
		file  string
		pairs []idPair
	}{{"uid_map", uids}, {"gid_map", gids}} {
		// The kernel takes a map in one write, and once.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, m.file), mapping(m.pairs), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}

// mapping is what uid_map and gid_map take. Source: user_namespaces(7).
func mapping(pairs []idPair) []byte {
	var all strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&all, "%d %d 1\n", p.disk, p.jail)
	}
	return []byte(all.String())
}

// idle starts a process that does nothing, in the new namespaces that flags name. It
// dies with the launcher. The caller ends it with endIdle.
func idle(flags uintptr) (pid int, err error) {
	// No handler may run in the child: it would run on the parent's stack. It keeps
	// for ever the mask that this thread has now.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, fmt.Errorf("block signals: %w", err)
	}
	pid = cloneIdle(flags|unix.CLONE_VM|uintptr(unix.SIGCHLD), uintptr(os.Getpid()))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		panic("the launcher's thread cannot hear signals again: " + err.Error())
	}
	if pid < 0 {
		return 0, fmt.Errorf("clone: %w", unix.Errno(-pid))
	}
	return pid, nil
}

// cloneIdle is clone(2) whose child never returns. It answers a negative error number.
//
// Preconditions: CLONE_VM is among flags; every signal is blocked; parent is this process.
//
//go:noescape
func cloneIdle(flags, parent uintptr) (pid int)

// endIdle kills a process that idle made, and waits for its end.
func endIdle(pid int) {
	unix.Kill(pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
