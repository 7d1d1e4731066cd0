package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// personUID owns the benchmark's project and connects without a token.
const personUID = 61001

func setUp(r *rig.Rig, pkg string) (project string, err error) {
	for _, args := range [][]string{
		{"account", "add", "person", "--uid", fmt.Sprint(personUID)},
		{"server", "add", "count", "--profile", "static", "--package", pkg, "--", "/package/count", "/dev/null"},
	} {
		if out, errb, exit := r.CLI(0, args...); exit != 0 {
			return "", fmt.Errorf("postern %v: %s%s", args, out, errb)
		}
	}
	return addProject(r, "p")
}

// addProject makes a project of the person's in which the server's tools are granted.
func addProject(r *rig.Rig, label string) (project string, err error) {
	ws := filepath.Join(r.Dir, "ws-"+label)
	if err := os.Mkdir(ws, 0o755); err != nil {
		return "", err
	}
	if err := os.Chown(ws, personUID, personUID); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"project", "add", label, "--workspace", ws, "--owner", "person"}, {"project", "set", label, "--person-bind=true"},
		{"connection", "add", label, "count"}, {"connection", "grant", label, "count", "echo", "big", "--tier", "reversible"},
	} {
		if out, errb, exit := r.CLI(0, args...); exit != 0 {
			return "", fmt.Errorf("postern %v: %s%s", args, out, errb)
		}
	}
	var list api.ProjectListResult
	if err := r.Call(api.ProjectList, nil, &list); err != nil {
		return "", err
	}
	for _, p := range list.Projects {
		if p.Label == label {
			return p.Project, nil
		}
	}
	return "", fmt.Errorf("project %s is not listed", label)
}

// client calls one tool over a pair of streams.
type client struct {
	in    io.Writer
	out   *bufio.Reader
	close func()
	mu    sync.Mutex
	wait  map[int]chan struct{}
	next  int
	fault error
	ended chan struct{}
}

func (c *client) begin() (*client, error) {
	c.wait, c.ended = map[int]chan struct{}{}, make(chan struct{})
	go c.read()
	if err := c.ask(`"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, err
	}
	io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return c, c.call() // starts what starts lazily
}

func (c *client) read() {
	defer close(c.ended)
	for {
		line, err := c.out.ReadSlice('\n')
		if err != nil {
			c.fault = err
			return
		}
		if bytes.Contains(line, []byte(`"isError":true`)) || bytes.Contains(line, []byte(`"error":`)) {
			c.fault = fmt.Errorf("refused: %s", line)
			return
		}
		i := bytes.Index(line, []byte(`"id":`))
		if i < 0 {
			continue
		}
		rest := line[i+5:]
		n, err := strconv.Atoi(string(rest[:bytes.IndexAny(rest, ",}")]))
		if err != nil {
			continue
		}
		c.mu.Lock()
		w := c.wait[n]
		delete(c.wait, n)
		c.mu.Unlock()
		if w != nil {
			close(w)
		}
	}
}

func (c *client) ask(methodAndParams string) error {
	w := make(chan struct{})
	c.mu.Lock()
	c.next++
	n := c.next
	c.wait[n] = w
	c.mu.Unlock()
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%s}`+"\n", n, methodAndParams); err != nil {
		return err
	}
	select {
	case <-w:
		return nil
	case <-c.ended:
		return fmt.Errorf("no answer: %w", c.fault)
	case <-time.After(30 * time.Second):
		return errors.New("no answer in time")
	}
}

// payload is about a hundred bytes, as a small call's arguments are.
const payload = `"tools/call","params":{"name":"echo","arguments":{"text":"the quick brown fox jumps over the lazy dog, once and once more, and then rests"}}`

func (c *client) call() error { return c.ask(payload) }

