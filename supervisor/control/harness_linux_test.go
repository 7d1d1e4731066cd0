package control

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
	"postern/supervisor/api"
	"postern/supervisor/artifact"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
	"postern/supervisor/workers"
)

// patience bounds every wait of a test; an event that comes ends the wait.
const patience = 20 * time.Second

// The users of every test, by what they are to the project shop.
const (
	root     = 0
	owner    = 61001 // alice
	member   = 61002 // bob
	viewer   = 61003 // vera
	other    = 61004 // otto: an account without a role
	host     = 62000 // agent
	stranger = 61009 // no account
)

var roles = []struct {
	name string
	uid  uint32
}{{"root", root}, {"owner", owner}, {"member", member}, {"viewer", viewer}, {"other", other}, {"host", host}, {"stranger", stranger}}

// everyone admits the accounts of the tests: owners in mode code, and bob as a user
// who has no ceiling.
func everyone() *access.Policy {
	p, wrong := access.Parse(fmt.Appendf(nil, "channels:\n  local:\n    default_mode: code\n    owners: [%q, %q, %q]\n    allow: [%q]\n  whatsapp:\n    access:\n      users: {\"+5511999998888\": {level: read}, \"+5511777776666\": {blocked: true}}\n",
		id[ids.Account](alice), id[ids.Account](vera), id[ids.Account](otto), id[ids.Account](bob)))
	if len(wrong) > 0 {
		panic(wrong[0])
	}
	return p
}

const (
	alice, bob, vera, otto = 1, 2, 3, 4
	shop, blog             = 1, 2
	files, notes           = 1, 2
	catalogueText          = `[{"name":"read_rows","title":"Read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"write_rows","inputSchema":{"type":"object"}},{"name":"odd","inputSchema":7}]`
)

func id[T ids.ID](n int) T {
	var r [10]byte
	binary.BigEndian.PutUint32(r[6:], uint32(n))
	return ids.New[T](time.UnixMilli(1_790_000_000_000), r)
}

func fresh[T ids.ID]() T { return ids.New[T](time.Now(), random()) }

func facts() *registry.Root {
	r := &registry.Root{Version: 1, Accounts: map[ids.Account]registry.RootAccount{}, Projects: map[ids.Project]registry.RootProject{},
		Servers: map[ids.Server]registry.RootServer{}, Hosts: map[string]registry.RootHost{}, Access: everyone(), FirstUID: 1_800_000_000, UIDs: 64}
	for n, name := range []string{"", "alice", "bob", "vera", "otto"} {
		if n > 0 {
			r.Accounts[id[ids.Account](n)] = registry.RootAccount{ID: id[ids.Account](n), Name: name, UIDs: []uint32{uint32(61000 + n)}}
		}
	}
	for n, label := range []string{"", "shop", "blog"} {
		if n > 0 {
			r.Projects[id[ids.Project](n)] = registry.RootProject{ID: id[ids.Project](n), Label: label, Owner: id[ids.Account](alice), ExecutionProfile: policy.ProfileStandard, PersonBind: true}
		}
	}
	for n, label := range []string{"", "files", "notes"} {
		if n > 0 {
			rev := &registry.RootRevision{ID: id[ids.Revision](n), Profile: "node", Start: 5 * time.Second, Classes: map[string]class.Set{}, Tiers: map[string]class.Tier{}}
			r.Servers[id[ids.Server](n)] = registry.RootServer{ID: id[ids.Server](n), Label: label, Current: rev.ID, Revisions: map[ids.Revision]*registry.RootRevision{rev.ID: rev}}
		}
	}
	r.Hosts["agent"] = registry.RootHost{ID: "agent", UID: host, AllProjects: true, Channels: []string{"whatsapp", "mail"}, Accounts: map[ids.Account]bool{id[ids.Account](alice): true, id[ids.Account](bob): true}}
	return r
}

