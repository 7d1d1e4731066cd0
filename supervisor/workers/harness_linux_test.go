package workers

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// patience bounds every wait of a test; an event that comes ends the wait.
const patience = 20 * time.Second

const (
	alice, bob       = 1, 2
	shop, blog       = 1, 2
	files, slow      = 1, 2
	aliceUID, bobUID = 61001, 61002
	strangerUID      = 61009
	hostUID          = 62000
	catalogueText    = `[{"name":"read_file","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"list_dir","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`
	aDigest          = "abababababababababababababababababababababababababababababababab"
)

func id[T ids.ID](n int) T {
	var r [10]byte
	binary.BigEndian.PutUint32(r[6:], uint32(n))
	return ids.New[T](time.UnixMilli(1_790_000_000_000), r)
}

func fresh[T ids.ID]() T {
	var r [10]byte
	rand.Read(r[:])
	return ids.New[T](time.Now(), r)
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test connects as several users and needs root")
	}
	t.Skip("this test connects as several users and needs root")
}

// facts: alice owns both projects, bob is a member of shop by the registry; the
// host serves everybody; people may bind in shop.
func facts() *registry.Root {
	root := &registry.Root{Version: 1, Accounts: map[ids.Account]registry.RootAccount{}, Projects: map[ids.Project]registry.RootProject{},
		Servers: map[ids.Server]registry.RootServer{}, Hosts: map[string]registry.RootHost{}}
	for n, uid := range map[int]uint32{alice: aliceUID, bob: bobUID} {
		root.Accounts[id[ids.Account](n)] = registry.RootAccount{ID: id[ids.Account](n), UIDs: []uint32{uid}}
	}
	for _, n := range []int{shop, blog} {
		root.Projects[id[ids.Project](n)] = registry.RootProject{ID: id[ids.Project](n), Owner: id[ids.Account](alice), ExecutionProfile: policy.ProfileStandard, PersonBind: true}
	}
	for _, n := range []int{files, slow} {
		rev := &registry.RootRevision{ID: id[ids.Revision](n), Profile: "node", Start: 5 * time.Second}
		root.Servers[id[ids.Server](n)] = registry.RootServer{ID: id[ids.Server](n), Label: fmt.Sprint("server", n), Current: rev.ID, Revisions: map[ids.Revision]*registry.RootRevision{rev.ID: rev}}
	}
	root.Hosts["agent"] = registry.RootHost{ID: "agent", UID: hostUID, AllAccounts: true, AllProjects: true}
	return root
}

// rig is the loop over a real order socket, with this test as posternd.
type rig struct {
	t    testing.TB
	w    *Workers
	g    *gate.Gate
	s    *store.Store
	dir  string
	log  *logged
	conn [3]ids.Connection // by project: its connection to files

	end   context.CancelFunc
	ended chan struct{}
	err   error

	fd int // posternd's end of the orders

	mu      sync.Mutex
	more    chan struct{} // closed and replaced at each event
	orders  []order.Up
	jails   map[ids.Jail]*jail
	bridges []*bridge
	servers []*server
	roots   map[uint64]*registry.Root
	control []int
	clients int

	// How this posternd behaves; set under mu.
	onBridge   func(order.LaunchBridge) refusal.Code // "" launches; held answers never
	onServer   func(order.LaunchServer) refusal.Code
	onProbe    func(order.LaunchProbe) refusal.Code
	setUp      func(*bridge) // before its first message
	unkillable map[ids.Jail]bool
	seqs       map[string]uint64 // of held orders
}

const held refusal.Code = "held by the test"

type jail struct {
	end  func() // closes what it holds
	gone bool
}

