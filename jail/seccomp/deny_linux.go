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

// denyList allows everything but what no profile may do.
func denyList(fork bool) ([]byte, error) {
	b := newBuilder(libseccomp.ActAllow)
	for _, call := range spec.Absent {
		b.rule(errnoNoSys, call)
	}
	for _, call := range spec.Refused {
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
