package jail

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// alone starts postern-jail without a launcher, in namespaces of its own, gives
// it raw as document and hangs up. It returns the failure it reports.
func alone(t *testing.T, raw []byte) (failure []byte, err error) {
	t.Helper()
	needs(t)
	documentR, documentW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	failureR, failureW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer failureR.Close()
	cmd := exec.Command(bench.init)
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{documentR, failureW}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if _, err := documentW.Write(raw); err != nil {
		t.Fatal(err)
	}
	documentW.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	documentR.Close()
	failureW.Close()
	said, readErr := io.ReadAll(failureR)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return said, cmd.Wait()
}

func bridgeDocument(t *testing.T, l *Launcher) spec.Document {
	t.Helper()
	r, err := request(t, "bridge", "exit=0").check()
	if err != nil {
		t.Fatal(err)
	}
	d := document(r)
	if d.Filters, err = l.programs(r.Profile); err != nil {
		t.Fatal(err)
	}
	d.Rules, d.ExtraFDs = nil, []int{}
	return d
}

func TestStage1_NothingHappensWithoutAWholeDocument(t *testing.T) {
	l := launcher(t)
	raw, err := bridgeDocument(t, l).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, cut := range map[string][]byte{"none": nil, "half": raw[:len(raw)/2], "without its newline": raw[:len(raw)-1]} {
		if said, err := alone(t, cut); err == nil || len(said) > 0 {
			t.Errorf("%s: said %q, ended with %v", name, said, err)
		}
	}
	for name, bad := range map[string]string{"unknown field": `{"root":true}`, "not JSON": "go"} {
		said, err := alone(t, []byte(bad+"\n"))
		f, decodeErr := spec.DecodeFailure(said)
		if err == nil || decodeErr != nil || f.Step != "document" {
			t.Errorf("%s: said %q, ended with %v", name, said, err)
		}
	}
}

// The launcher is dead by the time the parent-death signal is set, so that the
// signal would never come: the hang-up of the document's pipe tells.
func TestStage5_ADeadLauncherStartsNothing(t *testing.T) {
	l := launcher(t)
	raw, err := bridgeDocument(t, l).Encode()
	if err != nil {
		t.Fatal(err)
	}
	said, err := alone(t, raw)
	f, decodeErr := spec.DecodeFailure(said)
	if err == nil || decodeErr != nil || f.Step != "parent" {
		t.Errorf("said %q, ended with %v", said, err)
	}
}

func TestStage3_ADocumentCannotAskForRootOrForNoFilter(t *testing.T) {
	l := launcher(t)
	for step, spoil := range map[string]func(*spec.Document){
		"ids":    func(d *spec.Document) { d.UID = 0 },
		"limits": func(d *spec.Document) { d.Limits.Nofile = 1 << 30 },
	} {
		d := bridgeDocument(t, l)
		spoil(&d)
		raw, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		said, err := alone(t, raw)
		if f, decodeErr := spec.DecodeFailure(said); err == nil || decodeErr != nil || f.Step != step {
			t.Errorf("%s: said %q, ended with %v", step, said, err)
		}
	}
}

func TestStage4_NothingButTheListedDescriptors(t *testing.T) {
	l := launcher(t)
	for _, profile := range []string{"bridge", "static", "node"} {
		expect(t, answers(t, l, request(t, profile, "fds")), map[string]string{"fds": "[0 1 2]"})
	}
}

// swapEnv makes this test binary, in a mount namespace of its own, a host on
// which somebody replaced something. Its value is what, then Config's two
// fields and the probe, parted by spaces.
const swapEnv = "POSTERN_TEST_SWAP"

