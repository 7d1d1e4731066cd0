package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the client: with this variable it runs a role instead of the tests.
const roleKey = "POSTERN_PEER_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		clientRole(role, os.Getenv("POSTERN_PEER_PATH"))
		return
	}
	os.Exit(m.Run())
}

// clientRole connects and holds the connection until stdin closes.
func clientRole(role, path string) {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	switch role {
	case "hold": // hold descriptor 3 for as long as stdin is open
		bufio.NewReader(os.Stdin).ReadByte()
		return
	case "relay": // connect, leave the socket to a grandchild, exit
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		die(err)
		f, err := c.File()
		die(err)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{roleKey + "=hold"}
		cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{f}
		die(cmd.Start())
		return
	}
	var local *net.UnixAddr
	if bound, ok := strings.CutPrefix(role, "bind:"); ok {
		local = &net.UnixAddr{Name: bound}
	}
	c, err := net.DialUnix("unix", local, &net.UnixAddr{Name: path})
	die(err)
	defer c.Close()
	bufio.NewReader(os.Stdin).ReadByte()
}

type server struct {
	l    *net.UnixListener
	path string
}

func listen(t *testing.T) server {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for p, mode := range map[string]os.FileMode{dir: 0o711, path: 0o666} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	return server{l, path}
}

func (s server) accept(t *testing.T) *net.UnixConn {
	t.Helper()
	s.l.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := s.l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// client starts a client process; closing the returned pipe ends it.
func (s server) client(t *testing.T, role string, uid uint32) (*exec.Cmd, interface{ Close() error }) {
	t.Helper()
	exe := "/proc/self/exe"
	cmd := exec.Command(exe)
	cmd.Env = []string{roleKey + "=" + role, "POSTERN_PEER_PATH=" + s.path}
	if uid != 0 {
		needRoot(t)
		// Another user may not be able to reach the test binary where go put it.
		own := filepath.Join(filepath.Dir(s.path), "client")
		raw, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(own, raw, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.Path = own
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{uid + 1, uid + 2}}}
		cmd.Dir = "/"
	}
	cmd.Stderr = os.Stderr
	// Not StdinPipe: Wait would close it, and a grandchild that holds the socket would end.
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = r
	err = cmd.Start()
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return cmd, in
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root: it starts clients under other uids")
}

func TestPeer1_AnotherUidIsSeenWithItsGroups(t *testing.T) {
	s := listen(t)
	cmd, _ := s.client(t, "plain", 4242)
	p, err := Of(s.accept(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.UID != 4242 || p.GID != 4242 || p.PID != cmd.Process.Pid || fmt.Sprint(p.Groups) != "[4243 4244]" || !p.Alive() {
		t.Fatalf("got %v with groups %v, alive %v", p, p.Groups, p.Alive())
	}
}

func TestPeer1_C110_AddressesThatSpellAnIdentityChangeNothing(t *testing.T) {
	needRoot(t)
	for _, bound := range []string{"/tmp/x;uid=0;", "@x;uid=0", "@x;uid=0;pid=1", "/tmp/x\n;uid=0,gid=0"} {
		s := listen(t)
		os.Remove(bound)
		if strings.HasPrefix(bound, "/") {
			t.Cleanup(func() { os.Remove(bound) })
		}
		s.client(t, "bind:"+bound, 4242)
		p, err := Of(s.accept(t))
		if err != nil {
			t.Fatalf("%q: %v", bound, err)
		}
		if p.UID != 4242 || p.GID != 4242 {
			t.Errorf("%q: taken for %v", bound, p)
		}
		if strings.Contains(p.String(), bound) {
			t.Errorf("%q: the address is in %q", bound, p)
		}
		p.Close()
	}
}

func TestPeer2_C109_AGrandchildDoesNotInheritTheConnectorsIdentity(t *testing.T) {
	s := listen(t)
	cmd, _ := s.client(t, "relay", 0)
	c := s.accept(t)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if p, err := Of(c); !errors.Is(err, ErrGone) {
		t.Fatalf("a socket left to a grandchild was accepted as %v, %v", p, err)
	}
	// The socket itself is open: the refusal came from the process, not from an EOF.
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the grandchild no longer holds the socket: %v", err)
	}
}

func TestPeer2_AliveEndsWithTheProcessAndAZombieIsDead(t *testing.T) {
	s := listen(t)
	cmd, in := s.client(t, "plain", 0)
	c := s.accept(t)
	p, err := Of(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Alive() {
		t.Fatal("the living peer is called dead")
	}
	in.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil { // EOF: it closes at its end
		t.Fatal("the client wrote")
	}
	for end := time.Now().Add(5 * time.Second); p.Alive(); {
		if time.Now().After(end) {
			t.Fatal("the peer exited and still counts as alive")
		}
		runtime.Gosched()
	}
	if _, err := Of(c); !errors.Is(err, ErrGone) { // not reaped yet: a zombie
		t.Fatalf("a zombie was accepted: %v", err)
	}
	cmd.Wait()
	if _, err := Of(c); !errors.Is(err, ErrGone) { // reaped: its pid may be anybody's
		t.Fatalf("a reaped peer was accepted: %v", err)
	}
	p.Close()
	p.Close()
	if p.Alive() {
		t.Fatal("a closed Peer is alive")
	}
}

func TestPeer3_TheOverflowUidIsRefused(t *testing.T) {
	s := listen(t)
	s.client(t, "plain", overflowID)
	if p, err := Of(s.accept(t)); !errors.Is(err, ErrRefused) {
		t.Fatalf("the overflow uid was accepted as %v, %v", p, err)
	}
	if ownID(unmappedID) == nil || ownID(0) != nil || ownID(1000) != nil {
		t.Fatal("the rule for unmapped uids is wrong")
	}
}

// pair is a connected stream pair: (client, fd of the server's end).
func pair(t *testing.T) (*net.UnixConn, int) {
	t.Helper()
	s := listen(t)
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	f, err := s.accept(t).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return c, int(f.Fd())
}

func rest(t *testing.T, fd, n int) string {
	t.Helper()
	buf := make([]byte, n)
	got, err := syscall.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:got])
}

