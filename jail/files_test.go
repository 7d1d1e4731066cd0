package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"postern/jail/spec"
)

func TestFilesOfTheHostDoNotExist(t *testing.T) {
	l := launcher(t)
	var probes []string
	for _, p := range []string{"/etc/passwd", "/etc/shadow", "/root", "/home", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/tty", "/dev/shm",
		"/sys", "/run", "/var", "/usr", "/bin", "/proc/sys", "/proc/kallsyms", "/proc/meminfo", "/proc/sysrq-trigger", "/proc/2"} {
		probes = append(probes, "stat="+p)
	}
	said := answers(t, l, request(t, "static", probes...))
	for _, p := range probes {
		if said[p] != "CLOSED ENOENT" {
			t.Errorf("%s: %s", p, said[p])
		}
	}
	twin := outside(t, "stat=/etc/passwd", "stat=/sys", "stat=/proc/kallsyms")
	expect(t, twin, map[string]string{"stat=/etc/passwd": "OPEN", "stat=/sys": "OPEN", "stat=/proc/kallsyms": "OPEN"})

	expect(t, answers(t, l, request(t, "static", "ls=/dev", "ls=/proc/self/fd", "ls=/", "ls=/tmp", "mkdir=/x", "write=/x", "write=/dev/x",
		"write=/program", "write=/dev/null", "write=/tmp/x", "stat=/../../../../etc")), map[string]string{
		"ls=/dev": "full null random urandom zero",
		"ls=/":    "dev proc program tmp workspace", "ls=/tmp": "",
		"mkdir=/x": "CLOSED EROFS", "write=/x": "CLOSED EROFS", "write=/dev/x": "CLOSED EROFS", "write=/program": "CLOSED EROFS",
		"write=/dev/null": "OPEN", "write=/tmp/x": "OPEN", "stat=/../../../../etc": "CLOSED ENOENT",
	})
}

func TestWorkspaceFilesBelongToTheOwner(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "owner=/workspace", "write=/workspace/new", "owner=/workspace/new", "mkdir=/workspace/dir",
		"write=/workspace/dir/in", "rename=/workspace/dir/in:/workspace/moved", "write=/workspace/prime", "write=/workspace/strange",
		"write=/workspace/roots", "owner=/workspace/prime", "setgid=3950003", "exec=/workspace/script")
	dir := r.Workspace.Dir.Name()
	for name, owner := range map[string][2]int{"prime": {ownerUID, primeGID}, "strange": {otherUser, otherUser}, "roots": {0, 0}, "script": {ownerUID, ownerGID}} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, []byte("#!/program\n"), 0o777), os.Chmod(file, 0o777), os.Chown(file, owner[0], owner[1])); err != nil {
			t.Fatal(err)
		}
	}
	said := answers(t, l, r)
	expect(t, said, map[string]string{
		"owner=/workspace":                          fmt.Sprintf("%d:%d", r.UID, r.GID),
		"owner=/workspace/new":                      fmt.Sprintf("%d:%d", r.UID, r.GID),
		"write=/workspace/new":                      "OPEN",
		"mkdir=/workspace/dir":                      "OPEN",
		"write=/workspace/dir/in":                   "OPEN",
		"rename=/workspace/dir/in:/workspace/moved": "OPEN", // needs Landlock's REFER
		"write=/workspace/prime":                    "OPEN",
		"owner=/workspace/prime":                    fmt.Sprintf("%d:%d", r.UID, strangerGID),
		"write=/workspace/strange":                  "CLOSED EACCES", // an id that is not mapped
		"write=/workspace/roots":                    "CLOSED EACCES",
		"setgid":                                    "CLOSED EPERM",
		"exec=/workspace/script":                    "CLOSED EACCES",
	})
	for _, name := range []string{"new", "dir", "moved"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil || st.Uid != ownerUID || st.Gid != ownerGID {
			t.Errorf("%s on disk: %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
}

// A directory of another group, set-gid as teams have them, stays usable.
func TestWorkspaceOfASharedGroupIsWritable(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "write=/workspace/new")
	if err := errors.Join(os.Chown(r.Workspace.Dir.Name(), ownerUID, ownerGID), os.Chmod(r.Workspace.Dir.Name(), 0o775|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	expect(t, answers(t, l, r), map[string]string{"write=/workspace/new": "OPEN"})
}

func TestReadOnlyWorkspaceIsNotWritten(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "write=/workspace/new", "mkdir=/workspace/dir", "read=/workspace/old")
	r.Workspace.ReadOnly = true
	old := filepath.Join(r.Workspace.Dir.Name(), "old")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	own(t, old, 0o644)
	said := answers(t, l, r)
	if !strings.HasPrefix(said["write=/workspace/new"], "CLOSED") || !strings.HasPrefix(said["mkdir=/workspace/dir"], "CLOSED") || said["read=/workspace/old"] != "old" {
		t.Errorf("%v", said)
	}
}

// Seen from the jail: every call that takes a mode refuses the bits, whatever
// lies above them. Seen from the host: no such file exists.
func TestNoSetIDFileCanBeMade(t *testing.T) {
	l := launcher(t)
	for _, where := range []string{"/workspace", "/tmp"} {
		r := request(t, "static", "setid="+where)
		dir := r.Workspace.Dir.Name()
		said := answers(t, l, r)
		if len(said) < 40 {
			t.Fatalf("only %d answers", len(said))
		}
		for name, answer := range said {
			switch {
			case strings.HasSuffix(name, "-ok"):
				if answer != "OPEN" {
					t.Errorf("%s in %s: %s", name, where, answer)
				}
			case strings.HasPrefix(name, "openat2"):
				if answer != "CLOSED ENOSYS" {
					t.Errorf("%s in %s: %s", name, where, answer)
				}
			case answer != "CLOSED EPERM":
				t.Errorf("%s in %s: %s", name, where, answer)
			}
		}
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			info, err := d.Info()
			if err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.Errorf("on the host: %s has mode %v, %v", path, info.Mode(), err)
			}
			return nil
		})
	}
	// The twin: outside, the same calls make them.
	dir := t.TempDir()
	twin := outside(t, "setid="+dir)
	for _, name := range []string{"chmod-4755", "fchmodat2-2755", "openat-6755", "openat2-4755", "openat-tmpfile-4755"} {
		if twin[name] != "OPEN" {
			t.Errorf("outside: %s is %s", name, twin[name])
		}
	}
}

