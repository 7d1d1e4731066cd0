package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tokenMax     = 256             // bytes of a token as it is read, with its newline
	tokenTimeout = 5 * time.Second // whoever passes a descriptor has the token already
)

// undumpable keeps the memory of this process from core files and from other
// processes of the same user: a token passes through it.
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// inherited returns descriptor fd if this process was started with it. The
// caller owns the file. A descriptor that the Go runtime opened closes on exec,
// one that was inherited cannot: so none of the runtime's is mistaken for it.
func inherited(fd int) (*os.File, error) {
	if fd < 3 {
		return nil, fmt.Errorf("descriptor %d is a standard stream; a token has one of its own, from 3 up", fd)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, fmt.Errorf("descriptor %d was not inherited", fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG:
	default:
		return nil, fmt.Errorf("descriptor %d is neither a pipe, a socket nor a file", fd)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "token"), nil
}

// tokenFromFD reads the token from inherited descriptor fd and closes it.
func tokenFromFD(fd int) ([]byte, error) {
	f, err := inherited(fd)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readToken(f)
}

// tokenFromFile reads the token from the file at path, which must be a regular
// one; whoever made it removes it.
func tokenFromFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("token file %q: %w", path, cause(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("token file %q: %w", path, cause(err))
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("token file %q is not a regular file", path)
	}
	return readToken(f)
}

// readToken reads to the first newline or the end. Its errors never hold what
// was read.
func readToken(f *os.File) ([]byte, error) {
	fd := int(f.Fd())
	deadline := time.Now().Add(tokenTimeout)
	buf := make([]byte, 0, tokenMax+1)
	for len(buf) <= tokenMax && bytes.IndexByte(buf, '\n') < 0 {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			clear(buf)
			return nil, fmt.Errorf("no token came within %s", tokenTimeout)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left)); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("poll: %w", err)
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			clear(buf)
			return nil, fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			break
		}
		buf = buf[:len(buf)+n]
	}
	if i := bytes.IndexByte(buf, '\n'); i >= 0 {
		clear(buf[i:])
		buf = buf[:i]
	}
	token := bytes.TrimSpace(buf)
	switch {
	case len(token) == 0:
		return nil, errors.New("the token is empty")
	case len(buf) > tokenMax:
		clear(buf)
		return nil, fmt.Errorf("the token is longer than %d bytes", tokenMax)
	case bytes.ContainsFunc(token, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}):
		clear(buf)
		return nil, errors.New("what came is not a token")
	}
	return token, nil
}
