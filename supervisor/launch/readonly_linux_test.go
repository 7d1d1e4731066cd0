package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
)

// In read-only mode every action of root.sock that changes is refused by name and leaves
// no trace; what protects and what reads does what it did. The mode outlives a restart.
func TestReadOnly_EveryActionOfRootSock(t *testing.T) {
	r, file := withAccess(t, "channels: {w: {access: {users: {ann: {level: read}}}}}\n")
	r.project("shop", 1000)
	r.server("files")
	const secret = "a secret of the test"
	keyed := api.ServerParams{Label: "keyed", Profile: "static", Package: filepath.Join(r.dir, "pkg-files"), Command: []string{"/package/server"}, Credential: "required", CredentialEnv: "API_TOKEN"}
	if err := os.Mkdir(keyed.Package, 0o755); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(r.cfg.Libexec, "server"))
	if err == nil {
		err = os.WriteFile(filepath.Join(keyed.Package, "server"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.must(api.ServerAdd, keyed)
	r.must(api.CredentialAdd, api.CredentialParams{Label: "tok", Project: "shop", Server: "keyed", Secret: api.SecretOf([]byte(secret))})
	log := filepath.Join(r.cfg.RootDir, audit.Name)
	read := func(path string) string {
		t.Helper()
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	facts := filepath.Join(r.cfg.RootDir, factsName)
	dry := func(q *api.Request) { q.DryRun = true }

	// A trial run switches nothing, and switching twice is one change.
	before := read(facts)
	if got := r.must(api.ReadOnlySet, api.ReadOnlyParams{On: true}, dry); got["read_only"] != true || read(facts) != before {
		t.Errorf("a trial run: %v", got)
	}
	if got := r.must(api.ReadOnlySet, api.ReadOnlyParams{On: false}); got["read_only"] != false || read(facts) != before {
		t.Errorf("off, where it is off: %v", got)
	}
	said := len(read(log))
	since := r.must(api.ReadOnlySet, api.ReadOnlyParams{On: true})["since"]
	if again := r.must(api.ReadOnlySet, api.ReadOnlyParams{On: true}); again["since"] != since || since == nil {
		t.Errorf("since %v, then %v", since, again)
	}
	if lines := read(log)[said:]; strings.Count(lines, "\n") != 1 || !strings.Contains(lines, `"action":"readonly.set","target":"postern","before":"changes are made","after":"read-only since `) {
		t.Errorf("the record: %s", lines)
	}

	on := true
	changes := map[api.Action]any{
		api.AccountAdd: api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}}, api.AccountDelete: api.Selected{Selector: "shop"},
		api.ProjectAdd: api.ProjectAddParams{Label: "blog", Workspace: r.workspace("blog", 1000), Owner: "shop"}, api.ProjectSet: api.ProjectSetParams{Project: "shop", PersonBind: &on},
		api.ProjectMove: api.ProjectMoveParams{Project: "shop", Workspace: r.workspace("elsewhere", 1000)},
		api.ServerAdd:   api.ServerParams{Label: "more", Profile: "static", Package: keyed.Package, Command: keyed.Command}, api.ServerUpdate: keyed, api.ServerDelete: api.Selected{Selector: "files"},
		api.CredentialAdd:    api.CredentialParams{Label: "more", Project: "shop", Server: "keyed", Secret: api.SecretOf([]byte(secret))},
		api.CredentialRotate: api.CredentialParams{Selector: "tok", Secret: api.SecretOf([]byte(secret))},
		api.AccessEdit:       api.AccessEditParams{Action: string(access.SetLevel), Channel: "w", Target: "ann", Level: "full"},
	}
	packages := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(r.cfg.RootDir, packageDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	refusedAll := func() {
		t.Helper()
		was := []string{read(facts), read(log), read(file), strings.Join(packages(), " ")}
		for a, p := range changes {
			if api.EffectOf(a) != api.Changes {
				t.Errorf("%s is said to be no change", a)
			}
			r.refused(refusal.ReadOnly, a, p)
			r.refused(refusal.ReadOnly, a, p, dry)
		}
		for i, now := range []string{read(facts), read(log), read(file), strings.Join(packages(), " ")} {
			if now != was[i] {
				t.Errorf("a refused change changed\n%s\nto\n%s", was[i], now)
			}
		}
	}
	refusedAll()
	for a, p := range map[api.Action]any{
		api.ServerList: struct{}{}, api.ServerShow: api.Selected{Selector: "files"}, api.ServerGC: struct{}{}, api.CredentialList: struct{}{}, api.AccessShow: struct{}{}, api.AccessMatrix: api.AccessMatrixParams{},
		api.RootStatus: struct{}{}, api.AccessEdit: api.AccessEditParams{Action: string(access.SetBlocked), Channel: "w", Target: "ann"}, api.CredentialRevoke: api.Selected{Selector: "tok"},
	} {
		r.must(a, p)
		changes[a] = nil
	}
	for _, a := range api.Actions() {
		if _, known := changes[a]; !known && api.ServedBy(a) == api.RootSocket && a != api.ReadOnlySet && a != api.RootBackup && a != api.ServerDiff {
			t.Errorf("nobody asked for %s", a)
		}
	}
	for a, p := range changes {
		if p == nil {
			delete(changes, a)
		}
	}
	if !strings.Contains(read(file), "blocked") {
		t.Errorf("ann was not blocked: %s", read(file))
	}

	r.down()
	again := start(t, r.cfg)
	r = again
	delete(changes, api.CredentialRotate) // it was revoked
	refusedAll()
	r.must(api.ReadOnlySet, api.ReadOnlyParams{On: false})
	r.must(api.AccountAdd, changes[api.AccountAdd])
}

// A mode that cannot be read is no reason to take changes: posternd does not start.
func TestReadOnly_AModeThatCannotBeReadStopsTheStart(t *testing.T) {
	for says, good := range map[string]bool{`1790000000000`: true, `"since yesterday"`: false, `null`: true, `1.5`: false} {
		f := newFacts(time.Now())
		raw, err := f.encode()
		if err != nil {
			t.Fatal(err)
		}
		raw = []byte(strings.TrimSuffix(string(raw), "}") + `,"read_only_since":` + says + "}")
		if got, err := decodeFacts(raw); (err == nil) != good || good && (got.ReadOnly != 0) != (says != "null") {
			t.Errorf("%s: %v, %v", says, got.ReadOnly, err)
		}
	}
}
