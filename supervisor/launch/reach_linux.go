package launch

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reachWait bounds the look for a directory that the owner cannot enter: a file system
// that does not answer must not hold the answer of a change up that does not need it.
const reachWait = time.Second

// closedTo warns of the directory at or above a workspace that its owner cannot enter. A
// jail is handed the directory itself and works; the owner, and the runtimes that run as
// the owner, cannot get there.
func closedTo(path string, uid uint32) []string {
	found := make(chan []string, 1)
	go func() {
		var warnings []string
		at, err := firstClosed(path, uid)
		switch {
		case err != nil:
			warnings = []string{fmt.Sprintf("whether uid %d can enter %q could not be found out: %v", uid, path, err)}
		case at == path:
			warnings = []string{fmt.Sprintf("its owner, uid %d, cannot enter it: tool servers can use it, and runtimes of the owner cannot; see its mode", uid)}
		case at != "":
			warnings = []string{fmt.Sprintf("its owner, uid %d, cannot enter %q above it: tool servers can use it, and runtimes of the owner cannot; see the mode of that directory", uid, at)}
		}
		found <- warnings
	}()
	late := time.NewTimer(reachWait)
	defer late.Stop()
	select {
	case warnings := <-found:
		return warnings
	case <-late.C:
		return []string{fmt.Sprintf("whether uid %d can enter %q could not be found out within %v", uid, path, reachWait)}
	}
}

// firstClosed returns the first directory on the way to path, itself included, that the
// kernel does not let a user enter; "" where it lets them.
func firstClosed(path string, uid uint32) (at string, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	wrong := asUser(uid, memberships(uid, st.Gid), func() {
		name := ""
		for _, part := range append([]string{""}, strings.Split(strings.Trim(path, "/"), "/")...) {
			name = filepath.Join("/", name, part)
			// The dot is looked up within the directory, and so asks for leave to enter it.
			fd, failed := openat2(unix.AT_FDCWD, name+"/.", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
				Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
			switch {
			case failed == nil:
				unix.Close(fd)
				continue
			case errors.Is(failed, unix.EACCES):
				at = name
			default:
				err = failed
			}
			return
		}
	})
	return at, errors.Join(err, wrong)
}

// memberships are all groups of a user, of which the first is its own; gid, the
// directory's, is taken for one whom this machine does not know by name.
func memberships(uid, gid uint32) []uint32 {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return []uint32{gid}
	}
	var gids []uint32
	names, _ := u.GroupIds()
	for _, name := range append([]string{u.Gid}, names...) {
		if n, err := strconv.ParseUint(name, 10, 32); err == nil {
			gids = append(gids, uint32(n))
		}
	}
	if len(gids) == 0 {
		return []uint32{gid}
	}
	return gids
}

// asUser does something with the rights that a user has to files, and no capability of
// root's. Only the thread of this goroutine is that user's, and only meanwhile; one that
// cannot be root's again is never used for anything else. do is not called where the
// thread could not become the user's.
func asUser(uid uint32, gids []uint32, do func()) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var own []int
		if own, err = unix.Getgroups(); err == nil {
			if err = readAs(int(uid), ints(gids)); err == nil {
				do()
			}
			err = errors.Join(err, readAs(os.Geteuid(), append([]int{os.Getegid()}, own...)), unix.Setgroups(own))
		}
		if err == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return err
}