func TestPeer4_TheLineIsTakenAndNothingBehindIt(t *testing.T) {
	c, fd := pair(t)
	c.Write([]byte("{\"postern\":1}\n{\"next\":1}\n"))
	line, err := PeekBindLine(fd, MaxBindLine, BindWait)
	if err != nil || string(line) != `{"postern":1}` {
		t.Fatalf("%q, %v", line, err)
	}
	if got := rest(t, fd, 100); got != "{\"next\":1}\n" {
		t.Fatalf("the next owner reads %q", got)
	}
}

func TestPeer4_ALineMayComeInPieces(t *testing.T) {
	c, fd := pair(t)
	done := make(chan error, 1)
	go func() {
		for _, s := range []string{"{\"a", "\":", "1}", "\nrest"} {
			if _, err := c.Write([]byte(s)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	line, err := PeekBindLine(fd, MaxBindLine, BindWait)
	if err != nil || string(line) != `{"a":1}` {
		t.Fatalf("%q, %v", line, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := rest(t, fd, 100); got != "rest" {
		t.Fatalf("the next owner reads %q", got)
	}
}

func TestPeer4_TooLongTooLateAndNoEndAreRefused(t *testing.T) {
	for name, feed := range map[string]func(*net.UnixConn){
		"too long": func(c *net.UnixConn) { c.Write(append(bytes.Repeat([]byte("x"), MaxBindLine), '\n')) },
		"too late": func(c *net.UnixConn) { c.Write([]byte("half")) },
		"no end":   func(c *net.UnixConn) { c.Write([]byte("half")); c.CloseWrite() },
		"nothing":  func(c *net.UnixConn) { c.CloseWrite() },
	} {
		c, fd := pair(t)
		feed(c)
		if line, err := PeekBindLine(fd, MaxBindLine, 30*time.Millisecond); !errors.Is(err, ErrBindLine) {
			t.Errorf("%s: %.20q, %v", name, line, err)
		}
	}
	c, fd := pair(t) // the permitted twin: exactly the limit
	c.Write(append(bytes.Repeat([]byte("x"), MaxBindLine-1), '\n'))
	if line, err := PeekBindLine(fd, MaxBindLine, BindWait); err != nil || len(line) != MaxBindLine-1 {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

func TestPeer5_DescriptorsSentWithTheLineAreDropped(t *testing.T) {
	c, fd := pair(t)
	before := openDescriptors(t)
	for i := range 8 {
		_, _, err := c.WriteMsgUnix([]byte(strconv.Itoa(i)), syscall.UnixRights(0, 1, 2), nil)
		if err != nil && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
	}
	c.Write([]byte("\n"))
	line, err := PeekBindLine(fd, MaxBindLine, BindWait)
	if err != nil || string(line) != "01234567" {
		t.Fatalf("%q, %v", line, err)
	}
	if after := openDescriptors(t); after != before {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
	// The next owner may receive again: the hand-over of stdin and stdout needs it.
	if _, _, err := c.WriteMsgUnix([]byte("x"), syscall.UnixRights(0), nil); err != nil {
		t.Fatalf("descriptors stay refused after the bind line: %v", err)
	}
}

func TestPeer5_AListenerThatRefusesRightsMakesTheSenderFail(t *testing.T) {
	s := listen(t)
	raw, err := s.l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = PassRights(int(fd), false) })
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.WriteMsgUnix([]byte("x"), syscall.UnixRights(0), nil); !errors.Is(err, syscall.EPERM) {
		t.Logf("this kernel has no SO_PASSRIGHTS: %v", err)
	}
	if _, err := c.Write([]byte("x")); err != nil { // the twin without a descriptor
		t.Fatal(err)
	}
}
