// Package owned opens and reads the files whose writer decides what Postern does:
// configuration, profiles, the access policy, facts, credentials and the store's keys.
//
// It runs with the privilege of its caller, which for most is root. Hostile is whoever can
// write somewhere on the way to such a file. Whose a file is, it asks of the descriptor
// that is read, never of a path.
//
// Invariants:
//
//   - Owned: what it accepts belongs to the uid that was asked for, has no permission that
//     was forbidden, and is a directory, or a regular file with one name.
//   - Unfollowed: a link at the end of a path is refused, not followed.
//   - Unrepaired: what is wrong is refused with its path, owner and mode, and left as it
//     is, because a repair would hide who changed it.
//
// It is not a jail: the directories above the last one are followed like anyone's.
package owned

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Permissions that a file may not have.
const (
	OthersWrite = 0o022 // of what everybody may read
	OthersAny   = 0o077 // of what is secret
)

// repair is what chmod is told to take away what is forbidden.
var repair = map[uint32]string{OthersWrite: "go-w", OthersAny: "go="}

// ErrRefused is what Check refuses with.
var ErrRefused = errors.New("owner or mode is not acceptable")

// ErrNames is wrapped beside ErrRefused where a file is refused for its further names, or
// because it has none any more, and for nothing else.
var ErrNames = errors.New("a file with one name is accepted")

// names is ErrRefused for the names of a file.
type names struct{}

func (names) Error() string   { return ErrRefused.Error() }
func (names) Unwrap() []error { return []error{ErrRefused, ErrNames} }

// Open opens path for reading, without following a link at its end and without waiting
// for a peer, whatever lies there; flags are added to those of open(2). The caller closes
// the file.
func Open(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, NotOpened(path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// NotOpened says in a person's words what O_NOFOLLOW answers to a link.
func NotOpened(path string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%q is a symbolic link, which is not followed: put the file itself there: %w", path, err)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%q is not a directory, nor is a symbolic link one: %w", path, err)
	}
	return &os.PathError{Op: "open", Path: path, Err: err}
}

// Check refuses with ErrRefused what is not root's, has one of the permissions forbidden,
// is a file with further names, or is neither a file nor a directory.
func Check(f *os.File, forbidden uint32) error { return CheckBy(f, 0, forbidden) }

// CheckBy is Check for what belongs to uid.
func CheckBy(f *os.File, uid, forbidden uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return fmt.Errorf("%q is neither a file nor a directory (mode %o): %w", f.Name(), st.Mode, ErrRefused)
	case st.Uid != uid:
		return fmt.Errorf("%q belongs to uid %d, not %d (mode %04o): chown it if what it holds is yours: %w", f.Name(), st.Uid, uid, st.Mode&0o7777, ErrRefused)
	case st.Mode&forbidden != 0:
		return fmt.Errorf("%q has mode %04o, at most %04o is accepted: look who may have written it, then chmod %s: %w",
			f.Name(), st.Mode&0o7777, 0o777&^forbidden, repair[forbidden], ErrRefused)
	case kind == unix.S_IFREG && st.Nlink != 1:
		return fmt.Errorf("%q has %d names, one is accepted: copy it to a file of its own: %w", f.Name(), st.Nlink, names{})
	}
	return nil
}

// Dir opens a directory of root's in which nobody else may put anything. The caller
// closes it.
func Dir(path string) (*os.File, error) {
	dir, err := Open(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := Check(dir, OthersWrite); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// Read returns the content, at most most bytes, of a file that root alone may write, in a
// directory that root alone may write. One that is longer is an error.
func Read(path string, most int64) ([]byte, error) {
	dir, err := Dir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(path), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, NotOpened(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := Check(f, OthersWrite); err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is a directory, want a file: %w", path, errors.Join(err, ErrRefused))
	}
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("%q: more than %d bytes", path, most)
	}
	return raw, err
}
