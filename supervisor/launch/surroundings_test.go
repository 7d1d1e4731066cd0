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