// rig is the server of control.sock over the real loop, with this test as posternd.
type rig struct {
	keeper *artifact.Keeper
	t      testing.TB
	g      *gate.Gate
	w      *workers.Workers
	s      *store.Store
	dir    string
	sock   string
	log    *logged
	conn   ids.Connection // shop's to files
	ended  chan struct{}

	fd       int
	mu       sync.Mutex
	more     chan struct{}
	orders   []order.Up
	bridges  []*bridge
	ends     map[ids.Jail]func()
	noFile   refusal.Code // refuses token files
	audited  []gate.Actor // of each change; read on the loop
	notes    []gate.Note  // what each record says
	onFence  func()       // what happens between a fence and its answer
	list     string       // what bridges report of a started server
	booted   atomic.Int64 // the clock since the boot
	replaced atomic.Bool  // the project's directory is not the registered one
}

type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logged) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func newRig(t testing.TB) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test asks as several users and needs root")
		}
		t.Skip("this test asks as several users and needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "pc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o711)
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	reg.SetRoot(facts())
	keeper, err := artifact.Open(filepath.Join(dir, "state"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: s, keeper: keeper, dir: dir, sock: filepath.Join(dir, "control.sock"), log: &logged{}, ended: make(chan struct{}), more: make(chan struct{}), ends: map[ids.Jail]func(){}, list: catalogueText}
	r.booted.Store(int64(time.Hour))
	instant := func() token.Instant {
		return token.Instant{Wall: time.Now(), Boot: time.Duration(r.booted.Load()), ID: "boot"}
	}
	r.g = gate.New(gate.Config{Audit: func(who gate.Actor, n gate.Note) error {
		r.audited, r.notes = append(r.audited, who), append(r.notes, n)
		return nil
	}, Registry: reg, Store: s, Artifacts: keeper, Now: time.Now, Random: func(b []byte) { rand.Read(b) }, Instant: instant})
	apply := func(c registry.Change, err error) {
		t.Helper()
		if err == nil {
			err = r.g.Apply(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply(reg.AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member))
	apply(reg.AddMember(id[ids.Project](shop), id[ids.Account](vera), registry.Viewer))
	pins, err := gate.Pins([]byte(catalogueText), nil)
	if err != nil {
		t.Fatal(err)
	}
	apply(reg.PutCatalogue(id[ids.Revision](files), time.Now(), "", "", pins))
	r.conn = id[ids.Connection](1)
	apply(reg.AddConnection(r.conn, id[ids.Project](shop), id[ids.Server](files), registry.Keyless, time.Now()))
	apply(reg.Grant(registry.Granting{Connection: r.conn, Tools: []string{"read_rows"}, By: "root", IDs: []ids.Grant{id[ids.Grant](1)}, Now: time.Now()}))

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.fd = pair[1]
	log := hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Debug})
	r.w, err = workers.New(workers.Config{Gate: r.g, Orders: pair[0], Log: log, Artifacts: keeper, Facts: func(order.Root) error { return errors.New("no facts here") }, Control: func(int) {}})
	if err != nil {
		t.Fatal(err)
	}
	srv := New(Config{Gate: r.g, Workers: r.w, Store: s, Artifacts: keeper, Bell: r.g.Bell(), Version: "test", Now: time.Now, Instant: instant, Log: log})
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.sock})
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(r.sock, 0o666)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.w.Run(ctx); close(r.ended) })
	all.Go(func() {
		if err := srv.Serve(ctx, ln); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	all.Go(r.posternd)
	all.Go(func() { keeper.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		unix.Shutdown(r.fd, unix.SHUT_RDWR)
		all.Wait()
		unix.Close(r.fd)
		for _, end := range r.ends {
			end()
		}
		s.Close()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// on runs fn on the loop.
func (r *rig) on(fn func()) {
	r.t.Helper()
	if err := r.w.Do(context.Background(), fn); err != nil {
		r.t.Fatal(err)
	}
}

// stored is everything that policy.db holds, as one text.
func (r *rig) stored() (text string) {
	r.on(func() {
		p, err := r.s.Policy()
		if err != nil {
			r.t.Error(err)
		}
		text = fmt.Sprintf("%+v", p)
	})
	return text
}

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
		case <-late:
			r.t.Fatalf("waiting for %s: nothing\n%s", what, r.log)
		}
	}
}

// settled waits for a state of the loop.
func (r *rig) settled(what string, cond func() bool) {
	r.t.Helper()
	for late := time.Now().Add(patience); ; {
		ok := false
		r.on(func() { ok = cond() })
		if ok {
			return
		}
		if time.Now().After(late) {
			r.t.Fatalf("%s: not yet\n%s", what, r.log)
		}
	}
}

func (r *rig) say(m order.Down, fds ...int) {
	b, err := order.EncodeDown(m)
	if err != nil {
		panic(err)
	}
	unix.Sendmsg(r.fd, b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// posternd obeys each order at once.
func (r *rig) posternd() {
	buf := make([]byte, order.MaxMessage)
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
			r.t.Errorf("%q: %v", buf[:n], err)
			return
		}
		r.event(func() { r.orders = append(r.orders, m) })
		switch m := m.(type) {
		case order.LaunchBridge:
			b, theirs := r.bridge(m.Project)
			r.say(order.Launched{Seq: m.Seq, Jail: b.jail}, theirs)
			go b.listen()
		case order.LaunchServer:
			jail, fds := r.server()
			r.say(order.Launched{Seq: m.Seq, Jail: jail}, fds...)
		case order.LaunchProbe:
			b, theirs := r.bridge("")
			jail, fds := r.server()
			r.say(order.Launched{Seq: m.Seq, Jail: jail, Bridge: b.jail}, append([]int{theirs}, fds...)...)
			go b.listen()
		case order.Stop:
			r.mu.Lock()
			end := r.ends[m.Jail]
			delete(r.ends, m.Jail)
			r.mu.Unlock()
			if end != nil {
				end()
				r.say(order.Exited{Jail: m.Jail, Signal: 9})
			}
		case order.TokenFile:
			f, err := os.OpenFile(filepath.Join(r.dir, string(m.Task)), os.O_CREATE|os.O_RDWR, 0o600)
			if r.noFile != "" || err != nil {
				r.say(order.Done{Seq: m.Seq, Code: r.noFile})
				continue
			}
			fd, _ := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
			f.Close()
			r.say(order.TokenFileIs{Seq: m.Seq, Path: f.Name()}, fd)
		case order.Resolve:
			out := order.Resolved{Seq: m.Seq, Inside: true}
			for i, p := range m.Paths {
				if out.Inside && !(m.OfHost && strings.HasPrefix(p, "/srv/shop/") && !strings.Contains(p, "..")) {
					out.Inside, out.Which, out.Text = false, i, "it leads out of the directory"
				}
			}
			if r.replaced.Load() {
				r.say(order.Resolved{Seq: m.Seq, Code: refusal.ProjectReplaced})
				continue
			}
			r.say(out)
		case order.Retire:
			r.say(order.Done{Seq: m.Seq})
		case order.StatJails:
			var rows []order.JailRow
			r.mu.Lock()
			for _, b := range r.bridges {
				rows = append(rows, order.JailRow{Jail: b.jail, Kind: "bridge", Project: b.project})
			}
			r.mu.Unlock()
			r.say(order.Stats{Seq: m.Seq, Rows: rows, Last: true})
		}
	}
}

func (r *rig) server() (ids.Jail, []int) {
	jail := fresh[ids.Jail]()
	var theirs, mine []int
	for range 3 {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			panic(err)
		}
		theirs, mine = append(theirs, p[0]), append(mine, p[1])
	}
	r.event(func() {
		r.ends[jail] = func() {
			for _, fd := range mine {
				unix.Close(fd)
			}
		}
	})
	return jail, theirs
}

