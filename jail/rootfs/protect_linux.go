package rootfs

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Protect makes each of names, which lie in the attached workspace, read-only.
//
// A name that does not exist is left alone, and so can be created by the jail;
// a name reached through a symbolic link is left alone too, because the link
// itself belongs to the workspace and binding its goal would protect nothing.
//
// Every directory above a protected name is bound over itself: the kernel
// refuses to rename or remove a mount point (EBUSY), and without this a server
// would rename .git away, make a new one and write its own hooks.
func (r *Root) Protect(names []string) error {
	root, err := unix.Openat2(r.fd, spec.WorkspaceDir[1:], &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer unix.Close(root)
	bound := map[string]bool{}
	for _, name := range names {
		var chain []string
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			chain = append([]string{dir}, chain...)
		}
		fd, err := open(root, name)
		if err != nil {
			return fmt.Errorf("protect %q: %w", name, err)
		}
		if fd < 0 {
			continue
		}
		unix.Close(fd)
		for _, dir := range chain {
			if bound[dir] {
				continue
			}
			bound[dir] = true
			if err := overSelf(root, dir, false); err != nil {
				return fmt.Errorf("protect %q: %w", dir, err)
			}
		}
		if bound[name] {
			continue
		}
		bound[name] = true
		if err := overSelf(root, name, true); err != nil {
			return fmt.Errorf("protect %q: %w", name, err)
		}
	}
	return nil
}

// open returns -1 for what Protect leaves alone.
func open(root int, name string) (int, error) {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return -1, nil
	default:
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// overSelf binds name over itself, by one descriptor for both ends, so that
// the owner who renames things meanwhile cannot part them. A name that went
// away since it was seen is left alone.
func overSelf(root int, name string, readOnly bool) error {
	fd, err := open(root, name)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	tree, err := Detach(fd, Attr{ReadOnly: readOnly, NoExec: true})
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil && err != unix.ENOENT {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
