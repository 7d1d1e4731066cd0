package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileProbes look for what is the host's among the files.
func fileProbes() []probe {
	var all []probe
	each := func(format, what string, do func(path string) answer, paths ...string) {
		for _, p := range paths {
			all = append(all, probe{fmt.Sprintf(format, p), what, false, func(aim) answer { return do(p) }})
		}
	}
	exists := func(p string) answer { return done(stat(p)) }
	readable := func(p string) answer {
		if _, err := read(p); err != nil {
			return done(err)
		}
		return answer{"OPEN", ""}
	}
	writable := func(p string) answer { return done(opens(p, unix.O_WRONLY)) }
	makes := func(dir string) answer {
		at := dir + "/probe-" + strconv.Itoa(os.Getpid())
		fd, err := unix.Open(at, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return done(err)
		}
		unix.Close(fd)
		unix.Unlink(at)
		return answer{"OPEN", ""}
	}

	each("F1-exists:%s", "what is the host's alone", exists, "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root", "/home", "/var", "/run", "/sys", "/boot", "/srv", "/opt",
		"/usr", "/bin", "/sbin", "/usr/bin/env", "/bin/sh", "/usr/bin/su", "/dev/kvm", "/dev/fuse", "/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/tty", "/dev/ptmx", "/dev/shm", "/dev/mqueue", "/dev/net/tun",
		"/run/docker.sock", "/run/postern/root.sock", "/var/lib/postern", "/var/lib/postern-root")
	each("F1-reads:%s", "what is root's to read", readable, "/etc/shadow", "/proc/kcore", "/dev/kmsg", "/dev/mem")
	each("F2-makes:%s", "a file of its own", makes, "/", "/usr", "/etc", "/dev", "/proc", "/package", "/proc/self", "/usr/lib", "/run", "/dev/shm")
	each("F2-writes:%s", "open for writing", writable, "/program", "/proc/self/mem", "/proc/self/exe", "/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/self/attr/current", "/dev/zero")
	each("C067-writes:%s", "a device that only Landlock keeps from being written", writable, "/dev/random", "/dev/urandom")
	each("F6-reads:%s", "the kernel's own files", readable, "/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/config.gz", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/cmdline", "/proc/modules", "/proc/mounts", "/proc/net/tcp", "/proc/net/unix", "/proc/sys/kernel/osrelease", "/sys/firmware", "/sys/kernel/debug", "/sys/class/net")
	each("F6-writes:%s", "the kernel's switches", writable, "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper", "/proc/self/setgroups")
	each("C053-reads:%s", "the host by a magic link", readable, "/proc/self/root/etc/passwd", "/proc/thread-self/root/etc/passwd", "/proc/self/cwd/../../../../../../../../etc/passwd", "/proc/self/task/1/root/etc/passwd", "/proc/1/root/etc/passwd", "/dev/fd/3", "/proc/self/fd/3")
	each("C065-exists:%s", "sockets of the host", exists, "/run/systemd/private", "/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/postern", "/tmp/.X11-unix")

	return append(all, []probe{
		{"F2-makes-in-tmp", "a file in /tmp", false, func(aim) answer { return yes(makes("/tmp")) }},
		{"F2-makes-in-workspace", "a file in the workspace", false, func(a aim) answer { return yes(makes(a["dir"])) }},
		{"F3-dot-dot", "forty steps up", false, func(aim) answer { return readable(strings.Repeat("../", 40) + "etc/passwd") }},
		{"C057-F3-getcwd", "a working directory outside", false, func(aim) answer {
			buf := make([]byte, unix.PathMax)
			n, e := value(unix.SYS_GETCWD, pointer(buf), uintptr(len(buf)))
			if e != 0 {
				return done(e)
			}
			return has(n == 0 || buf[0] != '/', "")
		}},
		{"F4-environ", "the environment of process 1", false, func(aim) answer {
			if os.Getpid() == 1 {
				return answer{"CLOSED", "itself"}
			}
			return readable("/proc/1/environ")
		}},
		{"F4-shadow", "the root of process 1", false, func(aim) answer { return readable("/proc/1/root/etc/shadow") }},
		{"F4-fd", "the descriptors of process 1", false, func(aim) answer {
			if os.Getpid() == 1 {
				return answer{"CLOSED", "itself"}
			}
			return readable("/proc/1/fd")
		}},
		{"F5-processes", "processes of others in /proc", false, func(aim) answer {
			names, err := os.ReadDir("/proc")
			if err != nil {
				return done(err)
			}
			for _, n := range names {
				if pid, err := strconv.Atoi(n.Name()); err == nil && pid != os.Getpid() {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		{"F5-stat-only", "files of the kernel beside those of processes", false, func(aim) answer { return exists("/proc/version") }},
		{"F8-root", "list the root", false, func(aim) answer { return info("%s", said(readable("/"))) }},
		{"F8-path-only", "open the root as a path", false, func(aim) answer { return info("%s", said(done(opens("/", unix.O_PATH)))) }},
		{"F8-chdir", "enter the root", false, func(aim) answer { return info("%s", said(done(unix.Chdir("/")))) }},
		{"F9-link-own", "a hard link within the workspace", false, func(a aim) answer {
			at := a["dir"] + "/linked"
			defer unix.Unlink(at)
			return info("%s", said(done(unix.Link(a["dir"]+"/own", at)))) // C074: npm needs this
		}},
		{"F9-link-foreign", "a hard link to a file of another owner", false, func(a aim) answer {
			at := a["dir"] + "/linked-foreign"
			defer unix.Unlink(at)
			return done(unix.Link(a["dir"]+"/foreign", at))
		}},
		{"F9-link-across", "a hard link from the workspace to /tmp", false, func(a aim) answer {
			at := a["tmp"] + "/linked"
			defer unix.Unlink(at)
			return done(unix.Link(a["dir"]+"/own", at))
		}},
		{"F9-write-foreign", "write a file of another owner, mode 0666", false, func(a aim) answer { return writable(a["dir"] + "/foreign") }},
		{"F11-hooks", "a hook that git outside would run", false, func(a aim) answer { return makes(a["dir"] + "/.git/hooks") }},
		{"F11-config", "git's configuration", false, func(a aim) answer { return writable(a["dir"] + "/.git/config") }},
		{"F11-rename", "the protected directory out of the way", false, func(a aim) answer {
			err := unix.Rename(a["dir"]+"/.git", a["dir"]+"/moved")
			if err == nil {
				unix.Rename(a["dir"]+"/moved", a["dir"]+"/.git")
			}
			return done(err)
		}},
		{"C070-F11-absent-file", "a configuration that a runtime outside obeys, where there was none", false, func(a aim) answer {
			at := a["dir"] + "/.mcp.json"
			fd, err := unix.Open(at, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
			if err == nil {
				unix.Close(fd)
				unix.Unlink(at)
			}
			return done(err)
		}},
		{"C070-F11-absent-directory", "a directory that a runtime outside obeys, where there was none", false, func(a aim) answer {
			at := a["dir"] + "/.claude"
			defer unix.Rmdir(at)
			if err := unix.Mkdir(at, 0o755); err != nil && err != unix.EEXIST { // where it is held there is one
				return done(err)
			}
			return makes(at)
		}},
		{"C070-F11-absent-renamed", "the same by renaming", false, func(a aim) answer {
			from, at := a["dir"]+"/harmless", a["dir"]+"/.vscode"
			if err := unix.Mkdir(from, 0o755); err != nil {
				return done(err)
			}
			defer unix.Rmdir(from)
			err := unix.Rename(from, at)
			if err == nil {
				unix.Rmdir(at)
			}
			return done(err)
		}},
		{"F11-index", "git's index, which git must write", false, func(a aim) answer { return yes(makes(a["dir"] + "/.git")) }},
		{"F12-core", "a core file may be written", false, func(aim) answer {
			var l unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
				return done(err)
			}
			return has(l.Max > 0, "")
		}},
		{"F12-crash", "die of a fault", false, func(aim) answer { // under the kernel's own action, not the runtime's
			var none [4]uint64
			if e := call(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), pointerTo(&none), 0, 8); e != 0 {
				return done(e)
			}
			fault()
			return answer{"OPEN", ""}
		}},
	}...)
}

// yes turns a permitted attempt into a value.
func yes(a answer) answer { return info("%s", said(a)) }

func said(a answer) string {
	if a.verdict == "OPEN" {
		return "permitted"
	}
	return "refused " + a.detail
}

// sentinelProbes want one file that only the authority may read, by every way
// that leads to another process's files.
func sentinelProbes() []probe {
	proc := func(a aim, rest string) string { return "/proc/" + a["pid"] + "/" + rest }
	secret := func(a aim, raw []byte, err error) answer {
		if err != nil {
			return done(err)
		}
		return has(bytes.Contains(raw, []byte(a["secret"])), "")
	}
	file := func(name, what string, path func(aim) string) probe {
		return probe{"J8-" + name, what, false, func(a aim) answer {
			raw, err := read(path(a))
			return secret(a, raw, err)
		}}
	}
	there := func(name, what, rest string) probe {
		return probe{"F7-" + name, what, false, func(a aim) answer { return done(opens(proc(a, rest), unix.O_RDONLY)) }}
	}
	return []probe{
		file("direct", "its path", func(a aim) string { return a["sentinel"] }),
		file("root", "the root of the process that may", func(a aim) string { return proc(a, "root"+a["sentinel"]) }),
		file("cwd", "its working directory", func(a aim) string { return proc(a, "cwd/sentinel") }),
		file("fd", "its descriptor", func(a aim) string { return proc(a, "fd/"+a["fd"]) }),
		file("symlink", "a symbolic link in the workspace", func(a aim) string { return a["dir"] + "/sentinel-symlink" }),
		file("magic-symlink", "a link in the workspace to its root", func(a aim) string { return a["dir"] + "/sentinel-root" + a["sentinel"] }),
		file("hardlink", "a hard link in the workspace", func(a aim) string { return a["dir"] + "/sentinel-hardlink" }),
		{"J8-mem", "its memory", false, func(a aim) answer {
			fd, err := unix.Open(proc(a, "mem"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			at, _ := strconv.ParseInt(a["address"], 16, 64)
			buf := make([]byte, len(a["secret"]))
			_, err = unix.Pread(fd, buf, at)
			return secret(a, buf, err)
		}},
		{"J8-readv", "its memory, by process_vm_readv", false, func(a aim) answer {
			at, _ := strconv.ParseUint(a["address"], 16, 64)
			buf := make([]byte, len(a["secret"]))
			local, remote := [2]uintptr{pointer(buf), uintptr(len(buf))}, [2]uintptr{uintptr(at), uintptr(len(buf))}
			_, e := value(unix.SYS_PROCESS_VM_READV, uintptr(a.number("pid")), pointerTo(&local), 1, pointerTo(&remote), 1)
			if e != 0 {
				return done(e)
			}
			return secret(a, buf, nil)
		}},
		{"J8-writev", "its memory, for writing", false, func(a aim) answer {
			at, _ := strconv.ParseUint(a["address"], 16, 64)
			buf := []byte(a["secret"]) // what lies there already
			local, remote := [2]uintptr{pointer(buf), uintptr(len(buf))}, [2]uintptr{uintptr(at), uintptr(len(buf))}
			return done(call(unix.SYS_PROCESS_VM_WRITEV, uintptr(a.number("pid")), pointerTo(&local), 1, pointerTo(&remote), 1))
		}},
		{"J8-getfd", "its descriptor, by pidfd", false, func(a aim) answer {
			pidfd, e := value(unix.SYS_PIDFD_OPEN, uintptr(a.number("pid")))
			if e != 0 {
				return done(e)
			}
			defer unix.Close(int(pidfd))
			fd, e := value(unix.SYS_PIDFD_GETFD, pidfd, uintptr(a.number("fd")))
			if e != 0 {
				return done(e)
			}
			defer unix.Close(int(fd))
			buf := make([]byte, 256)
			n, err := unix.Pread(int(fd), buf, 0)
			return secret(a, buf[:max(n, 0)], err)
		}},
		{"J8-bind", "a bind of its directory", true, func(a aim) answer {
			dir := a["sentinel"][:strings.LastIndexByte(a["sentinel"], '/')]
			if e := call(unix.SYS_MOUNT, cstr(dir), cstr(a["tmp"]), 0, unix.MS_BIND, 0); e != 0 {
				return done(e)
			}
			raw, err := read(a["tmp"] + "/sentinel")
			return secret(a, raw, err)
		}},
		{"J8-handle", "its handle", false, func(a aim) answer {
			h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a["sentinel"], 0)
			if err != nil {
				return done(err)
			}
			dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(dir)
			fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY|unix.O_CLOEXEC)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			raw := make([]byte, 256)
			n, err := unix.Read(fd, raw)
			return secret(a, raw[:max(n, 0)], err)
		}},
		{"J8-C058-passed", "a descriptor that its parent had open", false, func(a aim) answer {
			buf := make([]byte, 256)
			for fd := 3; fd < 1024; fd++ {
				n, err := unix.Pread(fd, buf, 0)
				if err == nil && bytes.Contains(buf[:n], []byte(a["secret"])) {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		there("environ", "a process of the host with the same uid", "environ"),
		there("maps", "its mappings", "maps"),
		there("root", "its root", "root/etc"),
		there("mem", "its memory", "mem"),
		there("stack", "its numbers", "stat"),
	}
}
