package jail

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layer is one thing a jail is made of, and whether this host has it.
type Layer struct {
	Name string
	OK   bool
	// Why says what was found, in either case.
	Why string
}

// leastLandlock is the version of Landlock that every profile may count on.
const leastLandlock = 6

// Layers tries every layer below the control groups, which Open reports, on
// the running kernel.
func Layers() []Layer {
	var all []Layer
	add := func(name string, ok bool, format string, args ...any) {
		all = append(all, Layer{name, ok, fmt.Sprintf(format, args...)})
	}

	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	add("seccomp", errno == 0, "filters that kill a process: %s", answer(errno))

	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		abi = 0
	}
	add("landlock", abi >= leastLandlock, "ABI %d, at least %d is needed", abi, leastLandlock)

	err := tryIDMap()
	add("id-mapped mounts", err == nil, "on tmpfs: %s", answer(err))

	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
	if err == nil {
		unix.Close(fd)
	}
	add("openat2", err == nil, "%s", answer(err))

	fd, err = unix.PidfdOpen(unix.Getpid(), 0)
	if err == nil {
		unix.Close(fd)
	}
	add("pidfd", err == nil, "%s", answer(err))
	return all
}

func answer(err error) string {
	if errno, ok := err.(unix.Errno); err == nil || ok && errno == 0 {
		return "there"
	}
	return err.Error()
}

// tryIDMap maps ids on a mount of its own.
func tryIDMap() error {
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	ns, err := userns([]idPair{{1, 2}}, []idPair{{1, 2}})
	if err != nil {
		return err
	}
	defer ns.Close()
	_, err = unix.FcntlInt(uintptr(mnt), unix.F_GETFD, 0)
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	return unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH, &attr)
}

func checkFloor() error {
	var missing []string
	for _, l := range Layers() {
		if !l.OK {
			missing = append(missing, l.Name+" ("+l.Why+")")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this host lacks %s", strings.Join(missing, ", "))
	}
	return nil
}
