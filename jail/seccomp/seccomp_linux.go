// Package seccomp knows the system call filters of a jail: it turns a profile
// into the two programs that postern-jail loads.
//
// It runs in the launcher, once per profile, and touches no process. The
// profile is root's and is checked here against what no profile may have.
//
// The first program is the profile's allow-list: everything it does not name
// is ENOSYS, which is what a kernel without the call would say, so that
// programs fall back. The second, stacked on it, allows everything but what no
// profile may ever do and answers that with EPERM. The kernel takes the
// stricter answer of the two, so a mistake in one is caught by the other.
//
// Invariants:
//   - seccomp-1: a call from another architecture or of the x32 table ends the
//     process, not the thread.
//   - seccomp-2: no call creates or changes a file to set-user-id or
//     set-group-id, whatever the profile names.
//   - seccomp-3: clone3 and openat2 do not exist, because a filter cannot see
//     the structures that hold their flags.
//   - seccomp-4: a name that means no call on this machine is an error, never a
//     rule left out.
//   - seccomp-5: ints are compared as the kernel reads them, in their low 32
//     bits (CVE-2019-10063).
//   - seccomp-6: a profile that asks for what no profile may have does not compile.
//
// It loads nothing: jail/stage does, and it is free of cgo.
package seccomp

import (
	"fmt"
	"io"
	"os"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Compile returns the programs of p in the order in which they are loaded.
func Compile(p spec.Profile) ([][]byte, error) {
	allow, err := allowList(p)
	if err != nil {
		return nil, fmt.Errorf("allow-list of profile %q: %w", p.Name, err)
	}
	deny, err := denyList(p.Fork)
	if err != nil {
		return nil, fmt.Errorf("deny-list: %w", err)
	}
	return [][]byte{allow, deny}, nil
}

// builder collects rules; its first error stays.
type builder struct {
	filter *libseccomp.ScmpFilter
	err    error
}

func newBuilder(otherwise libseccomp.ScmpAction) *builder {
	b := &builder{}
	if b.filter, b.err = libseccomp.NewFilter(otherwise); b.err != nil {
		return b
	}
	// The library's own default for a foreign architecture kills one thread
	// and lets the others go on.
	if b.err = b.filter.SetBadArchAction(libseccomp.ActKillProcess); b.err != nil {
		return b
	}
	b.err = b.filter.SetOptimize(2) // a tree instead of a line of comparisons
	return b
}

func (b *builder) rule(action libseccomp.ScmpAction, call string, when ...spec.Condition) {
	if b.err != nil {
		return
	}
	nr, err := number(call)
	if err != nil {
		b.err = err
		return
	}
	if len(when) == 0 {
		b.err = b.filter.AddRuleExact(nr, action)
	} else {
		var conds []libseccomp.ScmpCondition
		for _, w := range when {
			c, err := libseccomp.MakeCondition(w.Arg, libseccomp.CompareMaskedEqual, w.EffectiveMask(), w.Value)
			if err != nil {
				b.err = fmt.Errorf("condition of %s: %w", call, err)
				return
			}
			conds = append(conds, c)
		}
		b.err = b.filter.AddRuleConditionalExact(nr, action, conds)
	}
	if b.err != nil {
		b.err = fmt.Errorf("rule for %s: %w", call, b.err)
	}
}

// above adds a rule for an argument greater than value in any of its bits.
func (b *builder) above(action libseccomp.ScmpAction, call string, arg uint, value uint64) {
	if b.err != nil {
		return
	}
	nr, err := number(call)
	if err == nil {
		var c libseccomp.ScmpCondition
		if c, err = libseccomp.MakeCondition(arg, libseccomp.CompareGreater, value); err == nil {
			err = b.filter.AddRuleConditionalExact(nr, action, []libseccomp.ScmpCondition{c})
		}
	}
	if err != nil {
		b.err = fmt.Errorf("rule for %s: %w", call, err)
	}
}

// program returns the finished BPF instructions.
func (b *builder) program() ([]byte, error) {
	if b.filter != nil {
		defer b.filter.Release()
	}
	if b.err != nil {
		return nil, b.err
	}
	// libseccomp 2.5 can export to a descriptor only. A program is at most
	// 32 KiB (BPF_MAXINSNS), which a pipe holds.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	err = b.filter.ExportBPF(w)
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return io.ReadAll(r)
}

// number returns the number of a call on this machine. A few are newer than
// the library of Debian 12.
func number(call string) (libseccomp.ScmpSyscall, error) {
	if nr, err := libseccomp.GetSyscallFromName(call); err == nil && nr >= 0 {
		return nr, nil
	}
	if nr, ok := newer[call]; ok {
		return libseccomp.ScmpSyscall(nr), nil
	}
	return 0, fmt.Errorf("%q is no system call here", call)
}

var newer = map[string]int{
	"process_mrelease":  unix.SYS_PROCESS_MRELEASE,
	"futex_waitv":       unix.SYS_FUTEX_WAITV,
	"cachestat":         unix.SYS_CACHESTAT,
	"fchmodat2":         unix.SYS_FCHMODAT2,
	"map_shadow_stack":  unix.SYS_MAP_SHADOW_STACK,
	"futex_wake":        unix.SYS_FUTEX_WAKE,
	"futex_wait":        unix.SYS_FUTEX_WAIT,
	"futex_requeue":     unix.SYS_FUTEX_REQUEUE,
	"statmount":         unix.SYS_STATMOUNT,
	"listmount":         unix.SYS_LISTMOUNT,
	"lsm_get_self_attr": unix.SYS_LSM_GET_SELF_ATTR,
	"lsm_set_self_attr": unix.SYS_LSM_SET_SELF_ATTR,
	"lsm_list_modules":  unix.SYS_LSM_LIST_MODULES,
	"mseal":             unix.SYS_MSEAL,
	"setxattrat":        unix.SYS_SETXATTRAT,
	"getxattrat":        unix.SYS_GETXATTRAT,
	"listxattrat":       unix.SYS_LISTXATTRAT,
	"removexattrat":     unix.SYS_REMOVEXATTRAT,
	"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
	"file_getattr":      unix.SYS_FILE_GETATTR,
	"file_setattr":      unix.SYS_FILE_SETATTR,
	"uretprobe":         unix.SYS_URETPROBE,
	"uprobe":            unix.SYS_UPROBE,
	"listns":            unix.SYS_LISTNS,
	"rseq_slice_yield":  unix.SYS_RSEQ_SLICE_YIELD,
}
