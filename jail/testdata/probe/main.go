// Command probe is run inside a jail, and outside as the permitted twin, by the
// tests of package jail. Each argument is one probe; each prints one line:
// its name, OPEN, CLOSED or DATA, and the kernel's answer.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	for _, arg := range os.Args[1:] {
		name, rest, _ := strings.Cut(arg, "=")
		p, ok := probes[name]
		if !ok {
			fmt.Printf("%s UNKNOWN\n", name)
			continue
		}
		p(name, rest)
	}
}

func result(name string, err error) {
	if err == nil {
		fmt.Printf("%s OPEN\n", name)
		return
	}
	if errno, ok := err.(syscall.Errno); ok {
		if errno == 0 {
			fmt.Printf("%s OPEN\n", name)
			return
		}
		fmt.Printf("%s CLOSED %s\n", name, errnoName(errno))
		return
	}
	fmt.Printf("%s CLOSED %v\n", name, err)
}

func data(name string, v any) { fmt.Printf("%s DATA %v\n", name, v) }

func errnoName(e syscall.Errno) string {
	for name, n := range map[string]syscall.Errno{"EPERM": 1, "ENOENT": 2, "EBADF": 9, "EAGAIN": 11, "EACCES": 13, "EFAULT": 14, "EBUSY": 16,
		"EXDEV": 18, "EINVAL": 22, "EMFILE": 24, "ENOSPC": 28, "EROFS": 30, "ENOSYS": 38, "EAFNOSUPPORT": 97, "ENETUNREACH": 101, "ECONNREFUSED": 111} {
		if n == e {
			return name
		}
	}
	return strconv.Itoa(int(e))
}

