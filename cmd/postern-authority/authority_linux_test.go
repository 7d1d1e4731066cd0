package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/client"
	"postern/supervisor/order"
	"postern/supervisor/store"
)

// patience bounds every wait of a test; an event that comes ends the wait.
const patience = 20 * time.Second

const program = "postern-authority"

// The test binary is also the program.
func TestMain(m *testing.M) {
	if os.Args[0] == program {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a running authority with this test as posternd.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	orders int
	stderr *buffer
	ended  chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// start runs the program with fd3 as its descriptor 3, which is closed here.
func start(t *testing.T, fd3 *os.File, args ...string) *process {
	t.Helper()
	return startAs(t, os.Geteuid(), fd3, args...)
}

func startAs(t *testing.T, uid int, fd3 *os.File, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &buffer{}, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{program}, args...), Stderr: p.stderr, Env: []string{}}
	if uid != os.Geteuid() {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if fd3 != nil {
		p.cmd.ExtraFiles = []*os.File{fd3}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if fd3 != nil {
		fd3.Close()
	}
	go func() { p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Log(p.stderr)
		}
	})
	return p
}

// exit waits for its end and returns its status.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("it runs on\n%s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// authority starts one over a state directory, with its order socket.
func authority(t *testing.T, dir string) *process {
	t.Helper()
	return authorityAs(t, dir, os.Geteuid())
}

func authorityAs(t *testing.T, dir string, uid int) *process {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := startAs(t, uid, os.NewFile(uintptr(pair[1]), "orders"), "--state-dir", dir)
	p.orders = pair[0]
	t.Cleanup(func() { unix.Close(pair[0]) })
	unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)})
	return p
}

// order waits for its next order; nil where it has closed its end.
func (p *process) order() order.Up {
	p.t.Helper()
	buf := make([]byte, order.MaxMessage)
	for {
		n, err := unix.Read(p.orders, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			p.t.Fatalf("no order: %v\n%s", err, p.stderr)
		}
		if n == 0 {
			return nil
		}
		m, err := order.DecodeUp(buf[:n])
		if err != nil {
			p.t.Fatal(err)
		}
		return m
	}
}

