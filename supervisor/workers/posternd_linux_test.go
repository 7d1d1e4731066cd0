package workers

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

// serve is posternd: it obeys each order at once.
func (r *rig) serve() {
	buf := make([]byte, order.MaxMessage+1)
	for {
		n, err := unix.Read(r.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		m, err := order.DecodeUp(buf[:n])
		if err != nil {
			r.t.Errorf("the authority gave %q: %v", buf[:n], err)
			return
		}
		r.event(func() { r.orders = append(r.orders, m) })
		r.obey(m)
	}
}

func ask[O any](r *rig, f func(O) refusal.Code, o O) refusal.Code {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f == nil {
		return ""
	}
	return f(o)
}

func (r *rig) obey(m order.Up) {
	switch m := m.(type) {
	case order.LaunchBridge:
		switch code := ask(r, r.onBridge, m); code {
		case "":
			r.launchBridge(m)
		case held:
		default:
			r.say(order.NotLaunched{Seq: m.Seq, Code: code, Text: "by the test"})
		}
	case order.LaunchServer:
		switch code := ask(r, r.onServer, m); code {
		case "":
			r.launchServer(m)
		case held:
		default:
			r.say(order.NotLaunched{Seq: m.Seq, Code: code, Text: "by the test"})
		}
	case order.LaunchProbe:
		switch code := ask(r, r.onProbe, m); code {
		case "":
			b, theirs := r.newBridge(gate.Set{})
			s, fds := r.newServer(m.Revision)
			r.event(func() { b.probe = s })
			r.say(order.Launched{Seq: m.Seq, Jail: s.jail, Bridge: b.jail, PID: 1, UID: 1}, append([]int{theirs}, fds...)...)
			go b.listen()
		case held:
		default:
			r.say(order.NotLaunched{Seq: m.Seq, Code: code, Text: "by the test"})
		}
	case order.Resolve:
		r.mu.Lock()
		f := r.onResolve
		r.mu.Unlock()
		if a := f(m); a.Code != held {
			a.Seq = m.Seq
			r.say(a)
		}
	case order.Fetch:
		r.mu.Lock()
		f := r.onFetch
		r.mu.Unlock()
		if raw, why := f(m); why != string(held) {
			r.fetched(m.Seq, raw, why)
		}
	case order.Stop:
		r.mu.Lock()
		hold := r.unkillable[m.Jail]
		r.mu.Unlock()
		if !hold {
			r.kill(m.Jail, order.Exited{Signal: 9, Status: -1})
		}
	case order.TokenFile:
		f, err := os.OpenFile(filepath.Join(r.dir, "token"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
		if err != nil {
			r.say(order.Done{Seq: m.Seq, Code: refusal.TokenFileUID})
			return
		}
		fd, _ := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		f.Close()
		r.say(order.TokenFileIs{Seq: m.Seq, Path: f.Name()}, fd)
	case order.Retire:
		r.say(order.Done{Seq: m.Seq})
	case order.StatJails:
		r.mu.Lock()
		var rows []order.JailRow
		for _, b := range r.bridges {
			if !r.jails[b.jail].gone {
				rows = append(rows, order.JailRow{Jail: b.jail, Kind: "bridge", Project: b.key.Project})
			}
		}
		for _, s := range r.servers {
			if !r.jails[s.jail].gone {
				rows = append(rows, order.JailRow{Jail: s.jail, Kind: "server", Revision: s.rev})
			}
		}
		r.mu.Unlock()
		half := len(rows) / 2
		r.say(order.Stats{Seq: m.Seq, Rows: rows[:half]})
		r.say(order.Stats{Seq: m.Seq, Rows: rows[half:], Last: true})
	}
}

// kill ends a jail as the kernel would: what it holds is closed, then it is told.
func (r *rig) kill(j ids.Jail, x order.Exited) {
	r.mu.Lock()
	k := r.jails[j]
	if k == nil || k.gone {
		r.mu.Unlock()
		return
	}
	k.gone = true
	r.mu.Unlock()
	k.end()
	x.Jail = j
	r.say(x)
	r.event(func() {})
}

func (r *rig) newBridge(key gate.Set) (*bridge, int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	b := &bridge{r: r, key: key, jail: fresh[ids.Jail](), fd: pair[1], sessions: map[ids.Session]*os.File{}, answers: map[uint64]asking{}, gone: make(chan struct{}),
		instances: map[ids.Connection]wire.Started{}, autoList: catalogueText}
	r.event(func() {
		if r.setUp != nil {
			r.setUp(b)
		}
		r.bridges = append(r.bridges, b)
		r.jails[b.jail] = &jail{end: b.close}
	})
	if b.room > 0 {
		unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, b.room)
	}
	return b, pair[0]
}

func (r *rig) launchBridge(m order.LaunchBridge) {
	b, theirs := r.newBridge(gate.Set{Project: m.Project, Number: m.Set})
	r.say(order.Launched{Seq: m.Seq, Jail: b.jail, PID: 1, UID: 1}, theirs)
	go b.listen()
}

// server is one tool server's jail: its pipe ends.
type server struct {
	jail ids.Jail
	rev  ids.Revision
	ends [3]int
}

func (r *rig) newServer(rev ids.Revision) (*server, []int) {
	s := &server{jail: fresh[ids.Jail](), rev: rev}
	var theirs []int
	for i := range s.ends {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			panic(err)
		}
		if i == 0 {
			p[0], p[1] = p[1], p[0] // stdin: the bridge writes
		}
		theirs = append(theirs, p[0])
		s.ends[i] = p[1]
	}
	r.event(func() {
		r.servers = append(r.servers, s)
		r.jails[s.jail] = &jail{end: func() { closeAll(s.ends[:]) }}
	})
	return s, theirs
}

func (r *rig) launchServer(m order.LaunchServer) {
	s, fds := r.newServer(m.Revision)
	r.say(order.Launched{Seq: m.Seq, Jail: s.jail, PID: 1, UID: 1}, fds...)
}

// setFacts pushes root facts, and returns their version.
func (r *rig) setFacts(root *registry.Root) uint64 {
	r.t.Helper()
	r.mu.Lock()
	v := uint64(len(r.roots) + 2)
	root.Version = v
	r.roots[v] = root
	r.mu.Unlock()
	raw, err := order.EncodeRoot(order.Root{Version: v})
	if err != nil {
		r.t.Fatal(err)
	}
	fd, err := sealed("facts", raw)
	if err != nil {
		r.t.Fatal(err)
	}
	r.say(order.Facts{Version: v}, fd)
	return v
}

func (r *rig) acked(v uint64) bool {
	return slices.ContainsFunc(only[order.FactsAck](r), func(a order.FactsAck) bool { return a.Version == v })
}

// fetched answers a Fetch.
func (r *rig) fetched(seq uint64, raw, why string) {
	if why != "" {
		r.say(order.Fetched{Seq: seq, Why: why})
		return
	}
	fd, err := sealed("file", []byte(raw))
	if err != nil {
		panic(err)
	}
	r.say(order.Fetched{Seq: seq, Size: int64(len(raw))}, fd)
}
