// Package store knows the two files that outlive the authority: policy.db (who
// may what) and activity.db (what happened).
//
// It runs inside the authority, as user postern, in a directory of mode 0700.
// The files are trusted once their owner, mode and integrity are checked; the
// text inside rows comes from peers and is hostile to whoever prints it.
//
// Invariants:
//   - store-1: when Commit or Apply has returned nil, what it wrote survives kill -9 and power loss.
//   - store-2: when it has returned an error, nothing of it is in the files; only outcomes wait for the next commit.
//   - store-3: a call that was open in an older incarnation is unknown after Recover, and is never open again.
//   - store-4: an incarnation is never used twice, and no two processes write one store.
//   - store-5: a schema that has landed is never edited; files of an unknown or newer schema are refused.
//   - store-6: after a backup was restored no task and no token of it lives, and no connection is enabled unless root asked for that.
//
// One goroutine writes: it calls Apply, Batch and Recover. Run owns a second
// connection for each file and checkpoints there; the writer only finishes that
// when the log is half full, for under load nobody else ever finds it at rest. Readers use Calls and Sessions
// from any goroutine.
//
// The driver is ncruces/go-sqlite3: SQLite compiled to Go, without cgo. It offers
// the C interface itself, so a commit needs no pool, no lock of ours and no
// goroutine; it syncs with fdatasync, and depends on x/sys alone. Measured beside
// modernc.org/sqlite on one file system, a commit of one record took 0.30 ms
// against 0.37 ms, with a bare overwrite and fdatasync at 0.17 ms.
//
// Between turns the writer also tends the records, a piece at a time: those that
// change no more enter an index of their own, so that an admission writes one page
// and a page of ten million records still takes milliseconds; those that are older or
// more than Keep says are removed. A file that was once found damaged is checked
// whole before it is opened again.
//
// Power loss is tested at every kind of write, with a file system below SQLite that
// drops, reorders and tears what no sync has made durable.
//
// It is not the registry: it checks shapes and keys, and no policy.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// What a write or a start may end in. Everything else that goes wrong in a write
// is ErrIO.
var (
	// ErrFull: the disk is full. Nothing was written; the same store may try again.
	ErrFull = errors.New("no space left for the store")
	// ErrBusy: another process holds the file longer than BusyWait. Nothing was written; try again.
	ErrBusy = errors.New("the store is locked")
	// ErrIO: a write or a sync failed. What the disk holds is unknown until the
	// files are opened again, so the authority must end.
	ErrIO = errors.New("the store can not be written")
	// ErrCorrupt: a file is damaged, or is no store of this kind.
	ErrCorrupt = errors.New("the store is damaged")
	// ErrNewer: a later version of Postern wrote this store.
	ErrNewer = errors.New("the store was written by a later version")
	// ErrUnsafe: a file or the directory has the wrong kind, owner or mode.
	ErrUnsafe = errors.New("the store's files are not safe")
)

// Bounds of the store.
const (
	BusyWait        = 2 * time.Second        // a writer waits for a lock
	busyStep        = 100 * time.Microsecond // between two tries
	pageBytes       = 4096
	walBytes        = 4 << 20                  // written before the first admission, so that a commit only overwrites
	walRecycle      = walBytes / pageBytes / 2 // frames after which the writer sends the log back to its beginning
	checkpointEvery = 100 * time.Millisecond   // while something is written
	checkpointQuiet = 10                       // rounds without a commit, after which there is one each restEvery
	restEvery       = time.Second
)

// Names of the files in the state directory.
const (
	PolicyFile   = "policy.db"
	ActivityFile = "activity.db"
	LockFile     = "store.lock"
)

// Store is both files, open. One goroutine writes.
type Store struct {
	lock        *os.File // held while the store is open
	policy      *file
	activity    *file
	incarnation uint64

	batch   Batch
	tending tending
	commits commits
	rows    map[string]*sqlite3.Stmt // policy.db's prepared statements, by their text

	reader   *sqlite3.Conn
	readerMu sync.Mutex
}

// Open opens or makes the store in dir, which must exist, belong to this user and
// be writable by nobody else. It checks policy.db whole, migrates both files
// after copying them, and takes the next incarnation. It starts nothing. Only one
// process has a store open; to the next one it is ErrBusy.
func Open(dir string) (*Store, error) { return openOver(dir, "", silent) }

// silent tells nobody.
func silent() {}

// OpenTelling is Open, and calls alive again and again while the files are checked, copied
// and migrated, which takes minutes where they are large. It calls it from the work
// itself, when the disk has read or written something and when a statement goes on: where
// that stands still, so does what it tells.
func OpenTelling(dir string, alive func()) (*Store, error) { return openOver(dir, "", alive) }

// openOver is OpenTelling over a file system that SQLite knows by a name.
func openOver(dir, vfs string, alive func()) (*Store, error) {
	if err := safeDir(dir); err != nil {
		return nil, err
	}
	s := &Store{rows: map[string]*sqlite3.Stmt{}, tending: tending{past: -1}, commits: commits{woken: make(chan struct{}, 1)}}
	ok := false
	defer func() {
		if !ok {
			s.Close()
		}
	}()
	var err error
	if s.lock, err = lock(filepath.Join(dir, LockFile)); err != nil {
		return nil, err
	}
	alone, err := lonely(dir)
	if err != nil {
		return nil, err
	}
	if s.policy, err = openFile(filepath.Join(dir, PolicyFile), vfs, policySchemas, alive); err != nil {
		return nil, err
	}
	s.policy.commits = &s.commits
	if err := s.policy.check(); err != nil {
		return nil, err
	}
	if alone {
		if err := s.policy.neverBegun(); err != nil {
			return nil, err
		}
	}
	if s.activity, err = openFile(filepath.Join(dir, ActivityFile), vfs, activitySchemas, alive); err != nil {
		return nil, err
	}
	s.activity.commits = &s.commits
	if err := s.activity.checkSuspect(); err != nil {
		return nil, err
	}
	if s.reader, err = connect(s.activity.path, s.activity.vfs, sqlite3.OPEN_READONLY); err != nil {
		return nil, classify(err)
	}
	if err := s.settle(dir); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	for _, f := range []*file{s.policy, s.activity} {
		f.hush()
	}
	ok = true
	return s, nil
}

