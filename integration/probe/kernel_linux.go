package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelProbes try to have, or to get, more privilege than was left.
func kernelProbes() []probe {
	all := []probe{
		{"K1-no-new-privs", "set-id programs have effect", false, func(aim) answer {
			n, e := value(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS)
			if e != 0 {
				return done(e)
			}
			return has(n == 0, "not set")
		}},
		{"K2-capabilities", "any capability in any set", false, func(aim) answer {
			return state(func(k, v string) bool { return strings.HasPrefix(k, "Cap") && strings.Trim(v, "0") != "" }, "some")
		}},
		{"K2-capbset", "the bounding set, asked of the kernel", false, func(aim) answer {
			n, e := value(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN)
			if e != 0 {
				return done(e)
			}
			return has(n == 1, "has sys_admin")
		}},
		{"K2-capset", "capset: all permitted ones", false, func(aim) answer {
			// What a uid may always do is drop; asking for one more is the attempt.
			h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			d := [2]unix.CapUserData{{Effective: 1 << unix.CAP_CHOWN, Permitted: 1 << unix.CAP_CHOWN}}
			kept = append(kept, &h, &d)
			return done(call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d))))
		}},
		{"K2-ambient", "raise an ambient capability", false, func(aim) answer {
			return reached(call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, unix.CAP_CHOWN))
		}},
		{"K2-securebits", "change the securebits", false, func(aim) answer { return done(call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0)) }},
		{"K3-groups", "supplementary groups", false, func(aim) answer {
			n, e := value(unix.SYS_GETGROUPS, 0, 0)
			if e != 0 {
				return done(e)
			}
			return has(n > 0, "some")
		}},
		{"K4-setresuid-0", "become root", false, func(aim) answer { return done(call(unix.SYS_SETRESUID, 0, 0, 0)) }},
		{"K4-setuid-0", "become root", false, func(aim) answer { return done(call(unix.SYS_SETUID, 0)) }},
		{"K4-setresgid-0", "become root's group", false, func(aim) answer { return done(call(unix.SYS_SETRESGID, 0, 0, 0)) }},
		{"C064-setgid-other", "leave the primary group", false, func(aim) answer { return done(call(unix.SYS_SETGID, 12345)) }},
		{"K4-setgroups", "drop supplementary groups", false, func(aim) answer { return done(call(unix.SYS_SETGROUPS, 0, 0)) }},
		{"K4-setfsuid", "change the file system's uid", false, func(aim) answer {
			call(unix.SYS_SETFSUID, 0)
			n, e := value(unix.SYS_SETFSUID, ^uintptr(0)) // returns the current one
			if e != 0 {
				return done(e)
			}
			return has(n == 0, "")
		}},

		{"C059-K5-int80", "a system call of i386", false, func(aim) answer { return foreign(func() unix.Errno { int80(20); return 0 }) }},
		{"C059-K5-int80-mount", "mount by its number on i386", false, func(aim) answer { return foreign(func() unix.Errno { int80(21); return 0 }) }},
		{"C059-K6-x32-getpid", "a harmless call by its x32 number", false, func(aim) answer { return foreign(func() unix.Errno { return call(0x40000000 | unix.SYS_GETPID) }) }},
		{"C059-K6-x32-mount", "mount by its x32 number", false, func(aim) answer {
			return foreign(func() unix.Errno { return call(0x40000000|unix.SYS_MOUNT, bad, bad, bad, 0, bad) })
		}},
		{"K21-int80-of-a-thread", "one thread's foreign call leaves the others alive", false, func(aim) answer {
			for range 3 {
				go func() { select {} }()
			}
			go int80(20)
			time.Sleep(threadWait)
			return answer{"OPEN", ""}
		}},

		{"K7-unshare-user-real", "a user namespace, in a child", false, func(aim) answer { return done(child(unix.CLONE_NEWUSER)) }},
		{"C060-K7-unshare-user-high", "unshare with high bits set", false, func(aim) answer { return reached(call(unix.SYS_UNSHARE, 1<<32|unix.CLONE_NEWUSER)) }},
		{"C060-K7-clone-user-high", "clone with high bits set", false, func(aim) answer { return done(child(1<<32 | unix.CLONE_NEWUSER)) }},
		{"K8-clone3", "clone3, whose flags no filter sees", false, func(aim) answer { return reached(call(unix.SYS_CLONE3, bad, 88)) }},
		{"K8-thread", "a thread can be made", false, func(aim) answer { return info("%s", word(thread())) }},
		{"K8-fork", "a process can be made", false, func(aim) answer { return done(child(0)) }},
		{"K8-vfork", "vfork by its own number", false, func(aim) answer {
			// In the child of a vfork nothing may return; a plain fork by number
			// answers the same question.
			return done(forked(unix.SYS_FORK))
		}},

		{"K9-mount-tmpfs", "mount a tmpfs on the root", true, func(a aim) answer {
			return done(call(unix.SYS_MOUNT, cstr("none"), cstr(a["tmp"]), cstr("tmpfs"), 0, 0))
		}},
		{"K9-remount-writable", "remount the root for writing", true, func(a aim) answer {
			return done(call(unix.SYS_MOUNT, 0, cstr("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0))
		}},
		{"K9-open-tree", "open_tree of the root", false, func(aim) answer {
			at := fdCWD
			return done(call(unix.SYS_OPEN_TREE, at, cstr("/"), 0))
		}},
		{"K9-chroot", "chroot to the root", true, func(aim) answer { return done(call(unix.SYS_CHROOT, cstr("/"))) }},
		{"K10-undo-binds", "own namespaces, a tmpfs, pivot to it, drop the old root with its read-only binds", false, func(a aim) answer {
			none, slash, dot, tmpfs, at := cstr("none"), cstr("/"), cstr("."), cstr("tmpfs"), cstr(a["tmp"])
			return done(child(unix.CLONE_NEWUSER|unix.CLONE_NEWNS,
				step{unix.SYS_MOUNT, none, slash, 0, unix.MS_REC | unix.MS_PRIVATE},
				step{unix.SYS_MOUNT, none, at, tmpfs},
				step{unix.SYS_CHDIR, at},
				step{unix.SYS_PIVOT_ROOT, dot, dot},
				step{unix.SYS_UMOUNT2, dot, unix.MNT_DETACH}))
		}},
		{"K15-traceme", "make whoever started it its tracer", true, func(aim) answer { return done(call(unix.SYS_PTRACE, unix.PTRACE_TRACEME)) }},
		{"K16-nosuid", "a mount that honours set-id programs", false, func(aim) answer {
			raw, err := readAll("/proc/self/mountinfo")
			if err != nil {
				return done(err)
			}
			for line := range bytes.Lines(raw) {
				if f := bytes.Fields(line); len(f) > 5 && !bytes.Contains(f[5], []byte("nosuid")) {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		{"K16-setuid-program", "run a set-uid program of root's", true, func(a aim) answer {
			return done(unix.Exec(a["suid"], []string{a["suid"], "-privileged", "K16-setuid-program"}, []string{}))
		}},
		{"C062-K20-threads-filtered", "a thread without a filter", false, func(aim) answer {
			for range 4 {
				go func() { time.Sleep(50 * time.Millisecond) }()
			}
			if raw, err := readAll("/proc/self/status"); err != nil {
				return done(err)
			} else if !bytes.Contains(raw, []byte("Seccomp:")) {
				return info("not told")
			}
			tasks, err := filepath.Glob("/proc/self/task/*/status")
			if err != nil || len(tasks) < 2 {
				return answer{"CLOSED", "unseen"}
			}
			for _, t := range tasks {
				if raw, err := readAll(t); err == nil && !bytes.Contains(raw, []byte("Seccomp:\t2\n")) {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		{"K23-cgroup-tree", "the groups' files", false, func(aim) answer { return done(stat("/sys/fs/cgroup")) }},
		{"K23-cgroup-mount", "mount the groups in namespaces of its own", false, func(a aim) answer {
			none, at := cstr("none"), cstr(a["tmp"])
			flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP)
			one, memory, two := cstr("cgroup"), cstr("memory"), cstr("cgroup2")
			if e := child(flags, step{unix.SYS_MOUNT, none, at, one, 0, memory}); e == 0 {
				return answer{"OPEN", ""}
			}
			return done(child(flags, step{unix.SYS_MOUNT, none, at, two}))
		}},
		{"K23-cgroup-procs", "write the root group's list of processes", false, func(aim) answer {
			if err := opens("/sys/fs/cgroup/memory/cgroup.procs", unix.O_WRONLY); err == nil {
				return answer{"OPEN", ""}
			}
			return done(opens("/sys/fs/cgroup/cgroup.procs", unix.O_WRONLY))
		}},
	}
	for _, ns := range []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", 0x80},
	} {
		all = append(all, probe{"K7-unshare-" + ns.name, "a namespace by unshare", true, func(aim) answer { return reached(call(unix.SYS_UNSHARE, ns.flag)) }})
		if ns.name != "time" { // in clone these bits are the exit signal
			all = append(all, probe{"K7-clone-" + ns.name, "a namespace by clone", false, func(aim) answer { return done(child(ns.flag)) }})
		}
	}
	return all
}

// foreign makes a call of another architecture on a thread of its own: a filter
// that kills threads leaves this one waiting.
func foreign(call func() unix.Errno) answer {
	said := make(chan unix.Errno, 1)
	go func() {
		runtime.LockOSThread()
		said <- call()
	}()
	select {
	case e := <-said:
		return reached(e)
	case <-time.After(threadWait):
		return answer{"CLOSED", "its thread was killed"}
	}
}

// threadWait is how long a thread may take for one call.
const threadWait = 500 * time.Millisecond

func word(e unix.Errno) string {
	if e == 0 {
		return "made"
	}
	return name(e)
}

func forked(nr uintptr) unix.Errno {
	pid, e := value(nr)
	if e == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if e == 0 {
		unix.Wait4(int(pid), nil, 0, nil)
	}
	return e
}

func stat(path string) error {
	var st unix.Stat_t
	return unix.Lstat(path, &st)
}

// state looks for a line of the kernel's record of this process.
func state(is func(key, value string) bool, detail string) answer {
	raw, err := readAll("/proc/self/status")
	if err != nil {
		return done(err)
	}
	for line := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(line, ":"); ok && is(k, strings.TrimSpace(v)) {
			return answer{"OPEN", detail}
		}
	}
	return answer{"CLOSED", ""}
}

// readAll reads a whole small file.
func readAll(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if e, ok := number(err); ok && err != nil {
		return nil, e
	}
	return raw, err
}

// callProbes ask whether calls reach the kernel, by pointers to nowhere.
func callProbes() []probe {
	var all []probe
	add := func(what string, calls ...any) {
		for i := 0; i < len(calls); i += 2 {
			label, nr := calls[i].(string), uintptr(calls[i+1].(int))
			all = append(all, probe{label, what, false, func(aim) answer { return reached(call(nr, bad, bad, bad, bad, bad, bad)) }})
		}
	}
	add("mounts and namespaces", "K9-setns", unix.SYS_SETNS, "K9-mount", unix.SYS_MOUNT, "K9-umount2", unix.SYS_UMOUNT2, "K9-pivot-root", unix.SYS_PIVOT_ROOT,
		"K9-fsopen", unix.SYS_FSOPEN, "K9-fsconfig", unix.SYS_FSCONFIG, "K9-fsmount", unix.SYS_FSMOUNT, "K9-fspick", unix.SYS_FSPICK,
		"K9-move-mount", unix.SYS_MOVE_MOUNT, "K9-mount-setattr", unix.SYS_MOUNT_SETATTR, "K9-statmount", unix.SYS_STATMOUNT, "K9-listmount", unix.SYS_LISTMOUNT,
		"K9-open-tree-attr", unix.SYS_OPEN_TREE_ATTR)
	add("asynchronous calls outside the filter", "K11-io-uring-setup", unix.SYS_IO_URING_SETUP, "K11-io-uring-enter", unix.SYS_IO_URING_ENTER, "K11-io-uring-register", unix.SYS_IO_URING_REGISTER,
		"K11-io-setup", unix.SYS_IO_SETUP)
	add("interfaces with a history of holes", "K12-bpf", unix.SYS_BPF, "K12-perf-event-open", unix.SYS_PERF_EVENT_OPEN, "K12-fanotify-init", unix.SYS_FANOTIFY_INIT,
		"K12-fanotify-mark", unix.SYS_FANOTIFY_MARK, "K12-memfd-secret", unix.SYS_MEMFD_SECRET, "K12-lookup-dcookie", unix.SYS_LOOKUP_DCOOKIE,
		"K12-remap-file-pages", unix.SYS_REMAP_FILE_PAGES, "K12-vmsplice", unix.SYS_VMSPLICE, "K12-lsm-set-self-attr", unix.SYS_LSM_SET_SELF_ATTR)
	add("keys, which belong to uids and not to jails", "K13-add-key", unix.SYS_ADD_KEY, "K13-request-key", unix.SYS_REQUEST_KEY, "K13-keyctl", unix.SYS_KEYCTL)
	add("the machine", "K14-kexec-load", unix.SYS_KEXEC_LOAD, "K14-kexec-file-load", unix.SYS_KEXEC_FILE_LOAD, "K14-init-module", unix.SYS_INIT_MODULE,
		"K14-finit-module", unix.SYS_FINIT_MODULE, "K14-delete-module", unix.SYS_DELETE_MODULE, "K14-reboot", unix.SYS_REBOOT, "K14-swapon", unix.SYS_SWAPON,
		"K14-swapoff", unix.SYS_SWAPOFF, "X18-settimeofday", unix.SYS_SETTIMEOFDAY, "X18-clock-settime", unix.SYS_CLOCK_SETTIME, "X18-clock-adjtime", unix.SYS_CLOCK_ADJTIME,
		"X18-adjtimex", unix.SYS_ADJTIMEX, "K14-sethostname", unix.SYS_SETHOSTNAME, "K14-setdomainname", unix.SYS_SETDOMAINNAME, "K14-syslog", unix.SYS_SYSLOG,
		"K14-quotactl", unix.SYS_QUOTACTL, "K14-quotactl-fd", unix.SYS_QUOTACTL_FD, "K14-acct", unix.SYS_ACCT, "K14-iopl", unix.SYS_IOPL, "K14-ioperm", unix.SYS_IOPERM)
	add("files by handle", "K14-open-by-handle-at", unix.SYS_OPEN_BY_HANDLE_AT, "K14-name-to-handle-at", unix.SYS_NAME_TO_HANDLE_AT)
	add("other processes", "K15-process-madvise", unix.SYS_PROCESS_MADVISE, "K15-process-mrelease", unix.SYS_PROCESS_MRELEASE, "K15-migrate-pages", unix.SYS_MIGRATE_PAGES,
		"K15-move-pages", unix.SYS_MOVE_PAGES, "K15-pidfd-getfd", unix.SYS_PIDFD_GETFD)
	add("code that no mount and no rule sees", "K18-memfd-create", unix.SYS_MEMFD_CREATE, "K18-execveat", unix.SYS_EXECVEAT)
	add("structures that no filter sees", "K8-openat2", unix.SYS_OPENAT2)
	add("newer than any list", "K8-setxattrat", unix.SYS_SETXATTRAT)

	return append(all, []probe{
		{"K8-unknown", "a number that means nothing", false, func(aim) answer { return reached(call(999)) }},
		{"K12-userfaultfd", "page faults of user mode in one's own hands", false, func(aim) answer {
			const userModeOnly = 1
			return done(call(unix.SYS_USERFAULTFD, userModeOnly|unix.O_CLOEXEC))
		}},
		{"K12-modify-ldt", "read the local descriptor table", false, func(aim) answer { return done(call(unix.SYS_MODIFY_LDT, 0, memory(make([]byte, 64)), 64)) }},
		{"K12-personality", "make every readable page executable", true, func(aim) answer { return done(call(unix.SYS_PERSONALITY, 0x0400000)) }},
		{"K12-kcmp", "compare with oneself", false, func(aim) answer { p := uintptr(os.Getpid()); return done(call(unix.SYS_KCMP, p, p, 0, 0, 0)) }},
		{"K13-key-of-the-user", "leave a key for the next jail of this uid", false, func(aim) answer {
			keyring := ^uintptr(3) // -4, KEY_SPEC_USER_KEYRING
			key, e := value(unix.SYS_ADD_KEY, cstr("user"), cstr("probe"), memory([]byte("x")), 1, keyring)
			if e == 0 {
				call(unix.SYS_KEYCTL, unix.KEYCTL_UNLINK, key, keyring)
			}
			return done(e)
		}},
		{"K14-vhangup", "hang up the terminal", false, func(aim) answer {
			if os.Geteuid() == 0 {
				return info("not tried as root") // it would succeed
			}
			return done(call(unix.SYS_VHANGUP))
		}},
		{"K14-mknod-device", "a node of a disk", false, func(a aim) answer {
			at := fmt.Sprintf("%s/node%d", a["tmp"], os.Getpid())
			defer unix.Unlink(at)
			return done(call(unix.SYS_MKNOD, cstr(at), unix.S_IFBLK|0o600, 0x801))
		}},
		{"K15-ptrace-seize", "trace a process of the host with the same uid", false, func(a aim) answer {
			return done(call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(a.number("pid")), 0, 0))
		}},
		{"K15-pidfd-open", "a handle of a process of the host", false, func(a aim) answer { return done(call(unix.SYS_PIDFD_OPEN, uintptr(a.number("pid")))) }},
		{"K17-filter", "a filter of its own", false, func(aim) answer { return reached(call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, bad)) }},
		{"K17-filter-by-prctl", "a filter of its own, the old way", false, func(aim) answer {
			return reached(call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 2, bad))
		}},
		{"K22-listener", "a filter that asks another process", false, func(aim) answer {
			return reached(call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, bad))
		}},
		{"K17-landlock", "rules of its own", false, func(aim) answer { return reached(call(unix.SYS_LANDLOCK_CREATE_RULESET, bad, 8, 0)) }},
		{"K18-memfd-run", "write a program to memory and run it", true, func(aim) answer {
			fd, e := value(unix.SYS_MEMFD_CREATE, cstr("probe"), 0)
			if e != 0 {
				return done(e)
			}
			// An empty file is no program: ENOEXEC says that it would have been run.
			e = call(unix.SYS_EXECVEAT, fd, cstr(""), 0, 0, unix.AT_EMPTY_PATH)
			if e == unix.ENOEXEC || e == unix.EACCES {
				return answer{"OPEN", ""}
			}
			return done(e)
		}},
		{"K19-dumpable", "make its memory readable to its uid", false, func(aim) answer { return info("%s", word(call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1))) }},
		{"K19-ptracer", "let anybody trace it", false, func(aim) answer {
			return info("%s", word(call(unix.SYS_PRCTL, unix.PR_SET_PTRACER, ^uintptr(0))))
		}},
		{"K19-arch-prctl", "where its thread's storage is", false, func(aim) answer {
			return info("%s", word(call(unix.SYS_ARCH_PRCTL, 0x1003, memory(make([]byte, 8)))))
		}},
		{"K19-set-mm", "move its own bounds of memory", false, func(aim) answer { return reached(call(unix.SYS_PRCTL, unix.PR_SET_MM, unix.PR_SET_MM_BRK, bad)) }},
	}...)
}
