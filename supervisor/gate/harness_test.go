package gate

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

var epoch = time.UnixMilli(1_790_000_000_000)

// id makes the n-th id of a kind.
func id[T ids.ID](n int) T {
	var r [10]byte
	binary.BigEndian.PutUint32(r[6:], uint32(n))
	return ids.New[T](epoch, r)
}

const (
	alice, bob, carol = 1, 2, 3
	shop, blog        = 1, 2
	files, notes      = 1, 2
	aliceUID, bobUID  = 1001, 1002
	hostUID           = 2000
)

// The catalogue of both servers. The fifth is malformed and quarantined alone.
const catalogue = `[
 {"name":"read_rows","description":"reads  \u003cb\u003e","inputSchema":{"type":"object","x":1e400},"annotations":{"readOnlyHint":true}},
 {"name":"list_dir","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
 {"name":"write_rows","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},
 {"name":"run_it","inputSchema":{"type":"object"}},
 {"name":"odd","inputSchema":"object"}
]`

// facts are the root facts of every test: alice owns shop and blog, bob may be a
// member, the host agent serves both in every project.
func facts() *registry.Root {
	rev := func(n int) *registry.RootRevision {
		return &registry.RootRevision{ID: id[ids.Revision](n), Profile: "node", Classes: map[string]class.Set{"run_it": class.SetOf(class.ProcessExecute)},
			Tiers: map[string]class.Tier{"run_it": class.Reversible}}
	}
	root := &registry.Root{Version: 1, Accounts: map[ids.Account]registry.RootAccount{}, Projects: map[ids.Project]registry.RootProject{},
		Servers: map[ids.Server]registry.RootServer{}, Hosts: map[string]registry.RootHost{}, Assigned: map[registry.Assignment]registry.Credential{}, Access: everyone()}
	for n, name := range []string{"", "alice", "bob", "carol"} {
		if n > 0 {
			root.Accounts[id[ids.Account](n)] = registry.RootAccount{ID: id[ids.Account](n), Name: name, UIDs: []uint32{uint32(1000 + n)}}
		}
	}
	for n, label := range []string{"", "shop", "blog"} {
		if n > 0 {
			p := id[ids.Project](n)
			root.Projects[p] = registry.RootProject{ID: p, Label: label, Owner: id[ids.Account](alice), ExecutionProfile: policy.ProfileStandard}
		}
	}
	for n, label := range []string{"", "files", "notes"} {
		if n > 0 {
			s := id[ids.Server](n)
			root.Servers[s] = registry.RootServer{ID: s, Label: label, Current: id[ids.Revision](n), Revisions: map[ids.Revision]*registry.RootRevision{id[ids.Revision](n): rev(n)}}
		}
	}
	root.Hosts["agent"] = registry.RootHost{ID: "agent", UID: hostUID, AllProjects: true, Channels: []string{"whatsapp"}, Accounts: map[ids.Account]bool{id[ids.Account](alice): true, id[ids.Account](bob): true}}
	return root
}

// everyone admits the accounts of the tests: owners in mode code, and bob as a user
// who has no ceiling.
func everyone() *access.Policy {
	p, wrong := access.Parse(fmt.Appendf(nil, "channels:\n  local:\n    default_mode: code\n    owners: [%q, %q]\n    allow: [%q]\n",
		id[ids.Account](alice), id[ids.Account](carol), id[ids.Account](bob)))
	if len(wrong) > 0 {
		panic(wrong[0])
	}
	return p
}

// world is a gate over a store.
type world struct {
	t     testing.TB
	g     *Gate
	s     *store.Store
	now   time.Time
	boot  time.Duration
	bootN string
	next  int

	conn ids.Connection // shop's connection to files
	task ids.Task       // alice's in shop, by the host
	ses  ids.Session    // bound to it

	ready string // a token that was minted before the store fails
}

var shopSet = Set{id[ids.Project](shop), onlySet}

func openStore(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newWorld has everything in order: read_rows and list_dir of files are granted to
// shop, and alice has a session there.
func newWorld(t testing.TB) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return worldOver(t, openStore(t, dir))
}

// memoryWorld is the same over a store in memory.
func memoryWorld(t testing.TB) *world {
	t.Helper()
	s, err := store.UnsafeOpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return worldOver(t, s)
}

func worldOver(t testing.TB, s *store.Store) *world {
	t.Helper()
	r, err := registry.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	r.SetRoot(facts())
	w := &world{t: t, s: s, now: epoch, boot: time.Hour, bootN: "boot", next: 100}
	w.g = New(Config{Audit: unrecorded, Registry: r, Store: s, Now: func() time.Time { return w.now }, Random: func(b []byte) { rand.Read(b) },
		Instant: func() token.Instant { return token.Instant{Wall: w.now, Boot: w.boot, ID: w.bootN} }})
	w.probe(files, catalogue)
	w.probe(notes, catalogue)
	w.conn = w.connect(shop, files)
	w.grant(w.conn, class.Unmarked, "read_rows", "list_dir")
	w.task = w.newTask(alice, shop)
	w.ses = w.bind(w.task)
	return w
}

func (w *world) n() int { w.next++; return w.next }

func (w *world) reg() *registry.Registry { return w.g.Registry() }

