package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uidRange is what the jails lease from.
type uidRange struct{ first, count uint64 }

// defaultUIDs is posternd's range where none is configured.
var defaultUIDs = uidRange{1_879_048_192, 8192}

// parseUIDs reads FIRST:COUNT.
func parseUIDs(s string) (uidRange, error) {
	first, count, ok := strings.Cut(s, ":")
	f, err1 := strconv.ParseUint(first, 10, 32)
	c, err2 := strconv.ParseUint(count, 10, 32)
	if !ok || err1 != nil || err2 != nil || c == 0 {
		return uidRange{}, usagef("--uid-range: want FIRST:COUNT, not %q", s)
	}
	return uidRange{f, c}, nil
}

// uidLayer looks for anybody else in the range: users, groups, and the ranges that
// container tools hand out.
func uidLayer(r uidRange) layer {
	var clashes []string
	for _, file := range []struct {
		path         string
		first, count int // columns; count -1: one id
	}{{"/etc/passwd", 2, -1}, {"/etc/group", 2, -1}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2}} {
		raw, err := os.ReadFile(file.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			clashes = append(clashes, file.path+": "+cause(err).Error())
		}
		for line := range strings.Lines(string(raw)) {
			col := strings.Split(strings.TrimSpace(line), ":")
			if len(col) <= max(file.first, file.count) {
				continue
			}
			first, err := strconv.ParseUint(col[file.first], 10, 64)
			count := uint64(1)
			if err == nil && file.count >= 0 {
				count, err = strconv.ParseUint(col[file.count], 10, 64)
			}
			if err == nil && first < r.first+r.count && r.first < first+count {
				clashes = append(clashes, fmt.Sprintf("%q of %s", col[0], file.path))
			}
		}
	}
	found := fmt.Sprintf("%d–%d is nobody's", r.first, r.first+r.count-1)
	if clashes != nil {
		found = fmt.Sprintf("%d–%d touches %s", r.first, r.first+r.count-1, list(clashes))
	}
	return judge("uid range", clashes == nil, layerMissing, found, "each jail runs under a uid that nobody else has, or is handed by another tool",
		"give posternd another range: uid_range in postern.yaml, or --uid-range")
}

// needed are the capabilities that building a jail takes, by their numbers.
var needed = map[string]int{"chown": unix.CAP_CHOWN, "dac_override": unix.CAP_DAC_OVERRIDE, "fowner": unix.CAP_FOWNER, "kill": unix.CAP_KILL, "setgid": unix.CAP_SETGID,
	"setuid": unix.CAP_SETUID, "setpcap": unix.CAP_SETPCAP, "net_admin": unix.CAP_NET_ADMIN, "sys_admin": unix.CAP_SYS_ADMIN, "sys_ptrace": unix.CAP_SYS_PTRACE}