func swapped() {
	arg := strings.Fields(os.Getenv(swapEnv))
	err := func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		l, err := Open(Config{Init: arg[1], Cgroup: arg[2]})
		if err != nil {
			return err
		}
		defer l.Close()
		r, err := bridgeRequest(arg[3])
		if err != nil {
			return err
		}
		switch arg[0] {
		case "null":
			err = unix.Mount("/dev/zero", "/dev/null", "", unix.MS_BIND, "")
		case "file":
			err = unix.Mount(arg[3], "/dev/random", "", unix.MS_BIND, "")
		case "proc":
			err = unix.Mount("tmpfs", "/proc", "tmpfs", 0, "")
		}
		if err != nil {
			return err
		}
		p, err := l.Launch(r)
		if err == nil {
			<-p.Gone()
		}
		return err
	}()
	fmt.Println(err)
	os.Exit(0)
}

func TestRootfs4_C056_AReplacedHostIsNotBelieved(t *testing.T) {
	needs(t)
	for what, want := range map[string]string{"nothing": "<nil>", "null": "jail: devices:", "file": "jail: devices:", "proc": "jail: records:"} {
		parent := fmt.Sprintf("postern-test/swap-%d-%s", os.Getpid(), what)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), swapEnv+"="+strings.Join([]string{what, bench.init, parent, bench.probe}, " "))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		said, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("%s: %q, %v; want %q", what, said, err, want)
		}
		if err := removeParents(parent); err != nil {
			t.Error(err)
		}
	}
}

func TestRootfs3_OnlyWhatIsRootsAloneIsBound(t *testing.T) {
	l := launcher(t)
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	bind := func(b spec.Bind, probes ...string) Request {
		r := request(t, "static", probes...)
		r.Profile.Binds = []spec.Bind{b}
		return r
	}
	at := spec.Bind{Source: file, Target: "/etc/shown"}
	expect(t, answers(t, l, bind(at, "read=/etc/shown", "write=/etc/shown", "ls=/etc")), map[string]string{
		"read=/etc/shown": "hello", "write=/etc/shown": "CLOSED EROFS", "ls=/etc": "shown",
	})
	expect(t, answers(t, l, bind(spec.Bind{Source: file + "-absent", Target: "/opt/absent", Optional: true}, "cwd")), map[string]string{"cwd": "/workspace"})
	for name, spoil := range map[string]func() error{
		"writable by all": func() error { return os.Chmod(file, 0o666) },
		"somebody else's": func() error { return os.Chown(file, otherUser, 0) },
		"an absolute link": func() error {
			os.Remove(file)
			return os.Symlink("/etc/passwd", file)
		},
		"a socket": func() error {
			os.Remove(file)
			return unix.Mknod(file, unix.S_IFSOCK|0o600, 0)
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := tryStart(t, l, bind(at, "cwd")); err == nil || !strings.HasPrefix(err.Error(), "jail: binds:") {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(file)
		if err := os.WriteFile(file, []byte("hello"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRootfs1_EveryMountIsNarrow(t *testing.T) {
	l := launcher(t)
	r := request(t, "node", "mounts")
	r.Package = openFile(t, filepath.Dir(bench.probe))
	said := answers(t, l, r)
	for point, want := range map[string]string{
		"/": "ro nosuid nodev noexec", "/workspace": "rw nosuid nodev noexec idmapped", "/tmp": "rw nosuid nodev noexec", "/package": "ro nosuid nodev noexec",
		"/proc": "ro nosuid nodev noexec", "/program": "ro nosuid nodev", "/dev/null": "ro nosuid noexec", "/dev/urandom": "ro nosuid noexec",
		"/usr/lib64": "ro nosuid nodev",
	} {
		if got := said["mount:"+point]; got != want {
			t.Errorf("%s: %q, want %q", point, got, want)
		}
		delete(said, "mount:"+point)
	}
	for _, name := range DefaultProtect() {
		part, _, _ := strings.Cut(name, "/")
		if got := said["mount:/workspace/"+part]; got != "ro nosuid nodev noexec idmapped" && got != "" {
			t.Errorf("%s: %q", part, got)
		}
		delete(said, "mount:/workspace/"+part)
	}
	for point, options := range said {
		if !strings.Contains(options, "nosuid") || !strings.HasPrefix(options, "ro ") {
			t.Errorf("%s: %q", point, options)
		}
	}
	if len(said) > 8 {
		t.Errorf("more mounts than expected: %v", said)
	}
}
