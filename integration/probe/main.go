// Command probe tries, from inside a jail, what no jailed program may do, and
// says what the kernel answered. The same program is run outside, where the
// same attempts must succeed: a refusal is worth what its twin proves.
//
// It runs with whatever privilege it is given and is the hostile party. Its
// input is its arguments; it reads no configuration and no environment.
//
//	probe -list                  NAME TAB alone|shared TAB what it tries, one line each
//	probe [@aim=value…] NAME…    NAME VERDICT DETAIL, one line each, in that order
//	probe -privileged NAME       tells whether it got privilege by being run
//	probe -authority FILE        holds FILE open, and its content in memory
//
// Verdicts: OPEN, the attempt had effect or reached the kernel's own code;
// CLOSED, it was refused, with the error; INFO, a value and no judgement. A
// program that is killed says nothing more: whoever started it sees that.
//
// Whether a system call reaches the kernel is asked with pointers to nowhere,
// so that nothing happens where it does.
//
// Most probes leave nothing behind and share a process; those that use
// something up, or become another program, stand alone.
//
// Not tried from inside, because they are about the host's side: paths and
// races while a jail is built (jail, jail/rootfs), descriptors and credentials
// of peers (supervisor/peer), output floods and ends of jails (bridge, jail).
//
// It imports nothing of this module: it must not share a mistake with what it
// tests.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// processors is more than the threads that a filter can kill here.
const processors = 12

// probe is one attempt.
type probe struct {
	name  string
	what  string
	alone bool
	do    func(aim) answer
}

type answer struct{ verdict, detail string }

// aim are the places and numbers of the host that probes aim at.
type aim map[string]string

func (a aim) number(name string) int {
	n, err := strconv.Atoi(a[name])
	if err != nil {
		panic("no number: @" + name)
	}
	return n
}

func main() {
	// A filter may kill a thread in the middle of a call. What the runtime had lent
	// it does not come back: there must be enough of it, and no collector may wait.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(processors)
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == "-list":
		for _, p := range table() {
			kind := "shared"
			if p.alone {
				kind = "alone"
			}
			fmt.Printf("%s\t%s\t%s\n", p.name, kind, p.what)
		}
		return
	case len(args) == 2 && args[0] == "-privileged": // what K16 becomes
		say(args[1], has(os.Geteuid() != os.Getuid(), ""))
		return
	case len(args) == 2 && args[0] == "-authority":
		authority(args[1])
		return
	}
	a := aim{}
	all := map[string]probe{}
	for _, p := range table() {
		all[p.name] = p
	}
	for _, arg := range args {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "@") {
			a[name[1:]] = value
			continue
		}
		p, ok := all[arg]
		if !ok {
			say(arg, answer{"UNKNOWN", ""})
			continue
		}
		said := make(chan answer)
		go func() {
			runtime.LockOSThread() // and never unlocked: what a probe does to its thread ends with it
			said <- p.do(a)
		}()
		say(p.name, <-said)
	}
}

// say writes one line at once: the next probe may be the last.
func say(name string, a answer) {
	line := name + " " + a.verdict
	if a.detail != "" {
		line += " " + a.detail
	}
	raw := []byte(line + "\n")
	// The bare call: where no thread can be made the runtime must not want one.
	syscall.RawSyscall(syscall.SYS_WRITE, 1, pointer(raw), uintptr(len(raw)))
}

// table is every probe there is.
func table() []probe {
	var all []probe
	for _, part := range [][]probe{kernelProbes(), callProbes(), setIDProbes(), fileProbes(), sentinelProbes(), networkProbes(), limitProbes(), launchProbes()} {
		all = append(all, part...)
	}
	return all
}

// done judges an attempt that was made for real.
func done(err error) answer {
	e, ok := number(err)
	switch {
	case err == nil || ok && e == 0:
		return answer{"OPEN", ""}
	case ok:
		return answer{"CLOSED", name(e)}
	}
	return answer{"CLOSED", err.Error()}
}

// reached judges a call with pointers to nowhere: what a filter or a missing
// privilege answers is a refusal, everything else was said by the call itself.
func reached(e syscall.Errno) answer {
	switch e {
	case syscall.EPERM, syscall.ENOSYS, syscall.EAFNOSUPPORT:
		return answer{"CLOSED", name(e)}
	case 0:
		return answer{"OPEN", ""}
	}
	return answer{"OPEN", "reached"}
}

func info(format string, v ...any) answer { return answer{"INFO", fmt.Sprintf(format, v...)} }

// has judges a state: OPEN where the program has what it should not have.
func has(it bool, format string, v ...any) answer {
	if it {
		return answer{"OPEN", fmt.Sprintf(format, v...)}
	}
	return answer{"CLOSED", ""}
}

// number finds the system's error number in err.
func number(err error) (syscall.Errno, bool) {
	for {
		switch e := err.(type) {
		case syscall.Errno:
			return e, true
		case *os.PathError:
			err = e.Err
		case *os.LinkError:
			err = e.Err
		case *os.SyscallError:
			err = e.Err
		default:
			return 0, false
		}
	}
}

func name(e syscall.Errno) string {
	for n, s := range map[syscall.Errno]string{
		1: "EPERM", 2: "ENOENT", 3: "ESRCH", 4: "EINTR", 5: "EIO", 6: "ENXIO", 9: "EBADF", 10: "ECHILD", 11: "EAGAIN", 12: "ENOMEM",
		13: "EACCES", 14: "EFAULT", 16: "EBUSY", 17: "EEXIST", 18: "EXDEV", 19: "ENODEV", 20: "ENOTDIR", 21: "EISDIR", 22: "EINVAL",
		24: "EMFILE", 25: "ENOTTY", 27: "EFBIG", 28: "ENOSPC", 30: "EROFS", 38: "ENOSYS", 40: "ELOOP", 75: "EOVERFLOW",
		88: "ENOTSOCK", 93: "EPROTONOSUPPORT", 94: "ESOCKTNOSUPPORT", 95: "EOPNOTSUPP", 97: "EAFNOSUPPORT", 99: "EADDRNOTAVAIL",
		101: "ENETUNREACH", 109: "ETOOMANYREFS", 111: "ECONNREFUSED", 115: "EINPROGRESS",
	} {
		if n == e {
			return s
		}
	}
	return "errno" + strconv.Itoa(int(e))
}
