package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStore2_AFullDiskDeniesAndThenRecovers fills a small file system, and then frees it.
func TestStore2_AFullDiskDeniesAndThenRecovers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test mounts a file system and needs root")
		}
		t.Skip("this test mounts a file system and needs root")
	}
	dir := stateDir(t)
	if err := unix.Mount("postern-store-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=12m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := open(t, dir)
	ballast := filepath.Join(dir, "ballast")
	fill := func() {
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 16; size >= 1; size /= 2 {
			for {
				if _, err := f.Write(make([]byte, size)); err != nil {
					break
				}
			}
		}
	}
	b := s.Batch()
	admit := func(n int) (admitted int, err error) {
		for range n {
			b.Admit(call(1))
			if err = b.Commit(); err != nil {
				return admitted, err
			}
			admitted++
		}
		return admitted, nil
	}
	first, err := admit(10)
	if err != nil {
		t.Fatal(err)
	}
	fill()
	// The log was written before, so that some calls still find room in it.
	more, err := admit(20000)
	if !errors.Is(err, ErrFull) {
		t.Fatalf("after %d more admissions: %v", more, err)
	}
	b.End(1, Outcome{State: Completed})
	for range 3 {
		if n, err := admit(1); n != 0 || !errors.Is(err, ErrFull) {
			t.Fatalf("on a full disk: %d, %v", n, err)
		}
	}
	if err := s.Apply(record()); err != nil && !errors.Is(err, ErrFull) {
		t.Fatalf("a change on a full disk: %v", err)
	}
	if p := page(t, s, Query{Limit: 1}); len(p.Calls) != 1 {
		t.Fatal("a full disk stops reading")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	last, err := admit(100)
	if err != nil {
		t.Fatalf("with room again: %v", err)
	}
	s.Close()
	s = open(t, dir)
	n, completed := 0, 0
	for q := (Query{}); ; {
		p := page(t, s, q)
		n += len(p.Calls)
		for _, c := range p.Calls {
			if c.State == Completed {
				completed++
			}
		}
		if q.Before = p.Next; !p.More {
			break
		}
	}
	if n != first+more+last || completed != 1 {
		t.Fatalf("%d records of %d admissions, %d completed", n, first+more+last, completed)
	}
}
