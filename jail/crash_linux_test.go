package jail

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
	"postern/profiles"
)

// crashEnv makes this test binary a launcher that a test is going to kill. Its
// value is the parent group, postern-jail and the probe, parted by spaces.
const crashEnv = "POSTERN_TEST_LAUNCHER"

// crash launches three jails, one of which ignores everything, tells their
// process numbers and waits for the end.
func crash() {
	arg := strings.Fields(os.Getenv(crashEnv))
	err := func() error {
		l, err := Open(Config{Init: arg[1], Cgroup: arg[0]})
		if err != nil {
			return err
		}
		request, err := bridgeRequest(arg[2])
		if err != nil {
			return err
		}
		for i, probe := range []string{"spin", "sleep", "eof"} {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			request.Name, request.Argv[1] = fmt.Sprint("crash", i), probe
			request.Stdin, request.Stdout = os.Stdin, w
			p, err := l.Launch(request)
			if err != nil {
				return err
			}
			if said, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.HasSuffix(said, "ready\n") {
				return fmt.Errorf("%s said %q, %v", probe, said, err)
			}
			fmt.Println(p.Pid())
		}
		fmt.Println("ready")
		select {}
	}()
	fmt.Println(err)
	os.Exit(1)
}

// bridgeRequest is a launch for a test binary that runs no test.
func bridgeRequest(probe string) (Request, error) {
	all, err := profiles.Builtin()
	if err != nil {
		return Request{}, err
	}
	program, err := os.Open(probe)
	p := all["bridge"]
	p.Devices = true // for what a replaced /dev does
	return Request{Name: "bridge", Profile: p, UID: leasedID, GID: leasedID,
		Argv: []string{spec.ProgramFile, "exit=0"}, Program: program}, err
}

// The launcher is killed while a server ignores SIGTERM, one sleeps and one
// waits on a stdin that stays open: none survives, and a new launcher finds and
// removes the groups.
func TestC115_JailsDieWithTheLauncher(t *testing.T) {
	needs(t)
	parent := fmt.Sprintf("postern-test/crash-%d", os.Getpid())
	stdin, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer keep.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{parent, bench.init, bench.probe}, " "))
	cmd.Stdin = stdin
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var fds []unix.PollFd
	for scan := bufio.NewScanner(out); scan.Scan() && scan.Text() != "ready"; {
		var pid int
		if _, err := fmt.Sscan(scan.Text(), &pid); err != nil {
			t.Fatalf("the launcher said %q", scan.Text())
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) != 3 {
		t.Fatalf("%d jails run", len(fds))
	}
	if n, _ := unix.Poll(fds, 0); n != 0 {
		t.Fatalf("%d jails ended before the launcher did", n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for _, fd := range fds {
		if n, err := unix.Poll([]unix.PollFd{fd}, 5000); n != 1 {
			t.Fatalf("a jail outlives its launcher: %v", err)
		}
	}

	l, err := Open(Config{Init: bench.init, Cgroup: parent})
	if err != nil {
		t.Fatal(err)
	}
	swept, err := l.Sweep()
	if err != nil || strings.Join(swept, " ") != "crash0 crash1 crash2" {
		t.Errorf("swept %v, %v", swept, err)
	}
	if again, err := l.Sweep(); err != nil || len(again) != 0 {
		t.Errorf("swept again: %v, %v", again, err)
	}
	if err := errors.Join(l.Close(), removeParents(parent)); err != nil {
		t.Error(err)
	}
}

// What a killed launcher can leave: an empty group, a nested one, one with live
// processes that ignore signals, one that exists in a single hierarchy only.
func TestC135_C137_SweepRemovesEveryLeftover(t *testing.T) {
	l := launcher(t)
	parent := filepath.Join("/sys/fs/cgroup/pids", l.tree.Parent())
	if l.Mode() == "v2" {
		parent = filepath.Join("/sys/fs/cgroup", l.tree.Parent())
	}
	for _, d := range []string{"empty", "nested/a/b", "live/inner"} {
		if err := os.MkdirAll(filepath.Join(parent, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bench.probe, "spin")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "live/inner/cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	// A jail of this launcher is no leftover.
	ours := start(t, l, request(t, "bridge", "eof"))
	if got := ours.line(t); got != "eof DATA ready" {
		t.Fatalf("said %q", got)
	}

	reaped := make(chan error, 1)
	go func() { reaped <- cmd.Wait() }()
	swept, err := l.Sweep()
	if err != nil || strings.Join(swept, " ") != "empty live nested" {
		t.Errorf("swept %v, %v", swept, err)
	}
	if err := <-reaped; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the leftover process ended with %v", err)
	}
	select {
	case <-ours.Done():
		t.Error("the sweep killed a live jail")
	default:
	}
	ours.stdin.Close()
	gone(t, ours.Process)

	// The names can be used again.
	r := request(t, "bridge", "exit=0")
	r.Name = "nested"
	p := start(t, l, r)
	gone(t, p.Process)
}
