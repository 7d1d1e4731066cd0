package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/ids"
)

// patience bounds every wait of a test; an event that comes ends the wait.
const patience = 20 * time.Second

func project(n byte) ids.Project { return ids.New[ids.Project](time.UnixMilli(1), [10]byte{9: n}) }

func open(t *testing.T, state string, held ...Held) *Keeper {
	t.Helper()
	k, err := Open(state, held)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// running is a keeper whose writer runs until the test ends.
func running(t *testing.T, state string, held ...Held) *Keeper {
	t.Helper()
	k := open(t, state, held...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func bring(t *testing.T, k *Keeper, p ids.Project, raw, said string) Kept {
	t.Helper()
	if err := k.Reserve(p, int64(len(raw))); err != nil {
		return Kept{Err: err}
	}
	got := make(chan Kept, 1)
	k.Bring(p, []byte(raw), said, func(kept Kept) { got <- kept })
	select {
	case kept := <-got:
		return kept
	case <-time.After(patience):
		t.Fatal("nothing became of it")
	}
	return Kept{}
}

func heldOf(p ids.Project, raw string) Held {
	return Held{Project: p, Digest: sha256.Sum256([]byte(raw)), Size: int64(len(raw))}
}

func files(t *testing.T, state string) (names []string) {
	t.Helper()
	filepath.WalkDir(filepath.Join(state, Dir), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
		}
		return err
	})
	return names
}

func name(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return hex.EncodeToString(sum[:])
}

func TestArtifact1_AFileHasTheBytesOfItsName(t *testing.T) {
	state := t.TempDir()
	k := running(t, state)
	for _, raw := range []string{"", "a", strings.Repeat("0123456789", 100_000)} {
		kept := bring(t, k, project(1), raw, "")
		if kept.Err != nil || kept.Digest != sha256.Sum256([]byte(raw)) {
			t.Fatalf("%+v", kept)
		}
		path := filepath.Join(state, Dir, name(raw)[:2], name(raw))
		got, err := os.ReadFile(path)
		if err != nil || string(got) != raw {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%v %v", fi.Mode(), err)
		}
		for at := 0; at <= len(raw); at += 400_000 {
			if got, err := k.Read(kept.Digest, int64(at), 400_000); err != nil || string(got) != raw[at:min(at+400_000, len(raw))] {
				t.Errorf("from %d: %d bytes, %v", at, len(got), err)
			}
		}
	}
	if _, err := k.Read(Digest{1}, 0, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if fi, err := os.Stat(filepath.Join(state, Dir)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

func TestArtifact2_AFileGoesWithItsLastRowAndOrphansAtTheStart(t *testing.T) {
	state := t.TempDir()
	k := running(t, state)
	one, two := project(1), project(2)
	for _, p := range []ids.Project{one, one, two} {
		if kept := bring(t, k, p, "shared", ""); kept.Err != nil {
			t.Fatal(kept.Err)
		}
	}
	for i, p := range []ids.Project{one, two, one} {
		if got := files(t, state); !slices.Equal(got, []string{name("shared")}) {
			t.Fatalf("before drop %d: %v", i, got)
		}
		k.Drop(heldOf(p, "shared"))
	}
	if got := files(t, state); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	k.Drop(heldOf(one, "shared")) // once too often is harmless
	// What a crash left: a half, an orphan, and what has a row.
	if kept := bring(t, k, one, "orphan", ""); kept.Err != nil {
		t.Fatal(kept.Err)
	}
	if kept := bring(t, k, one, "held", ""); kept.Err != nil {
		t.Fatal(kept.Err)
	}
	shelf := filepath.Join(state, Dir, name("held")[:2])
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(filepath.Join(shelf, "half"), []byte("x"), 0o600), os.WriteFile(filepath.Join(state, Dir, "stray"), nil, 0o600),
		os.WriteFile(outside, nil, 0o600), os.Symlink(outside, filepath.Join(shelf, name("link")))); err != nil {
		t.Fatal(err)
	}
	again := running(t, state, heldOf(one, "held"))
	if got := files(t, state); !slices.Equal(got, []string{name("held")}) {
		t.Errorf("after the sweep: %v", got)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("the sweep followed a link: %v", err)
	}
	// A row whose file is not there, as after a restore: the same bytes bring it back.
	if err := os.Remove(filepath.Join(shelf, name("held"))); err != nil {
		t.Fatal(err)
	}
	if kept := bring(t, again, two, "held", ""); kept.Err != nil || len(files(t, state)) != 1 {
		t.Errorf("%+v, %v", kept, files(t, state))
	}
}

func TestArtifact3_LimitsBelowAtAndAbove(t *testing.T) {
	k := running(t, t.TempDir())
	one, two := project(1), project(2)
	k.Limit(Limits{Project: 100, Total: 150})
	raw := func(fill string, n int) string { return strings.Repeat(fill, n) }
	for _, row := range []struct {
		says string
		p    ids.Project
		raw  string
		want error
		over bool
	}{
		{"below", one, raw("a", 99), nil, false},
		{"at", one, raw("b", 1), nil, false},
		{"above", one, raw("c", 1), ErrProject, false},
		{"the same bytes again need no room", one, raw("a", 99), nil, false},
		{"another project has its own", two, raw("d", 50), nil, false},
		{"shared bytes count for each, and once for all", two, raw("b", 1), nil, false},
		{"the whole is over: retention's to cure", two, raw("e", 1), nil, true},
	} {
		if kept := bring(t, k, row.p, row.raw, ""); !errors.Is(kept.Err, row.want) || k.Over() != row.over {
			t.Errorf("%s: %v, over %v", row.says, kept.Err, k.Over())
		}
	}
	k.Drop(heldOf(one, raw("a", 99))) // one of two rows
	if kept := bring(t, k, one, raw("f", 2), ""); !errors.Is(kept.Err, ErrProject) {
		t.Errorf("%v", kept.Err)
	}
	k.Drop(heldOf(one, raw("a", 99)))
	if kept := bring(t, k, one, raw("f", 2), ""); kept.Err != nil {
		t.Errorf("%v", kept.Err)
	}
	for range MaxRows - 2 { // two are kept: "b" and "f"
		if !k.Note(one) {
			t.Fatal("a row too few")
		}
	}
	if k.Note(one) || !errors.Is(k.Reserve(one, 1), ErrProject) || !k.Note(two) {
		t.Error("rows are not counted by project")
	}
	k.Drop(Held{Project: one, Missing: true})
	if !k.Note(one) {
		t.Error("a row that went is not given back")
	}
}

func TestArtifact3_WhatCannotBeWrittenIsNotKeptAndHoldsNothing(t *testing.T) {
	state := t.TempDir()
	k := running(t, state)
	shelf := filepath.Join(state, Dir, name("a")[:2])
	if err := os.WriteFile(shelf, nil, 0o600); err != nil { // a file where a directory must be
		t.Fatal(err)
	}
	if kept := bring(t, k, project(1), "a", ""); !errors.Is(kept.Err, ErrWrite) {
		t.Fatalf("%v", kept.Err)
	}
	// What it waited for is given back a moment after it was told.
	for end := time.Now().Add(10 * time.Second); k.Usage().Waiting != 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
	k.mu.Lock()
	if len(k.blobs) != 0 || len(k.used) != 0 || len(k.rows) != 0 || k.waiting != 0 || len(k.share) != 0 {
		t.Errorf("blobs %v, used %v, rows %v, waiting %d, share %v", k.blobs, k.used, k.rows, k.waiting, k.share)
	}
	k.mu.Unlock()
	os.Remove(shelf)
	if kept := bring(t, k, project(1), "a", ""); kept.Err != nil {
		t.Fatalf("it does not heal: %v", kept.Err)
	}
}

func TestArtifact4_TypesAreOfAClosedList(t *testing.T) {
	for _, row := range []struct{ raw, said, want string }{
		{"\x89PNG\r\n\x1a\nrest", "text/html", "image/png"},
		{"\xff\xd8\xff\xe0", "", "image/jpeg"}, {"GIF89a", "", "image/gif"}, {"GIF87a", "", "image/gif"},
		{"RIFF\x00\x00\x00\x00WEBPVP8 ", "", "image/webp"}, {"RIFF\x00\x00\x00\x00WAVEfmt ", "", "audio/wav"}, {"RIFF\x00\x00\x00\x00AVI ", "video/avi", Bytes}, {"RIFF", "audio/wav", Bytes},
		{"OggS", "", "audio/ogg"}, {"fLaC", "", "audio/flac"}, {"ID3\x04", "", "audio/mpeg"}, {"%PDF-1.7", "image/png", "application/pdf"},
		{"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "image/svg+xml", Bytes},
		{"<html><script>1</script>", "text/html", Text}, {"{}", "application/json", Text}, {"{}", "", Bytes},
		{"plain\ttext\r\n", "text/plain; charset=utf-8", Text}, {"no\x00text", "text/plain", Bytes}, {"no\x1b[31mtext", "text/plain", Bytes}, {"\xff\xfe", "text/plain", Bytes},
		{"MZ", "image/png", Bytes}, {"", "image/png", Bytes}, {"", "text/x", Text}, {"\x89PN", "image/png", Bytes},
	} {
		got := Type([]byte(row.raw), row.said)
		if got != row.want || !slices.Contains(Types(), got) {
			t.Errorf("%q as %q is %q, want %q", row.raw, row.said, got, row.want)
		}
	}
}

func TestArtifact5_WhoBringsNeverWaits(t *testing.T) {
	k := open(t, t.TempDir()) // nobody writes
	one, two := project(1), project(2)
	const each = 8 << 20
	n := 0
	for ; k.Reserve(one, each) == nil; n++ {
	}
	if n != MaxShare/each {
		t.Errorf("%d reservations of one project", n)
	}
	for ; k.Reserve(two, each) == nil; n++ {
	}
	if n != MaxWaiting/each {
		t.Errorf("%d reservations", n)
	}
	if err := k.Reserve(project(3), 1); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	k.Release(one, each)
	if err := k.Reserve(project(3), each); err != nil {
		t.Errorf("%v", err)
	}
	// Many small ones: what there is no place for is told, and gives its room back.
	k = open(t, t.TempDir())
	told := make(chan Kept, 1)
	for range maxJobs {
		if err := k.Reserve(one, 1); err != nil {
			t.Fatal(err)
		}
		k.Bring(one, []byte("x"), "", func(Kept) {})
	}
	if err := k.Reserve(one, 1); err != nil {
		t.Fatal(err)
	}
	k.Bring(one, []byte("x"), "", func(kept Kept) { told <- kept })
	select {
	case kept := <-told:
		if !errors.Is(kept.Err, ErrBusy) || k.waiting != maxJobs {
			t.Errorf("%v, %d", kept.Err, k.waiting)
		}
	case <-time.After(patience):
		t.Fatal("it waits")
	}
}

func TestADirectoryOfOthersIsRefused(t *testing.T) {
	state := t.TempDir()
	at := filepath.Join(state, Dir)
	for says, spoil := range map[string]func() error{
		"for all":     func() error { return errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, 0o755)) },
		"a link":      func() error { return os.Symlink(t.TempDir(), at) },
		"not a dir":   func() error { return os.WriteFile(at, nil, 0o600) },
		"all is well": func() error { return nil },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(state, nil); (err == nil) != (says == "all is well") {
			t.Errorf("%s: %v", says, err)
		}
		os.RemoveAll(at)
	}
}

func FuzzType(f *testing.F) {
	for _, k := range kinds {
		f.Add([]byte(k.begins), "text/plain")
	}
	f.Fuzz(func(t *testing.T, raw []byte, said string) {
		got := Type(raw, said)
		if !slices.Contains(Types(), got) || got == Text && bytes.ContainsAny(raw, "\x00\x1b") {
			t.Errorf("%q", got)
		}
	})
}
