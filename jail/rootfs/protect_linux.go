package rootfs

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Protect makes each of names, which lie in the attached workspace, read-only.
//
// The launcher has seen to it that each exists, or that something is in its place
// in which it cannot be made: an empty directory above it, or a file as .git of a
// worktree is. What is nearest to the name becomes read-only. A symbolic link is an
// error: whoever may write the directory could put something else in its place.
//
// Every directory above a protected name is bound over itself: the kernel
// refuses to rename or remove a mount point (EBUSY), and without this a server
// would rename .git away, make a new one and write its own hooks.
func (r *Root) Protect(names []string) error {
	root, err := Openat2(r.fd, spec.WorkspaceDir[1:], &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer unix.Close(root)
	readOnly := map[string]bool{} // false: only kept in its place
	for _, name := range names {
		last := ""
		for i := 1; i <= len(name); i++ {
			if i < len(name) && name[i] != '/' {
				continue
			}
			fd, err := open(root, name[:i])
			if err == unix.ENOENT || err == unix.ENOTDIR {
				break
			}
			if err != nil {
				return fmt.Errorf("%q: %w", name[:i], err)
			}
			unix.Close(fd)
			last = name[:i]
			readOnly[last] = readOnly[last] || i == len(name)
		}
		if last == "" {
			return fmt.Errorf("%q: %w", name, unix.ENOENT)
		}
		readOnly[last] = true
	}
	for _, part := range slices.Sorted(maps.Keys(readOnly)) { // a directory before what is in it
		if covered := readOnly[path.Dir(part)]; covered {
			continue
		}
		if err := overSelf(root, part, readOnly[part]); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
	}
	return nil
}

// open opens a part of the workspace, without following a link anywhere.
func open(root int, name string) (int, error) {
	fd, err := Openat2(root, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ELOOP {
		return -1, fmt.Errorf("is a symbolic link: %w", err)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		unix.Close(fd)
		return -1, fmt.Errorf("neither a file nor a directory: %w", unix.EINVAL)
	}
	return fd, nil
}

// overSelf binds name over itself, by one descriptor for both ends, so that
// the owner who renames things meanwhile cannot part them.
func overSelf(root int, name string, readOnly bool) error {
	fd, err := open(root, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	tree, err := Detach(fd, Attr{ReadOnly: readOnly, NoExec: true})
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
