package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever stands in the workspace, a server reads and writes beneath it and nowhere
// else: links out, absolute and relative, links in the middle of a path, dangling
// ones, a sibling with the same beginning, magic links, and a link that is swapped
// with a directory while the server opens. Its permitted twins are links within.
func TestC043_C044_C046_C047_C049_C052_C053_NothingOutsideTheWorkspace(t *testing.T) {
	w := newWorld(t)
	w.must("connection", "grant", "a", "count", "write")
	out := filepath.Join(w.Dir, "outside")
	sibling := w.a.workspace + "-sibling"
	for _, d := range []string{out, sibling} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "secret.txt"), []byte("OUTSIDE"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(w.a.workspace, name) }
	for name, to := range map[string]string{
		"abs": filepath.Join(out, "secret.txt"), "rel": "../outside/secret.txt", "dir": out, "dirrel": "../outside", "dangling": filepath.Join(out, "made.txt"),
		"proc": "/proc/1/root" + out + "/secret.txt", "self": "/proc/self/root/etc/shadow", "within": "secret.txt", "sub/back": "../secret.txt",
	} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(in("sub"), aliceUID, aliceUID); err != nil {
		t.Fatal(err)
	}
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, p := range []string{"abs", "rel", "dir/secret.txt", "dirrel/secret.txt", "proc", "self", "../ws-a-sibling/secret.txt", "../outside/secret.txt",
		"sub/../../outside/secret.txt", "./././../outside/secret.txt"} {
		if got := r.call("read", `{"path":"/workspace/`+p+`"}`); got.outcome() != "isError" || strings.Contains(got.raw, "OUTSIDE") {
			t.Errorf("read %s: %s", p, got.raw)
		}
	}
	for _, p := range []string{"dangling", "abs", "dir/new.txt", "dirrel/new.txt", "../ws-a-sibling/new.txt"} {
		if got := r.call("write", `{"path":"/workspace/`+p+`","text":"x"}`); got.outcome() != "isError" {
			t.Errorf("write %s: %s", p, got.raw)
		}
	}
	for _, p := range []string{"within", "sub/back", "sub/../secret.txt"} {
		if got := r.call("read", `{"path":"/workspace/`+p+`"}`); got.text() != "the secret of a" {
			t.Errorf("read %s, which is within: %s", p, got.raw)
		}
	}
	if got := r.call("write", `{"path":"/workspace/sub/new.txt","text":"x"}`); got.outcome() != "ok" {
		t.Errorf("write within: %s", got.raw)
	}

	// The owner's side swaps a directory and a link out, again and again.
	for _, d := range []string{"swap", "swap/deep"} {
		if err := os.Mkdir(in(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("swap/secret.txt"), []byte("INSIDE"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, in("other")); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var swaps atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			if unix.Renameat2(unix.AT_FDCWD, in("swap"), unix.AT_FDCWD, in("other"), unix.RENAME_EXCHANGE) == nil {
				swaps.Add(1)
			}
		}
	}()
	inside := 0
	for range 400 {
		got := r.call("read", `{"path":"/workspace/swap/secret.txt"}`)
		if strings.Contains(got.raw, "OUTSIDE") {
			t.Fatalf("a swapped link was followed out: %s", got.raw)
		}
		if got.text() == "INSIDE" {
			inside++
		}
		r.call("write", `{"path":"/workspace/swap/raced.txt","text":"x"}`)
	}
	stop.Store(true)
	<-done
	if inside == 0 || swaps.Load() < 400 {
		t.Errorf("the race was none: %d reads within, %d swaps", inside, swaps.Load())
	}
	for _, d := range []string{out, sibling} {
		entries, err := os.ReadDir(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 1 || entries[0].Name() != "secret.txt" {
			t.Errorf("something was made outside: %v", entries)
		}
		if b, _ := os.ReadFile(filepath.Join(d, "secret.txt")); string(b) != "OUTSIDE" {
			t.Errorf("a file outside was changed: %q", b)
		}
	}
}
