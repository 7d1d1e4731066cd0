package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of what is tried: more than a test's jail has, little for a machine.
const (
	manyTasks = 200
	manyFiles = 300
	manyFDs   = 200
	muchTmp   = 4 << 20
	bigFile   = 8 << 20
)

// limitProbes use things up.
func limitProbes() []probe {
	return []probe{
		{"X1-threads", "threads until refused", true, func(aim) answer {
			runtime.GOMAXPROCS(1)
			for range manyTasks {
				if e := thread(); e != 0 {
					last("X1-threads", e)
				}
			}
			return answer{"OPEN", ""}
		}},
		{"X1-processes", "processes until refused", true, func(aim) answer {
			runtime.GOMAXPROCS(1)
			var pids []uintptr
			end := func() {
				for _, p := range pids {
					call(unix.SYS_KILL, p, uintptr(unix.SIGKILL))
				}
			}
			defer end()
			for range manyTasks {
				pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
				if e != 0 {
					end()
					last("X1-processes", e)
				}
				if pid == 0 {
					for {
						unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&never)), 128, 0, 0, 0, 0)
					}
				}
				pids = append(pids, pid)
			}
			return answer{"OPEN", ""}
		}},
		{"X3-memory", "more memory than the limit", true, func(a aim) answer {
			for range a.number("megabytes") / 8 {
				at, e := value(unix.SYS_MMAP, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
				if e != 0 {
					return done(e)
				}
				block := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 8<<20)
				for i := 0; i < len(block); i += 4096 {
					block[i] = 1
				}
			}
			return answer{"OPEN", ""}
		}},
		{"X4-tmp-bytes", "fill /tmp", true, func(a aim) answer {
			at := a["tmp"] + "/fill"
			fd, err := unix.Open(at, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return done(err)
			}
			defer unix.Unlink(at)
			block := make([]byte, 1<<16)
			for range muchTmp / len(block) {
				if _, err := unix.Write(fd, block); err != nil {
					return done(err)
				}
			}
			return answer{"OPEN", ""}
		}},
		{"X4-sparse", "a file of a tebibyte", true, func(a aim) answer {
			signal.Ignore(unix.SIGXFSZ)
			return sized(a["dir"]+"/sparse", 1<<40)
		}},
		{"X4-file-size", "a file greater than the limit", true, func(a aim) answer {
			signal.Ignore(unix.SIGXFSZ)
			return sized(a["dir"]+"/big", bigFile)
		}},
		{"X5-tmp-files", "files in /tmp until refused", true, func(a aim) answer {
			at := func(i int) string { return fmt.Sprintf("%s/f%d", a["tmp"], i) }
			for i := range manyFiles {
				fd, err := unix.Open(at(i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				if err != nil {
					return done(err)
				}
				unix.Close(fd)
				defer unix.Unlink(at(i))
			}
			return answer{"OPEN", ""}
		}},
		{"X6-descriptors", "descriptors until refused", true, func(aim) answer {
			for range manyFDs {
				if _, e := value(unix.SYS_DUP, 1); e != 0 {
					return done(e)
				}
			}
			return answer{"OPEN", ""}
		}},
		{"X6-raise", "raise the limit of descriptors", true, func(aim) answer {
			var l unix.Rlimit
			if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l); err != nil {
				return done(err)
			}
			l.Max++
			l.Cur = l.Max
			return done(unix.Prlimit(0, unix.RLIMIT_NOFILE, &l, nil))
		}},
		{"X6-limit-of-another", "the limits of a process of the host", false, func(a aim) answer {
			var l unix.Rlimit
			return done(unix.Prlimit(a.number("pid"), unix.RLIMIT_NOFILE, nil, &l))
		}},
		{"X7-mlock", "lock a megabyte of memory", false, func(aim) answer {
			block := make([]byte, 1<<20)
			e := call(unix.SYS_MLOCK, pointer(block), uintptr(len(block)))
			if e == 0 {
				call(unix.SYS_MUNLOCK, pointer(block), uintptr(len(block)))
			}
			return done(e)
		}},
		{"X7-timers", "pending signals without a bound", true, func(aim) answer {
			for range manyTasks {
				if e := call(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, memory(make([]byte, 8))); e != 0 {
					return done(e)
				}
			}
			return answer{"OPEN", ""}
		}},
		{"X7-nice", "go before others", false, func(aim) answer { return done(call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, ^uintptr(19))) }},
		{"X7-fifo", "real time", false, func(aim) answer { return done(call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, memory([]byte{1, 0, 0, 0}))) }},
		{"X7-deadline", "real time by the new call", false, func(aim) answer { return reached(call(unix.SYS_SCHED_SETATTR, 0, bad, 0)) }},
		{"X7-ioprio", "real time of disks", false, func(aim) answer { return done(call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13)) }},
		{"X7-oom", "never be the victim", false, func(aim) answer {
			fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			_, err = unix.Write(fd, []byte("-1000"))
			return done(err)
		}},
		{"X7-oom-open", "open what says who is the victim", false, func(aim) answer { return done(opens("/proc/self/oom_score_adj", unix.O_WRONLY)) }},
		{"X18-entropy", "clear the pool of randomness", false, func(aim) answer {
			fd, err := unix.Open("/dev/urandom", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			return done(call(unix.SYS_IOCTL, uintptr(fd), 0x5206)) // RNDCLEARPOOL
		}},
		{"X20-stop", "stop itself", true, func(a aim) answer {
			if a["jailed"] != "yes" {
				return info("not tried outside")
			}
			call(unix.SYS_KILL, uintptr(os.Getpid()), uintptr(unix.SIGSTOP))
			return info("goes on")
		}},
	}
}

