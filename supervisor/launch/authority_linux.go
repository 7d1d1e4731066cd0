package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/order"
	"postern/supervisor/peer"
)

// authority is one life of postern-authority, seen from posternd.
type authority struct {
	proc *os.Process
	wire int // posternd's end; closed by close
	done chan struct{}

	sending sync.Mutex // one message at a time, in the order of the facts' versions

	mu    sync.Mutex
	acked uint64
	cut   order.FactsAck // the last one, with the calls that the change cut
	ready bool
	reads uint64     // how often it said that it still reads its store
	pong  order.Pong // the last sign of life
	// drained is what it said when nothing was left; nil until then.
	drained *order.Drained
	news    chan struct{} // closed and replaced when acked or ready changes
	why     string        // posternd ended it
	how     string        // how the process ended, once done is closed
}

// spawner starts children from one thread that never ends and that has given away
// what no child may have. PDEATHSIG fires when the *thread* that forked ends, so a
// thread of the runtime's pool would kill its children at random.
type spawner struct {
	asks chan func()
	end  chan struct{}
}

func startSpawner() (*spawner, error) {
	s := &spawner{asks: make(chan func()), end: make(chan struct{})}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := giveAway()
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-s.asks:
				f()
			case <-s.end:
				return // the thread ends with the goroutine, and children with it
			}
		}
	}()
	return s, <-ready
}

// giveAway sets no_new_privs and empties the bounding set of this thread alone: what it
// starts as another user can never have a capability again, whatever it executes.
func giveAway() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl no_new_privs", err)
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_CHECKPOINT_RESTORE {
			return nil // past the last one this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
}

func (s *spawner) start(path string, argv []string, attr *os.ProcAttr) (p *os.Process, err error) {
	done := make(chan struct{})
	s.asks <- func() { p, err = os.StartProcess(path, argv, attr); close(done) }
	<-done
	return p, err
}

func (s *spawner) close() { close(s.end) }

// startAuthority starts the program as its own user with an empty environment, no
// capability, and nothing open but stdio and the wire on descriptor 3. Its stdout and
// stderr are one pipe; each line goes to lines.
//
// The program is executed by descriptor, so that it runs even from a directory the
// user cannot enter, and so that a file that was replaced since posternd started is
// not what runs.
func startAuthority(s *spawner, program *os.File, uid, gid uint32, stateDir, runDir string, lines io.Writer) (*authority, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "order")
	defer theirs.Close()
	fail := func(err error) (*authority, error) { unix.Close(pair[0]); return nil, err }
	if err := peer.PassRights(pair[0], false); err != nil {
		return fail(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fail(err)
	}
	defer null.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer in.Close()
	p, err := s.start(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), []string{authorityProgram, "--state-dir", stateDir, "--run-dir", runDir}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, in, in, theirs},
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{}}, Setsid: true, Pdeathsig: syscall.SIGKILL}})
	if err != nil {
		out.Close()
		return fail(fmt.Errorf("start %q as uid %d: %w", program.Name(), uid, err))
	}
	a := &authority{proc: p, wire: pair[0], done: make(chan struct{}), news: make(chan struct{})}
	go func() { copyLines(lines, out); out.Close() }()
	go func() {
		state, err := p.Wait()
		a.mu.Lock()
		if a.how = "it ended: " + state.String(); err != nil {
			a.how = err.Error()
		}
		a.mu.Unlock()
		close(a.done)
	}()
	return a, nil
}

// maxLogLine bounds one line of the authority's log.
const maxLogLine = 16 << 10

// copyLines passes whole lines on, without the control characters that could rewrite
// an operator's terminal. It reads to the end even if nobody wants the lines.
func copyLines(to io.Writer, from io.Reader) {
	if to == nil {
		to = io.Discard
	}
	r := bufio.NewReaderSize(from, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			clean := strings.Map(func(c rune) rune {
				if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
					return '.'
				}
				return c
			}, string(line))
			if !strings.HasSuffix(clean, "\n") {
				clean += "\n"
			}
			io.WriteString(to, clean)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// send gives one message and copies of the files; the files stay the caller's. It
// waits at most sendWait for room, then ends the authority: one that does not read its
// orders cannot be trusted to have taken the facts. One that is not ready decides
// nothing yet; it reads its store, which takes longer the more is granted, while the
// sockets of all projects wait for it.
func (a *authority) send(m order.Down, files ...*os.File) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	return a.sendLocked(m, files...)
}

