package jail

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/jail/spec"
)

// A server that ignores SIGTERM and everything else it can is killed after its
// grace, and that is recorded.
func TestC134_AServerThatIgnoresSignalsIsForced(t *testing.T) {
	l := launcher(t)
	p := start(t, l, request(t, "static", "spin"))
	if got := p.line(t); got != "spin DATA ready" {
		t.Fatalf("said %q", got)
	}
	p.stdin.Close()
	const grace = 200 * time.Millisecond
	begin := time.Now()
	p.Stop(grace)
	select {
	case <-p.Gone():
	default:
		t.Fatal("Stop returned before the jail was gone")
	}
	if took := time.Since(begin); took < grace || took > grace+5*time.Second {
		t.Errorf("Stop took %v", took)
	}
	if e := p.Exit(); e != (Exit{Code: -1, Signal: int(syscall.SIGKILL), Forced: true}) {
		t.Errorf("exit %+v", e)
	}

	// The twins: one that ends on stdin's end, one that ends on SIGTERM.
	p = start(t, l, request(t, "static", "eof"))
	p.line(t)
	p.stdin.Close()
	p.Stop(10 * time.Second)
	if e := p.Exit(); e != (Exit{}) {
		t.Errorf("a good server's exit: %+v", e)
	}
	p = start(t, l, request(t, "static", "term"))
	p.line(t)
	p.Stop(200 * time.Millisecond)
	if e := p.Exit(); e != (Exit{Code: 15}) {
		t.Errorf("exit of one that handles SIGTERM: %+v", e)
	}
}

func TestMemoryBombEndsItsJailAlone(t *testing.T) {
	l := launcher(t)
	other := start(t, l, request(t, "static", "eof"))
	other.line(t)
	r := request(t, "static", "bomb")
	r.Limits = spec.Limits{MemoryBytes: 32 << 20}
	p := start(t, l, r)
	gone(t, p.Process)
	if e := p.Exit(); !e.OOM || e.Signal != int(syscall.SIGKILL) || e.Forced {
		t.Errorf("exit %+v, want OOM", e)
	}
	select {
	case <-other.Done():
		t.Error("another jail ended too")
	default:
	}
	s, err := other.Stats()
	if err != nil || s.Pids < 1 || s.MemoryBytes <= 0 || s.MemoryPeak < s.MemoryBytes || s.CPUUsec <= 0 {
		t.Errorf("stats %+v, %v", s, err)
	}
	other.stdin.Close()
	gone(t, other.Process)
	if e := other.Exit(); e.OOM {
		t.Errorf("the other jail: %+v", e)
	}
	if _, err := other.Stats(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stats of one that is gone: %v", err)
	}
}

// A file limit and a crash leave no core and no surprise.
func TestExitIsTold(t *testing.T) {
	l := launcher(t)
	p := start(t, l, request(t, "static", "exit=42"))
	gone(t, p.Process)
	if e := p.Exit(); e != (Exit{Code: 42}) {
		t.Errorf("exit %+v", e)
	}
}

// leavings counts what a jail could leave on this machine.
func leavings(t *testing.T, l *Launcher) map[string]int {
	t.Helper()
	count := func(path string) int {
		names, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + l.tree.Parent() + "/t*")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{
		"descriptors": count("/proc/self/fd"), "groups": len(groups), "mounts": strings.Count(string(mounts), "\n"),
		"goroutines": runtime.NumGoroutine(),
	}
}

// leftNothing compares with before. A goroutine may still be on its way out when its
// jail is gone, so it looks again for a bounded while.
func leftNothing(t *testing.T, l *Launcher, before map[string]int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		now := leavings(t, l)
		more := func(name string) bool { return now[name] > before[name] }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(now)), more) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("before %v, after %v", before, now)
			return
		}
	}
}

func TestJail5_AThousandCyclesLeaveNothing(t *testing.T) {
	l := launcher(t)
	uid, shared := uint32(leasedID+100_000), workspace(t)
	cycle := func(i int) {
		ws := i%2 == 0
		r := request(t, map[bool]string{true: "static", false: "bridge"}[ws], "eof")
		if r.UID, r.GID = uid, uid; ws { // the same ids, as leases come back
			r.Workspace.Dir.Close()
			r.Workspace = shared
		}
		p, err := l.Launch(r)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			p.Kill()
		} else {
			p.Stop(5 * time.Second)
		}
		gone(t, p)
		r.Program.Close()
	}
	cycle(0)
	cycle(1)
	before := leavings(t, l)
	cycles := 1000
	if testing.Short() {
		cycles = 50
	}
	for i := range cycles {
		cycle(i)
	}
	leftNothing(t, l, before)
}

