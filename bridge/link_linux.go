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

// link is the socket to the authority. Descriptors only come down. It blocks on
// purpose: a round trip through the netpoller takes twice as long.
type link struct {
	fd   int
	recv []byte
	rest []byte // of recv: messages that came with the last one; nil if none
	turn pace.Turn

	mu  sync.Mutex // while something is gathered or sent
	out wire.Datagram
}

// keepSend is the largest buffer that is kept for the next message.
const keepSend = 16 << 10

func newLink(fd int) *link { return &link{fd: fd, recv: make([]byte, wire.MaxMessage+1)} }

// tell sends m, behind everything that was gathered. An error means that the authority
// is gone; Run sees that too, so callers need not.
func (l *link) tell(m wire.Up) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.addLocked(m); err != nil {
		return err
	}
	return l.flushLocked()
}

// gather has m sent with the next that is told, or by the next flush, which is the
// caller's duty before it waits.
func (l *link) gather(m wire.Up) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addLocked(m)
}

// flush sends what was gathered.
func (l *link) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.flushLocked()
}

func (l *link) addLocked(m wire.Up) error {
	err := l.out.Up(m)
	if err == wire.ErrFull {
		if err = l.flushLocked(); err == nil {
			err = l.out.Up(m)
		}
	}
	return err
}

func (l *link) flushLocked() error {
	raw := l.out.Bytes()
	if len(raw) == 0 {
		return nil
	}
	defer l.out.Clear(keepSend)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	closeOne(l.fd)
	l.fd = -1
}

// ready tells whether next has a message already, and would not wait.
func (l *link) ready() bool { return l.rest != nil }

// next waits for one message and the descriptors that belong to it. What does not fit
// the protocol is an error, and nothing of it is kept open.
func (l *link) next() (wire.Down, []int, error) {
	if l.rest != nil {
		var one []byte
		one, l.rest = wire.Cut(l.rest)
		m, err := decode(one, nil, 0)
		return m, nil, err
	}
	l.turn.Yield()
	var oob [64]byte
	n, fds, flags, err := receive(l.fd, l.recv, oob[:])
	if err != nil {
		return nil, nil, fmt.Errorf("receive from the authority: %w", err)
	}
	var one []byte
	one, l.rest = wire.Cut(l.recv[:n])
	m, err := decode(one, fds, flags)
	if l.rest != nil && len(fds) > 0 {
		err = errors.Join(err, errors.New("descriptors came with several messages"))
	}
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