// do applies a change as the loop would.
func (w *world) do(c registry.Change, err error) {
	w.t.Helper()
	if err == nil {
		err = w.g.Apply(c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) probe(server int, raw string) {
	w.t.Helper()
	pins, err := Pins([]byte(raw), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.do(w.reg().PutCatalogue(id[ids.Revision](server), w.now, "", "", pins))
}

func (w *world) connect(project, server int) ids.Connection {
	w.t.Helper()
	c := id[ids.Connection](w.n())
	w.do(w.reg().AddConnection(c, id[ids.Project](project), id[ids.Server](server), registry.Keyless, w.now.Add(time.Duration(w.next)*time.Millisecond)))
	return c
}

func (w *world) grant(c ids.Connection, tier class.Tier, tools ...string) {
	w.t.Helper()
	gs := make([]ids.Grant, len(tools))
	for i := range gs {
		gs[i] = id[ids.Grant](w.n())
	}
	w.do(w.reg().Grant(registry.Granting{Connection: c, Tools: tools, Tier: tier, By: "root", IDs: gs, Now: w.now}))
}

func (w *world) newTask(account, project int) ids.Task {
	w.t.Helper()
	a := id[ids.Account](account)
	t := registry.Task{ID: id[ids.Task](w.n()), Account: a, Host: "agent", Project: id[ids.Project](project), Principal: access.Local(a), Mode: policy.ModeCode, Created: w.now.UnixMilli()}
	w.do(w.reg().NewTask(t))
	return t.ID
}

// mint returns a token's text for a task.
func (w *world) mint(task ids.Task, uid uint32, binds int, ttl time.Duration) string {
	w.t.Helper()
	var secret [32]byte
	binary.BigEndian.PutUint32(secret[:], uint32(w.n()))
	tok := token.New(secret)
	w.do(w.reg().MintToken(tok.Digest(), token.Binding{Task: task, Project: w.reg().Task(task).Project, UID: uid, Binds: binds, TTL: ttl, Minted: w.g.instant()}))
	return tok.Secret()
}

func (w *world) bind(task ids.Task) ids.Session {
	w.t.Helper()
	b, code := w.g.Bind(BindRequest{Project: w.reg().Task(task).Project, UID: aliceUID, Token: w.mint(task, aliceUID, 1, time.Minute)})
	if code != "" {
		w.t.Fatalf("bind: %s", code)
	}
	return b.Session
}

// root changes a copy of the root facts and lets them decide, without ending what
// they no longer hold: that is how one factor is taken away alone.
func (w *world) root(change func(*registry.Root)) {
	w.reg().SetRoot(edited(w.reg().Root(), change))
}

// edited is a copy of root facts, changed.
func edited(r *registry.Root, change func(*registry.Root)) *registry.Root {
	c := *r
	c.Accounts, c.Projects, c.Servers, c.Hosts, c.Assigned = maps.Clone(r.Accounts), maps.Clone(r.Projects), maps.Clone(r.Servers), maps.Clone(r.Hosts), maps.Clone(r.Assigned)
	for k, s := range c.Servers {
		s.Revisions = maps.Clone(s.Revisions)
		for n, rev := range s.Revisions {
			own := *rev
			own.Classes, own.Tiers = maps.Clone(rev.Classes), maps.Clone(rev.Tiers)
			s.Revisions[n] = &own
		}
		c.Servers[k] = s
	}
	change(&c)
	return &c
}

func (w *world) ask(ses ids.Session, conn ids.Connection, tool string) Decision {
	return w.g.Admit(shopSet, wire.Admit{Session: ses, Connection: conn, Tool: tool, RequestID: "7", Digest: strings.Repeat("ab", 32), Size: 2}, w.running(conn), Seen{})
}

// running is the revision of the instance a bridge would name: the accepted one.
func (w *world) running(conn ids.Connection) ids.Revision {
	if c := w.reg().Connection(conn); c != nil {
		return c.Accepted
	}
	return ""
}

// call asks for read_rows as alice.
func (w *world) call() Decision { return w.ask(w.ses, w.conn, "read_rows") }

// admitted checks that a call is admitted and makes it durable.
func (w *world) admitted(says string, d Decision) ids.Call {
	w.t.Helper()
	if d.Code != "" || d.Call == "" || d.Limit <= 0 {
		w.t.Fatalf("%s: %+v, want an admission", says, d)
	}
	w.commit()
	return d.Call
}

// refused checks that a call is refused by a code, and opens nothing.
func (w *world) refused(says string, d Decision, want refusal.Code) {
	w.t.Helper()
	if d.Code != want || d.Call != "" || d.Limit != 0 {
		w.t.Fatalf("%s: %+v, want %q", says, d, string(want))
	}
}

// commit commits at once.
func (w *world) commit() {
	w.t.Helper()
	if err := w.g.flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ended(c ids.Call, o wire.Outcome) {
	w.t.Helper()
	if err := w.g.Ended(shopSet, wire.Ended{Call: c, Outcome: o, Size: 3, Micros: 4}); err != nil {
		w.t.Fatal(err)
	}
}

// records reads what is durable, newest first.
func (w *world) records() []store.Call {
	w.t.Helper()
	p, err := w.s.Calls(store.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Calls
}

// record returns one call's durable record.
func (w *world) record(c ids.Call) store.Call {
	w.t.Helper()
	for _, r := range w.records() {
		if r.ID == c {
			return r
		}
	}
	w.t.Fatalf("there is no record of %s", c)
	return store.Call{}
}

// denials counts the denials of a code that are durable.
func (w *world) denials(code refusal.Code) (n int) {
	w.t.Helper()
	w.commit()
	for _, r := range w.records() {
		if r.State == store.Denied && r.Code == code {
			n += int(r.Count)
		}
	}
	return n
}

// stored is everything that policy.db holds, as one text.
func (w *world) stored() []byte {
	w.t.Helper()
	p, err := w.s.Policy()
	if err != nil {
		w.t.Fatal(err)
	}
	return dump(p)
}

// unrecorded is the record of changes where a test is about something else.
func unrecorded(Actor, Note) error { return nil }
