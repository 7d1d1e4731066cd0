package main

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// soPassRights is SO_PASSRIGHTS (Linux 6.16): set to 0, descriptors that a peer
// sends are refused at its side instead of dropped at ours.
const soPassRights = 83

// direction is what a standard stream is used for.
type direction int

const (
	read  = direction(unix.O_RDONLY)
	write = direction(unix.O_WRONLY)
)

// passable tells whether the bridge may be given f: a pipe of the right
// direction, or a connected Unix stream socket. Everything else, a terminal or a
// file or a FIFO that is open both ways, is copied.
func passable(f *os.File, d direction) bool {
	fd := int(f.Fd())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 {
		return false
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		return flags&unix.O_ACCMODE == int(d)
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	_, err = unix.Getpeername(fd)
	return err == nil
}

// passedRights is the control message that carries exactly the two descriptors.
func passedRights(in, out *os.File) []byte {
	return unix.UnixRights(int(in.Fd()), int(out.Fd()))
}

// release puts /dev/null in the place of both streams, so that the bridge's are
// the only ones and no later descriptor takes their numbers.
func release(streams ...*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("release the standard streams: %w", err)
	}
	defer null.Close()
	for _, f := range streams {
		if err := unix.Dup3(int(null.Fd()), int(f.Fd()), unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("release the standard streams: %w", err)
		}
	}
	return nil
}

// refuseDescriptors makes the kernel refuse whatever the other end would send.
// Where it cannot yet, they are dropped unseen, for nothing here reads them.
func refuseDescriptors(c *net.UnixConn) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 0) })
	}
}