func call(nr uintptr, a ...uintptr) error {
	a = append(a, 0, 0, 0, 0, 0, 0)
	_, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

func cstr(s string) uintptr {
	b := append([]byte(s), 0)
	keep = append(keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var keep [][]byte

// bad is a pointer that is valid in no process: a call that reaches the kernel
// says EFAULT, EBADF or EINVAL, one that is filtered says something else.
const bad = ^uintptr(0) - 4095

var atFDCWD = -100

var probes = map[string]func(name, arg string){
	"status": func(name, _ string) {
		raw, err := os.ReadFile("/proc/self/status")
		if err != nil {
			result(name, err)
			return
		}
		for line := range strings.Lines(string(raw)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
			data(k, strings.Join(strings.Fields(v), " "))
		}
	},
	"ids": func(name, _ string) {
		groups, _ := syscall.Getgroups()
		data(name, fmt.Sprintf("%d %d %d %d %v pid %d", os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), groups, os.Getpid()))
	},
	"mounts": func(name, _ string) {
		raw, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			result(name, errno(err))
			return
		}
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			data("mount:"+f[4], strings.ReplaceAll(strings.ReplaceAll(f[5], ",", " "), " relatime", ""))
		}
	},
	"env": func(name, _ string) {
		e := os.Environ()
		slices.Sort(e)
		data(name, strings.Join(e, "|"))
	},
	"cwd": func(name, _ string) { d, _ := os.Getwd(); data(name, d) },
	"hostname": func(name, _ string) {
		var u syscall.Utsname
		syscall.Uname(&u)
		var b []byte
		for _, c := range u.Nodename {
			if c == 0 {
				break
			}
			b = append(b, byte(c))
		}
		data(name, string(b))
	},
	"fds": func(name, _ string) {
		var open []int
		for fd := range 1024 {
			var st syscall.Stat_t
			if syscall.Fstat(fd, &st) == nil {
				open = append(open, fd)
			}
		}
		data(name, open)
	},
	"fd": func(name, arg string) { // read what is open as this number
		n, _ := strconv.Atoi(arg)
		buf := make([]byte, 64)
		k, err := syscall.Read(n, buf)
		if err != nil {
			result(name+"="+arg, err)
			return
		}
		data(name+"="+arg, string(buf[:k]))
	},
	"ls": func(name, arg string) {
		f, err := os.Open(arg)
		if err != nil {
			result(name+"="+arg, errno(err))
			return
		}
		names, err := f.Readdirnames(-1)
		if err != nil {
			result(name+"="+arg, errno(err))
			return
		}
		slices.Sort(names)
		data(name+"="+arg, strings.Join(names, " "))
	},
	"stat": func(name, arg string) { _, err := os.Lstat(arg); result(name+"="+arg, errno(err)) },
	"read": func(name, arg string) {
		raw, err := os.ReadFile(arg)
		if err != nil {
			result(name+"="+arg, errno(err))
			return
		}
		data(name+"="+arg, strings.TrimSpace(string(raw[:min(len(raw), 200)])))
	},
	"write": func(name, arg string) {
		result(name+"="+arg, errno(os.WriteFile(arg, []byte("probe"), 0o644)))
	},
	"mkdir": func(name, arg string) { result(name+"="+arg, errno(os.Mkdir(arg, 0o755))) },
	"rename": func(name, arg string) {
		from, to, _ := strings.Cut(arg, ":")
		result(name+"="+arg, errno(os.Rename(from, to)))
	},
	"symlink": func(name, arg string) { result(name+"="+arg, errno(os.Symlink("/nowhere", arg))) },
	"link": func(name, arg string) {
		from, to, _ := strings.Cut(arg, ":")
		result(name+"="+arg, errno(os.Link(from, to)))
	},
	"remove": func(name, arg string) { result(name+"="+arg, errno(os.Remove(arg))) },
	"exec":   func(name, arg string) { result(name+"="+arg, syscall.Exec(arg, []string{arg}, nil)) },
	"owner": func(name, arg string) {
		var st syscall.Stat_t
		if err := syscall.Stat(arg, &st); err != nil {
			result(name+"="+arg, err)
			return
		}
		data(name+"="+arg, fmt.Sprintf("%d:%d", st.Uid, st.Gid))
	},
	"setid": setID,
	"connect": func(name, arg string) {
		network, addr, _ := strings.Cut(arg, ":")
		family, sa := syscall.AF_UNIX, syscall.Sockaddr(&syscall.SockaddrUnix{Name: addr})
		if network == "tcp" {
			a, err := net.ResolveTCPAddr("tcp4", addr)
			if err != nil {
				result(name, err)
				return
			}
			family, sa = syscall.AF_INET, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
		}
		fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
		if err != nil {
			result(name+"="+arg, err)
			return
		}
		result(name+"="+arg, errnoOrNil(syscall.Connect(fd, sa)))
	},
	"sys": func(name, arg string) { // number:name, called with pointers to nowhere
		nr, label, _ := strings.Cut(arg, ":")
		n, _ := strconv.Atoi(nr)
		result(label, call(uintptr(n), bad, bad, bad, bad, bad, bad))
	},
	"unshare": func(name, arg string) {
		flags, _ := strconv.ParseUint(arg, 0, 64)
		result(name, call(syscall.SYS_UNSHARE, uintptr(flags)))
	},
	"clone-newuser": func(name, _ string) { result(name, fork(0x10000000|uintptr(syscall.SIGCHLD))) },
	"fork":          func(name, _ string) { result(name, fork(uintptr(syscall.SIGCHLD))) },
	"clone3":        func(name, _ string) { result(name, call(435, bad, 88)) },
	"setuid0":       func(name, _ string) { result(name, call(syscall.SYS_SETRESUID, 0, 0, 0)) },
	"setgid":        func(name, arg string) { g, _ := strconv.Atoi(arg); result(name, call(syscall.SYS_SETGID, uintptr(g))) },
	"setgroups":     func(name, _ string) { result(name, call(syscall.SYS_SETGROUPS, 0, 0)) },
	"tiocsti": func(name, arg string) {
		hi, _ := strconv.ParseUint(arg, 0, 64)
		result(name, call(syscall.SYS_IOCTL, 0, 0x5412|uintptr(hi), bad))
	},
	"socket": func(name, arg string) {
		n, _ := strconv.Atoi(arg)
		fd, err := syscall.Socket(n, syscall.SOCK_STREAM, 0)
		if err == nil {
			syscall.Close(fd)
		}
		result(name+"="+arg, errnoOrNil(err))
	},
	"int80": func(name, _ string) { data(name, int80(20)) }, // getpid of i386
	"x32": func(name, _ string) {
		result(name, call(0x40000000|syscall.SYS_GETPID))
	},
	"umask": func(name, _ string) { data(name, fmt.Sprintf("%03o", syscall.Umask(0o22))) },
	"rlimit": func(name, arg string) {
		n, _ := strconv.Atoi(arg)
		var l syscall.Rlimit
		syscall.Getrlimit(n, &l)
		data(name+"="+arg, fmt.Sprintf("%d %d", l.Cur, l.Max))
	},
	"fill": func(name, arg string) { // write until it is full
		f, err := os.Create(filepath.Join(arg, "fill"))
		if err != nil {
			result(name+"="+arg, errno(err))
			return
		}
		buf, total := make([]byte, 1<<16), 0
		for total < 1<<30 {
			n, err := f.Write(buf)
			total += n
			if err != nil {
				data(name+"="+arg, fmt.Sprintf("%d %s", total, errnoName(errno(err).(syscall.Errno))))
				return
			}
		}
		data(name+"="+arg, total)
	},
	"files": func(name, arg string) { // make files until it is full
		for i := range 1 << 20 {
			fd, err := syscall.Open(filepath.Join(arg, fmt.Sprint("f", i)), syscall.O_CREAT|syscall.O_WRONLY, 0o600)
			if err != nil {
				data(name+"="+arg, fmt.Sprintf("%d %s", i, errnoName(err.(syscall.Errno))))
				return
			}
			syscall.Close(fd)
		}
	},
	"threads": func(name, _ string) { // threads until refused: raw, the runtime would abort
		n := 0
		for n < 4096 {
			if err := thread(); err != 0 {
				data(name, fmt.Sprintf("%d %s", n, errnoName(err)))
				return
			}
			n++
		}
		data(name, n)
	},
	"open-many": func(name, _ string) {
		for i := 0; ; i++ {
			if _, err := syscall.Dup(1); err != nil {
				data(name, fmt.Sprintf("%d %s", i, errnoName(err.(syscall.Errno))))
				return
			}
		}
	},
	"bomb": func(name, _ string) {
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = byte(i)
			}
			all = append(all, b)
		}
	},
	"spin": func(name, _ string) { // ignores everything that can be ignored
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		data(name, "ready")
		for {
		}
	},
	"sleep": func(name, _ string) { data(name, "ready"); time.Sleep(time.Hour) },
	"eof": func(name, _ string) { // ends when stdin does, as an MCP server should
		data(name, "ready")
		bufio.NewReader(os.Stdin).ReadString(0)
	},
	"term": func(name, _ string) { // ends on SIGTERM, with its number
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		data(name, "ready")
		<-c
		os.Exit(int(syscall.SIGTERM))
	},
	"exit":  func(_, arg string) { n, _ := strconv.Atoi(arg); os.Exit(n) },
	"abort": func(_, _ string) { syscall.Kill(1, syscall.SIGABRT); call(syscall.SYS_TGKILL, 1, 1, 6) },
	"forks": func(name, arg string) { // orphans that ignore everything
		n, _ := strconv.Atoi(arg)
		started := 0
		for range n {
			p, err := os.StartProcess("/program", []string{"/program", "orphan"}, &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, nil}, Sys: &syscall.SysProcAttr{Setsid: true}})
			if err != nil {
				break
			}
			p.Release()
			started++
		}
		data(name, started)
	},
	"child": func(name, arg string) { // one child that runs another probe
		p, err := os.StartProcess("/program", []string{"/program", arg}, &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, nil}})
		if err == nil {
			p.Release()
		}
		result(name, errno(err))
	},
	"orphan": func(_, _ string) { signal.Ignore(syscall.SIGTERM, syscall.SIGHUP); time.Sleep(time.Hour) },
}

