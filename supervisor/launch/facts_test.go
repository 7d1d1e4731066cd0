package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/jail/spec"
	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

var rules = reserved{authority: 900, hosts: []order.Host{{ID: "h", UID: 901}}, uids: order.Range{First: 70_000, Count: 100}}

func TestAccounts_AUidBelongsToOneAtMost(t *testing.T) {
	now := time.Now()
	f := newFacts(now)
	f, a, refused := f.addAccount(api.AccountAddParams{Name: "alice", UIDs: []uint32{1000, 70_100}}, rules, now)
	if refused != nil {
		t.Fatal(refused)
	}
	for name, p := range map[string]struct {
		params api.AccountAddParams
		want   refusal.Code
	}{
		"root":             {api.AccountAddParams{Name: "bob", UIDs: []uint32{0}}, refusal.BadRequest},
		"the authority's":  {api.AccountAddParams{Name: "bob", UIDs: []uint32{900}}, refusal.BadRequest},
		"a host's":         {api.AccountAddParams{Name: "bob", UIDs: []uint32{901}}, refusal.BadRequest},
		"first of range":   {api.AccountAddParams{Name: "bob", UIDs: []uint32{70_000}}, refusal.BadRequest},
		"last of range":    {api.AccountAddParams{Name: "bob", UIDs: []uint32{70_099}}, refusal.BadRequest},
		"overflow":         {api.AccountAddParams{Name: "bob", UIDs: []uint32{65534}}, refusal.BadRequest},
		"unmapped":         {api.AccountAddParams{Name: "bob", UIDs: []uint32{^uint32(0)}}, refusal.BadRequest},
		"another's":        {api.AccountAddParams{Name: "bob", UIDs: []uint32{1001, 1000}}, refusal.AlreadyExists},
		"twice":            {api.AccountAddParams{Name: "bob", UIDs: []uint32{1001, 1001}}, refusal.BadRequest},
		"none":             {api.AccountAddParams{Name: "bob"}, refusal.BadRequest},
		"a name with dots": {api.AccountAddParams{Name: "../bob", UIDs: []uint32{1001}}, refusal.BadRequest},
		"a taken name":     {api.AccountAddParams{Name: "alice", UIDs: []uint32{1001}}, refusal.AlreadyExists},
	} {
		if g, _, refused := f.addAccount(p.params, rules, now); refused == nil || refused.Code != p.want {
			t.Errorf("%s: %v, %v", name, g.Accounts, refused)
		}
	}
	if _, _, refused := f.addAccount(api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}}, rules, now); refused != nil {
		t.Errorf("the permitted twin: %v", refused)
	}

	// A uid may move when its account is deleted, and the former account keeps none.
	f, _, refused = f.deleteAccount("alice")
	if refused != nil {
		t.Fatal(refused)
	}
	f, b, refused := f.addAccount(api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}}, rules, now)
	if refused != nil || b.ID == a.ID {
		t.Fatalf("%v, %v", b, refused)
	}
	for _, v := range f.root(nil, order.Range{}, nil).Accounts {
		if v.ID == a.ID && (len(v.UIDs) != 0 || !v.Deleted) {
			t.Errorf("the deleted account still is %v", v)
		}
	}
	if is, ok := f.accountOf(1000); !ok || is.ID != b.ID {
		t.Errorf("uid 1000 is %v", is)
	}
}

