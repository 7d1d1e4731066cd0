// Package target is the host's side of the probes: what the prober aims at,
// and the tables that hold its answers.
//
// It runs as root, in tests alone. It makes a process with a secret, sockets,
// a segment of memory and directories, all of them within reach of the uid
// that the jails of these tests run under, so that nothing but the jail keeps
// the prober from them. In a real launch no process of the host has that uid.
//
// It starts no jail: whoever calls it brings a Runner.
package target

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// The ids of these tests lie apart from any that another program uses here.
const (
	UID   = 3_970_001 // of the authority, of the twin and of every jail
	group = 3_970_002 // the twin's supplementary one
	Owner = 3_970_003 // of workspaces
	other = 3_970_004 // of nobody here
)

// Limits of the jails of these tests; what the prober uses up is more.
const (
	memoryBytes = 96 << 20
	pidsMax     = 32
	nofile      = 64
	fsizeBytes  = 2 << 20
	tmpBytes    = 1 << 20
	tmpInodes   = 100
	megabytes   = 160 // what it tries to use
)

// Limits are a profile's, lowered to what the prober uses up quickly.
func Limits(of spec.Limits) spec.Limits {
	of.MemoryBytes, of.PidsMax, of.Nofile = memoryBytes, pidsMax, nofile
	of.FsizeBytes = min(of.FsizeBytes, fsizeBytes)
	if of.TmpBytes > 0 {
		of.TmpBytes, of.TmpInodes = tmpBytes, tmpInodes
	}
	return of
}

// Target is everything that is aimed at.
type Target struct {
	// Program is the prober; Package is a directory with a set-uid copy of it.
	Program, Package string

	dir       string
	secret    string
	authority *exec.Cmd
	hold      *os.File // the authority lives until this is closed
	address   string   // of the secret in the authority's memory
	fd        int      // of the sentinel there
	listeners []io.Closer
	port      int
	shm       int
	shmKey    int
	workspace int
	leaked    []int
}

// New builds the prober and everything else in dir, which it makes.
func New(dir string) (*Target, error) {
	t := &Target{dir: dir, secret: rand.Text(), Program: filepath.Join(dir, "probe"), Package: filepath.Join(dir, "package")}
	for _, step := range []func() error{t.programs, t.processes, t.sockets, t.segment, t.leak} {
		if err := step(); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// Close ends the authority and removes what does not lie in the directory.
func (t *Target) Close() error {
	var errs []error
	for _, l := range t.listeners {
		errs = append(errs, l.Close())
	}
	if t.hold != nil {
		errs = append(errs, t.hold.Close(), t.authority.Wait())
	}
	if t.shmKey != 0 {
		_, err := unix.SysvShmCtl(t.shm, unix.IPC_RMID, nil)
		errs = append(errs, err)
	}
	for _, fd := range t.leaked {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func (t *Target) programs() error {
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(t.dir), 0o755); err != nil { // the uid must get there
		return err
	}
	if err := Build(t.Program, "postern/integration/probe"); err != nil {
		return err
	}
	raw, err := os.ReadFile(t.Program)
	if err != nil {
		return err
	}
	suid := filepath.Join(t.Package, "suid")
	return errors.Join(os.Mkdir(t.Package, 0o755), os.WriteFile(suid, raw, 0o755), os.Chmod(suid, 0o755|os.ModeSetuid), os.Chmod(t.Package, 0o755))
}

// Build builds a static program of this module.
func Build(out, pkg string) error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, said)
	}
	return os.Chmod(out, 0o755)
}

// RemoveGroups removes a launcher's empty parent group in every hierarchy.
func RemoveGroups(parent string) error {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + parent)
	if err != nil {
		return err
	}
	more, _ := filepath.Glob("/sys/fs/cgroup/" + parent)
	var left []error
	for _, d := range append(dirs, more...) {
		left = append(left, os.Remove(d))
		os.Remove(filepath.Dir(d)) // shared with other tests; the last one removes it
	}
	return errors.Join(left...)
}

