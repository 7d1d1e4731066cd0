// Package stage knows what postern-jail does between its first instruction and
// the program's: a table of steps, run in order on one locked thread.
//
// It starts as root in namespaces of its own, with nothing but descriptors, and
// ends as a leased user without any privilege. The document on its descriptor
// comes from the launcher alone. Everything the program may later influence,
// the content of the workspace above all, is hostile.
//
// Invariants:
//   - stage-1: nothing happens before the document is there, which the process
//     can read only when it is in all its groups: it is born in them, or the launcher
//     sends the document after it has put it there.
//   - stage-2: a step that fails ends the process with the step's name; no step
//     is skipped for want of a kernel feature.
//   - stage-3: after the last step the kernel's own record of this thread says
//     what the document asked for, or the program does not start.
//   - stage-4: the program inherits stdin, stdout, stderr and the document's
//     extra descriptors, and nothing else; its environment is the document's and, where
//     there is a secret, the one variable that is the secret's.
//   - stage-5: if the launcher is dead, the program does not start.
//
// It compiles no filter (jail/seccomp), makes no group (jail/cgroup) and has no
// opinion on who may run what.
package stage

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"postern/jail/rootfs"
	"postern/jail/spec"
)

// Step is one row of the table.
type Step struct {
	Name string
	Why  string
	do   func(*build) error
}

// build is what the steps hand on to each other.
type build struct {
	doc      spec.Document
	document int // the launcher's pipe; it hangs up when the launcher dies
	failure  int
	status   int // the kernel's record of this thread
	oom      int // this process's oom_score_adj
	root     *rootfs.Root
	empty    emptySets
	secret   []string // the one variable that the document does not hold
}

// highFD is above every descriptor that a document may name, so that what is
// kept there is in nobody's way. It is well below 64, where the kernel would have to
// enlarge the table of a process of several threads, and would wait 5 to 20 ms until
// no processor can look at the old one. Source: Linux fs/file.c, expand_fdtable.
const highFD = 40

// Main builds the jail and becomes the program. It returns an exit status only
// where it failed, or, for a profile that forks, when the program has ended.
func Main() int {
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // a few milliseconds of life need no collector
	b := &build{failure: spec.FailureFD}
	lap("runtime")
	raw, err := b.read()
	if err != nil {
		// Without a document nobody waits for a report: this is the launcher's
		// death, or a process that was only ever meant to hold a namespace.
		return 1
	}
	if b.doc, err = spec.DecodeDocument(raw); err != nil {
		b.report("document", err)
		return 1
	}
	lap("document")
	for _, s := range Steps() {
		if err := s.do(b); err != nil {
			b.report(s.Name, err)
			return 1
		}
		lap(s.Name)
	}
	sayLaps()
	return b.run()
}

// read returns the document: one line, written at once and never longer than
// the pipe is wide.
func (b *build) read() ([]byte, error) {
	var raw []byte
	buf := make([]byte, 16<<10)
	for len(raw) <= spec.MaxDocument {
		n, err := unix.Read(spec.DocumentFD, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		raw = append(raw, buf[:n]...)
		if raw[len(raw)-1] == '\n' {
			return raw, nil
		}
	}
	return nil, errors.New("document is too long")
}

func (b *build) report(step string, err error) {
	f := spec.Failure{Step: step, Why: fmt.Sprintf("%.1000s", err)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	if raw, err := f.Encode(); err == nil {
		unix.Write(b.failure, raw)
	}
}

// run becomes the program, or for a profile that forks its reaper.
func (b *build) run() int {
	if b.doc.Fork {
		return b.reap()
	}
	// syscall.Exec rather than the bare call: it keeps other threads of the
	// runtime from being made meanwhile.
	err := syscall.Exec(b.doc.Argv[0], b.doc.Argv, append(b.doc.Env, b.secret...))
	b.report("exec", fmt.Errorf("%q: %w", b.doc.Argv[0], err))
	return 1
}

// reap starts the program as a child and waits for every orphan of the process
// namespace. Its own end ends all of them. A program killed by signal n is
// passed on as exit status 128+n, because process 1 cannot die of it.
func (b *build) reap() int {
	kept := 3 + len(b.doc.ExtraFDs)
	files := make([]uintptr, kept)
	for i := range files {
		files[i] = uintptr(i)
		if i >= 3 && b.doc.ExtraFDs[i-3] == 0 {
			files[i] = ^uintptr(0) // closed
		}
	}
	// The child is forked from this thread, so it inherits this thread's
	// filter, rules and lack of privilege.
	pid, err := syscall.ForkExec(b.doc.Argv[0], b.doc.Argv, &syscall.ProcAttr{
		Env: append(b.doc.Env, b.secret...), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		b.report("exec", fmt.Errorf("%q: %w", b.doc.Argv[0], err))
		return 1
	}
	// The reaper must not hold open what the program closes, nor the pipe whose
	// end tells the launcher that the program runs. close_range may not be
	// allowed any more; everything of ours lies below this bound.
	for fd := range highFD + 16 {
		unix.Close(fd)
	}
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 1
		case got == pid && ws.Exited():
			return ws.ExitStatus()
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal())
		}
	}
}
