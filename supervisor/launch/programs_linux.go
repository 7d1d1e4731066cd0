package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/owned"
)

// programsDir, in the root directory, holds copies of the programs that jails are made of.
//
// A package manager takes the names of installed files away while posternd runs. A file
// without a name runs by its descriptor, which is enough for the authority; but it cannot
// be mounted into a jail (the kernel refuses to mount what is unhashed), and what is
// started by its name would be of another build than the posternd that starts it. So a
// posternd has its own set from its start to its end, under names that only it changes.
const programsDir = "programs"

// Bounds of keeping a program.
const (
	maxProgram   = 256 << 20        // bytes
	replaceWait  = 30 * time.Second // for a package manager to finish with a program
	replaceStep  = 50 * time.Millisecond
	programMode  = 0o755
	replacedName = ".dpkg-tmp" // behind the second name that dpkg gives what it replaces
)

// openProgram opens one of Postern's programs. One that a package manager is just
// replacing has two names for a moment, which is waited for; any other second name is
// refused at once. The caller closes it.
func openProgram(path string) (*os.File, error) {
	for late := time.Now().Add(replaceWait); ; time.Sleep(replaceStep) {
		f, err := owned.Open(path, 0)
		if err == nil {
			if err = owned.Check(f, owned.OthersWrite); err == nil {
				return f, nil
			}
			f.Close()
		}
		if !beingReplaced(path) || time.Now().After(late) {
			return nil, err
		}
	}
}

// beingReplaced tells whether dpkg is just replacing a program: it has put the second name
// beside it, and takes it away when it is done.
func beingReplaced(path string) bool {
	_, err := os.Lstat(path + replacedName)
	return err == nil
}

// keepProgram returns the copy of an installed program in dir, which it writes only where
// the one that is there differs. The caller closes it.
func keepProgram(dir *os.File, installed string) (*os.File, error) {
	from, err := openProgram(installed)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	path := filepath.Join(dir.Name(), filepath.Base(installed))
	if kept := sameProgram(path, from); kept != nil {
		return kept, nil
	}
	if err := copyProgram(dir, path, from); err != nil {
		return nil, fmt.Errorf("a copy of %q, from which jails are made, could not be kept: %w", installed, err)
	}
	f, err := owned.Open(path, 0)
	if err == nil {
		if err = owned.Check(f, owned.OthersWrite); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// sameProgram opens a copy that is root's, may be executed and has the bytes of from; it
// is nil for any other.
func sameProgram(path string, from *os.File) *os.File {
	f, err := owned.Open(path, 0)
	if err != nil {
		return nil
	}
	info, err := f.Stat()
	if err == nil && owned.Check(f, owned.OthersWrite) == nil && info.Mode() == programMode && sameBytes(f, from) {
		return f
	}
	f.Close()
	return nil
}

func sameBytes(a, b *os.File) bool {
	ra, rb := io.NewSectionReader(a, 0, maxProgram+1), io.NewSectionReader(b, 0, maxProgram+1)
	ba, bb := make([]byte, 128<<10), make([]byte, 128<<10)
	for {
		n, errA := io.ReadFull(ra, ba)
		m, errB := io.ReadFull(rb, bb)
		if !bytes.Equal(ba[:n], bb[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
			return ended(errA) && ended(errB)
		}
	}
}

// copyProgram puts a copy under path whole or not at all. What a crash left of an earlier
// one is written over.
func copyProgram(dir *os.File, path string, from *os.File) error {
	half := path + ".new"
	if err := os.Remove(half); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	to, err := os.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o700)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.NewSectionReader(from, 0, maxProgram+1))
	if err == nil && n > maxProgram {
		err = fmt.Errorf("it has more than %d bytes", maxProgram)
	}
	if err = errors.Join(err, to.Chmod(programMode), to.Sync(), to.Close()); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	if err := os.Rename(half, path); err != nil {
		return err
	}
	return dir.Sync()
}

// mayExecute refuses a directory on a file system from which nothing is executed.
func mayExecute(dir *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("root-dir: %q lies on a file system that is mounted noexec, and jails are made of programs in it: mount it with exec, or name another root-dir", dir.Name())
	}
	return nil
}