func (t *Target) sentinel() string { return filepath.Join(t.dir, "authority", "sentinel") }

// processes starts the authority: it alone may read the sentinel.
func (t *Target) processes() error {
	home := filepath.Dir(t.sentinel())
	err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(t.sentinel(), []byte(t.secret), 0o400),
		os.Chown(home, UID, UID), os.Chown(t.sentinel(), UID, UID))
	if err != nil {
		return err
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	t.authority = exec.Command(t.Program, "-authority", t.sentinel())
	t.authority.Dir, t.authority.Stdin = home, stdin
	t.authority.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: UID, Gid: UID}}
	out, err := t.authority.StdoutPipe()
	if err == nil {
		err = t.authority.Start()
	}
	if err != nil {
		hold.Close()
		return err
	}
	t.hold = hold
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, wrong := fmt.Sscanf(line, "ready %s %d\n", &t.address, &t.fd); wrong != nil {
		return fmt.Errorf("the authority said %q: %v", line, err)
	}
	return nil
}

// sockets listens where a jailed program should not be able to connect.
func (t *Target) sockets() error {
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	t.listeners = append(t.listeners, tcp)
	t.port = tcp.Addr().(*net.TCPAddr).Port
	for _, name := range []string{"@" + t.abstract(), filepath.Join(t.dir, "socket")} {
		l, err := net.Listen("unix", name)
		if err != nil {
			return err
		}
		t.listeners = append(t.listeners, l)
	}
	d, err := net.ListenPacket("unixgram", "@"+t.abstract()+"-datagrams")
	if err != nil {
		return err
	}
	t.listeners = append(t.listeners, d)
	return os.Chmod(filepath.Join(t.dir, "socket"), 0o666)
}

func (t *Target) abstract() string { return "postern-probe-" + strconv.Itoa(os.Getpid()) }

// segment leaves what a former program of the uid might have left.
func (t *Target) segment() error {
	key := 0x70000000 | os.Getpid()
	id, err := unix.SysvShmGet(key, 4096, 0o600|unix.IPC_CREAT|unix.IPC_EXCL)
	if err != nil {
		return fmt.Errorf("shmget: %w", err)
	}
	t.shm, t.shmKey = id, key
	var d unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &d); err != nil {
		return fmt.Errorf("shmctl: %w", err)
	}
	d.Perm.Uid, d.Perm.Gid = UID, UID
	_, err = unix.SysvShmCtl(id, unix.IPC_SET, &d)
	return err
}

