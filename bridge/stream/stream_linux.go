// Package stream knows how lines travel over blocking pipes and sockets: an Input
// cuts bytes into lines up to a bound, an Output writes lines without ever making
// its caller wait for the reader.
//
// It runs with the bridge's privilege, which is none. Both what arrives and the pace
// at which the other side reads are hostile. Descriptors that a runtime passed share
// their flags with other processes, so they stay blocking; what must not wait asks
// for that in each call (RWF_NOWAIT, MSG_DONTWAIT) or waits in poll, where a second
// descriptor, the lifeline, ends the wait.
//
// Invariants:
//   - stream-1: a line over the bound is skipped to its end in bounded memory, and the
//     next line is read as if nothing had happened.
//   - stream-2: Send never blocks; what does not fit is queued up to a bound, in order.
//   - stream-3: lines are whole: no line is ever written into the middle of another.
//   - stream-4: those that share a budget hold no more than it together, beside a little
//     of each one's own; what it does not cover ends one line and nothing else.
//
// It knows nothing of what the lines say.
package stream

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"postern/bridge/pace"
)

// Edge is how much is kept of each end of a line that was too long.
const Edge = 4 << 10

const (
	firstBuffer = 4 << 10
	keepBuffer  = Free // a larger buffer is given back when its line was handled
)

// Errors of Next.
var (
	// ErrTooLong is returned once for each line over the bound; Edges tells its ends.
	ErrTooLong = errors.New("line exceeds the limit")
	// ErrLifeline is returned when the lifeline was closed, shut down or written to.
	ErrLifeline = errors.New("the lifeline ended")
	// ErrPeer is returned when the other side of the output is gone.
	ErrPeer = errors.New("the reader of the output is gone")
)

// Input reads lines from one descriptor, which it does not own.
type Input struct {
	fd, life, out int
	most          int
	buf           []byte
	start, end    int
	scanned       int // bytes from start that hold no newline
	skipped       int64
	head, tail    []byte
	budget        *Budget
	crowded       bool // the line that is skipped is only too long for what is left
	turn          pace.Turn
}

// NewInput reads lines of at most so many bytes from fd. With a lifeline, every wait also
// ends when that has anything to say; out is then watched for its reader's end. Both
// are -1 where there is none, and then the read itself waits. Long lines are held at
// the cost of the budget.
func NewInput(fd, life, out, most int, first []byte, budget *Budget) *Input {
	in := &Input{fd: fd, life: life, out: out, most: most, buf: make([]byte, max(firstBuffer, len(first))), budget: budget}
	in.end = copy(in.buf, first)
	return in
}

// Release gives back what the input holds. It is not read again.
func (in *Input) Release() {
	in.budget.move(len(in.buf), 0)
	in.buf, in.start, in.end = nil, 0, 0
}

// resize makes a new buffer of so many bytes, without its content, if the budget
// allows it.
func (in *Input) resize(n int) ([]byte, bool) {
	if !in.budget.move(len(in.buf), n) {
		return nil, false
	}
	return make([]byte, n), true
}

// Next returns the next line without its newline, valid until the next call. At the
// end of the input a line without newline is dropped: it was not sent whole.
func (in *Input) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(in.buf[in.start+in.scanned:in.end], '\n'); i >= 0 {
			line := in.buf[in.start : in.start+in.scanned+i]
			in.start += in.scanned + i + 1
			in.scanned = 0
			if in.skipped > 0 {
				in.keepTail(line)
				in.skipped = 0
				if in.crowded {
					in.crowded = false
					return nil, ErrCrowded
				}
				return nil, ErrTooLong
			}
			if len(line) > in.most {
				in.head, in.tail = edges(line)
				return nil, ErrTooLong
			}
			return line, nil
		}
		in.scanned = in.end - in.start
		if in.skipped > 0 || in.scanned > in.most {
			in.skip()
		}
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
}

// Edges returns the first and last bytes of the line that was too long.
func (in *Input) Edges() (head, tail []byte) { return in.head, in.tail }

func edges(line []byte) (head, tail []byte) {
	return bytes.Clone(line[:min(Edge, len(line))]), bytes.Clone(line[max(0, len(line)-Edge):])
}

// skip forgets what is buffered of a line that is too long: stream-1.
func (in *Input) skip() {
	part := in.buf[in.start:in.end]
	if in.skipped == 0 {
		in.head, in.tail = edges(part)
	} else {
		in.keepTail(part)
	}
	in.skipped += int64(len(part))
	in.start, in.end, in.scanned = 0, 0, 0
	if len(in.buf) > keepBuffer {
		in.buf, _ = in.resize(keepBuffer)
	}
}

func (in *Input) keepTail(part []byte) {
	in.tail = append(in.tail, part[max(0, len(part)-Edge):]...)
	in.tail = bytes.Clone(in.tail[max(0, len(in.tail)-Edge):])
}

func (in *Input) fill() error {
	if in.start == in.end {
		in.start, in.end = 0, 0
		if len(in.buf) > keepBuffer && in.skipped == 0 {
			in.buf, _ = in.resize(firstBuffer)
		}
	}
	if in.end == len(in.buf) {
		if in.start > 0 {
			in.end = copy(in.buf, in.buf[in.start:in.end])
			in.start = 0
		} else {
			if grown, ok := in.resize(min(2*len(in.buf), in.most+2)); ok {
				copy(grown, in.buf)
				in.buf = grown
			} else {
				in.crowded = true
				in.skip()
			}
		}
	}
	in.turn.Yield()
	if in.life >= 0 {
		if err := in.wait(); err != nil {
			return err
		}
	}
	for {
		n, err := unix.Read(in.fd, in.buf[in.end:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN: // someone made the shared descriptor non-blocking
			if err := in.wait(); err != nil {
				return err
			}
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			in.end += n
			return nil
		}
	}
}

func (in *Input) wait() error {
	fds := []unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN | unix.POLLRDHUP}, {Fd: -1}}
	if in.life != in.fd {
		fds[1].Fd = int32(in.life)
	}
	if in.out != in.fd {
		fds[2].Fd = int32(in.out)
	}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case fds[1].Revents != 0:
			return ErrLifeline
		case fds[0].Revents != 0: // what was sent before the end is still read
			return nil
		default:
			return ErrPeer
		}
	}
}
