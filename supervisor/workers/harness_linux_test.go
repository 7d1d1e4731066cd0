package workers

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/artifact"
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
	catalogueText    = `[{"name":"read_rows","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"list_dir","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`
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

// everyone admits the accounts of the tests: owners in mode code, and bob as a user
// who has no ceiling.
func everyone() *access.Policy {
	p, wrong := access.Parse(fmt.Appendf(nil, "channels:\n  local:\n    default_mode: code\n    owners: [%q]\n    allow: [%q]\n",
		id[ids.Account](alice), id[ids.Account](bob)))
	if len(wrong) > 0 {
		panic(wrong[0])
	}
	return p
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
		Servers: map[ids.Server]registry.RootServer{}, Hosts: map[string]registry.RootHost{}, Access: everyone()}
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
	keeper *artifact.Keeper
	t      testing.TB
	w      *Workers
	g      *gate.Gate
	s      *store.Store
	dir    string
	log    *logged
	conn   [3]ids.Connection // by project: its connection to files

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
	onResolve  func(order.Resolve) order.Resolved  // its Code held: no answer yet
	onFetch    func(order.Fetch) (raw, why string) // why: held: no answer yet
	setUp      func(*bridge)                       // before its first message
	unkillable map[ids.Jail]bool
	seqs       map[string]uint64 // of held orders
}

const held refusal.Code = "held by the test"

type jail struct {
	end  func() // closes what it holds
	gone bool
}

type logged struct {
	mu    sync.Mutex
	b     strings.Builder
	wrote func() // after each line
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.b.Write(p)
	l.mu.Unlock()
	l.wrote()
	return len(p), nil
}

func (l *logged) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

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
	keeper, err := artifact.Open(state, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: s, keeper: keeper, dir: dir, log: &logged{}, ended: make(chan struct{}), more: make(chan struct{}), jails: map[ids.Jail]*jail{}, roots: map[uint64]*registry.Root{},
		unkillable: map[ids.Jail]bool{}, seqs: map[string]uint64{}}
	r.log.wrote = func() { r.event(func() {}) }
	r.g = gate.New(gate.Config{Audit: func(gate.Actor, gate.Note) error { return nil }, Registry: reg, Store: s, Artifacts: keeper, Now: time.Now, Random: func(b []byte) { rand.Read(b) },
		Instant: func() token.Instant { return token.Instant{Wall: time.Now(), Boot: time.Hour, ID: "boot"} }})
	r.apply(reg.AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member))
	pins, err := gate.Pins([]byte(catalogueText), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{files, slow} {
		r.apply(reg.PutCatalogue(id[ids.Revision](n), time.Now(), "", "", pins))
	}
	for _, n := range []int{shop, blog} {
		r.conn[n] = r.addConnection(n, files)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.fd = pair[1]
	r.w, err = New(Config{Gate: r.g, Artifacts: keeper, Orders: pair[0], Log: hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Debug}),
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
	keeping := make(chan struct{})
	go func() { keeper.Run(ctx); close(keeping) }()
	served := make(chan struct{})
	go func() { r.serve(); close(served) }()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		<-keeping
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
	r.apply(r.grantChange(c, "read_rows", "list_dir"))
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
