package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/owned"
)

// programsDir, in the root directory, holds the programs that jails are made with: the
// one that builds each of them, and the bridge. An installer takes the name of a program
// away, or gives it to another, while posternd runs on. A file without a name cannot be
// mounted any more, so that no bridge would start until posternd does; and what is looked
// up anew would be the new one below the old posternd. These copies nobody replaces but
// posternd at its start, so that one set runs from one start to the next. The authority
// needs none: it is started from a descriptor, which no name is needed for.
const programsDir = "programs"

// programTemp begins the name of a copy that is being written.
const programTemp = ".new-"

// Bounds of the programs.
const (
	maxProgram   = 64 << 20               // bytes of one
	replacedWait = 30 * time.Second       // for an installer that is replacing one
	replacedLook = 100 * time.Millisecond // between two looks whether it has
)

// errAsked ends a start that was asked to end before it was one.
var errAsked = errors.New("asked to end while an installer was at work")

// keepPrograms brings the copies up to date with what is installed, writing only what
// differs. The caller closes the directory.
func (c Config) keepPrograms(ctx context.Context) (*os.File, error) {
	dir, err := privateDir(filepath.Join(c.RootDir, programsDir))
	if err != nil {
		return nil, err
	}
	err = runnable(dir)
	for _, name := range []string{bridgeProgram, jailProgram} {
		if err == nil {
			err = c.keepProgram(ctx, dir, name)
		}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// runnable refuses a file system that nothing can be started from. Copies of packages lie
// on the same one, so that none of them could run either.
func runnable(dir *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("root-dir: %q is on a file system that is mounted noexec, where no program can be started: mount it without, or name another directory", dir.Name())
	}
	return nil
}

// keepProgram makes the copy of one program equal to what is installed. A copy whose
// owner, mode or kind is not what posternd made it is refused; one of another content is
// an older version, and is replaced whole, so that a crash leaves the one or the other.
func (c Config) keepProgram(ctx context.Context, dir *os.File, name string) error {
	from, err := c.openProgram(ctx, name)
	if err != nil {
		return err
	}
	defer from.Close()
	temp := programTemp + name // which a crash may have left
	if err := unix.Unlinkat(int(dir.Fd()), temp, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %q: %w", filepath.Join(dir.Name(), temp), err)
	}
	same, err := hasProgram(dir, name, from)
	if err != nil || same {
		return err
	}
	err = replaceAt(dir, name, temp, 0o755, func(to *os.File) error {
		n, err := io.Copy(to, io.NewSectionReader(from, 0, maxProgram+1))
		if err == nil && n > maxProgram {
			err = fmt.Errorf("more than %d bytes", maxProgram)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("copy %q to %q: %w", from.Name(), dir.Name(), err)
	}
	return nil
}

// hasProgram tells whether there is a copy with the content of from.
func hasProgram(dir *os.File, name string, from *os.File) (bool, error) {
	have, err := openCopy(dir, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer have.Close()
	return sameContent(have, from)
}

// openCopy opens the copy of a program, which posternd made: root's alone to write, with
// one name, and executable by the uids of jails.
func openCopy(dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, owned.NotOpened(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil {
		err = owned.Check(f, owned.OthersWrite)
	}
	if err == nil && info.Mode() != 0o755 {
		err = fmt.Errorf("%q has mode %v, posternd makes it -rwxr-xr-x: look who changed it, then remove it, and it is made again: %w", path, info.Mode(), owned.ErrRefused)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sameContent compares two files and leaves both at their beginning.
func sameContent(a, b *os.File) (bool, error) {
	x, err := a.Stat()
	if err != nil {
		return false, err
	}
	y, err := b.Stat()
	if err != nil || x.Size() != y.Size() {
		return false, err
	}
	var one, other [64 << 10]byte
	for at := int64(0); at < x.Size(); {
		part := min(int64(len(one)), x.Size()-at)
		if _, err := a.ReadAt(one[:part], at); err != nil {
			return false, fmt.Errorf("read %q: %w", a.Name(), err)
		}
		if _, err := b.ReadAt(other[:part], at); err != nil {
			return false, fmt.Errorf("read %q: %w", b.Name(), err)
		}
		if !bytes.Equal(one[:part], other[:part]) {
			return false, nil
		}
		at += part
	}
	return true, nil
}

// openProgram opens one of the programs that are installed. An installer gives a program a
// second name while it replaces it, and takes the first one from what was opened: that is
// waited for, as a start in between is nobody's mistake. What has a further name after
// that is refused like every such file.
func (c Config) openProgram(ctx context.Context, name string) (*os.File, error) {
	return openSettled(ctx, c.Leave, filepath.Join(c.Libexec, name), replacedWait)
}

func openSettled(ctx context.Context, leave <-chan struct{}, path string, wait time.Duration) (*os.File, error) {
	late := time.NewTimer(wait)
	defer late.Stop()
	look := time.NewTicker(replacedLook)
	defer look.Stop()
	for {
		f, err := owned.Open(path, 0)
		if err != nil {
			return nil, err
		}
		if err = owned.Check(f, owned.OthersWrite); err == nil {
			return f, nil
		}
		f.Close()
		if !errors.Is(err, owned.ErrNames) {
			return nil, err
		}
		select {
		case <-look.C:
		case <-late.C:
			return nil, err
		case <-leave:
			return nil, errAsked
		case <-ctx.Done():
			return nil, errAsked
		}
	}
}
