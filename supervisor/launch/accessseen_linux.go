package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"postern/supervisor/owned"
)

// seenName is where posternd keeps which access policy it has found: a policy that was
// there and is gone is not "no policy" after a restart either, for a restart is often
// nobody's decision.
const (
	seenName = "access-policy"
	maxSeen  = 4096 // bytes of a path
)

// sawAccess tells whether the policy at path was there once. What cannot be read denies,
// and so counts as yes.
func (f *factsFile) sawAccess(path string) (bool, error) {
	raw, err := owned.Read(filepath.Join(f.path, seenName), maxSeen)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err != nil || string(raw) == path, err
}

// keepSeen remembers that the policy at path was there.
func (f *factsFile) keepSeen(path string) error {
	if is, err := f.sawAccess(path); is && err == nil {
		return nil
	}
	dir, temp := int(f.dir.Fd()), seenName+newSuffix
	if err := unix.Unlinkat(dir, temp, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %q: %w", temp, err)
	}
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create %q: %w", temp, err)
	}
	file := os.NewFile(uintptr(fd), temp)
	defer file.Close()
	if _, err := file.WriteString(path); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := unix.Renameat(dir, temp, dir, seenName); err != nil {
		return fmt.Errorf("rename %q: %w", temp, err)
	}
	return f.dir.Sync()
}
