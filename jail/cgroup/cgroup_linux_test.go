package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/jail/spec"
)

var some = spec.Limits{MemoryBytes: 32 << 20, PidsMax: 40, CPUPercent: 50}

// trees opens every kind that this host can show: on a hybrid host also the v1
// way, which is the same without the unified hierarchy.
func trees(t *testing.T) map[string]*Tree {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root: control groups")
		}
		t.Skip("needs root: control groups")
	}
	parent := fmt.Sprintf("postern-test-cgroup/%d", os.Getpid())
	here, err := Open(parent)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Tree{here.mode.String(): here}
	if here.mode == Hybrid {
		v1, err := open(V1, parent+"-v1")
		if err != nil {
			t.Fatal(err)
		}
		all["v1"] = v1
	}
	t.Cleanup(func() {
		for _, tree := range all {
			if left, err := tree.Sweep(func(string) bool { return false }); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			for _, dir := range tree.parents() {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
				os.Remove(filepath.Dir(dir))
			}
		}
	})
	return all
}

// storm starts a shell in g that has children which ignore what they can.
func storm(t *testing.T, g *Group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `read go; trap "" TERM HUP INT; for i in 1 2 3 4 5 6 7 8; do (trap "" TERM; while :; do sleep 100; done) & done; echo ready; wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if fd, ok := g.FD(); ok {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

func TestCgroup1_AGroupIsFresh(t *testing.T) {
	for name, tree := range trees(t) {
		g, err := tree.New("once", some)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := tree.New("once", some); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: a second group of the name: %v", name, err)
		}
		if !exists(filepath.Join(tree.parents()[0], "once")) {
			t.Errorf("%s: the refusal removed the first group", name)
		}
		if err := errors.Join(g.Remove(), g.Remove()); err != nil {
			t.Error(name, err)
		}
		for _, dir := range tree.parents() {
			if exists(filepath.Join(dir, "once")) {
				t.Errorf("%s: %s is left", name, dir)
			}
		}
		for _, bad := range []string{"", "A", "a/b", "..", "a.b", strings.Repeat("a", 65)} {
			if g, err := tree.New(bad, some); err == nil {
				g.Remove()
				t.Errorf("%s: name %q was taken", name, bad)
			}
		}
	}
}

func TestCgroup2_LimitsAreInForceBeforeAProcessIs(t *testing.T) {
	for name, tree := range trees(t) {
		g, err := tree.New("limits", some)
		if err != nil {
			t.Fatal(name, err)
		}
		want := map[string]string{
			filepath.Join(g.v1["memory"], "memory.limit_in_bytes"): "33554432",
			filepath.Join(g.v1["pids"], "pids.max"):                "40",
			filepath.Join(g.v1["cpu"], "cpu.cfs_quota_us"):         "50000",
		}
		if tree.mode == V2 {
			want = map[string]string{
				filepath.Join(g.unified, "memory.max"):       "33554432",
				filepath.Join(g.unified, "memory.swap.max"):  "0",
				filepath.Join(g.unified, "memory.oom.group"): "1",
				filepath.Join(g.unified, "pids.max"):         "40",
				filepath.Join(g.unified, "cpu.max"):          "50000 100000",
			}
		}
		for file, value := range want {
			if got, err := read(file); err != nil || strings.TrimSpace(got) != value {
				t.Errorf("%s: %s is %q, %v", name, file, got, err)
			}
		}
		if !g.Empty() || g.OOMKilled() {
			t.Errorf("%s: a new group: empty %t, oom %t", name, g.Empty(), g.OOMKilled())
		}
		if id := g.ID(); (id != 0) != (tree.mode != V1) {
			t.Errorf("%s: id %d", name, id)
		}
		if err := g.Remove(); err != nil {
			t.Error(name, err)
		}
	}
}

func TestCgroup3_KillLeavesNobody(t *testing.T) {
	for name, tree := range trees(t) {
		g, err := tree.New("storm", some)
		if err != nil {
			t.Fatal(name, err)
		}
		cmd := storm(t, g)
		if s, err := g.Stats(); err != nil || s.Pids < 9 || s.MemoryBytes <= 0 {
			t.Errorf("%s: stats %+v, %v", name, s, err)
		} else if kept := tree.unified != "" && exists(filepath.Join(g.unified, "memory.pressure")); kept != (s.Pressure != nil) {
			t.Errorf("%s: pressure %+v, kept by the kernel: %t", name, s.Pressure, kept)
		}
		if g.Empty() {
			t.Errorf("%s: a running group is empty", name)
		}
		if err := g.Kill(); err != nil {
			t.Error(name, err)
		}
		cmd.Wait()
		end := time.Now().Add(10 * time.Second)
		for !g.Empty() && time.Now().Before(end) {
			time.Sleep(time.Millisecond) // orphans are reaped by the machine's init, which tells nobody
		}
		if err := g.Remove(); err != nil {
			t.Error(name, err)
		}
	}
}

func TestCgroup4_SweepRemovesEverythingBelowAndNothingBeside(t *testing.T) {
	for name, tree := range trees(t) {
		beside := tree.parents()[0] + "-beside"
		if err := os.Mkdir(beside, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(beside)
		live, err := tree.New("live", some)
		if err != nil {
			t.Fatal(name, err)
		}
		cmd := storm(t, live)
		kept, err := tree.New("kept", some)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := os.MkdirAll(filepath.Join(tree.parents()[0], "half", "nested", "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		swept, err := tree.Sweep(func(n string) bool { return n == "kept" })
		if err != nil || strings.Join(swept, " ") != "half live" {
			t.Errorf("%s: swept %v, %v", name, swept, err)
		}
		<-done
		if !exists(beside) {
			t.Errorf("%s: a group beside the parent is gone", name)
		}
		if err := kept.Remove(); err != nil {
			t.Error(name, err)
		}
	}
}

func BenchmarkMakeJoinRemove(b *testing.B) {
	tree, err := Open(fmt.Sprintf("postern-test-cgroup/%d", os.Getpid()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		for _, dir := range tree.parents() {
			os.Remove(dir)
		}
	}()
	for b.Loop() {
		g, err := tree.New("bench", some)
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

// A child started around a group is in it from its first instruction, in every
// hierarchy, and the thread is back where it was, also where it could not enter.
func TestCgroup2_AChildIsBornInItsGroups(t *testing.T) {
	for mode, tree := range trees(t) {
		t.Run(mode, func(t *testing.T) { bornIn(t, tree) })
	}
}

func bornIn(t *testing.T, tree *Tree) {
	g, err := tree.New("born", some)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	home, err := tree.Home()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var said bytes.Buffer
	cmd := exec.Command("/bin/cat", "/proc/self/cgroup")
	cmd.Stdout = &said
	if err := home.Around(g, cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := 0
	if tree.Mode() != V2 {
		want = len(g.dirs)
	}
	if got := strings.Count(said.String(), "/born\n"); got != want {
		t.Errorf("born in %d of %d groups:\n%s", got, want, said.String())
	}
	same := func() {
		t.Helper()
		if after, err := os.ReadFile("/proc/thread-self/cgroup"); err != nil || string(after) != string(before) {
			t.Errorf("the thread is now in\n%s, was in\n%s, %v", after, before, err)
		}
	}
	same()
	failed := errors.New("failed")
	if err := home.Around(g, func() error { return failed }); err != failed {
		t.Errorf("got %v", err)
	}
	same()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if len(home.tasks) > 0 {
		if err := home.Around(g, func() error { return nil }); err == nil {
			t.Error("entered a group that is gone")
		}
		same()
	}
}

func TestPressureIsReadAsTheKernelWritesIt(t *testing.T) {
	for raw, want := range map[string]float64{
		"some avg10=1.25 avg60=0.00 avg300=0.00 total=16163103\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n": 1.25,
		"full avg10=9.00 avg60=0.00\nsome avg10=100.00 avg60=0.00\n":                                              100,
	} {
		if got, ok := someAvg10(raw); !ok || got != want {
			t.Errorf("%q: %v %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", "some", "some avg10=", "some avg10=-1 avg60=0", "some avg10=x avg60=0", "some avg10=101 avg60=0", "some avg10=NaN avg60=0"} {
		if got, ok := someAvg10(raw); ok {
			t.Errorf("%q: %v", raw, got)
		}
	}
}
