package stage

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/jail/landlock"
	"postern/jail/rootfs"
	"postern/jail/spec"
)

// Steps returns the table, in order.
func Steps() []Step {
	return []Step{
		{"hide", "no other process may attach while this one is privileged (CVE-2016-9962)", (*build).hide},
		{"records", "the kernel's record of this thread is out of sight after the pivot, and proof needs it", (*build).records},
		{"session", "a session of its own: no controlling terminal to type into (CVE-2017-5226)", (*build).session},
		{"signals", "what the launcher ignores, as under nohup, the program would ignore too: exec keeps that (execve(2))", (*build).signals},
		{"inherited", "a personality and merging of memory are taken back; denied executable memory (PR_SET_MDWE) cannot be, and ends the launch", (*build).inherited},
		{"cgroup-namespace", "unshared only now, so that the jail's own group is its root (cgroup_namespaces(7))", (*build).cgroupNamespace},
		{"hostname", "the host's name is not the program's business", (*build).hostname},
		{"root", "a private tmpfs: mount points exist nowhere that anybody else can reach (CVE-2021-30465)", (*build).newRoot},
		{"binds", "read-only pieces of the host, opened beneath its root and mounted by descriptor (CVE-2024-42472)", (*build).binds},
		{"package", "the ingested copy of the server, read-only", (*build).pkg},
		{"program", "Postern's own static program, read-only", (*build).program},
		{"workspace", "the project's directory, ids already mapped on the detached mount (mount_setattr(2))", (*build).workspace},
		{"protect", "names that something outside executes are read-only, and cannot be renamed away", (*build).protect},
		{"devices", "five nodes, each compared with its number (CVE-2025-31133)", (*build).devices},
		{"tmp", "a bounded /tmp, and /dev/shm where the profile has one, that execute nothing", (*build).tmp},
		{"proc", "own processes only, none of the kernel's files (proc(5), hidepid and subset)", (*build).proc},
		{"links", "symbolic links on the private root, where the dynamic linker expects them", (*build).links},
		{"loopback", "a private lo, where the profile asks for one", (*build).loopback},
		{"pivot", "leave the host's mounts behind and make the root read-only (pivot_root(2))", (*build).pivot},
		{"secret", "read from a descriptor that ends here, so that no document, report or argument ever holds it", (*build).readSecret},
		{"descriptors", "only stdio and the listed ones survive exec (CVE-2024-21626)", (*build).descriptors},
		{"limits", "what a control group does not bound (setrlimit(2)); no RLIMIT_AS, which breaks runtimes", (*build).limits},
		{"umask", "022: files in the workspace are the owner's, made as the owner's own tools would make them", (*build).umask},
		{"keyring", "a fresh session keyring: the old one is root's (keyctl(2))", (*build).keyring},
		{"oom", "when memory runs out the jail goes before the host", (*build).oomScore},
		{"bounding", "no exec can bring a capability back (capabilities(7))", (*build).bounding},
		{"securebits", "root is an ordinary number from here on, locked", (*build).securebits},
		{"groups", "no supplementary groups; they are set before the ids, while it is allowed", (*build).groups},
		{"ids", "the leased gid, then the leased uid: real, effective and saved", (*build).ids},
		{"capabilities", "every set emptied; changing ids did not, with the securebits set", (*build).capabilities},
		{"no-new-privileges", "set-id and file capabilities have no effect (PR_SET_NO_NEW_PRIVS)", (*build).noNewPrivileges},
		{"parent", "die with the launcher; set after the ids, which clear it, and checked against its being dead already", (*build).parent},
		{"directory", "the working directory is opened in the new root, as the new user (CVE-2024-21626)", (*build).directory},
		{"regain", "the kernel itself, and not yet a filter, refuses to give privilege back", (*build).regain},
		{"landlock", "the second wall around files, ports and signals; tried at once", (*build).landlock},
		{"seccomp", "last, so that nothing before it needs to be allowed to the program", (*build).seccomp},
		{"proof", "the kernel's record says what was asked for, or the program does not start", (*build).proof},
	}
}

