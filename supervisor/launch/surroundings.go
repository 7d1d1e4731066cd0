package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// surroundings is what the kernel says of posternd itself, as whoever started it left it.
type surroundings struct {
	status  string // /proc/self/status
	uidMap  string // /proc/self/uid_map
	mounts  string // /proc/self/mountinfo
	limits  string // /proc/self/limits
	release string // of the kernel
	// noNamespace is why this process can make no namespace, "" where it can.
	noNamespace string
	// denies is what PR_GET_MDWE says: other than 0, no memory may become executable, in
	// posternd and in whatever it starts.
	denies int
	// host is what process 1 has mounted, "" where that cannot be read.
	host string
	// secureBits are those of capabilities(7), policy is how the kernel schedules.
	secureBits, policy int
	// pid is the own number, and managed says that a service manager gave it its environment.
	pid     int
	managed bool
	// unit is what the files of the unit say that posternd was started by, if by one. It
	// decides nothing; it tells where to look for what the kernel does not let be.
	unit []directive
}

// The floor: what is older lacks a layer that no jail goes without.
const floorMajor, floorMinor = 6, 12

// capability is one that posternd cannot do without.
type capability struct {
	name string
	bit  uint
	why  string
}

// capabilities are those without which no jail comes about. Source of the numbers:
// include/uapi/linux/capability.h.
var capabilities = []capability{
	{"CAP_CHOWN", 0, "to give the authority its directory"},
	{"CAP_DAC_OVERRIDE", 1, "to open what belongs to other users"},
	{"CAP_FOWNER", 3, "to keep directories of other users in order"},
	{"CAP_KILL", 5, "to end what runs under a leased uid"},
	{"CAP_SETGID", 6, "to give a jail its gid"},
	{"CAP_SETUID", 7, "to give a jail its uid"},
	{"CAP_SETPCAP", 8, "to take every capability from a jail for good"},
	{"CAP_NET_ADMIN", 12, "to switch a jail's own loopback on"},
	{"CAP_SYS_PTRACE", 19, "to open the user namespace of a workspace's mapping"},
	{"CAP_SYS_ADMIN", 21, "to make mounts and namespaces"},
}

// capSysResource raises any limit; the unit goes without it.
const capSysResource = 24

// inTheWay tells what makes every jail fail here, and which directive of a unit, or what
// else, is the likely reason: a jail that fails at its twentieth step does not.
func (s surroundings) inTheWay() (out []error) {
	bad := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	if major, minor, ok := release(s.release); !ok || major < floorMajor || major == floorMajor && minor < floorMinor {
		bad("the kernel is Linux %q; %d.%d is the oldest with every layer of a jail: boot a newer one (Debian 13, or 12 with the backports kernel)", s.release, floorMajor, floorMinor)
	}
	if n := statusField(s.status, "Seccomp_filters"); n != "" && n != "0" {
		bad("%s system call filters are in force on posternd, and a jail starts only where its own are alone: %s", n, s.filteredBy())
	} else if s.noNamespace != "" {
		bad("no namespace can be made (%s): run posternd outside a container; where user.max_user_namespaces or another user.max_*_namespaces is 0, set it to some thousands with sysctl", s.noNamespace)
	}
	if s.denies != 0 {
		bad("no memory may become executable here (PR_SET_MDWE is %#x), nor in a jail, which inherits that, and a tool server that compiles as it runs, as every one of Node.js does, would end at once: %s", s.denies, s.deniedBy())
	}
	if m := strings.Fields(s.uidMap); len(m) != 3 || m[0] != "0" || m[1] != "0" || m[2] != "4294967295" {
		bad("posternd is in a user namespace (uid_map %q), where leased uids do not exist: take PrivateUsers= out of the unit, or run it outside a container", strings.Join(m, " "))
	}
	if have, err := strconv.ParseUint(statusField(s.status, "CapEff"), 16, 64); err != nil {
		bad("the own capabilities cannot be read: %v", err)
	} else {
		for _, c := range capabilities {
			if have&(1<<c.bit) == 0 {
				bad("posternd lacks %s, which it needs %s: add it to CapabilityBoundingSet= in the unit, or run it outside a container", c.name, c.why)
			}
		}
		if have&(1<<capSysResource) == 0 && s.hardCore() == "0" {
			bad("no core may have a byte here, and a jail sets that limit to 1, so that no program takes its core either: set LimitCORE=0:1 in the unit, or ulimit -Hc 1 before posternd")
		}
	}
	if s.secureBits != 0 {
		bad("the secure bits are %#x here, which every child has too, and a jail gives its privilege away by its own: take out of the unit %s", s.secureBits, orElse(where(inEffect(s.unit, "SecureBits")), "SecureBits="))
	}
	if p := s.policy; p&schedResetOnFork == 0 && (p == schedFIFO || p == schedRR || p == schedDeadline) {
		bad("posternd runs under a real-time policy (%d of sched(7)), which every jail would have too, and no control group bounds: take out of the unit %s, or add CPUSchedulingResetOnFork=yes", p, orElse(where(inEffect(s.unit, "CPUSchedulingPolicy")), "CPUSchedulingPolicy="))
	}
	for _, l := range inherited {
		if soft, _ := s.limit(l.kernel); soft != "" && soft != "unlimited" {
			bad("posternd and every jail have a limit, %s %s, and %s: take out of the unit %s, or lift it with ulimit before posternd", strings.ToLower(l.kernel), soft, l.why, orElse(where(inEffect(s.unit, l.directive)), l.directive+"="))
		}
	}
	if s.managed && s.pid == 1 {
		bad("posternd is process 1 of a process namespace of its own, where nobody who connects has a number: take out of the unit %s", orElse(where(inEffect(s.unit, "PrivatePIDs")), "PrivatePIDs="))
	}
	return append(out, s.mountsInTheWay()...)
}

