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
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/supervisor/api"
)

const (
	someProject = ids.Project("prj_01a00000-0000-7000-8000-000000000001")
	sessionLine = `{"postern":{"session":"ses_01a00000-0000-7000-8000-000000000002"}}` + "\n"
	patience    = 20 * time.Second // a bound for a broken test, never waited for
)

// testBridge listens where a project's bridge would and plays it by hand.
type testBridge struct {
	t   *testing.T
	run string
	ln  *net.UnixListener
}

func newBridge(t *testing.T) *testBridge {
	t.Helper()
	run, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	dir := filepath.Join(run, "p", string(someProject))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "bridge.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ln.SetDeadline(time.Now().Add(patience))
	return &testBridge{t, run, ln}
}

// accept takes one connection and reads its bind line.
func (b *testBridge) accept() (*net.UnixConn, string) {
	b.t.Helper()
	c, err := b.ln.AcceptUnix()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	return c, line
}

// handed reads the line after the session with whatever descriptors are in the
// same message.
func (b *testBridge) handed(c *net.UnixConn) (string, []*os.File) {
	b.t.Helper()
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(16*4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		b.t.Fatal(err)
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, fd := range fds {
			f := os.NewFile(uintptr(fd), "passed")
			b.t.Cleanup(func() { f.Close() })
			files = append(files, f)
		}
	}
	return string(buf[:n]), files
}

// runtime is a running connect with the runtime's ends of its streams.
type runtimeSide struct {
	cmd    *exec.Cmd
	in     *os.File // nil: given by the test
	out    *os.File
	errs   bytes.Buffer
	waited chan error
}

func (b *testBridge) connect(stdin *os.File, extra []*os.File, args ...string) *runtimeSide {
	b.t.Helper()
	r := &runtimeSide{waited: make(chan error, 1)}
	r.cmd = exec.Command(binary, append([]string{"connect", "--run-dir", b.run, "--project", string(someProject)}, args...)...)
	var theirs []*os.File
	if stdin == nil {
		read, write, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		stdin, r.in, theirs = read, write, append(theirs, read)
	}
	read, write, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	r.out, theirs = read, append(theirs, write)
	r.out.SetReadDeadline(time.Now().Add(patience))
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr, r.cmd.ExtraFiles = stdin, write, &r.errs, extra
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	go func() { r.waited <- r.cmd.Wait() }()
	b.t.Cleanup(func() { r.cmd.Process.Kill() })
	return r
}

// end waits for the program and returns its status, what is left on its standard
// output, and its standard error.
func (b *testBridge) end(r *runtimeSide) (int, string, string) {
	b.t.Helper()
	select {
	case <-r.waited:
	case <-time.After(patience):
		b.t.Fatal("connect did not end")
	}
	out, err := io.ReadAll(r.out)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.cmd.ProcessState.ExitCode(), string(out), r.errs.String()
}

func (b *testBridge) say(c *net.UnixConn, text string) {
	b.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		b.t.Fatal(err)
	}
}

// handedOver brings a session to where the bridge has both descriptors.
func (b *testBridge) handedOver(r *runtimeSide) (*net.UnixConn, []*os.File) {
	b.t.Helper()
	c, bind := b.accept()
	if bind != `{"postern":{"bind":1}}`+"\n" {
		b.t.Fatalf("bind line %q", bind)
	}
	b.say(c, sessionLine)
	line, files := b.handed(c)
	if line != `{"postern":{"stdio":"passed"}}`+"\n" || len(files) != 2 {
		b.t.Fatalf("%q with %d descriptors", line, len(files))
	}
	return c, files
}