func (p *process) say(m order.Down, fds ...int) {
	p.t.Helper()
	raw, err := order.EncodeDown(m)
	if err == nil {
		err = unix.Sendmsg(p.orders, raw, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) facts(r order.Root) {
	p.t.Helper()
	raw, err := order.EncodeRoot(r)
	if err != nil {
		p.t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("facts", unix.MFD_CLOEXEC)
	if err == nil {
		_, err = unix.Write(fd, raw)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.say(order.Facts{Version: r.Version}, fd)
}

// control hands a listening socket over and returns its path.
func (p *process) control() string {
	p.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pa")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "control.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 16))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.say(order.Control{}, fd)
	return path
}

func ask[R any](t *testing.T, path string, a api.Action, params any) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.Call(ctx, a, params, client.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := api.DecodeResult[R](raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test asks as root")
	}
	t.Skip("this test asks as root")
}

func TestAuthority1_OpenRecordsAreUnknownBeforeAnythingIsServed(t *testing.T) {
	needRoot(t)
	dir := stateDir(t)
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	calls := make([]store.Call, 5)
	b.OpenSession(store.Session{ID: id[ids.Session](1), Task: id[ids.Task](1), Project: id[ids.Project](1), UID: 1001, Opened: 1})
	for i := range calls {
		calls[i] = store.Call{ID: id[ids.Call](byte(i)), At: int64(i + 1), Project: id[ids.Project](1), Tool: fmt.Sprint("tool", i)}
		b.Admit(&calls[i])
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.End(calls[0].Seq, store.Outcome{State: store.Completed, At: 9})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // with four calls open
		t.Fatal(err)
	}

	p := authority(t, dir)
	p.facts(document())
	path := p.control() // in its queue before it has even opened its store
	got := ask[api.ActivityResult](t, path, api.Activity, api.ActivityParams{})
	if len(got.Rows) != len(calls) {
		t.Fatalf("%+v", got)
	}
	for _, r := range got.Rows {
		want := "unknown"
		if r.Call == string(calls[0].ID) {
			want = "completed"
		}
		if r.State != want {
			t.Errorf("%s is %s, want %s", r.Call, r.State, want)
		}
	}
	st := ask[api.StatusResult](t, path, api.Status, struct{}{})
	if st.Incarnation != 2 || st.OpenCalls != 0 || st.Sessions != 0 || st.Facts != 7 || st.State != "serving" {
		t.Errorf("%+v", st)
	}
	if _, ok := p.order().(order.Ready); !ok {
		t.Error("its first order is not Ready")
	}
	if ack, ok := p.order().(order.FactsAck); !ok || ack.Version != 7 {
		t.Error("the facts are not acknowledged")
	}
	// kill -9, and again: nothing becomes open, nothing is counted twice.
	p.cmd.Process.Kill()
	p.exit()
	p = authority(t, dir)
	p.facts(document())
	path = p.control()
	again := ask[api.ActivityResult](t, path, api.Activity, api.ActivityParams{State: "unknown"})
	if len(again.Rows) != 4 {
		t.Errorf("%+v", again.Rows)
	}
	if st := ask[api.StatusResult](t, path, api.Status, struct{}{}); st.Incarnation != 3 {
		t.Errorf("%+v", st)
	}
}

func TestAuthority2_ItRefusesToRunWithoutTheOrderSocket(t *testing.T) {
	dir := stateDir(t)
	p := start(t, nil, "--state-dir", dir)
	if code := p.exit(); code != refusal.ExitFailed || !strings.Contains(p.stderr.String(), "descriptor 3") {
		t.Errorf("without one: %d\n%s", code, p.stderr)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if code := start(t, r, "--state-dir", dir).exit(); code != refusal.ExitFailed {
		t.Errorf("with a pipe: %d", code)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	if code := start(t, os.NewFile(uintptr(pair[1]), "stream"), "--state-dir", dir).exit(); code != refusal.ExitFailed {
		t.Errorf("with a stream socket: %d", code)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("it opened its store: %v, %v", files, err)
	}
	if code := start(t, nil, "--state-dir", dir, "now").exit(); code != refusal.ExitUsage {
		t.Errorf("with an argument: %d", code)
	}
}

func TestAuthority2_ItEndsWithPosterndAndWithItsStore(t *testing.T) {
	ready := func(p *process) {
		t.Helper()
		if _, ok := p.order().(order.Ready); !ok {
			t.Fatal("it is not ready")
		}
	}
	t.Run("posternd is lost", func(t *testing.T) {
		p := authority(t, stateDir(t))
		ready(p)
		unix.Shutdown(p.orders, unix.SHUT_RDWR)
		if code := p.exit(); code != refusal.ExitFailed {
			t.Errorf("%d", code)
		}
	})
	t.Run("posternd says what it does not know", func(t *testing.T) {
		for says, change := range map[string]func(*order.Root){
			"a class": func(r *order.Root) { r.Servers[0].Revisions[1].Classes["run"] = []string{"teleport"} },
			"a tier":  func(r *order.Root) { r.Servers[0].Revisions[1].Tiers["run"] = "harmless" },
		} {
			p := authority(t, stateDir(t))
			ready(p)
			d := document()
			change(&d)
			p.facts(d)
			if code := p.exit(); code != refusal.ExitFailed || !strings.Contains(p.stderr.String(), "not known") {
				t.Errorf("%s: %d\n%s", says, code, p.stderr)
			}
			for m := p.order(); m != nil; m = p.order() {
				if _, ok := m.(order.FactsAck); ok {
					t.Errorf("%s: it acknowledged the facts", says)
				}
			}
		}
	})
	t.Run("another one has its store", func(t *testing.T) {
		dir := stateDir(t)
		first := authority(t, dir)
		ready(first)
		if code := authority(t, dir).exit(); code != refusal.ExitFailed {
			t.Errorf("%d", code)
		}
		first.cmd.Process.Signal(syscall.SIGTERM)
		if code := first.exit(); code != 0 {
			t.Errorf("the first ends with %d", code)
		}
		next := authority(t, dir)
		ready(next)
	})
	t.Run("its store is not safe, or damaged", func(t *testing.T) {
		open := stateDir(t)
		os.Chmod(open, 0o777)
		damaged := stateDir(t)
		if err := os.WriteFile(filepath.Join(damaged, store.PolicyFile), bytes.Repeat([]byte("not a database. "), 1024), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{open, damaged, filepath.Join(open, "missing")} {
			if code := authority(t, dir).exit(); code != refusal.ExitFailed {
				t.Errorf("%s: %d", dir, code)
			}
		}
	})
	t.Run("its store can not be written any more", func(t *testing.T) {
		needRoot(t)
		p := authority(t, stateDir(t))
		p.facts(document())
		path := p.control()
		ask[api.StatusResult](t, path, api.Status, struct{}{})
		// From now on no write to a file of that process works.
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: 1}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := client.Dial(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Call(ctx, api.AccountSuspend, api.Selected{Selector: "alice"}, client.Options{}, nil); err == nil {
			t.Error("a change that was not written is told as made")
		}
		if code := p.exit(); code == 0 {
			t.Error("it goes on, or ends as if all were well")
		}
	})
}

func TestC9_TheAuthorityRecordsItsOwnChanges(t *testing.T) {
	needRoot(t)
	dir := stateDir(t)
	p := authority(t, dir)
	p.facts(document())
	path := p.control()
	ask[api.RevokeResult](t, path, api.AccountSuspend, api.Selected{Selector: "alice"})
	ask[api.AccountResult](t, path, api.AccountActivate, api.Selected{Selector: "alice"})
	raw, err := os.ReadFile(filepath.Join(dir, audit.Name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"actor":"uid 0","origin":"control.sock, process `) || !strings.Contains(lines[0], `"action":"account.suspend"`) ||
		!strings.Contains(lines[0], `"after":"suspended"`) || !strings.Contains(lines[1], `"before":"suspended","after":"active"`) {
		t.Errorf("%s", raw)
	}
}

// Nobody of the same user looks into its memory, where tokens pass: what is not
// dumpable belongs to root in /proc, whoever it runs as.
func TestTheAuthorityIsNotDumpable(t *testing.T) {
	needRoot(t)
	const user = 61001
	dir, err := os.MkdirTemp("/tmp", "pa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	owner := func(pid int) uint32 {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid
	}
	twin := exec.Command("/bin/sleep", "60")
	twin.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := twin.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { twin.Process.Kill(); twin.Wait() }()
	if got := owner(twin.Process.Pid); got != user {
		t.Fatalf("an ordinary process of the user belongs to %d here", got)
	}
	p := authorityAs(t, dir, user)
	if _, ok := p.order().(order.Ready); !ok {
		t.Fatal("it is not ready")
	}
	if got := owner(p.cmd.Process.Pid); got != 0 {
		t.Errorf("its memory belongs to %d", got)
	}
}
