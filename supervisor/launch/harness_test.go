package launch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/ids"
	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// The test binary is also the authority: a relay that a test drives, so that every
// order a taken-over authority could give can be given.
func TestMain(m *testing.M) {
	if os.Args[0] == authorityProgram {
		relay()
		return
	}
	if role := os.Getenv("POSTERN_LAUNCH_ROLE"); role != "" {
		childRole(role)
		return
	}
	status := m.Run()
	os.RemoveAll(builtDir)
	for _, pattern := range []string{"/sys/fs/cgroup/*/postern-launch-test", "/sys/fs/cgroup/postern-launch-test"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			os.Remove(g) // only an empty one goes
		}
	}
	os.Exit(status)
}

var builtDir string // of built, removed at the end

const fakeUID, fakeGID = 64321, 64321

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root")
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "plb")
	if err != nil {
		return "", err
	}
	builtDir = dir
	for _, b := range []string{jailProgram, bridgeProgram} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, b), "postern/cmd/"+b)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", b, err, out)
		}
	}
	c := exec.Command("go", "build", "-o", filepath.Join(dir, "server"), "./testdata/server")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build server: %w\n%s", err, out)
	}
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, authorityProgram), raw, 0o755)
})

// rig is one posternd in this process.
type rig struct {
	t    *testing.T
	dir  string
	cfg  Config
	stop context.CancelFunc
	done chan error
	log  *buffer
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pl")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newConfig(t *testing.T) Config {
	t.Helper()
	needRoot(t)
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	all, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	lock := filepath.Join(dir, "lock")
	if err := os.Mkdir(lock, 0o755); err != nil {
		t.Fatal(err)
	}
	return Config{RootDir: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Libexec: bin, LockDir: lock,
		Cgroup: "postern-launch-test/" + filepath.Base(dir), UIDs: order.Range{First: 1_800_000_000 + uint32(os.Getpid()%4096)*64, Count: 64}, UID: fakeUID, GID: fakeGID, Audit: audit.Default(),
		Hosts: []order.Host{{ID: "local", UID: 64400, Accounts: []string{"*"}, Projects: []string{"*"}}}, Profiles: all}
}

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Dir(cfg.RunDir), cfg: cfg, done: make(chan error, 1), log: &buffer{}}
	ready := make(chan struct{}, 64)
	r.cfg.Ready = func() { ready <- struct{}{} }
	r.cfg.Stderr = r.log
	r.cfg.Log = hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Debug})
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- Run(ctx, r.cfg) }()
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("posternd ended at its start: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatalf("the authority was not ready\n%s", r.log)
	}
	t.Cleanup(func() { r.down() })
	return r
}

func (r *rig) down() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	if err := <-r.done; err != nil {
		r.t.Errorf("posternd ended with %v", err)
	}
	if r.t.Failed() {
		r.t.Logf("%s", r.log)
	}
}

// ask calls one action of root.sock.
func (r *rig) ask(a api.Action, params any, with ...func(*api.Request)) (map[string]any, *api.Refusal) {
	r.t.Helper()
	c, err := net.Dial("unix", filepath.Join(r.cfg.RunDir, rootSocket))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	raw, _ := json.Marshal(params)
	req := api.Request{ID: 7, Action: a, Params: raw}
	for _, f := range with {
		f(&req)
	}
	line, _ := api.Encode(req)
	c.Write(line)
	in := bufio.NewReader(c)
	for {
		b, err := in.ReadBytes('\n')
		if err != nil {
			r.t.Fatalf("%s: %v", a, err)
		}
		res, err := api.DecodeResponse(bytes.TrimSpace(b))
		if err != nil {
			r.t.Fatal(err)
		}
		if res.Event != nil {
			continue
		}
		if res.Refusal != nil {
			return nil, res.Refusal
		}
		var m map[string]any
		json.Unmarshal(res.Result, &m)
		return m, nil
	}
}

func (r *rig) must(a api.Action, params any, with ...func(*api.Request)) map[string]any {
	r.t.Helper()
	m, refused := r.ask(a, params, with...)
	if refused != nil {
		r.t.Fatalf("%s: %s: %v", a, refused.Code, refused)
	}
	return m
}

func (r *rig) refused(want refusal.Code, a api.Action, params any, with ...func(*api.Request)) *api.Refusal {
	r.t.Helper()
	m, refused := r.ask(a, params, with...)
	if refused == nil {
		r.t.Fatalf("%s %v was done: %v", a, params, m)
	}
	if refused.Code != want {
		r.t.Fatalf("%s %v: refused as %s (%s), want %s", a, params, refused.Code, refused.Detail, want)
	}
	return refused
}

