package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// PassRights lets a Unix socket receive descriptors, or makes the kernel refuse them
// to the sender (EPERM). A socket accepted from a listener inherits its setting.
// On kernels without SO_PASSRIGHTS (before 6.16) it does nothing, and peer-5 rests on
// reading without a control buffer, where the kernel drops what came along.
func PassRights(fd int, on bool) error {
	v := 0
	if on {
		v = 1
	}
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, v)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return os.NewSyscallError("setsockopt SO_PASSRIGHTS", err)
	}
	return nil
}

// PeekBindLine reads the first line of a stream socket, without its newline, and
// leaves everything after the newline for whoever gets the connection next. The line
// has at most limit bytes with its newline and is complete within wait; otherwise
// ErrBindLine. While it reads, descriptors are refused to the sender; after a line was
// read they are allowed, because the connection's next owner may expect some. It blocks
// its thread at most for wait.
//
// Each turn peeks and then consumes what it peeked up to the newline: nothing behind
// it is ever taken, and half a line does not make poll spin.
func PeekBindLine(fd, limit int, wait time.Duration) ([]byte, error) {
	if err := PassRights(fd, false); err != nil {
		return nil, err
	}
	end := time.Now().Add(wait)
	line := make([]byte, 0, 256)
	buf := make([]byte, limit)
	for {
		if err := readable(fd, end); err != nil {
			return nil, err
		}
		n, _, err := unix.Recvfrom(fd, buf[:limit-len(line)], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err != nil:
			return nil, os.NewSyscallError("recvfrom", err)
		case n == 0:
			return nil, fmt.Errorf("%w: the peer closed after %d bytes", ErrBindLine, len(line))
		}
		at := bytes.IndexByte(buf[:n], '\n')
		take := n
		if at >= 0 {
			take = at + 1
		}
		line = append(line, buf[:take]...)
		if err := consume(fd, buf[:take]); err != nil {
			return nil, err
		}
		if at >= 0 {
			return line[:len(line)-1], PassRights(fd, true)
		}
		if len(line) >= limit {
			return nil, fmt.Errorf("%w: longer than %d bytes", ErrBindLine, limit)
		}
	}
}

func readable(fd int, end time.Time) error {
	for {
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("%w: not in time", ErrBindLine)
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		switch {
		case err == unix.EINTR || (err == nil && n == 0):
		case err != nil:
			return os.NewSyscallError("poll", err)
		default:
			return nil
		}
	}
}

// consume takes exactly the bytes that were peeked. recvfrom has no control buffer.
func consume(fd int, into []byte) error {
	for len(into) > 0 {
		n, _, err := unix.Recvfrom(fd, into, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("recvfrom", err)
		case n == 0:
			return fmt.Errorf("%w: the peer closed", ErrBindLine)
		default:
			into = into[n:]
		}
	}
	return nil
}