func TestJail5_FortyLaunchesAtOnceLeaveNothing(t *testing.T) {
	l := launcher(t)
	warm := start(t, l, request(t, "static", "exit=0"))
	gone(t, warm.Process)
	var requests []Request
	many := 40
	if testing.Short() {
		many = 8 // on an emulated machine the last of forty would not be built in its time
	}
	for range many {
		requests = append(requests, request(t, "static", "ids"))
	}
	before := leavings(t, l)
	var wg sync.WaitGroup
	for _, r := range requests {
		wg.Go(func() {
			out, theirs, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			defer out.Close()
			r.Stdout = theirs
			p, err := l.Launch(r)
			theirs.Close()
			if err != nil {
				t.Error(err)
				return
			}
			buf := make([]byte, 256)
			n, _ := out.Read(buf)
			want := fmt.Sprintf("ids DATA %d %d %d %d [] pid 1\n", r.UID, r.UID, r.GID, r.GID)
			if string(buf[:n]) != want {
				t.Errorf("said %q, want %q", buf[:n], want)
			}
			gone(t, p)
		})
	}
	wg.Wait()
	leftNothing(t, l, before)
	for _, r := range requests {
		if got := names(t, r.Workspace.Dir.Name()); len(got) != 0 {
			t.Errorf("left in a workspace: %v", got)
		}
	}
}

// jail-4: whatever step fails, it is named and nothing is left.
func TestJail4_AFailedLaunchIsNamedAndLeavesNothing(t *testing.T) {
	l := launcher(t)
	warm := start(t, l, request(t, "static", "exit=0"))
	gone(t, warm.Process)
	for step, spoil := range map[string]func(*Request){
		"request":   func(r *Request) { r.UID = 0 },
		"cgroup":    func(r *Request) { makeGroup(t, l, r.Name) },
		"workspace": func(r *Request) { r.Workspace.Dir, r.Workspace.Protect = openFile(t, "/proc"), []string{} }, // cannot map ids
		"protect": func(r *Request) { // a link cannot be protected
			if err := os.Symlink("/etc", filepath.Join(r.Workspace.Dir.Name(), ".claude")); err != nil {
				t.Error(err)
			}
		},
		"package":   func(r *Request) { r.Package = openFile(t, bench.probe) }, // not a directory
		"binds":     func(r *Request) { r.Profile.Binds = []spec.Bind{{Source: "/no/such/place"}} },
		"directory": func(r *Request) { r.Dir = "/workspace/nowhere" },
		"landlock":  func(r *Request) { r.Profile.Landlock.ABI = 99 },
		"exec":      func(r *Request) { r.Argv[0] = "/workspace/nothing" },
		"proceed":   func(r *Request) { r.Proceed = func() error { return errors.New("its project is another now") } },
	} {
		r := request(t, "static", "exit=0")
		before := leavings(t, l)
		spoil(&r)
		p, err := l.Launch(r)
		var failed *StepError
		if !errors.As(err, &failed) || failed.Step != step {
			t.Errorf("%s: got %v", step, err)
		}
		if err == nil {
			gone(t, p)
		}
		if step == "cgroup" {
			// Somebody else's group of this name is still there: it is not ours to remove.
			if swept, err := l.Sweep(); err != nil || len(swept) != 1 {
				t.Errorf("swept %v, %v", swept, err)
			}
		}
		after := leavings(t, l)
		for name, n := range after { // slack: what spoil itself opened
			if slack := map[bool]int{true: 1}[step == "workspace" || step == "protect" || step == "package" || step == "cgroup"]; n > before[name]+slack && name != "goroutines" {
				t.Errorf("%s: %s: %d before, %d after", step, name, before[name], n)
			}
		}
	}
}

func makeGroup(t *testing.T, l *Launcher, name string) {
	t.Helper()
	g, err := l.tree.New(name, spec.Limits{MemoryBytes: spec.MinMemory, PidsMax: 1, CPUPercent: 1})
	if err != nil {
		t.Fatal(err)
	}
	_ = g // left behind on purpose: the sweep removes it
}

// jail-3: a name in use, and a name whose group exists, start nothing.
func TestJail3_ANameIsUsedOnceAtATime(t *testing.T) {
	l := launcher(t)
	r := request(t, "bridge", "eof")
	p := start(t, l, r)
	if _, err := l.Launch(r); err == nil {
		t.Error("a second jail took a live one's name")
	}
	p.stdin.Close()
	gone(t, p.Process)
	again := start(t, l, r)
	again.stdin.Close()
	gone(t, again.Process)
}

