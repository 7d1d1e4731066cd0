package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// file is one database with its writing connection.
type file struct {
	path    string      // empty in memory
	vfs     string      // "" is the operating system's; tests name one that fails
	is      os.FileInfo // when it was opened
	writer  *sqlite3.Conn
	layer   *layer      // between the writer and vfs; nil in memory
	logged  int         // frames in the log after the last commit
	commits *commits    // of its store; nil for none
	copied  atomic.Bool // while a copy reads, the log cannot begin anew, and trying costs more with each commit
}

func openFile(path, vfs string, schemas []string, alive func()) (*file, error) {
	if err := safeFile(path); err != nil {
		return nil, err
	}
	below, err := newLayer(vfs, alive)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	c, err := connect(path, below.name, sqlite3.OPEN_READWRITE)
	if err != nil {
		below.remove()
		return nil, fmt.Errorf("open %q: %w", path, classify(err))
	}
	c.SetInterrupt(telling{context.Background(), alive})
	f := &file{path: path, vfs: vfs, writer: c, layer: below}
	if f.is, err = os.Lstat(path); err != nil {
		f.close()
		return nil, fmt.Errorf("open %q: %w: %w", path, err, ErrIO)
	}
	err = c.Exec(`PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = ` + strconv.Itoa(walBytes))
	// After the pragma, which would take the hook away.
	c.WALHook(func(_ *sqlite3.Conn, _ string, pages int) error {
		f.logged = pages
		f.commits.note()
		return nil
	})
	if err = classify(err); err == nil {
		err = f.migrate(schemas)
	}
	if err == nil {
		err = grow(path+"-wal", walBytes)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return f, nil
}

func openMemory(schemas []string) (*file, error) {
	c, err := sqlite3.Open(":memory:")
	if err != nil {
		return nil, classify(err)
	}
	f := &file{writer: c}
	if err := c.Exec(settings); err != nil {
		f.close()
		return nil, classify(err)
	}
	if err := f.migrate(schemas); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

const settings = `PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY`

// connect opens one more connection to an existing file.
func connect(path, vfs string, flags sqlite3.OpenFlag) (*sqlite3.Conn, error) {
	u := url.URL{Scheme: "file", OmitHost: true, Path: path}
	if vfs != "" {
		u.RawQuery = "vfs=" + vfs
	}
	c, err := sqlite3.OpenFlags(u.String(), flags|sqlite3.OPEN_URI)
	if err != nil {
		return nil, err
	}
	var since time.Time
	err = c.BusyHandler(func(_ context.Context, count int) bool {
		if count == 0 {
			since = time.Now()
		}
		time.Sleep(busyStep)
		return time.Since(since) < BusyWait
	})
	if err == nil {
		err = c.Exec(settings)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (f *file) close() error {
	if f.writer == nil {
		return nil
	}
	c := f.writer
	f.writer = nil
	err := c.Close()
	if err == nil && f.layer != nil {
		f.layer.remove()
	}
	return err
}

// transaction runs do between BEGIN IMMEDIATE and a durable COMMIT. After an
// error nothing of it remains.
func (f *file) transaction(do func(*sqlite3.Conn) error) error {
	err := f.writer.Exec(`BEGIN IMMEDIATE`)
	if err == nil {
		if err = do(f.writer); err == nil {
			err = f.writer.Exec(`COMMIT`)
		}
	}
	if err != nil {
		return f.rollback(err)
	}
	return f.recycle()
}

// recycle moves the rest of a long log into the file, after a commit. Nothing is
// being written then, so the next commit overwrites the log from its beginning;
// a reader or a checkpoint in the way puts that off to a later commit. Only a
// failed sync is an error.
func (f *file) recycle() error {
	if f.logged < walRecycle || f.copied.Load() {
		return nil
	}
	return f.checkpoint(f.writer)
}

// checkpoint moves what it can of the log into the file over the connection c,
// without waiting for anyone.
func (f *file) checkpoint(c *sqlite3.Conn) error {
	_, _, err := c.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	if err = f.named(err); errors.Is(err, ErrBusy) || errors.Is(err, ErrFull) {
		return nil // it is tried again; commits meet a full disk by themselves
	}
	return err
}

// rollback ends a failed transaction and returns its error by name. A
// transaction that does not end leaves the connection unusable: that is ErrIO.
func (f *file) rollback(err error) error {
	if !f.writer.GetAutocommit() {
		if e := f.writer.Exec(`ROLLBACK`); e != nil {
			return fmt.Errorf("roll back after %v: %w: %w", err, e, ErrIO)
		}
	}
	return f.named(err)
}

// fullBelow is the room in bytes below which a failed write is laid to the disk
// being full: the driver loses the reason of some writes that a checkpoint makes.
const fullBelow = 1 << 20

// named is classify with one more question to the file system.
func (f *file) named(err error) error {
	err = classify(err)
	if errors.Is(err, ErrCorrupt) {
		f.suspect()
	}
	if !errors.Is(err, ErrIO) || errors.Is(err, sqlite3.IOERR_FSYNC) || errors.Is(err, sqlite3.IOERR_DIR_FSYNC) {
		return err
	}
	if errors.Is(err, sqlite3.IOERR) && f.path != "" && noRoom(f.path) {
		return fmt.Errorf("%w: %v", ErrFull, err)
	}
	return err
}

// noRoom asks the file system whether it is full, and whether this user's quota is:
// only a write tells that.
func noRoom(path string) bool {
	var room syscall.Statfs_t
	if syscall.Statfs(path, &room) == nil && room.Bavail*uint64(room.Bsize) < fullBelow {
		return true
	}
	probe := path + ".room"
	fd, err := os.OpenFile(probe, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = fd.Write(make([]byte, 1<<16))
		err = errors.Join(err, fd.Close(), os.Remove(probe))
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// classify names err by what the caller must do.
func classify(err error) error {
	if err == nil {
		return nil
	}
	kind := ErrIO
	switch {
	case errors.Is(err, ErrFull), errors.Is(err, ErrBusy), errors.Is(err, ErrIO), errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewer):
		return err
	case errors.Is(err, sqlite3.IOERR_FSYNC), errors.Is(err, sqlite3.IOERR_DIR_FSYNC):
		// Whatever made the sync fail, the pages it was for may be lost: never go on.
	case errors.Is(err, sqlite3.FULL), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = ErrFull
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		kind = ErrBusy
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		kind = ErrCorrupt
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// doubted names the file beside a database that was found damaged: whoever opens it
// next checks it whole before anything is served from it. Without it an authority
// that meets damage now and then would start, serve and end for ever.
const doubted = ".damaged"

// suspect has the next Open check the file whole. Where it can not be noted, the
// damage will be met again.
func (f *file) suspect() {
	if f.path == "" {
		return
	}
	if fd, err := os.OpenFile(f.path+doubted, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600); err == nil {
		fd.Close()
	}
}

// checkSuspect checks a file that was found damaged before, and forgets that where it
// is sound again.
func (f *file) checkSuspect() error {
	if _, err := os.Lstat(f.path + doubted); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return fmt.Errorf("%w; restore a backup, or move the file away to begin a new one", err)
	}
	return os.Remove(f.path + doubted)
}

// check reads the whole file: structure, contents, and references.
func (f *file) check() error {
	if err := quickCheck(f.writer, f.path); err != nil {
		return err
	}
	broken := 0
	if err := each(f.writer, `PRAGMA foreign_key_check`, func(*sqlite3.Stmt) { broken++ }); err != nil {
		return classify(err)
	}
	if broken > 0 {
		return fmt.Errorf("%q has %d rows that refer to nothing: %w", f.path, broken, ErrCorrupt)
	}
	return nil
}

func quickCheck(c *sqlite3.Conn, path string) error {
	said := ""
	if err := each(c, `PRAGMA integrity_check(1)`, func(r *sqlite3.Stmt) { said = r.ColumnText(0) }); err != nil {
		return fmt.Errorf("check %q: %w", path, classify(err))
	}
	if said != "ok" {
		return fmt.Errorf("check %q: %q: %w", path, said, ErrCorrupt)
	}
	return nil
}

// copyTo writes the file as it stands into a new file.
func (f *file) copyTo(path string) error { return copyOver(f.writer, f.path, path) }

// copyOver does that over a connection.
func copyOver(c *sqlite3.Conn, from, path string) error {
	fd, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("copy %q: %w", from, err)
	}
	fd.Close()
	st, _, err := c.Prepare(`VACUUM INTO ?`)
	if err != nil {
		return classify(err)
	}
	defer st.Close()
	if err := errors.Join(st.BindText(1, path), st.Exec()); err != nil {
		return fmt.Errorf("copy %q: %w", from, classify(err))
	}
	return nil
}

// each runs a query and calls row for each row of its answer.
func each(c *sqlite3.Conn, query string, row func(*sqlite3.Stmt)) error {
	st, _, err := c.Prepare(query)
	if err != nil {
		return err
	}
	defer st.Close()
	for st.Step() {
		row(st)
	}
	return st.Err()
}

// lock takes the one lock of a store. The kernel gives it back when the process ends.
func lock(path string) (*os.File, error) {
	if err := safeFile(path); err != nil {
		return nil, err
	}
	fd, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	if err := syscall.Flock(int(fd.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fd.Close()
		return nil, fmt.Errorf("%q is held by another process: %w", path, ErrBusy)
	}
	return fd, nil
}

// safeFile makes the file if it is missing, and refuses one that another user
// could write or has another name for.
func safeFile(path string) error {
	fd, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open %q: %w: %w", path, err, ErrUnsafe)
	}
	defer fd.Close()
	fi, err := fd.Stat()
	if err != nil {
		return fmt.Errorf("open %q: %w", path, err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 || !ours(fi) || fi.Sys().(*syscall.Stat_t).Nlink != 1 {
		return fmt.Errorf("%q with mode %v: it must be a file of this user alone, under one name: %w", path, fi.Mode(), ErrUnsafe)
	}
	return nil
}

// ours tells whether a file belongs to this user or to root.
func ours(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || st.Uid == uint32(os.Geteuid()))
}

// grow writes zeros after the end of the log until it has n bytes, so that later
// commits overwrite blocks that exist and a sync writes no metadata. SQLite reads
// a log only as far as its checksums hold.
func grow(path string, n int64) error {
	fd, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("grow %q: %w", path, err)
	}
	defer fd.Close()
	end, err := fd.Seek(0, io.SeekEnd)
	zeros := make([]byte, 1<<16)
	for err == nil && end < n {
		var w int
		w, err = fd.Write(zeros[:min(int64(len(zeros)), n-end)])
		end += int64(w)
	}
	if err == nil {
		err = fd.Sync()
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil // a full disk denies calls, not the start
	}
	if err != nil {
		return fmt.Errorf("grow %q: %w: %w", path, err, ErrIO)
	}
	return nil
}
