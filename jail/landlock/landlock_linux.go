// Package landlock knows the kernel's Landlock interface as far as a jail
// needs it: handle everything one version can restrict, allow listed paths,
// and never settle for less.
//
// It runs in postern-jail after the identity was dropped, on the one thread
// that goes on to exec. Its input is the document's rules.
//
// Invariants:
//   - landlock-1: a kernel below the demanded version is an error, never a
//     weaker ruleset.
//   - landlock-2: every right of that version is handled, so what no rule names
//     is refused; TCP, abstract sockets and signals out of the jail have no rule.
//   - landlock-3: writing is granted with REFER, so that a rename between
//     directories of one workspace works.
//
// It is the second wall around files: the first is that nothing else is
// mounted (jail/rootfs). It does not cover stat, chdir or connect to a socket
// file.
package landlock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Rights on files, by the version that brought them. Source: Linux
// include/uapi/linux/landlock.h.
const (
	read   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	exec   = unix.LANDLOCK_ACCESS_FS_EXECUTE
	device = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	write  = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	all = read | exec | device | write | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// onFile are the rights that a rule for something not a directory may carry.
	onFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_TRUNCATE

	tcp    = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// Least is the version whose rights are all handled here. A greater demand
// needs this package to learn what the newer version restricts.
const Least = 6

// ABI returns the version the kernel offers, 0 for none.
func ABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// Install restricts the calling thread for ever.
//
// Preconditions: the thread is locked and has no_new_privs.
func Install(abi int, rules []spec.PathRule) error {
	if abi != Least {
		return fmt.Errorf("landlock ABI %d is demanded, %d is what this program handles", abi, Least)
	}
	if have := ABI(); have < abi {
		return fmt.Errorf("landlock ABI %d is demanded, the kernel has %d", abi, have)
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all, Handled_access_net: tcp, Scoped: scopes}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, r := range rules {
		if err := allow(int(fd), r); err != nil {
			return fmt.Errorf("landlock rule for %q: %w", r.Path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}

func allow(ruleset int, r spec.PathRule) error {
	fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && r.Optional {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(fd)}
	if r.List {
		rule.Allowed_access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if r.Read {
		rule.Allowed_access |= read
	}
	if r.Exec {
		rule.Allowed_access |= exec
	}
	if r.Write {
		rule.Allowed_access |= write
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rule.Allowed_access &= onFile
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
