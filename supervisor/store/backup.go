package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// Bounds of a copy, and what a restored store skips.
const (
	copyReserve = 64 << 20 // bytes that a copy leaves free, so that it denies no call
	copyLog     = 1 << 30  // bytes that the log may have meanwhile; a copy during which it gets longer is given up
	copyLook    = 100 * time.Millisecond
	// Incarnations and numbers of records that the time after the backup may have used:
	// a record or a cursor of that time never means another one now.
	skipped = 1 << 20
)

const copying = ".copy"

// RestoredMark is the name of the file, beside the two, with which the root side says
// that they come from a backup: KeepEnabled in it leaves connections as they were,
// anything else disables them.
const (
	RestoredMark = "restored"
	KeepEnabled  = "enabled\n"
)

// Copy makes a whole copy of one of the two files, as it stands between two commits,
// and returns it without a name. It reads over a connection of its own: the writer does
// not wait, and only the log grows meanwhile. Any goroutine may call it, for one
// file at a time. A file system without room for it is ErrFull, before anything is made.
func (s *Store) Copy(ctx context.Context, name string) (*os.File, error) {
	f := s.policy
	if name == ActivityFile {
		f = s.activity
	}
	fi, err := os.Stat(f.path)
	if err != nil {
		return nil, fmt.Errorf("copy %q: %w", f.path, err)
	}
	var room syscall.Statfs_t
	if err := syscall.Statfs(f.path, &room); err != nil {
		return nil, fmt.Errorf("copy %q: %w", f.path, err)
	}
	if free := room.Bavail * uint64(room.Bsize); free < uint64(fi.Size())+copyReserve {
		return nil, fmt.Errorf("copy %q: %d bytes are free, %d are needed for a while: %w", f.path, free, fi.Size()+copyReserve, ErrFull)
	}
	c, err := connect(f.path, f.vfs, sqlite3.OPEN_READONLY)
	if err != nil {
		return nil, classify(err)
	}
	defer c.Close()
	f.copied.Store(true)
	defer f.copied.Store(false)
	ctx, tooLong := context.WithCancelCause(ctx)
	var look sync.WaitGroup
	look.Go(func() { watchLog(ctx, f.path+"-wal", tooLong) })
	defer look.Wait()
	defer tooLong(nil)
	c.SetInterrupt(ctx)
	to := f.path + copying
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) { // of an authority that was killed
		return nil, err
	}
	defer os.Remove(to)
	if err := copyOver(c, f.path, to); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return os.Open(to)
}

// watchLog ends a copy during which the log gets too long.
func watchLog(ctx context.Context, log string, end context.CancelCauseFunc) {
	tick := time.NewTicker(copyLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if fi, err := os.Stat(log); err == nil && fi.Size() > copyLog {
			end(fmt.Errorf("%d bytes were recorded while a copy was made, at most %d are kept for it: %w", fi.Size(), copyLog, ErrBusy))
			return
		}
	}
}

// settle makes a store that was restored one that gives nothing back by itself: what
// was revoked, used up or ended since the backup is in it again. The mark goes last, so
// that a crash repeats it.
func (s *Store) settle(dir string) error {
	path := filepath.Join(dir, RestoredMark)
	mark, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the mark of a restored store: %w", err)
	}
	err = s.activity.transaction(func(c *sqlite3.Conn) error {
		return runOn(c, `INSERT INTO meta SELECT 'change', max((SELECT coalesce(max(seq), 0) FROM calls), (SELECT coalesce(max(value), 0) FROM meta WHERE key = 'change')) + ?
			WHERE true ON CONFLICT (key) DO UPDATE SET value = excluded.value`, skipped)
	})
	if err != nil {
		return fmt.Errorf("settle the restored records: %w", err)
	}
	err = s.policy.transaction(func(c *sqlite3.Conn) error {
		now := time.Now().UnixMilli()
		err := errors.Join(
			runOn(c, `UPDATE meta SET value = value + ? WHERE key = 'incarnation'`, skipped),
			runOn(c, `UPDATE tokens SET ended = 1 WHERE ended = 0`),
			runOn(c, `UPDATE tasks SET ended = ?, reason = 'a backup was restored' WHERE ended = 0`, now))
		if err != nil || string(mark) == KeepEnabled {
			return err
		}
		return runOn(c, `UPDATE connections SET enabled = 0, version = version + 1 WHERE enabled = 1`)
	})
	if err != nil {
		return fmt.Errorf("settle the restored policy: %w", err)
	}
	return os.Remove(path)
}
