package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/owned"
)

// maxFacts bounds facts.json.
const maxFacts = 256 << 20

const (
	factsName = "facts.json"
	tempName  = "facts.json.new"
)

// factsFile is the root directory, locked, and the file in it. Whoever holds it is
// the only posternd of this installation.
type factsFile struct {
	path string
	dir  *os.File
}

// openRootDir opens and locks the root directory, making it where it is missing.
// It refuses one that is a link, that root does not own, or that others can enter.
func openRootDir(path string) (*factsFile, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := owned.Open(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := owned.Check(dir, owned.OthersAny); err != nil {
		dir.Close()
		return nil, err
	}
	if err := lockFile(dir); err != nil {
		dir.Close()
		return nil, fmt.Errorf("root directory %q: another posternd uses it: %w", path, err)
	}
	return &factsFile{path: path, dir: dir}, nil
}

func (f *factsFile) close() { f.dir.Close() }

// load reads the facts; where there are none yet it writes the first ones.
func (f *factsFile) load(now time.Time) (Facts, error) {
	facts, err := f.read()
	if errors.Is(err, os.ErrNotExist) {
		facts = newFacts(now)
		return facts, f.save(facts)
	}
	return facts, err
}

// peek reads without a lock and without making anything.
func (f *factsFile) peek() (Facts, error) {
	dir, err := owned.Open(f.path, unix.O_DIRECTORY)
	if err != nil {
		return Facts{}, err
	}
	defer dir.Close()
	if err := owned.Check(dir, owned.OthersAny); err != nil {
		return Facts{}, err
	}
	return (&factsFile{path: f.path, dir: dir}).read()
}

func (f *factsFile) read() (Facts, error) {
	if err := f.whole(); err != nil {
		return Facts{}, err
	}
	fd, err := unix.Openat(int(f.dir.Fd()), factsName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Facts{}, &os.PathError{Op: "open", Path: filepath.Join(f.path, factsName), Err: err}
	}
	file := os.NewFile(uintptr(fd), filepath.Join(f.path, factsName))
	defer file.Close()
	if err := owned.Check(file, owned.OthersAny); err != nil {
		return Facts{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFacts+1))
	if err != nil {
		return Facts{}, err
	}
	if len(raw) > maxFacts {
		return Facts{}, fmt.Errorf("%q: more than %d bytes", file.Name(), maxFacts)
	}
	facts, err := decodeFacts(raw)
	if err != nil {
		return Facts{}, fmt.Errorf("%q: %w", file.Name(), err)
	}
	return facts, nil
}

// save replaces facts.json, whole or not at all.
func (f *factsFile) save(facts Facts) error {
	raw, err := facts.encode()
	if err != nil {
		return err
	}
	if len(raw) > maxFacts {
		return fmt.Errorf("root facts: more than %d bytes", maxFacts)
	}
	return replaceAt(f.dir, factsName, tempName, 0o600, func(file *os.File) error {
		_, err := file.Write(raw)
		return err
	})
}

func lockFile(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return os.NewSyscallError("flock", err)
	}
	return nil
}
