package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"postern/ids"
)

// fill writes n records with arguments of so many bytes, and closes the store.
func fill(t *testing.T, dir string, n, bytes int) {
	t.Helper()
	s := open(t, dir)
	b := s.Batch()
	for i := range n {
		c := call(byte(i))
		c.ID, c.At = ids.New[ids.Call](moment, [10]byte{byte(i >> 8), byte(i)}), moment.UnixNano()+int64(i)
		c.Args = Arguments{Value: `"` + strings.Repeat("x", bytes) + `"`}
		b.Admit(c)
		b.End(c.Seq, Outcome{State: Completed, At: c.At})
		if i%100 == 99 {
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(b.Commit(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// Whoever waits for a store hears again and again that it is being checked, or brought to
// another schema, and the more often the larger it is; once it is open, nothing.
func TestAnOpeningThatTakesLongTellsThatItGoesOn(t *testing.T) {
	checked := func(dir string) int {
		if err := os.WriteFile(filepath.Join(dir, ActivityFile+doubted), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		told := 0
		s, err := OpenTelling(dir, func() { told++ })
		if err != nil {
			t.Fatal(err)
		}
		during := told
		if n := len(page(t, s, Query{}).Calls); n == 0 {
			t.Fatal("no records")
		}
		b := s.Batch()
		b.Admit(call(255))
		if err := errors.Join(b.Commit(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if told != during {
			t.Errorf("it told %d times more after it was open", told-during)
		}
		return during
	}
	small, large := stateDir(t), stateDir(t)
	fill(t, small, 100, 8<<10)
	fill(t, large, 2000, 8<<10)
	few, many := checked(small), checked(large)
	t.Logf("a check of %s told %d times, of %s %d times", size(t, small), few, size(t, large), many)
	if few < 1 || many < few+100 {
		t.Errorf("a check of 100 records told %d times, of 2000 records %d times", few, many)
	}

	f, err := openFile(filepath.Join(large, ActivityFile), "", activitySchemas, silent)
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	told := 0
	f, err = openFile(filepath.Join(large, ActivityFile), "", append(activitySchemas[:len(activitySchemas):len(activitySchemas)], `CREATE INDEX telling ON arguments (value)`), func() { told++ })
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if told < 10 {
		t.Errorf("a migration, with its copy, told %d times", told)
	}
}

func size(t *testing.T, dir string) string {
	t.Helper()
	fi, err := os.Stat(filepath.Join(dir, ActivityFile))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d KiB", fi.Size()>>10)
}

// slow is a file system on which a test has a word at every read.
type slow struct {
	*disk
	before func()
}

func (d slow) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.disk.OpenFilename(name, flags)
	if err == nil && flags&vfs.OPEN_MAIN_DB != 0 {
		f = slowFile{f.(*diskFile), d.before}
	}
	return f, flags, err
}

type slowFile struct {
	*diskFile
	before func()
}

func (f slowFile) ReadAt(p []byte, off int64) (int, error) {
	f.before()
	return f.diskFile.ReadAt(p, off)
}

// slowly opens a store whose file of records has to be checked whole, on a disk on which
// before runs ahead of every read.
func slowly(t *testing.T, dir string, before, alive func()) (*Store, error) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, ActivityFile+doubted), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDisk(t, dir, 1)
	vfs.Register(d.name, slow{d, before})
	return openOver(dir, d.name, alive)
}

// A disk that reads some pages in a second: the check of a file is one step of a
// statement, in which SQLite says nothing for thousands of pages, and a start on such a
// disk was ended as if it stood still.
func TestEveryTransferOfASlowDiskIsASignOfLife(t *testing.T) {
	dir := stateDir(t)
	fill(t, dir, 500, 64<<10)
	reads, silence, longest := 0, 0, 0
	s, err := slowly(t, dir, func() {
		reads++
		silence++
		longest = max(longest, silence)
	}, func() { silence = 0 })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The connection for readers tells nothing, and reads a page or two to open.
	const few, most = 2000, 8
	if reads < few || longest > most {
		t.Errorf("%d reads, at most %d of them without a sign; want %d or more, and at most %d", reads, longest, few, most)
	}
}

// The twin: a disk that answers no more gives no sign, so that whoever waits ends it.
func TestADiskThatHangsGivesNoSign(t *testing.T) {
	dir := stateDir(t)
	fill(t, dir, 500, 64<<10)
	hung, release, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var told atomic.Int64
	reads := 0
	go func() {
		s, err := slowly(t, dir, func() {
			if reads++; reads == 1000 { // in the middle of the check
				close(hung)
				<-release
			}
		}, func() { told.Add(1) })
		if err == nil {
			err = s.Close()
		}
		over <- err
	}()
	<-hung
	before := told.Load()
	if before == 0 {
		t.Error("no sign of what it had read")
	}
	time.Sleep(hangs)
	if during := told.Load(); during != before {
		t.Errorf("%d signs while a read hung", during-before)
	}
	close(release)
	if err := <-over; err != nil {
		t.Error(err)
	}
	if after := told.Load(); after <= before {
		t.Errorf("%d signs before it hung, and %d in all", before, after)
	}
}

// hangs is how long nothing is told by a disk that hangs: no event says so.
const hangs = 300 * time.Millisecond
