//go:build vm

package vm

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/landlock"
)

// The guest is what the README demands of a host. If a later one is not, what the
// other tests say means less.
func TestTheGuestIsAHostOfTheFloor(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	t.Logf("Linux %s", unix.ByteSliceToString(u.Release[:]))

	comm, err := os.ReadFile("/proc/1/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "systemd" {
		t.Errorf("process 1 is %q, %v", comm, err)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || strings.Contains(string(mounts), " cgroup ") || !strings.Contains(string(mounts), " cgroup2 ") {
		t.Errorf("not the unified hierarchy alone (%v):\n%s", err, mounts)
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"cpu", "io", "memory", "pids"} {
		if !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " "+c+" ") {
			t.Errorf("no controller %s in %q", c, controllers)
		}
	}
	if abi := landlock.ABI(); abi < landlock.Least {
		t.Errorf("Landlock ABI %d, below %d", abi, landlock.Least)
	}
}

// A limit above the hard one can be had, and so a jail's be set whatever the unit's
// are: containers often lack the capability for it.
func TestCapSysResourceIsThere(t *testing.T) {
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		t.Fatal(err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		t.Fatal("not effective")
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	more := unix.Rlimit{Cur: files.Cur, Max: files.Max + 1}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &more, nil); err != nil {
		t.Errorf("raise the hard limit from %d: %v", files.Max, err)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1"), 0); err != nil {
		t.Error(err)
	}
}

// Who connects is known by a descriptor, which no other process comes to mean.
func TestAPeerHasADescriptor(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	fd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		t.Error(err)
	}
}