// The policies of sched(7) that no weight and no limit of a control group bounds, and the
// bit by which a child has another. Source: include/uapi/linux/sched.h.
const (
	schedFIFO        = 1
	schedRR          = 2
	schedDeadline    = 6
	schedResetOnFork = 0x40000000
)

// filteredBy says what installed the filters: the lines of the unit that do, by their
// places, or which ones those could be.
func (s surroundings) filteredBy() string {
	if found := inEffect(s.unit, filtering...); len(found) > 0 {
		return "take out of the unit, or set to no: " + where(found)
	}
	likely := "one of the directives of the unit that install them, or a container's profile"
	if s.noNamespace != "" {
		likely = "RestrictNamespaces= among them, because no namespace can be made (" + s.noNamespace + ")"
	}
	return likely + ". Take them out of the unit: " + strings.Join(filtering, "=, ") + "="
}

// deniedBy says where executable memory is denied: since systemd 257 by an attribute of
// the process and not by a filter, where the kernel has it.
func (s surroundings) deniedBy() string {
	if found := inEffect(s.unit, denying); len(found) > 0 {
		return "take out of the unit, or set to no: " + where(found)
	}
	return "take " + denying + "= out of the unit, or start posternd from a program that has not denied it"
}

// mountsInTheWay looks at the file systems that jails are made with, as posternd sees them.
func (s surroundings) mountsInTheWay() (out []error) {
	type seen struct{ options, super string }
	last := map[string]seen{} // what is mounted last at a place is what is seen there
	for line := range strings.Lines(s.mounts) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 6 && len(r) >= 3 {
			last[l[4]] = seen{"," + l[5] + ",", "," + r[2] + ","}
		}
	}
	if m, ok := last["/sys/fs/cgroup"]; ok && strings.Contains(m.options, ",ro,") {
		out = append(out, fmt.Errorf("/sys/fs/cgroup is read-only here, and no jail can be bounded: take ProtectControlGroups= out of the unit"))
	}
	// A /proc that hides others' processes (ProtectProc=, hidepid=) is in nobody's way:
	// who connects is known by a descriptor, and posternd may look at what it starts.
	if m, ok := last["/proc"]; ok && strings.Contains(m.super, "subset=pid") {
		out = append(out, fmt.Errorf("/proc holds processes alone here, without the settings of the kernel that posternd and the authority read: take ProcSubset= out of the unit"))
	}
	return out
}

// hardCore is the most that the limit of cores can be raised to, as the kernel prints it.
func (s surroundings) hardCore() string {
	_, hard := s.limit("Max core file size")
	return hard
}

// limit is a soft and a hard limit, as the kernel prints them; "" without a line of it.
func (s surroundings) limit(name string) (soft, hard string) {
	for line := range strings.Lines(s.limits) {
		if value, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(value); len(f) >= 2 {
				return f[0], f[1]
			}
		}
	}
	return "", ""
}

// inherited are the limits that a jail has from posternd, because none of its own fits
// every runtime: a control group bounds what they are about.
var inherited = []struct{ kernel, directive, why string }{
	{"Max address space", "LimitAS", "runtimes that compile reserve far more than they use"},
	{"Max data size", "LimitDATA", "runtimes that compile reserve far more than they use"},
	{"Max cpu time", "LimitCPU", "a server would be killed in the middle of a call"},
}

// release reads the version of a kernel's release.
func release(s string) (major, minor int, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d", &major, &minor)
	return major, minor, n == 2 && err == nil
}

// statusField is the value of one line of /proc/self/status, "" without it.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
