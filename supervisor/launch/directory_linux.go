package launch

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// Directory is which directory it is, whatever its path says now. Device and inode
// numbers are not in it: a directory that was removed and made again had the same ones
// every time. The handle carries the inode's generation, and the birth time and the
// mark tell the rest.
type Directory struct {
	FS     string `json:"fs"`     // UUID of the file system, or its statfs id where it has none
	Type   int32  `json:"type"`   // of the handle
	Handle string `json:"handle"` // hexadecimal
	Birth  int64  `json:"birth"`  // nanoseconds since the epoch
	Marked bool   `json:"marked"` // the project's id stands in the directory's mark
	Place  string `json:"place"`  // path within its file system, for the overlap rule
}

// markName is the extended attribute that carries the project's id; trusted.* needs
// CAP_SYS_ADMIN of the host, which no jail and no owner has.
const markName = "trusted.postern.project"

// maxDepth bounds the walk from a directory up to the root.
const maxDepth = 128

// ioctlGetFSUUID is FS_IOC_GETFSUUID, _IOR(0x15, 0, struct fsuuid2), Linux 6.9.
const ioctlGetFSUUID = 0x80111500

// openWorkspace opens the directory at path without following a link anywhere. With
// resolve, links before the last component are followed and the resolved path is
// returned; that is for registration. The last component is never a link: what is
// registered is the directory, and both spellings must mean it for good.
func openWorkspace(path string, resolve bool) (*os.File, string, *api.Refusal) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if !resolve {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	fd, err := openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		if to, linkErr := os.Readlink(path); linkErr == nil {
			return nil, "", api.Refuse(refusal.WorkspaceRefused, "%q is a symbolic link to %q; register the directory itself.", path, to)
		}
		if !resolve && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
			return nil, "", api.Refuse(refusal.ProjectReplaced, "%q: %v.", path, err)
		}
		return nil, "", api.Refuse(refusal.WorkspaceRefused, "%q: %v.", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	resolved, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || !filepath.IsAbs(resolved) {
		f.Close()
		return nil, "", api.Refuse(refusal.WorkspaceRefused, "%q has no path of its own: %v.", path, err)
	}
	if !resolve && resolved != path {
		f.Close()
		return nil, "", api.Refuse(refusal.ProjectReplaced, "%q is now %q.", path, resolved)
	}
	return f, resolved, nil
}

// identify reads everything of a Directory but its place. It fails where the file
// system has no handles or no birth times: there a directory cannot be told from the
// one that replaces it.
func identify(fd int, withMark bool) (Directory, string, error) {
	var d Directory
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return d, "", os.NewSyscallError("name_to_handle_at", err)
	}
	d.Type, d.Handle = h.Type(), hex.EncodeToString(h.Bytes())
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil {
		return d, "", os.NewSyscallError("statx", err)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return d, "", errors.New("this file system keeps no birth time")
	}
	d.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	if d.FS, err = fileSystem(fd); err != nil {
		return d, "", err
	}
	if !withMark {
		return d, "", nil
	}
	buf := make([]byte, 2*ids.Len)
	n, err := unix.Fgetxattr(fd, markName, buf)
	switch {
	case err == nil:
		return d, string(buf[:n]), nil
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ERANGE):
		return d, "", nil
	}
	return d, "", os.NewSyscallError("fgetxattr", err)
}

func fileSystem(fd int) (string, error) {
	var id struct {
		n    uint8
		uuid [16]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlGetFSUUID, uintptr(unsafe.Pointer(&id)))
	if errno == 0 && id.n > 0 && id.n <= 16 {
		return hex.EncodeToString(id.uuid[:id.n]), nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return "", os.NewSyscallError("fstatfs", err)
	}
	return fmt.Sprintf("fsid-%08x%08x", uint32(st.Fsid.Val[0]), uint32(st.Fsid.Val[1])), nil
}

func (d Directory) same(o Directory) bool {
	return d.FS == o.FS && d.Type == o.Type && d.Handle == o.Handle && d.Birth == o.Birth
}

// checkIdentity compares the open directory with the one that was registered.
func checkIdentity(f *os.File, p Project) *api.Refusal {
	now, mark, err := identify(int(f.Fd()), p.Directory.Marked)
	if err != nil {
		return api.Refuse(refusal.WorkspaceRefused, "%q: %v.", p.Workspace, err)
	}
	if !now.same(p.Directory) || (p.Directory.Marked && mark != string(p.ID)) {
		return api.Refuse(refusal.ProjectReplaced, "%q is another directory than the one registered as %s.", p.Workspace, p.ID)
	}
	return nil
}

// mark writes the project's id into the directory, where the file system can.
func mark(f *os.File, id ids.Project) (bool, error) {
	err := unix.Fsetxattr(int(f.Fd()), markName, []byte(id), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("fsetxattr", err)
	}
	return true, nil
}

// checkOwner refuses a directory that is not owned by one of the account's uids.
func checkOwner(f *os.File, path string, uids []uint32) (uid, gid uint32, refused *api.Refusal) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, api.Refuse(refusal.WorkspaceRefused, "%q: %v.", path, err)
	}
	if st.Uid == 0 || !slices.Contains(uids, st.Uid) {
		return 0, 0, api.Refuse(refusal.WorkspaceRefused, "%q belongs to uid %d, which is not one of the account's.", path, st.Uid)
	}
	return st.Uid, st.Gid, nil
}

// Bounds of looking for files of other users.
const (
	maxLookedAt = 20_000
	maxForeign  = 8
)

// foreign lists files of a workspace that belong to another uid, or to none of gids:
// inside the jail they are nobody's. It looks at no more than maxLookedAt names, does not follow
// links, and does not enter other file systems.
func foreign(root *os.File, uid uint32, gids []uint32) []string {
	var out []string
	looked := 0
	var dev uint64
	var walk func(dir int, at string, depth int)
	walk = func(dir int, at string, depth int) {
		fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		d := os.NewFile(uintptr(fd), at)
		defer d.Close()
		names, _ := d.Readdirnames(maxLookedAt - looked + 1)
		for _, name := range names {
			if looked++; looked > maxLookedAt || len(out) >= maxForeign {
				return
			}
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			path := filepath.Join(at, name)
			switch {
			case st.Uid != uid:
				out = append(out, fmt.Sprintf("%q belongs to uid %d and is nobody's inside the jail", path, st.Uid))
			case !slices.Contains(gids, st.Gid):
				out = append(out, fmt.Sprintf("%q belongs to gid %d, which is nobody's inside the jail", path, st.Gid))
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Dev != dev || depth >= maxDepth {
				continue
			}
			sub, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			walk(sub, path, depth+1)
			unix.Close(sub)
		}
	}
	var st unix.Stat_t
	if unix.Fstat(int(root.Fd()), &st) != nil {
		return nil
	}
	dev = st.Dev
	walk(int(root.Fd()), "", 0)
	if looked > maxLookedAt {
		out = append(out, fmt.Sprintf("only the first %d files were looked at", maxLookedAt))
	}
	return out
}
