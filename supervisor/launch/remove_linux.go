package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of removing what tool servers left behind.
const (
	removeBatch = 1024   // names read at a time
	removeTurn  = 20_000 // of one directory, before the next one has its turn
)

// discard takes a name of the directory away at once. What was under it is removed by
// keepSwept, for it may be much.
func (t *taskDirs) discard(name string) error {
	work, to := int(t.work.Fd()), removedPrefix+rand.Text()
	if err := unix.Renameat2(work, name, work, to, unix.RENAME_NOREPLACE); err != nil && !errors.Is(err, unix.ENOENT) {
		return os.NewSyscallError("renameat2", err)
	}
	t.wake()
	return nil
}

func (t *taskDirs) wake() {
	select {
	case t.discarded <- struct{}{}:
	default:
	}
}

// keepSwept removes what was discarded, here and by earlier runs, until ctx ends. What
// cannot be removed is told once to stays, and left for the next start: nothing waits
// for it.
func (t *taskDirs) keepSwept(ctx context.Context, stays func(error)) {
	failed := map[string]bool{}
	for {
		more, err := t.sweep(ctx, failed)
		if err != nil {
			stays(err)
		}
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-t.discarded:
		}
	}
}

// sweep gives each discarded directory one turn and tells whether there is more to do.
func (t *taskDirs) sweep(ctx context.Context, failed map[string]bool) (more bool, err error) {
	names, err := namesOf(int(t.work.Fd()), 1<<20)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		if !strings.HasPrefix(name, removedPrefix) || failed[name] {
			continue
		}
		done, err := removeTree(ctx, int(t.work.Fd()), name, removeTurn)
		if err != nil {
			failed[name] = true
			errs = append(errs, &os.PathError{Op: "remove", Path: filepath.Join(t.work.Name(), name), Err: err})
			continue
		}
		more = more || !done
	}
	return more, errors.Join(errs...)
}

// removeTree removes a name of dir and what is beneath it, at most so many entries of
// it, and tells whether all is gone. It goes by descriptors, follows no link and enters
// no mount. What is a directory within a directory is moved up instead of descended
// into: a tree that is deeper than this process may have descriptors, or than its stack,
// takes three of them like any other.
func removeTree(ctx context.Context, dir int, name string, most int) (done bool, err error) {
	if gone, err := unlink(dir, name); gone || err != nil {
		return gone, err
	}
	top, err := openBeneath(dir, name)
	if err != nil {
		return false, err
	}
	defer top.Close()
	left := most
	empty, err := each(ctx, top, &left, func(name string) error {
		if gone, err := unlink(int(top.Fd()), name); gone || err != nil {
			return err
		}
		return lift(ctx, top, name, &left)
	})
	if err != nil || !empty {
		return false, err
	}
	return unlink(dir, name)
}

// lift empties a directory of top into top, and removes it.
func lift(ctx context.Context, top *os.File, name string, left *int) error {
	sub, err := openBeneath(int(top.Fd()), name)
	if err != nil {
		return err
	}
	defer sub.Close()
	empty, err := each(ctx, sub, left, func(name string) error {
		if gone, err := unlink(int(sub.Fd()), name); gone || err != nil {
			return err
		}
		return os.NewSyscallError("renameat2", unix.Renameat2(int(sub.Fd()), name, int(top.Fd()), rand.Text(), unix.RENAME_NOREPLACE))
	})
	if err != nil || !empty {
		return err
	}
	_, err = unlink(int(top.Fd()), name)
	return err
}

// each has do take every name of d away, as long as left lasts, and tells whether d is
// empty.
func each(ctx context.Context, d *os.File, left *int, do func(name string) error) (empty bool, err error) {
	for {
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return false, err
		}
		names, err := d.Readdirnames(removeBatch)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return true, nil
			}
			return false, err
		}
		for _, name := range names {
			if *left <= 0 || ctx.Err() != nil {
				return false, nil
			}
			*left--
			if err := do(name); err != nil {
				return false, err
			}
		}
	}
}

// unlink removes a name that is no directory, or an empty one, and tells whether it did.
func unlink(dir int, name string) (gone bool, err error) {
	switch err := unix.Unlinkat(dir, name, 0); err {
	case nil, unix.ENOENT:
		return true, nil
	case unix.EISDIR, unix.EPERM:
	default:
		return false, os.NewSyscallError("unlinkat", err)
	}
	switch err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err {
	case nil, unix.ENOENT:
		return true, nil
	case unix.ENOTEMPTY, unix.EEXIST:
		return false, nil
	default:
		return false, os.NewSyscallError("unlinkat", err)
	}
}

func openBeneath(dir int, name string) (*os.File, error) {
	fd, err := openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, os.NewSyscallError("openat2", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