func errno(err error) error {
	if err == nil {
		return nil
	}
	for {
		switch e := err.(type) {
		case syscall.Errno:
			return e
		case *os.PathError:
			err = e.Err
		case *os.LinkError:
			err = e.Err
		case *os.SyscallError:
			err = e.Err
		default:
			return err
		}
	}
}

func errnoOrNil(err error) error { return errno(err) }

// fork makes a child that ends at once.
func fork(flags uintptr) error {
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if pid == 0 && e == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	if e == 0 {
		var ws syscall.WaitStatus
		syscall.Wait4(int(pid), &ws, 0, nil)
	}
	return e
}

// setID tries every call that takes a mode, in directory arg.
func setID(name, arg string) {
	at := func(s string) uintptr { return cstr(filepath.Join(arg, s)) }
	fdcwd := uintptr(atFDCWD)
	plain := filepath.Join(arg, "plain")
	os.WriteFile(plain, nil, 0o755)
	f, err := os.OpenFile(plain, os.O_RDWR, 0)
	if err != nil {
		result(name, err)
		return
	}
	const junk = 0xffff0000 // bits above a mode that the kernel does not read
	for _, bits := range []uintptr{0o4755, 0o2755, 0o6755, junk | 0o4755} {
		try := func(label string, nr uintptr, a ...uintptr) {
			result(fmt.Sprintf("%s-%o", label, bits&0xffff), call(nr, a...))
		}
		n := fmt.Sprintf("%o-%t", bits&0xffff, bits > 0xffff)
		try("chmod", syscall.SYS_CHMOD, cstr(plain), bits)
		try("fchmod", syscall.SYS_FCHMOD, f.Fd(), bits)
		try("fchmodat", syscall.SYS_FCHMODAT, fdcwd, cstr(plain), bits)
		try("fchmodat2", 452, fdcwd, cstr(plain), bits, 0)
		try("open", syscall.SYS_OPEN, at("open"+n), syscall.O_CREAT|syscall.O_WRONLY, bits)
		try("openat", syscall.SYS_OPENAT, fdcwd, at("openat"+n), syscall.O_CREAT|syscall.O_WRONLY, bits)
		try("openat-tmpfile", syscall.SYS_OPENAT, fdcwd, cstr(arg), 0x410000|syscall.O_WRONLY, bits)
		try("creat", syscall.SYS_CREAT, at("creat"+n), bits)
		try("mkdir", syscall.SYS_MKDIR, at("mkdir"+n), bits)
		try("mkdirat", syscall.SYS_MKDIRAT, fdcwd, at("mkdirat"+n), bits)
		try("mknod", syscall.SYS_MKNOD, at("mknod"+n), syscall.S_IFREG|bits, 0)
		try("mknodat", syscall.SYS_MKNODAT, fdcwd, at("mknodat"+n), syscall.S_IFREG|bits, 0)
		how := [3]uint64{syscall.O_CREAT | syscall.O_WRONLY, uint64(bits & 0xffff), 0}
		keepHow = append(keepHow, &how)
		try("openat2", 437, fdcwd, at("openat2"+n), uintptr(unsafe.Pointer(&how)), 24)
	}
	// The permitted twins: the same calls without the bits.
	try := func(label string, nr uintptr, a ...uintptr) { result(label+"-ok", call(nr, a...)) }
	try("chmod", syscall.SYS_CHMOD, cstr(plain), 0o1755)
	try("fchmod", syscall.SYS_FCHMOD, f.Fd(), 0o755)
	try("fchmodat", syscall.SYS_FCHMODAT, fdcwd, cstr(plain), 0o700)
	try("fchmodat2", 452, fdcwd, cstr(plain), 0o755, 0)
	try("openat", syscall.SYS_OPENAT, fdcwd, at("openat-ok"), syscall.O_CREAT|syscall.O_WRONLY, 0o755)
	try("openat-garbage", syscall.SYS_OPENAT, fdcwd, at("openat-ok"), syscall.O_RDONLY, 0o6777)
	try("mkdirat", syscall.SYS_MKDIRAT, fdcwd, at("mkdirat-ok"), 0o755)
}

var keepHow []*[3]uint64
