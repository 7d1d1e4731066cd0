package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
	"postern/supervisor/owned"
)

// The files beside the access policy.
const (
	lockSuffix    = ".lock"
	newSuffix     = ".new"
	accessLockFor = 5 * time.Second
)

// lockBeside takes the lock that whoever changes the file by program takes. It lies
// beside the file, because the file itself is another one after each change.
func lockBeside(path string) (unlock func(), err error) {
	dir, err := owned.Dir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("the directory of the access file: %w", err)
	}
	defer dir.Close()
	name := filepath.Base(path) + lockSuffix
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path + lockSuffix, Err: err}
	}
	f := os.NewFile(uintptr(fd), path+lockSuffix)
	if err := owned.Check(f, owned.OthersWrite); err != nil {
		f.Close()
		return nil, err
	}
	for end := time.Now().Add(accessLockFor); ; {
		err := lockFile(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("somebody else is changing %q: %w", path, err)
		}
		time.Sleep(accessLockFor / 100)
	}
}

// replaceFile puts a new document in the place of the one that was read: written beside,
// synced, renamed, and the directory synced. One that was changed meanwhile by somebody
// without the lock is not overwritten. Owner and mode stay what they were.
func replaceFile(path string, doc []byte, was order.Access) error {
	dir, err := owned.Open(filepath.Dir(path), unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	d, name := int(dir.Fd()), filepath.Base(path)
	mode := uint32(0o600)
	var st unix.Stat_t
	switch err := unix.Fstatat(d, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		mode = st.Mode & 0o755
	case !errors.Is(err, unix.ENOENT):
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := unix.Unlinkat(d, name+newSuffix, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: path + newSuffix, Err: err}
	}
	fd, err := unix.Openat(d, name+newSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &os.PathError{Op: "create", Path: path + newSuffix, Err: err}
	}
	f := os.NewFile(uintptr(fd), path+newSuffix)
	defer f.Close()
	undo := func(err error) error { unix.Unlinkat(d, name+newSuffix, 0); return err }
	if err := f.Chmod(os.FileMode(mode)); err != nil {
		return undo(err)
	}
	if _, err := f.Write(doc); err != nil {
		return undo(err)
	}
	if err := f.Sync(); err != nil {
		return undo(err)
	}
	if now := readAccess(path, time.Now()); !sameAccess(now, was) {
		return undo(api.Refuse(refusal.StaleSelector, "%q was changed meanwhile by somebody else.", path))
	}
	if err := unix.Renameat(d, name+newSuffix, d, name); err != nil {
		return undo(&os.PathError{Op: "rename", Path: path, Err: err})
	}
	return dir.Sync()
}

// checkAccess tells the mistakes of the access policy. They deny whom they are about and
// keep nothing from starting; but whoever asks for every mistake asks for these too.
func (c Config) checkAccess() (out []error) {
	if c.Access == "" {
		return nil
	}
	a := readAccess(c.Access, time.Now())
	if a.Error != "" {
		return []error{errors.New(a.Error)}
	}
	if !a.Present {
		return nil
	}
	_, mistakes := access.Parse(a.Document)
	for _, m := range mistakes {
		if !m.Warn {
			out = append(out, AccessMistake{a.Path, m})
		}
	}
	return out
}

// AccessMistake is a mistake of the access policy in the file that has it.
type AccessMistake struct {
	File string
	access.Mistake
}

func (m AccessMistake) Error() string { return m.File + ":" + m.String() }
