package jail

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkFirstByte measures from the decision to start until the first byte
// of a static program, side by side: no jail, bubblewrap with the same
// namespaces, and ours. The launchers take turns in random order, so that a noisy
// machine is noisy for all of them, and so is the kernel's taking down of the
// network namespace that the one before has left. It reports medians in
// microseconds.
func BenchmarkFirstByte(b *testing.B) {
	l := launcher(b)
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("bubblewrap is not installed")
	}
	command := func(name string, arg ...string) func(out *os.File) func() {
		return func(out *os.File) func() {
			cmd := exec.Command(name, arg...)
			cmd.Env, cmd.Stdout = []string{}, out
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			return func() { cmd.Wait() }
		}
	}
	ours := func(profile string, protect []string) func(out *os.File) func() {
		r := request(b, profile, "ids")
		if r.Workspace != nil {
			r.Workspace.Protect = protect
		}
		return func(out *os.File) func() {
			r.Stdout = out
			p, err := l.Launch(r)
			if err != nil {
				b.Fatal(err)
			}
			return func() { gone(b, p) }
		}
	}
	ways := []struct {
		name  string
		start func(out *os.File) func()
		took  []time.Duration
	}{
		{name: "bare", start: command(bench.probe, "ids")},
		{name: "bwrap", start: command(bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
			"--uid", "20001", "--gid", "20001", "--unshare-user", "--ro-bind", bench.probe, "/program", "--proc", "/proc", "--dev", "/dev",
			"--tmpfs", "/tmp", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--", "/program", "ids")},
		{name: "bridge", start: ours("bridge", nil)},
		{name: "static", start: ours("static", DefaultProtect())},
		// The same without names to hold in the workspace, which is what bubblewrap does.
		{name: "static-open", start: ours("static", []string{})},
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(ways)) {
			out, theirs, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			end := ways[i].start(theirs)
			theirs.Close()
			if n, err := out.Read(make([]byte, 1)); n != 1 {
				b.Fatalf("%s: %v", ways[i].name, err)
			}
			ways[i].took = append(ways[i].took, time.Since(begin))
			end()
			out.Close()
		}
	}
	for _, w := range ways {
		slices.Sort(w.took)
		b.ReportMetric(float64(w.took[len(w.took)/2].Microseconds()), w.name+"-µs")
	}
}
