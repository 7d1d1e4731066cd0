package launch

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Renames of others, anywhere on the machine, make the kernel unsure of "..".
func TestIngest_RenamesElsewhereDoNotRefuseALink(t *testing.T) {
	dir, noise := newDir(t), newDir(t)
	for _, d := range []string{"bin", "pkg"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pkg/tool"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../pkg/tool", filepath.Join(dir, "bin/tool")); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	a, b := filepath.Join(noise, "a"), filepath.Join(noise, "b")
	if err := os.WriteFile(a, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			unix.Rename(a, b)
			unix.Rename(b, a)
		}
	}()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	unsure := 0
	for range 20000 {
		fd, err := unix.Openat2(root, "bin/tool", how)
		if err == nil {
			unix.Close(fd)
		} else if err == unix.EAGAIN {
			unsure++
		}
		if fd, err = openat2(root, "bin/tool", how); err != nil {
			t.Fatalf("a good link is refused: %v", err)
		}
		unix.Close(fd)
	}
	stop.Store(true)
	<-done
	t.Logf("the kernel was unsure %d times of 20000", unsure)
}
