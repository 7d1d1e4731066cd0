package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/order"
	"postern/supervisor/owned"
)

const (
	uidLockPrefix = "postern-uids-"
	uidLockGate   = "postern-uids.lock"
	maxUIDLocks   = 1024

	// uidLockWait is how long a range that somebody holds is tried again: what a killed
	// posternd was about to start holds its lock until it is gone too.
	uidLockWait  = 2 * time.Second
	uidLockPause = 20 * time.Millisecond
)

// lockUIDs takes the machine-wide lock on a range. Two ranges that share a uid cannot
// both be locked, whatever they begin with. The file's holder is told by flock, so a
// file that a crash left behind locks nothing, and whoever looks next removes it.
func lockUIDs(dir string, r order.Range) (release func(), err error) {
	for end := time.Now().Add(uidLockWait); ; time.Sleep(uidLockPause) {
		release, err = tryUIDs(dir, r)
		if !errors.Is(err, errUIDRange) || time.Now().After(end) {
			return release, err
		}
	}
}

func tryUIDs(dir string, r order.Range) (release func(), err error) {
	leave, err := enterGate(dir)
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := filepath.Glob(filepath.Join(dir, uidLockPrefix+"*"))
	if err != nil {
		return nil, err
	}
	if len(found) > maxUIDLocks {
		return nil, fmt.Errorf("%q holds more than %d locks on uids", dir, maxUIDLocks)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s%d", uidLockPrefix, r.First))
	for _, path := range found {
		other, live, err := readLock(path)
		if err != nil {
			return nil, err
		}
		if live && uint64(other.First) < uint64(r.First)+uint64(r.Count) && uint64(r.First) < uint64(other.First)+uint64(other.Count) {
			return nil, fmt.Errorf("uid range %s overlaps %s, which another posternd uses (%s): %w", rangeText(r), rangeText(other), path, errUIDRange)
		}
	}
	f, err := openLock(name)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%d %d\n", r.First, r.Count)
	err = errors.Join(lockFile(f), f.Truncate(0))
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return func() {
		if leave, err := enterGate(dir); err == nil {
			defer leave()
		}
		os.Remove(name)
		f.Close()
	}, nil
}

// enterGate waits for the lock under which locks are looked at, held for microseconds
// and by root only. Whoever leaves last takes the file away, so one that was entered
// counts only if it still has its name.
func enterGate(dir string) (leave func(), err error) {
	path := filepath.Join(dir, uidLockGate)
	for {
		gate, err := openLock(path)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(gate.Fd()), unix.LOCK_EX); err != nil {
			gate.Close()
			return nil, os.NewSyscallError("flock", err)
		}
		mine, err1 := gate.Stat()
		named, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			return func() {
				if left, err := filepath.Glob(filepath.Join(dir, uidLockPrefix+"*")); err == nil && len(left) == 0 {
					os.Remove(path)
				}
				gate.Close()
			}, nil
		}
		gate.Close()
	}
}

// errUIDRange is returned for a range that somebody else uses.
var errUIDRange = errors.New("choose another range")

// openLock opens a lock file in a directory that everybody may write: a link or
// somebody else's file there is refused.
func openLock(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := owned.Check(f, owned.OthersAny); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readLock tells the range of a lock file and whether somebody holds it. What another
// user put there locks nothing.
func readLock(path string) (order.Range, bool, error) {
	f, err := owned.Open(path, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, os.ErrNotExist) {
		return order.Range{}, false, nil
	}
	if err != nil {
		return order.Range{}, false, err
	}
	defer f.Close()
	if owned.Check(f, owned.OthersAny) != nil {
		return order.Range{}, false, nil
	}
	if lockFile(f) == nil { // nobody's; everyone who makes one has entered the gate
		return order.Range{}, false, os.Remove(path)
	}
	raw := make([]byte, 64)
	n, _ := f.ReadAt(raw, 0)
	var r order.Range
	if _, err := fmt.Sscanf(strings.TrimSpace(string(raw[:n])), "%d %d", &r.First, &r.Count); err != nil {
		return order.Range{}, false, fmt.Errorf("%q: %w", path, err)
	}
	return r, true, nil
}
