package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
)

// withAccess starts posternd with a policy; "" is none.
func withAccess(t *testing.T, doc string) (*rig, string) {
	t.Helper()
	cfg := newConfig(t)
	dir := filepath.Join(filepath.Dir(cfg.RunDir), "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Access = filepath.Join(dir, "access.yaml")
	if doc != "" {
		if err := os.WriteFile(cfg.Access, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, cfg), cfg.Access
}

// stateIs waits until posternd shows the state, and the authority was told and decides.
func (r *rig) stateIs(state string) map[string]any {
	r.t.Helper()
	var m map[string]any
	waitFor(r.t, "access "+state, func() bool {
		m = r.must(api.AccessShow, struct{}{})
		return m["state"] == state && m["deciding"] == true
	})
	return m
}

// rowOf is what the matrix says of somebody.
func rowOf(m map[string]any, key, who string) string {
	for _, x := range m[key].([]any) {
		row := x.(map[string]any)
		if row["who"] == who {
			level := "no ceiling"
			if row["level"] != nil {
				level = fmt.Sprintf("%v, write %v", row["level"], row["write"])
			}
			return fmt.Sprintf("%v: %v", row["kind"], level)
		}
	}
	return "nobody"
}

func TestC8_TheFileIsReadAgainWheneverItChanges(t *testing.T) {
	const good = "channels: {w: {allow: [x]}}\n"
	r, path := withAccess(t, "")
	if m := r.stateIs("none"); m["error"] != nil {
		t.Errorf("%v", m)
	}
	write := func(doc string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	first := r.stateIs("read")
	waitFor(t, "the authority was told", func() bool { return strings.Contains(r.log.String(), fmt.Sprintf("present true, %d bytes", len(good))) })
	// In place.
	write("channels: {w: {access: {users: {x: {level: chat}}}}}\n")
	waitFor(t, "an edit in place", func() bool {
		return rowOf(r.must(api.AccessShow, struct{}{}), "rows", "x") == "user: chat, write false"
	})
	if again := r.must(api.AccessShow, struct{}{}); again["digest"] == first["digest"] {
		t.Error("C106: the revision is the same after a change")
	}
	// Renamed over.
	if err := os.WriteFile(path+".mine", []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".mine", path); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a rename", func() bool { return rowOf(r.must(api.AccessShow, struct{}{}), "rows", "x") == "user: no ceiling" })
	// C107: what is broken is told with its line, and nothing of the former file stays.
	write("channels:\n  w: [\n")
	m := r.stateIs("denying")
	if s := fmt.Sprint(m["error"]); !strings.HasPrefix(s, path+":2: ") || rowOf(m, "rows", "x") != "nobody" {
		t.Errorf("%v", m)
	}
	for says, spoil := range map[string]struct {
		do   func()
		want string
	}{
		"others may write it": {func() { os.Chmod(path, 0o622) }, "0622"},
		"another user's":      {func() { os.Chown(path, 1234, 0) }, "uid 1234"},
		"a second name":       {func() { os.Link(path, path+".2") }, "2 names"},
		"a link":              {func() { os.Rename(path, path+".real"); os.Symlink(path+".real", path) }, "is a symbolic link"},
		"a pipe":              {func() { os.Remove(path); unix.Mkfifo(path, 0o600) }, "neither a file"},
		"a directory":         {func() { os.Remove(path); os.Mkdir(path, 0o755) }, ""},
		"too long":            {func() { write(good + "#" + strings.Repeat("x", 1<<20)) }, "more than"},
		"C087 gone":           {func() { os.Remove(path) }, "was there and is gone"},
	} {
		os.RemoveAll(path)
		os.Remove(path + ".2")
		os.Remove(path + ".real")
		write(good)
		r.stateIs("read") // each heals without a restart
		spoil.do()
		r.stateIs("denying")
		// Some are made in two steps, and the first is seen for a moment.
		waitFor(t, says, func() bool {
			return strings.Contains(fmt.Sprint(r.must(api.AccessShow, struct{}{})["error"]), spoil.want)
		})
		waitFor(t, says+": the authority was told", func() bool { return strings.Contains(r.log.String(), spoil.want) })
	}
	os.RemoveAll(path)
	write(good)
	r.stateIs("read")
	// The directory itself is replaced.
	dir := filepath.Dir(path)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	r.stateIs("denying")
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	r.stateIs("read")
	if m := r.must(api.RootStatus, struct{}{}); m["access"].(map[string]any)["state"] != "read" {
		t.Errorf("%v", m)
	}
}

// One entry with a mistake is a state of its own, which every look tells with its line.
func TestC8_AMistakeOfOneEntryIsSeenAtOnce(t *testing.T) {
	r, path := withAccess(t, "channels: {w: {allow: [x]}}\n")
	if m := r.stateIs("read"); m["error"] != nil {
		t.Errorf("%v", m)
	}
	os.WriteFile(path, []byte("channels:\n  w:\n    access:\n      users:\n        x: {level: raed}\n        y: {level: read}\n"), 0o600)
	m := r.stateIs("mistaken")
	if m["error"] != path+":5: channels.w.access.users.x.level: want chat, read or full" || rowOf(m, "rows", "y") != "user: read, write false" {
		t.Errorf("%v", m)
	}
	if m := r.must(api.RootStatus, struct{}{})["access"].(map[string]any); m["state"] != "mistaken" {
		t.Errorf("%v", m)
	}
	os.WriteFile(path, []byte("channels: {w: {allow: [x]}}\n"), 0o600)
	r.stateIs("read")
}

func TestC9_OnePathOfMutation(t *testing.T) {
	r, path := withAccess(t, "# mine\nchannels:\n  w: # phone\n    allow: [x]\n")
	r.stateIs("read")
	set := api.AccessEditParams{Action: "level", Channel: "w", Target: "+5511999998888", Level: "read", Write: true}
	read := func() string { raw, _ := os.ReadFile(path); return string(raw) }
	was := read()
	// A trial run: both matrices by the same engine, and not a byte written.
	m := r.must(api.AccessEdit, set, func(q *api.Request) { q.DryRun = true })
	if rowOf(m, "matrix_before", set.Target) != "nobody" || rowOf(m, "matrix_after", set.Target) != "user: read, write true" || m["written"] == true || read() != was {
		t.Errorf("%v\n%s", m, read())
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 { // no lock either
		t.Errorf("%v", files)
	}
	m = r.must(api.AccessEdit, set, func(q *api.Request) { q.RequestID = "r-9" })
	if m["before"] != "no entry" || m["after"] != "level read, write on" || m["written"] != true {
		t.Errorf("%v", m)
	}
	if got := read(); !strings.HasPrefix(got, was) || !strings.Contains(got, `"+5511999998888": {level: read, write: true}`) {
		t.Errorf("%s", got)
	}
	if got := rowOf(r.must(api.AccessShow, struct{}{}), "rows", set.Target); got != "user: read, write true" {
		t.Errorf("after the answer it decides: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	r.must(api.AccessEdit, api.AccessEditParams{Action: "preset", Channel: "w", Target: "+5511999998888", Preset: "developer"})
	r.must(api.AccessEdit, api.AccessEditParams{Action: "preset", Channel: "w", Target: "+5511999998888", Preset: "full_pod"}) // the same: nothing to record
	r.must(api.AccessEdit, api.AccessEditParams{Action: "groups", Channel: "w", On: true})
	r.must(api.AccessEdit, api.AccessEditParams{Action: "group-default", Channel: "w", Preset: "chat_only"})
	r.must(api.AccessEdit, api.AccessEditParams{Action: "group", Channel: "w", Target: "120363@g.us", Level: "full"})
	raw, err := os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines\n%s", len(lines), raw)
	}
	for i, want := range []string{`"access level","target":"w:+55…88","before":"no entry","after":"level read, write on"`, `"access preset","target":"w:+55…88","before":"level read, write on","after":"level full, write on"`,
		`"access groups","target":"w","before":"groups off","after":"groups on"`, `"access group-default"`, `"access group","target":"w:120…us"`} {
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], `"actor":"uid 0"`) {
			t.Errorf("%s: no %s", lines[i], want)
		}
	}
	// No name of a preset, and no whole identity.
	if strings.Contains(string(raw), "developer") || strings.Contains(string(raw), "full_pod") || strings.Contains(string(raw), "999998888") || !strings.Contains(lines[0], `"request":"r-9"`) {
		t.Errorf("%s", raw)
	}
	refused := map[string]struct {
		p    api.AccessEditParams
		code refusal.Code
	}{
		"full for whom nobody knows": {api.AccessEditParams{Action: "default", Channel: "w", Level: "full"}, refusal.AccessChange},
		"developer too":              {api.AccessEditParams{Action: "default", Channel: "w", Preset: "developer"}, refusal.AccessChange},
		"both":                       {api.AccessEditParams{Action: "default", Channel: "w", Level: "read", Preset: "read"}, refusal.BadRequest},
		"neither":                    {api.AccessEditParams{Action: "level", Channel: "w", Target: "x"}, refusal.BadRequest},
		"an account that is not":     {api.AccessEditParams{Action: "level", Channel: "local", Target: "nobody", Level: "read"}, refusal.NotFound},
		"an unknown action":          {api.AccessEditParams{Action: "everything", Channel: "w"}, refusal.AccessChange},
	}
	was = read()
	for says, x := range refused {
		r.refused(x.code, api.AccessEdit, x.p)
		if read() != was {
			t.Errorf("%s wrote", says)
		}
	}
	if again, _ := os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name)); len(again) != len(raw) {
		t.Errorf("a refused change is recorded: %s", again[len(raw):])
	}
	// An account of channel local is named as people know it and kept by its id.
	r.must(api.AccountAdd, api.AccountAddParams{Name: "alice", UIDs: []uint32{1000}})
	m = r.must(api.AccessEdit, api.AccessEditParams{Action: "role", Channel: "local", Target: "alice"})
	if !strings.HasPrefix(fmt.Sprint(m["target"]), "acc_") || !strings.Contains(fmt.Sprint(m["warnings"]), "local is declared now") {
		t.Errorf("%v", m)
	}
	// What cannot be recorded is not made; neither is what cannot be read.
	os.WriteFile(path, []byte("{"), 0o600)
	r.stateIs("denying")
	r.refused(refusal.AccessChange, api.AccessEdit, set)
}

func TestC9_SomebodyElsesLockAndFile(t *testing.T) {
	r, path := withAccess(t, "channels: {w: {}}\n")
	r.stateIs("read")
	set := api.AccessEditParams{Action: "level", Channel: "w", Target: "x", Level: "read"}
	r.must(api.AccessEdit, set)
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	set.Level = "full"
	r.refused(refusal.AccessChange, api.AccessEdit, set)
	f.Close()
	r.must(api.AccessEdit, set)
	// A lock that is a link to something of somebody's is not followed.
	os.Remove(path + lockSuffix)
	os.Symlink("/etc/hostname", path+lockSuffix)
	r.refused(refusal.AccessChange, api.AccessEdit, set)
	os.Remove(path + lockSuffix)
	set.Level = "chat"
	r.must(api.AccessEdit, set)
}

// Somebody without the lock has written the file between reading and renaming.
func TestC9_AFileThatChangedUnderneathIsNotOverwritten(t *testing.T) {
	needRoot(t)
	path := filepath.Join(newDir(t), "access.yaml")
	os.WriteFile(path, []byte("# first\n"), 0o600)
	was := readAccess(path, time.Now())
	os.WriteFile(path, []byte("# by hand\n"), 0o600)
	err := replaceFile(path, []byte("# ours\n"), was)
	var r *api.Refusal
	if raw, _ := os.ReadFile(path); string(raw) != "# by hand\n" || !errors.As(err, &r) || r.Code != refusal.StaleSelector {
		t.Errorf("%q, %v", raw, err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	if err := replaceFile(path, []byte("# ours\n"), readAccess(path, time.Now())); err != nil {
		t.Error(err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "# ours\n" {
		t.Errorf("%q", raw)
	}
}

// An edit by hand has its record too, which holds nothing of what the file says.
func TestC9_AnEditByHandIsRecorded(t *testing.T) {
	r, path := withAccess(t, "channels: {w: {allow: [\"+5511999998888\"]}}\n")
	os.WriteFile(path, []byte("channels: {w: {allow: [\"+5511999997777\"]}}\n"), 0o600)
	var raw []byte
	waitFor(t, "a record", func() bool {
		raw, _ = os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name))
		return strings.Contains(string(raw), `"access file","before":"digest `)
	})
	if strings.Contains(string(raw), "99999") || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("%s", raw)
	}
	os.Remove(path)
	r.stateIs("denying")
	waitFor(t, "its end", func() bool {
		raw, _ = os.ReadFile(filepath.Join(r.cfg.RootDir, audit.Name))
		return strings.Contains(string(raw), `"after":"none"`)
	})
}

// A policy that never was there is none again once its directory can be trusted: a
// moment in which it could not be looked for is no policy that was taken away.
func TestC8_ADirectoryThatHealsHeals(t *testing.T) {
	r, path := withAccess(t, "")
	r.stateIs("none")
	dir := filepath.Dir(path)
	if err := os.Chown(dir, 1234, 0); err != nil {
		t.Fatal(err)
	}
	r.stateIs("denying")
	if err := os.Chown(dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	r.stateIs("none")
}