// C157: an entry with nothing to run, or whose name differs from another's in case alone, is
// refused with a message, and not left out.
func TestRegistrations_C157_AreRefusedByName(t *testing.T) {
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	good := func() api.ServerParams {
		return api.ServerParams{Label: "fs", Profile: "node", Package: "/srv/x", Command: []string{"/usr/bin/node", "/package/index.js"},
			Classes: map[string][]string{"read": {"filesystem.read"}}, Tiers: map[string]string{"read": "observe"}}
	}
	if _, refused := checkServer(good(), all); refused != nil {
		t.Fatalf("the permitted twin: %v", refused)
	}
	for name, c := range map[string]struct {
		change func(*api.ServerParams)
		want   refusal.Code
	}{
		"a relative command":       {func(p *api.ServerParams) { p.Command[0] = "node" }, refusal.RegistrationWrong},
		"dots in the command":      {func(p *api.ServerParams) { p.Command[0] = "/usr/bin/../bin/node" }, refusal.RegistrationWrong},
		"no command":               {func(p *api.ServerParams) { p.Command = nil }, refusal.RegistrationWrong},
		"an empty command":         {func(p *api.ServerParams) { p.Command = []string{""} }, refusal.RegistrationWrong},
		"a label in capitals":      {func(p *api.ServerParams) { p.Label = "FS" }, refusal.BadRequest},
		"a program not shown":      {func(p *api.ServerParams) { p.Command[0] = "/usr/bin/python3" }, refusal.RegistrationWrong},
		"a program of the project": {func(p *api.ServerParams) { p.Command[0] = "/workspace/x" }, refusal.RegistrationWrong},
		"the bridge's program":     {func(p *api.ServerParams) { p.Command[0] = "/program" }, refusal.RegistrationWrong},
		"a package not given":      {func(p *api.ServerParams) { p.Command[0] = "/package/x"; p.Package = "" }, refusal.RegistrationWrong},
		"a NUL":                    {func(p *api.ServerParams) { p.Command[1] = "a\x00b" }, refusal.RegistrationWrong},
		"an unknown profile":       {func(p *api.ServerParams) { p.Profile = "nope" }, refusal.ProfileUnknown},
		"the bridge's profile":     {func(p *api.ServerParams) { p.Profile = BridgeProfile }, refusal.ProfileUnknown},
		"an unknown class":         {func(p *api.ServerParams) { p.Classes["read"] = []string{"filesystem.all"} }, refusal.BadRequest},
		"an unknown tier":          {func(p *api.ServerParams) { p.Tiers["read"] = "harmless" }, refusal.BadRequest},
		"an unknown scope":         {func(p *api.ServerParams) { p.Scope = "host" }, refusal.BadRequest},
		"an unknown credential":    {func(p *api.ServerParams) { p.Credential = "maybe" }, refusal.BadRequest},
		"a label with a slash":     {func(p *api.ServerParams) { p.Label = "a/b" }, refusal.BadRequest},
	} {
		p := good()
		c.change(&p)
		if _, refused := checkServer(p, all); refused == nil || refused.Code != c.want || refused.Detail == "" {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

func TestRevisions_C096_EachChangeOfWhatRunsMakesOne(t *testing.T) {
	now := time.Now()
	base := Revision{Transport: "stdio", Command: []string{"/usr/bin/node", "x"}, Profile: "node", ProfileDigest: "d", Scope: "project", Credential: "none"}
	f, s, refused := newFacts(now).addServer("fs", base, now)
	if refused != nil {
		t.Fatal(refused)
	}
	same, again, _ := f.updateServer(0, base, now)
	if again.Current().ID != s.Current().ID || same.Version != f.Version {
		t.Error("an update without a change made a revision")
	}
	for name, change := range map[string]func(*Revision){
		"command":       func(v *Revision) { v.Command = []string{"/usr/bin/node", "y"} },
		"profile":       func(v *Revision) { v.ProfileDigest = "e" },
		"package":       func(v *Revision) { v.Package = "p" },
		"scope":         func(v *Revision) { v.Scope = "task" },
		"credential":    func(v *Revision) { v.Credential = "required" },
		"classes":       func(v *Revision) { v.Classes = map[string][]string{"a": {"mcp.read"}} },
		"tiers":         func(v *Revision) { v.Tiers = map[string]string{"a": "observe"} },
		"secret fields": func(v *Revision) { v.SecretFields = []string{"pin"} },
	} {
		v := base
		change(&v)
		g, u, _ := f.updateServer(0, v, now)
		if u.ID != s.ID || u.Current().ID == s.Current().ID || u.Current().Digest == s.Current().Digest || g.Version == f.Version {
			t.Errorf("%s: no new revision", name)
		}
		if len(f.Servers[0].Revisions) != 1 {
			t.Fatalf("%s: the former facts were changed in place", name)
		}
	}
	// A label that is used again is another server.
	g, _, _ := f.deleteServer("fs")
	g, n, refused := g.addServer("fs", base, now)
	if refused != nil || n.ID == s.ID || n.Current().ID == s.Current().ID {
		t.Errorf("a reused label inherits %v, %v", n, refused)
	}
	if i, refused := g.findServer("fs"); refused != nil || g.Servers[i].ID != n.ID {
		t.Errorf("the label means %d, %v", i, refused)
	}
	if _, refused := g.findServer(string(s.ID)); refused == nil {
		t.Error("the deleted server can be named")
	}
}

func TestProfiles_NewContentMakesARevision(t *testing.T) {
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	v := Revision{Transport: "stdio", Command: []string{"/usr/bin/node"}, Profile: "node", ProfileDigest: all["node"].Digest, Scope: "project", Credential: "none"}
	f, _, _ := newFacts(now).addServer("fs", v, now)
	if _, changed, err := f.followProfiles(all, now); err != nil || changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	p := all["node"]
	p.Digest = strings.Repeat("0", 64)
	all["node"] = p
	g, changed, err := f.followProfiles(all, now)
	if err != nil || !changed || len(g.Servers[0].Revisions) != 2 || g.Servers[0].Current().ProfileDigest != p.Digest {
		t.Fatalf("%v, %v, %v", g.Servers, changed, err)
	}
}

func TestLaunch2_KillingTheWriterLeavesOldFactsOrNew(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(newDir(t), "root")
	file, err := openRootDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.load(time.Now()); err != nil {
		t.Fatal(err)
	}
	file.close()
	var last uint64
	for i := range 25 {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{"POSTERN_LAUNCH_ROLE=writer", "POSTERN_LAUNCH_DIR=" + dir}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// Each byte is one finished save; the kill falls somewhere in the next ones.
		buf := make([]byte, 1)
		for range i%5 + 1 {
			out.Read(buf)
		}
		c.Process.Signal(syscall.SIGKILL)
		c.Wait()
		f, err := (&factsFile{path: dir}).peek()
		if err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		if f.Version < last+uint64(i%5) {
			t.Fatalf("after kill %d: version %d, %d was durable", i, f.Version, last+uint64(i%5))
		}
		last = f.Version
	}
}

// childRole is what the test binary does when a test starts it.
func childRole(role string) {
	switch role {
	case "denied":
		denied()
	case "posternd":
		asProcess(os.Getenv("POSTERN_LAUNCH_DIR"))
	case "writer":
		file, err := openRootDir(os.Getenv("POSTERN_LAUNCH_DIR"))
		if err != nil {
			panic(err)
		}
		f, err := file.load(time.Now())
		for err == nil {
			f = f.next()
			if err = file.save(f); err == nil {
				os.Stdout.Write([]byte{'.'})
			}
		}
	case "surroundings":
		fmt.Print(changedAround(os.Getenv("POSTERN_LAUNCH_DIR"), os.Getenv("POSTERN_LAUNCH_CHANGE")))
	case "hold":
		file, err := openRootDir(os.Getenv("POSTERN_LAUNCH_DIR"))
		if err != nil {
			os.Exit(4)
		}
		os.Stdout.Write([]byte{'.'})
		os.Stdin.Read(make([]byte, 1))
		file.close()
	}
}

func TestLaunch9_FilesThatAreNotRootsAloneAreRefusedAndNotRepaired(t *testing.T) {
	needRoot(t)
	for name, spoil := range map[string]func(dir, file string) error{
		"facts writable by others": func(_, file string) error { return os.Chmod(file, 0o622) },
		"facts readable by others": func(_, file string) error { return os.Chmod(file, 0o604) },
		"facts of another user":    func(_, file string) error { return os.Chown(file, 1000, 0) },
		"facts with two names":     func(dir, file string) error { return os.Link(file, filepath.Join(dir, "second")) },
		"facts behind a link": func(dir, file string) error {
			if err := os.Rename(file, filepath.Join(dir, "real")); err != nil {
				return err
			}
			return os.Symlink("real", file)
		},
		"directory open to others": func(dir, _ string) error { return os.Chmod(dir, 0o755) },
		"directory of another":     func(dir, _ string) error { return os.Chown(dir, 1000, 0) },
		"an unknown member": func(_, file string) error {
			return os.WriteFile(file, []byte(`{"format":1,"sudo":true}`), 0o600)
		},
		"a member twice": func(_, file string) error {
			return os.WriteFile(file, []byte(`{"format":1,"format":1}`), 0o600)
		},
	} {
		dir := filepath.Join(newDir(t), "root")
		file, err := openRootDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.load(time.Now()); err != nil {
			t.Fatal(err)
		}
		file.close()
		path := filepath.Join(dir, factsName)
		if f, err := (&factsFile{path: dir}).peek(); err != nil || f.Version != 1 {
			t.Fatalf("the permitted twin: %v", err)
		}
		if err := spoil(dir, path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		if _, err := (&factsFile{path: dir}).peek(); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if file, err := openRootDir(dir); err == nil {
			if _, err := file.load(time.Now()); err == nil {
				t.Errorf("%s: loaded", name)
			}
			file.close()
		}
		if after, _ := os.Lstat(path); before.Mode() != after.Mode() {
			t.Errorf("%s: repaired from %v to %v", name, before.Mode(), after.Mode())
		}
	}
}

func TestRootDirectory_HasOnePosternd(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(newDir(t), "root")
	c := exec.Command("/proc/self/exe")
	c.Env = []string{"POSTERN_LAUNCH_ROLE=hold", "POSTERN_LAUNCH_DIR=" + dir}
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	if f, err := openRootDir(dir); err == nil {
		f.close()
		t.Error("two hold one root directory")
	}
	in.Close()
	c.Wait()
	f, err := openRootDir(dir)
	if err != nil {
		t.Fatalf("a dead holder still locks: %v", err)
	}
	f.close()
}

func TestLaunch6_LeasesAreUniqueAndComeBack(t *testing.T) {
	l := newLeases(order.Range{First: 100, Count: 4})
	seen := map[uint32]bool{}
	for range 4 {
		u, err := l.take()
		if err != nil || seen[u] || u < 100 || u > 103 {
			t.Fatalf("%d, %v", u, err)
		}
		seen[u] = true
	}
	if u, err := l.take(); err == nil {
		t.Fatalf("a fifth of four: %d", u)
	}
	l.giveBack(102)
	if u, err := l.take(); err != nil || u != 102 {
		t.Fatalf("%d, %v", u, err)
	}
}

func TestUIDRange_IsLockedForTheWholeMachine(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	release, err := lockUIDs(dir, order.Range{First: 100_000, Count: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []order.Range{{First: 100_000, Count: 100}, {First: 100_099, Count: 1}, {First: 99_000, Count: 1001}, {First: 90_000, Count: 50_000}} {
		if again, err := tryUIDs(dir, r); err == nil {
			again()
			t.Errorf("%v was locked too", r)
		} else if !strings.Contains(err.Error(), "100000-100099") || !strings.Contains(err.Error(), rangeText(r)) {
			t.Errorf("%v does not name both ranges", err)
		}
	}
	for _, r := range []order.Range{{First: 100_100, Count: 10}, {First: 99_990, Count: 10}} {
		beside, err := lockUIDs(dir, r)
		if err != nil {
			t.Errorf("%v: %v", r, err)
			continue
		}
		beside()
	}
	release()
	again, err := lockUIDs(dir, order.Range{First: 100_050, Count: 100})
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again()
	// One whose holder ends a moment later is waited for, as after a kill.
	release, err = lockUIDs(dir, order.Range{First: 100_000, Count: 100})
	if err != nil {
		t.Fatal(err)
	}
	go func() { time.Sleep(3 * uidLockPause); release() }()
	if again, err = lockUIDs(dir, order.Range{First: 100_000, Count: 100}); err != nil {
		t.Fatalf("a holder that ended: %v", err)
	}
	again()
	// Files of killed ones do not pile up, whatever their range was.
	for i := range 3 {
		stale := filepath.Join(dir, fmt.Sprint(uidLockPrefix, 300_000+i))
		if err := os.WriteFile(stale, []byte("300000 10\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if again, err = lockUIDs(dir, order.Range{First: 400_000, Count: 10}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, uidLockPrefix+"*")); len(left) != 1 || filepath.Base(left[0]) != uidLockPrefix+"400000" {
		t.Errorf("lock files: %v", left)
	}
	again()
	// Another user's file in the shared directory is no lock and no way in.
	path := filepath.Join(dir, uidLockPrefix+"200000")
	os.WriteFile(path, []byte("200000 1000\n"), 0o666)
	os.Chown(path, 1000, 1000)
	if _, err := lockUIDs(dir, order.Range{First: 200_000, Count: 10}); err == nil {
		t.Error("a lock file of another user was taken over")
	}
}

func TestCheck_EveryMistakeAtOnce(t *testing.T) {
	c := Config{RootDir: "relative", StateDir: "/a/../b", RunDir: "/run/" + strings.Repeat("x", 60), Libexec: "/usr/lib/postern", LockDir: "/run/lock",
		UIDs: order.Range{First: 5, Count: 0}, Hosts: []order.Host{{ID: "h", UID: 1}, {ID: "h", UID: 2}}}
	if got := len(c.Check()); got < 7 {
		t.Errorf("%d mistakes: %v", got, c.Check())
	}
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if errs := (Config{Profiles: all}).checkProfiles(); len(errs) > 0 {
		t.Errorf("the built-in profiles: %v", errs)
	}
	bold := all["node"]
	bold.Name, bold.Seccomp.Groups = "bold", append(slices.Clone(bold.Seccomp.Groups), spec.SyscallGroup{Name: "x", Reason: "x", Calls: []string{"ptrace"}})
	all["bold"] = bold
	if errs := (Config{Profiles: all}).checkProfiles(); len(errs) != 1 || !strings.Contains(errs[0].Error(), `"bold": ptrace is refused to every profile`) {
		t.Errorf("a profile that asks for ptrace: %v", errs)
	}
	if errs := uidsInUse(order.Range{First: 0, Count: 1}); len(errs) == 0 {
		t.Error("a range with root's uid touches nobody")
	}
}

// Whatever a profile can set of MCP is told to the authority.
func TestEachBoundOfAProfileIsTold(t *testing.T) {
	var p spec.Profile
	without := view(Revision{}, p)
	mcp := reflect.ValueOf(&p.MCP).Elem()
	for i := range mcp.NumField() {
		was := p.MCP
		mcp.Field(i).SetInt(1_000_000_007)
		if reflect.DeepEqual(view(Revision{}, p), without) {
			t.Errorf("mcp.%s is told to nobody", mcp.Type().Field(i).Name)
		}
		p.MCP = was
	}
}
