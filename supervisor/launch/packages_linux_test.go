package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

func (p *packages) names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(p.store.Name())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestLaunch5_WhatACrashLeftOfTheStoreIsRemoved(t *testing.T) {
	needRoot(t)
	store := openStore(t)
	for _, d := range []string{halfPrefix + "1", oldPrefix + "2", "used", "unused", "deleted"} {
		os.MkdirAll(filepath.Join(store.store.Name(), d, "x"), 0o755)
	}
	for _, f := range []string{halfPrefix + "1" + listSuffix, "used" + listSuffix, "unused" + listSuffix, "deleted" + listSuffix, "p1" + formSuffix, "p2" + formSuffix} {
		os.WriteFile(filepath.Join(store.store.Name(), f), nil, 0o600)
	}
	f := newFacts(t0)
	f.Servers = []Server{{Revisions: []Revision{{Package: "unused", ProfileDigest: "p1"}, {Package: "used", ProfileDigest: "p1"}}}, {Deleted: true, Revisions: []Revision{{Package: "deleted", ProfileDigest: "p2"}}}}
	if err := store.begin(f); err != nil {
		t.Fatal(err)
	}
	if err := store.sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	// A list stays as long as its revision is remembered, the copy only while it may run.
	if got, want := store.names(t), []string{"p1" + formSuffix, "unused" + listSuffix, "used", "used" + listSuffix}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

// A copy that something holds is not removed, and one that is being removed is not held
// in part: who comes too late finds none.
func TestLaunch5_ACopyIsThereWholeOrNotAtAll(t *testing.T) {
	needRoot(t)
	store, src := openStore(t), newDir(t)
	npm(t, src)
	digest, letGo, refused := store.ingest(src, true, nothing, agree)
	if refused != nil {
		t.Fatal(refused)
	}
	second := store.hold(digest)
	for i, free := range []func(){letGo, letGo, second} {
		if gone, err := store.collect(map[string]bool{}, false); err != nil || len(gone) != 0 {
			t.Fatalf("%d: held, and taken out: %v, %v", i, gone, err)
		}
		free()
	}
	if gone, err := store.collect(map[string]bool{}, true); err != nil || len(gone) != 2 || len(store.names(t)) != 2 {
		t.Fatalf("a dry run: %v, %v, %q", gone, err, store.names(t))
	}
	tree, err := openAt(int(store.store.Fd()), digest, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if gone, err := store.collect(map[string]bool{}, false); err != nil || len(gone) != 2 {
		t.Fatalf("%v, %v", gone, err)
	}
	if _, err := openAt(int(store.store.Fd()), digest, 0); !os.IsNotExist(err) {
		t.Fatalf("what is being removed opens: %v", err)
	}
	// The same package again, before the former copy is removed.
	again, free, refused := store.ingest(src, true, nothing, agree)
	if refused != nil || again != digest {
		t.Fatalf("%s, %v", again, refused)
	}
	defer free()
	if err := store.sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(store.store.Name(), digest, "node_modules/.bin/server")); err != nil || !contains(string(raw), "env node") {
		t.Fatalf("the new copy: %q, %v", raw, err)
	}
	if got := store.names(t); len(got) != 2 {
		t.Fatalf("%q", got)
	}
}

// TestLaunch5_AnOldCopyLivesAsLongAsWhatRunsOfIt: an update and a delete leave the copy
// to the instances that have it; with the last of them it goes.
func TestLaunch5_AnOldCopyLivesAsLongAsWhatRunsOfIt(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	first := r.must(api.ServerShow, api.Selected{Selector: "echo"})["package"].(string)
	d := r.drive()
	d.give(order.LaunchServer{Seq: 1, Project: p, Set: 1, Server: server, Revision: rev})
	l, pipes := d.launched()
	hear(t, pipes[1])

	copied := func(digest string) bool { return exists(filepath.Join(r.cfg.RootDir, packageDir, digest)) }
	pkg := filepath.Join(r.dir, "pkg-echo")
	os.WriteFile(filepath.Join(pkg, "notes.txt"), []byte("new"), 0o644)
	update := api.ServerParams{Label: "echo", Profile: "static", Package: pkg, Command: []string{"/package/server"}}
	// What is refused, and what is only tried, leaves no copy.
	r.refused(refusal.AlreadyExists, api.ServerAdd, update)
	r.must(api.ServerUpdate, update, func(q *api.Request) { q.DryRun = true })
	waitFor(t, "no copy of what was not registered", func() bool { return len(copies(t, r)) == 1 })

	second := r.must(api.ServerUpdate, update)
	if !copied(first) || !copied(second["package"].(string)) {
		t.Fatalf("running: %v, current: %v", copied(first), copied(second["package"].(string)))
	}
	gc := func(dry bool) api.ServerGCResult {
		return decode[api.ServerGCResult](t, r.must(api.ServerGC, struct{}{}, func(q *api.Request) { q.DryRun = dry }))
	}
	if out := gc(false); len(out.Removed) != 0 || len(out.Kept) != 2 {
		t.Fatalf("%+v", out)
	}
	for _, c := range gc(true).Kept {
		if c.Package == first && (c.Running != 1 || len(c.Servers) != 0) || c.Package != first && (c.Running != 0 || !slices.Equal(c.Servers, []string{"echo"})) || c.Bytes == 0 || c.Files == 0 {
			t.Errorf("%+v", c)
		}
	}
	// What runs of the old copy still reads it.
	pipes[0].Close()
	d.give(order.Stop{Jail: l.Jail, GraceMs: 5000})
	expect[order.Exited](d)
	waitFor(t, "the old copy is removed", func() bool { return !copied(first) })
	if !copied(second["package"].(string)) {
		t.Fatal("the current copy went too")
	}
	if list := filepath.Join(r.cfg.RootDir, packageDir, first+listSuffix); !exists(list) {
		t.Error("the list of the old revision went with its copy")
	}
	// The old revision does not run again; the new one does, and a delete ends it all.
	d.give(order.LaunchServer{Seq: 2, Project: p, Set: 1, Server: server, Revision: rev})
	d.notLaunched(refusal.ServerRevisionChanged)
	d.give(order.LaunchServer{Seq: 3, Project: p, Set: 1, Server: server, Revision: ids.Revision(second["revision"].(string))})
	l, pipes = d.launched()
	hear(t, pipes[1])
	r.must(api.ServerDelete, api.Selected{Selector: "echo"})
	pipes[0].Close()
	d.give(order.Stop{Jail: l.Jail, GraceMs: 5000})
	expect[order.Exited](d)
	waitFor(t, "nothing is left", func() bool {
		left, _ := os.ReadDir(filepath.Join(r.cfg.RootDir, packageDir))
		return len(left) == 0
	})
}

// TestLaunch5_LaunchesAndCollectionsDoNotMeet: a server is launched while it is updated
// and its copies are collected, over and over. Each launch is refused by name or has the
// whole copy.
func TestLaunch5_LaunchesAndCollectionsDoNotMeet(t *testing.T) {
	r := start(t, newConfig(t))
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	pkg := filepath.Join(r.dir, "pkg-echo")
	d := r.drive()
	ran := 0
	for i := range 12 {
		d.give(order.LaunchServer{Seq: uint64(i + 1), Project: p, Set: 1, Server: server, Revision: rev})
		os.WriteFile(filepath.Join(pkg, "n"), []byte(fmt.Sprint(i)), 0o644)
		m := r.must(api.ServerUpdate, api.ServerParams{Label: "echo", Profile: "static", Package: pkg, Command: []string{"/package/server"}})
		r.must(api.ServerGC, struct{}{})
		rev = ids.Revision(m["revision"].(string))
		switch m, pipes := d.answer(); m := m.(type) {
		case order.Launched:
			ran++
			hear(t, pipes[1])
			pipes[0].Close()
			d.give(order.Stop{Jail: m.Jail, GraceMs: 5000})
			expect[order.Exited](d)
		case order.NotLaunched:
			if m.Code != refusal.ServerRevisionChanged {
				t.Errorf("%+v", m)
			}
		}
	}
	if ran == 0 {
		t.Error("none was launched")
	}
	waitFor(t, "one copy", func() bool { return len(copies(t, r)) == 1 })
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func copies(t *testing.T, r *rig) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.cfg.RootDir, packageDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

func decode[T any](t *testing.T, m map[string]any) (out T) {
	t.Helper()
	raw, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(raw, &out, json.RejectUnknownMembers(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
