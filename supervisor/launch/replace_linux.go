package launch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// replaceAt puts a file of root's in the place of the one of a name, if there is one:
// written beside under temp, synced, renamed, and the directory synced, so that a crash
// leaves the old file or the new one and never a part. What a crash left under temp is
// removed first. The file is closed before it has its name: one that is open for writing
// cannot be started.
func replaceAt(dir *os.File, name, temp string, mode os.FileMode, write func(*os.File) error) error {
	at := int(dir.Fd())
	if err := unix.Unlinkat(at, temp, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %q: %w", temp, err)
	}
	fd, err := unix.Openat(at, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create %q: %w", temp, err)
	}
	f := os.NewFile(uintptr(fd), temp)
	err = write(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		if err = unix.Renameat(at, temp, at, name); err != nil {
			err = fmt.Errorf("rename %q: %w", temp, err)
		}
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(at, temp, 0))
	}
	return dir.Sync()
}