func TestRootfs5_ProtectedNamesAreReadOnlyAndStay(t *testing.T) {
	l := launcher(t)
	r := request(t, "static",
		"write=/workspace/.git/hooks/pre-commit", "write=/workspace/.git/config", "write=/workspace/.envrc", "remove=/workspace/.envrc",
		"rename=/workspace/.git:/workspace/git2", "rename=/workspace/.git/hooks:/workspace/.git/h2", "rename=/workspace/free:/workspace/.envrc",
		"write=/workspace/.git/index", "write=/workspace/free", "write=/workspace/linked/x", "read=/workspace/.envrc")
	dir := r.Workspace.Dir.Name()
	for _, d := range []string{".git", ".git/hooks", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		own(t, filepath.Join(dir, d), 0o755)
	}
	for _, f := range []string{".git/config", ".envrc", "free"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("before"), 0o644); err != nil {
			t.Fatal(err)
		}
		own(t, filepath.Join(dir, f), 0o644)
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	expect(t, answers(t, l, r), map[string]string{
		"write=/workspace/.git/hooks/pre-commit":          "CLOSED EROFS",
		"write=/workspace/.git/config":                    "CLOSED EROFS",
		"write=/workspace/.envrc":                         "CLOSED EROFS",
		"remove=/workspace/.envrc":                        "CLOSED EBUSY",
		"rename=/workspace/.git:/workspace/git2":          "CLOSED EBUSY",
		"rename=/workspace/.git/hooks:/workspace/.git/h2": "CLOSED EBUSY",
		"rename=/workspace/free:/workspace/.envrc":        "CLOSED EBUSY",
		"write=/workspace/.git/index":                     "OPEN",
		"write=/workspace/free":                           "OPEN",
		"write=/workspace/linked/x":                       "OPEN",
		"read=/workspace/.envrc":                          "before",
	})
	// The twin: with no protected name the same writes succeed.
	r2 := request(t, "static", "write=/workspace/.git/config", "rename=/workspace/.git:/workspace/git2")
	r2.Workspace = r.Workspace
	r2.Workspace.Protect = []string{}
	expect(t, answers(t, l, r2), map[string]string{
		"write=/workspace/.git/config": "OPEN", "rename=/workspace/.git:/workspace/git2": "OPEN",
	})
}

