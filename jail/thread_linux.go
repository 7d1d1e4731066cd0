package jail

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"postern/jail/cgroup"
)

// eternal is the thread that every jail is a child of. It never returns while
// the launcher is open; when the process dies, the thread dies with it and the
// kernel kills every jail.
func (l *Launcher) eternal() {
	runtime.LockOSThread()
	// Where the thread's own groups are not in sight, as in some containers, jails
	// join theirs after they are born.
	home, err := l.tree.Home()
	if err != nil {
		home = nil
	} else {
		defer home.Close()
	}
	for {
		select {
		case f := <-l.start:
			f(home)
		case <-l.ended:
			// The thread is not unlocked, so it ends here: whatever jail
			// Close could not wait for gets its signal.
			return
		}
	}
}

// onThread runs f on the eternal thread, with its place in the control groups, and
// waits for it.
func (l *Launcher) onThread(f func(home *cgroup.Home)) error {
	done := make(chan struct{})
	select {
	case l.start <- func(home *cgroup.Home) { defer close(done); f(home) }:
		<-done
		return nil
	case <-l.ended:
		return os.ErrClosed
	}
}

// userns makes a user namespace with the two maps and returns a descriptor of
// it. An id-mapped mount needs one, and nothing ever runs in it.
//
// The kernel makes a user namespace for a new process only. That process is
// postern-jail, waiting for a document that never comes; it is killed as soon
// as its namespace is held here.
func userns(init string, uids, gids []idPair) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		r.Close()
		return nil, err
	}
	p, err := os.StartProcess(init, []string{"postern-jail"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, r},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: mapping(uids),
			GidMappings: mapping(gids),
		},
	})
	r.Close()
	null.Close()
	if err != nil {
		return nil, err
	}
	// Not reaped yet, so the number still means this process.
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	p.Kill()
	p.Wait()
	return ns, err
}

func mapping(pairs []idPair) []syscall.SysProcIDMap {
	var all []syscall.SysProcIDMap
	for _, p := range pairs {
		all = append(all, syscall.SysProcIDMap{ContainerID: int(p.disk), HostID: int(p.jail), Size: 1})
	}
	return all
}

// readAll reads at most most bytes from f until its end.
func readAll(f *os.File, most int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(f, most))
}