func TestHandOver(t *testing.T) {
	b := newBridge(t)
	r := b.connect(nil, nil)
	c, files := b.handedOver(r)
	in, out := bufio.NewReader(files[0]), files[1]
	for i := range 3 {
		fmt.Fprintf(r.in, "question %d\n", i)
		got, err := in.ReadString('\n')
		if err != nil || got != fmt.Sprintf("question %d\n", i) {
			t.Fatalf("%q %v", got, err)
		}
		fmt.Fprintf(out, "answer %d\n", i)
	}
	answers := make([]byte, 27)
	if _, err := io.ReadFull(r.out, answers); err != nil || string(answers) != "answer 0\nanswer 1\nanswer 2\n" {
		t.Fatalf("%q %v", answers, err)
	}
	// Nobody but the bridge holds the streams: each end is seen at once, while
	// connect still runs.
	r.in.Close()
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatalf("the end of the input: %v", err)
	}
	out.Close()
	if n, err := r.out.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("the end of the output: %d %v", n, err)
	}
	b.say(c, `{"postern":{"ended":"stdin"}}`+"\n")
	if status, rest, errs := b.end(r); status != 0 || rest != "" || errs != "" {
		t.Fatalf("status %d %q %q", status, rest, errs)
	}
}

// The connection is the lifeline: it must be seen to end when connect is killed.
func TestLifelineEndsWithConnect(t *testing.T) {
	b := newBridge(t)
	r := b.connect(nil, nil)
	c, _ := b.handedOver(r)
	r.cmd.Process.Kill()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("%v", err)
	}
}

func TestEndsOfAHandedOverSession(t *testing.T) {
	for _, row := range []struct {
		name, last string
		status     int
		stderr     string
	}{
		{"the bridge dies", "", 1, "ended without a word"},
		{"the bridge dies in its last line", `{"postern":{"ended"`, 1, "ended without a word"},
		{"the task is revoked", `{"postern":{"ended":"task_ended"}}` + "\n", 1, "The task has ended; a new one is needed."},
		{"the hand-over is refused", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"hand-over: no"}}` + "\n", 1, "hand-over: no"},
		{"another line", `{"postern":{"session":"x"}}` + "\n", 1, "not its last one"},
		{"idle", `{"postern":{"ended":"idle"}}` + "\n", 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBridge(t)
			r := b.connect(nil, nil)
			c, files := b.handedOver(r)
			for _, f := range files {
				f.Close()
			}
			b.say(c, row.last)
			c.Close()
			status, out, errs := b.end(r)
			if status != row.status || out != "" || !strings.Contains(errs, row.stderr) || strings.Count(errs, "\n") != row.status {
				t.Fatalf("status %d %q %q", status, out, errs)
			}
		})
	}
}

// What is not a pipe or a stream socket is copied, both ways, to the last byte.
func TestCopied(t *testing.T) {
	b := newBridge(t)
	path := filepath.Join(t.TempDir(), "in")
	question := strings.Repeat("x", 3*copyBuffer) + "\nlast\n"
	if err := os.WriteFile(path, []byte(question), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	r := b.connect(stdin, nil)
	c, _ := b.accept()
	b.say(c, sessionLine)
	line := make([]byte, len(`{"postern":{"stdio":"here"}}`)+1)
	if _, err := io.ReadFull(c, line); err != nil || string(line) != `{"postern":{"stdio":"here"}}`+"\n" {
		t.Fatalf("%q %v", line, err)
	}
	got, err := io.ReadAll(c) // up to the half-close that tells the end of the input
	if err != nil || string(got) != question {
		t.Fatalf("%d bytes of %d, %v", len(got), len(question), err)
	}
	answer := strings.Repeat("y", 3*copyBuffer) + "\n" + `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
	read := make(chan string)
	go func() {
		buf := make([]byte, len(answer))
		io.ReadFull(r.out, buf)
		read <- string(buf)
	}()
	b.say(c, answer)
	if got := <-read; got != answer {
		t.Fatalf("%d bytes of %d", len(got), len(answer))
	}
	c.Close()
	if status, rest, errs := b.end(r); status != 0 || rest != "" || errs != "" {
		t.Fatalf("status %d %q %q", status, rest, errs)
	}
}

