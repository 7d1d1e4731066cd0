// Package rootfs knows the mounts of a jail: detached mounts prepared from
// descriptors, a private root on tmpfs, and the pivot that leaves the host's
// files behind.
//
// It runs as root. Detach runs in the launcher, everything else in postern-jail
// inside fresh mount, process and network namespaces. Sources named by a
// profile are the host's and are checked; a workspace's content is hostile, so
// nothing inside it is ever opened by a path that could leave it.
//
// Invariants:
//   - rootfs-1: no mount is writable, or honours set-id or devices, for one
//     moment longer than it should: attributes are set while it is detached.
//   - rootfs-2: mount points are made on the private root only, which nobody
//     else can reach, so no link in anybody's content can move one
//     (CVE-2021-30465, CVE-2026-41579).
//   - rootfs-3: what a bind shows is the file that was opened and checked,
//     because it is mounted by that descriptor (CVE-2024-42472).
//   - rootfs-4: a device node is bound only if it is the device it is named for.
//   - rootfs-5: a protected name of the workspace, or what is in its place, is
//     read-only, and neither it nor a directory above it can be renamed away.
//
// It decides nothing about who may see what (jail, supervisor), and it drops no
// privilege (jail/stage).
package rootfs

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

const (
	rootBytes  = "1m"
	rootInodes = "2048" // directories and mount points of at most MaxBinds deep paths
)

// Attr says how a mount may be used. Set-id and devices are never honoured.
type Attr struct {
	ReadOnly bool
	NoExec   bool
	// Devices keeps device nodes working: for the five of /dev alone.
	Devices bool
	// Userns maps the ids of the file system by this user namespace, 0 for not.
	Userns int
}

// Detach returns a detached copy of the mount that fd lies on, rooted at fd,
// without the mounts nested in it. The caller closes it.
//
// Source: man 2 open_tree, man 2 mount_setattr.
func Detach(fd int, a Attr) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_NOSUID,
		// A copy of a shared mount is its peer: what is mounted below would
		// show up on the host.
		Propagation: unix.MS_PRIVATE,
	}
	if a.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if a.NoExec {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	if !a.Devices {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if a.Userns > 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(a.Userns)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("mount_setattr: %w", err)
	}
	return tree, nil
}

// Root is a private root under construction. All paths are absolute as the
// jail will see them.
type Root struct {
	host int // O_PATH of the host's root
	fd   int // the tmpfs
}

// New makes the mounts of this namespace private and puts an empty tmpfs on
// top of the root directory, where no path lookup that starts at / sees it.
//
// Preconditions: a mount namespace of its own; one locked thread.
func New() (*Root, error) {
	// Private rather than slave: nothing the host mounts later may appear here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	host, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open host root: %w", err)
	}
	fd, err := tmpfs(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		"size", rootBytes, "nr_inodes", rootInodes, "mode", "0755")
	if err != nil {
		return nil, err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("move_mount root: %w", err)
	}
	return &Root{host: host, fd: fd}, nil
}

// tmpfs returns a detached tmpfs; options are names and values in turn.
func tmpfs(attr int, options ...string) (int, error) {
	return filesystem("tmpfs", attr, options...)
}