// bridge plays a bridge: it says Hello, lists what it is told, and answers fences.
type bridge struct {
	r       *rig
	project ids.Project
	jail    ids.Jail
	fd      int
	sending sync.Mutex

	// Guarded by r.mu.
	sessions map[ids.Session]*os.File
	started  map[ids.Connection]wire.Started
	answers  map[uint64]wire.Down
	cancels  []wire.Cancel
	said     []wire.Stderr // what it tells of its servers' stderr
	silent   bool          // it tells nothing of it
}

func (r *rig) bridge(p ids.Project) (*bridge, int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	b := &bridge{r: r, project: p, jail: fresh[ids.Jail](), fd: pair[1], sessions: map[ids.Session]*os.File{}, started: map[ids.Connection]wire.Started{}, answers: map[uint64]wire.Down{}}
	r.event(func() {
		r.bridges = append(r.bridges, b)
		r.ends[b.jail] = func() { unix.Shutdown(b.fd, unix.SHUT_RDWR) }
	})
	return b, pair[0]
}

func (b *bridge) send(m wire.Up) {
	raw, err := wire.EncodeUp(nil, m)
	if err != nil {
		panic(err)
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	unix.Sendmsg(b.fd, raw, nil, nil, unix.MSG_NOSIGNAL)
}

func (b *bridge) listen() {
	b.send(wire.Hello{Version: "test"})
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(16))
	for {
		n, oobn, _, _, err := unix.Recvmsg(b.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var fds []int
		msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for _, c := range msgs {
			got, _ := unix.ParseUnixRights(&c)
			fds = append(fds, got...)
		}
		for one, rest := wire.Cut(buf[:n]); one != nil; one, rest = wire.Cut(rest) {
			m, err := wire.DecodeDown(one)
			if err != nil {
				b.r.t.Error(err)
				return
			}
			b.hear(m, fds)
		}
	}
}

func (b *bridge) hear(m wire.Down, fds []int) {
	switch m := m.(type) {
	case wire.Session:
		f := os.NewFile(uintptr(fds[0]), "session")
		fmt.Fprintf(f, "{\"postern\":{\"session\":%q}}\n", m.Session)
		b.r.event(func() { b.sessions[m.Session] = f })
	case wire.SessionEnd:
		b.r.event(func() { b.sessions[m.Session].Close(); delete(b.sessions, m.Session) })
		b.send(wire.SessionEnded{Session: m.Session, Reason: "told to"})
	case wire.Started:
		for _, fd := range fds {
			unix.Close(fd)
		}
		b.send(wire.Catalogue{Connection: m.Connection, Instance: m.Instance, Last: true, Data: []byte(b.r.list)})
		b.r.event(func() { b.started[m.Connection] = m })
	case wire.Cancel:
		b.r.event(func() { b.cancels = append(b.cancels, m) })
	case wire.Fence:
		b.r.mu.Lock()
		before := b.r.onFence
		b.r.mu.Unlock()
		if before != nil {
			before()
		}
		b.send(wire.Fenced{N: m.N})
	case wire.ReadStderr:
		b.r.mu.Lock()
		pieces, silent := b.said, b.silent
		b.r.mu.Unlock()
		if silent {
			return
		}
		for _, p := range pieces {
			p.Seq = m.Seq
			b.send(p)
		}
		b.send(wire.Stderr{Seq: m.Seq, Last: true})
	case wire.Admitted:
		b.r.event(func() { b.answers[m.Seq] = m })
	case wire.Refused:
		b.r.event(func() { b.answers[m.Seq] = m })
	}
}

// admit asks for one call.
func (b *bridge) admit(s ids.Session, c ids.Connection, tool string) (ids.Call, refusal.Code) {
	b.r.t.Helper()
	b.r.mu.Lock()
	seq := uint64(len(b.answers) + 1000)
	in := b.started[c]
	b.r.mu.Unlock()
	b.send(wire.Admit{Seq: seq, Session: s, Connection: c, Instance: in.Instance, Tool: tool, Digest: strings.Repeat("ab", 32), Size: 2, RequestID: "1"})
	b.r.await("an answer", func() bool { return b.answers[seq] != nil })
	switch m := b.answers[seq].(type) {
	case wire.Admitted:
		return m.Call, ""
	case wire.Refused:
		return "", m.Code
	}
	return "", ""
}

// session binds a user in shop, starts its server, and returns bridge and session.
func (r *rig) session(uid uint32, tok string) (*bridge, ids.Session) {
	r.t.Helper()
	path := filepath.Join(r.dir, fmt.Sprint("p", time.Now().UnixNano()))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 16), os.Chmod(path, 0o666))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.say(order.ProjectSocket{Project: id[ids.Project](shop)}, fd)
	c := dialAs(r.t, path, uid)
	r.t.Cleanup(func() { c.Close() })
	line := "{\"postern\":{\"bind\":1}}\n"
	if tok != "" {
		line = fmt.Sprintf("{\"postern\":{\"bind\":1,\"token\":%q}}\n", tok)
	}
	fmt.Fprint(c, line)
	c.SetReadDeadline(time.Now().Add(patience))
	got, _ := bufio.NewReader(c).ReadString('\n')
	s, ok := strings.CutPrefix(strings.TrimSuffix(got, "\"}}\n"), `{"postern":{"session":"`)
	if !ok {
		r.t.Fatalf("bind: %s\n%s", got, r.log)
	}
	var b *bridge
	r.await("its bridge", func() bool {
		for _, x := range r.bridges {
			if x.sessions[ids.Session(s)] != nil {
				b = x
			}
		}
		return b != nil
	})
	r.mu.Lock()
	_, has := b.started[r.conn]
	r.mu.Unlock()
	if !has {
		b.send(wire.Start{Seq: 1, Session: ids.Session(s), Connection: r.conn, Tool: "read_rows"})
	}
	r.await("its server", func() bool { return b.started[r.conn].Instance != "" })
	return b, ids.Session(s)
}

