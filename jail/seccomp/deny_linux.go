package seccomp

import (
	"maps"
	"slices"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

var (
	errnoPerm     = libseccomp.ActErrno.SetReturnCode(int16(unix.EPERM))
	errnoNoFamily = libseccomp.ActErrno.SetReturnCode(int16(unix.EAFNOSUPPORT))
)

// absent are calls whose flags lie in memory, where a filter cannot see them:
// the C library falls back to what it can.
var absent = []string{"clone3", "openat2"}

// refused to every profile, by what each would reach.
var refused = []string{
	// Namespaces and mounts, the old and the new interface (CVE-2021-41133):
	// a namespace of its own gives a process every capability in it.
	"unshare", "setns", "mount", "umount2", "pivot_root", "chroot",
	"fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount", "mount_setattr",
	"statmount", "listmount", "open_tree_attr",
	// Interfaces with a history of holes, or that do work outside the filter.
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "fanotify_mark",
	"modify_ldt", "personality", "kcmp", "memfd_secret", "lookup_dcookie", "remap_file_pages",
	// Code that no mount's noexec and no Landlock rule would see.
	"memfd_create", "execveat",
	// Keys are shared by uid, not by jail.
	"add_key", "request_key", "keyctl",
	// The machine.
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
	"swapon", "swapoff", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
	"sethostname", "setdomainname", "syslog", "quotactl", "quotactl_fd", "acct", "vhangup",
	"iopl", "ioperm",
	// Files by handle leave every mount (the "shocker" attack).
	"open_by_handle_at", "name_to_handle_at",
	// Other processes' memory and descriptors.
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise", "process_mrelease",
	"migrate_pages", "move_pages", "uprobe", "uretprobe",
	// Identity, and the filter itself.
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid",
	"setgroups", "capset", "lsm_set_self_attr", "seccomp",
}

// denyList allows everything but what no profile may do.
func denyList(fork bool) ([]byte, error) {
	b := newBuilder(libseccomp.ActAllow)
	for _, call := range absent {
		b.rule(errnoNoSys, call)
	}
	for _, call := range refused {
		b.rule(errnoPerm, call)
	}

	for bit := uint64(1); bit <= namespaces; bit <<= 1 {
		if namespaces&bit != 0 {
			b.rule(errnoPerm, "clone", spec.Condition{Arg: 0, Mask: bit, Value: bit})
		}
	}
	if !fork {
		b.rule(errnoPerm, "clone", spec.Condition{Arg: 0, Mask: unix.CLONE_THREAD, Value: 0})
		b.rule(errnoPerm, "fork")
		b.rule(errnoPerm, "vfork")
	}

	for _, call := range slices.Sorted(maps.Keys(modes)) { // sorted: one profile, one program
		modes[call].deny(b, call)
	}

	// Typing into a terminal that the jail's parent may read (CVE-2017-5226,
	// CVE-2023-28100).
	for _, request := range []uint64{unix.TIOCSTI, unix.TIOCLINUX} {
		b.rule(errnoPerm, "ioctl", spec.Condition{Arg: 1, Value: request})
	}

	// Socket families: local and internet ones only, and no raw sockets.
	for family := uint64(0); family <= unix.AF_INET6; family++ {
		if family != unix.AF_UNIX && family != unix.AF_INET && family != unix.AF_INET6 {
			b.rule(errnoNoFamily, "socket", spec.Condition{Arg: 0, Value: family})
		}
	}
	b.above(errnoNoFamily, "socket", 0, unix.AF_INET6)
	for _, kind := range []uint64{unix.SOCK_RAW, unix.SOCK_PACKET} {
		b.rule(errnoPerm, "socket", spec.Condition{Arg: 1, Mask: 0xf, Value: kind})
	}
	b.rule(errnoNoFamily, "socketpair", spec.Condition{Arg: 0, Value: 0})
	b.above(errnoNoFamily, "socketpair", 0, unix.AF_UNIX)

	// Limits of another process.
	b.above(errnoPerm, "prlimit64", 0, 0)
	return b.program()
}
