package seccomp

import (
	"fmt"
	"slices"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

var errnoNoSys = libseccomp.ActErrno.SetReturnCode(int16(unix.ENOSYS))

// allowList compiles what p names; everything else is ENOSYS.
func allowList(p spec.Profile) ([]byte, error) {
	calls := spec.Needed(p.Fork)
	var named []string
	for _, g := range p.Seccomp.Groups {
		for _, call := range g.Calls {
			if slices.Contains(named, call) {
				return nil, fmt.Errorf("%s is named twice", call)
			}
			if slices.Contains(spec.Conditioned, call) {
				return nil, fmt.Errorf("%s in group %q: needs a rule with conditions", call, g.Name)
			}
			named = append(named, call)
			if !slices.Contains(calls, call) {
				calls = append(calls, call)
			}
		}
	}
	for _, call := range calls {
		if err := spec.Permissible(call, p.Fork); err != nil {
			return nil, err
		}
	}
	for _, r := range p.Seccomp.Rules {
		if err := spec.Permissible(r.Call, p.Fork); err != nil {
			return nil, err
		}
		if slices.Contains(calls, r.Call) {
			return nil, fmt.Errorf("%s has a rule and is allowed without one", r.Call)
		}
		if _, ok := modes[r.Call]; ok || r.Call == "clone" {
			return nil, fmt.Errorf("%s carries conditions of its own and takes no rule", r.Call)
		}
	}

	b := newBuilder(errnoNoSys)
	for _, call := range calls {
		m, modal := modes[call]
		switch {
		case modal:
			m.allow(b, call)
		case call == "clone":
			b.rule(libseccomp.ActAllow, call, cloneCondition(p.Fork))
		default:
			b.rule(libseccomp.ActAllow, call)
		}
	}
	for _, r := range p.Seccomp.Rules {
		b.rule(libseccomp.ActAllow, r.Call, r.When...)
	}
	// The second filter is loaded under the first, and refuses a third.
	flags := uint64(0)
	if p.Fork {
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC
	}
	b.rule(libseccomp.ActAllow, "seccomp",
		spec.Condition{Arg: 0, Value: unix.SECCOMP_SET_MODE_FILTER},
		spec.Condition{Arg: 1, Value: flags})
	return b.program()
}

// namespaces are the CLONE_NEW* bits that clone can carry.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// cloneCondition lets clone make a thread, or any process where the profile
// forks, and never a namespace.
func cloneCondition(fork bool) spec.Condition {
	if fork {
		return spec.Condition{Arg: 0, Mask: namespaces, Value: 0}
	}
	return spec.Condition{Arg: 0, Mask: namespaces | unix.CLONE_THREAD, Value: unix.CLONE_THREAD}
}

// modal says where a call carries a file mode. The kernel reads a mode as
// umode_t, so the mask looks at those bits alone, whatever lies above them.
type modal struct {
	mode  uint
	flags uint // argument with open flags
	opens bool // the mode counts only with O_CREAT or O_TMPFILE
	node  bool // the mode carries the type of the file too
}

var modes = map[string]modal{
	"chmod":     {mode: 1},
	"fchmod":    {mode: 1},
	"fchmodat":  {mode: 2},
	"fchmodat2": {mode: 2},
	"creat":     {mode: 1},
	"mkdir":     {mode: 1},
	"mkdirat":   {mode: 2},
	"mknod":     {mode: 1, node: true},
	"mknodat":   {mode: 2, node: true},
	"open":      {mode: 2, flags: 1, opens: true},
	"openat":    {mode: 3, flags: 2, opens: true},
}

const (
	setIDs = unix.S_ISUID | unix.S_ISGID
	// tmpfile is O_TMPFILE without the O_DIRECTORY that it includes.
	tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY
	creates = unix.O_CREAT | tmpfile
)

func (m modal) allow(b *builder, call string) {
	switch {
	case m.opens:
		// Without either flag the mode is whatever was in the register.
		b.rule(libseccomp.ActAllow, call, spec.Condition{Arg: m.flags, Mask: creates, Value: 0})
		b.rule(libseccomp.ActAllow, call, spec.Condition{Arg: m.mode, Mask: setIDs, Value: 0})
	case m.node:
		for _, kind := range []uint64{0, unix.S_IFREG, unix.S_IFIFO} {
			b.rule(libseccomp.ActAllow, call, spec.Condition{Arg: m.mode, Mask: unix.S_IFMT | setIDs, Value: kind})
		}
	default:
		b.rule(libseccomp.ActAllow, call, spec.Condition{Arg: m.mode, Mask: setIDs, Value: 0})
	}
}

func (m modal) deny(b *builder, call string) {
	for _, bit := range []uint64{unix.S_ISUID, unix.S_ISGID} {
		set := spec.Condition{Arg: m.mode, Mask: bit, Value: bit}
		if !m.opens {
			b.rule(errnoPerm, call, set)
			continue
		}
		for _, flag := range []uint64{unix.O_CREAT, tmpfile} {
			b.rule(errnoPerm, call, spec.Condition{Arg: m.flags, Mask: flag, Value: flag}, set)
		}
	}
	if m.node {
		for _, kind := range []uint64{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFSOCK} {
			b.rule(errnoPerm, call, spec.Condition{Arg: m.mode, Mask: unix.S_IFMT, Value: kind})
		}
	}
}
