package hostile

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/api"
)

// What is not exactly a bind line opens no session.
func TestDoor_C090_OnlyABindLineOpens(t *testing.T) {
	w := newWorld(t)
	token, _ := w.task(w.a, runtimeUID, 1)
	foreign, _ := w.task(w.b, runtimeUID, 1)
	for _, line := range []string{
		"", "\n\n", "{}", "null", "[]", `"x"`, `{"postern":{}}`, `{"postern":null}`, `{"postern":{"bind":0}}`, `{"postern":{"bind":2}}`, `{"postern":{"bind":"1"}}`,
		`{"postern":{"bind":1.5}}`, `{"postern":{"bind":1},"postern":{"bind":1}}`, `{"Postern":{"bind":1}}`, `{"postern":{"Bind":1}}`, `{"postern":{"bind":1,"uid":0}}`,
		`{"postern":{"bind":1,"project":"` + w.b.id + `"}}`, `{"postern":{"bind":1,"account":"alice"}}`, `{"postern":{"bind":1},"uid":62001}`,
		`{"postern":{"bind":1,"token":null}} {}`, `{"postern":{"bind":1,"token":7}}`, `[{"postern":{"bind":1}}]`, "\ufeff" + `{"postern":{"bind":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"postern":{"session":"ses_x"}}`, `{"postern":{"stdio":"here"}}`, "GET / HTTP/1.1", "\x00", strings.Repeat("{", 3000),
		`{"postern":{"bind":1,"token":"` + strings.Repeat("x", 5000) + `"}}`, // longer than the line may be
	} {
		c := w.door(w.a, aliceUID)
		io.WriteString(c, line+"\n")
		if got := codeOf(readLine(c)); got != "bad_request" {
			t.Errorf("%.60q: %q", line, got)
		}
		c.Close()
	}
	for _, c := range []struct {
		uid         int
		token, want string
	}{
		{malloryUID, "", "account_unknown"}, {bobUID, "", "not_member"}, {hostUID, "", "peer_refused"}, {0, "", ""}, {65534, "", "peer_refused"},
		{aliceUID, "garbage", "token_invalid"}, {aliceUID, "ptk_", "token_invalid"}, {runtimeUID, foreign, "token_invalid"}, {runtimeUID, foreign + "x", "token_invalid"},
		{runtimeUID, strings.ToUpper(token), "token_invalid"}, {aliceUID, token, "token_wrong_uid"}, {0, token, "token_wrong_uid"}, {malloryUID, token, "token_wrong_uid"},
	} {
		_, got := w.bind(w.a, c.uid, c.token)
		if got == "" || c.want != "" && got != c.want {
			t.Errorf("uid %d, token %.12q: %q, not %q", c.uid, c.token, got, c.want)
		}
	}
	if n := len(w.calls(w.a)); n != 0 {
		t.Errorf("%d calls", n)
	}
	// None of that used the token up.
	if m := w.open(w.a, runtimeUID, token).call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the token's own uid: %s", m.raw)
	}
	w.works(w.a)
}

// A hundred connections that say half a bind line, or nothing, for ever: refused in
// two seconds, and neither alice nor bob is kept out.
func TestDoor_HalfABindLineForEver(t *testing.T) {
	w := newWorld(t)
	var held []net.Conn
	began := time.Now()
	for n := range 100 {
		c := w.door(w.a, malloryUID)
		io.WriteString(c, []string{"", `{"postern":{"bi`, `{"postern":{"bind":1`}[n%3])
		held = append(held, c)
	}
	w.works(w.a)
	w.works(w.b)
	for n, c := range held {
		if got := codeOf(readLine(c)); got != "bad_request" && got != "too_many_sessions" {
			t.Errorf("connection %d: %q", n, got)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the last was refused after %v", took)
	}
	// One byte at a time is no way around the two seconds.
	c := w.door(w.a, aliceUID)
	began = time.Now()
	for i := range 1000 {
		if _, err := io.WriteString(c, " "); err != nil {
			break
		}
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		var b [1]byte
		if _, err := c.Read(b[:]); err == nil || !os.IsTimeout(err) {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("still open after %d bytes", i)
		}
	}
	w.works(w.a)
}

// Descriptors that come with the bind line reach neither the authority nor the bridge.
func TestDoor_DescriptorsWithTheBindLine(t *testing.T) {
	w := newWorld(t)
	w.works(w.a)
	count := func() int {
		names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.authority()))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := count()
	for range 20 {
		c := w.door(w.a, aliceUID)
		var fds []int
		for range 50 {
			f, err := os.Open("/etc/hostname")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fds = append(fds, int(f.Fd()))
		}
		if _, _, err := c.WriteMsgUnix([]byte(bindLine("")), syscall.UnixRights(fds...), nil); err != nil {
			io.WriteString(c, bindLine("")) // newer kernels do not even send them
		}
		if line := readLine(c); !strings.Contains(line, `"session"`) {
			t.Errorf("the line itself: %s", line)
		}
		c.Close()
	}
	until(t, "the authority holds what it held", func() bool { return count() <= before+4 })
	w.works(w.a)
}

