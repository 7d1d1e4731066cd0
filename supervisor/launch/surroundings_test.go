package launch

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	goodStatus = "Name:\tposternd\nCapEff:\t000001ffffffffff\nSeccomp:\t0\nSeccomp_filters:\t0\n"
	noResource = "000001fffeffffff" // every capability but CAP_SYS_RESOURCE
	coreLimits = "Limit                     Soft Limit           Hard Limit           Units     \nMax stack size            8388608              unlimited            bytes     \nMax core file size        0                    %s                    bytes     \n"
	goodMap    = "         0          0 4294967295\n"
	goodMounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw,nosuid,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
)

// What a unit's directives, a container or an old kernel take away is named at the
// start, with the directive; a host where nothing is in the way has nothing to hear.
func TestSurroundings_C169_C170_WhatIsInTheWayIsNamed(t *testing.T) {
	good := surroundings{status: goodStatus, uidMap: goodMap, mounts: goodMounts, release: "6.12.0-13-amd64"}
	if out := good.inTheWay(); len(out) != 0 {
		t.Errorf("nothing is in the way, and it says %v", out)
	}
	newer := good
	newer.release = "7.0-rc1"
	if out := newer.inTheWay(); len(out) != 0 {
		t.Errorf("a newer kernel: %v", out)
	}
	hidden := good
	hidden.mounts += "99 22 0:40 / /proc rw - proc proc rw,hidepid=invisible\n"
	if out := hidden.inTheWay(); len(out) != 0 {
		t.Errorf("processes of others are hidden: %v", out)
	}
	for what, change := range map[string]func(*surroundings){
		"a real-time policy that no child has": func(s *surroundings) { s.policy = schedFIFO | schedResetOnFork },
		"a policy below the usual one":         func(s *surroundings) { s.policy = 5 },
		"a time that is not bounded": func(s *surroundings) {
			s.limits = "Max cpu time              unlimited            unlimited            seconds   \n"
		},
		"process 1, of nobody's unit": func(s *surroundings) { s.pid = 1 },
		"another process of a unit":   func(s *surroundings) { s.managed, s.pid = true, 2 },
	} {
		s := good
		change(&s)
		if out := s.inTheWay(); len(out) != 0 {
			t.Errorf("%s: %v", what, out)
		}
	}
	for what, s := range map[string]surroundings{
		"one byte of a core": {limits: fmt.Sprintf(coreLimits, "1"), status: strings.Replace(goodStatus, "000001ffffffffff", noResource, 1)},
		"who may raise it":   {limits: fmt.Sprintf(coreLimits, "0"), status: goodStatus},
	} {
		s.uidMap, s.mounts, s.release = goodMap, goodMounts, good.release
		if out := s.inTheWay(); len(out) != 0 {
			t.Errorf("%s: %v", what, out)
		}
	}
	for name, c := range map[string]struct {
		change func(*surroundings)
		want   []string
	}{
		"RestrictNamespaces": {func(s *surroundings) {
			s.status = strings.Replace(goodStatus, "filters:\t0", "filters:\t3", 1)
			s.noNamespace = "clone with a new mount namespace: operation not permitted, errno 1"
		}, []string{"3 system call filters", "RestrictNamespaces= among them", "errno 1"}},
		"another filter": {func(s *surroundings) { s.status = strings.Replace(goodStatus, "filters:\t0", "filters:\t1", 1) },
			[]string{"1 system call filters", "ProtectKernelTunables=", "SystemCallFilter="}},
		"MemoryDenyWriteExecute": {func(s *surroundings) { s.denies = 1 }, []string{"PR_SET_MDWE is 0x1", "Node.js", "take MemoryDenyWriteExecute= out of the unit"}},
		"its line": {func(s *surroundings) {
			s.denies, s.unit = 1, directives("x.conf", "[Service]\nMemoryDenyWriteExecute=yes\n")
		}, []string{"set to no: MemoryDenyWriteExecute= (x.conf:2)"}},
		"no user namespaces": {func(s *surroundings) {
			s.noNamespace = "clone with a new user namespace: no space left on device, errno 28"
		}, []string{"new user namespace", "errno 28", "user.max_user_namespaces", "sysctl"}},
		"SecureBits":          {func(s *surroundings) { s.secureBits = 0x3 }, []string{"0x3", "SecureBits="}},
		"CPUSchedulingPolicy": {func(s *surroundings) { s.policy = schedRR }, []string{"real-time policy (2", "CPUSchedulingPolicy=", "CPUSchedulingResetOnFork=yes"}},
		"LimitAS": {func(s *surroundings) {
			s.limits = "Max address space         4096000000           4096000000           bytes     \n"
		}, []string{"max address space 4096000000", "LimitAS="}},
		"LimitCPU": {func(s *surroundings) {
			s.limits = "Max cpu time              60                   unlimited            seconds   \n"
		}, []string{"max cpu time 60", "LimitCPU="}},
		"PrivatePIDs":  {func(s *surroundings) { s.managed, s.pid = true, 1 }, []string{"process 1", "PrivatePIDs="}},
		"PrivateUsers": {func(s *surroundings) { s.uidMap = "0 0 1\n" }, []string{"PrivateUsers="}},
		"a capability": {func(s *surroundings) {
			s.status = strings.Replace(goodStatus, "000001ffffffffff", "000001ffffdfffff", 1)
		}, []string{"CAP_SYS_ADMIN", "CapabilityBoundingSet="}},
		"no core at all": {func(s *surroundings) {
			s.status, s.limits = strings.Replace(goodStatus, "000001ffffffffff", noResource, 1), fmt.Sprintf(coreLimits, "0")
		}, []string{"LimitCORE=0:1"}},
		"ProtectControlGroups": {func(s *surroundings) { s.mounts = strings.Replace(goodMounts, "rw,nosuid", "ro,nosuid", 1) }, []string{"ProtectControlGroups="}},
		"ProcSubset":           {func(s *surroundings) { s.mounts += "99 22 0:40 / /proc rw - proc proc rw,subset=pid\n" }, []string{"ProcSubset="}},
		"Debian 12's kernel":   {func(s *surroundings) { s.release = "6.1.0-28-amd64" }, []string{`"6.1.0-28-amd64"`, "6.12", "backports"}},
		"just below the floor": {func(s *surroundings) { s.release = "6.11.99" }, []string{"6.12"}},
		"no kernel of ours":    {func(s *surroundings) { s.release = "" }, []string{"6.12"}},
	} {
		s := good
		c.change(&s)
		out := s.inTheWay()
		if len(out) != 1 {
			t.Errorf("%s: %d complaints: %v", name, len(out), out)
		}
		text := errors.Join(out...)
		for _, want := range c.want {
			if text == nil || !strings.Contains(text.Error(), want) {
				t.Errorf("%s: no %q in: %v", name, want, text)
			}
		}
	}
}

