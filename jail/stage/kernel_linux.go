package stage

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allThreads makes a call on every thread of this process. The Go runtime
// offers it to programs without cgo only, which postern-jail is.
func allThreads(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, errno unix.Errno) {
	return syscall.AllThreadsSyscall(trap, a1, a2, a3)
}

// emptySets is the argument of capset. It lives in build, on the heap: an
// address on the stack may go stale before the kernel reads it.
type emptySets struct {
	header unix.CapUserHeader
	none   [2]unix.CapUserData
}

func (b *build) capabilities() error {
	b.empty.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	return b.every(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&b.empty.header)), uintptr(unsafe.Pointer(&b.empty.none)), 0)
}

// regain tries every way back and fails if one is open. The kernel looks at the
// privilege before it looks at the pointers, which are null.
func (b *build) regain() error {
	for _, way := range []struct {
		name          string
		trap          uintptr
		a1, a2, a3    uintptr
		refusedAnswer unix.Errno
	}{
		{"setresuid", unix.SYS_SETRESUID, 0, 0, 0, unix.EPERM},
		{"setresgid", unix.SYS_SETRESGID, 0, 0, 0, unix.EPERM},
		{"setgroups", unix.SYS_SETGROUPS, 1, 0, 0, unix.EPERM},
		{"securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0, 0, unix.EPERM},
		{"no-new-privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0, 0, unix.EINVAL},
		{"sethostname", unix.SYS_SETHOSTNAME, 0, 1, 0, unix.EPERM},
	} {
		if _, _, errno := unix.RawSyscall(way.trap, way.a1, way.a2, way.a3); errno != way.refusedAnswer {
			return fmt.Errorf("%s answered %v, not %v", way.name, errno, way.refusedAnswer)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	want := [2]unix.CapUserData{{Effective: 1, Permitted: 1}}
	if err := unix.Capset(&header, &want[0]); err != unix.EPERM {
		return fmt.Errorf("capset answered %v", err)
	}
	return nil
}

// seccomp loads the programs in order. Each permits loading the next, and the
// last permits no more.
func (b *build) seccomp() error {
	flags := uintptr(0)
	if b.doc.Fork {
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC // the runtime's threads stay, as the reaper
	}
	for i, raw := range b.doc.Filters {
		const size = int(unsafe.Sizeof(unix.SockFilter{}))
		if len(raw) == 0 || len(raw)%size != 0 || len(raw)/size > unix.BPF_MAXINSNS {
			return fmt.Errorf("filter %d has %d bytes", i, len(raw))
		}
		program := unix.SockFprog{
			Len:    uint16(len(raw) / size),
			Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0])),
		}
		r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
		if errno != 0 {
			return fmt.Errorf("filter %d: %w", i, errno)
		}
		if r != 0 {
			return fmt.Errorf("filter %d: thread %d did not take it", i, r)
		}
	}
	if len(b.doc.Filters) == 0 {
		return fmt.Errorf("the document has no filter")
	}
	return nil
}