// What is handed over must be a pipe or a connected stream, with the right access.
func TestDoor_OnlyPipesAndStreamsAreHandedOver(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := func(flags int) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "file"), flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	opened := func(fd int, err error) *os.File {
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "x")
	}
	pr, pw, _ := os.Pipe()
	d, _ := os.Open(dir)
	memfd := memfd(t)
	pidfd, _, _ := syscall.RawSyscall(434, uintptr(os.Getpid()), 0, 0)
	eventfd, _, _ := syscall.RawSyscall(290, 0, 0, 0)
	epoll := opened(syscall.EpollCreate1(0))
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	null, _ := os.OpenFile("/dev/null", os.O_RDWR, 0)
	path, _ := syscall.Open("/", 0x200000, 0) // O_PATH
	listening, err := net.Listen("unix", filepath.Join(dir, "l"))
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	lf, _ := listening.(*net.UnixListener).File()
	loose := opened(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	dgram, _ := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	seq, _ := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	inet := opened(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	netlink := opened(syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, 0))
	fd := func(f *os.File) int { return int(f.Fd()) }

	for name, wrong := range map[string]int{
		"a file": fd(file(os.O_RDWR)), "a directory": fd(d), "an epoll": fd(epoll), "a pidfd": int(pidfd), "an eventfd": int(eventfd), "a terminal": fd(tty),
		"a memfd": memfd, "/dev/null": fd(null), "an O_PATH": path, "a listening socket": fd(lf), "an unconnected socket": fd(loose),
		"a datagram socket": dgram[0], "a seqpacket socket": seq[0], "an inet socket": fd(inet), "a netlink socket": fd(netlink),
	} {
		for at, fds := range [][]int{{wrong, fd(pw)}, {fd(pr), wrong}, {wrong, wrong}} {
			if got := w.handOver(w.a, fds); got != "bad_request" {
				t.Errorf("%s at %d: %q", name, at, got)
			}
		}
	}
	for name, fds := range map[string][]int{
		"none": {}, "one": {fd(pr)}, "three": {fd(pr), fd(pw), fd(pw)}, "forty": make([]int, 40), "the wrong way round": {fd(pw), fd(pr)}, "both for reading": {fd(pr), fd(pr)}, "both for writing": {fd(pw), fd(pw)},
	} {
		if name == "forty" {
			for i := range fds {
				fds[i] = fd(pr)
			}
		}
		if got := w.handOver(w.a, fds); got != "bad_request" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// The connection itself, as both.
	c, code := w.bind(w.a, aliceUID, "")
	if code != "" {
		t.Fatal(code)
	}
	cf, _ := c.(*net.UnixConn).File()
	defer cf.Close()
	c.(*net.UnixConn).WriteMsgUnix([]byte(`{"postern":{"stdio":"passed"}}`+"\n"), syscall.UnixRights(fd(cf), fd(cf)), nil)
	io.WriteString(c, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	c.SetReadDeadline(time.Now().Add(3 * time.Second))
	io.Copy(io.Discard, c) // whatever it says, it says it to itself
	c.Close()

	for _, line := range []string{"", "{}", `{"postern":{"stdio":"gone"}}`, `{"postern":{"stdio":"here"},"x":1}`, `{ "postern":{"stdio":"here"}}`, strings.Repeat("x", 5000),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`, `{"postern":{"bind":1}}`} {
		c, code := w.bind(w.a, aliceUID, "")
		if code != "" {
			t.Fatal(code)
		}
		io.WriteString(c, line+"\n")
		if got := codeOf(readLine(c)); got != "bad_request" {
			t.Errorf("the line %.40q: %q", line, got)
		}
	}
	// The permitted twins: two pipes; two connected streams.
	in, out := pipe(t), pipe(t)
	w.handedOver(t, fd(in[0]), fd(out[1]), in[1], out[0])
	a, _ := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	b, _ := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	w.handedOver(t, a[0], b[0], os.NewFile(uintptr(a[1]), "a"), os.NewFile(uintptr(b[1]), "b"))
	w.works(w.a)
	if got := w.jail(w.a, "bridge").Sessions; got > 3 {
		t.Errorf("%d sessions are left", got)
	}
}

// A session that hands over again, or sends descriptors later, gains nothing.
func TestDoor_ASecondHandOverEndsTheSession(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	in, out := pipe(t), pipe(t)
	r.c.(*net.UnixConn).WriteMsgUnix([]byte(`{"postern":{"stdio":"passed"}}`+"\n"), syscall.UnixRights(int(in[0].Fd()), int(out[1].Fd())), nil)
	r.send(`{"postern":{"stdio":"here"}}`)
	for {
		m := r.read()
		if m.raw == "" {
			break
		}
		if m.outcome() == "ok" && m.Postern == nil {
			t.Errorf("after a second hand-over: %s", m.raw)
		}
	}
	w.works(w.a)
}

// Closing at every step leaves no session, no descriptor and no open record.
func TestDoor_ClosingAtEachStep(t *testing.T) {
	w := newWorld(t)
	w.works(w.a)
	steps := []string{"{\"postern\"", ":{\"bind\":1}}\n", `{"postern":{"stdio":`, "\"here\"}}\n", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}` + "\n",
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}` + "\n", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}` + "\n"}
	for round := range 60 {
		c := w.door(w.a, aliceUID)
		for n, s := range steps[:round%(len(steps)+1)] {
			io.WriteString(c, s)
			if n == 1 && round%2 == 0 {
				readLine(c)
			}
		}
		if round%3 == 0 {
			c.CloseWrite()
		}
		c.Close()
	}
	until(t, "every session has ended", func() bool {
		var st api.StatusResult
		return w.Call(api.Status, nil, &st) == nil && st.Sessions == 0 && st.OpenCalls == 0
	})
	for _, r := range w.records(w.a) {
		if r.State == "admitted" || r.State == "started" {
			t.Errorf("an open record: %+v", r)
		}
	}
	w.works(w.a)
}

// Fifty connections race for a token of one bind; exactly one wins.
func TestDoor_OneBindIsOneBind(t *testing.T) {
	w := newWorld(t)
	for _, binds := range []int{1, 3} {
		token, _ := w.task(w.a, runtimeUID, binds)
		var won atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		codes := make(chan string, 50)
		for range 32 { // as many as one uid may have unbound
			c := w.door(w.a, runtimeUID)
			wg.Go(func() {
				<-start
				io.WriteString(c, bindLine(token))
				if line := readLine(c); strings.Contains(line, `"session"`) {
					won.Add(1)
				} else {
					codes <- codeOf(line)
				}
			})
		}
		close(start)
		wg.Wait()
		close(codes)
		if int(won.Load()) != binds {
			t.Errorf("%d of %d binds won", won.Load(), binds)
		}
		for code := range codes {
			if code != "token_used" && code != "too_many_sessions" {
				t.Errorf("a loser heard %q", code)
			}
		}
	}
}

// Nobody finds a project by guessing: sockets of other names are not there.
func TestDoor_SocketsOfOthers(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"root.sock", "t", "p/../root.sock", "p/" + "prj_01a22c62-d1e2-7cc4-bf8d-4f2adae14440" + "/bridge.sock"} {
		if c, err := dialAs(aliceUID, filepath.Join(w.RunDir, path)); err == nil {
			c.Close()
			t.Errorf("alice connected to %s", path)
		}
	}
	for _, dir := range []string{"p", "t", ""} {
		if out, err := as(aliceUID, "/bin/ls", filepath.Join(w.RunDir, dir)); err == nil && dir != "" {
			t.Errorf("alice lists %s: %s", dir, out)
		}
	}
	for _, dir := range []string{w.RootDir, w.StateDir} {
		if out, err := as(aliceUID, "/bin/ls", dir); err == nil {
			t.Errorf("alice lists %s: %s", dir, out)
		}
	}
}

// handOver passes descriptors and returns the code of the refusal.
func (w *world) handOver(p project, fds []int) string {
	w.t.Helper()
	c, code := w.bind(p, p.owner, "")
	if code != "" {
		w.t.Fatal(code)
	}
	defer c.Close()
	var oob []byte
	if len(fds) > 0 {
		oob = syscall.UnixRights(fds...)
	}
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte(`{"postern":{"stdio":"passed"}}`+"\n"), oob, nil); err != nil {
		return err.Error()
	}
	return codeOf(readLine(c))
}

// handedOver expects a session on two descriptors, whose other ends are in and out.
func (w *world) handedOver(t *testing.T, r, s int, in, out *os.File) {
	t.Helper()
	c, code := w.bind(w.a, aliceUID, "")
	if code != "" {
		t.Fatal(code)
	}
	defer c.Close()
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte(`{"postern":{"stdio":"passed"}}`+"\n"), syscall.UnixRights(r, s), nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	buf := make([]byte, 1024)
	n, err := out.Read(buf)
	if err != nil || !strings.Contains(string(buf[:n]), `"result"`) {
		t.Errorf("a permitted hand-over: %q %v", buf[:n], err)
	}
}

func pipe(t *testing.T) [2]*os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return [2]*os.File{r, w}
}

func memfd(t *testing.T) int {
	fd, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
