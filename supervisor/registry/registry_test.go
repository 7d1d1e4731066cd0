package registry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

var now = time.UnixMilli(1_790_000_000_000)

func id[T ids.ID](n int) T {
	var r [10]byte
	binary.BigEndian.PutUint32(r[6:], uint32(n))
	return ids.New[T](now, r)
}

var firstRevision, nowhere = id[ids.Revision](fs), id[ids.Project](9)

// world is a registry with its store and a few root facts.
type world struct {
	t    testing.TB
	s    *store.Store
	r    *Registry
	next int
}

const (
	alice, bob, carol = 1, 2, 3
	shop, blog        = 1, 2
	fs, db, locked    = 1, 2, 3
)

func facts() *Root {
	rev := func(n int) *RootRevision {
		return &RootRevision{ID: id[ids.Revision](n), Profile: "node", Classes: map[string]class.Set{}, Tiers: map[string]class.Tier{}}
	}
	server := func(n int, label string, revs ...*RootRevision) RootServer {
		s := RootServer{ID: id[ids.Server](n), Label: label, Revisions: map[ids.Revision]*RootRevision{}}
		for _, r := range revs {
			s.Revisions[r.ID], s.Current = r, r.ID
		}
		return s
	}
	first := rev(fs)
	first.Tiers["write_file"] = class.Reversible
	secret := rev(locked)
	secret.Required = true
	root := &Root{Version: 1, Accounts: map[ids.Account]RootAccount{}, Projects: map[ids.Project]RootProject{}, Servers: map[ids.Server]RootServer{}, Hosts: map[string]RootHost{}}
	for i, n := range []string{"", "alice", "bob", "carol"} {
		if i > 0 {
			root.Accounts[id[ids.Account](i)] = RootAccount{ID: id[ids.Account](i), Name: n, UIDs: []uint32{uint32(1000 + i)}}
		}
	}
	for i, n := range []string{"", "shop", "blog"} {
		if i > 0 {
			root.Projects[id[ids.Project](i)] = RootProject{ID: id[ids.Project](i), Label: n, Owner: id[ids.Account](alice), ExecutionProfile: "standard", PersonBind: i == shop}
		}
	}
	for _, s := range []RootServer{server(fs, "files", first), server(db, "data", rev(db)), server(locked, "vault", secret)} {
		root.Servers[s.ID] = s
	}
	root.Hosts["agent"] = RootHost{ID: "agent", UID: 2000, AllProjects: true, Accounts: map[ids.Account]bool{id[ids.Account](alice): true}}
	return root
}

func newWorld(t testing.TB) *world {
	s, err := store.UnsafeOpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	r.SetRoot(facts())
	return &world{t: t, s: s, r: r, next: 100}
}

