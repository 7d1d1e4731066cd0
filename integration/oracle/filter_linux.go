package main

import (
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// starting is what libcontainer's own init calls under the filter, beside what
// a static program of Go needs: there is one filter, and it is on before exec.
var starting = []string{
	"execve", "exit_group", "pread64", "read", "write", "close", "openat", "fcntl", "fstat", "newfstatat", "futex", "mmap", "munmap",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "getdents64", "lseek", "readlinkat", "sendto", "recvfrom", "faccessat2", "faccessat", "chdir", "getcwd",
	"epoll_ctl", "epoll_pwait", "epoll_create1", "eventfd2", "nanosleep", "getpid", "gettid", "tgkill", "sched_yield", "getppid", "fstatfs", "statx", "sigaltstack", "close_range",
	"getuid", "geteuid", "getgid", "getegid", "sendmsg", "recvmsg", "mprotect", "madvise", "brk",
}

// modes says where the calls of a profile that carry a file mode have it.
var modes = map[string]uint{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2}

// filter is the profile's allow-list. What is refused to every profile is not
// named by it, so it needs no list of its own here.
func filter(p spec.Profile) *configs.Seccomp {
	noSys := uint(unix.ENOSYS)
	s := &configs.Seccomp{DefaultAction: configs.Errno, DefaultErrnoRet: &noSys, Architectures: []string{"amd64"}}
	allow := func(call string, args ...*configs.Arg) {
		s.Syscalls = append(s.Syscalls, &configs.Syscall{Name: call, Action: configs.Allow, Args: args})
	}
	// masked holds where argument & mask == value.
	masked := func(arg uint, mask, value uint64) *configs.Arg {
		return &configs.Arg{Index: arg, Value: mask, ValueTwo: value, Op: configs.MaskEqualTo}
	}
	calls := slices.Clone(starting)
	for _, g := range p.Seccomp.Groups {
		calls = append(calls, g.Calls...)
	}
	slices.Sort(calls)
	const setIDs, namespaces = unix.S_ISUID | unix.S_ISGID, unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	for _, call := range slices.Compact(calls) {
		mode, modal := modes[call]
		switch {
		case call == "clone" && p.Fork:
			allow(call, masked(0, namespaces, 0))
		case call == "clone":
			allow(call, masked(0, namespaces|unix.CLONE_THREAD, unix.CLONE_THREAD))
		case call == "open" || call == "openat":
			flags := uint(1)
			if call == "openat" {
				flags = 2
			}
			const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
			allow(call, masked(flags, creates, 0))
			allow(call, masked(flags+1, setIDs, 0))
		case call == "mknod" || call == "mknodat":
			for _, kind := range []uint64{0, unix.S_IFREG, unix.S_IFIFO} {
				allow(call, masked(mode, unix.S_IFMT|setIDs, kind))
			}
		case modal:
			allow(call, masked(mode, setIDs, 0))
		default:
			allow(call)
		}
	}
	for _, r := range p.Seccomp.Rules {
		var args []*configs.Arg
		for _, w := range r.When {
			args = append(args, masked(w.Arg, w.EffectiveMask(), w.Value))
		}
		allow(r.Call, args...)
	}
	return s
}
