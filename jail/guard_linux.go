package jail

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountGuard tells of a change of a jail's mounts. The jail itself can change none of
// them, so whatever changes was done by others: somebody outside renamed a file over
// a protected name, or removed it, and the kernel let go of the mount there. From
// that moment the program could write what now has the name.
//
// The list of mounts is open twice: asking an open file whether anything changed
// makes it forget, and the runtime's poller asks one of them when it wakes.
type mountGuard struct {
	wake *os.File
	ask  int
}

// guardMounts returns nil for a program that has ended already.
func guardMounts(pid int) (*mountGuard, error) {
	path := fmt.Sprintf("/proc/%d/mountinfo", pid)
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil && i == 1 {
			unix.Close(fds[0])
		}
		switch err {
		case nil:
			fds[i] = fd
		case unix.ENOENT, unix.ESRCH, unix.EINVAL: // the last is what a process that has ended says
			return nil, nil
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
	return &mountGuard{wake: os.NewFile(uintptr(fds[0]), path), ask: fds[1]}, nil
}

// wait returns true at a change, false when the guard is closed.
func (g *mountGuard) wait() bool {
	raw, err := g.wake.SyscallConn()
	return err == nil && raw.Read(func(uintptr) bool { return g.changed() }) == nil
}

// changed reports whether the mounts have changed since it was asked last. Source:
// proc(5), mountinfo: a change is an exceptional condition to poll(2).
func (g *mountGuard) changed() bool {
	poll := []unix.PollFd{{Fd: int32(g.ask), Events: unix.POLLPRI}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&(unix.POLLERR|unix.POLLPRI) != 0
}

// close ends wait. Nothing uses the second descriptor after the first is closed.
func (g *mountGuard) close() {
	if g != nil {
		g.wake.Close()
	}
}

// watchMounts ends the jail when its mounts change.
func (p *Process) watchMounts() {
	defer unix.Close(p.guard.ask)
	if !p.guard.wait() {
		return // the jail has ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.removed {
		p.replaced = true
		p.process.Signal(syscall.SIGKILL)
		p.group.Kill()
	}
}
