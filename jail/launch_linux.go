package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/cgroup"
	"postern/jail/spec"
)

// Launch starts a program in a jail and returns when it runs. The error is a
// *StepError that names the step, of this function or of postern-jail's table.
func (l *Launcher) Launch(r Request) (*Process, error) {
	lap("+begin")
	r, err := r.check()
	if err != nil {
		return nil, failed("request", err)
	}
	if err := l.reserve(r.Name); err != nil {
		return nil, failed("request", err)
	}
	l.log.forget(r.UID)
	p := &Process{launcher: l, name: r.Name, uid: r.UID, fork: r.Profile.Fork, done: make(chan struct{}), gone: make(chan struct{})}
	// What is acquired is undone in reverse, unless the program runs.
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	release := func() { l.forget(r.Name) }
	undo = append(undo, func() { release() })

	// What only the document waits for is made while the group and the process are:
	// holding names takes a disk, and a new process takes as long to be ready for its
	// document as everything else together.
	b := builder{doc: document(r)}
	var filtersErr, heldErr, mountsErr error
	var making, mounting sync.WaitGroup
	making.Go(func() { b.doc.Filters, filtersErr = l.programs(r.Profile); lap("+(filters)") })
	making.Go(func() { p.release, heldErr = l.held.occupy(r.Workspace); lap("+(names)") })
	mounting.Go(func() { mountsErr = b.mounts(r); lap("+(mounts)") })
	made := make(chan struct{})
	go func() {
		making.Wait()
		close(made)
	}()
	undo = append(undo, func() {
		if <-made; p.release != nil {
			p.release()
		}
	})
	defer func() {
		mounting.Wait()
		b.close()
	}()

	lap("+check")
	p.group, err = l.tree.New(r.Name, r.Limits)
	lap("+group")
	if err != nil {
		return nil, failed("cgroup", err)
	}
	if r.Profile.Fork {
		// With one process the kernel's victim is the jail; with more the rest
		// must be ended too.
		if p.oom, err = p.group.OOMEvents(); err != nil {
			p.group.Remove()
			return nil, failed("cgroup", err)
		}
	}
	undo = append(undo, func() {
		if p.oom != nil {
			p.oom.Close()
		}
		if p.group.Remove() != nil {
			release = func() {} // still in use: the name stays taken
		}
	})

	if mounting.Wait(); mountsErr != nil {
		return nil, mountsErr
	}
	documentR, documentW, err := os.Pipe()
	if err != nil {
		return nil, failed("pipes", err)
	}
	defer documentW.Close()
	b.mine = append(b.mine, documentR)
	failureR, failureW, err := os.Pipe()
	if err != nil {
		return nil, failed("pipes", err)
	}
	defer failureR.Close()
	b.mine = append(b.mine, failureW)
	files, err := b.files(r, documentR, failureW)
	if err != nil {
		return nil, failed("descriptors", err)
	}
	lap("+mounts")
	attr := &os.ProcAttr{
		// One thread builds a jail. Told so, the runtime starts fewer, which would count
		// against the limits of a jail that forks. The program has an environment of its own.
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: files,
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		},
	}
	if fd, ok := p.group.FD(); ok {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
	}
	send := func() error {
		switch <-made; {
		case filtersErr != nil:
			return failed("filters", filtersErr)
		case heldErr != nil:
			return failed("protect", heldErr)
		}
		// From here on the program may run: without its document nothing is built.
		if r.Proceed != nil {
			if err := r.Proceed(); err != nil {
				return failed("proceed", err)
			}
		}
		raw, err := b.doc.Encode()
		if err == nil {
			_, err = documentW.Write(raw) // never blocks: a pipe holds more
		}
		if err != nil {
			return failed("document", err)
		}
		return nil
	}
	var startErr error
	joined, sent := false, false
	err = l.onThread(func(home *cgroup.Home) {
		// A process that is born in its groups need not wait for the document, where
		// that is ready: it finds it, and is not in the hands of the scheduler again.
		// The thread never waits for it, because every launch waits for the thread.
		if home != nil {
			select {
			case <-made:
				if startErr = send(); startErr != nil {
					return
				}
				sent = true
			default:
			}
		}
		start := func() (err error) {
			lap("+enter")
			p.process, err = os.StartProcess(l.init, []string{"postern-jail"}, attr)
			lap("+clone")
			return err
		}
		if joined = home != nil; joined {
			startErr = home.Around(p.group, start)
		} else {
			startErr = start()
		}
	})
	if err != nil {
		return nil, failed("clone", err)
	}
	if startErr != nil {
		if step := (*StepError)(nil); errors.As(startErr, &step) {
			return nil, step
		}
		return nil, failed("clone", startErr)
	}
	undo = append(undo, func() {
		p.process.Kill()
		p.process.Wait()
	})
	lap("+leave")
	b.close() // our ends only: end of file on failureR must mean exec

	if !joined {
		if err := p.group.Join(p.process.Pid); err != nil {
			return nil, failed("join", err)
		}
	}
	if !sent {
		if err := send(); err != nil {
			return nil, err
		}
	}
	lap("+write")
	if err := await(failureR); err != nil {
		return nil, err
	}
	if len(b.doc.Protect) > 0 {
		if p.guard, err = guardMounts(p.process.Pid); err != nil {
			return nil, failed("protect", err)
		}
	}
	if err := l.admit(p); err != nil {
		if p.guard != nil {
			p.guard.close()
			unix.Close(p.guard.ask)
		}
		return nil, failed("request", err)
	}
	lap("+await")
	undo = nil
	if p.oom != nil {
		go p.watchOOM()
	}
	if p.guard != nil {
		go p.watchMounts()
	}
	go p.watch()
	return p, nil
}

// reserve takes a name; until admit it has no process.
func (l *Launcher) reserve(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	if _, taken := l.live[name]; taken {
		return fmt.Errorf("name %q is in use", name)
	}
	l.live[name] = nil
	return nil
}

// admit makes p one of those that Close ends. It refuses once Close has begun,
// so that no launch slips past it.
func (l *Launcher) admit(p *Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	l.live[p.name] = p
	return nil
}

func (l *Launcher) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, name)
}

// await reads the failure pipe: its end means that the program runs.
func await(f *os.File) error {
	if err := f.SetReadDeadline(time.Now().Add(BuildWait)); err != nil {
		return failed("report", err)
	}
	raw, err := readAll(f, spec.MaxFailure)
	if err != nil {
		return failed("report", err)
	}
	if len(raw) == 0 {
		return nil
	}
	report, err := spec.DecodeFailure(raw)
	if err != nil {
		return failed("report", err)
	}
	return &StepError{Step: report.Step, Why: report.Why, Errno: syscall.Errno(report.Errno)}
}