func (a *authority) sendLocked(m order.Down, files ...*os.File) error {
	raw, err := order.EncodeDown(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	patience := func() (wait time.Duration, reads uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.ready {
			return readyWait, a.reads
		}
		return sendWait, a.reads
	}
	wait, reads := patience()
	end := time.Now().Add(wait)
	for {
		err := unix.Sendmsg(a.wire, raw, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		runtime.KeepAlive(files)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && time.Now().Before(end):
			fds := []unix.PollFd{{Fd: int32(a.wire), Events: unix.POLLOUT}}
			unix.Poll(fds, int(time.Until(end).Milliseconds())+1)
		case errors.Is(err, unix.EAGAIN):
			if more, now := patience(); now != reads {
				reads, end = now, time.Now().Add(more) // it reads its store, and messages after that
				continue
			}
			a.kill("it did not read its messages")
			return errAuthorityGone
		default:
			return fmt.Errorf("%w: %w", errAuthorityGone, err)
		}
	}
}

// errAuthorityGone is returned when the authority of this life cannot be reached.
var errAuthorityGone = errors.New("the authority is gone")

// sendFacts pushes the encoded facts as a sealed memfd, under the number of the push.
func (a *authority) sendFacts(raw []byte, n uint64) error {
	f, err := sealed("postern-facts", raw)
	if err != nil {
		return err
	}
	defer f.Close()
	return a.send(order.Facts{Version: n}, f)
}

func sealed(name string, raw []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(raw); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return f, nil
}

// receive waits for one order. There is no control buffer: nothing of the authority's
// is ever received, and a message that tries, or is too long, is a violation.
func (a *authority) receive(buf []byte) (order.Up, error) {
	for {
		n, _, flags, _, err := unix.Recvmsg(a.wire, buf, nil, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, os.NewSyscallError("recvmsg", err)
		case n == 0:
			return nil, io.EOF
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			return nil, fmt.Errorf("a message was too long or carried descriptors")
		}
		return order.DecodeUp(buf[:n])
	}
}

func (a *authority) note(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.news)
	a.news = make(chan struct{})
}

// until waits for a condition on the noted state, at most for wait.
func (a *authority) until(ctx context.Context, wait time.Duration, holds func(*authority) bool) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		a.mu.Lock()
		ok, news := holds(a), a.news
		a.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-news:
		case <-a.done:
			return false
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// becomesReady waits until the authority serves. Each sign that it still reads its store
// begins the wait anew, as a large one takes longer than any wait would be.
func (a *authority) becomesReady(ctx context.Context, wait time.Duration) bool {
	for {
		a.mu.Lock()
		reads := a.reads
		a.mu.Unlock()
		if !a.until(ctx, wait, func(a *authority) bool { return a.ready || a.reads != reads }) {
			return false
		}
		if a.isReady() {
			return true
		}
	}
}

// kill ends this life at once; the reader sees the end of the wire.
func (a *authority) kill(why string) {
	a.mu.Lock()
	if a.why == "" {
		a.why = why
	}
	a.mu.Unlock()
	a.proc.Kill()
	a.hangUp()
}

// hangUp makes the reader and the other end see the end of the wire.
func (a *authority) hangUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wire >= 0 {
		unix.Shutdown(a.wire, unix.SHUT_RDWR)
	}
}

// stop asks it to end, then kills it, and returns when it is reaped. Its wire stays
// open meanwhile: it may still want to end its jails in order.
func (a *authority) stop() {
	a.proc.Signal(syscall.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(stopWait):
		a.proc.Kill()
		<-a.done
	}
}

// close releases the wire; nobody may send any more.
func (a *authority) close() {
	a.sending.Lock()
	defer a.sending.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wire >= 0 {
		unix.Close(a.wire)
		a.wire = -1
	}
}
