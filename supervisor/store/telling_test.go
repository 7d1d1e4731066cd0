package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
