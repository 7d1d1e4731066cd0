package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"postern/ids"
)

// backup copies both files of a store into another state directory.
func backup(t *testing.T, s *Store) (dir string) {
	t.Helper()
	dir = stateDir(t)
	for _, name := range []string{PolicyFile, ActivityFile} {
		f, err := s.Copy(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close(), os.WriteFile(filepath.Join(dir, name), raw, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestACopyIsAWholeStoreAndLeavesNothing(t *testing.T) {
	from := stateDir(t)
	s := open(t, from)
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	s.Batch().Admit(call(1))
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	// What an authority left that was killed while it copied.
	if err := os.WriteFile(filepath.Join(from, PolicyFile+copying), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, backup(t, s))
	want, _ := s.Policy()
	if p, err := c.Policy(); err != nil || !reflect.DeepEqual(p, want) || len(page(t, c, Query{}).Calls) != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	if left, _ := filepath.Glob(filepath.Join(from, "*"+copying)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Admissions go on while a copy is made, and the copy holds a beginning of them
// without a gap.
func TestACopyHoldsNoCommitUp(t *testing.T) {
	s := open(t, stateDir(t))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	started := make(chan struct{})
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			c := call(1)
			c.ID = ids.New[ids.Call](moment, [10]byte{1, byte(n >> 16), byte(n >> 8), byte(n)})
			s.Batch().Admit(c)
			if err := s.Batch().Commit(); err != nil {
				t.Errorf("commit %d: %v", n, err)
				return
			}
			if n == 50 {
				close(started)
			}
		}
	})
	<-started
	dirs := []string{backup(t, s), backup(t, s)}
	close(stop)
	wg.Wait()
	// The log that grew meanwhile begins anew and has its size again.
	for n := range 3 * walRecycle {
		c := call(2)
		c.ID = ids.New[ids.Call](moment, [10]byte{2, byte(n >> 8), byte(n)})
		s.Batch().Admit(c)
		if err := s.Batch().Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if fi, err := os.Stat(s.activity.path + "-wal"); err != nil || fi.Size() > walBytes+walBytes/4 {
		t.Errorf("the log has %d bytes: %v", fi.Size(), err)
	}
	last := int64(0)
	for _, dir := range dirs {
		c := open(t, dir)
		got := page(t, c, Query{}).Calls
		if len(got) < 50 || got[0].Seq <= last {
			t.Errorf("%d records, the newest %d", len(got), got[0].Seq)
		}
		for i := range got {
			if got[i].Seq != got[0].Seq-int64(i) {
				t.Errorf("a gap after %d", got[i].Seq)
			}
		}
		last = got[0].Seq
	}
}

func TestStore6_ARestoredStoreGivesNothingBack(t *testing.T) {
	s := open(t, stateDir(t))
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	s.Batch().Admit(call(1))
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	live := func(s *Store) (tasks, tokens, enabled int) {
		p, err := s.Policy()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range p.Tasks {
			if x.Ended == 0 {
				tasks++
			}
		}
		for _, x := range p.Tokens {
			if !x.Ended {
				tokens++
			}
		}
		for _, x := range p.Connections {
			if x.Enabled {
				enabled++
			}
		}
		if len(p.Grants) != 1 || len(p.Members) == 0 {
			t.Errorf("%+v", p)
		}
		return tasks, tokens, enabled
	}
	if tasks, tokens, enabled := live(s); tasks == 0 || tokens == 0 || enabled == 0 {
		t.Fatalf("nothing to take away: %d %d %d", tasks, tokens, enabled)
	}
	for mark, want := range map[string]int{"": 0, "nonsense": 0, KeepEnabled: 1} {
		dir := backup(t, s)
		if err := os.WriteFile(filepath.Join(dir, RestoredMark), []byte(mark), 0o600); err != nil {
			t.Fatal(err)
		}
		c := open(t, dir)
		if tasks, tokens, enabled := live(c); tasks != 0 || tokens != 0 || enabled != want {
			t.Errorf("%q: %d tasks, %d tokens, %d connections live", mark, tasks, tokens, enabled)
		}
		if c.Incarnation() <= s.Incarnation()+skipped/2 {
			t.Errorf("incarnation %d, was %d", c.Incarnation(), s.Incarnation())
		}
		if _, err := os.Lstat(filepath.Join(dir, RestoredMark)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the mark stays: %v", err)
		}
		if _, err := c.Recover(moment.UnixNano()); err != nil {
			t.Fatal(err)
		}
		n := call(2)
		c.Batch().Admit(n)
		if err := c.Batch().Commit(); err != nil {
			t.Fatal(err)
		}
		if got := page(t, c, Query{}).Calls; len(got) != 2 || n.Seq <= skipped || got[1].State != Unknown {
			t.Errorf("%+v", got)
		}
		// It is settled once: what root enables afterwards stays.
		first := c.Incarnation()
		c.Close()
		if c = open(t, dir); c.Incarnation() != first+1 {
			t.Errorf("incarnation %d after %d", c.Incarnation(), first)
		}
		c.Close()
	}
	// A mark that cannot be read ends the start.
	dir := backup(t, s)
	if err := os.Mkdir(filepath.Join(dir, RestoredMark), 0o700); err != nil {
		t.Fatal(err)
	}
	if c, err := Open(dir); err == nil {
		c.Close()
		t.Error("a mark that cannot be read was passed over")
	}
}
