package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/jail"
)

// bubblewrap is the measure of what holds no names; holding of what does.
const (
	bubblewrap = "bubblewrap"
	holding    = "bubblewrap, the same names held"
)

// rivals are other people's jails with the same namespaces, as near to ours as each
// can be. What is not installed is said and left out, but for bubblewrap, which is
// the measure.
func (j *jails) rivals() ([]*contender, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, errors.New("bubblewrap is not installed: make bench-deps")
	}
	all := []*contender{{name: bubblewrap, start: func(out *os.File) (func() error, error) {
		return run1(out, nil, bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
			"--ro-bind", j.program, "/program", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--new-session", "--die-with-parent", "--cap-drop", "ALL", "--", "/program")
	}}, {name: holding, start: j.holding(bwrap)}}
	bundle := filepath.Join(j.dir, "bundle")
	if err := j.bundle(bundle); err != nil {
		return nil, err
	}
	for _, name := range []string{"crun", "runc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			fmt.Printf("%s is not installed and is left out: make bench-deps\n", name)
			continue
		}
		n := 0
		start := func(out *os.File) (func() error, error) {
			n++
			return run1(out, nil, path, "--root", filepath.Join(j.dir, name), "run", "-b", bundle, fmt.Sprintf("bench-%d-%d", os.Getpid(), n))
		}
		if name == "crun" && j.launcher.Mode() == "hybrid" {
			start = withoutUnified(start) // it refuses to run where it sees both kinds
		}
		all = append(all, &contender{name: name + ", " + version(path), start: start})
	}
	oracle := filepath.Join(j.dir, "oracle")
	build := exec.Command("go", "build", "-tags", "seccomp", "-o", oracle, "./integration/oracle")
	build.Dir, build.Env = j.repo, append(os.Environ(), "CGO_ENABLED=1")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program with libcontainer: %w\n%s", err, said)
	}
	return append(all, &contender{name: "libcontainer, profile bridge", start: func(out *os.File) (func() error, error) { return j.libcontainer(oracle, out) }}), nil
}

// holding is bubblewrap with a workspace in which it holds the names that ours holds,
// as sandboxes built on it do: an empty directory is mounted on each, read-only, and
// the mount points that it makes in the workspace are removed when it has ended.
func (j *jails) holding(bwrap string) func(out *os.File) (func() error, error) {
	workspace, empty := filepath.Join(j.dir, "held"), filepath.Join(j.dir, "empty")
	made := errors.Join(os.Mkdir(workspace, 0o755), os.Mkdir(empty, 0o555))
	argv := []string{bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--ro-bind", j.program, "/program", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", workspace, "/workspace"}
	for _, name := range jail.DefaultProtect() {
		argv = append(argv, "--ro-bind", empty, "/workspace/"+name)
	}
	argv = append(argv, "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--", "/program")
	return func(out *os.File) (func() error, error) {
		if made != nil {
			return nil, made
		}
		end, err := run1(out, nil, argv...)
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := end(); err != nil {
				return err
			}
			names, err := os.ReadDir(workspace)
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(filepath.Join(workspace, name.Name())))
			}
			return err
		}, nil
	}
}

// version is the last word of the first line that a program says of itself.
func version(path string) string {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "of no known version"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "of no known version"
	}
	return words[len(words)-1]
}

// withoutUnified starts where the empty unified hierarchy of a hybrid host is out of
// sight. Its thread has mounts of its own and is never given back.
func withoutUnified(start func(out *os.File) (func() error, error)) func(out *os.File) (func() error, error) {
	type job struct {
		out  *os.File
		done chan struct{}
		end  func() error
		err  error
	}
	jobs := make(chan *job)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH))
		for job := range jobs {
			if job.err = err; err == nil {
				job.end, job.err = start(job.out)
			}
			close(job.done)
		}
	}()
	return func(out *os.File) (func() error, error) {
		one := &job{out: out, done: make(chan struct{})}
		jobs <- one
		<-one.done
		return one.end, one.err
	}
}

// bundle is what crun and runc take.
func (j *jails) bundle(dir string) error {
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(j.program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "program"), program, 0o755); err != nil {
		return err
	}
	type m = map[string]any
	limits := j.builtin["static"].Limits
	var spaces []m
	for _, kind := range []string{"pid", "network", "ipc", "uts", "mount", "cgroup"} {
		spaces = append(spaces, m{"type": kind})
	}
	raw, err := json.Marshal(m{
		"ociVersion": "1.0.2", "hostname": "jail", "root": m{"path": "rootfs", "readonly": true},
		"process": m{"user": m{"uid": jailUID, "gid": jailUID}, "args": []string{"/program"}, "env": []string{}, "cwd": "/", "noNewPrivileges": true, "capabilities": m{}},
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755", "size=64k"}},
			{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev", "noexec"}},
		},
		"linux": m{
			"cgroupsPath": "/" + j.group + "/oci", "namespaces": spaces,
			"resources": m{"memory": m{"limit": limits.MemoryBytes}, "pids": m{"limit": limits.PidsMax}},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644)
}

// libcontainer runs the program as integration/oracle runs the prober: a program of
// its own that makes the container, its filter and its group, and destroys them.
func (j *jails) libcontainer(oracle string, out *os.File) (func() error, error) {
	j.count++
	dir := filepath.Join(j.dir, fmt.Sprintf("container-%d", j.count))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	profile := j.builtin["bridge"]
	raw, err := json.Marshal(map[string]any{
		"Dir": dir, "ID": fmt.Sprintf("c%d", j.count), "Cgroup": j.group, "Profile": profile, "Limits": profile.Limits, "UID": jailUID,
		"Argv": []string{"/program"}, "Program": j.program, "Package": j.dir, "Owner": jailOwner, "Wait": firstWait,
	})
	if err != nil {
		return nil, err
	}
	documentR, documentW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer documentR.Close()
	defer documentW.Close()
	endR, endW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer endW.Close()
	cmd := exec.Command(oracle)
	cmd.Stdout, cmd.ExtraFiles, cmd.Env = out, []*os.File{documentR, endW}, os.Environ()
	if err := cmd.Start(); err != nil {
		endR.Close()
		return nil, err
	}
	if _, err := documentW.Write(raw); err != nil {
		endR.Close()
		return nil, errors.Join(err, cmd.Wait())
	}
	return func() error {
		defer endR.Close()
		var end struct {
			Code, Signal int
			Error        string
		}
		late := time.AfterFunc(firstWait, func() { cmd.Process.Signal(syscall.SIGKILL) })
		defer late.Stop()
		decodeErr := json.NewDecoder(endR).Decode(&end)
		if err := errors.Join(decodeErr, cmd.Wait(), os.RemoveAll(dir)); err != nil {
			return err
		}
		if end.Code != 0 || end.Signal != 0 || end.Error != "" {
			return fmt.Errorf("ended with %+v", end)
		}
		return nil
	}, nil
}