func (r *rig) workspace(name string, uid int) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// project makes an account, a workspace and a project.
func (r *rig) project(name string, uid int) (id ids.Project, workspace string) {
	r.t.Helper()
	r.must(api.AccountAdd, api.AccountAddParams{Name: name, UIDs: []uint32{uint32(uid)}})
	workspace = r.workspace("ws-"+name, uid)
	m := r.must(api.ProjectAdd, api.ProjectAddParams{Label: name, Workspace: workspace, Owner: name})
	return ids.Project(m["project"].(string)), workspace
}

func (r *rig) server(label string, args ...string) (ids.Server, ids.Revision) {
	r.t.Helper()
	pkg := filepath.Join(r.dir, "pkg-"+label)
	os.MkdirAll(pkg, 0o755)
	raw, err := os.ReadFile(filepath.Join(r.cfg.Libexec, "server"))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pkg, "server"), raw, 0o755); err != nil {
		r.t.Fatal(err)
	}
	m := r.must(api.ServerAdd, api.ServerParams{Label: label, Profile: "static", Package: pkg, Command: append([]string{"/package/server"}, args...)})
	return ids.Server(m["server"].(string)), ids.Revision(m["revision"].(string))
}

// authority drives the relay.
type driver struct {
	t   *testing.T
	c   *net.UnixConn
	buf []byte
}

func (r *rig) drive() *driver {
	r.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(r.cfg.RunDir, controlSocket)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return &driver{t: r.t, c: c}
}

// give sends one order as the authority.
func (d *driver) give(m order.Up) {
	d.t.Helper()
	raw, err := order.EncodeUp(m)
	if err != nil {
		d.t.Fatal(err)
	}
	d.say(string(raw))
}

func (d *driver) say(line string) {
	d.t.Helper()
	if _, err := d.c.Write([]byte(line + "\n")); err != nil {
		d.t.Fatal(err)
	}
}

// next returns the next message of posternd that keep wants, and its descriptors.
func (d *driver) next(keep func(order.Down) bool) (order.Down, []*os.File) {
	d.t.Helper()
	d.c.SetReadDeadline(time.Now().Add(20 * time.Second))
	oob := make([]byte, 256)
	b := make([]byte, order.MaxMessage)
	var files []*os.File
	for {
		// Two messages may have come by one read: what is here goes first.
		for {
			line, rest, ok := bytes.Cut(d.buf, []byte("\n"))
			if !ok {
				break
			}
			d.buf = append([]byte(nil), rest...)
			m, err := order.DecodeDown(line)
			if err != nil {
				d.t.Fatalf("%v: %q", err, line)
			}
			if keep(m) {
				return m, files
			}
		}
		for _, f := range files {
			f.Close()
		}
		files = nil
		n, oobn, _, _, err := d.c.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			d.t.Fatalf("the relay ended: %v", err)
		}
		d.buf = append(d.buf, b[:n]...)
		if oobn > 0 {
			ms, _ := syscall.ParseSocketControlMessage(oob[:oobn])
			for _, m := range ms {
				fds, _ := syscall.ParseUnixRights(&m)
				for _, fd := range fds {
					files = append(files, os.NewFile(uintptr(fd), "passed"))
				}
			}
		}
	}
}

func expect[M order.Down](d *driver) (M, []*os.File) {
	d.t.Helper()
	m, files := d.next(func(m order.Down) bool { _, ok := m.(M); return ok })
	return m.(M), files
}

// answer waits for the end of a launch: launched or not.
func (d *driver) answer() (order.Down, []*os.File) {
	d.t.Helper()
	return d.next(func(m order.Down) bool {
		switch m.(type) {
		case order.Launched, order.NotLaunched:
			return true
		}
		return false
	})
}

func (d *driver) launched() (order.Launched, []*os.File) {
	d.t.Helper()
	m, files := d.answer()
	l, ok := m.(order.Launched)
	if !ok {
		d.t.Fatalf("not launched: %+v", m)
	}
	return l, files
}

func (d *driver) notLaunched(want refusal.Code) order.NotLaunched {
	d.t.Helper()
	m, _ := d.answer()
	n, ok := m.(order.NotLaunched)
	if !ok || n.Code != want {
		d.t.Fatalf("want a refusal as %s, got %+v", want, m)
	}
	return n
}