// dialAs connects as another user: the kernel notes the thread's user, nothing else.
func dialAs(t testing.TB, path string, uid uint32) *net.UnixConn {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		t.Fatal(errno)
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
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// client is one connection to control.sock.
type client struct {
	t    testing.TB
	c    *net.UnixConn
	in   *bufio.Reader
	last uint64
}

func (r *rig) as(uid uint32) *client {
	r.t.Helper()
	c := dialAs(r.t, r.sock, uid)
	r.t.Cleanup(func() { c.Close() })
	return &client{t: r.t, c: c, in: bufio.NewReaderSize(c, api.MaxLine+1)}
}

// line sends text and reads one answer; false where the connection was closed.
func (c *client) line(text string) (api.Response, bool) {
	c.t.Helper()
	c.c.SetDeadline(time.Now().Add(patience))
	c.c.Write([]byte(text))
	return c.read()
}

func (c *client) read() (api.Response, bool) {
	c.t.Helper()
	c.c.SetDeadline(time.Now().Add(patience))
	raw, err := c.in.ReadBytes('\n')
	if err != nil {
		return api.Response{}, false
	}
	resp, err := api.DecodeResponse(raw[:len(raw)-1])
	if err != nil {
		c.t.Fatalf("%q: %v", raw, err)
	}
	return resp, true
}

type option func(*api.Request)

func dry(q *api.Request) { q.DryRun = true }

func at(v uint64) option { return func(q *api.Request) { q.At = v } }

// ask sends a request and returns its answer; events are passed over.
func (c *client) ask(a api.Action, params any, opts ...option) (raw []byte, code refusal.Code) {
	c.t.Helper()
	c.last++
	p, err := api.EncodeValue(params)
	if err != nil {
		c.t.Fatal(err)
	}
	q := api.Request{ID: c.last, Action: a, Params: p}
	for _, o := range opts {
		o(&q)
	}
	line, err := api.Encode(q)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, ok := c.line(string(line))
	for ok && resp.Event != nil {
		resp, ok = c.read()
	}
	switch {
	case !ok:
		return nil, "closed"
	case resp.ID != c.last:
		c.t.Fatalf("answer %d to request %d", resp.ID, c.last)
	case resp.Refusal != nil:
		return []byte(resp.Refusal.Detail), resp.Refusal.Code
	}
	return resp.Result, ""
}

// must asks what has to work.
func must[R any](c *client, a api.Action, params any, opts ...option) R {
	c.t.Helper()
	raw, code := c.ask(a, params, opts...)
	if code != "" {
		c.t.Fatalf("%s: %q %s", a, string(code), raw)
	}
	out, err := api.DecodeResult[R](raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}
