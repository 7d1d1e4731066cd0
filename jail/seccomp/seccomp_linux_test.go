package seccomp

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/profiles"
)

const (
	x86_64 = 0xc000003e
	i386   = 0x40000003
	allow  = unix.SECCOMP_RET_ALLOW
	kill   = unix.SECCOMP_RET_KILL_PROCESS
	noSys  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	perm   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// judge runs one program on one call, as the kernel does.
// Source: Linux Documentation/networking/filter.rst; only what seccomp permits.
func judge(t *testing.T, program []byte, arch uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := binary.LittleEndian.AppendUint32(nil, nr)
	data = binary.LittleEndian.AppendUint32(data, arch)
	data = binary.LittleEndian.AppendUint64(data, 0)
	for i := range 6 {
		var a uint64
		if i < len(args) {
			a = args[i]
		}
		data = binary.LittleEndian.AppendUint64(data, a)
	}
	var a uint32
	var m [16]uint32
	for pc := 0; ; pc++ {
		i := program[8*pc : 8*pc+8]
		code, jt, jf, k := binary.LittleEndian.Uint16(i), int(i[2]), int(i[3]), binary.LittleEndian.Uint32(i[4:])
		branch := func(yes bool) {
			if yes {
				pc += jt
			} else {
				pc += jf
			}
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[k:])
		case unix.BPF_LD | unix.BPF_MEM:
			a = m[k]
		case unix.BPF_ST:
			m[k] = a
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			branch(a == k)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			branch(a > k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			branch(a >= k)
		case unix.BPF_RET | unix.BPF_K:
			return k
		default:
			t.Fatalf("instruction %d: code %#x", pc, code)
		}
	}
}

func compiled(t *testing.T) map[string][][]byte {
	t.Helper()
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	forking := all["static"]
	forking.Name, forking.Fork = "forking", true
	all["forking"] = forking
	programs := map[string][][]byte{}
	for name, p := range all {
		if programs[name], err = Compile(p); err != nil {
			t.Fatal(err)
		}
		again, err := Compile(p)
		if err != nil || !slices.EqualFunc(again, programs[name], slices.Equal[[]byte]) {
			t.Errorf("%s: compiled twice, two programs (%v)", name, err)
		}
	}
	return programs
}

func number32(t *testing.T, call string) uint32 {
	t.Helper()
	nr, err := number(call)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(nr)
}

func TestSeccomp1_ForeignArchitecturesKillTheProcess(t *testing.T) {
	for name, programs := range compiled(t) {
		for i, p := range programs {
			for nr := range uint32(500) {
				if got := judge(t, p, i386, nr); got != kill {
					t.Fatalf("%s[%d]: i386 call %d: %#x", name, i, nr, got)
				}
				if got := judge(t, p, x86_64, nr|0x40000000); got != kill {
					t.Fatalf("%s[%d]: x32 call %d: %#x", name, i, nr, got)
				}
			}
			if got := judge(t, p, x86_64, unix.SYS_WRITE); got != allow {
				t.Errorf("%s[%d]: write: %#x", name, i, got)
			}
		}
	}
}

// Each filter alone refuses set-id in every call, with junk above the mode.
func TestSeccomp2_NeitherFilterAloneLetsASetIDModeThrough(t *testing.T) {
	for name, programs := range compiled(t) {
		for call, m := range modes {
			for _, bits := range []uint64{0o4000, 0o2000, 0o6000, 0o4755, 0o2775, 0o6777, 0xffff0000_00004755, 1<<32 | 0o2000} {
				for _, flags := range []uint64{unix.O_CREAT, unix.O_CREAT | unix.O_RDWR, unix.O_TMPFILE | unix.O_RDWR, 1<<40 | unix.O_CREAT} {
					args := make([]uint64, 6)
					args[m.mode] = bits
					if m.node {
						args[m.mode] |= unix.S_IFREG
					}
					if m.opens {
						args[m.flags] = flags
					}
					for i, p := range programs {
						if got := judge(t, p, x86_64, number32(t, call), args...); got == allow {
							t.Errorf("%s[%d]: %s with mode %#o, flags %#x is allowed", name, i, call, bits, flags)
						}
					}
				}
			}
			// The twin: without the bits, a filter that knows the call allows it.
			args := make([]uint64, 6)
			args[m.mode] = 0o1777
			if m.opens {
				args[m.flags] = unix.O_CREAT
			}
			if got := judge(t, programs[1], x86_64, number32(t, call), args...); got != allow {
				t.Errorf("%s: %s with mode 01777: %#x", name, call, got)
			}
			if m.opens { // a mode that is not read may be anything
				args[m.mode], args[m.flags] = 0o6777, unix.O_RDONLY|unix.O_DIRECTORY
				if got := judge(t, programs[1], x86_64, number32(t, call), args...); got != allow {
					t.Errorf("%s: %s that creates nothing: %#x", name, call, got)
				}
			}
		}
	}
}

func TestSeccomp3_CallsWithUnseenFlagsDoNotExist(t *testing.T) {
	for name, programs := range compiled(t) {
		for i, p := range programs {
			for _, nr := range []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2} {
				if got := judge(t, p, x86_64, nr); got != noSys {
					t.Errorf("%s[%d]: call %d: %#x", name, i, nr, got)
				}
			}
		}
		for nr := uint32(463); nr < 1024; nr++ {
			if got := judge(t, programs[0], x86_64, nr); got != noSys {
				t.Errorf("%s: call %d, newer than the lists: %#x", name, nr, got)
			}
		}
	}
}