type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logged) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func newRig(t testing.TB) *rig {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "pw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o711)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	reg.SetRoot(facts())
	r := &rig{t: t, s: s, dir: dir, log: &logged{}, ended: make(chan struct{}), more: make(chan struct{}), jails: map[ids.Jail]*jail{}, roots: map[uint64]*registry.Root{},
		unkillable: map[ids.Jail]bool{}, seqs: map[string]uint64{}}
	r.g = gate.New(gate.Config{Registry: reg, Store: s, Now: time.Now, Random: func(b []byte) { rand.Read(b) },
		Instant: func() token.Instant { return token.Instant{Wall: time.Now(), Boot: time.Hour, ID: "boot"} }})
	r.apply(reg.AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member))
	pins, err := gate.Pins([]byte(catalogueText), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{files, slow} {
		r.apply(reg.PutCatalogue(id[ids.Revision](n), time.Now(), "", pins))
	}
	for _, n := range []int{shop, blog} {
		r.conn[n] = r.addConnection(n, files)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.fd = pair[1]
	r.w, err = New(Config{Gate: r.g, Orders: pair[0], Log: hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Debug}),
		Facts: func(root order.Root) error {
			r.mu.Lock()
			next := r.roots[root.Version]
			r.mu.Unlock()
			if next == nil {
				return errors.New("facts that the test did not send")
			}
			return r.g.SetRoot(next)
		},
		Control: func(fd int) { r.event(func() { r.control = append(r.control, fd) }) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	go func() {
		r.err = r.w.Run(ctx)
		close(r.ended)
	}()
	served := make(chan struct{})
	go func() { r.serve(); close(served) }()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		unix.Shutdown(r.fd, unix.SHUT_RDWR)
		<-served
		unix.Close(r.fd)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, j := range r.jails {
			if !j.gone {
				j.end()
			}
		}
		s.Close()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	r.await("Ready", func() bool { return has[order.Ready](r) })
	return r
}

func has[O order.Up](r *rig) bool { return len(only[O](r)) > 0 }

// only lists the orders of a kind. Preconditions: r.mu is held.
func only[O order.Up](r *rig) (out []O) {
	for _, m := range r.orders {
		if o, ok := m.(O); ok {
			out = append(out, o)
		}
	}
	return out
}

// apply is for before the loop runs.
func (r *rig) apply(c registry.Change, err error) {
	r.t.Helper()
	if err == nil {
		err = r.g.Apply(c)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) addConnection(project, srv int) ids.Connection {
	c := fresh[ids.Connection]()
	reg := r.g.Registry()
	r.apply(reg.AddConnection(c, id[ids.Project](project), id[ids.Server](srv), registry.Keyless, time.Now()))
	r.apply(r.grantChange(c, "read_file", "list_dir"))
	return c
}

func (r *rig) grantChange(c ids.Connection, tools ...string) (registry.Change, error) {
	gs := make([]ids.Grant, len(tools))
	for i := range gs {
		gs[i] = fresh[ids.Grant]()
	}
	return r.g.Registry().Grant(registry.Granting{Connection: c, Tools: tools, Tier: class.Unmarked, By: "root", IDs: gs, Now: time.Now()})
}

// do runs fn on the loop.
func (r *rig) do(fn func() error) error {
	var err error
	if e := r.w.Do(context.Background(), func() { err = fn() }); e != nil {
		return e
	}
	return err
}

// change makes a widening change.
func (r *rig) change(make func(*registry.Registry) (registry.Change, error)) {
	r.t.Helper()
	if err := r.do(func() error {
		c, err := make(r.g.Registry())
		if err == nil {
			err = r.g.Apply(c)
		}
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
}

// narrow makes a narrowing change of one project.
func (r *rig) narrow(project int, make func(*registry.Registry) (registry.Change, error)) Narrowed {
	r.t.Helper()
	n, err := r.w.Narrow(context.Background(), func() ([]ids.Project, error) {
		c, err := make(r.g.Registry())
		if err == nil {
			err = r.g.Apply(c)
		}
		return []ids.Project{id[ids.Project](project)}, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// event changes something a test may wait for.
func (r *rig) event(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
	close(r.more)
	r.more = make(chan struct{})
}

// await waits until cond, which is asked with r.mu held.
func (r *rig) await(what string, cond func() bool) {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		ok, more := cond(), r.more
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-r.ended:
			r.t.Fatalf("waiting for %s: the loop ended: %v", what, r.err)
		case <-late:
			r.t.Fatalf("waiting for %s: nothing\n%s", what, r.log)
		}
	}
}

// say sends one message of posternd.
func (r *rig) say(m order.Down, fds ...int) {
	b, err := order.EncodeDown(m)
	if err != nil {
		panic(err)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	unix.Sendmsg(r.fd, b, oob, nil, unix.MSG_NOSIGNAL)
	closeAll(fds)
}

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
	fences    []uint64
	toldAt    map[ids.Call]time.Time // when an admission was heard, where a test asks for it
	heard     []wire.Down
	pipes     []int
	stopped   bool
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
		m, err := wire.DecodeDown(buf[:n])
		if err != nil {
			b.r.t.Errorf("the authority said %q: %v", buf[:n], err)
			return
		}
		if least, most := wire.Descriptors(m); len(fds) < least || len(fds) > most {
			b.r.t.Errorf("%T came with %d descriptors", m, len(fds))
		}
		b.hear(m, fds)
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
			b.changed++
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

// question sends what ask makes with a fresh number and waits for the answer; nil
// where the wire was closed instead.
func (b *bridge) question(conn ids.Connection, ask func(seq uint64) wire.Up) wire.Down {
	ch := make(chan wire.Down, 1)
	var seq uint64
	b.r.mu.Lock()
	b.seq++
	seq = b.seq
	b.answers[seq] = asking{ch, conn}
	b.r.mu.Unlock()
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
	m := b.question("", func(seq uint64) wire.Up {
		return wire.Admit{Seq: seq, Session: s, Connection: c, Instance: inst, Tool: tool, Digest: aDigest, Size: 2, RequestID: "1"}
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
	b.r.mu.Lock()
	in, ok := b.instances[c]
	b.r.mu.Unlock()
	if ok {
		return in.Instance, ""
	}
	m := b.question(c, func(seq uint64) wire.Up {
		return wire.Start{Seq: seq, Session: s, Connection: c, Tool: tool, RequestID: "1"}
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

// socket makes a project's listening socket and hands it over.
func (r *rig) socket(project int) string {
	r.t.Helper()
	path := filepath.Join(r.dir, fmt.Sprintf("p%d-%d", project, time.Now().UnixNano()%1e9))
	fd := listening(r.t, path)
	r.say(order.ProjectSocket{Project: id[ids.Project](project)}, fd)
	return path
}

func listening(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 512)
	}
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// dialAs connects as another user: the kernel notes the thread's user, nothing else.
func dialAs(path string, uid uint32) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return nil, errno
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		for {
			if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.EINTR && err != unix.EAGAIN {
				break
			}
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		panic(errno) // this thread is another user's for good
	}
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "client"), nil
}

// client is one connection to a project socket.
type client struct {
	f  *os.File
	in *bufio.Reader
}

func (r *rig) dial(path string, uid uint32) *client {
	r.t.Helper()
	f, err := dialAs(path, uid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	return &client{f, bufio.NewReader(f)}
}

// line reads one line; "" where the connection was closed.
func (c *client) line() string {
	c.f.SetReadDeadline(time.Now().Add(patience))
	s, _ := c.in.ReadString('\n')
	return strings.TrimSuffix(s, "\n")
}

const bindPlain = "{\"postern\":{\"bind\":1}}\n"

func bindWith(tok string) string {
	return fmt.Sprintf("{\"postern\":{\"bind\":1,\"token\":%q}}\n", tok)
}

// bind connects, binds and returns the session; "" with the line where it was refused.
func (r *rig) bind(path string, uid uint32, line string) (*client, ids.Session, string) {
	r.t.Helper()
	c := r.dial(path, uid)
	fmt.Fprint(c.f, line)
	got := c.line()
	session, ok := strings.CutPrefix(got, `{"postern":{"session":"`)
	if !ok {
		return c, "", got
	}
	return c, ids.Session(strings.TrimSuffix(session, `"}}`)), got
}

// session binds alice in a project and returns her bridge and session.
func (r *rig) session(path string, project int) (*bridge, ids.Session) {
	r.t.Helper()
	_, s, line := r.bind(path, aliceUID, bindPlain)
	if s == "" {
		r.t.Fatalf("bind: %s\n%s", line, r.log)
	}
	return r.bridgeOf(project), s
}

// bridgeOf is the living bridge of a project.
func (r *rig) bridgeOf(project int) *bridge {
	r.t.Helper()
	var b *bridge
	r.await("a bridge", func() bool {
		for _, x := range r.bridges {
			if x.key.Project == id[ids.Project](project) && !x.stopped && !r.jails[x.jail].gone {
				b = x
			}
		}
		return b != nil
	})
	return b
}

// task makes a task of alice by the host, and mint a token for it.
func (r *rig) task(project int) ids.Task {
	r.t.Helper()
	a := id[ids.Account](alice)
	t := registry.Task{ID: fresh[ids.Task](), Account: a, Host: "agent", Project: id[ids.Project](project), Principal: access.Local(a), Mode: policy.ModeCode, Created: 1}
	r.change(func(reg *registry.Registry) (registry.Change, error) { return reg.NewTask(t) })
	return t.ID
}

func (r *rig) mint(task ids.Task, uid uint32, binds int) string {
	r.t.Helper()
	var secret [32]byte
	rand.Read(secret[:])
	tok := token.New(secret)
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.MintToken(tok.Digest(), token.Binding{Task: task, Project: reg.Task(task).Project, UID: uid, Binds: binds, TTL: time.Minute,
			Minted: token.Instant{Wall: time.Now(), Boot: time.Hour, ID: "boot"}})
	})
	return tok.Secret()
}

// record waits until a call's record stands at a state.
func (r *rig) record(c ids.Call, want store.State) store.Call {
	r.t.Helper()
	late := time.Now().Add(patience)
	for {
		next := r.g.Bell().Next()
		p, err := r.s.Calls(store.Query{})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, x := range p.Calls {
			if x.ID == c && x.State == want {
				return x
			}
		}
		select {
		case <-next:
		case <-time.After(time.Until(late)):
			r.t.Fatalf("the record of %s is not %s\n%s", c, want, r.log)
		}
	}
}
