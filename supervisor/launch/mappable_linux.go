package launch

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// mappable tries whether the directory's file system can be mounted with other ids.
// Only the kernel knows (overlayfs and most network file systems cannot), so it makes
// a detached mount with a mapping and throws it away. Source: mount_setattr(2).
func mappable(f *os.File, uid uint32) error {
	ns, err := scratchUserns(uid)
	if err != nil {
		return err
	}
	defer ns.Close()
	tree, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("this file system cannot be mounted with mapped ids: %w", err)
	}
	return nil
}

// scratchUserns makes a user namespace that maps uid to itself. A namespace needs a
// process to be born in; this one is traced, so it stops before its first instruction,
// and is killed as soon as the namespace is held open.
func scratchUserns(uid uint32) (*os.File, error) {
	runtime.LockOSThread() // tracing belongs to the thread
	defer runtime.UnlockOSThread()
	one := []syscall.SysProcIDMap{{ContainerID: int(uid), HostID: int(uid), Size: 1}}
	p, err := os.StartProcess("/proc/self/exe", []string{"postern-userns"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Ptrace: true, Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWUSER, UidMappings: one, GidMappings: one}})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer func() { p.Kill(); p.Wait() }()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}
