package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/supervisor/owned"
	"postern/supervisor/peer"
)

// Names below the run directory. Everything else there is somebody else's and stays.
const (
	rootSocket    = "root.sock"
	controlSocket = "control.sock"
	projectsDir   = "p"
	tokensDir     = "t"
	socketName    = "bridge.sock"
	backlog       = 128
)

// runDir is the run directory, locked.
type runDir struct {
	path string
	dir  *os.File
}

// openRunDir makes and locks the run directory and removes what an earlier posternd
// left in it.
func openRunDir(path string) (*runDir, error) {
	if err := makeDir(path, 0o711); err != nil {
		return nil, err
	}
	dir, err := owned.Dir(path)
	if err != nil {
		return nil, err
	}
	if err := checkPassable(dir); err != nil {
		dir.Close()
		return nil, err
	}
	r := &runDir{path: path, dir: dir}
	if err := lockFile(dir); err != nil {
		dir.Close()
		return nil, fmt.Errorf("run directory %q: another posternd uses it: %w", path, err)
	}
	if err := r.sweep(); err != nil {
		dir.Close()
		return nil, err
	}
	for _, sub := range []string{projectsDir, tokensDir} {
		if err := makeDir(filepath.Join(path, sub), 0o711); err != nil {
			dir.Close()
			return nil, err
		}
	}
	return r, nil
}

// checkPassable refuses a run directory through which nobody but root reaches a socket:
// everything would serve, and nobody could connect.
func checkPassable(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&0o001 == 0 && (st.Gid == 0 || st.Mode&0o010 == 0) {
		return fmt.Errorf("run directory %q has mode %04o, and nobody but root could connect: leave RuntimeDirectoryMode= of the unit at 0711, or chmod 0711 it", dir.Name(), st.Mode&0o7777)
	}
	return nil
}

// makeDir makes a directory with exactly this mode, whatever the umask; one that is
// there already is left as it is, for the check that follows.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// sweep removes by name what posternd makes here.
func (r *runDir) sweep() error {
	var errs []error
	for _, name := range []string{rootSocket, controlSocket} {
		errs = append(errs, removeSocket(filepath.Join(r.path, name)))
	}
	for _, name := range []string{projectsDir, tokensDir} {
		errs = append(errs, os.RemoveAll(filepath.Join(r.path, name)))
	}
	return errors.Join(errs...)
}

// removeSocket removes a socket that is left over. Anything else at its path is
// somebody's, and neither removed nor followed.
func removeSocket(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%q is not a socket (%v) and is left as it is; move it away", path, fi.Mode())
	}
	return os.Remove(path)
}

// close removes everything of posternd's and, if nothing else is in it, the directory.
func (r *runDir) close() error {
	err := r.sweep()
	os.Remove(r.path) // not empty: somebody else's
	r.dir.Close()
	return err
}

// listen makes a listening stream socket. It refuses descriptors from the first
// connection on; a listener hands that on to what it accepts. mode is set before
// anybody is let in: until listen, connect is refused.
func listen(path string, mode uint32) (*os.File, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q has more than %d bytes", path, maxSocketPath)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := removeSocket(path); err != nil {
		f.Close()
		return nil, err
	}
	steps := []func() error{
		func() error { return peer.PassRights(fd, false) },
		func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) },
		func() error { return unix.Chmod(path, mode) },
		func() error { return unix.Listen(fd, backlog) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			f.Close()
			return nil, fmt.Errorf("listen on %q: %w", path, err)
		}
	}
	return f, nil
}

func (r *runDir) control() (*os.File, error) {
	return listen(filepath.Join(r.path, controlSocket), 0o666)
}

// project makes the directory and the socket of a project. Everybody may connect; the
// peer's credentials decide.
func (r *runDir) project(id ids.Project) (*os.File, error) {
	dir := filepath.Join(r.path, projectsDir, string(id))
	if err := makeDir(dir, 0o711); err != nil {
		return nil, err
	}
	return listen(filepath.Join(dir, socketName), 0o666)
}

func (r *runDir) removeProject(id ids.Project) error {
	return os.RemoveAll(filepath.Join(r.path, projectsDir, string(id)))
}

// tokenFile makes a file that uid alone can read and returns it open for writing.
func (r *runDir) tokenFile(task ids.Task, uid uint32) (*os.File, string, error) {
	path := filepath.Join(r.path, tokensDir, string(task))
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o400)
	if err != nil {
		return nil, "", &os.PathError{Op: "create", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := errors.Join(f.Chmod(0o400), f.Chown(int(uid), 0)); err != nil {
		f.Close()
		os.Remove(path)
		return nil, "", err
	}
	return f, path, nil
}

func (r *runDir) removeToken(task ids.Task) error {
	err := os.Remove(filepath.Join(r.path, tokensDir, string(task)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// clearAuthority removes what belongs to one life of the authority.
func (r *runDir) clearAuthority() error {
	var errs []error
	errs = append(errs, removeSocket(filepath.Join(r.path, controlSocket)))
	for _, sub := range []string{projectsDir, tokensDir} {
		names, err := os.ReadDir(filepath.Join(r.path, sub))
		errs = append(errs, err)
		for _, n := range names {
			errs = append(errs, os.RemoveAll(filepath.Join(r.path, sub, n.Name())))
		}
	}
	return errors.Join(errs...)
}