func TestEndsOfACopiedSession(t *testing.T) {
	for _, row := range []struct {
		name, last string
		status     int
		stdout     string
		stderr     string
	}{
		{"the bridge dies", "", 1, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,`, "bridge ended the connection"},
		{"the bridge dies within a line", `{"jsonrpc"`, 1, `{"jsonrpc"` + "\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,`, "bridge ended the connection"},
		{"suspended", `{"postern":{"ended":"account_suspended"}}` + "\n", 1, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"data":{"code":"account_suspended"`, "The account is suspended."},
		{"idle", `{"postern":{"ended":"idle"}}` + "\n", 0, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBridge(t)
			tty, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // an input that is copied and does not end
			if err != nil {
				t.Fatal(err)
			}
			stdin, other := os.NewFile(uintptr(tty[0]), "stdin"), os.NewFile(uintptr(tty[1]), "other")
			defer stdin.Close()
			defer other.Close()
			r := b.connect(stdin, nil)
			c, _ := b.accept()
			b.say(c, sessionLine)
			if line, files := b.handed(c); line != `{"postern":{"stdio":"here"}}`+"\n" || len(files) != 0 {
				t.Fatalf("%q with %d descriptors", line, len(files))
			}
			b.say(c, row.last)
			c.Close()
			status, out, errs := b.end(r)
			if status != row.status || !strings.HasPrefix(out, row.stdout) || (row.stdout == "") != (out == "") || !strings.Contains(errs, row.stderr) || strings.Count(errs, "\n") != row.status {
				t.Fatalf("status %d %q %q", status, out, errs)
			}
		})
	}
}

func TestRefusedBinds(t *testing.T) {
	for _, row := range []struct{ name, answer, code string }{
		{"refused", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":{"code":"person_bind_off","help":"x"}}}` + "\n", "person_bind_off"},
		{"refused with an unknown code", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":{"code":"allowed"}}}` + "\n", "internal"},
		{"closed", "", "session_ended"},
		{"no session", `{"postern":{}}` + "\n", "session_ended"},
		{"another kind of id", `{"postern":{"session":"tsk_01a00000-0000-7000-8000-000000000002"}}` + "\n", "session_ended"},
		{"not JSON", "hello\n", "session_ended"},
		{"two lines", sessionLine + sessionLine, "session_ended"},
		{"a long line", strings.Repeat("x", lineMax+1), "session_ended"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBridge(t)
			r := b.connect(nil, nil)
			c, _ := b.accept()
			io.WriteString(c, row.answer) // connect may have closed before all of it was written
			c.Close()
			status, out, errs := b.end(r)
			if status != 1 || !strings.Contains(out, `"code":"`+row.code+`"`) || strings.Count(errs, "\n") != 1 {
				t.Fatalf("status %d %q %q", status, out, errs)
			}
			oneDocument(t, row.name, out)
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		b := newBridge(t)
		os.Remove(filepath.Join(b.run, "p", string(someProject), "bridge.sock"))
		if status, out, _ := b.end(b.connect(nil, nil)); status != 1 || !strings.Contains(out, "project_unknown") {
			t.Fatalf("status %d %q", status, out)
		}
	})
}

func TestLabelIsResolved(t *testing.T) {
	b := newBridge(t)
	_, stop, err := serveFake(b.run, map[api.Action][]string{api.ProjectList: {`{"result":{"projects":[{"project":"` + string(someProject) + `","label":"demo"},{"project":"prj_01a00000-0000-7000-8000-000000000009","label":"other"}]}}`}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	r := b.connect(nil, nil, "--project", "demo")
	b.handedOver(r)
	r.cmd.Process.Kill()
}

func TestCLI3_TheTokenIsNowhereElse(t *testing.T) {
	const token = "pst_SECRETSECRETSECRETSECRETSECRETSECRETSECRETS"
	bind := `{"postern":{"bind":1,"token":"` + token + `"}}` + "\n"
	pipe := func(t *testing.T, text string) *os.File {
		t.Helper()
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { read.Close() })
		go func() {
			io.WriteString(write, text)
			write.Close()
		}()
		return read
	}
	for name, start := range map[string]func(*testing.T, *testBridge) *runtimeSide{
		"descriptor": func(t *testing.T, b *testBridge) *runtimeSide {
			return b.connect(nil, []*os.File{pipe(t, token+"\n")}, "--token-fd", "3")
		},
		"descriptor without newline": func(t *testing.T, b *testBridge) *runtimeSide {
			return b.connect(nil, []*os.File{pipe(t, token)}, "--token-fd", "3")
		},
		"file": func(t *testing.T, b *testBridge) *runtimeSide {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(token+"\n"), 0o400); err != nil {
				t.Fatal(err)
			}
			return b.connect(nil, nil, "--token-file", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t)
			r := start(t, b)
			c, line := b.accept()
			if line != bind {
				t.Fatalf("bind line %q", line)
			}
			proc := fmt.Sprintf("/proc/%d/", r.cmd.Process.Pid)
			if os.Geteuid() == 0 { // a process that cannot be dumped shows these to root only
				for _, f := range []string{"cmdline", "environ"} {
					raw, err := os.ReadFile(proc + f)
					if err != nil || bytes.Contains(raw, []byte("SECRET")) {
						t.Errorf("%s: %q %v", f, raw, err)
					}
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(proc+"environ", &st); err != nil || st.Uid != 0 {
				t.Errorf("the process may be dumped: uid %d %v", st.Uid, err)
			}
			b.say(c, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":{"code":"token_expired"}}}`+"\n")
			status, out, errs := b.end(r)
			if status != 1 || strings.Contains(out+errs, "SECRET") || !strings.Contains(errs, "has expired") {
				t.Fatalf("status %d %q %q", status, out, errs)
			}
		})
	}
	for name, text := range map[string]string{"empty": "\n", "nothing": "", "long": strings.Repeat("SECRET", 50), "not a token": `SECRET","x":"y` + "\n", "control": "SECRET\x00\n"} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t)
			status, out, errs := b.end(b.connect(nil, []*os.File{pipe(t, text)}, "--token-fd", "3"))
			if status != 1 || strings.Contains(out+errs, "SECRET") || !strings.Contains(out, "token_invalid") {
				t.Fatalf("status %d %q %q", status, out, errs)
			}
		})
	}
	t.Run("a link to a file", func(t *testing.T) {
		b := newBridge(t)
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o400)
		if err := os.Symlink("token", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if status, out, _ := b.end(b.connect(nil, nil, "--token-file", filepath.Join(dir, "link"))); status != 1 || !strings.Contains(out, "token_invalid") {
			t.Fatalf("status %d %q", status, out)
		}
	})
}

func TestCLI5_WhatIsPassed(t *testing.T) {
	dir := t.TempDir()
	file := func(fd int, err error) *os.File {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "x")
		t.Cleanup(func() { f.Close() })
		return f
	}
	pair := func(kind int) *os.File {
		t.Helper()
		p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		file(p[1], err)
		return file(p[0], err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	listening, tcp := file(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)), file(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	if err := errors.Join(unix.Bind(int(listening.Fd()), &unix.SockaddrUnix{Name: filepath.Join(dir, "s")}), unix.Listen(int(listening.Fd()), 1)); err != nil {
		t.Fatal(err)
	}
	open := func(path string, flags int) *os.File {
		t.Helper()
		return file(unix.Open(path, flags|unix.O_CLOEXEC, 0o600))
	}
	for _, row := range []struct {
		name           string
		f              *os.File
		asStdin, asOut bool
	}{
		{"the read end of a pipe", file(ends[0], nil), true, false},
		{"the write end of a pipe", file(ends[1], nil), false, true},
		{"a connected stream socket", pair(unix.SOCK_STREAM), true, true},
		{"a fifo that is open both ways never ends", open(fifo, unix.O_RDWR), false, false},
		{"a path", open(fifo, unix.O_PATH), false, false},
		{"a datagram socket", pair(unix.SOCK_DGRAM), false, false},
		{"a packet socket", pair(unix.SOCK_SEQPACKET), false, false},
		{"a listening socket", listening, false, false},
		{"an unconnected stream socket", file(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)), false, false},
		{"a TCP socket", tcp, false, false},
		{"a file", open(plain, unix.O_RDWR|unix.O_CREAT), false, false},
		{"a directory", open(dir, unix.O_RDONLY), false, false},
		{"a device", open(os.DevNull, unix.O_RDWR), false, false},
	} {
		if in, out := passable(row.f, read), passable(row.f, write); in != row.asStdin || out != row.asOut {
			t.Errorf("%s: passed as stdin %v, as stdout %v; wanted %v, %v", row.name, in, out, row.asStdin, row.asOut)
		}
	}
}
