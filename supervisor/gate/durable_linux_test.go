package gate

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
)

// heals checks what a failing commit means: the admissions of the batch never
// happened, nothing of them is open, and outcomes wait for the commit that works.
// broken returns the calls that were admitted until the store failed.
func heals(t *testing.T, w *world, broken func() map[ids.Call]bool, mend func()) {
	t.Helper()
	before := w.admitted("before", w.call())
	w.ended(before, wire.Completed) // waits, and must not be lost
	told := broken()
	d := w.call()
	if d.Code != "" || w.g.OpenCalls() != 1 {
		t.Fatalf("%+v, %d open", d, w.g.OpenCalls())
	}
	for range 2 {
		err := w.g.Commit()
		if len(w.g.admitted) != 0 {
			t.Fatal("admissions are left in the batch")
		}
		if w.g.OpenCalls() != 0 || len(w.g.perPlace) != 0 {
			t.Fatalf("%d calls are open after %v", w.g.OpenCalls(), err)
		}
		if !errors.Is(err, refusal.StoreUnavailable) {
			t.Fatalf("the commit ended with %v", err)
		}
		if w.g.Trouble() == "" {
			t.Fatal("the trouble is not told")
		}
		d = w.call()
	}
	if err := w.g.Commit(); !errors.Is(err, refusal.StoreUnavailable) {
		t.Fatal(err)
	}
	if err := w.g.Flush(); err != nil {
		t.Fatalf("outcomes may wait: %v", err)
	}
	if err := w.g.Ended(shopSet, wire.Ended{Call: d.Call, Outcome: wire.Completed}); err != nil {
		t.Fatal(err)
	}
	if _, code := w.g.Bind(BindRequest{Project: id[ids.Project](shop), UID: aliceUID, Token: "ptk_no"}); code != refusal.TokenInvalid {
		t.Fatal(code)
	}
	mend()
	after := w.admitted("with the store back", w.call())
	if w.g.Trouble() != "" {
		t.Fatalf("trouble stays: %s", w.g.Trouble())
	}
	if got := w.record(before).State; got != store.Completed {
		t.Fatalf("the outcome that waited is %s", got)
	}
	if got := w.record(after).State; got != store.Admitted {
		t.Fatal(got)
	}
	for _, r := range w.records() {
		if r.ID != "" && r.ID != before && r.ID != after && !told[r.ID] {
			t.Fatalf("a call that was never told is recorded: %+v", r)
		}
	}
	if w.g.OpenCalls() != 1 {
		t.Fatal(w.g.OpenCalls())
	}
}

func TestGate1_A5_AFullDiskAdmitsNothingAndHealsInPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test mounts a file system and needs root")
		}
		t.Skip("this test mounts a file system and needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("postern-gate-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=12m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	w := worldOver(t, openStore(t, dir))
	ballast := filepath.Join(dir, "ballast")
	heals(t, w, func() map[ids.Call]bool {
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 16; size >= 1; size /= 2 {
			for err := error(nil); err == nil; _, err = f.Write(make([]byte, size)) {
			}
		}
		// The log was written before: it takes some calls until it is full too.
		told := map[ids.Call]bool{}
		for range 20000 {
			d := w.call()
			if err := w.g.Commit(); err != nil {
				return told
			}
			told[d.Call] = true
			w.ended(d.Call, wire.Completed)
		}
		t.Fatal("the disk never filled")
		return nil
	}, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGate1_ALockedFileAdmitsNothingAndHealsInPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := worldOver(t, openStore(t, dir))
	other, err := sqlite3.Open("file:" + filepath.Join(dir, store.ActivityFile))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	heals(t, w, func() map[ids.Call]bool {
		if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		return nil
	}, func() {
		if err := other.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	})
}

// A write that fails for another reason than room or a lock: nobody knows what the
// file holds, so whoever met it, the next commit ends the authority.
func TestGate1_AStoreThatIsLostEndsTheAuthority(t *testing.T) {
	for says, meet := range map[string]func(w *world) error{
		"by an admission": func(w *world) error { w.call(); return w.g.Commit() },
		"by a change": func(w *world) error {
			c, err := w.reg().Suspend(id[ids.Account](alice), true, 0)
			if err != nil {
				return err
			}
			return w.g.Apply(c)
		},
		"by a bind": func(w *world) error {
			_, code := w.g.Bind(BindRequest{Project: id[ids.Project](shop), UID: aliceUID, Token: w.ready})
			return code
		},
	} {
		t.Run(says, func(t *testing.T) {
			w := newWorld(t)
			w.ready = w.mint(w.task, aliceUID, 1, time.Minute)
			unlimited := noFileGrows(t)
			err := meet(w)
			unlimited()
			if err == nil || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBusy) {
				t.Fatalf("it ended with %v", err)
			}
			if w.g.OpenCalls() != 0 {
				t.Fatal("a call is open that nobody recorded")
			}
			for range 2 {
				if err := w.g.Commit(); !errors.Is(err, store.ErrIO) || errors.Is(err, refusal.StoreUnavailable) {
					t.Fatalf("the authority goes on: %v", err)
				}
			}
		})
	}
}

// noFileGrows makes every write to a file of this process fail with EFBIG.
func noFileGrows(t *testing.T) (undo func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGate1_AnOutcomeWaitsForCompanyAndNoLonger(t *testing.T) {
	w := newWorld(t)
	c := w.admitted("", w.call())
	w.ended(c, wire.Completed)
	if err := w.g.Commit(); err != nil || !w.g.Pending() || w.record(c).State != store.Admitted {
		t.Fatalf("an outcome was written alone: %v", err)
	}
	w.now = w.now.Add(EndedDelay - 1)
	if err := w.g.Commit(); err != nil || !w.g.Pending() {
		t.Fatal("an outcome did not wait", err)
	}
	w.now = w.now.Add(1)
	if err := w.g.Commit(); err != nil || w.g.Pending() || w.record(c).State != store.Completed {
		t.Fatalf("an outcome waits too long: %v", err)
	}
	second := w.admitted("", w.call())
	w.ended(second, wire.Failed)
	next := w.g.Bell().Next()
	third := w.call()
	if err := w.g.Commit(); err != nil || w.record(second).State != store.Failed || w.record(third.Call).State != store.Admitted {
		t.Fatalf("an admission does not take the outcome along: %v", err)
	}
	select {
	case <-next:
	default:
		t.Fatal("the bell did not ring")
	}
	w.ended(third.Call, wire.Cancelled)
	w.now = w.now.Add(-time.Hour) // the wall clock was set back
	if err := w.g.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := w.g.Flush(); err != nil || w.record(third.Call).State != store.Cancelled {
		t.Fatalf("Flush: %v", err)
	}
}
