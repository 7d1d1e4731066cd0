//go:build vm

package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/cgroup"
	"postern/jail/spec"
)

const mountpoint = "/sys/fs/cgroup"

// group makes one jail's group, and removes it and its parent with the test.
func group(t *testing.T, limits spec.Limits) (g *cgroup.Group, dir string) {
	t.Helper()
	tree, err := cgroup.Open("postern-vm-test/" + strings.ToLower(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if tree.Mode() != cgroup.V2 {
		t.Fatalf("mode %s", tree.Mode())
	}
	g, err = tree.New("jail", limits)
	if err != nil {
		t.Fatal(err)
	}
	parent := filepath.Join(mountpoint, tree.Parent())
	t.Cleanup(func() {
		for _, undo := range []func() error{g.Kill, g.Remove, func() error { return os.Remove(parent) }} {
			if err := undo(); err != nil {
				t.Error(err)
			}
		}
		os.Remove(filepath.Dir(parent))
	})
	return g, filepath.Join(parent, "jail")
}

// inside runs a shell in the group and returns how it ended.
func inside(t *testing.T, g *cgroup.Group, script string, args ...string) (string, error) {
	t.Helper()
	fd, ok := g.FD()
	if !ok {
		t.Fatal("no descriptor of the group")
	}
	c := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	said, err := c.CombinedOutput()
	return string(said), err
}

func file(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// field reads one "name value" or "name=value" of a control file, -1 without it.
func field(text, name string) int64 {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }) {
		if v, ok := strings.CutPrefix(strings.Replace(f, "=", " ", 1), name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return -1
}

var some = spec.Limits{MemoryBytes: 256 << 20, PidsMax: 20, CPUPercent: 200}

// Every disk is bounded before the first process is, and the kernel holds a jail to
// it: more than a second's worth takes longer than a second, and the same write
// outside does not wait for the bound.
func TestInputAndOutputAreBounded(t *testing.T) {
	g, dir := group(t, some)
	said := file(t, dir, "io.max")
	for _, disk := range []string{"nvme0n1", "vda"} {
		number := strings.TrimSpace(file(t, "/sys/block", disk, "dev"))
		if !strings.Contains("\n"+said, "\n"+number+" rbps=134217728 wbps=134217728 riops=8192 wiops=8192\n") {
			t.Errorf("%s (%s) is not bounded in %q", disk, number, said)
		}
	}

	// The bound of a jail is above what an emulated disk does, so the same file is
	// lowered to see that the kernel looks at it.
	root := strings.TrimSpace(file(t, "/sys/block/nvme0n1/dev"))
	if err := os.WriteFile(filepath.Join(dir, "io.max"), []byte(root+" wbps=4194304"), 0); err != nil {
		t.Fatal(err)
	}
	const write = `dd if=/dev/zero of="$1" bs=1M count=12 oflag=direct status=none`
	where := "/var/tmp/postern-vm-io" // on the disk: /tmp is memory
	defer os.Remove(where)
	began := time.Now()
	if out, err := exec.Command("/bin/sh", "-c", write, "sh", where).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free := time.Since(began)
	began = time.Now()
	if out, err := inside(t, g, write, where); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bound := time.Since(began)
	t.Logf("12 MiB took %v, and %v at 4 MiB a second", free.Round(time.Millisecond), bound.Round(time.Millisecond))
	if bound < 2*time.Second || bound < free {
		t.Errorf("12 MiB at 4 MiB a second took %v (%v without the bound)", bound, free)
	}
	if n := field(strings.ReplaceAll(file(t, dir, "io.stat"), " ", "\n"), "wbytes"); n < 12<<20 {
		t.Errorf("%d bytes were counted", n)
	}
}

// A process that uses up the memory takes the whole jail with it; its twin that needs
// less lives.
func TestMemoryUsedUpEndsTheWholeGroup(t *testing.T) {
	limits := some
	limits.MemoryBytes = 32 << 20
	g, dir := group(t, limits)
	if got := strings.TrimSpace(file(t, dir, "memory.oom.group")); got != "1" {
		t.Errorf("memory.oom.group is %q", got)
	}
	if out, err := inside(t, g, `head -c 4000000 /dev/zero | tail -c 4000000 | wc -c`); err != nil || strings.TrimSpace(out) != "4000000" {
		t.Errorf("what fits: %q, %v", out, err)
	}
	if n := field(file(t, dir, "memory.events"), "oom_group_kill"); n != 0 || g.OOMKilled() {
		t.Errorf("%d kills of the group before there was a reason", n)
	}

	// tail keeps what it will print last; the shell and the sleeper do nothing wrong
	// and end all the same.
	_, err := inside(t, g, `sleep 1000 & head -c 80000000 /dev/zero | tail -c 80000000 >/dev/null; echo survived; wait`)
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the shell beside it ended with %v", err)
	}
	for end := time.Now().Add(30 * time.Second); !g.Empty() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // the sleeper is reaped by process 1, which tells nobody
	}
	if !g.Empty() {
		t.Errorf("these live on: %s", file(t, dir, "cgroup.procs"))
	}
	if n := field(file(t, dir, "memory.events"), "oom_group_kill"); n != 1 || !g.OOMKilled() {
		t.Errorf("%d kills of the group were counted, OOMKilled %t", n, g.OOMKilled())
	}
}

// Each jail's pressure can be read, and be waited for.
func TestPressureIsKnownForEachJail(t *testing.T) {
	g, dir := group(t, spec.Limits{MemoryBytes: 256 << 20, PidsMax: 20, CPUPercent: 10})
	for _, name := range []string{"cpu.pressure", "memory.pressure", "io.pressure"} {
		if text := file(t, dir, name); !strings.HasPrefix(text, "some avg10=") {
			t.Errorf("%s: %q", name, text)
		}
	}
	fd, err := unix.Open(filepath.Join(dir, "cpu.pressure"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// 50 ms of waiting within 2 s: two loops on a tenth of a processor do that.
	if _, err := unix.Write(fd, []byte("some 50000 2000000\x00")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		inside(t, g, `timeout 20 sh -c 'while :; do :; done' & timeout 20 sh -c 'while :; do :; done'; wait`)
	}()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	n, err := unix.Poll(poll, 60_000)
	for err == unix.EINTR {
		n, err = unix.Poll(poll, 60_000)
	}
	if err != nil || n != 1 || poll[0].Revents&unix.POLLPRI == 0 {
		t.Errorf("no event of pressure: %d, %#x, %v; %s", n, poll[0].Revents, err, file(t, dir, "cpu.pressure"))
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	<-done
	if n := field(file(t, dir, "cpu.stat"), "nr_throttled"); n <= 0 {
		t.Errorf("throttled %d times", n)
	}
}