// last answers and ends at once: where no task can be made the runtime cannot
// make a thread either, and must not come to want one.
func last(probe string, e unix.Errno) {
	say(probe, done(e))
	call(unix.SYS_EXIT_GROUP, 0)
}

// never is what nobody wakes.
var never uint32

func sized(at string, size int64) answer {
	fd, err := unix.Open(at, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return done(err)
	}
	defer unix.Unlink(at)
	defer unix.Close(fd)
	return done(unix.Ftruncate(fd, size))
}

// launchProbes look for what the launcher left behind.
func launchProbes() []probe {
	return []probe{
		{"C058-L2-descriptors", "descriptors beside stdio", false, func(aim) answer {
			for fd := 3; fd < 1024; fd++ {
				if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		{"C113-L12-environment", "a secret of the launcher's environment", false, func(a aim) answer {
			return has(slices.ContainsFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "AWS_") }), "")
		}},
		{"X19-environment", "names of the environment", false, func(aim) answer {
			var names []string
			for _, e := range os.Environ() {
				n, _, _ := strings.Cut(e, "=")
				names = append(names, n)
			}
			slices.Sort(names)
			return info("[%s]", strings.Join(names, " "))
		}},
		{"L12-umask", "a launcher's umask", false, func(aim) answer {
			old, e := value(unix.SYS_UMASK, 0o22)
			if e != 0 {
				return done(e)
			}
			return has(old == 0, "0")
		}},
		{"L12-ignored", "a launcher's ignored signals", false, func(aim) answer {
			return state(func(k, v string) bool { return k == "SigIgn" && strings.Trim(v, "0") != "" }, "some")
		}},
		{"L12-blocked", "blocked signals", false, func(aim) answer {
			return state(func(k, v string) bool { return k == "SigBlk" && strings.Trim(v, "0") != "" }, "some")
		}},
		{"L12-hostname", "the host's name", false, func(a aim) answer {
			var u unix.Utsname
			if err := unix.Uname(&u); err != nil {
				return done(err)
			}
			return has(unix.ByteSliceToString(u.Nodename[:]) == a["hostname"], "")
		}},
		{"L12-session", "the launcher's session", false, func(a aim) answer {
			sid, e := value(unix.SYS_GETSID, 0)
			if e != 0 {
				return done(e)
			}
			// 0 is a leader that this process namespace does not have.
			return has(sid == 0 || sid == uintptr(a.number("session")), "")
		}},
		{"L12-parent", "who started it", false, func(aim) answer { return has(os.Getppid() > 1, "") }},
	}
}
