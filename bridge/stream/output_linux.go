package stream

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxQueued is how many bytes may wait for a reader that does not read, where nobody sets less.
const MaxQueued = 20 << 20

const (
	atomicWrite = 4 << 10 // PIPE_BUF: a pipe that polls writable takes this much at once
	recheckMs   = 500     // how soon a stuck writer without a lifeline sees Close

	maxGathered      = 16 << 10 // bytes that are gathered; what would be more is written at once
	maxGatheredLines = 64       // the same in lines, far below what the kernel takes in one call
)

// Errors of Send.
var (
	// ErrFull is returned when more bytes would wait than may. The line was not taken.
	ErrFull = errors.New("the other side does not read")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the output is closed")
	// ErrSkipped is returned when the condition did not hold.
	ErrSkipped = errors.New("the line was no longer wanted")
)

// Output writes whole lines to one descriptor, which it does not own.
type Output struct {
	fd, life int
	socket   bool
	most     int // bytes that may wait
	budget   *Budget

	mu       sync.Mutex
	queue    [][]byte // the first may be partly written; gathered, or drained
	partly   bool
	queued   int
	charged  int // bytes of the queue that the budget knows of
	draining bool
	noNowait bool // the file knows no RWF_NOWAIT: every line goes through the queue
	err      error
	idle     sync.WaitGroup
}

// NewOutput writes to fd. A lifeline that ends, or -1, ends a waiting write. At most so
// many bytes wait, at the cost of the budget.
func NewOutput(fd, life, most int, budget *Budget) *Output {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return &Output{fd: fd, life: life, socket: err == nil, most: most, budget: budget}
}

// chargeLocked tells the budget what waits, or will; it cannot refuse less than before.
func (o *Output) chargeLocked(n int) bool {
	if !o.budget.move(o.charged, n) {
		return false
	}
	o.charged = n
	return true
}

// Send writes line, or queues what the descriptor does not take at once. It keeps
// line. The condition, where not nil, is asked under the output's lock, so that what
// it looks at cannot change between a line and its successor.
func (o *Output) Send(line []byte, still func() bool) error { return o.send(line, still, false) }

// SendIdly is Send for what can be missed: it takes no more than half of what may wait, and
// leaves the rest to what cannot.
func (o *Output) SendIdly(line []byte, still func() bool) error {
	room := func() bool { return o.queued+len(line) <= o.most/2 && (still == nil || still()) }
	return o.send(line, room, false)
}

// SendFirst is Send, ahead of all lines that have not begun.
func (o *Output) SendFirst(line []byte) error { return o.send(line, nil, true) }

// Gather is Send, but a short line may wait for the next one or for Flush, which is the
// caller's duty before it waits for anything: then one call of the kernel writes several.
func (o *Output) Gather(line []byte) error {
	o.mu.Lock()
	if o.err == nil && !o.draining && !o.noNowait && len(o.queue) < maxGatheredLines && o.queued+len(line) <= maxGathered {
		o.queue, o.queued = append(o.queue, line), o.queued+len(line)
		o.mu.Unlock()
		return nil
	}
	o.mu.Unlock()
	return o.send(line, nil, false)
}

// Flush writes what was gathered, or leaves it to be drained.
func (o *Output) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	return o.err
}

func (o *Output) flushLocked() {
	for len(o.queue) > 0 && !o.draining && o.err == nil {
		n, err := o.nowait(o.queue...)
		switch {
		case n > 0:
			o.wroteLocked(n)
		case err == unix.EAGAIN:
			o.drainLocked()
		case isUnable(err):
			o.noNowait = true
			o.drainLocked()
		default:
			o.err = err
			o.queue, o.queued, o.partly = nil, 0, false
		}
	}
}

// wroteLocked takes n bytes off the queue.
func (o *Output) wroteLocked(n int) {
	o.queued -= n
	o.partly = false
	for i, line := range o.queue {
		if n < len(line) {
			o.queue = o.queue[i:]
			o.queue[0], o.partly = line[n:], n > 0
			return
		}
		n -= len(line)
	}
	clear(o.queue)
	o.queue = o.queue[:0]
}

// drainLocked has somebody wait for the descriptor, who is not the caller.
func (o *Output) drainLocked() {
	if !o.draining {
		o.draining = true
		o.idle.Add(1)
		go o.drain()
	}
}