// spawn starts a command that speaks MCP on its standard streams.
func spawn(argv []string, uid int) (*client, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = "/", rig.As(uid), []string{"PATH=/usr/bin:/bin"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &client{in: in, out: bufio.NewReaderSize(out, longest), close: func() { in.Close(); cmd.Wait() }}
	got, err := c.begin()
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return got, nil
}

// connect is what a runtime does.
func connect(r *rig.Rig, project string) (*client, error) {
	return spawn([]string{filepath.Join(r.Bin, "postern"), "--run-dir", r.RunDir, "connect", "--project", project}, personUID)
}

// memoryRig is a second Postern whose records lie in memory: the same programs, and
// syncs that cost nothing. What it adds is the path itself.
func memoryRig(bin string) (*rig.Rig, error) {
	dir, err := os.MkdirTemp("/dev/shm", "bench-")
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err = errors.Join(os.Chmod(dir, 0o755), unix.Statfs(dir, &fs)); err == nil && fs.Type != unix.TMPFS_MAGIC {
		err = errors.New("/dev/shm is no tmpfs")
	}
	var r *rig.Rig
	if err == nil {
		r, err = rig.Start(rig.Config{Bin: bin, StateDir: filepath.Join(dir, "state")})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return r, nil
}

// dial binds over the project's socket as the person would, without connect.
func dial(r *rig.Rig, project string) (*client, error) {
	conn, err := dialAs(personUID, filepath.Join(r.RunDir, "p", project, "bridge.sock"))
	if err != nil {
		return nil, err
	}
	out := bufio.NewReaderSize(conn, longest)
	for _, line := range []string{`{"postern":{"bind":1}}`, `{"postern":{"stdio":"here"}}`} {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			return nil, err
		}
		if line == `{"postern":{"bind":1}}` {
			answer, err := out.ReadString('\n')
			if err != nil || !bytes.Contains([]byte(answer), []byte(`"session"`)) {
				return nil, fmt.Errorf("bind: %s %v", answer, err)
			}
		}
	}
	c := &client{in: conn, out: out, close: func() { conn.Close() }}
	return c.begin()
}

// dialAs connects with the effective uid of a person, which is what the peer sees.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread is not given back: it has another uid.
		lockThread()
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), ^uintptr(0)); errno != 0 {
			done <- result{nil, errno}
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		conn, err := net.FileConn(f)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func (w *way) costs() costs {
	if w.rig == nil {
		return nil
	}
	return costsOf(w.rig)
}

// turn measures one caller and sixteen on a fresh connection.
func (w *way) turn(calls int) error {
	c, err := w.open()
	if err != nil {
		return err
	}
	defer c.close()
	for range calls / 10 {
		if err := c.call(); err != nil {
			return err
		}
	}
	at := w.costs()
	one, err := measure(c, payload, 1, calls)
	if err != nil {
		return err
	}
	between := w.costs()
	many, err := measure(c, payload, callers, calls*3)
	if err != nil {
		return err
	}
	if w.rig != nil {
		w.cost[0].add(at, between, calls)
		w.cost[1].add(between, w.costs(), calls*3)
	}
	for i, size := range sizes {
		s, err := measure(c, size.call, 1, max(calls/size.share, 10))
		if err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
		w.size[i] = append(w.size[i], s)
	}
	w.one, w.many = append(w.one, one), append(w.many, many)
	return nil
}

func measure(c *client, call string, n, calls int) (sample, error) {
	took := make([][]time.Duration, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			took[i] = make([]time.Duration, 0, calls/n)
			for range calls / n {
				t := time.Now()
				if errs[i] = c.ask(call); errs[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(t))
			}
		})
	}
	wg.Wait()
	all := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	d := slices.Sorted(slices.Values(slices.Concat(took...)))
	return sample{p10: d[len(d)/10], p50: d[len(d)/2], p99: d[len(d)*99/100], rate: float64(len(d)) / all.Seconds()}, nil
}

// diskFloor is the median of a 320-byte overwrite with fdatasync in a preallocated
// file of the store's file system, each after a pause.
func diskFloor(dir string, pause time.Duration) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "floor-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	const times = 400
	var took []time.Duration
	for i := range times {
		time.Sleep(pause)
		t := time.Now()
		if _, err := f.WriteAt(make([]byte, 320), int64(i)*320); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(t))
	}
	return median(took), nil
}