// relay is the authority of the tests. It takes facts, says it is ready, listens on
// control.sock, and relays lines in both directions, with descriptors downwards. A
// line that begins with "!" is for itself.
func relay() {
	runtime.LockOSThread()
	send := func(m order.Up) {
		raw, _ := order.EncodeUp(m)
		syscall.Write(3, raw)
	}
	ack := true
	var mu sync.Mutex
	var client *net.UnixConn
	send(order.Opening{})
	send(order.Ready{})
	buf, oob := make([]byte, order.MaxMessage), make([]byte, 256)
	for {
		n, oobn, _, _, err := syscall.Recvmsg(3, buf, oob, 0)
		if err != nil || n == 0 {
			return
		}
		var fds []int
		if oobn > 0 {
			ms, _ := syscall.ParseSocketControlMessage(oob[:oobn])
			for _, m := range ms {
				got, _ := syscall.ParseUnixRights(&m)
				fds = append(fds, got...)
			}
		}
		m, err := order.DecodeDown(buf[:n])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		switch m := m.(type) {
		case order.Facts:
			raw, _ := io.ReadAll(io.NewSectionReader(os.NewFile(uintptr(fds[0]), "facts"), 0, order.MaxRoot))
			root, err := order.DecodeRoot(raw)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			fmt.Fprintf(os.Stderr, "told of access: present %v, %d bytes, error %q\n", root.Access.Present, len(root.Access.Document), root.Access.Error)
			fds = nil // os.NewFile closes it
			mu.Lock()
			if ack {
				send(order.FactsAck{Version: m.Version})
			}
			mu.Unlock()
		case order.Ping:
			mu.Lock()
			if ack {
				send(order.Pong{N: m.N, Sessions: 2, Calls: 1})
			}
			mu.Unlock()
		case order.Control:
			l, err := net.FileListener(os.NewFile(uintptr(fds[0]), "control"))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			fds = nil
			go func() {
				for {
					c, err := l.(*net.UnixListener).AcceptUnix()
					if err != nil {
						return
					}
					mu.Lock()
					client = c
					mu.Unlock()
					go func() {
						in := bufio.NewReaderSize(c, order.MaxMessage)
						for {
							line, err := in.ReadString('\n')
							if err != nil {
								return
							}
							line = strings.TrimSuffix(line, "\n")
							switch line {
							case "!exit":
								os.Exit(5)
							case "!mute":
								mu.Lock()
								ack = false
								mu.Unlock()
							case "!rights":
								syscall.Sendmsg(3, []byte("StatJails {\"seq\":1}"), syscall.UnixRights(0, 1), nil, 0)
							case "!status":
								raw, _ := os.ReadFile("/proc/self/status")
								env, _ := os.ReadFile("/proc/self/environ")
								open, _ := os.ReadDir("/proc/self/fd")
								cwd, _ := os.Getwd()
								fmt.Fprintf(os.Stderr, "%s\nenviron=%q\ncwd=%s\nfds=%d\n!end\n", raw, env, cwd, len(open))
							default:
								syscall.Write(3, []byte(line))
							}
						}
					}()
				}
			}()
		default:
			mu.Lock()
			if client != nil {
				client.WriteMsgUnix(append(append([]byte(nil), buf[:n]...), '\n'), syscall.UnixRights(fds...), nil)
			}
			mu.Unlock()
		}
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}
}

// document is what asProcess needs of a Config.
type document struct {
	Root, State, Run, Libexec, Lock, Cgroup string
	UIDs                                    order.Range
}

// asProcess runs posternd in a process of its own, so that it can be killed.
func asProcess(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		panic(err)
	}
	cfg := Config{RootDir: d.Root, StateDir: d.State, RunDir: d.Run, Libexec: d.Libexec, LockDir: d.Lock, Cgroup: d.Cgroup, UIDs: d.UIDs, UID: fakeUID, GID: fakeGID, Audit: audit.Default()}
	if cfg.Profiles, err = profiles.Builtin(); err != nil { // the digests are not in the document
		panic(err)
	}
	cfg.Stderr, cfg.Log = os.Stderr, hclog.New(&hclog.LoggerOptions{Output: os.Stderr})
	cfg.Ready = func() { os.Stdout.Write([]byte{'.'}) }
	if err := Run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
		runtime.Gosched()
		select {
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func readLine(t *testing.T, f *os.File) string {
	t.Helper()
	s, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return s
}