func TestSeccomp4_AnUnknownNameIsAnError(t *testing.T) {
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"no_such_call", "", "socketcall", "READ", "read "} { // socketcall is i386's alone
		p := all["bridge"]
		p.Seccomp.Groups = append(slices.Clone(p.Seccomp.Groups), spec.SyscallGroup{Name: "x", Reason: "x", Calls: []string{call}})
		if _, err := Compile(p); err == nil {
			t.Errorf("%q was compiled", call)
		}
	}
	// What a profile's file may name is what a filter can be made of, and the reverse.
	for _, call := range spec.Calls() {
		if got, err := number(call); err != nil {
			t.Errorf("%s: %v", call, err)
		} else if name, err := got.GetName(); err == nil && name != call && newer[call] == 0 {
			t.Errorf("%s is number %d, which is %s", call, got, name)
		}
	}
	for nr := range libseccomp.ScmpSyscall(512) {
		if name, err := nr.GetName(); err == nil && !spec.KnownCall(name) {
			t.Errorf("%s, number %d, is missing in jail/spec", name, nr)
		}
	}
	for call, nr := range newer {
		if got, err := number(call); err != nil || int(got) != nr {
			t.Errorf("%s: the library says %d, the kernel's header %d (%v)", call, got, nr, err)
		}
	}
}

func TestSeccomp5_IntsAreComparedInTheirLow32Bits(t *testing.T) {
	for name, programs := range compiled(t) {
		for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
			if got := judge(t, programs[1], x86_64, unix.SYS_IOCTL, 0, high|unix.TIOCSTI); got != perm {
				t.Errorf("%s: TIOCSTI with %#x above: %#x", name, high, got)
			}
			if got := judge(t, programs[1], x86_64, unix.SYS_SOCKET, high|unix.AF_NETLINK, unix.SOCK_RAW); got == allow {
				t.Errorf("%s: netlink with %#x above is allowed", name, high)
			}
			if got := judge(t, programs[1], x86_64, unix.SYS_CLONE, high|unix.CLONE_NEWUSER|unix.CLONE_THREAD); got != perm {
				t.Errorf("%s: CLONE_NEWUSER with %#x above: %#x", name, high, got)
			}
			// The twin: FIONREAD (0x541b), which all three may ask.
			if got := judge(t, programs[0], x86_64, unix.SYS_IOCTL, 0, high|0x541b); got != allow {
				t.Errorf("%s: FIONREAD with %#x above: %#x", name, high, got)
			}
		}
	}
}

func TestSeccomp6_NoProfileMayAskForWhatIsRefusedToAll(t *testing.T) {
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range slices.Concat(spec.Refused, spec.Absent, []string{"fork", "vfork", "read"}, spec.Conditioned) {
		p := all["bridge"] // which names read: twice is a mistake too
		p.Seccomp.Groups = append(slices.Clone(p.Seccomp.Groups), spec.SyscallGroup{Name: "x", Reason: "x", Calls: []string{call}})
		if _, err := Compile(p); err == nil {
			t.Errorf("group with %s was compiled", call)
		}
		if p.Validate() == nil {
			t.Errorf("group with %s is valid, and cannot be compiled", call)
		}
	}
	for _, call := range append(slices.Sorted(maps.Keys(modes)), "clone", "read", "ptrace") {
		p := all["bridge"]
		p.Seccomp.Rules = append(slices.Clone(p.Seccomp.Rules), spec.SyscallRule{Call: call, Reason: "x", When: []spec.Condition{{}}})
		if _, err := Compile(p); err == nil {
			t.Errorf("rule for %s was compiled", call)
		}
	}
}

// Every call that is refused to all is refused by each filter alone, but for
// the one use of seccomp that loads the second.
func TestEachFilterAloneRefusesTheDangerousCalls(t *testing.T) {
	for name, programs := range compiled(t) {
		for _, call := range spec.Refused {
			nr := number32(t, call)
			if got := judge(t, programs[1], x86_64, nr); got != perm {
				t.Errorf("%s: deny-list: %s: %#x", name, call, got)
			}
			if got := judge(t, programs[0], x86_64, nr); got != noSys {
				t.Errorf("%s: allow-list: %s: %#x", name, call, got)
			}
		}
		forks := name == "forking" || name == "node-spawn" || name == "browser"
		for call, args := range map[string][]uint64{"fork": nil, "vfork": nil, "clone": {uint64(unix.SIGCHLD)}} {
			if got := judge(t, programs[1], x86_64, number32(t, call), args...); (got == allow) != forks {
				t.Errorf("%s: %s: %#x", name, call, got)
			}
		}
		if got := judge(t, programs[0], x86_64, unix.SYS_CLONE, 0x50f00); got != allow {
			t.Errorf("%s: a thread: %#x", name, got)
		}
		if strings.HasPrefix(name, "bridge") {
			for _, call := range []string{"open", "openat", "socket", "connect", "accept4", "unlink", "getdents64", "kill"} {
				if got := judge(t, programs[0], x86_64, number32(t, call)); got != noSys {
					t.Errorf("bridge: %s: %#x", call, got)
				}
			}
		}
	}
}

// What a profile's check calls a call with a mode is what the filter treats as one.
func TestSeccomp2_TheCallsWithAModeAreThoseOfTheCheck(t *testing.T) {
	if got := slices.Sorted(maps.Keys(modes)); !slices.Equal(got, slices.Sorted(slices.Values(spec.Modal))) {
		t.Errorf("%q, and %q", got, spec.Modal)
	}
}
