package jail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"postern/jail/rootfs"
)

// A protected name is made read-only by a mount over it, and only what exists can
// be mounted over. So while a jail may write a workspace, names that are absent
// there are occupied: by an empty directory of the owner's own, which git does not
// track, every tool of the owner's can use or remove, and the kernel refuses to
// remove once anything is in it. Inside a repository the few names that must be
// files are files, with content that changes nothing. When the last jail of the
// workspace has ended, whatever is still as it was made is removed.
//
// What else was weighed: Landlock and seccomp know no names. A broker that is asked
// for each call (seccomp_unotify) would parse paths of hostile programs as root.
// An overlay keeps the disk clean but needs a work directory on it, and does not
// see what the owner changes beneath it meanwhile. A placeholder of root's would
// keep the owner from making the name.

// placeholderMark names, as the kernel alone can, what a launcher that was killed
// left behind.
const placeholderMark = "trusted.postern.placeholder"

// fileNames are those that programs read as files, and the content that leaves
// everything as it is without them. A common directory of "." is the repository.
var fileNames = map[string]string{
	".git/config":          "",
	".git/config.worktree": "",
	".git/commondir":       ".\n",
}

// occupied is one workspace in which names are held.
type occupied struct {
	mu    sync.Mutex     // held while its names are made or removed
	users int            // jails that need any; guarded by occupancy.mu
	need  map[string]int // by how many jails each name and what is above it is needed; guarded by occupancy.mu
}

// occupancy counts, for each directory, the jails that need its names held.
type occupancy struct {
	mu  sync.Mutex
	all map[[2]uint64]*occupied // by device and inode of a directory that is held open
}

// occupy makes the absent ones of w's protected names. release gives them back and
// must be called once nothing of the jail is left.
func (o *occupancy) occupy(w *Workspace) (release func(), err error) {
	if w == nil || w.ReadOnly || len(w.Protect) == 0 {
		return func() {}, nil
	}
	return o.enter(w.Dir, w.Protect, func(dir int, name string) error { return hold(dir, name, int(w.UID), int(w.GIDs[0])) })
}

// enter counts one more user of the names in w, and calls hold for each.
func (o *occupancy) enter(w *os.File, names []string, hold func(dir int, name string) error) (release func(), err error) {
	// A descriptor of its own: the caller's is closed when Launch returns.
	dir, err := unix.Openat(fd(w), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		unix.Close(dir)
		return nil, err
	}
	key := [2]uint64{st.Dev, st.Ino}
	o.mu.Lock()
	here := o.all[key]
	if here == nil {
		here = &occupied{need: map[string]int{}}
		o.all[key] = here
	}
	here.users++
	parts := partsOf(names)
	for _, part := range parts {
		here.need[part]++
	}
	o.mu.Unlock()

	release = func() {
		here.mu.Lock()
		defer here.mu.Unlock()
		defer unix.Close(dir)
		o.mu.Lock()
		here.users--
		// Jails of one workspace may need different names: what nobody needs any more goes.
		var free []string
		for _, part := range parts {
			if here.need[part]--; here.need[part] == 0 {
				delete(here.need, part)
				free = append(free, part)
			}
		}
		o.mu.Unlock()
		vacate(dir, free)
		o.mu.Lock()
		defer o.mu.Unlock()
		if here.users == 0 { // else somebody waits for here.mu, and makes them again
			delete(o.all, key)
		}
	}
	here.mu.Lock()
	for _, name := range names {
		if err = hold(dir, name); err != nil {
			err = fmt.Errorf("protected name %q: %w", name, err)
			break
		}
	}
	here.mu.Unlock()
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// hold sees to it that name, or the first part of it that is absent, exists. It
// refuses a symbolic link on the way: a link cannot be mounted over, so whoever may
// write the directory could put something else in its place.
func hold(root int, name string, uid, gid int) error {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		part := name[:i]
		var st unix.Stat_t
		err := lstatBeneath(root, part, &st)
		switch {
		case err == unix.ENOENT:
			return makePlaceholder(root, part, uid, gid)
		case err != nil:
			return err
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			return fmt.Errorf("%q is a symbolic link, which cannot be protected: put what it leads to in its place", part)
		case st.Mode&unix.S_IFMT == unix.S_IFREG && i < len(name):
			return nil // a file where a directory is looked for, as .git of a worktree: the file is protected
		case i < len(name) && isPlaceholder(root, part):
			return nil // nothing can be made in it
		case st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Mode&unix.S_IFMT != unix.S_IFREG:
			return fmt.Errorf("%q is neither a file nor a directory", part)
		}
	}
	return nil
}