// leak opens the sentinel fifty times, inheritable, as a careless launcher has it.
func (t *Target) leak() error {
	for range 50 {
		fd, err := unix.Open(t.sentinel(), unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		t.leaked = append(t.leaked, fd)
	}
	return nil
}

// Leak makes the descriptors inheritable again.
func (t *Target) Leak() error {
	for _, fd := range t.leaked {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return nil
}

// Workspace makes a directory as a project may have one, of Owner's; what lies
// in it tries to lead out.
func (t *Target) Workspace() (string, error) {
	t.workspace++
	dir := filepath.Join(t.dir, fmt.Sprintf("workspace-%d", t.workspace))
	return dir, t.fill(dir, Owner)
}

func (t *Target) fill(dir string, owner int) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	var errs []error
	for _, d := range []string{"", ".git", ".git/hooks"} {
		errs = append(errs, os.Mkdir(at(d), 0o755), os.Chown(at(d), owner, owner), os.Chmod(at(d), 0o755))
	}
	for name, uid := range map[string]int{"own": owner, ".git/config": owner, "foreign": other} {
		errs = append(errs, os.WriteFile(at(name), []byte("before"), 0o644), os.Chown(at(name), uid, uid), os.Chmod(at(name), 0o666))
	}
	errs = append(errs,
		os.Symlink(t.sentinel(), at("sentinel-symlink")),
		os.Symlink(fmt.Sprintf("/proc/%d/root", t.authority.Process.Pid), at("sentinel-root")),
		os.Link(t.sentinel(), at("sentinel-hardlink")))
	l, err := net.Listen("unix", at("socket"))
	if err == nil {
		t.listeners = append(t.listeners, l)
		err = errors.Join(os.Chown(at("socket"), owner, owner), os.Chmod(at("socket"), 0o666))
	}
	errs = append(errs, err)
	d, err := net.ListenPacket("unixgram", at("datagrams"))
	if err == nil {
		t.listeners = append(t.listeners, d)
		err = errors.Join(os.Chown(at("datagrams"), owner, owner), os.Chmod(at("datagrams"), 0o666))
	}
	return errors.Join(append(errs, err)...)
}

// Aim tells the prober where everything is. In a jail the workspace, /tmp and
// the package lie where a jail has them.
func (t *Target) Aim(jailed bool) []string {
	host, _ := os.Hostname()
	session, _ := unix.Getsid(0)
	address := ""
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
				address = ip.IP.String()
				break
			}
		}
	}
	dir, tmp, suid, in := filepath.Join(t.dir, "twin"), filepath.Join(t.dir, "twin-tmp"), filepath.Join(t.Package, "suid"), "no"
	if jailed {
		dir, tmp, suid, in = "/workspace", "/tmp", "/package/suid", "yes"
		if address == "" {
			address = "192.0.2.1" // of nobody: a host without an address has none to reach either
		}
	}
	aim := []string{"@dir=" + dir, "@tmp=" + tmp, "@suid=" + suid, "@jailed=" + in, "@address4=" + address, "@hostname=" + host,
		"@secret=" + t.secret, "@sentinel=" + t.sentinel(), "@abstract=" + t.abstract(), "@socket=" + filepath.Join(t.dir, "socket"), "@address=" + t.address}
	for name, n := range map[string]int{"pid": t.authority.Process.Pid, "port": t.port, "fd": t.fd, "shm": t.shmKey, "session": session, "megabytes": megabytes} {
		aim = append(aim, fmt.Sprintf("@%s=%d", name, n))
	}
	return aim
}

// TwinWait bounds a probe outside a jail.
const TwinWait = 20 * time.Second

// Twin runs one probe outside, as root or as the authority's uid; root has
// mounts of its own, and nothing else.
func (t *Target) Twin(root bool) (Runner, error) {
	for _, dir := range []string{"twin", "twin-tmp"} {
		if err := os.RemoveAll(filepath.Join(t.dir, dir)); err != nil {
			return nil, err
		}
	}
	tmp := filepath.Join(t.dir, "twin-tmp")
	err := errors.Join(t.fill(filepath.Join(t.dir, "twin"), UID), os.Mkdir(tmp, 0o700), os.Chown(tmp, UID, UID))
	if err != nil {
		return nil, err
	}
	return func(names []string) (string, End, error) {
		cmd := exec.Command(t.Program, append(t.Aim(false), names...)...)
		cmd.Dir = filepath.Join(t.dir, "twin")
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", End{}, err
		}
		defer unix.Close(pair[0])
		stdin := os.NewFile(uintptr(pair[1]), "stdin")
		defer stdin.Close()
		cmd.Stdin = stdin
		cmd.Env = append(os.Environ(), "AWS_SECRET_ACCESS_KEY="+t.secret)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if !root {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: UID, Gid: UID, Groups: []uint32{UID, group}}}
		}
		for _, fd := range t.leaked[:1] {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return "", End{}, err
			}
			f := os.NewFile(uintptr(dup), "sentinel")
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			return "", End{}, err
		}
		late := time.AfterFunc(TwinWait, func() { cmd.Process.Kill() })
		cmd.Wait()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		end := End{Code: max(ws.ExitStatus(), 0), Forced: !late.Stop()}
		if ws.Signaled() {
			end.Signal = int(ws.Signal())
		}
		return out.String(), end, nil
	}, nil
}
