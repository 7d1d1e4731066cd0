package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
)

// Every action of root.sock is here: it only reads, and then leaves no record; or it
// changes something, and then leaves one, with who asked, what it was about, before and
// after, and none for a trial run, a refusal or a repetition that changes nothing.
func TestC9_EveryActionOfRootSockLeavesOneRecordOfWhatItChanged(t *testing.T) {
	r, _ := withAccess(t, "channels: {w: {access: {users: {ann: {level: read}}, groups: {enabled: true, 120363@g.us: {level: read}}}}}\n")
	const secret, number = "hunter2-in-an-argument", "+5511999998888"
	pkg, ws := filepath.Join(r.dir, "pkg"), r.workspace("ws", 1000)
	os.MkdirAll(pkg, 0o755)
	program, err := os.ReadFile(filepath.Join(r.cfg.Libexec, "server"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pkg, "server"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	log, said := filepath.Join(r.cfg.RootDir, audit.Name), 0
	records := func() (out []audit.Record) {
		t.Helper()
		raw, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw[said:])) {
			var rec audit.Record
			if err := json.Unmarshal([]byte(line), &rec); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			out = append(out, rec)
		}
		said = len(raw)
		return out
	}
	server := func(args ...string) api.ServerParams {
		return api.ServerParams{Label: "files", Profile: "static", Package: pkg, Command: append([]string{"/package/server", secret}, args...)}
	}
	keyed := server()
	keyed.Label, keyed.Credential, keyed.CredentialEnv = "keyed", "required", "API_TOKEN"
	on := true
	edit := func(action access.Action, p api.AccessEditParams) api.AccessEditParams {
		p.Action, p.Channel = string(action), "w"
		return p
	}
	// In an order in which each has something to change.
	type change struct {
		action api.Action
		params any
		again  bool // the same again is refused, or changes something again
		first  func()
	}
	leftover := func() {
		if err := os.Mkdir(filepath.Join(r.cfg.RootDir, packageDir, strings.Repeat("ab", 32)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	changes := []change{
		{api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}}, true, nil},
		{api.ProjectAdd, api.ProjectAddParams{Label: "shop", Workspace: ws, Owner: "alice"}, true, nil},
		{api.ProjectSet, api.ProjectSetParams{Project: "shop", PersonBind: &on}, false, nil},
		{api.ReadOnlySet, api.ReadOnlyParams{On: true}, false, nil},
		{api.ReadOnlySet, api.ReadOnlyParams{}, false, nil},
		{api.ProjectMove, api.ProjectMoveParams{Project: "shop", Workspace: ws}, true, nil},
		{api.ServerAdd, server(), true, nil},
		{api.ServerUpdate, server("more"), false, nil},
		{api.ServerAdd, keyed, true, nil},
		{api.CredentialAdd, api.CredentialParams{Label: "tok", Project: "shop", Server: "keyed", Secret: api.SecretOf([]byte(secret))}, true, nil},
		{api.CredentialRotate, api.CredentialParams{Selector: "tok", Secret: api.SecretOf([]byte(secret + "2"))}, true, nil},
		{api.CredentialRevoke, api.Selected{Selector: "tok"}, true, nil},
		{api.ServerDelete, api.Selected{Selector: "files"}, true, nil},
		{api.AccountAdd, api.AccountAddParams{Name: "bob", UIDs: []uint32{1001}}, true, nil},
		{api.AccountDelete, api.Selected{Selector: "bob"}, true, nil},
		{api.ServerGC, struct{}{}, false, leftover},
	}
	edits := []api.AccessEditParams{
		edit(access.SetLevel, api.AccessEditParams{Target: number, Level: "read"}), edit(access.SetPreset, api.AccessEditParams{Target: number, Preset: "developer"}),
		edit(access.SetBlocked, api.AccessEditParams{Target: number}), edit(access.RemoveUser, api.AccessEditParams{Target: number}),
		edit(access.SetOwner, api.AccessEditParams{Target: number}), edit(access.SetDefault, api.AccessEditParams{Level: "read"}),
		edit(access.SetAdmission, api.AccessEditParams{Word: "open"}), edit(access.SetEnabled, api.AccessEditParams{}), edit(access.SetMode, api.AccessEditParams{Word: "code"}),
		edit(access.SetGroups, api.AccessEditParams{}), edit(access.SetGroupDefault, api.AccessEditParams{Level: "chat"}),
		edit(access.SetGroup, api.AccessEditParams{Target: "120363@g.us", Level: "full"}), edit(access.RemoveGroup, api.AccessEditParams{Target: "120363@g.us"}),
	}
	for _, p := range edits {
		changes = append(changes, change{api.AccessEdit, p, p.Action == string(access.RemoveUser) || p.Action == string(access.RemoveGroup), nil})
	}
	reads := map[api.Action]any{
		api.ServerList: struct{}{}, api.CredentialList: struct{}{}, api.ServerShow: api.Selected{Selector: "files"}, api.ServerDiff: api.ServerDiffParams{Server: "files"}, api.RootStatus: struct{}{}, api.RootBackup: struct{}{}, api.AccessShow: struct{}{}, api.AccessMatrix: api.AccessMatrixParams{},
	}
	read := func() {
		t.Helper()
		for a, params := range reads {
			r.must(a, params)
			if got := records(); len(got) != 0 {
				t.Errorf("%s, which changes nothing, is recorded: %+v", a, got)
			}
		}
	}
	for _, row := range changes {
		name := string(row.action)
		if p, ok := row.params.(api.AccessEditParams); ok {
			name = "access " + p.Action
		}
		if row.first != nil {
			row.first()
		}
		r.must(row.action, row.params, func(q *api.Request) { q.DryRun = true })
		r.refused(refusal.BadRequest, row.action, map[string]int{"nobody knows this": 1})
		if row.action != api.AccessEdit && row.action != api.ServerGC { // which have no version that was read
			r.refused(refusal.StaleSelector, row.action, row.params, func(q *api.Request) { q.At = 1 << 40 })
		}
		if got := records(); len(got) != 0 {
			t.Errorf("%s: a trial run or a refusal is recorded: %+v", name, got)
		}
		r.must(row.action, row.params, func(q *api.Request) { q.RequestID = "r-" + name })
		got := records()
		if len(got) != 1 {
			t.Fatalf("%s: %d records: %+v", name, len(got), got)
		}
		rec := got[0]
		if rec.Action != name || rec.Actor != "uid 0" || rec.Origin != fmt.Sprintf("root.sock, process %d", os.Getpid()) || rec.Request != "r-"+name ||
			rec.Target == "" || rec.Before == "" || rec.After == "" || rec.Before == rec.After || rec.Failed != "" || rec.At == "" {
			t.Errorf("%s: %+v", name, rec)
		}
		if row.action != api.AccessEdit && rec.Version == 0 {
			t.Errorf("%s names no version: %+v", name, rec)
		}
		if row.action == api.ServerUpdate {
			read()
		}
		if row.again {
			continue
		}
		r.must(row.action, row.params)
		if got := records(); len(got) != 0 {
			t.Errorf("%s again, which changes nothing, is recorded: %+v", name, got)
		}
	}
	// Masked: neither a command's arguments nor a whole identity, nor a preset's name.
	raw, _ := os.ReadFile(log)
	for _, hidden := range []string{secret, number, number[4:], "developer"} {
		if strings.Contains(string(raw), hidden) {
			t.Errorf("%q is in the records", hidden)
		}
	}
	if !strings.Contains(string(raw), "w:+55…88") {
		t.Errorf("no masked identity: %s", raw)
	}
	for _, a := range api.Actions() {
		_, reading := reads[a]
		changing := false
		for _, c := range changes {
			changing = changing || c.action == a
		}
		if api.ServedBy(a) == api.RootSocket && reading == changing {
			t.Errorf("%s is not in one of what reads and what changes", a)
		}
	}
	done := map[string]bool{}
	for _, p := range edits {
		done[p.Action] = true
	}
	source, err := os.ReadFile("../../policy/access/edit.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\t\w+ +Action = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	for _, a := range all {
		if !done[a[1]] {
			t.Errorf("access %s has no row", a[1])
		}
	}
	if len(all) != len(done) {
		t.Errorf("%d actions of the access policy, %d rows", len(all), len(done))
	}
}
