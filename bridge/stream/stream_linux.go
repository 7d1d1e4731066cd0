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
//     next line is read as if nothing had happened. One that has no end ends the input.
//   - stream-2: Send never blocks; what does not fit is queued up to a bound, in order.
//   - stream-3: lines are whole: no line is ever written into the middle of another.
//   - stream-4: those that share a budget hold no more than it together, beside a little
//     of each one's own; what it does not cover ends one line and nothing else.
//   - stream-5: a long line that comes to a halt holds its memory for a bounded time;
//     then that line is given up and nothing else.
//
// It knows nothing of what the lines say.
package stream

import (
	"bytes"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/pace"
)

// Edge is how much is kept of each end of a line that was too long.
const Edge = 4 << 10

// A line that is longer than Free has to grow by LinePace, or end, within each LineWait:
// its memory is taken from the others.
const (
	LineWait = 30 * time.Second
	LinePace = 256 << 10 // bytes
)

// MaxSkipped bounds what is skipped of one line that was too long. A line beyond it has no
// end, and nothing more is read.
const MaxSkipped = 512 << 20 // bytes

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
	// ErrSlow is returned once for each long line that came to a halt, before its end.
	// What still comes of it is skipped, and nothing more is said of it.
	ErrSlow = errors.New("the line was not finished in time")
	// ErrEndless is returned when more than MaxSkipped of one line was skipped.
	ErrEndless = errors.New("a line has no end")
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
	why           error // what Next returns at the end of the line that is skipped; nil where it has been said
	wait          time.Duration
	due           time.Time // until when the line must have mark bytes; zero while it is short
	mark          int
	turn          pace.Turn
	quiet         func()
	quietMs       int
	lively        bool // something came since quiet was last called
}

// NewInput reads lines of at most so many bytes from fd. With a lifeline, every wait also
// ends when that has anything to say; out is then watched for its reader's end. Both
// are -1 where there is none, and then the read itself waits. Long lines are held at
// the cost of the budget.
//
// A wait of 0 is LineWait.
func NewInput(fd, life, out, most int, wait time.Duration, first []byte, budget *Budget) *Input {
	in := &Input{fd: fd, life: life, out: out, most: most, wait: wait, buf: make([]byte, max(firstBuffer, len(first))), budget: budget}
	if wait <= 0 {
		in.wait = LineWait
	}
	in.end = copy(in.buf, first)
	return in
}

// OnQuiet has fn called, by Next, whenever nothing came for so long after something did. It
// is for an input without a lifeline, and costs no timer of the runtime's.
func (in *Input) OnQuiet(after time.Duration, fn func()) {
	in.quiet, in.quietMs = fn, int(after.Milliseconds())
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
			in.scanned, in.due = 0, time.Time{}
			if in.skipped > 0 {
				in.keepTail(line)
				in.skipped = 0
				if in.why == nil {
					continue
				}
				return nil, in.why
			}
			if len(line) > in.most {
				in.head, in.tail = edges(line)
				return nil, ErrTooLong
			}
			return line, nil
		}
		in.scanned = in.end - in.start
		if in.skipped > 0 || in.scanned > in.most {
			in.skip(ErrTooLong)
		}
		if in.skipped > MaxSkipped {
			return nil, ErrEndless
		}
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
}

// Skipped counts the bytes that came so far of the line that is given up.
func (in *Input) Skipped() int64 { return in.skipped }

// Ready tells whether Next has a whole line already, and would not wait.
func (in *Input) Ready() bool {
	return bytes.IndexByte(in.buf[in.start+in.scanned:in.end], '\n') >= 0
}

// Edges returns the first and last bytes of the line that was too long.
func (in *Input) Edges() (head, tail []byte) { return in.head, in.tail }

func edges(line []byte) (head, tail []byte) {
	return bytes.Clone(line[:min(Edge, len(line))]), bytes.Clone(line[max(0, len(line)-Edge):])
}

// skip forgets what is buffered of a line that is given up, for the reason it has at
// the first time: stream-1.
func (in *Input) skip(why error) {
	part := in.buf[in.start:in.end]
	if in.skipped == 0 {
		in.why = why
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
				in.skip(ErrCrowded)
			}
		}
	}
	in.turn.Yield()
	late, err := in.deadline()
	if err != nil {
		return err
	}
	if in.lively {
		in.lively = false
		fds := []unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, in.quietMs); n <= 0 {
			in.quiet()
		}
	}
	if in.life >= 0 || late {
		if err := in.await(late); err != nil {
			return err
		}
	}
	for {
		n, err := unix.Read(in.fd, in.buf[in.end:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN: // someone made the shared descriptor non-blocking
			if err := in.await(late); err != nil {
				return err
			}
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			in.end += n
			in.lively = in.quiet != nil
			return nil
		}
	}
}

// deadline tells whether the line that is being read has one, and moves it when the
// line has grown enough.
func (in *Input) deadline() (late bool, err error) {
	if len(in.buf) <= Free || in.skipped > 0 || in.budget == nil {
		return false, nil
	}
	now := time.Now()
	switch got := in.end - in.start; {
	case in.due.IsZero() || got >= in.mark:
		in.due, in.mark = now.Add(in.wait), got+LinePace
	case now.After(in.due): // it dribbles, so that no wait ever ends without a byte
		err = in.halted()
		return len(in.buf) > Free, err
	}
	return true, nil
}

// halted gives up the line that did not come on. The beginning of a line that still is in
// the buffer of a longer one only moves to a buffer of its own.
func (in *Input) halted() error {
	in.due = time.Time{}
	if in.end-in.start < keepBuffer {
		part := bytes.Clone(in.buf[in.start:in.end])
		in.buf, _ = in.resize(keepBuffer)
		in.start, in.end = 0, copy(in.buf, part)
		return nil
	}
	in.skip(nil)
	return ErrSlow
}

// await returns when there is something to read, or nothing will come any more. Where
// late, it also ends with the deadline of the line.
func (in *Input) await(late bool) error {
	fds := []unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN | unix.POLLRDHUP}, {Fd: -1}}
	if in.life != in.fd {
		fds[1].Fd = int32(in.life)
	}
	if in.out != in.fd {
		fds[2].Fd = int32(in.out)
	}
	for {
		ms := -1
		if late {
			ms = int(max(0, time.Until(in.due).Milliseconds()+1))
		}
		n, err := unix.Poll(fds, ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if err := in.halted(); err != nil {
				return err
			}
			late = false
			continue
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
