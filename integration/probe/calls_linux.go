package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

// Written in assembler, calls_amd64.s.
func int80(nr uintptr) uintptr
func thread() syscall.Errno

// bad is an address that is valid in no process.
const bad = ^uintptr(0) - 4095

const fdCWD = ^uintptr(99) // -100

// call makes a system call and returns its error number, 0 for none.
func call(nr uintptr, a ...uintptr) syscall.Errno {
	_, e := value(nr, a...)
	return e
}

func value(nr uintptr, a ...uintptr) (uintptr, syscall.Errno) {
	a = append(a, 0, 0, 0, 0, 0, 0)
	r, _, e := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return r, e
}

// kept holds what only the kernel has a pointer to.
var kept []any

func cstr(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// memory copies b to where it stays.
func memory(b []byte) uintptr {
	c := append([]byte(nil), b...)
	kept = append(kept, c)
	return uintptr(unsafe.Pointer(&c[0]))
}

// step is one system call that a child makes.
type step [7]uintptr

// child clones with flags, lets the child make the steps, and returns the
// first error of either. The child runs no Go but this function.
func child(flags uintptr, steps ...step) syscall.Errno {
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		for i := range steps {
			s := &steps[i]
			if _, _, e := syscall.RawSyscall6(s[0], s[1], s[2], s[3], s[4], s[5], s[6]); e != 0 {
				syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(e), 0, 0)
			}
		}
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(int(pid), &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err.(syscall.Errno)
		}
		return syscall.Errno(ws.ExitStatus())
	}
}

// read opens path and reads a little of it: opening some files says nothing yet.
func read(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	buf := make([]byte, 256)
	n, err := syscall.Read(fd, buf)
	if err == syscall.EISDIR {
		n, err = syscall.ReadDirent(fd, buf)
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// opens tries to open path with flags and closes it again.
func opens(path string, flags int) error {
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

// authority is no probe: it is what the sentinel probes are aimed at. It keeps
// the file open and its content in memory until stdin ends.
func authority(path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	content := make([]byte, 64)
	n, err := syscall.Read(fd, content)
	if err != nil {
		panic(err)
	}
	fmt.Printf("ready %x %d\n", memory(content[:n]), fd)
	syscall.Read(0, make([]byte, 1))
}

// pointer is where b lies; b must outlive the call.
func pointer(b []byte) uintptr {
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

func pointerTo[T any](v *T) uintptr {
	kept = append(kept, v)
	return uintptr(unsafe.Pointer(v))
}

// fault reads where nothing is.
func fault()