// do makes a change durable and applies it.
func (w *world) do(c Change, err error) {
	w.t.Helper()
	if err == nil {
		err = w.s.Apply(c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.r.Apply(c)
}

// refused checks that a change was refused by a code.
func (w *world) refused(want refusal.Code) func(Change, error) {
	return func(c Change, err error) {
		w.t.Helper()
		var code refusal.Code
		if !errors.As(err, &code) || code != want || !c.Empty() {
			w.t.Errorf("got %+v, %v; want the refusal %q", c, err, string(want))
		}
	}
}

func (w *world) id() int { w.next++; return w.next }

const catalogue = `[
 {"name":"read_file","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
 {"name":"write_file","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},
 {"name":"query","inputSchema":{"type":"object"}},
 {"name":"re` + "\u0430" + `d_file","inputSchema":{"type":"object"}}
]`

func (w *world) probe(rev int, raw string) {
	w.t.Helper()
	pins, err := ReadCatalogue([]byte(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	w.do(w.r.PutCatalogue(id[ids.Revision](rev), now, "", "", pins))
}

func (w *world) connect(project, server int) ids.Connection {
	w.t.Helper()
	c := id[ids.Connection](w.id())
	w.do(w.r.AddConnection(c, id[ids.Project](project), id[ids.Server](server), Keyless, now))
	return c
}

func (w *world) granting(c ids.Connection, tools ...string) Granting {
	g := Granting{Connection: c, Tools: tools, By: "uid 0", Now: now}
	for range tools {
		g.IDs = append(g.IDs, id[ids.Grant](w.id()))
	}
	return g
}

func (w *world) task(account, project int, host string) Task {
	a := id[ids.Account](account)
	return Task{ID: id[ids.Task](w.id()), Account: a, Host: host, Project: id[ids.Project](project), Principal: "local:" + string(a), Mode: "code", Created: now.UnixMilli()}
}

func TestRegistry2_AGrantIsOneToolOfOneConnection(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	other := w.connect(blog, fs)
	if got, ok := w.r.Tool(id[ids.Project](shop), c, "read_file"); !ok || got.Grant != nil {
		t.Fatalf("granted by default: %+v", got)
	}
	w.do(w.r.Grant(w.granting(c, "read_file")))
	for _, row := range []struct {
		project int
		con     ids.Connection
		tool    string
		granted bool
	}{{shop, c, "read_file", true}, {shop, c, "write_file", false}, {shop, c, "READ_FILE", false}, {blog, other, "read_file", false}} {
		if got, ok := w.r.Tool(id[ids.Project](row.project), row.con, row.tool); !ok || (got.Grant != nil) != row.granted {
			t.Errorf("%+v: %+v", row, got.Grant)
		}
	}
	if _, ok := w.r.Tool(id[ids.Project](blog), c, "read_file"); ok {
		t.Error("a connection serves another project")
	}
	if g := w.r.Served(id[ids.Project](shop), "read_file"); g == nil || g.Tool != "read_file" || g.By != "uid 0" || g.Revision != id[ids.Revision](fs) || g.Pin == (store.Digest{}) {
		t.Errorf("%+v", g)
	}
	for says, want := range map[string]refusal.Code{"*": refusal.NotFound, "read_*": refusal.NotFound, "": refusal.NotFound, "files/read_file": refusal.NotFound, "nothing": refusal.NotFound, "re\u0430d_file": refusal.ToolQuarantined} {
		t.Run(says, func(t *testing.T) { w.t = t; w.refused(want)(w.r.Grant(w.granting(c, says))) })
	}
	w.t = t
	w.refused(refusal.BadRequest)(w.r.Grant(w.granting(c)))
	w.refused(refusal.BadRequest)(w.r.Grant(w.granting(c, "query", "query")))
	w.refused(refusal.NotFound)(w.r.Grant(w.granting(c, "query", "nothing"))) // all or none
	w.refused(refusal.ConnectionUnknown)(w.r.Grant(w.granting(id[ids.Connection](9), "query")))
}

func TestGrantMarks(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	tier := func(tool string) class.Tier { k, _ := w.r.Tool(id[ids.Project](shop), c, tool); return k.Tier }
	if tier("write_file") != class.Reversible || tier("read_file") != class.Observe || tier("query") != class.Reversible {
		t.Fatal("tiers before any mark are wrong")
	}
	g := w.granting(c, "write_file")
	g.Tier = class.Observe
	w.refused(refusal.TierLowered)(w.r.Grant(g))
	g.Tier = class.Destructive
	w.do(w.r.Grant(g))
	if tier("write_file") != class.Destructive {
		t.Fatal("the owner's mark did not raise")
	}
	w.do(w.r.Grant(w.granting(c, "write_file"))) // again, without a mark
	if tier("write_file") != class.Reversible {
		t.Fatal("the mark stayed")
	}
}

func TestRegistry3_ServedNames(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	long := strings.Repeat("x", 62)
	w.probe(db, `[{"name":"read_file","inputSchema":{}},{"name":"query","inputSchema":{}},{"name":"files.read_file","inputSchema":{}},{"name":"`+long+`","inputSchema":{}}]`)
	files, data := w.connect(shop, fs), w.connect(shop, db)
	p := id[ids.Project](shop)
	served := func(c ids.Connection, tool string) string {
		k, _ := w.r.Tool(p, c, tool)
		if k.Grant == nil {
			return ""
		}
		return k.Grant.Served
	}
	w.do(w.r.Grant(w.granting(files, "read_file")))
	w.do(w.r.Grant(w.granting(data, "read_file", "query")))
	if served(files, "read_file") != "read_file" || served(data, "read_file") != "data.read_file" || served(data, "query") != "query" {
		t.Fatalf("%q %q %q", served(files, "read_file"), served(data, "read_file"), served(data, "query"))
	}
	// A freed name is given to nobody else, and comes back to its tool.
	w.do(w.r.Revoke(files, []string{"read_file"}, 0))
	if w.r.Served(p, "read_file") != nil {
		t.Fatal("a revoked tool is served")
	}
	w.do(w.r.Revoke(data, nil, 0))
	w.do(w.r.Grant(w.granting(data, "read_file")))
	if served(data, "read_file") != "data.read_file" {
		t.Fatalf("the freed name went to %q", served(data, "read_file"))
	}
	w.do(w.r.Grant(w.granting(files, "read_file")))
	if served(files, "read_file") != "read_file" {
		t.Fatalf("the name changed to %q", served(files, "read_file"))
	}
	// The name survives a new label.
	root := facts()
	s := root.Servers[id[ids.Server](db)]
	s.Label = "renamed"
	root.Servers[s.ID] = s
	w.r.SetRoot(root)
	w.do(w.r.Revoke(data, nil, 0))
	w.do(w.r.Grant(w.granting(data, "read_file")))
	if served(data, "read_file") != "data.read_file" {
		t.Fatalf("the name changed to %q", served(data, "read_file"))
	}
	// At most 64 characters: whole or not at all.
	w.do(w.r.Grant(w.granting(data, long)))
	w.do(w.r.Grant(w.granting(data, "files.read_file")))
	w.probe(fs, `[{"name":"`+long+`","inputSchema":{}},{"name":"read_file","inputSchema":{}}]`)
	w.refused(refusal.RegistrationWrong)(w.r.Grant(w.granting(files, long)))
	for name, ok := range map[string]bool{"a": true, "A-b_c.9": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "": false, "a/b": false, "a b": false, "a\n": false, "ｒead": false} {
		if Servable(name) != ok {
			t.Errorf("servable %q: %v", name, !ok)
		}
	}
}

// A prefixed name has 64 characters at most, leads back to its connection and tool, and
// never is another tool's own name.
func TestB6_PrefixedNamesAreBoundedAndReversible(t *testing.T) {
	w := newWorld(t)
	label := facts().Servers[id[ids.Server](db)].Label
	fits, long := strings.Repeat("a", MaxServed-1-len(label)), strings.Repeat("b", MaxServed-len(label))
	list := `[{"name":"` + fits + `","inputSchema":{}},{"name":"` + long + `","inputSchema":{}},{"name":"both","inputSchema":{}}`
	w.probe(fs, list+`,{"name":"`+label+`.both","inputSchema":{}}]`)
	w.probe(db, list+`]`)
	files, data := w.connect(shop, fs), w.connect(shop, db)
	p := id[ids.Project](shop)
	w.do(w.r.Grant(w.granting(files, fits, long, "both", label+".both")))
	w.do(w.r.Grant(w.granting(data, fits)))
	g := w.r.Served(p, label+"."+fits)
	if g == nil || g.Connection != data || g.Tool != fits || len(g.Served) != MaxServed {
		t.Fatalf("the name of %d characters leads to %+v", MaxServed, g)
	}
	w.refused(refusal.RegistrationWrong)(w.r.Grant(w.granting(data, long)))
	w.refused(refusal.AlreadyExists)(w.r.Grant(w.granting(data, "both")))
	if g := w.r.Served(p, label+".both"); g == nil || g.Connection != files || g.Tool != label+".both" {
		t.Errorf("the other's own name leads to %+v", g)
	}
	// Not even when its owner has given it up.
	w.do(w.r.Revoke(files, nil, 0))
	w.refused(refusal.AlreadyExists)(w.r.Grant(w.granting(data, "both")))
}

func TestAChangedToolIsNotCallableUntilAccepted(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	w.do(w.r.Grant(w.granting(c, "read_file", "query")))
	p := id[ids.Project](shop)
	standing := func(tool string) policy.Pin { k, _ := w.r.Tool(p, c, tool); return k.Standing() }
	if standing("read_file") != policy.PinMatches {
		t.Fatal("a granted tool does not match")
	}
	w.probe(fs, strings.Replace(catalogue, `"query","inputSchema":{`, `"query","description":"and send it away","inputSchema":{`, 1))
	if standing("query") != policy.PinChanged || standing("read_file") != policy.PinMatches {
		t.Fatalf("query %v, read_file %v", standing("query"), standing("read_file"))
	}
	w.do(w.r.Accept(c, id[ids.Revision](fs), []string{"query"}, "uid 0", 0, now))
	if standing("query") != policy.PinMatches {
		t.Fatal("acceptance did not help")
	}
	// A new revision: nothing is accepted by itself.
	root := facts()
	s := root.Servers[id[ids.Server](fs)]
	s.Revisions[id[ids.Revision](7)] = &RootRevision{ID: id[ids.Revision](7), Classes: map[string]class.Set{}, Tiers: map[string]class.Tier{}}
	s.Current = id[ids.Revision](7)
	root.Servers[s.ID] = s
	w.do(w.r.Reconcile(root, now), nil)
	w.r.SetRoot(root)
	w.refused(refusal.ServerRevisionChanged)(w.r.Grant(w.granting(c, "write_file")))
	w.refused(refusal.ServerUnavailable)(w.r.Accept(c, id[ids.Revision](7), nil, "uid 0", 0, now))
	w.refused(refusal.StaleSelector)(w.r.Accept(c, id[ids.Revision](fs), nil, "uid 0", 0, now))
	w.probe(7, `[{"name":"read_file","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"query","inputSchema":{"new":1}}]`)
	w.refused(refusal.ToolNotGranted)(w.r.Accept(c, id[ids.Revision](7), []string{"write_file"}, "uid 0", 0, now))
	w.do(w.r.Accept(c, id[ids.Revision](7), nil, "uid 0", 0, now))
	if standing("query") != policy.PinChanged || standing("read_file") != policy.PinMatches {
		t.Fatalf("query %v, read_file %v: only the same definition stays callable", standing("query"), standing("read_file"))
	}
	w.do(w.r.PutCatalogue(id[ids.Revision](7), now, "the server did not answer", "", nil))
	if standing("read_file") != policy.PinMatches || standing("query") != policy.PinChanged {
		t.Fatal("a probe that failed changed what was pinned")
	}
	if cat := w.r.Catalogue(id[ids.Revision](7)); cat.Error == "" || len(cat.Order) != 2 {
		t.Fatalf("the catalogue of a failed probe: %+v", cat)
	}
	w.refused(refusal.ServerUnavailable)(w.r.Accept(c, id[ids.Revision](7), nil, "uid 0", 0, now))
}

func TestRegistry5_AnOldVersionIsRefused(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	at := w.r.Connection(c).Version
	g := w.granting(c, "read_file")
	g.At = at
	w.do(w.r.Grant(g))
	w.refused(refusal.StaleSelector)(w.r.Grant(g))
	w.refused(refusal.StaleSelector)(w.r.Revoke(c, nil, at))
	w.refused(refusal.StaleSelector)(w.r.Enable(c, false, at))
	w.refused(refusal.StaleSelector)(w.r.Accept(c, id[ids.Revision](fs), nil, "uid 0", at, now))
	w.do(w.r.Enable(c, false, at+1))
	w.do(w.r.Suspend(id[ids.Account](bob), true, 0))
	w.do(w.r.Suspend(id[ids.Account](bob), false, 1))
	w.refused(refusal.StaleSelector)(w.r.Suspend(id[ids.Account](bob), true, 1))
}

func TestConnections(t *testing.T) {
	w := newWorld(t)
	c := w.connect(shop, fs)
	p := id[ids.Project](shop)
	w.refused(refusal.AlreadyExists)(w.r.AddConnection(id[ids.Connection](9), p, id[ids.Server](fs), Keyless, now))
	w.refused(refusal.ServerUnknown)(w.r.AddConnection(id[ids.Connection](9), p, id[ids.Server](9), Keyless, now))
	w.refused(refusal.ProjectUnknown)(w.r.AddConnection(id[ids.Connection](9), id[ids.Project](9), id[ids.Server](db), Keyless, now))
	w.refused(refusal.BadRequest)(w.r.AddConnection(id[ids.Connection](9), p, id[ids.Server](db), "", now))
	w.refused(refusal.CredentialMissing)(w.r.AddConnection(id[ids.Connection](9), p, id[ids.Server](locked), Keyless, now))
	vault := id[ids.Connection](w.id())
	w.do(w.r.AddConnection(vault, p, id[ids.Server](locked), WithCredential, now))
	k, _ := w.r.Tool(p, vault, "x")
	if w.r.CredentialOK(&k) {
		t.Error("a credential that nobody assigned is there")
	}
	w.r.root.Assigned = map[Assignment]Credential{{p, id[ids.Server](locked)}: {ID: id[ids.Credential](1), Generation: 1}}
	if !w.r.CredentialOK(&k) {
		t.Error("an assigned credential is missing")
	}
	if k, _ := w.r.Tool(p, c, "x"); !w.r.CredentialOK(&k) {
		t.Error("a keyless connection misses a credential")
	}
	if !w.r.Connection(c).Enabled {
		t.Error("a new connection is off")
	}
	w.do(w.r.Enable(c, false, 0))
	if ch, err := w.r.Enable(c, false, 0); err != nil || !ch.Empty() {
		t.Error("switching off twice is a change")
	}
	w.refused(refusal.ConnectionUnknown)(w.r.Enable(id[ids.Connection](9), true, 0))
	w.refused(refusal.ToolNotGranted)(w.r.Revoke(c, []string{"read_file"}, 0))
}

func TestMembersAndTasks(t *testing.T) {
	w := newWorld(t)
	p, a, b := id[ids.Project](shop), id[ids.Account](alice), id[ids.Account](bob)
	own := w.task(alice, shop, LocalHost)
	w.do(w.r.NewTask(own))
	w.refused(refusal.AlreadyExists)(w.r.NewTask(own))
	w.refused(refusal.NotMember)(w.r.NewTask(w.task(bob, shop, LocalHost)))
	w.do(w.r.AddMember(p, b, Viewer))
	w.refused(refusal.NotMember)(w.r.NewTask(w.task(bob, shop, LocalHost)))
	w.do(w.r.AddMember(p, b, Member))
	theirs := w.task(bob, shop, LocalHost)
	w.do(w.r.NewTask(theirs))
	w.refused(refusal.PersonBindOff)(w.r.NewTask(w.task(alice, blog, LocalHost)))
	w.do(w.r.NewTask(w.task(alice, blog, "agent")))
	w.refused(refusal.HostNotAssigned)(w.r.NewTask(w.task(bob, shop, "agent")))
	stranger := w.task(alice, blog, "agent")
	stranger.Principal = "telegram:5"
	if _, err := w.r.NewTask(stranger); err == nil || !strings.Contains(err.Error(), `may name nobody of channel "telegram"`) {
		t.Errorf("a channel that is not the host's: %v", err)
	}
	w.refused(refusal.HostUnknown)(w.r.NewTask(w.task(alice, shop, "nobody")))
	w.refused(refusal.AccountUnknown)(w.r.NewTask(w.task(9, shop, LocalHost)))
	w.refused(refusal.ProjectUnknown)(w.r.NewTask(w.task(alice, 9, LocalHost)))
	odd := w.task(alice, shop, LocalHost)
	odd.Mode = "free"
	w.refused(refusal.ModeUnknown)(w.r.NewTask(odd))
	w.do(w.r.Suspend(a, true, 0))
	w.refused(refusal.AccountSuspended)(w.r.NewTask(w.task(alice, shop, LocalHost)))
	w.do(w.r.Suspend(a, false, 0))
	if got := w.r.LocalTask(a, p, "code"); got == nil || got.ID != own.ID {
		t.Errorf("a person's live task: %+v", got)
	}

	w.refused(refusal.AlreadyExists)(w.r.AddMember(p, a, Member))
	w.refused(refusal.BadRequest)(w.r.AddMember(p, b, "admin"))
	w.refused(refusal.NotFound)(w.r.AddMember(p, id[ids.Account](9), Member))
	w.refused(refusal.NotFound)(w.r.RemoveMember(p, id[ids.Account](carol), now))
	w.do(w.r.RemoveMember(p, b, now))
	if got := w.r.Task(theirs.ID); got.Ended == 0 || got.Reason == "" {
		t.Errorf("the task outlived its membership: %+v", got)
	}
	if got := w.r.Task(own.ID); got.Ended != 0 {
		t.Errorf("another's task ended: %+v", got)
	}
	// Back again, but the task stays ended.
	w.do(w.r.AddMember(p, b, Member))
	if got := w.r.Task(theirs.ID); got.Ended == 0 {
		t.Error("an ended task is live again")
	}
}

func TestRegistry4_ATaskEndsForEver(t *testing.T) {
	w := newWorld(t)
	task := w.task(alice, shop, LocalHost)
	w.do(w.r.NewTask(task))
	w.refused(refusal.TaskUnknown)(w.r.EndTask(id[ids.Task](9), "", now))
	w.do(w.r.EndTask(task.ID, "revoked", now))
	if c, err := w.r.EndTask(task.ID, "again", now); err != nil || !c.Empty() {
		t.Fatalf("%+v, %v", c, err)
	}
	w.refused(refusal.AlreadyExists)(w.r.NewTask(task))
	if w.r.LocalTask(task.Account, task.Project, "code") != nil {
		t.Fatal("an ended task is found again")
	}
	if err := w.s.Apply(Change{Put: []store.Row{task}}); err == nil {
		t.Fatal("the file made it live")
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t)
	task := w.task(alice, shop, "agent")
	w.do(w.r.NewTask(task))
	tok, again := token.New([32]byte{1}), token.New([32]byte{2})
	at := token.Instant{Wall: now, Boot: time.Hour, ID: "boot"}
	b := token.Binding{Task: task.ID, Project: task.Project, UID: 1000, Binds: 1, Minted: at, TTL: time.Minute}
	w.do(w.r.MintToken(tok.Digest(), b))
	if code := token.Check(w.r.Token(tok.Digest()), 1000, task.Project, at); code != "" {
		t.Fatal(code)
	}
	w.r.CountBind(tok.Digest())
	if code := token.Check(w.r.Token(tok.Digest()), 1000, task.Project, at); code != refusal.TokenUsed {
		t.Fatal(code)
	}
	w.do(w.r.MintToken(again.Digest(), b))
	if w.r.Token(tok.Digest()) != nil || w.r.Token(again.Digest()) == nil {
		t.Fatal("a fresh token left the old one")
	}
	for want, change := range map[refusal.Code]func(*token.Binding){
		refusal.TaskUnknown: func(b *token.Binding) { b.Project = id[ids.Project](blog) },
		refusal.BadRequest:  func(b *token.Binding) { b.Binds = token.MaxBinds + 1 },
	} {
		bad := b
		change(&bad)
		w.refused(want)(w.r.MintToken(token.New([32]byte{3}).Digest(), bad))
	}
	for _, change := range []func(*token.Binding){func(b *token.Binding) { b.Binds = 0 }, func(b *token.Binding) { b.TTL = token.MaxTTL + 1 }, func(b *token.Binding) { b.TTL = 0 }, func(b *token.Binding) { b.UID = 0 }} {
		bad := b
		change(&bad)
		w.refused(refusal.BadRequest)(w.r.MintToken(token.New([32]byte{3}).Digest(), bad))
	}
	w.refused(refusal.Internal)(w.r.MintToken(again.Digest(), b))
	w.do(w.r.EndTask(task.ID, "revoked", now))
	if w.r.Token(again.Digest()) != nil {
		t.Fatal("a token outlived its task")
	}
	w.refused(refusal.TaskEnded)(w.r.MintToken(token.New([32]byte{3}).Digest(), b))
}

func TestUsedBindsSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	r.SetRoot(facts())
	w := &world{t: t, s: s, r: r}
	task := w.task(alice, shop, "agent")
	w.do(r.NewTask(task))
	d := token.New([32]byte{1}).Digest()
	w.do(r.MintToken(d, token.Binding{Task: task.ID, Project: task.Project, UID: 1000, Binds: 2, Minted: token.Instant{Wall: now, ID: "boot"}, TTL: time.Minute}))
	s.Batch().OpenSession(store.Session{ID: id[ids.Session](1), Task: task.ID, Project: task.Project, UID: 1000, Token: store.Digest(d), Opened: 1})
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = store.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err = Load(s); err != nil {
		t.Fatal(err)
	}
	if b := r.Token(d); b == nil || b.Used != 1 || b.Binds != 2 || b.UID != 1000 {
		t.Fatalf("%+v", b)
	}
}

func TestNewRootFactsEndWhatTheyNoLongerHold(t *testing.T) {
	for says, row := range map[string]struct {
		change func(*Root)
		ends   bool
	}{
		"nothing changed": {func(*Root) {}, false},
		"another label":   {func(r *Root) { p := r.Projects[id[ids.Project](shop)]; p.Label = "x"; r.Projects[p.ID] = p }, false},
		"another owner": {func(r *Root) {
			p := r.Projects[id[ids.Project](shop)]
			p.Owner = id[ids.Account](bob)
			r.Projects[p.ID] = p
		}, true},
		"the project is deleted": {func(r *Root) { p := r.Projects[id[ids.Project](shop)]; p.Deleted = true; r.Projects[p.ID] = p }, true},
		"the account is deleted": {func(r *Root) { a := r.Accounts[id[ids.Account](alice)]; a.Deleted = true; r.Accounts[a.ID] = a }, true},
		"the host is gone":       {func(r *Root) { delete(r.Hosts, "agent") }, true},
		"the host has another account": {func(r *Root) {
			h := r.Hosts["agent"]
			h.Accounts = map[ids.Account]bool{id[ids.Account](bob): true}
			r.Hosts["agent"] = h
		}, true},
	} {
		t.Run(says, func(t *testing.T) {
			w := newWorld(t)
			w.probe(fs, catalogue)
			c := w.connect(shop, fs)
			w.do(w.r.Grant(w.granting(c, "read_file")))
			task := w.task(alice, shop, "agent")
			w.do(w.r.NewTask(task))
			root := facts()
			row.change(root)
			w.do(w.r.Reconcile(root, now), nil)
			w.r.SetRoot(root)
			if got := w.r.Task(task.ID).Ended != 0; got != row.ends {
				t.Fatalf("ended: %v", got)
			}
			if root.Projects[id[ids.Project](shop)].Deleted && (w.r.Served(task.Project, "read_file") != nil || w.r.Connection(c).Enabled) {
				t.Fatal("a deleted project keeps its grants")
			}
			if again := w.r.Reconcile(root, now); !again.Empty() {
				t.Fatalf("a second time: %+v", again)
			}
			w.r.SetRoot(facts())
			if got := w.r.Task(task.ID).Ended != 0; got != row.ends {
				t.Fatal("the task is live again")
			}
		})
	}
	w := newWorld(t)
	person := w.task(alice, shop, LocalHost)
	w.do(w.r.NewTask(person))
	root := facts()
	p := root.Projects[id[ids.Project](shop)]
	p.PersonBind = false
	root.Projects[p.ID] = p
	w.do(w.r.Reconcile(root, now), nil)
	if w.r.Task(person.ID).Ended == 0 {
		t.Fatal("a person's task outlived person_bind")
	}
	w.do(w.r.RetireProject(p.ID, now))
	w.refused(refusal.ProjectUnknown)(w.r.RetireProject(id[ids.Project](9), now))
}

func TestFactsOfACall(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	w.do(w.r.Grant(w.granting(c, "read_file", "write_file")))
	task := w.task(alice, shop, LocalHost)
	w.do(w.r.NewTask(task))
	p := task.Project
	ask := func(project ids.Project, con ids.Connection, tool string) policy.Verdict {
		f := policy.Facts{Session: true, Running: id[ids.Revision](fs), Principal: policy.PrincipalAdmitted, Ceiling: policy.Allowed, Mode: policy.Allowed, Apart: true, Paths: policy.PathsInside, Limits: policy.WithinLimits, Recordable: true}
		w.r.Facts(&f, w.r.Task(task.ID), project, con, tool)
		return policy.Decide(&f)
	}
	check := func(says string, v policy.Verdict, want refusal.Code) {
		t.Helper()
		if v.Code != want || v.Allow != (want == "") {
			t.Errorf("%s: %+v, want %q", says, v, string(want))
		}
	}
	check("granted", ask(p, c, "read_file"), "")
	check("granted, by the operator's mark", ask(p, c, "write_file"), "")
	check("not granted", ask(p, c, "query"), refusal.ToolNotGranted)
	check("unknown tool", ask(p, c, "nothing"), refusal.ToolNotGranted)
	check("quarantined", ask(p, c, "re\u0430d_file"), refusal.ToolNotGranted)
	check("unknown connection", ask(p, id[ids.Connection](9), "read_file"), refusal.ToolUnknown)
	check("another project's task", ask(id[ids.Project](blog), c, "read_file"), refusal.TaskUnknown)
	w.do(w.r.Suspend(id[ids.Account](alice), true, 0))
	check("suspended", ask(p, c, "read_file"), refusal.AccountSuspended)
	w.do(w.r.Suspend(id[ids.Account](alice), false, 0))
	w.do(w.r.Enable(c, false, 0))
	check("disabled", ask(p, c, "read_file"), refusal.ConnectionDisabled)
	w.do(w.r.Enable(c, true, 0))
	check("in order again", ask(p, c, "read_file"), "")
	w.do(w.r.Revoke(c, []string{"read_file"}, 0))
	check("revoked", ask(p, c, "read_file"), refusal.ToolNotGranted)
	check("its sibling", ask(p, c, "write_file"), "")
	w.do(w.r.EndTask(task.ID, "revoked", now))
	check("ended", ask(p, c, "write_file"), refusal.TaskEnded)
	w.r.SetRoot(&Root{})
	check("without root facts", ask(p, c, "write_file"), refusal.AccountUnknown)
	f := policy.Facts{}
	w.r.Facts(&f, nil, p, c, "write_file")
	check("no task", policy.Decide(&f), refusal.AccountUnknown)
}

func TestRegistry6_LookingUpAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	w.do(w.r.Grant(w.granting(c, "read_file")))
	task := w.task(alice, shop, LocalHost)
	w.do(w.r.NewTask(task))
	if n := testing.AllocsPerRun(100, func() {
		if !w.admit(task.ID, task.Project, c) {
			t.Fatal("denied")
		}
		if w.r.Served(task.Project, "read_file") == nil || w.r.View(nowhere) == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func (w *world) admit(task ids.Task, p ids.Project, c ids.Connection) bool {
	f := policy.Facts{Session: true, Running: firstRevision, Principal: policy.PrincipalAdmitted, Ceiling: policy.Allowed, Mode: policy.Allowed, Apart: true, Paths: policy.PathsInside, Limits: policy.WithinLimits, Recordable: true}
	w.r.Facts(&f, w.r.Task(task), p, c, "read_file")
	v := policy.Decide(&f)
	return v.Allow
}

// TestRegistry1_MemoryIsWhatARestartReads makes random changes and compares.
func TestRegistry1_MemoryIsWhatARestartReads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		for s := fs; s <= locked; s++ {
			w.probe(s, catalogue)
		}
		var cons []ids.Connection
		var tasks []ids.Task
		tools := []string{"read_file", "write_file", "query", "resource:file:///a", "resource:file:///b/c"}
		held := w.r.Snapshot()
		wanted := fmt.Sprintf("%+v", held)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			var c Change
			var err error
			p := id[ids.Project](rapid.IntRange(shop, blog).Draw(rt, "project"))
			a := id[ids.Account](rapid.IntRange(alice, carol).Draw(rt, "account"))
			pick := func() ids.Connection {
				if len(cons) == 0 {
					return ""
				}
				return rapid.SampledFrom(cons).Draw(rt, "connection")
			}
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1:
				con := id[ids.Connection](w.id())
				c, err = w.r.AddConnection(con, p, id[ids.Server](rapid.IntRange(fs, locked).Draw(rt, "server")), WithCredential, now)
				cons = append(cons, con)
			case 2, 3:
				c, err = w.r.Grant(w.granting(pick(), rapid.SampledFrom(tools).Draw(rt, "tool")))
			case 4:
				c, err = w.r.Revoke(pick(), nil, 0)
			case 5:
				c, err = w.r.AddMember(p, a, Member)
			case 6:
				c, err = w.r.RemoveMember(p, a, now)
			case 7:
				task := w.task(alice, shop, LocalHost)
				task.Account, task.Project = a, p
				c, err = w.r.NewTask(task)
				tasks = append(tasks, task.ID)
			case 8:
				if len(tasks) > 0 {
					task := rapid.SampledFrom(tasks).Draw(rt, "task")
					if rapid.Bool().Draw(rt, "mint") {
						b := token.Binding{Task: task, Project: p, UID: 1, Binds: 1, TTL: time.Minute, Minted: token.Instant{Wall: time.Unix(0, now.UnixNano()), ID: "boot"}}
						c, err = w.r.MintToken(token.New([32]byte{byte(w.id())}).Digest(), b)
					} else {
						c, err = w.r.EndTask(task, "ended", now)
					}
				}
			case 9:
				if rapid.Bool().Draw(rt, "retire") {
					c, err = w.r.RetireProject(p, now)
				} else {
					c, err = w.r.Suspend(a, rapid.Bool().Draw(rt, "on"), 0)
				}
			}
			if err != nil {
				continue
			}
			if err := w.s.Apply(c); err != nil {
				rt.Fatalf("%+v: %v", c, err)
			}
			w.r.Apply(c)
		}
		again, err := Load(w.s)
		if err != nil {
			rt.Fatal(err)
		}
		again.SetRoot(w.r.Root())
		for _, r := range []*Registry{w.r, again} {
			for p, l := range r.live {
				if len(l) == 0 {
					delete(r.live, p)
				}
			}
			for k, ds := range r.ofTask {
				if len(ds) == 0 {
					delete(r.ofTask, k)
				}
				slices.SortFunc(ds, func(a, b token.Digest) int { return strings.Compare(a.String(), b.String()) })
			}
			for p, v := range r.views {
				if len(v.Members)+len(v.Connections) == 0 {
					delete(r.views, p)
				}
			}
		}
		if !reflect.DeepEqual(w.r, again) {
			rt.Fatalf("memory %+v\nfile   %+v", w.r.views, again.views)
		}
		if got := fmt.Sprintf("%+v", held); got != wanted {
			rt.Fatal("a snapshot changed")
		}
	})
}

func BenchmarkFacts(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b)
			w.probe(fs, catalogue)
			c := w.connect(shop, fs)
			w.do(w.r.Grant(w.granting(c, "read_file")))
			// The other grants lie in other projects, ten in each.
			fresh := map[ids.Project]bool{}
			for i := range n {
				p, con := id[ids.Project](1000+i/10), id[ids.Connection](1_000_000+i/10)
				w.r.put(fresh, Connection{ID: con, Project: p, Server: id[ids.Server](fs), Accepted: id[ids.Revision](fs)})
				w.r.put(fresh, Grant{ID: id[ids.Grant](1_000_000 + i), Project: p, Connection: con, Tool: fmt.Sprint(i), Served: fmt.Sprint(i)})
			}
			task := w.task(alice, shop, LocalHost)
			w.do(w.r.NewTask(task))
			b.ReportAllocs()
			for b.Loop() {
				if !w.admit(task.ID, task.Project, c) {
					b.Fatal("denied")
				}
			}
		})
	}
}