// A jail mounts nothing by a name inside the workspace: what its content
// calls dev, proc or tmp changes nothing, and nothing is made through it.
func TestRootfs2_ContentOfTheWorkspaceMovesNoMount(t *testing.T) {
	l := launcher(t)
	r := request(t, "static", "ls=/dev", "ls=/workspace/sub")
	dir := filepath.Join(r.Workspace.Dir.Name(), "sub")
	outside := t.TempDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own(t, dir, 0o755)
	for name, to := range map[string]string{"dev": "/", "proc": outside, "a": outside, "tmp": "/tmp"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(outside, "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, answers(t, l, r), map[string]string{"ls=/dev": "full null random urandom zero", "ls=/workspace/sub": "a dev proc tmp"})
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("something was made outside: %v", names)
	}
}

func TestC065_SocketsOfTheHostAreNotThere(t *testing.T) {
	l := launcher(t)
	path := filepath.Join(t.TempDir(), "admin.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	probes := []string{"stat=" + path, "connect=unix:" + path, "stat=/run/docker.sock", "stat=/run/systemd/private", "stat=/run/dbus/system_bus_socket", "connect=tcp:" + tcp.Addr().String()}
	for _, profile := range []string{"static", "node", "bridge"} {
		for name, answer := range answers(t, l, request(t, profile, probes...)) {
			if !strings.HasPrefix(answer, "CLOSED") {
				t.Errorf("%s: %s: %s", profile, name, answer)
			}
		}
	}
	expect(t, outside(t, probes[0], probes[1], probes[5]), map[string]string{probes[0]: "OPEN", probes[1]: "OPEN", probes[5]: "OPEN"})
}

// A profile that may make sockets still reaches neither a socket file it sees
// nowhere, nor an abstract one, nor the host's loopback.
func TestSocketsOfAJailReachNothingOfTheHost(t *testing.T) {
	l := launcher(t)
	ln, err := net.Listen("unix", "@postern-test-abstract")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	probes := []string{"socket=1", "socket=2", "socket=16", "socket=40", "socket=38", "connect=unix:@postern-test-abstract", "connect=tcp:" + tcp.Addr().String()}
	r := request(t, "static", probes...)
	r.Profile.Loopback = true
	r.Profile.Seccomp.Groups = append(r.Profile.Seccomp.Groups[:len(r.Profile.Seccomp.Groups):len(r.Profile.Seccomp.Groups)],
		spec.SyscallGroup{Name: "sockets", Reason: "this test", Calls: []string{"connect"}})
	for _, family := range []uint64{1, 2, 16, 38, 40} {
		r.Profile.Seccomp.Rules = append(r.Profile.Seccomp.Rules[:len(r.Profile.Seccomp.Rules):len(r.Profile.Seccomp.Rules)],
			spec.SyscallRule{Call: "socket", Reason: "this test", When: []spec.Condition{{Arg: 0, Value: family}}})
	}
	expect(t, answers(t, l, r), map[string]string{
		"socket=1": "OPEN", "socket=2": "OPEN",
		// The second filter catches what this profile wrongly allows.
		"socket=16": "CLOSED EAFNOSUPPORT", "socket=38": "CLOSED EAFNOSUPPORT", "socket=40": "CLOSED EAFNOSUPPORT",
		"connect=unix:@postern-test-abstract": "CLOSED ECONNREFUSED",
		"connect=tcp:" + tcp.Addr().String():  "CLOSED EACCES", // Landlock, before the empty network
	})
	twin := outside(t, probes[2], probes[5])
	expect(t, twin, map[string]string{probes[5]: "OPEN"})
	if twin[probes[2]] == "CLOSED EAFNOSUPPORT" { // the kernel dislikes a netlink stream, but it knows netlink
		t.Error("the kernel itself has no netlink: the probe proves nothing")
	}
}