func filesystem(kind string, attr int, options ...string) (int, error) {
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(fsfd)
	for i := 0; i < len(options); i += 2 {
		if err := unix.FsconfigSetString(fsfd, options[i], options[i+1]); err != nil {
			return -1, fmt.Errorf("fsconfig %s %s=%s: %w", kind, options[i], options[i+1], err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return -1, fmt.Errorf("fsconfig %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return -1, fmt.Errorf("fsmount %s: %w", kind, err)
	}
	return fd, nil
}

// Bind shows b. It reports false, and no error, where an optional source does
// not exist.
func (r *Root) Bind(b spec.Bind) (bool, error) {
	src, st, err := r.source(b.Source)
	if err == unix.ENOENT && b.Optional {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bind %q: %w", b.Source, err)
	}
	defer unix.Close(src)
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFDIR {
		// A socket would work through a read-only bind; a device is not data.
		return false, fmt.Errorf("bind %q: neither a file nor a directory", b.Source)
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return false, fmt.Errorf("bind %q: not root's alone: owner %d, mode %#o", b.Source, st.Uid, st.Mode&0o7777)
	}
	return true, r.bind(src, b.At(), kind == unix.S_IFDIR, Attr{ReadOnly: true, NoExec: !b.Exec})
}

// source opens an absolute path of the host, without leaving it by a magic link.
func (r *Root) source(p string) (int, *unix.Stat_t, error) {
	fd, err := Openat2(r.host, strings.TrimPrefix(p, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

func (r *Root) bind(src int, at string, dir bool, a Attr) error {
	tree, err := Detach(src, a)
	if err != nil {
		return fmt.Errorf("bind to %q: %w", at, err)
	}
	defer unix.Close(tree)
	return r.Attach(tree, at, dir)
}

// Attach mounts detached mount fd at path at, which it makes.
func (r *Root) Attach(fd int, at string, dir bool) error {
	point, err := r.point(at, dir)
	if err != nil {
		return fmt.Errorf("mount point %q: %w", at, err)
	}
	defer unix.Close(point)
	if err := unix.MoveMount(fd, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount to %q: %w", at, err)
	}
	return nil
}

// point makes at on the private root and opens it.
func (r *Root) point(at string, dir bool) (int, error) {
	name, err := r.parents(at)
	if err != nil {
		return -1, err
	}
	if dir {
		err = unix.Mkdirat(r.fd, name, 0o755)
	} else {
		err = unix.Mknodat(r.fd, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	return r.open(name)
}

// parents makes the directories above at and returns at relative to the root.
func (r *Root) parents(at string) (string, error) {
	name := strings.TrimPrefix(at, "/")
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if err := unix.Mkdirat(r.fd, name[:i], 0o755); err != nil && err != unix.EEXIST {
			return "", err
		}
	}
	return name, nil
}

// open opens name on the tmpfs itself: a lookup that would cross into another
// mount, or follow a link, is refused.
func (r *Root) open(name string) (int, error) {
	return Openat2(r.fd, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// Link makes a symbolic link on the private root.
func (r *Root) Link(l spec.Link) error {
	name, err := r.parents(l.Path)
	if err == nil {
		err = unix.Symlinkat(l.To, r.fd, name)
	}
	if err != nil {
		return fmt.Errorf("link %q: %w", l.Path, err)
	}
	return nil
}

// devices are the nodes of every /dev, by their numbers in the kernel's
// Documentation/admin-guide/devices.txt.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9},
}

// Devices binds the five nodes. Each is compared with its number first: a host
// whose /dev/null was replaced must not lend the replacement (CVE-2025-31133).
func (r *Root) Devices() error {
	for _, d := range devices {
		at := path.Join(spec.DevDir, d.name)
		src, st, err := r.source(at)
		if err != nil {
			return fmt.Errorf("device %q: %w", at, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != d.major || unix.Minor(st.Rdev) != d.minor {
			unix.Close(src)
			return fmt.Errorf("device %q: is %d:%d of type %#o: %w", at, unix.Major(st.Rdev), unix.Minor(st.Rdev), st.Mode&unix.S_IFMT, fs.ErrInvalid)
		}
		err = r.bind(src, at, false, Attr{ReadOnly: true, NoExec: true, Devices: true})
		unix.Close(src)
		if err != nil {
			return err
		}
	}
	return nil
}

// Tmp gives a tmpfs at path at to one user, bounded in bytes and files.
func (r *Root) Tmp(at string, bytes int64, inodes int, uid, gid uint32) error {
	fd, err := tmpfs(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		"size", fmt.Sprint(bytes), "nr_inodes", fmt.Sprint(inodes), "mode", "0700",
		"uid", fmt.Sprint(uid), "gid", fmt.Sprint(gid))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.Attach(fd, at, true)
}

// Proc mounts the process files of this process namespace: of the own user's
// processes only, without the kernel's own files, and read-only.
func (r *Root) Proc() error {
	fd, err := filesystem("proc", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		"hidepid", "invisible", "subset", "pid")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.Attach(fd, spec.ProcDir, true)
}

// Pivot makes the private root the root, drops the host's mounts and makes the
// root itself read-only. Nothing can be added to r afterwards.
func (r *Root) Pivot() error {
	if err := unix.Fchdir(r.fd); err != nil {
		return fmt.Errorf("fchdir root: %w", err)
	}
	// man 2 pivot_root, "pivot_root(".", ".")": the old root ends up stacked on
	// the new one and needs no directory of its own.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach host root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir /: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(r.fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	unix.Close(r.fd)
	unix.Close(r.host)
	return nil
}