// beneath opens a part of the workspace without following any link.
func beneath(root int, name string, flags uint64) (int, error) {
	return rootfs.Openat2(root, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// lstatBeneath looks at name itself; only its parents may be no links.
func lstatBeneath(root int, name string, st *unix.Stat_t) error {
	parent, err := parentOf(root, name)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return unix.Fstatat(parent, path.Base(name), st, unix.AT_SYMLINK_NOFOLLOW)
}

func parentOf(root int, name string) (int, error) {
	return beneath(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
}

// isPlaceholder reports whether directory part is one and nobody has used it. From
// then on it is the owner's, and an ordinary one.
func isPlaceholder(root int, part string) bool {
	dir, err := beneath(root, part, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(dir), part)
	defer file.Close()
	if !marked(dir) {
		return false
	}
	if _, err := file.Readdirnames(1); errors.Is(err, io.EOF) {
		return true
	}
	unix.Fremovexattr(dir, placeholderMark)
	return false
}

func marked(file int) bool {
	var mark [8]byte
	n, err := unix.Fgetxattr(file, placeholderMark, mark[:])
	return err == nil && string(mark[:n]) == "1"
}

// unfinished is a placeholder that has not got its name yet: marking it comes first,
// so that one with a name can always be told.
const unfinished = ".postern-placeholder"

// makePlaceholder makes name, marked, and gives it to the owner.
func makePlaceholder(root int, name string, uid, gid int) error {
	parent, err := parentOf(root, name)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	dropUnfinished(parent)
	content, isFile := fileNames[name]
	var made int
	if isFile {
		made, err = unix.Openat(parent, unfinished, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	} else if err = unix.Mkdirat(parent, unfinished, 0o755); err == nil {
		made, err = unix.Openat(parent, unfinished, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	switch {
	case err == unix.EROFS: // nobody can make anything here
		return nil
	case err != nil:
		return fmt.Errorf("occupy %q: %w", name, err)
	}
	defer unix.Close(made)
	err = finish(parent, made, path.Base(name), content, uid, gid)
	if err != nil {
		dropUnfinished(parent)
	}
	if err == unix.EEXIST { // somebody was faster
		return nil
	}
	if err != nil {
		return fmt.Errorf("occupy %q: %w", name, err)
	}
	return nil
}

func finish(parent, made int, base, content string, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(made, &st); err != nil {
		return err
	}
	if st.Uid != 0 {
		return errors.New("it was replaced while it was made")
	}
	if content != "" {
		if _, err := unix.Write(made, []byte(content)); err != nil {
			return err
		}
	}
	// The mark is for the next launcher, should this one be killed. A file system
	// without marks keeps the names then; they are empty and the owner's.
	if err := unix.Fsetxattr(made, placeholderMark, []byte("1"), 0); err != nil && err != unix.EOPNOTSUPP {
		return err
	}
	// Until it has its name it is root's, whom no jail's mount knows: another jail of
	// the workspace can put nothing else in its place.
	if err := unix.Renameat2(parent, unfinished, parent, base, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return unix.Fchown(made, uid, gid)
}

// dropUnfinished removes what a launcher that was killed had not finished. The owner
// has no use for the name; a directory with something in it stays.
func dropUnfinished(parent int) {
	if unix.Unlinkat(parent, unfinished, unix.AT_REMOVEDIR) == unix.ENOTDIR {
		unix.Unlinkat(parent, unfinished, 0)
	}
}

// vacate removes the placeholders among parts, the deepest first, that are still as
// they were made. What it cannot remove stays the owner's.
func vacate(root int, parts []string) {
	for _, part := range parts {
		parent, err := parentOf(root, part)
		if err != nil {
			continue
		}
		dropUnfinished(parent)
		vacateOne(parent, path.Base(part), fileNames[part])
		unix.Close(parent)
	}
}

// partsOf returns each name and each directory above it once, the deepest first.
func partsOf(names []string) []string {
	var parts []string
	for _, name := range names {
		for p := name; p != "."; p = path.Dir(p) {
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return parts
}

func vacateOne(parent int, base, content string) {
	f, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	file := os.NewFile(uintptr(f), base)
	defer file.Close()
	if !marked(f) {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(f, &st) != nil {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		// The kernel refuses where anything is in it; then it is the owner's for good.
		if unix.Unlinkat(parent, base, unix.AT_REMOVEDIR) != nil {
			unix.Fremovexattr(f, placeholderMark)
		}
		return
	}
	now, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	if err != nil || !bytes.Equal(now, []byte(content)) {
		unix.Fremovexattr(f, placeholderMark)
		return
	}
	unix.Unlinkat(parent, base, 0)
}

// Tidy removes what a launcher that was killed left in a workspace: placeholders of
// DefaultProtect that nobody has used. Where a jail needs them they stay.
func (l *Launcher) Tidy(dir *os.File) error {
	release, err := l.held.enter(dir, DefaultProtect(), func(int, string) error { return nil })
	if err != nil {
		return err
	}
	release()
	return nil
}
