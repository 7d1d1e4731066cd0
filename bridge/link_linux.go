package bridge

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"postern/bridge/pace"
	"postern/bridge/wire"
)

// link is the socket to the authority: one datagram is one message, and descriptors
// only come down. It blocks on purpose: a round trip through the netpoller takes
// twice as long.
type link struct {
	fd   int
	recv []byte
	turn pace.Turn

	// open is held for reading while something is sent. Datagrams are whole, so that
	// senders need no order among themselves: the one that reports a call's end must
	// not make the next call's Admit wait.
	open sync.RWMutex
	bufs sync.Pool // of *[]byte
}

// keepSend is the largest buffer that is kept for the next message.
const keepSend = 16 << 10

func newLink(fd int) *link { return &link{fd: fd, recv: make([]byte, wire.MaxMessage+1)} }

// tell sends m. An error means that the authority is gone; Run sees that too, so
// callers need not.
func (l *link) tell(m wire.Up) error {
	buf, _ := l.bufs.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	raw, err := wire.EncodeUp((*buf)[:0], m)
	if err != nil {
		return err
	}
	if cap(raw) <= keepSend {
		*buf = raw
		defer l.bufs.Put(buf)
	}
	l.open.RLock()
	defer l.open.RUnlock()
	if l.fd < 0 {
		return io.ErrClosedPipe
	}
	for {
		_, err := unix.SendmsgN(l.fd, raw, nil, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// close ends the link. Readers of tool servers may outlive it, and must not write to
// whatever gets its number next.
func (l *link) close() {
	l.open.Lock()
	defer l.open.Unlock()
	closeOne(l.fd)
	l.fd = -1
}

// next waits for one message and the descriptors that belong to it. What does not fit
// the protocol is an error, and nothing of it is kept open.
func (l *link) next() (wire.Down, []int, error) {
	l.turn.Yield()
	var oob [64]byte
	n, fds, flags, err := receive(l.fd, l.recv, oob[:])
	if err != nil {
		return nil, nil, fmt.Errorf("receive from the authority: %w", err)
	}
	m, err := decode(l.recv[:n], fds, flags)
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	return m, fds, nil
}

func decode(raw []byte, fds []int, flags int) (wire.Down, error) {
	if len(raw) == 0 {
		return nil, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, errors.New("a message of the authority was cut")
	}
	m, err := wire.DecodeDown(raw)
	if err != nil {
		return nil, err
	}
	if least, most := wire.Descriptors(m); len(fds) < least || len(fds) > most {
		return nil, fmt.Errorf("%T came with %d descriptors", m, len(fds))
	}
	return m, nil
}

// receive is recvmsg with the descriptors taken out of the control buffer.
func receive(fd int, buf, oob []byte) (n int, fds []int, flags int, err error) {
	var oobn int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || oobn == 0 {
		return n, nil, flags, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, flags, err
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(fds)
			return n, nil, flags, err
		}
		fds = append(fds, got...)
	}
	return n, fds, flags, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func closeOne(fd int) { _ = unix.Close(fd) }

// shutdown wakes everyone who waits on the socket, here and at its other end.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// readMemfd reads a sealed memfd of at most most bytes and closes it.
func readMemfd(fd int, most int64) ([]byte, error) {
	defer closeOne(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	if st.Size > most {
		return nil, fmt.Errorf("view has %d bytes, limit %d", st.Size, most)
	}
	buf := make([]byte, st.Size)
	for at := 0; at < len(buf); {
		n, err := unix.Pread(fd, buf[at:], int64(at))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, fmt.Errorf("view ends at byte %d: %w", at, errors.Join(err, io.ErrUnexpectedEOF))
		}
		at += n
	}
	return buf, nil
}
