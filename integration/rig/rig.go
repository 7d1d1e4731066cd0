// Package rig starts a private Postern beside any installed one: its own root,
// state and run directories, cgroup and uid range, real binaries, real jails.
// The demo, the benchmark and the integration tests all stand on it.
//
// It needs root. Its inputs are the repository's own; nothing hostile comes in.
//
// Invariants:
//   - rig-1: Close leaves no process, cgroup, mount, socket or directory of the private Postern behind.
//
// It weakens nothing: what it starts is exactly what an installation runs.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// Bounds of the rig.
const (
	StartWait = 30 * time.Second // from the start of posternd to the first answer of the authority
	StopWait  = 30 * time.Second // from SIGTERM to its end
)

// Host is one entry of the rig's hosts.
type Host struct {
	ID       string
	UID      int
	Channels []string
}

// Config says how the private Postern differs from another. The zero value is usable.
type Config struct {
	Bin      string // directory of the built binaries; "" is bin in the repository
	Prefix   string // where make install put them; then they run from there, and Bin is not looked at
	UIDFirst int    // first leased uid; 0 picks one that no other rig uses
	Hosts    []Host
	StateDir string            // what the authority writes; "" is in the rig's directory. Whoever names one removes it
	Log      io.Writer         // what posternd and the authority log; nil keeps it in Rig.Log
	Profiles map[string]string // more profiles, by name: what their files say
	Drain    int               // seconds that open calls get when posternd is asked to end
}

// Rig is one running private Postern.
type Rig struct {
	Dir, RootDir, StateDir, RunDir string
	Bin, Libexec                   string // where the command is, and where the other programs

	cfg  Config
	cmd  *exec.Cmd
	done chan error
	Log  *Tail

	documents documents
}

// Tail keeps the last bytes of what is written to it.
type Tail struct {
	mu  chan struct{}
	buf []byte
}

func newTail() *Tail { return &Tail{mu: make(chan struct{}, 1)} }

// Write appends and forgets what exceeds a mebibyte.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu <- struct{}{}
	defer func() { <-t.mu }()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - 1<<20; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String returns what is kept.
func (t *Tail) String() string {
	t.mu <- struct{}{}
	defer func() { <-t.mu }()
	return string(t.buf)
}

// Repository returns the directory of go.mod above the working directory.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}

// Binaries are what Build makes.
var Binaries = []string{"posternd", "postern-authority", "postern-bridge", "postern-jail", "postern"}

// Build builds the five binaries into dir.
func Build(repo, dir string) error {
	for _, b := range Binaries {
		cgo := "CGO_ENABLED=0"
		if b == "posternd" {
			cgo = "CGO_ENABLED=1"
		}
		c := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, b), "./cmd/"+b)
		c.Dir = repo
		c.Env = append(os.Environ(), cgo)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b, err, out)
		}
	}
	return nil
}

// BuildServer builds one fixture server into dir/<name> and returns that directory,
// ready to be given as --package.
func BuildServer(repo, dir, name string) (string, error) {
	pkg := filepath.Join(dir, name)
	c := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(pkg, name), "./integration/testdata/servers/"+name)
	c.Dir = repo
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fixture %s: %w\n%s", name, err, out)
	}
	return pkg, nil
}

