package workers

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// socket makes a project's listening socket and hands it over.
func (r *rig) socket(project int) string {
	r.t.Helper()
	path := filepath.Join(r.dir, fmt.Sprintf("p%d-%d", project, time.Now().UnixNano()%1e9))
	fd := listening(r.t, path)
	r.say(order.ProjectSocket{Project: id[ids.Project](project)}, fd)
	return path
}

func listening(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 512)
	}
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// dialAs connects as another user: the kernel notes the thread's user, nothing else.
func dialAs(path string, uid uint32) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return nil, errno
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		for {
			if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.EINTR && err != unix.EAGAIN {
				break
			}
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		panic(errno) // this thread is another user's for good
	}
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "client"), nil
}

// client is one connection to a project socket.
type client struct {
	f  *os.File
	in *bufio.Reader
}

func (r *rig) dial(path string, uid uint32) *client {
	r.t.Helper()
	f, err := dialAs(path, uid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	return &client{f, bufio.NewReader(f)}
}

// line reads one line; "" where the connection was closed.
func (c *client) line() string {
	c.f.SetReadDeadline(time.Now().Add(patience))
	s, _ := c.in.ReadString('\n')
	return strings.TrimSuffix(s, "\n")
}

const bindPlain = "{\"postern\":{\"bind\":1}}\n"

func bindWith(tok string) string {
	return fmt.Sprintf("{\"postern\":{\"bind\":1,\"token\":%q}}\n", tok)
}

// bind connects, binds and returns the session; "" with the line where it was refused.
func (r *rig) bind(path string, uid uint32, line string) (*client, ids.Session, string) {
	r.t.Helper()
	c := r.dial(path, uid)
	fmt.Fprint(c.f, line)
	got := c.line()
	session, ok := strings.CutPrefix(got, `{"postern":{"session":"`)
	if !ok {
		return c, "", got
	}
	return c, ids.Session(strings.TrimSuffix(session, `"}}`)), got
}

// session binds alice in a project and returns her bridge and session.
func (r *rig) session(path string, project int) (*bridge, ids.Session) {
	r.t.Helper()
	_, s, line := r.bind(path, aliceUID, bindPlain)
	if s == "" {
		r.t.Fatalf("bind: %s\n%s", line, r.log)
	}
	return r.bridgeOf(project), s
}

// bridgeOf is the living bridge of a project.
func (r *rig) bridgeOf(project int) *bridge {
	r.t.Helper()
	var b *bridge
	r.await("a bridge", func() bool {
		for _, x := range r.bridges {
			if x.key.Project == id[ids.Project](project) && !x.stopped && !r.jails[x.jail].gone {
				b = x
			}
		}
		return b != nil
	})
	return b
}

// task makes a task of alice by the host, and mint a token for it.
func (r *rig) task(project int) ids.Task {
	r.t.Helper()
	a := id[ids.Account](alice)
	t := registry.Task{ID: fresh[ids.Task](), Account: a, Host: "agent", Project: id[ids.Project](project), Principal: access.Local(a), Mode: policy.ModeCode, Created: 1}
	r.change(func(reg *registry.Registry) (registry.Change, error) { return reg.NewTask(t) })
	return t.ID
}

func (r *rig) mint(task ids.Task, uid uint32, binds int) string {
	r.t.Helper()
	var secret [32]byte
	rand.Read(secret[:])
	tok := token.New(secret)
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		return reg.MintToken(tok.Digest(), token.Binding{Task: task, Project: reg.Task(task).Project, UID: uid, Binds: binds, TTL: time.Minute,
			Minted: token.Instant{Wall: time.Now(), Boot: time.Hour, ID: "boot"}})
	})
	return tok.Secret()
}

// record waits until a call's record stands at a state.
func (r *rig) record(c ids.Call, want store.State) store.Call {
	r.t.Helper()
	late := time.Now().Add(patience)
	for {
		next := r.g.Bell().Next()
		p, err := r.s.Calls(store.Query{})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, x := range p.Calls {
			if x.ID == c && x.State == want {
				return x
			}
		}
		select {
		case <-next:
		case <-time.After(time.Until(late)):
			r.t.Fatalf("the record of %s is not %s\n%s", c, want, r.log)
		}
	}
}
