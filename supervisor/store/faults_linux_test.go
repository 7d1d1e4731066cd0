package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// What the disk answers, and what the store makes of it: full is denied and heals in
// place, everything else ends this opening of it, and the next one tells the truth.
func TestStore2_EachErrorOfTheDiskHasItsName(t *testing.T) {
	wal := ActivityFile + "-wal"
	for _, row := range []struct {
		says  string
		where fault
		errno error
		want  error
	}{
		{"a write that finds no room", fault{"write", wal}, vfs.SystemError(syscall.ENOSPC, sqlite3.FULL), ErrFull},
		{"a write that fails", fault{"write", wal}, syscall.EIO, ErrIO},
		{"a disk that became read-only", fault{"write", wal}, syscall.EROFS, ErrIO},
		{"a sync that fails", fault{"sync", wal}, syscall.EIO, ErrIO},
		{"a sync that finds no room", fault{"sync", wal}, syscall.ENOSPC, ErrIO},
		{"the same error of another file", fault{"write", PolicyFile + "-wal"}, syscall.EIO, nil},
	} {
		t.Run(row.says, func(t *testing.T) {
			dir := stateDir(t)
			open(t, dir).Close()
			d := newDisk(t, dir, 1)
			s, err := openOver(dir, d.name, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			b := s.Batch()
			before, during := call(1), call(2)
			b.Admit(before)
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
			b.End(before.Seq, Outcome{State: Completed, At: 1})
			d.fail(row.where.op, row.where.file, row.errno)
			b.Admit(during)
			if err := b.Commit(); !errors.Is(err, row.want) {
				t.Fatalf("%v, want %v", err, row.want)
			}
			if row.want == nil {
				return
			}
			if b.Waiting() != 1 {
				t.Fatalf("%d things wait; the outcome alone may", b.Waiting())
			}
			if got := page(t, s, Query{}); len(got.Calls) != 1 || got.Calls[0].State != Admitted {
				t.Fatalf("reading ends, or sees what was not confirmed: %+v", got.Calls)
			}
			d.fail(row.where.op, row.where.file, nil)
			if row.want == ErrFull {
				after := call(3)
				b.Admit(after)
				if err := b.Commit(); err != nil {
					t.Fatalf("with room again: %v", err)
				}
				if got := page(t, s, Query{}); len(got.Calls) != 2 || got.Calls[0].ID != after.ID || got.Calls[1].State != Completed {
					t.Fatalf("%+v", got.Calls)
				}
				return
			}
			// The authority ends; the next one opens the files anew.
			s.Close()
			s = open(t, dir)
			if _, err := s.Recover(9); err != nil {
				t.Fatal(err)
			}
			for _, c := range page(t, s, Query{}).Calls {
				if c.State.Open() || c.ID != before.ID && c.ID != during.ID {
					t.Fatalf("%+v", c)
				}
			}
			b = s.Batch()
			b.Admit(call(4))
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestStore2_AnUnreadableFileIsNotAnEmptyOne(t *testing.T) {
	for _, name := range []string{PolicyFile, ActivityFile} {
		dir := stateDir(t)
		s := open(t, dir)
		if err := s.Apply(record()); err != nil {
			t.Fatal(err)
		}
		s.Batch().Admit(call(1))
		if err := s.Batch().Commit(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		d := newDisk(t, dir, 1)
		d.fail("read", name, syscall.EIO)
		if s, err := openOver(dir, d.name, silent); err == nil {
			s.Close()
			t.Errorf("%s can not be read, and the store opens", name)
		}
		d.fail("read", name, nil)
		s, err := openOver(dir, d.name, silent)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := s.Policy(); err != nil || len(p.Grants) != 1 || len(page(t, s, Query{}).Calls) != 1 {
			t.Errorf("%+v %v", p, err)
		}
		s.Close()
	}
}

// A damaged activity.db is found in the background, ends this opening, and is not
// served from again before it is sound.
func TestADamagedActivityIsFoundAndNotServed(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	history(t, s, 5000)
	s.Close()
	path := filepath.Join(dir, ActivityFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte(nil), sound...)
	for i := 60 * pageBytes; i < 61*pageBytes; i += 7 {
		damaged[i] ^= 0x5a
	}
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("the check found %v", err)
	}
	s.Close()
	for range 2 {
		if s, err := Open(dir); !errors.Is(err, ErrCorrupt) {
			if err == nil {
				s.Close()
			}
			t.Fatalf("it opens again: %v", err)
		}
	}
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	ctx, cancel = context.WithTimeout(t.Context(), 3*checkpointEvery)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	if _, err := os.Lstat(path + doubted); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the doubt stays: %v", err)
	}
}

// A store on a file system that is mounted read-only is not opened, and works when it
// is writable again.
func TestAReadOnlyFileSystemIsRefused(t *testing.T) {
	dir := stateDir(t)
	mountSmall(t, dir)
	open(t, dir).Close()
	remount(t, dir, true)
	if s, err := Open(dir); err == nil {
		s.Close()
		t.Fatal("it opens")
	} else if !errors.Is(err, syscall.EROFS) {
		t.Errorf("the reason is lost: %v", err)
	}
	remount(t, dir, false)
	s := open(t, dir)
	s.Batch().Admit(call(1))
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// The wall clock is set back: records keep the order of their admission, none is
// missed since a moment, and their numbers go on.
func TestAClockThatIsSetBackMissesNoRecord(t *testing.T) {
	s := open(t, stateDir(t))
	b := s.Batch()
	at := func(n int) int64 {
		switch {
		case n >= 3000 && n < 3600: // an hour back, then right again
			return moment.Add(time.Duration(n)*time.Second - time.Hour).UnixNano()
		}
		return moment.Add(time.Duration(n) * time.Second).UnixNano()
	}
	var want []int64
	since := moment.Add(2500 * time.Second).UnixNano()
	for n := range 6000 {
		c := call(1)
		c.At = at(n)
		b.Admit(c)
		b.End(c.Seq, Outcome{State: Completed, At: c.At})
		if c.At >= since {
			want = append(want, c.Seq)
		}
		if n%500 == 0 {
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	tended(t, s, moment, Keep{})
	newest, _ := pages(t, s, Query{Since: since, Limit: 500}, 100)
	if len(newest) != len(want) || newest[0] != want[len(want)-1] || newest[len(newest)-1] != want[0] {
		t.Errorf("%d records since, want %d", len(newest), len(want))
	}
	from, err := s.FirstSince(since)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for q := (Query{Walk: true, From: from, Until: 1 << 60, Since: since}); ; {
		p := page(t, s, q)
		n += len(p.Calls)
		if q.From = p.Next; !p.More {
			break
		}
	}
	if n != len(want) {
		t.Errorf("walking since finds %d, want %d", n, len(want))
	}
}

// Fifty writers share the one writer's turns while another process holds the lock for
// a second: nobody is refused for it, and nothing is lost.
func TestC154_ALockOfASecondLosesNoCall(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	other, err := connect(filepath.Join(dir, ActivityFile), "", sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() {
		time.Sleep(time.Second)
		released <- other.Exec(`ROLLBACK`)
	}()
	asks, done := make(chan *Call), make(chan error)
	for range 50 {
		go func() {
			c := call(1)
			asks <- c // its intent
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
	}
	b := s.Batch()
	began := time.Now()
	var open []*Call
	for n := 0; n < 50; {
		c := <-asks
		b.Admit(c)
		if err := b.Commit(); err != nil {
			t.Fatalf("call %d after %v: %v", n, time.Since(began), err)
		}
		open = append(open, c)
		done <- nil
		n++
	}
	for _, c := range open {
		b.End(c.Seq, Outcome{State: Completed, At: 2})
	}
	if err := errors.Join(b.Commit(), <-released); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Fatalf("nothing was locked: %v", took)
	}
	if got := page(t, s, Query{State: Completed}); len(got.Calls) != 50 {
		t.Fatalf("%d of 50 calls are recorded with their outcome", len(got.Calls))
	}
}

func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test mounts a file system and needs root")
		}
		t.Skip("this test mounts a file system and needs root")
	}
	if err := syscall.Mount("postern-store-test", dir, "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func remount(t *testing.T, dir string, readOnly bool) {
	t.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if readOnly {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("", dir, "", flags, ""); err != nil {
		t.Fatal(fmt.Errorf("remount: %w", err))
	}
}
