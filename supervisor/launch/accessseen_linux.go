package launch

import (
	"errors"
	"os"
	"path/filepath"

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
	return replaceAt(f.dir, seenName, seenName+newSuffix, 0o600, func(file *os.File) error {
		_, err := file.WriteString(path)
		return err
	})
}
