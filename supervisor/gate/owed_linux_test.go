package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// endsInPlace checks what new root facts mean that end alice while policy.db takes nothing:
// they hold at once, the gate goes on, and the file has them as soon as it can be
// written. mend makes it writable.
func endsInPlace(t *testing.T, w *world, mend func()) {
	t.Helper()
	gone := facts()
	a := gone.Accounts[id[ids.Account](alice)]
	a.Deleted = true
	gone.Accounts[a.ID] = a
	if err := w.g.SetRoot(gone); err != nil {
		t.Fatalf("facts that end something end the authority: %v", err)
	}
	if w.g.Trouble() == "" {
		t.Error("nobody is told that the end is not in the file")
	}
	if d := w.call(); d.Code == "" {
		t.Fatal("a deleted account calls on")
	}
	if task := w.reg().Task(w.task); task == nil || task.Ended == 0 {
		t.Fatal("its task lives in memory")
	}
	// The facts as they were do not bring it back.
	if err := w.g.SetRoot(facts()); err != nil {
		t.Fatal(err)
	}
	if d := w.call(); d.Code == "" {
		t.Fatal("a task that was ended lives again")
	}
	mend()
	w.now = w.now.Add(TendPause)
	if err := w.g.Tend(); err != nil {
		t.Fatal(err)
	}
	if w.g.Trouble() != "" || len(w.g.owed) != 0 {
		t.Fatalf("trouble stays: %q, %d owed", w.g.Trouble(), len(w.g.owed))
	}
	p, err := w.s.Policy()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range p.Tasks {
		if row.ID == w.task && row.Ended == 0 {
			t.Fatal("the end is not in the file")
		}
	}
	// And what is asked for by a client goes through again.
	c, err := w.reg().AddMember(id[ids.Project](shop), id[ids.Account](carol), registry.Member)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.g.Apply(c); err != nil {
		t.Fatal(err)
	}
}

func TestGate2_FactsThatEndSomethingHoldWhileTheFileIsLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := worldOver(t, openStore(t, dir))
	other, err := sqlite3.Open("file:" + filepath.Join(dir, store.PolicyFile))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	endsInPlace(t, w, func() {
		// A change of a client is refused meanwhile, and nothing overtakes what is owed.
		c, err := w.reg().AddMember(id[ids.Project](shop), id[ids.Account](bob), registry.Member)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.g.Apply(c); !errors.Is(err, refusal.StoreUnavailable) {
			t.Fatal(err)
		}
		if err := other.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGate2_FactsThatEndSomethingHoldOnAFullDisk(t *testing.T) {
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
	// The file grows until the disk is full, then a ballast takes what is left, and small
	// changes take what was written of the log before.
	ballast, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	fails := 0
	for n := 0; n < 20000 && fails < 20; n++ {
		row := store.Row(store.Probe{Revision: id[ids.Revision](100 + n), Pins: []store.Pin{{Tool: fmt.Sprint(n), Raw: make([]byte, 1<<20>>fails)}}})
		if fails > 5 {
			row = store.Account{ID: id[ids.Account](9), Version: uint64(n)} // one page, as the end of a task is
		}
		err := w.s.Apply(store.Change{Put: []store.Row{row}})
		if fails++; err == nil && fails <= 5 {
			fails = 0
		}
		if err == nil {
			fails = min(fails, 6)
			continue
		}
		for err = nil; err == nil; _, err = ballast.Write(make([]byte, 512)) {
		}
	}
	if fails == 0 {
		t.Fatal("the disk never filled")
	}
	endsInPlace(t, w, func() {
		os.Remove(filepath.Join(dir, "ballast"))
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=64m"); err != nil {
			t.Fatal(err)
		}
	})
}
