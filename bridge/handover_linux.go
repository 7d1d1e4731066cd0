package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the hand-over.
const (
	HandoverWait = 10 * time.Second // from the bind answer to the hand-over line
	MaxHandover  = 4 << 10          // bytes of that line
)

const (
	linePassed = `{"postern":{"stdio":"passed"}}`
	lineHere   = `{"postern":{"stdio":"here"}}`
)

// stdio is where a session's messages come from and go to. Where the connection
// itself carries them, in and out are the connection.
type stdio struct {
	in, out int
	first   []byte // bytes that came behind the line
}

// handover reads the one line with which connect says where the runtime is. Nothing
// else is read before it; descriptors are accepted in its message only, exactly two.
func handover(conn int) (std stdio, err error) {
	var fds []int
	defer func() {
		if err != nil {
			closeAll(fds)
		}
	}()
	deadline := time.Now().Add(HandoverWait)
	buf := make([]byte, MaxHandover)
	have := 0
	for {
		if err := waitReadable(conn, deadline); err != nil {
			return stdio{}, err
		}
		var oob [128]byte
		n, got, flags, err := receive(conn, buf[have:], oob[:])
		fds = append(fds, got...)
		switch {
		case err != nil:
			return stdio{}, fmt.Errorf("receive: %w", err)
		case n == 0:
			return stdio{}, io.EOF
		case flags&unix.MSG_CTRUNC != 0:
			return stdio{}, errors.New("more descriptors than two")
		}
		have += n
		end := bytes.IndexByte(buf[:have], '\n')
		if end < 0 && have == len(buf) {
			return stdio{}, fmt.Errorf("the line is longer than %d bytes", MaxHandover)
		}
		if end < 0 {
			continue
		}
		line, rest := string(bytes.TrimSuffix(buf[:end], []byte("\r"))), buf[end+1:have]
		switch {
		case line == lineHere && len(fds) == 0:
			refuseRights(conn)
			return stdio{in: conn, out: conn, first: rest}, nil
		case line == linePassed && len(fds) == 2 && len(got) == 2 && len(rest) == 0:
			refuseRights(conn)
			if err := errors.Join(usable(fds[0], unix.O_RDONLY), usable(fds[1], unix.O_WRONLY)); err != nil {
				return stdio{}, err
			}
			return stdio{in: fds[0], out: fds[1]}, nil
		}
		return stdio{}, errors.New("the line is not one of the two forms, or its descriptors do not fit it")
	}
}

// waitReadable returns when conn can be read or the deadline has passed.
func waitReadable(conn int, deadline time.Time) error {
	fds := []unix.PollFd{{Fd: int32(conn), Events: unix.POLLIN}}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("no hand-over in time")
		}
		n, err := unix.Poll(fds, int(left/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

// usable accepts a pipe end with exactly the access it is for, or a connected Unix
// stream socket. Reading or writing anything else could wait where no lifeline helps:
// a file system of the runtime's own, a terminal, a device.
func usable(fd, access int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE != access {
			return errors.New("a pipe was passed with the wrong access")
		}
		return nil
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return errors.New("what was passed is neither a pipe nor a Unix socket")
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return errors.New("the socket that was passed is not a stream")
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return errors.New("the socket that was passed is not connected")
	}
	return nil
}

// refuseRights makes later descriptors bounce at their sender, where the kernel can
// (6.16); older ones drop them because nothing reads with a control buffer again.
func refuseRights(conn int) {
	_ = unix.SetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}

// sendAll writes a short line to a connection that was just bound. A peer that does
// not even take this is not waited for.
func sendAll(conn int, line []byte) error {
	for {
		n, err := unix.SendmsgN(conn, line, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n < len(line):
			return io.ErrShortWrite
		default:
			return nil
		}
	}
}
