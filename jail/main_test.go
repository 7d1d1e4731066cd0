package jail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postern/jail/spec"
	"postern/profiles"
)

// bench is what all tests of this package share: the two programs, and the
// directory they were built into.
var bench struct {
	dir, init, probe string
	builtin          map[string]spec.Profile
	err              error
}

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crash() // this is a launcher that a test is going to kill
	}
	if os.Getenv(idleEnv) != "" {
		idled()
	}
	if os.Getenv(inheritEnv) != "" {
		inheriting()
	}
	if os.Getenv(swapEnv) != "" {
		swapped()
	}
	os.Exit(func() int {
		bench.dir, bench.err = os.MkdirTemp("", "postern-jail-test-")
		if bench.err == nil {
			defer os.RemoveAll(bench.dir)
			bench.err = prepare()
		}
		return m.Run()
	}())
}

func prepare() (err error) {
	bench.init = filepath.Join(bench.dir, "postern-jail")
	bench.probe = filepath.Join(bench.dir, "probe")
	// A machine without Go, as the virtual one is, brings both programs along.
	if dir := os.Getenv("POSTERN_TEST_PROGRAMS"); dir != "" {
		if err := os.CopyFS(bench.dir, os.DirFS(dir)); err != nil {
			return err
		}
		bench.builtin, err = profiles.Builtin()
		return errors.Join(err, os.Chmod(bench.dir, 0o755), os.Chmod(bench.init, 0o755), os.Chmod(bench.probe, 0o755))
	}
	for out, pkg := range map[string]string{bench.init: "postern/cmd/postern-jail", bench.probe: "./testdata/probe"} {
		cmd := exec.Command("go", "build", "-tags="+tags, "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, said)
		}
	}
	if err := os.Chmod(bench.dir, 0o755); err != nil {
		return err
	}
	bench.builtin, err = profiles.Builtin()
	return err
}

// needs fails, or on a laptop skips, where a jail cannot be built.
func needs(t testing.TB) {
	t.Helper()
	if bench.err != nil {
		t.Fatal(bench.err)
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root: namespaces, mounts and control groups")
		}
		t.Skip("needs root: namespaces, mounts and control groups")
	}
}

// launcher opens one with a parent group of its own, which must be empty at
// the end: no test may leave a jail behind.
func launcher(t testing.TB) *Launcher {
	t.Helper()
	needs(t)
	parent := fmt.Sprintf("postern-test/%d-%d", os.Getpid(), serial.Add(1))
	l, err := Open(Config{Init: bench.init, Cgroup: parent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := l.Sweep(); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		if err := removeParents(parent); err != nil {
			t.Error(err)
		}
	})
	return l
}

var serial atomic.Uint32

// removeParents removes the parent groups of a test's launcher.
func removeParents(parent string) error {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + parent)
	if err != nil {
		return err
	}
	more, _ := filepath.Glob("/sys/fs/cgroup/" + parent)
	var left []error
	for _, d := range append(dirs, more...) {
		if err := os.Remove(d); err != nil {
			left = append(left, err)
		}
		os.Remove(filepath.Dir(d)) // shared with other tests; the last one removes it
	}
	return errors.Join(left...)
}

// leased ids of these tests lie apart from any that another program uses here.
const (
	leasedID  = 3_900_000
	ownerUID  = 3_950_001
	ownerGID  = 3_950_002
	primeGID  = 3_950_003
	otherUser = 3_950_004
)

// request is a launch of the probe under profile name, with fresh ids.
func request(t testing.TB, profile string, probes ...string) Request {
	t.Helper()
	n := serial.Add(1)
	r := Request{
		Name: fmt.Sprintf("t%d", n), Profile: bench.builtin[profile],
		UID: leasedID + n, GID: leasedID + n,
		Argv:    append([]string{spec.ProgramFile}, probes...),
		Program: openFile(t, bench.probe),
	}
	if r.Profile.Workspace {
		r.Workspace = workspace(t)
	}
	return r
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// workspace makes a directory of ownerUID's, closed to everybody else.
func workspace(t testing.TB) *Workspace {
	t.Helper()
	dir := t.TempDir()
	own(t, dir, 0o700)
	return &Workspace{Dir: openFile(t, dir), UID: ownerUID, GIDs: []uint32{ownerGID, primeGID}}
}

// own gives path to the owner of workspaces.
func own(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.Chown(path, ownerUID, ownerGID), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// running is a launched jail with the test's ends of its pipes.
type running struct {
	*Process
	stdin  *os.File
	stdout *os.File
	stderr *bytes.Buffer
	read   chan struct{} // stderr has been read to its end
}

// start launches r with pipes, and sees to its end with the test.
func start(t testing.TB, l *Launcher, r Request) *running {
	t.Helper()
	p, err := tryStart(t, l, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryStart(t testing.TB, l *Launcher, r Request) (*running, error) {
	t.Helper()
	var theirs [3]*os.File
	var ours [3]*os.File
	for i := range theirs {
		a, b, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if theirs[i], ours[i] = a, b; i > 0 {
			theirs[i], ours[i] = b, a
		}
	}
	r.Stdin, r.Stdout, r.Stderr = theirs[0], theirs[1], theirs[2]
	p, err := l.Launch(r)
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return nil, err
	}
	run := &running{Process: p, stdin: ours[0], stdout: ours[1], stderr: &bytes.Buffer{}, read: make(chan struct{})}
	go func() {
		defer close(run.read)
		io.Copy(run.stderr, io.LimitReader(ours[2], 1<<20))
		ours[2].Close()
	}()
	t.Cleanup(func() {
		run.stdin.Close()
		run.Kill()
		run.stdout.Close()
		<-run.read
	})
	return run, nil
}

// line reads one line that the program says.
func (r *running) line(t testing.TB) string {
	t.Helper()
	var got []byte
	for b := make([]byte, 1); ; {
		n, err := r.stdout.Read(b)
		if n == 1 && b[0] == '\n' {
			return string(got)
		}
		if err != nil {
			t.Fatalf("after %q: %v; stderr %q", got, err, r.stderr.String())
		}
		got = append(got, b[:n]...)
	}
}

// answers runs r to its end and returns what each probe said.
func answers(t testing.TB, l *Launcher, r Request) map[string]string {
	t.Helper()
	p := start(t, l, r)
	p.stdin.Close()
	raw, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	gone(t, p.Process)
	<-p.read
	if e := p.Exit(); e != (Exit{}) {
		t.Fatalf("%v ended with %+v; stdout %q, stderr %q", r.Argv, e, raw, p.stderr.String())
	}
	return parse(string(raw))
}

// outside runs the same probes without a jail: the permitted twin.
func outside(t testing.TB, probes ...string) map[string]string {
	t.Helper()
	raw, err := exec.Command(bench.probe, probes...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return parse(string(raw))
}

func parse(raw string) map[string]string {
	said := map[string]string{}
	for line := range strings.Lines(raw) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		said[name] = strings.TrimPrefix(rest, "DATA ")
	}
	return said
}

// gone waits for p to be gone, within the bound of tests.
func gone(t testing.TB, p *Process) {
	t.Helper()
	select {
	case <-p.Gone():
	case <-time.After(20 * time.Second):
		t.Fatalf("jail %s is not gone", p.Name())
	}
}
