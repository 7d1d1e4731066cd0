package jail

import (
	"os"
	"sync"
	"syscall"
	"time"

	"postern/jail/cgroup"
)

// Process is one running jail.
type Process struct {
	launcher *Launcher
	name     string
	uid      uint32
	fork     bool
	release  func() // of the names held in its workspace
	group    *cgroup.Group
	oom      *os.File    // readable when memory is used up; nil where nobody need watch
	guard    *mountGuard // nil where no mount protects a name
	process  *os.Process
	done     chan struct{} // the first process has ended, exit is set
	gone     chan struct{} // nothing is left

	mu       sync.Mutex
	removed  bool // the group is being removed: its files must not be used
	forced   bool
	starved  bool // memory was used up
	replaced bool // a protected name was replaced from outside
	exit     Exit
}

// Exit says how the program ended.
type Exit struct {
	// Code is its exit status, or -1 if a signal ended it. Under a profile
	// that forks, 128+n stands for signal n.
	Code int
	// Signal ended it, else 0.
	Signal int
	// OOM: the kernel killed something in the jail for want of memory.
	OOM bool
	// Filtered: a system call that no jail may make ended it; Call says which, as
	// "32-bit call 20", where the kernel's log tells.
	Filtered bool
	Call     string
	// Replaced: somebody outside put another file in the place of a protected name
	// of the workspace, so that it was protected no more, and the jail was ended.
	Replaced bool
	// Forced: it did not end by itself and was killed by Stop, Kill or Close.
	Forced bool
}

// Stats is what a jail uses now, and the most memory it ever used.
type Stats = cgroup.Stats

// Name returns the request's name.
func (p *Process) Name() string { return p.name }

// Pid returns the number, on the host, of the jail's process 1. It may mean
// another process after Done.
func (p *Process) Pid() int { return p.process.Pid }

// Done is closed when the program has ended and Exit tells how.
func (p *Process) Done() <-chan struct{} { return p.done }

// Gone is closed, after Done, when every process is gone and the group is
// removed. Only then may the uid be leased again.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Exit returns how the program ended; the zero Exit before Done.
func (p *Process) Exit() Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		return Exit{}
	}
}

// Stats reads the group's counters; os.ErrProcessDone once the program ended.
func (p *Process) Stats() (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return Stats{}, os.ErrProcessDone
	}
	return p.group.Stats()
}

// Stop ends a jail whose stdin the caller has closed, which is how an MCP
// server is told to end: it waits half of grace, sends SIGTERM, waits the other
// half and kills. It returns when the jail is gone, or KillWait after the kill.
func (p *Process) Stop(grace time.Duration) {
	if !p.wait(p.done, grace/2) {
		p.process.Signal(syscall.SIGTERM)
		if !p.wait(p.done, grace/2) {
			p.end()
		}
	}
	p.wait(p.gone, KillWait)
}

// Kill ends the jail at once, and returns like Stop.
func (p *Process) Kill() {
	p.end()
	p.wait(p.gone, KillWait)
}

func (p *Process) wait(event <-chan struct{}, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-event:
		return true
	case <-t.C:
		return false
	}
}

// end kills everything in the group, once.
func (p *Process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return
	default:
	}
	if p.removed {
		return
	}
	p.forced = true
	// Process 1 takes the whole process namespace along; the group's kill also
	// reaches what has not been cloned into it yet, and freezes nothing.
	p.process.Kill()
	p.group.Kill()
}

// watchOOM ends the whole jail when its memory is used up.
func (p *Process) watchOOM() {
	if _, err := p.oom.Read(make([]byte, 8)); err != nil {
		return // closed: the jail has ended otherwise
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.removed {
		p.starved = true
		p.process.Kill()
		p.group.Kill()
	}
}

// watch waits for the end of process 1, by which time the kernel has reaped
// every other process of its namespace, and removes the group.
func (p *Process) watch() {
	// Wait by pidfd: only the end counts, not a stop (a jail that asks to be
	// traced would otherwise look ended).
	state, _ := p.process.Wait()

	exit := Exit{Code: -1}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok {
		if ws.Signaled() {
			exit.Signal = int(ws.Signal())
		} else {
			exit.Code = ws.ExitStatus()
		}
	}
	exit.Filtered = exit.Signal == int(syscall.SIGSYS) || p.fork && exit.Code == 128+int(syscall.SIGSYS)
	if exit.Filtered {
		exit.Call = p.launcher.log.killedBy(p.uid)
	}
	p.mu.Lock()
	exit.OOM = p.starved || p.group.OOMKilled()
	exit.Forced, exit.Replaced = p.forced, p.replaced
	p.removed = true
	p.exit = exit
	p.mu.Unlock()
	if p.oom != nil {
		p.oom.Close() // ends watchOOM, and comes before the removal
	}
	p.guard.close() // ends watchMounts
	close(p.done)

	// A group that cannot be removed now is tried again while the launcher
	// lives; its name and uid stay taken, and nobody waits for it.
	pause := time.NewTicker(time.Second)
	defer pause.Stop()
	for p.group.Remove() != nil {
		select {
		case <-pause.C:
		case <-p.launcher.ended:
			return
		}
	}
	p.release()
	p.launcher.forget(p.name)
	close(p.gone)
}