// Start makes the directories and starts posternd. It returns when the authority answers.
func Start(cfg Config) (*Rig, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a private Postern needs root")
	}
	if cfg.Bin == "" && cfg.Prefix == "" {
		repo, err := Repository()
		if err != nil {
			return nil, err
		}
		cfg.Bin = filepath.Join(repo, "bin")
	}
	if err := ensureUser(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "postern-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	// The programs are copied to where every user of the tests can reach them: a clone
	// may lie in a directory that is root's alone.
	bin, libexec := filepath.Join(dir, "bin"), filepath.Join(dir, "bin")
	if cfg.Prefix != "" {
		bin, libexec = filepath.Join(cfg.Prefix, "bin"), filepath.Join(cfg.Prefix, "libexec/postern")
	} else if err := copyBinaries(cfg.Bin, bin); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &Rig{Dir: dir, Bin: bin, Libexec: libexec, RootDir: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), cfg: cfg, Log: newTail()}
	if cfg.StateDir != "" {
		r.StateDir = cfg.StateDir
	}
	if r.cfg.UIDFirst == 0 {
		// One of 30,000 ranges of 8192 above a base that no distribution uses: rigs that
		// run side by side hardly ever want the same one.
		r.cfg.UIDFirst = 1_900_000_000 + rand.IntN(30_000)*8192
	}
	var y strings.Builder
	y.WriteString("hosts:\n")
	if len(cfg.Hosts) == 0 {
		y.Reset()
		y.WriteString("hosts: []\n")
	}
	for _, h := range cfg.Hosts {
		fmt.Fprintf(&y, "  - id: %s\n    uid: %d\n    accounts: [\"*\"]\n    projects: [\"*\"]\n", h.ID, h.UID)
		if len(h.Channels) > 0 {
			fmt.Fprintf(&y, "    channels: [%s]\n", strings.Join(h.Channels, ", "))
		}
	}
	fmt.Fprintf(&y, "drain_seconds: %d\n", cfg.Drain)
	if err := os.WriteFile(filepath.Join(dir, "postern.yaml"), []byte(y.String()), 0o600); err != nil {
		return nil, err
	}
	for name, text := range cfg.Profiles {
		if err := os.MkdirAll(filepath.Join(dir, "profiles.d"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "profiles.d", name+".yaml"), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := r.Up(); err != nil {
		r.Close()
		return nil, fmt.Errorf("%w\n%s", err, r.Log)
	}
	return r, nil
}

func copyBinaries(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range Binaries {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("%w; make build builds it", err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func ensureUser() error {
	if exec.Command("getent", "passwd", "postern").Run() == nil {
		return nil
	}
	if out, err := exec.Command("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "postern").CombinedOutput(); err != nil {
		return fmt.Errorf("useradd postern: %w\n%s", err, out)
	}
	return nil
}

// Cgroup is the private group's path below each hierarchy.
func (r *Rig) Cgroup() string { return "postern-rig/" + filepath.Base(r.Dir) }

// Up starts posternd on the rig's directories, as Start does, also after it was killed.
func (r *Rig) Up() error {
	r.cmd = exec.Command(filepath.Join(r.Libexec, "posternd"),
		"--config", filepath.Join(r.Dir, "postern.yaml"), "--root-dir", r.RootDir, "--state-dir", r.StateDir, "--run-dir", r.RunDir,
		"--cgroup", r.Cgroup(), "--uid-range", fmt.Sprintf("%d:%d", r.cfg.UIDFirst, 8192), "--libexec", r.Libexec)
	var log io.Writer = r.Log
	if r.cfg.Log != nil {
		log = io.MultiWriter(r.Log, r.cfg.Log)
	}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Dir = "/"
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start posternd: %w", err)
	}
	r.done = make(chan error, 1)
	go func(c *exec.Cmd, done chan error) { done <- c.Wait() }(r.cmd, r.done)
	end := time.Now().Add(StartWait)
	for time.Now().Before(end) {
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("posternd ended at its start: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		var st api.StatusResult
		if err := r.Call(api.Status, nil, &st); err == nil && st.State == "serving" {
			return nil
		}
	}
	return errors.New("the authority did not answer in time")
}

// Range gives the next Up another range of uids, which begins at first.
func (r *Rig) Range(first int) { r.cfg.UIDFirst = first }

// UIDFirst is the first uid of the range.
func (r *Rig) UIDFirst() int { return r.cfg.UIDFirst }

// Wait returns nil when ctx ends, or says how posternd ended before that.
func (r *Rig) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.done:
		r.done <- err
		return fmt.Errorf("posternd (pid %d) ended: %v", r.PID(), err)
	}
}

// PID is posternd's.
func (r *Rig) PID() int { return r.cmd.Process.Pid }

// Kill9 kills posternd and waits for its end.
func (r *Rig) Kill9() {
	r.cmd.Process.Signal(syscall.SIGKILL)
	err := <-r.done
	r.done <- err
}

// Down stops posternd as systemd would and returns how it ended.
func (r *Rig) Down() error {
	if r.cmd == nil || r.cmd.Process == nil {
		return nil
	}
	r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(StopWait):
		r.Kill9()
		return errors.New("posternd did not end in time after SIGTERM")
	}
}

// Close stops everything and removes the directories.
func (r *Rig) Close() error {
	err := r.Down()
	if err != nil && len(r.groups()) > 0 {
		// It was killed: what it left is found and removed by its next start, as always.
		e := r.Up()
		if e == nil {
			e = r.Down()
		}
		err = errors.Join(err, e)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/postern-rig", "/sys/fs/cgroup/postern-rig"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			// Each removes only what is empty; another rig's groups stay.
			os.Remove(filepath.Join(g, filepath.Base(r.Dir)))
			os.Remove(g)
		}
	}
	return errors.Join(err, os.RemoveAll(r.Dir))
}