// A directory that the unit hides, replaces by an empty one or makes read-only is named
// with the directive, and one that the host itself has so is not.
func TestSurroundings_WhatAUnitShutsOffIsNamed(t *testing.T) {
	const (
		root    = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
		hidden  = "90 22 0:25 /systemd/inaccessible/dir /srv ro,nosuid,nodev,noexec shared:2 - tmpfs tmpfs rw,mode=755\n"
		empty   = "90 22 0:60 / /var/lib rw,relatime - tmpfs tmpfs rw,mode=755\n"
		closed  = "90 22 8:1 / / ro,relatime - ext4 /dev/sda1 rw\n"
		private = "90 22 8:1 /tmp/systemd-private-1f/tmp /tmp rw - ext4 /dev/sda1 rw\n"
	)
	dirs := []needed{{"root-dir", "/var/lib/postern-root"}, {"the workspace of a", "/srv/a"}, {"the workspace of b", "/tmp/b"}, {"the workspace of c", "/srvc"}}
	unit := directives("/etc/x.conf", "[Service]\nProtectSystem=strict\nTemporaryFileSystem=/var/lib\nPrivateTmp=yes\nInaccessiblePaths=/srv\n")
	for name, c := range map[string]struct {
		here, host string
		want       []string
	}{
		"all as on the host":   {root, root, nil},
		"hidden":               {root + hidden, root, []string{`the workspace of a: "/srv/a" is made inaccessible: take out of the unit InaccessiblePaths= (/etc/x.conf:5)`}},
		"empty":                {root + empty, root, []string{`root-dir: "/var/lib/postern-root" is on an empty file system of the unit's own: take out of the unit TemporaryFileSystem= (/etc/x.conf:3)`}},
		"empty on the host":    {root + empty, root + strings.Replace(empty, "90 22 0:60", "30 22 0:60", 1), nil},
		"the unit's own /tmp":  {root + private, root, []string{`"/tmp/b" is on a directory of the unit's own: take out of the unit PrivateTmp=`}},
		"read-only":            {root + closed, root, []string{"root-dir", "of a", "of b", `"/srvc" is read-only: take out of the unit ProtectSystem= (/etc/x.conf:2), or add ReadWritePaths=/srvc`}},
		"read-only, the host":  {closed, closed, nil},
		"the host is not seen": {closed, "", nil},
	} {
		out := surroundings{mounts: c.here, host: c.host, unit: unit}.shutOff(dirs)
		if len(out) != len(c.want) {
			t.Errorf("%s: %d complaints: %v", name, len(out), out)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(out[i].Error(), want) {
				t.Errorf("%s: no %q in: %v", name, want, out[i])
			}
		}
	}
	full := directives("/etc/x.conf", "[Service]\nProtectSystem=full\nReadOnlyPaths=/srvc\n")
	if text := fmt.Sprint(surroundings{mounts: root + closed, host: root, unit: full}.shutOff(dirs[3:])); strings.Contains(text, "ProtectSystem") || !strings.Contains(text, "ReadOnlyPaths= (/etc/x.conf:3)") {
		t.Errorf("beside the shipped ProtectSystem=full: %s", text)
	}
	if text := fmt.Sprint(surroundings{mounts: root + empty, host: root}.shutOff(dirs)); !strings.Contains(text, "TemporaryFileSystem= or ProtectHome= or PrivateTmp=") {
		t.Errorf("without a unit's files: %s", text)
	}
}

// On the machine that runs the other tests nothing is in the way, and it is the kernel
// that was asked.
func TestSurroundings_ThisHostIsReadAsItIs(t *testing.T) {
	needRoot(t)
	s, err := lookAround()
	if err != nil {
		t.Fatal(err)
	}
	if out := s.inTheWay(); len(out) != 0 {
		t.Errorf("%v", out)
	}
	raw, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || strings.TrimSpace(string(raw)) != s.release {
		t.Errorf("release %q, %q, %v", s.release, raw, err)
	}
}
