package workers

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
)

// bridge is one project's bridge as this test plays it.
type bridge struct {
	r     *rig
	key   gate.Set
	jail  ids.Jail
	fd    int
	probe *server
	gone  chan struct{} // closed when its wire is

	// Set before its first message.
	mute     bool   // says no Hello by itself
	deaf     bool   // reads nothing
	noFence  bool   // answers no fence
	autoList string // what it reports for each Started; "" reports nothing
	noAnswer bool   // writes no bind answer
	room     int    // bytes of the socket to it; 0: the system's

	sending sync.Mutex

	// Guarded by r.mu.
	seq       uint64
	sessions  map[ids.Session]*os.File
	ended     []wire.SessionEnd
	instances map[ids.Connection]wire.Started
	starts    int
	answers   map[uint64]asking
	cancels   []wire.Cancel
	exits     []wire.Exited
	changed   int
	relisted  []wire.Changed // of those, the ones of one list alone
	fences    []uint64
	toldAt    map[ids.Call]time.Time // when an admission was heard, where a test asks for it
	heard     []wire.Down
	pipes     []int
	stopped   bool
	datagrams int // that came
}

// asking is one question without an answer; conn is a Start's.
type asking struct {
	ch   chan wire.Down
	conn ids.Connection
}

func (b *bridge) close() {
	b.sending.Lock()
	defer b.sending.Unlock()
	if b.fd >= 0 {
		unix.Shutdown(b.fd, unix.SHUT_RDWR)
	}
}

func (b *bridge) send(m wire.Up) error {
	raw, err := wire.EncodeUp(nil, m)
	if err != nil {
		return err
	}
	return b.sendRaw(raw)
}

func (b *bridge) sendRaw(raw []byte, fds ...int) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(b.fd, raw, oob, nil, unix.MSG_NOSIGNAL)
}

// listen hears the authority until its wire is closed.
func (b *bridge) listen() {
	defer func() {
		b.r.event(func() {
			b.stopped = true
			for _, f := range b.sessions {
				f.Close()
			}
			closeAll(b.pipes)
		})
		close(b.gone)
		b.sending.Lock()
		unix.Close(b.fd)
		b.fd = -1
		b.sending.Unlock()
	}()
	if !b.mute {
		b.send(wire.Hello{Version: "test"})
	}
	if b.deaf { // until somebody closes the other end
		p := []unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLRDHUP}}
		for {
			if n, err := unix.Poll(p, -1); err != unix.EINTR && (n > 0 || err != nil) {
				return
			}
		}
	}
	buf, oob := make([]byte, wire.MaxMessage+1), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(b.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var fds []int
		if oobn > 0 {
			msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
			for _, c := range msgs {
				got, _ := unix.ParseUnixRights(&c)
				fds = append(fds, got...)
			}
		}
		b.r.mu.Lock()
		b.datagrams++
		b.r.mu.Unlock()
		one, rest := wire.Cut(buf[:n])
		if len(fds) > 0 && rest != nil {
			b.r.t.Errorf("descriptors came with several messages: %q", buf[:n])
		}
		for ; one != nil; one, rest = wire.Cut(rest) {
			m, err := wire.DecodeDown(one)
			if err != nil {
				b.r.t.Errorf("the authority said %q: %v", one, err)
				return
			}
			if least, most := wire.Descriptors(m); len(fds) < least || len(fds) > most {
				b.r.t.Errorf("%T came with %d descriptors", m, len(fds))
			}
			b.hear(m, fds)
		}
	}
}

func (b *bridge) hear(m wire.Down, fds []int) {
	if v, ok := m.(wire.ViewIs); ok && v.Memfd {
		raw, err := readAll(fds[0], wire.MaxView)
		unix.Close(fds[0])
		if err == nil {
			v.Tools, err = wire.DecodeTools(raw)
		}
		if err != nil {
			b.r.t.Error(err)
		}
		m = v
	}
	var reply []wire.Up
	var told []chan wire.Down // after the replies: who asks on must find them sent
	answer := func(seq uint64) {
		if a, ok := b.answers[seq]; ok {
			delete(b.answers, seq)
			told = append(told, a.ch)
		}
	}
	b.r.event(func() {
		b.heard = append(b.heard, m)
		switch m := m.(type) {
		case wire.Session:
			f := os.NewFile(uintptr(fds[0]), "session")
			b.sessions[m.Session] = f
			if !b.noAnswer {
				fmt.Fprintf(f, "{\"postern\":{\"session\":%q}}\n", m.Session)
			}
		case wire.SessionEnd:
			b.ended = append(b.ended, m)
			if f := b.sessions[m.Session]; f != nil {
				f.Close()
				delete(b.sessions, m.Session)
				reply = append(reply, wire.SessionEnded{Session: m.Session, Reason: "told to"})
			}
		case wire.Started:
			b.pipes = append(b.pipes, fds...)
			b.instances[m.Connection] = m
			b.starts++
			if b.autoList != "" {
				reply = append(reply, wire.Catalogue{Connection: m.Connection, Instance: m.Instance, Last: true, Data: []byte(b.autoList)})
			}
			for seq, a := range b.answers {
				if a.conn == m.Connection {
					answer(seq)
				}
			}
		case wire.Retired:
			if b.instances[m.Connection].Instance == m.Instance {
				delete(b.instances, m.Connection)
			}
		case wire.Exited:
			b.exits = append(b.exits, m)
			if b.instances[m.Connection].Instance == m.Instance {
				delete(b.instances, m.Connection)
			}
		case wire.NotStarted:
			answer(m.Seq)
		case wire.ViewIs:
			answer(m.Seq)
		case wire.Admitted:
			if b.toldAt != nil {
				b.toldAt[m.Call] = time.Now()
			}
			answer(m.Seq)
		case wire.Refused:
			answer(m.Seq)
		case wire.Cancel:
			b.cancels = append(b.cancels, m)
		case wire.Changed:
			if b.changed++; m.Connection != "" {
				b.relisted = append(b.relisted, m)
			}
		case wire.Fence:
			b.fences = append(b.fences, m.N)
			if !b.noFence {
				reply = append(reply, wire.Fenced{N: m.N})
			}
		}
	})
	for _, m := range reply {
		b.send(m)
	}
	for _, ch := range told {
		ch <- m
	}
}

