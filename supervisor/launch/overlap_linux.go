package launch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
)

// place is a directory's path within its file system, prefixed by the device. A bind
// mount gives a directory a second path on the host, never a second place.
func place(f *os.File, path string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return "", os.NewSyscallError("statx", err)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// Source: proc_pid_mountinfo(5): id, parent, major:minor, root, mount point.
		col := strings.Fields(lines.Text())
		if len(col) < 5 || col[0] != strconv.FormatUint(st.Mnt_id, 10) {
			continue
		}
		root, point := unescape(col[3]), unescape(col[4])
		if point != "/" && !spec.Inside(path, point) {
			return "", fmt.Errorf("%q is not below its mount point %q", path, point)
		}
		return col[2] + ":" + filepath.Join(root, strings.TrimPrefix(path, strings.TrimSuffix(point, "/"))), nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("the mount of %q is not listed", path)
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

type node struct {
	dev, ino uint64
	d        Directory
}

// ancestors lists f and every directory above it, by opening "..", so that no path
// has a say. It stops at the root of the mount tree.
func ancestors(f *os.File, identities bool) ([]node, error) {
	var out []node
	// Opened for reading: the file system's UUID cannot be asked through O_PATH.
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Openat(int(f.Fd()), ".", flags, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	defer func() { unix.Close(fd) }()
	for range maxDepth {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, os.NewSyscallError("fstat", err)
		}
		n := node{dev: st.Dev, ino: st.Ino}
		if identities {
			// A file system without handles holds no project; its directories match none.
			n.d, _, _ = identify(fd, false)
		}
		if len(out) > 0 && out[len(out)-1].dev == n.dev && out[len(out)-1].ino == n.ino {
			return out, nil
		}
		out = append(out, n)
		up, err := unix.Openat(fd, "..", flags, 0)
		if err != nil {
			return nil, os.NewSyscallError("openat ..", err)
		}
		unix.Close(fd)
		fd = up
	}
	return nil, fmt.Errorf("%q lies deeper than %d directories", f.Name(), maxDepth)
}

// ownDir is a directory of Postern's own. Nothing may contain it; where sole is set,
// nothing may lie in it either.
type ownDir struct {
	path string
	sole bool
}

// ownDirs lists them. A configuration that lies beside the other directories, in one
// base directory of a private installation, does not take that whole directory.
func (c Config) ownDirs() []ownDir {
	var out []ownDir
	shared := false
	for _, dir := range []string{c.RootDir, c.StateDir, c.RunDir, c.Libexec} {
		out = append(out, ownDir{dir, true})
		shared = shared || spec.Inside(dir, c.ConfigDir)
	}
	if c.ConfigDir != "" {
		out = append(out, ownDir{c.ConfigDir, !shared}, ownDir{filepath.Join(c.ConfigDir, "profiles.d"), true})
	}
	return out
}

// checkOverlap refuses a workspace that is, contains, or lies in a directory of
// Postern's own or of another live project. Others are compared by identity with
// everything above the workspace, and by place in the other direction.
func checkOverlap(f *os.File, self Project, where string, others []Project, own []ownDir) *api.Refusal {
	refuse := func(format string, args ...any) *api.Refusal {
		return api.Refuse(refusal.WorkspaceOverlap, format, args...)
	}
	above, err := ancestors(f, true)
	if err != nil {
		return api.Refuse(refusal.WorkspaceRefused, "%v.", err)
	}
	for _, dir := range own {
		switch over, err := overlaps(dir, f, where, above); {
		case errors.Is(err, os.ErrNotExist): // what is not there cannot be reached through the workspace
		case err != nil:
			return refuse("%q cannot be compared with %q: %v.", self.Workspace, dir.path, err)
		case over:
			return refuse("%q overlaps Postern's own %q.", self.Workspace, dir.path)
		}
	}
	for _, o := range others {
		if o.Deleted || o.ID == self.ID {
			continue
		}
		if spec.Inside(o.Workspace, self.Workspace) || spec.Inside(self.Workspace, o.Workspace) || spec.Inside(o.Directory.Place, where) || spec.Inside(where, o.Directory.Place) {
			return refuse("%q overlaps %q of project %s.", self.Workspace, o.Workspace, o.ID)
		}
		for _, n := range above {
			if n.d.same(o.Directory) {
				return refuse("%q lies in the directory of project %s.", self.Workspace, o.ID)
			}
		}
	}
	return nil
}

// overlaps compares with one directory of Postern's own, both ways.
func overlaps(dir ownDir, f *os.File, where string, above []node) (bool, error) {
	fd, err := unix.Open(dir.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: dir.path, Err: err}
	}
	d := os.NewFile(uintptr(fd), dir.path)
	defer d.Close()
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return false, err
	}
	at, err := place(d, path)
	if err != nil {
		return false, err
	}
	if spec.Inside(at, where) || dir.sole && spec.Inside(where, at) {
		return true, nil
	}
	theirs, err := ancestors(d, false)
	if err != nil {
		return false, err
	}
	for _, n := range above { // the workspace lies in dir
		if dir.sole && n.dev == theirs[0].dev && n.ino == theirs[0].ino {
			return true, nil
		}
	}
	for _, n := range theirs { // dir lies in the workspace
		if n.dev == above[0].dev && n.ino == above[0].ino {
			return true, nil
		}
	}
	return false, nil
}