// jail-2: threads of this process come and go while jails run.
func TestJail2_C129_JailsOutliveTheThreadThatAskedForThem(t *testing.T) {
	l := launcher(t)
	launched := make(chan *running)
	for range 5 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
			launched <- start(t, l, request(t, "bridge", "eof"))
		}()
	}
	var all []*running
	for range 5 {
		all = append(all, <-launched)
	}
	for range 20 { // and others, which could be the eternal one if it were not
		done := make(chan struct{})
		go func() { runtime.LockOSThread(); close(done) }()
		<-done
		runtime.GC()
	}
	for _, p := range all {
		select {
		case <-p.Done():
			t.Errorf("ended by itself: %+v", p.Exit())
		default:
		}
	}
	for _, p := range all {
		if got := p.line(t); got != "eof DATA ready" {
			t.Errorf("said %q", got)
		}
		p.stdin.Close()
		gone(t, p.Process)
		if e := p.Exit(); e != (Exit{}) {
			t.Errorf("exit %+v", e)
		}
	}
}

// Close during launches: none of them is left running, none blocks.
func TestCloseDuringLaunchesLeavesNothing(t *testing.T) {
	l := launcher(t)
	var wg sync.WaitGroup
	started := make(chan struct{}, 24)
	for range 12 {
		r := request(t, "bridge", "spin")
		wg.Go(func() {
			defer func() { started <- struct{}{} }()
			p, err := l.Launch(r)
			if err != nil {
				if !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
				return
			}
			started <- struct{}{}
			gone(t, p)
		})
	}
	<-started
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := l.Launch(request(t, "bridge", "exit=0")); err == nil {
		t.Error("a closed launcher launched")
	}
}

func TestJail1_OpenRefusesWhatItCannotTrust(t *testing.T) {
	needs(t)
	if _, err := Open(Config{Init: "/no/such/program", Cgroup: "postern-test/x"}); err == nil {
		t.Error("a missing postern-jail was taken")
	}
	replaced := filepath.Join(t.TempDir(), "postern-jail")
	if err := errors.Join(os.WriteFile(replaced, nil, 0o755), os.Chmod(replaced, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Init: replaced, Cgroup: "postern-test/x"}); err == nil {
		t.Error("a postern-jail that anybody can write was taken")
	}
	for _, parent := range []string{"", ".", "/", "../x", "a/../b", "/abs"} {
		if _, err := Open(Config{Init: bench.init, Cgroup: parent}); err == nil {
			t.Errorf("parent %q was taken", parent)
		}
	}
	for _, layer := range Layers() {
		if !layer.OK {
			t.Errorf("this machine lacks %s: %s", layer.Name, layer.Why)
		}
	}
}

func BenchmarkLaunch(b *testing.B) {
	l := launcher(b)
	for _, profile := range []string{"bridge", "static"} {
		b.Run(profile, func(b *testing.B) {
			r := request(b, profile, "exit=0")
			for b.Loop() {
				p, err := l.Launch(r)
				if err != nil {
					b.Fatal(err)
				}
				gone(b, p)
			}
		})
	}
}

// Something in a jail's group cannot be ended (here a process that was put there and
// is not the jail's to reap): the program's end is told, but the jail is not gone, and
// its name is lent to nobody until it is.
func TestJail5_AJailThatCannotBeEmptiedIsNotGone(t *testing.T) {
	l := launcher(t)
	r := request(t, "bridge", "eof")
	p := start(t, l, r)
	p.line(t)
	held := exec.Command(bench.probe, "sleep")
	out, err := held.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	end := sync.OnceFunc(func() { held.Process.Kill(); ended <- held.Wait() })
	defer end()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Join(l.tree.Parent(), r.Name))
	more, _ := filepath.Glob("/sys/fs/cgroup/" + filepath.Join(l.tree.Parent(), r.Name))
	if dirs = append(dirs, more...); len(dirs) == 0 {
		t.Fatal("no group")
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "cgroup.procs"), fmt.Append(nil, held.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the program's end is not told")
	}
	select {
	case <-p.Gone():
		t.Error("a jail is gone while something is in its group")
	case <-time.After(time.Second):
	}
	if _, err := l.Launch(r); err == nil {
		t.Error("the name was lent again")
	}
	end()
	gone(t, p.Process)
	again := start(t, l, r)
	again.stdin.Close()
	gone(t, again.Process)
}

// Proceed is asked once, before anything of the program has run; where it says no, nothing
// of it ever runs.
func TestALaunchThatMayNotProceedRunsNothing(t *testing.T) {
	l := launcher(t)
	for _, no := range []error{nil, errors.New("no")} {
		r := request(t, "static", "write=/workspace/ran")
		ran := filepath.Join(r.Workspace.Dir.Name(), "ran")
		there := func() bool { _, err := os.Lstat(ran); return err == nil }
		asked := 0
		r.Proceed = func() error {
			if asked++; there() {
				t.Error("it ran before it was asked")
			}
			return no
		}
		p, err := l.Launch(r)
		if asked != 1 || (err != nil) != (no != nil) {
			t.Errorf("asked %d times, answered %v: %v", asked, no, err)
		}
		if err == nil {
			gone(t, p)
		}
		if there() != (no == nil) {
			t.Errorf("answered %v: it ran: %v", no, there())
		}
	}
}