func (o *Output) send(line []byte, still func() bool, first bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	if o.err != nil {
		return o.err
	}
	if still != nil && !still() {
		return ErrSkipped
	}
	// Asked before the line begins: one that has begun is finished.
	if !o.chargeLocked(o.queued + len(line)) {
		return ErrCrowded
	}
	defer func() { o.chargeLocked(o.queued) }()
	rest := line
	if len(o.queue) == 0 && !o.noNowait {
		n, err := o.nowait(line)
		if isUnable(err) {
			o.noNowait, err = true, nil
		}
		if err != nil && err != unix.EAGAIN {
			o.err = err
			return err
		}
		if rest = line[n:]; len(rest) == 0 {
			return nil
		}
	}
	if o.queued+len(rest) > o.most && len(rest) == len(line) { // one that has begun is finished
		return ErrFull
	}
	o.queued += len(rest)
	switch {
	case len(rest) < len(line): // begun, so the queue was empty
		o.queue, o.partly = append(o.queue, rest), true
	case first:
		at := 0
		if o.partly {
			at = 1
		}
		o.queue = append(o.queue, nil)
		copy(o.queue[at+1:], o.queue[at:])
		o.queue[at] = rest
	default:
		o.queue = append(o.queue, rest)
	}
	o.drainLocked()
	return nil
}

// Idle tells whether nothing waits for the other side to read.
func (o *Output) Idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.draining && o.err == nil
}

// Withdraw removes a line that was sent and has not begun to be written.
func (o *Output) Withdraw(line []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, q := range o.queue {
		if len(q) == len(line) && &q[0] == &line[0] && (i > 0 || !o.partly) {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			o.queued -= len(q)
			o.chargeLocked(o.queued)
			return true
		}
	}
	return false
}

// Close makes later lines fail, drops those that wait, and returns when nothing
// writes to the descriptor any more. Twice is harmless.
func (o *Output) Close() {
	o.mu.Lock()
	if o.err == nil {
		o.err = ErrClosed
	}
	if !o.draining {
		o.queue, o.queued, o.partly = nil, 0, false
	}
	o.mu.Unlock()
	o.idle.Wait()
}

// drain writes the queue until it is empty. It is the only place that waits.
func (o *Output) drain() {
	defer o.idle.Done()
	for {
		ready := o.writable()
		o.mu.Lock()
		if o.err == nil && ready != nil {
			o.err = ready
		}
		if o.err != nil || len(o.queue) == 0 {
			o.queue, o.queued, o.partly, o.draining = nil, 0, false, false
			o.chargeLocked(0)
			o.mu.Unlock()
			return
		}
		line := o.queue[0]
		o.partly = true // from here on nothing may come before it
		o.mu.Unlock()

		n, err := o.write(line)

		o.mu.Lock()
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			if o.err == nil {
				o.err = err
			}
		case n == len(line):
			o.queue, o.partly = o.queue[1:], false
		default:
			o.queue[0] = line[n:]
		}
		o.queued -= n
		empty := len(o.queue) == 0
		if empty {
			o.queue, o.queued, o.draining = nil, 0, false
		}
		o.chargeLocked(o.queued)
		o.mu.Unlock()
		if empty {
			return
		}
	}
}

// writable waits until the descriptor takes bytes. It returns nil also when it should
// be asked again whether the output is still open.
func (o *Output) writable() error {
	fds := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}, {Fd: -1, Events: unix.POLLRDHUP}}
	if o.life != o.fd {
		fds[1].Fd = int32(o.life)
	}
	for {
		n, err := unix.Poll(fds, recheckMs)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if fds[1].Revents != 0 {
			return ErrLifeline
		}
		if n > 0 {
			return nil
		}
		o.mu.Lock()
		closed := o.err
		o.mu.Unlock()
		if closed != nil {
			return closed
		}
	}
}

func (o *Output) write(line []byte) (int, error) {
	n, err := o.nowait(line)
	if isUnable(err) {
		n, err = unix.Write(o.fd, line[:min(len(line), atomicWrite)])
	}
	return max(n, 0), err
}

// isUnable tells that the file knows no RWF_NOWAIT.
func isUnable(err error) bool {
	return err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EPERM
}

// nowait writes what fits and never sleeps, although the descriptor is blocking.
func (o *Output) nowait(lines ...[]byte) (n int, err error) {
	for {
		if o.socket {
			n, err = unix.SendmsgBuffers(o.fd, lines, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			n, err = unix.Pwritev2(o.fd, lines, -1, unix.RWF_NOWAIT)
		}
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
