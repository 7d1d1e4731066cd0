package jail

import (
	"io"
	"os"
	"runtime"

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

// readAll reads at most most bytes from f until its end.
func readAll(f *os.File, most int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(f, most))
}
