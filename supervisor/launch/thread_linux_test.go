package launch

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lockedAs runs f on a thread that has become another user and ends with f's goroutine.
// The raw call changes this thread alone, where the C library's would change all.
func lockedAs(uid uint32, f func()) {
	runtime.LockOSThread()
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		panic(e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		panic(e)
	}
	f()
}
