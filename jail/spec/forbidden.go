package spec

import (
	"fmt"
	"slices"
)

// Conditioned must not be allowed as a whole: each is a door to many rooms.
var Conditioned = []string{"ioctl", "prctl", "prlimit64", "socket", "socketpair"}

// Absent are calls whose flags lie in memory, where a filter cannot see them:
// the C library falls back to what it can.
var Absent = []string{"clone3", "openat2"}

// Modal are the calls that carry a file mode, which the filter looks at by itself.
var Modal = []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "open", "openat"}

// Refused to every profile, by what each would reach.
var Refused = []string{
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

// Needed is what postern-jail itself calls once the first filter is loaded: to
// load the second, to read its own state back, to report and to exec. A profile that
// forks has a reaper, which starts the program and waits for it.
func Needed(fork bool) []string {
	calls := []string{"execve", "exit_group", "pread64", "write", "close"}
	if fork {
		calls = append(calls, "clone", "pipe2", "read", "fcntl", "dup3", "wait4", "futex")
	}
	return calls
}

// Permissible refuses what no profile may name.
func Permissible(call string, fork bool) error {
	if slices.Contains(Refused, call) || slices.Contains(Absent, call) {
		return fmt.Errorf("%s is refused to every profile", call)
	}
	if !fork && (call == "fork" || call == "vfork") {
		return fmt.Errorf("%s needs fork: true", call)
	}
	return nil
}

// validateCalls finds what no filter could be made of.
func (p Profile) validateCalls(bad func(field, format string, args ...any)) {
	allowed := Needed(p.Fork)
	named := map[string]bool{}
	for i, g := range p.Seccomp.Groups {
		for j, call := range g.Calls {
			field := fmt.Sprintf("seccomp.groups[%d].calls[%d]", i, j)
			switch err := Permissible(call, p.Fork); {
			case !KnownCall(call):
				bad(field, "%q is no system call here", call)
			case err != nil:
				bad(field, "%v", err)
			case named[call]:
				bad(field, "%s is named twice", call)
			case slices.Contains(Conditioned, call):
				bad(field, "%s needs a rule with conditions", call)
			}
			named[call] = true
			allowed = append(allowed, call)
		}
	}
	for i, r := range p.Seccomp.Rules {
		field := fmt.Sprintf("seccomp.rules[%d].call", i)
		switch err := Permissible(r.Call, p.Fork); {
		case r.Call == "":
		case !KnownCall(r.Call):
			bad(field, "%q is no system call here", r.Call)
		case err != nil:
			bad(field, "%v", err)
		case slices.Contains(allowed, r.Call):
			bad(field, "%s has a rule and is allowed without one", r.Call)
		case slices.Contains(Modal, r.Call), r.Call == "clone":
			bad(field, "%s carries conditions of its own and takes no rule", r.Call)
		}
	}
}