// every makes a system call that concerns one thread: on this thread alone
// where it is the only one that lives on, and on all of them where the Go
// runtime stays as the reaper.
func (b *build) every(trap, a1, a2, a3 uintptr) error {
	call := unix.RawSyscall
	if b.doc.Fork {
		call = allThreads
	}
	if _, _, errno := call(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}

func (b *build) hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// What the launcher leaked into this process and did not name ends here: a reaper
	// would hold it, and what is kept high would have to go above it. What it named
	// ends at exec, whatever the later steps do.
	named := max(spec.FailureFD, b.doc.WorkspaceFD, b.doc.PackageFD, b.doc.ProgramFD, b.doc.SecretFD)
	for _, fd := range b.doc.ExtraFDs {
		named = max(named, fd)
	}
	if named >= highFD {
		return fmt.Errorf("descriptor %d: at most %d", named, highFD-1)
	}
	if err := unix.CloseRange(uint(named+1), ^uint(0)>>1, 0); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	var err error
	if b.document, err = high(spec.DocumentFD); err != nil {
		return err
	}
	b.failure, err = high(spec.FailureFD)
	return err
}

// high copies fd out of the range that the program will use.
func high(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highFD) }

func (b *build) records() error {
	// The host's /proc must be a proc: a tmpfs in its place would be believed
	// and written to (CVE-2025-52881).
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc: %w", err)
	}
	defer unix.Close(proc)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(proc, &fs); err != nil {
		return err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("/proc is not a proc file system but %#x", fs.Type)
	}
	for _, f := range []struct {
		name  string
		flags uint64
		to    *int
	}{
		{"thread-self/status", unix.O_RDONLY, &b.status},
		{"self/oom_score_adj", unix.O_RDWR, &b.oom},
	} {
		fd, err := rootfs.Openat2(proc, f.name, &unix.OpenHow{
			Flags:   f.flags | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return fmt.Errorf("open %s: %w", f.name, err)
		}
		*f.to, err = high(fd)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *build) session() error {
	_, err := unix.Setsid()
	return err
}

// signals gives every ignored signal its default action.
func (b *build) signals() error {
	// What rt_sigaction(2) takes: handler, flags, restorer, mask.
	type action [4]uintptr
	const ignored, lastSignal = 1, 64
	for n := uintptr(1); n <= lastSignal; n++ {
		var now, fresh action
		size := unsafe.Sizeof(now[3])
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, 0, uintptr(unsafe.Pointer(&now)), size, 0, 0); errno != 0 {
			return fmt.Errorf("signal %d: %w", n, errno)
		}
		if now[0] != ignored {
			continue
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&fresh)), 0, size, 0, 0); errno != 0 {
			return fmt.Errorf("default of signal %d: %w", n, errno)
		}
	}
	return nil
}

// Personalities. Source: linux/personality.h.
const (
	plainLinux     = 0          // PER_LINUX, without a flag
	askPersonality = 0xffffffff // changes nothing
)

// inherited takes back what fork and exec pass on beside descriptors and signals, so that
// a jail is the same whoever started posternd: a personality (addresses that are not
// random, every readable page executable) and memory whose pages are merged with those of
// others, which tells one process what another's hold. What denies memory that is written
// and then executed has no way back, and under it every runtime that compiles as it runs
// would end without a word of why: it ends here, by name.
func (b *build) inherited() error {
	denied, err := unix.PrctlRetInt(unix.PR_GET_MDWE, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("whether executable memory is denied: %w", err)
	}
	if denied != 0 {
		return fmt.Errorf("no memory may become executable (PR_SET_MDWE is %#x), as under MemoryDenyWriteExecute= of a unit", denied)
	}
	if err := b.every(unix.SYS_PERSONALITY, plainLinux, 0, 0); err != nil {
		return fmt.Errorf("personality: %w", err)
	}
	if now, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0); now != plainLinux {
		return fmt.Errorf("personality stays %#x", now)
	}
	// A kernel that merges no pages (without CONFIG_KSM) knows neither question.
	merges, err := unix.PrctlRetInt(unix.PR_GET_MEMORY_MERGE, 0, 0, 0, 0)
	if err == unix.EINVAL {
		return nil
	}
	if err == nil && merges != 0 {
		if err = unix.Prctl(unix.PR_SET_MEMORY_MERGE, 0, 0, 0, 0); err == nil {
			merges, err = unix.PrctlRetInt(unix.PR_GET_MEMORY_MERGE, 0, 0, 0, 0)
		}
	}
	if err == nil && merges != 0 {
		err = fmt.Errorf("stays %d", merges)
	}
	if err != nil {
		return fmt.Errorf("merging of memory: %w", err)
	}
	return nil
}

func (b *build) cgroupNamespace() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }

func (b *build) hostname() error { return unix.Sethostname([]byte("jail")) }

func (b *build) newRoot() (err error) {
	b.root, err = rootfs.New()
	return err
}

