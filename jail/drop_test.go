package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"postern/jail/spec"
)

func expect(t *testing.T, said map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if said[name] != value {
			t.Errorf("%s: %q, want %q", name, said[name], value)
		}
	}
}

func TestIdentityAndPrivilegeAreGone(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "status", "ids", "setuid0", "setgroups", "hostname", "umask")
	said := answers(t, l, r)
	four := func(n uint32) string { return fmt.Sprintf("%d %d %d %d", n, n, n, n) }
	const none = "0000000000000000"
	expect(t, said, map[string]string{
		"Uid": four(r.UID), "Gid": four(r.GID), "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "NSpid": "1", "TracerPid": "0",
		"SigIgn": none, "SigBlk": none,
		"ids":     four(r.UID) + " [] pid 1",
		"setuid0": "CLOSED EPERM", "setgroups": "CLOSED EPERM", "hostname": "jail", "umask": "022",
	})
	twin := outside(t, "status", "setuid0", "setgroups")
	expect(t, twin, map[string]string{"NoNewPrivs": "0", "Seccomp": "0", "setuid0": "OPEN", "setgroups": "OPEN"})
	if twin["CapEff"] == none {
		t.Error("the twin has no capabilities: the probe proves nothing")
	}
}

// A file of mode 0604 is closed to its group alone, so a process that could
// leave its group could read it.
func TestC064_PrimaryGroupCannotBeLeft(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "read=/workspace/negative", "setgid=12345", "read=/workspace/negative", "read=/workspace/open")
	dir := r.Workspace.Dir.Name()
	for name, mode := range map[string]os.FileMode{"negative": 0o604, "open": 0o644} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("secret"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, otherUser, ownerGID); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, answers(t, l, r), map[string]string{
		"read=/workspace/negative": "CLOSED EACCES", "setgid": "CLOSED EPERM", "read=/workspace/open": "secret",
	})
	expect(t, outside(t, "setgid=12345"), map[string]string{"setgid": "OPEN"})
}

// The launcher holds a secret file, a socket and fifty more descriptors, all
// of them inheritable.
func TestJail6_C058_InheritedDescriptorsDoNotReachTheServer(t *testing.T) {
	l := launcher(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		fd, err := syscall.Open(secret, syscall.O_RDONLY, 0) // without O_CLOEXEC
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	defer syscall.Close(pair[1])

	said := answers(t, l, request(t, "static", "fds", "fd=3"))
	expect(t, said, map[string]string{"fds": "[0 1 2]", "fd=3": "CLOSED EBADF"})

	// The twin: what is listed does arrive, in order, also more of it than the
	// builder itself needs descriptors.
	r := request(t, "static", "fds", "fd=3", "fd=4")
	for i := range 8 {
		file := filepath.Join(t.TempDir(), "extra")
		if err := os.WriteFile(file, fmt.Append(nil, "extra ", i), 0o600); err != nil {
			t.Fatal(err)
		}
		r.Extra = append(r.Extra, openFile(t, file))
	}
	expect(t, answers(t, l, r), map[string]string{"fds": "[0 1 2 3 4 5 6 7 8 9 10]", "fd=3": "extra 0", "fd=4": "extra 1"})
}

func TestC057_WorkingDirectoryIsInsideTheJail(t *testing.T) {
	l := launcher(t)
	for _, dir := range []string{"/proc/self/fd/3", "/proc/self/cwd", "/proc", "../..", "workspace", "/workspace/../proc/self/fd/7", "/nowhere"} {
		r := request(t, "static", "cwd")
		r.Dir = dir
		if _, err := tryStart(t, l, r); err == nil {
			t.Errorf("%q was taken as a working directory", dir)
		}
	}
	// A link in the workspace that points out of it leads nowhere.
	r := request(t, "static", "cwd", "stat=../etc/passwd", "stat=../workspace")
	if err := os.Symlink("/etc", filepath.Join(r.Workspace.Dir.Name(), "link")); err != nil {
		t.Fatal(err)
	}
	r.Dir = "/workspace/link"
	if _, err := tryStart(t, l, r); err == nil {
		t.Error("a link out of the workspace was entered")
	}
	sub := filepath.Join(r.Workspace.Dir.Name(), "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	own(t, sub, 0o755)
	r.Name, r.Dir = r.Name+"b", "/workspace/sub"
	expect(t, answers(t, l, r), map[string]string{"cwd": "/workspace/sub", "stat=../workspace": "CLOSED ENOENT"})
}

func TestJail6_C113_EnvironmentIsExactlyWhatIsNamed(t *testing.T) {
	l := launcher(t)
	for name, value := range map[string]string{"AWS_SECRET_ACCESS_KEY": "s3cret", "NOTIFY_SOCKET": "/run/n", "LISTEN_FDS": "3", "SSH_AUTH_SOCK": "/run/a"} {
		t.Setenv(name, value)
	}
	r := request(t, "static", "env")
	r.Env = []string{"API_BASE=http://x", "HOME=/workspace"}
	said := answers(t, l, r)
	expect(t, said, map[string]string{"env": "API_BASE=http://x|HOME=/workspace|LANG=C.UTF-8|PATH=/package|TMPDIR=/tmp"})
	expect(t, answers(t, l, request(t, "bridge", "env")), map[string]string{"env": ""})
	if twin := outside(t, "env")["env"]; !strings.Contains(twin, "AWS_SECRET_ACCESS_KEY=s3cret") {
		t.Errorf("the twin has %q", twin)
	}
}

func TestLimitsHold(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "rlimit=4", "rlimit=1", "fill=/tmp", "remove=/tmp/fill", "files=/tmp", "open-many")
	r.Limits = spec.Limits{Nofile: 64, FsizeBytes: 32 << 20, TmpBytes: 1 << 20, TmpInodes: 100}
	said := answers(t, l, r)
	expect(t, said, map[string]string{
		"rlimit=4": "1 1", "rlimit=1": "33554432 33554432",
		"fill=/tmp": "1048576 ENOSPC", "remove=/tmp/fill": "OPEN",
	})
	var opened int
	if _, err := fmt.Sscanf(said["files=/tmp"], "%d ENOSPC", &opened); err != nil || opened > 100 || opened < 90 {
		t.Errorf("files: %q", said["files=/tmp"])
	}
	if _, err := fmt.Sscanf(said["open-many"], "%d EMFILE", &opened); err != nil || opened > 64 {
		t.Errorf("open-many: %q", said["open-many"])
	}

	r = request(t, "static", "threads")
	r.Limits.PidsMax = 20
	var made int
	said = answers(t, l, r)
	if _, err := fmt.Sscanf(said["threads"], "%d EAGAIN", &made); err != nil || made < 5 || made > 20 {
		t.Errorf("threads: %q", said["threads"])
	}
}
