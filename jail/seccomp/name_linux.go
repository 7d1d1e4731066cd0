package seccomp

import libseccomp "github.com/seccomp/libseccomp-golang"

// NameI386, NameAMD64 and NameX32 are the names of the kernel's tables that a jail's
// program can reach on this machine.
const (
	NameI386  = libseccomp.ArchX86
	NameAMD64 = libseccomp.ArchAMD64
	NameX32   = libseccomp.ArchX32
)

// CallName names a system call of one of the tables, "" where it has no such call.
// What nr says is hostile: a program chose it.
func CallName(table libseccomp.ScmpArch, nr uint64) string {
	if nr > 1<<31-1 {
		return ""
	}
	name, err := libseccomp.ScmpSyscall(nr).GetNameByArch(table)
	if err != nil {
		return ""
	}
	return name
}