func (b *build) binds() error {
	for _, bind := range b.doc.Binds {
		if _, err := b.root.Bind(bind); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) attach(fd int, at string, dir bool) error {
	if fd == 0 {
		return nil
	}
	defer unix.Close(fd)
	return b.root.Attach(fd, at, dir)
}

func (b *build) pkg() error       { return b.attach(b.doc.PackageFD, spec.PackageDir, true) }
func (b *build) program() error   { return b.attach(b.doc.ProgramFD, spec.ProgramFile, false) }
func (b *build) workspace() error { return b.attach(b.doc.WorkspaceFD, spec.WorkspaceDir, true) }

func (b *build) protect() error {
	if b.doc.WorkspaceFD == 0 || len(b.doc.Protect) == 0 {
		return nil
	}
	return b.root.Protect(b.doc.Protect)
}

func (b *build) devices() error {
	if !b.doc.Devices {
		return nil
	}
	return b.root.Devices()
}

// shmInodes is how many named pieces of shared memory a jail may have.
const shmInodes = 1024

func (b *build) tmp() error {
	l := b.doc.Limits
	if l.TmpBytes > 0 {
		if err := b.root.Tmp(spec.TmpDir, l.TmpBytes, l.TmpInodes, b.doc.UID, b.doc.GID); err != nil {
			return err
		}
	}
	if l.ShmBytes > 0 {
		return b.root.Tmp(spec.ShmDir, l.ShmBytes, shmInodes, b.doc.UID, b.doc.GID)
	}
	return nil
}

func (b *build) proc() error {
	if !b.doc.Proc {
		return nil
	}
	return b.root.Proc()
}

func (b *build) links() error {
	for _, l := range b.doc.Links {
		if err := b.root.Link(l); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) loopback() error {
	if !b.doc.Loopback {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func (b *build) pivot() error { return b.root.Pivot() }

// readSecret makes the variable that no document holds. Its errors never say what it is.
func (b *build) readSecret() error {
	if b.doc.SecretFD == 0 {
		return nil
	}
	defer unix.Close(b.doc.SecretFD)
	buf := make([]byte, spec.MaxSecret+1)
	n := 0
	for n < len(buf) {
		got, err := unix.Pread(b.doc.SecretFD, buf[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if got == 0 {
			break
		}
		n += got
	}
	if n == 0 || n > spec.MaxSecret || bytes.IndexByte(buf[:n], 0) >= 0 {
		return fmt.Errorf("it has %d bytes or more; want 1 to %d without a NUL", n, spec.MaxSecret)
	}
	b.secret = []string{b.doc.SecretEnv + "=" + string(buf[:n])}
	return nil
}

func (b *build) descriptors() error {
	// Sources lie above their goals and in the same order, so a goal is never
	// a source that is still to come.
	for i, fd := range b.doc.ExtraFDs {
		if fd == 0 {
			if err := unix.CloseRange(uint(3+i), uint(3+i), unix.CLOSE_RANGE_CLOEXEC); err != nil {
				return fmt.Errorf("close_range %d: %w", 3+i, err)
			}
			continue
		}
		if fd <= 3+i || fd >= highFD {
			return fmt.Errorf("descriptor %d cannot become %d", fd, 3+i)
		}
		if err := unix.Dup3(fd, 3+i, 0); err != nil {
			return fmt.Errorf("dup3 %d: %w", fd, err)
		}
	}
	return unix.CloseRange(uint(3+len(b.doc.ExtraFDs)), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}

// noCore is the limit of a core's size, in bytes.
const noCore = 1

func (b *build) limits() error {
	for _, l := range []struct {
		what  int
		value uint64
	}{
		// No file is that small, and 1 is what keeps the kernel from handing a core to a
		// program too, which 0 does not (core(5); fs/coredump.c).
		{unix.RLIMIT_CORE, noCore},
		{unix.RLIMIT_NOFILE, uint64(b.doc.Limits.Nofile)},
		{unix.RLIMIT_FSIZE, uint64(b.doc.Limits.FsizeBytes)},
		{unix.RLIMIT_MEMLOCK, 64 << 10},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_SIGPENDING, 64},
		{unix.RLIMIT_NICE, 0},
		{unix.RLIMIT_RTPRIO, 0},
	} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("resource %d to %d: %w", l.what, l.value, err)
		}
	}
	return nil
}

func (b *build) umask() error {
	unix.Umask(0o022)
	return nil
}

func (b *build) keyring() error {
	// No name: an anonymous keyring, which nobody else can join.
	if _, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func (b *build) oomScore() error {
	const more, most = 500, 1000
	buf := make([]byte, 16)
	n, err := unix.Pread(b.oom, buf, 0)
	if err != nil {
		return err
	}
	score := 0
	if _, err := fmt.Sscan(string(buf[:n]), &score); err != nil {
		return err
	}
	_, err = unix.Pwrite(b.oom, fmt.Appendf(nil, "%d", min(score+more, most)), 0)
	unix.Close(b.oom)
	return err
}

func (b *build) bounding() error {
	for c := uintptr(0); ; c++ {
		err := b.every(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if err == unix.EINVAL && c > unix.CAP_AUDIT_READ {
			return nil // one past the last capability of this kernel
		}
		if err != nil {
			return fmt.Errorf("drop %d: %w", c, err)
		}
	}
}

// secureBits: no root magic at exec, none at a change of ids, no keeping of
// capabilities, no ambient ones; each locked. Source: linux/securebits.h.
const secureBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

func (b *build) securebits() error {
	if err := b.every(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits, 0); err != nil {
		return err
	}
	got, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err == nil && got != secureBits {
		err = fmt.Errorf("are %#x", got)
	}
	return err
}

func (b *build) groups() error { return b.every(unix.SYS_SETGROUPS, 0, 0, 0) }

func (b *build) ids() error {
	if b.doc.UID == 0 || b.doc.GID == 0 {
		return fmt.Errorf("uid %d, gid %d: not root", b.doc.UID, b.doc.GID)
	}
	gid, uid := uintptr(b.doc.GID), uintptr(b.doc.UID)
	if err := b.every(unix.SYS_SETRESGID, gid, gid, gid); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := b.every(unix.SYS_SETRESUID, uid, uid, uid); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return nil
}

func (b *build) noNewPrivileges() error {
	return b.every(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

func (b *build) parent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	// getppid is 0 in a process namespace, dead parent or not: the pipe tells.
	poll := []unix.PollFd{{Fd: int32(b.document)}}
	for {
		_, err := unix.Poll(poll, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if poll[0].Revents != 0 {
			return fmt.Errorf("the launcher is dead")
		}
		return nil
	}
}

func (b *build) directory() error {
	fd, err := rootfs.Openat2(unix.AT_FDCWD, b.doc.Dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("open %q: %w", b.doc.Dir, err)
	}
	defer unix.Close(fd)
	if err := unix.Fchdir(fd); err != nil {
		return fmt.Errorf("enter %q: %w", b.doc.Dir, err)
	}
	buf := make([]byte, unix.PathMax)
	if n, err := unix.Getcwd(buf); err != nil || n == 0 || buf[0] != '/' {
		return fmt.Errorf("%q is outside the jail (%v)", b.doc.Dir, err)
	}
	return nil
}

func (b *build) landlock() error {
	if err := landlock.Install(b.doc.ABI, b.doc.Rules); err != nil {
		return err
	}
	// The rules name no port, so binding one is what only Landlock refuses here: in a
	// network namespace of its own the address is free or absent, and no privilege is
	// asked for above port 1023.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: unboundPort, Addr: [4]byte{127, 0, 0, 1}}); err != unix.EACCES {
		return fmt.Errorf("a port can still be bound: %v", err)
	}
	return nil
}

// unboundPort is the port that landlock's proof tries to bind.
const unboundPort = 40000

// proof reads the kernel's record of this thread, through the descriptor that
// was opened before the pivot.
func (b *build) proof() error {
	buf := make([]byte, 4096)
	n, err := unix.Pread(b.status, buf, 0)
	if err != nil {
		return err
	}
	return prove(string(buf[:n]), b.doc)
}

// prove compares record, in the form of /proc/<pid>/status, with the document.
func prove(record string, doc spec.Document) error {
	const none = "0000000000000000"
	four := func(id uint32) string { return fmt.Sprintf("%d\t%d\t%d\t%d", id, id, id, id) }
	want := map[string]string{
		"Uid": four(doc.UID), "Gid": four(doc.GID), "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": fmt.Sprint(len(doc.Filters)),
	}
	for line := range strings.Lines(record) {
		name, value, ok := strings.Cut(line, ":")
		expected, asked := want[name]
		if !ok || !asked {
			continue
		}
		if value = strings.TrimSpace(value); value != expected {
			return fmt.Errorf("%s is %q, not %q", name, value, expected)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return fmt.Errorf("the record does not tell %d of the values", len(want))
	}
	return nil
}
