package hostile

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"postern/integration/rig"
)

// connectFor connects a socket of this process in a process of another user, which lives
// until its input ends: the kernel notes who connected, and this process keeps the socket.
const connectFor = `import socket, sys
socket.socket(fileno=3).connect(sys.argv[1])
print("connected", flush=True)
sys.stdin.read()`

// TestIdentity_T3_C109_AConnectionOfADeadProcessBindsNobody: the socket is open and in
// other hands, the process that connected is gone, and its number may be anybody's. While
// it lives, the same socket in the same hands is its own.
func TestIdentity_T3_C109_AConnectionOfADeadProcessBindsNobody(t *testing.T) {
	w := newWorld(t)
	for _, alive := range []bool{true, false, false, false} {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "connection")
		c := exec.Command("/usr/bin/python3", "-c", connectFor, w.doorOf(w.a))
		c.ExtraFiles, c.SysProcAttr, c.Dir, c.Env, c.Stderr = []*os.File{f}, rig.As(aliceUID), "/", []string{"PATH=/usr/bin"}, os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		end := func() { in.Close(); c.Wait() }
		if !alive {
			end() // reaped too
		}
		f.WriteString(bindLine(""))
		tv := syscall.NsecToTimeval(answerWait.Nanoseconds())
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
		buf := make([]byte, 4096)
		n, err := syscall.Read(fd, buf)
		line := strings.TrimSpace(string(buf[:max(n, 0)]))
		switch session := strings.Contains(line, `"session"`); {
		case session != alive:
			t.Errorf("it lives: %v, and is answered %q %v", alive, line, err)
		case !alive && codeOf(line) != "peer_gone" && line != "":
			t.Errorf("it is gone, and told %q %v", line, err)
		case !alive:
			t.Logf("it is gone, and told %q", line)
		}
		if alive {
			end()
		}
		f.Close()
	}
	w.works(w.a)
}
