package workers

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
)

// A link is one end of a SOCK_SEQPACKET pair. It is used on the loop's goroutine
// only, never waits, and owns its descriptor.
type link struct {
	fd  int
	out wire.Datagram // what is gathered for a bridge
}

// keepSend is the largest buffer that is kept for what is sent next.
const keepSend = 16 << 10

// errGone is returned where the other end has closed, or a message was cut short.
var errGone = errors.New("the other end is gone")

// errSlow is returned where the other end does not read what it is sent.
var errSlow = errors.New("the other end does not read")

// recv reads one message into buf, without a control buffer: descriptors that a
// peer sends along are dropped by the kernel and never enter this process.
// It returns 0 bytes and no error where nothing is there. A bridge that ended without
// having read all is told of by an error, once and first: what it said before is still
// there, the catalogue of a probe or the ends of calls.
func (l *link) recv(buf []byte) (int, error) {
	reset := false
	for {
		n, _, flags, _, err := unix.Recvmsg(l.fd, buf, nil, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, nil
		case err == unix.ECONNRESET && !reset:
			reset = true
			continue
		case err != nil:
			return 0, fmt.Errorf("recvmsg: %w", err)
		case n == 0:
			return 0, errGone
		case flags&unix.MSG_TRUNC != 0:
			return 0, fmt.Errorf("message cut short: %w", errGone)
		}
		// MSG_CTRUNC only says that descriptors were dropped, which is what is wanted.
		return n, nil
	}
}

// recvWith reads one message and the descriptors that came with it, at most most.
// Only posternd's end is read so.
func (l *link) recvWith(buf []byte, most int) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*most))
	for {
		var oobn, flags int
		n, oobn, flags, _, err = unix.Recvmsg(l.fd, buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return 0, nil, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("recvmsg: %w", err)
		}
		if oobn > 0 {
			msgs, e := unix.ParseSocketControlMessage(oob[:oobn])
			if e != nil {
				return 0, nil, fmt.Errorf("control message: %w", e)
			}
			for _, m := range msgs {
				got, e := unix.ParseUnixRights(&m)
				if e != nil {
					continue
				}
				fds = append(fds, got...)
			}
		}
		if n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			closeAll(fds)
			return 0, nil, errGone
		}
		return n, fds, nil
	}
}

// send sends one message with its descriptors, which stay the caller's.
func (l *link) send(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(l.fd, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS:
			return errSlow
		case unix.EPIPE, unix.ECONNRESET:
			return errGone
		}
		return fmt.Errorf("sendmsg: %w", err)
	}
}

// tell sends m to a bridge, behind what was gathered. With descriptors it goes alone.
func (l *link) tell(m wire.Down, fds ...int) error {
	if len(fds) > 0 {
		if err := l.flush(); err != nil {
			return err
		}
	}
	if err := l.gather(m); err != nil {
		return err
	}
	return l.flush(fds...)
}

// gather adds m to what is sent with the next flush.
func (l *link) gather(m wire.Down) error {
	err := l.out.Down(m)
	if err == wire.ErrFull {
		if err = l.flush(); err == nil {
			err = l.out.Down(m)
		}
	}
	return err
}

func (l *link) flush(fds ...int) error {
	raw := l.out.Bytes()
	if len(raw) == 0 {
		return nil
	}
	defer l.out.Clear(keepSend)
	return l.send(raw, fds...)
}

func (l *link) close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
		l.fd = -1
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// sealed returns a read-only memfd that holds b and can not change any more.
func sealed(name string, b []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	for done := 0; done < len(b); {
		n, err := unix.Write(fd, b[done:])
		if err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("write memfd: %w", err)
		}
		done += n
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("seal memfd: %w", err)
	}
	return fd, nil
}

// readAll reads a file by position, up to most bytes.
func readAll(fd int, most int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if st.Size < 0 || st.Size > int64(most) {
		return nil, fmt.Errorf("file of %d bytes, limit %d", st.Size, most)
	}
	b := make([]byte, st.Size)
	for done := 0; done < len(b); {
		n, err := unix.Pread(fd, b[done:], int64(done))
		if err != nil {
			return nil, fmt.Errorf("pread: %w", err)
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		done += n
	}
	return b, nil
}