func capabilitiesLayer() layer {
	const name, meaning = "capabilities", "posternd builds jails with them, and no jail keeps one"
	if os.Geteuid() != 0 {
		return judge(name, false, layerDegraded, "not tried: needs root", meaning, "run postern doctor as root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return judge(name, false, layerMissing, err.Error(), meaning, "run outside a container")
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	var missing []string
	for capability, number := range needed {
		if !has(number) {
			missing = append(missing, capability)
		}
	}
	slices.Sort(missing)
	switch {
	case missing != nil:
		return judge(name, false, layerMissing, "no "+list(missing), meaning, "run as root, outside a container, without CapabilityBoundingSet in the unit")
	case !has(unix.CAP_SYS_RESOURCE):
		return judge(name, false, layerDegraded, "no sys_resource", meaning+"; without this one a limit of posternd's own is the most that a jail can have", "run outside a container")
	}
	return judge(name, true, "", "all that are needed", meaning, "")
}

func lsmLayer() layer {
	raw, err := os.ReadFile("/sys/kernel/security/lsm")
	found := strings.ReplaceAll(strings.TrimSpace(string(raw)), ",", ", ")
	if err != nil {
		found = "the list cannot be read (" + cause(err).Error() + "); Landlock answers for itself"
	}
	good := err != nil || slices.Contains(strings.Split(strings.TrimSpace(string(raw)), ","), "landlock")
	return judge("security modules", good, layerMissing, found, "which modules decide beside file modes; Landlock must be one of them", "boot with landlock in the lsm= list")
}

func yamaLayer() layer {
	scope := number("/proc/sys/kernel/yama/ptrace_scope")
	found := fmt.Sprintf("ptrace_scope %d", scope)
	if scope < 0 {
		found = "no Yama"
	}
	return judge("ptrace", scope >= 1, layerDegraded, found,
		"no jail can trace anything; outside, a program may read the memory of others of its own uid, a runtime's token among it", "sysctl kernel.yama.ptrace_scope=1, with yama in the lsm= list")
}

// sysctls are settings of the kernel that matter beside the jails, with what they are at least.
var sysctls = []struct {
	name, path string
	least      int
}{
	{"fs.protected_symlinks", "/proc/sys/fs/protected_symlinks", 1},
	{"fs.protected_hardlinks", "/proc/sys/fs/protected_hardlinks", 1},
	{"fs.protected_fifos", "/proc/sys/fs/protected_fifos", 1},
	{"fs.protected_regular", "/proc/sys/fs/protected_regular", 1},
}

func sysctlsLayer() layer {
	var off, cures []string
	for _, s := range sysctls {
		if n := number(s.path); n < s.least {
			off, cures = append(off, fmt.Sprintf("%s is %d", s.name, n)), append(cures, fmt.Sprintf("%s=%d", s.name, s.least))
		}
	}
	if n := number("/proc/sys/fs/suid_dumpable"); n != 0 {
		off, cures = append(off, fmt.Sprintf("fs.suid_dumpable is %d", n)), append(cures, "fs.suid_dumpable=0")
	}
	found := "links, FIFOs and dumps are guarded"
	if off != nil {
		found = list(off)
	}
	return judge("sysctls", off == nil, layerDegraded, found,
		"a program outside that follows a link, a FIFO or a file which a server planted in a shared directory is refused by the kernel; programs that changed their uid leave no dump",
		"sysctl "+strings.Join(cures, " "))
}

func killRecordsLayer() layer {
	const name, meaning = "filter records", "when a filter ends a jail, the log says which system call it was"
	if os.Geteuid() != 0 {
		return judge(name, false, layerDegraded, "not tried: needs root", meaning, "run postern doctor as root")
	}
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	found := "the kernel's log is readable"
	if err != nil {
		found = "/dev/kmsg: " + err.Error()
	} else {
		unix.Close(fd)
	}
	return judge(name, err == nil, layerDegraded, found, meaning, "give posternd the capability syslog; without it the signal alone is told")
}

// maxFilesystems bounds how many are tried.
const maxFilesystems = 16

// filesystemLayers tries, on each file system that one of dirs lies on, what a
// workspace needs of it.
func filesystemLayers(dirs []string) []layer {
	var out []layer
	seen := map[uint64]bool{}
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || seen[st.Dev] || len(seen) == maxFilesystems {
			continue
		}
		seen[st.Dev] = true
		out = append(out, idmapLayer(dir), handleLayer(dir), quotaLayer(dir))
	}
	return out
}

// quotaLayer asks whether the file system counts what a user writes. A jail's own
// limits end at memory, /tmp and the size of one file.
func quotaLayer(dir string) layer {
	const name, meaning = "disk quota", "without one, a server can fill the file system that its workspace lies on"
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(name, false, layerDegraded, dir+": "+err.Error(), meaning, "run postern doctor as root")
	}
	defer unix.Close(fd)
	// Source: quotactl_fd(2); linux/quota.h: Q_GETINFO of user quotas.
	const getInfo, userQuota = 0x800005, 0
	var info [64]byte
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), getInfo<<8|userQuota, 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	found := "of users, on " + dir
	if errno != 0 {
		found = "none on " + dir + " (" + filesystem(dir) + ")"
	}
	return judge(name, errno == 0, layerDegraded, found, meaning, "mount it with usrquota and set a limit for each owner, or give workspaces a file system of their own")
}