// UnsafeOpenMemory makes a store that nothing survives. It is for measuring what
// a commit costs without a disk; all of it must be used by one goroutine, and Run
// has nothing to do.
func UnsafeOpenMemory() (*Store, error) {
	s := &Store{rows: map[string]*sqlite3.Stmt{}, tending: tending{past: -1}}
	var err error
	if s.policy, err = openMemory(policySchemas); err == nil {
		s.activity, err = openMemory(activitySchemas)
	}
	if err == nil {
		s.reader = s.activity.writer
		err = s.begin()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// begin takes the next incarnation and continues the counters of activity.db.
func (s *Store) begin() error {
	var last int64
	err := s.policy.transaction(func(c *sqlite3.Conn) error {
		if err := c.Exec(`INSERT INTO meta VALUES ('incarnation', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1`); err != nil {
			return err
		}
		return each(c, `SELECT value FROM meta WHERE key = 'incarnation'`, func(r *sqlite3.Stmt) { last = r.ColumnInt64(0) })
	})
	if err != nil {
		return err
	}
	s.incarnation = uint64(last)
	return s.batch.open(s.activity, s.incarnation)
}

// Incarnation is the number of this opening. Every record carries one.
func (s *Store) Incarnation() uint64 { return s.incarnation }

// Close closes the files; a second Close does nothing. Run must have returned.
func (s *Store) Close() error {
	var errs []error
	for _, st := range s.rows {
		errs = append(errs, st.Close())
	}
	s.rows = nil
	errs = append(errs, s.batch.close())
	if s.reader != nil && (s.activity == nil || s.reader != s.activity.writer) {
		errs = append(errs, s.reader.Close())
	}
	s.reader = nil
	for _, f := range []*file{s.policy, s.activity} {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	s.policy, s.activity = nil, nil
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// commits wakes Run when something is written after a rest. In between, a commit costs no
// more than a mark.
type commits struct {
	wrote, resting atomic.Bool
	woken          chan struct{}
}

// note is called at each commit.
func (c *commits) note() {
	if c == nil {
		return
	}
	c.wrote.Store(true)
	if c.resting.CompareAndSwap(true, false) {
		select {
		case c.woken <- struct{}{}:
		default:
		}
	}
}

// since tells whether there was a commit since it was asked last.
func (c *commits) since() bool { return c.wrote.Swap(false) }

// rest tells whether there is none now; then the next one wakes.
func (c *commits) rest() bool {
	c.resting.Store(true)
	return !c.wrote.Load()
}

// Run checkpoints both files on connections of its own until ctx ends, checks
// activity.db whole once, and sees that both are still where they were opened. It
// returns ErrCorrupt or ErrIO when a file can no longer be relied on: admissions must
// be denied from then on.
func (s *Store) Run(ctx context.Context) error {
	if s.policy.path == "" {
		<-ctx.Done()
		return nil
	}
	files := []*file{s.policy, s.activity}
	var conns [2]*sqlite3.Conn
	for i, f := range files {
		if err := f.present(); err != nil {
			return err
		}
		c, err := connect(f.path, f.vfs, sqlite3.OPEN_READWRITE)
		if err != nil {
			return classify(err)
		}
		defer c.Close()
		// A checkpoint never waits: the writer goes first, and the next round comes soon.
		if err := c.BusyHandler(nil); err != nil {
			return classify(err)
		}
		conns[i] = c
	}
	ctx, cancel := context.WithCancel(ctx)
	checked, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		checked <- s.checkActivity(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	next := time.NewTimer(checkpointEvery)
	defer next.Stop()
	quiet := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-checked:
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-s.commits.woken:
			quiet = 0
			next.Reset(checkpointEvery)
		case <-next.C:
			if quiet++; s.commits.since() {
				quiet = 0
			}
			for i, c := range conns {
				if err := files[i].present(); err != nil {
					return err
				}
				if files[i].copied.Load() {
					continue
				}
				if err := files[i].checkpoint(c); err != nil {
					return err
				}
			}
			if next.Reset(checkpointEvery); quiet >= checkpointQuiet && s.commits.rest() {
				next.Reset(restEvery)
			}
		}
	}
}

func (s *Store) checkActivity(ctx context.Context) error {
	c, err := connect(s.activity.path, s.activity.vfs, sqlite3.OPEN_READONLY)
	if err != nil {
		return classify(err)
	}
	defer c.Close()
	c.SetInterrupt(ctx)
	err = quickCheck(c, s.activity.path)
	if errors.Is(err, ErrCorrupt) {
		s.activity.suspect()
	}
	return err
}

func safeDir(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if !fi.IsDir() || fi.Mode().Perm()&0o022 != 0 || !ours(fi) {
		return fmt.Errorf("%q with mode %v: it must be a directory that belongs to this user and is writable by nobody else: %w", dir, fi.Mode(), ErrUnsafe)
	}
	return nil
}