// Socket returns the socket that serves a.
func (r *Rig) Socket(a api.Action) string { return filepath.Join(r.RunDir, string(api.ServedBy(a))) }

// Call asks as root over the socket that serves the action. A refusal comes back as *api.Refusal.
func (r *Rig) Call(a api.Action, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, r.Socket(a))
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.Call(ctx, a, params, client.Options{}, nil)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// CLI runs the postern command as uid (0 is root) and returns its two outputs and exit status.
func (r *Rig) CLI(uid int, args ...string) (stdout, stderr string, exit int) {
	c := exec.Command(filepath.Join(r.Bin, "postern"), append([]string{"--run-dir", r.RunDir}, args...)...)
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr, c.Dir = &out, &errb, "/"
	c.Env = []string{"PATH=/usr/bin:/bin", "NO_COLOR=1"}
	c.SysProcAttr = As(uid)
	err := c.Run()
	r.Printed(args, out.Bytes())
	var ee *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ee):
		exit = ee.ExitCode()
	default:
		return out.String(), err.Error(), -1
	}
	return out.String(), errb.String(), exit
}

// As makes a command run as uid with the same number as its only group.
func As(uid int) *syscall.SysProcAttr {
	if uid == 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

// groups are the rig's control groups that exist.
func (r *Rig) groups() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + r.Cgroup())
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + r.Cgroup())
	return append(v1, v2...)
}

// Left lists what a closed rig left behind: cgroups by name, mounts and processes
// that mention its directory.
func (r *Rig) Left() []string {
	var left []string
	left = append(left, r.groups()...)
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil && bytes.Contains(b, []byte(r.Dir)) {
		left = append(left, "a mount below "+r.Dir)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil || bytes.Contains(b, []byte("\nState:\tZ")) {
			continue // gone, or dead and waiting for the machine's init to take note
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
				if uid, _ := strconv.Atoi(f[1]); uid >= r.cfg.UIDFirst && uid < r.cfg.UIDFirst+8192 {
					left = append(left, "process "+filepath.Base(filepath.Dir(p))+" of a leased uid")
				}
			}
		}
	}
	if _, err := os.Stat(r.Dir); err == nil {
		left = append(left, r.Dir)
	}
	return left
}

// Sweep removes what rigs that were killed left: posternd's own sweep needs its
// root directory, so it is started once more on each that nobody holds, and
// stopped. It returns what it removed.
func Sweep() []string {
	repo, err := Repository()
	if err != nil {
		return nil
	}
	return sweep(filepath.Join(repo, "bin"))
}

func sweep(bin string) []string {
	var out []string
	dirs, _ := filepath.Glob("/tmp/postern-*/postern.yaml")
	for _, f := range dirs {
		dir := filepath.Dir(f)
		if pid := serving(dir); pid != 0 {
			if !orphan(pid) {
				continue // somebody else's, alive
			}
			// Its driver was killed and left it alone.
			syscall.Kill(pid, syscall.SIGTERM)
			for end := time.Now().Add(StopWait); serving(dir) != 0 && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
		}
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/postern-rig/" + filepath.Base(dir))
		if len(groups) > 0 {
			r := &Rig{Dir: dir, Bin: bin, Libexec: bin, RootDir: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
				cfg: Config{UIDFirst: sweepUIDs}, Log: newTail()}
			if err := r.Up(); err == nil {
				r.Down()
			}
		}
		if os.RemoveAll(dir) == nil {
			out = append(out, dir)
		}
	}
	return out
}

// sweepUIDs is a range that no rig takes.
const sweepUIDs = 1_890_000_000

// serving returns the process of the posternd that works on a rig's directory, 0 for none.
func serving(dir string) int {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && bytes.HasSuffix(bytes.SplitN(b, []byte{0}, 2)[0], []byte("/posternd")) && bytes.Contains(b, []byte(dir+"/")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			return pid
		}
	}
	return 0
}

// orphan tells whether a process has outlived whoever started it.
func orphan(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && bytes.Contains(b, []byte("\nPPid:\t1\n"))
}