// expects gives out the number of a question whose answer goes to ch; conn is a Start's.
func (b *bridge) expects(ch chan wire.Down, conn ids.Connection) (seq uint64) {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.seq++
	b.answers[b.seq] = asking{ch, conn}
	return b.seq
}

// question sends what ask makes with a fresh number and waits for the answer; nil
// where the wire was closed instead.
func (b *bridge) question(conn ids.Connection, ask func(seq uint64) wire.Up) wire.Down {
	ch := make(chan wire.Down, 1)
	seq := b.expects(ch, conn)
	if b.send(ask(seq)) != nil {
		return nil
	}
	select {
	case m := <-ch:
		return m
	case <-b.gone:
		return nil
	case <-time.After(patience):
		b.r.t.Errorf("no answer\n%s", b.r.log)
		return nil
	}
}

// admit asks for one call.
func (b *bridge) admit(s ids.Session, c ids.Connection, inst ids.Jail, tool string) (ids.Call, refusal.Code) {
	return b.admitPaths(s, c, inst, tool, nil)
}

// admitPaths asks for one call with path arguments.
func (b *bridge) admitPaths(s ids.Session, c ids.Connection, inst ids.Jail, tool string, paths *wire.Paths) (ids.Call, refusal.Code) {
	m := b.question("", func(seq uint64) wire.Up {
		return wire.Admit{Seq: seq, Session: s, Connection: c, Instance: inst, Tool: tool, Digest: aDigest, Size: 2, RequestID: "1", Paths: paths}
	})
	switch m := m.(type) {
	case wire.Admitted:
		return m.Call, ""
	case wire.Refused:
		return "", m.Code
	}
	return "", "no answer"
}

// start asks for a server and waits until it is ready, or returns the refusal.
func (b *bridge) start(s ids.Session, c ids.Connection, tool string) (ids.Jail, refusal.Code) {
	return b.startPaths(s, c, tool, nil)
}

// startPaths is start for a call with path arguments.
func (b *bridge) startPaths(s ids.Session, c ids.Connection, tool string, paths *wire.Paths) (ids.Jail, refusal.Code) {
	b.r.mu.Lock()
	in, ok := b.instances[c]
	b.r.mu.Unlock()
	if ok {
		return in.Instance, ""
	}
	m := b.question(c, func(seq uint64) wire.Up {
		return wire.Start{Seq: seq, Session: s, Connection: c, Tool: tool, RequestID: "1", Paths: paths}
	})
	switch m := m.(type) {
	case wire.Started:
		// Its catalogue went up before whatever is asked now.
		return m.Instance, ""
	case wire.NotStarted:
		return "", m.Code
	}
	return "", "no answer"
}

// view asks for the session's tools.
func (b *bridge) view(s ids.Session) []wire.Tool {
	m := b.question("", func(seq uint64) wire.Up { return wire.View{Session: s, Seq: seq} })
	v, ok := m.(wire.ViewIs)
	if !ok {
		b.r.t.Errorf("a view is answered %T", m)
	}
	return v.Tools
}

// isGone waits until the authority has closed its wire.
func (b *bridge) isGone(says string) {
	b.r.t.Helper()
	select {
	case <-b.gone:
	case <-time.After(patience):
		b.r.t.Fatalf("%s: the bridge lives\n%s", says, b.r.log)
	}
}

// alive checks that its wire works.
func (b *bridge) alive(says string) {
	b.r.t.Helper()
	select {
	case <-b.gone:
		b.r.t.Fatalf("%s: the bridge was ended\n%s", says, b.r.log)
	default:
	}
}
