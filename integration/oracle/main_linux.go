// Command oracle runs a program in a container of libcontainer, configured as
// closely to a profile as libcontainer can be. The prober runs in both jails,
// and where the answers differ a reader is told why: two implementations by
// different people that refuse the same things are better evidence than one.
//
// It runs as root, in tests alone, in a binary of its own: libcontainer's C
// constructor is in every start of a program that links it. Its input is one
// document on descriptor 3 from the test; the program is the hostile prober.
//
// What libcontainer lacks is left out here and not worked around: the list of
// differences is the point.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // without it device rules fail
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its constructor joins the namespaces
	"github.com/opencontainers/runc/libcontainer/specconv"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Document is what the test asks for.
type Document struct {
	// Dir is empty and the container's own: its state and its root go there.
	Dir string
	// ID names the container and its group below Cgroup.
	ID, Cgroup string

	Profile spec.Profile
	Limits  spec.Limits
	UID     int
	Argv    []string
	// Host paths; Workspace is empty for none, and Owner's.
	Program, Package, Workspace string
	Owner                       int
	// Wait bounds the program's life.
	Wait time.Duration
}

// End is what it answers on descriptor 4.
type End struct {
	Code, Signal int
	Forced       bool
	Error        string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init() // becomes the program
	}
	var d Document
	var end End
	err := json.NewDecoder(os.NewFile(3, "document")).Decode(&d)
	if err == nil {
		end, err = run(d)
	}
	if err != nil {
		end.Error = err.Error()
	}
	if err := json.NewEncoder(os.NewFile(4, "end")).Encode(end); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes the container, runs the program in it and destroys it.
func run(d Document) (end End, err error) {
	root := filepath.Join(d.Dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return end, err
	}
	for _, l := range d.Profile.Links {
		at := filepath.Join(root, l.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(l.To, at)); err != nil {
			return end, err
		}
	}
	config, err := configure(d, root)
	if err != nil {
		return end, err
	}
	container, err := libcontainer.Create(filepath.Join(d.Dir, "state"), d.ID, config)
	if err != nil {
		return end, fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, container.Destroy()) }()

	env := []string{}
	for name, value := range d.Profile.Env {
		env = append(env, name+"="+value)
	}
	dir := "/"
	if d.Profile.Workspace {
		dir = spec.WorkspaceDir
	}
	process := &libcontainer.Process{
		Args: d.Argv, Env: env, UID: d.UID, GID: d.UID, Cwd: dir,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Init: true,
	}
	if err := container.Run(process); err != nil {
		return end, fmt.Errorf("run: %w", err)
	}
	late := time.AfterFunc(d.Wait, func() { process.Signal(unix.SIGKILL) })
	state, err := process.Wait()
	end.Forced = !late.Stop()
	if state == nil {
		return end, fmt.Errorf("wait: %w", err)
	}
	switch ws := state.Sys().(syscall.WaitStatus); {
	case ws.Signaled():
		end.Signal = int(ws.Signal())
	default:
		end.Code = ws.ExitStatus()
	}
	return end, nil
}

// configure says in libcontainer's words what a profile says in ours.
func configure(d Document, root string) (*configs.Config, error) {
	score, umask, pids := 500, uint32(0o22), int64(d.Limits.PidsMax)
	var rules []*devices.Rule
	var nodes []*devices.Device
	for _, device := range specconv.AllowedDevices {
		rules = append(rules, &device.Rule)
		switch device.Path {
		case "/dev/null": // without it libcontainer does not start
			nodes = append(nodes, device)
		case "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom":
			if d.Profile.Devices {
				nodes = append(nodes, device)
			}
		}
	}
	mounts, err := mounts(d)
	if err != nil {
		return nil, err
	}
	return &configs.Config{
		Rootfs: root, Readonlyfs: true, RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		Umask: &umask, Hostname: "jail", NoNewPrivileges: true, OomScoreAdj: &score,
		Capabilities: &configs.Capabilities{},
		Namespaces: configs.Namespaces{
			{Type: configs.NEWNS}, {Type: configs.NEWPID}, {Type: configs.NEWNET}, {Type: configs.NEWIPC}, {Type: configs.NEWUTS}, {Type: configs.NEWCGROUP},
		},
		Cgroups: &cgroups.Cgroup{
			Path: filepath.Join("/", d.Cgroup, d.ID),
			Resources: &cgroups.Resources{
				Devices: rules, Memory: d.Limits.MemoryBytes, PidsLimit: &pids,
				CpuPeriod: 100_000, CpuQuota: int64(d.Profile.Limits.CPUPercent) * 1000,
			},
		},
		Rlimits: []configs.Rlimit{
			limit(unix.RLIMIT_CORE, 1), limit(unix.RLIMIT_NOFILE, uint64(d.Limits.Nofile)), limit(unix.RLIMIT_FSIZE, uint64(d.Limits.FsizeBytes)),
			limit(unix.RLIMIT_MEMLOCK, 64<<10), limit(unix.RLIMIT_MSGQUEUE, 0), limit(unix.RLIMIT_SIGPENDING, 64),
			limit(unix.RLIMIT_NICE, 0), limit(unix.RLIMIT_RTPRIO, 0),
		},
		Devices: nodes,
		Mounts:  mounts,
		Seccomp: filter(d.Profile),
	}, nil
}

func limit(what int, value uint64) configs.Rlimit {
	return configs.Rlimit{Type: what, Hard: value, Soft: value}
}

// mounts are the profile's binds and what every jail has.
func mounts(d Document) ([]*configs.Mount, error) {
	const tight = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	var all []*configs.Mount
	bind := func(source, at string, flags int) *configs.Mount {
		m := &configs.Mount{Source: source, Destination: at, Device: "bind", Flags: unix.MS_BIND | flags}
		all = append(all, m)
		return m
	}
	tmpfs := func(at string, bytes int64, inodes int) {
		all = append(all, &configs.Mount{
			Source: "tmpfs", Destination: at, Device: "tmpfs", Flags: tight,
			Data: fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700,uid=%d,gid=%d", bytes, inodes, d.UID, d.UID),
		})
	}
	all = append(all, &configs.Mount{Source: "tmpfs", Destination: spec.DevDir, Device: "tmpfs", Flags: unix.MS_NOSUID, Data: "mode=755,size=64k"})
	if d.Profile.Proc {
		all = append(all, &configs.Mount{Source: "proc", Destination: spec.ProcDir, Device: "proc", Flags: tight, Data: "hidepid=invisible,subset=pid"})
	}
	for _, b := range d.Profile.Binds {
		flags := unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
		if !b.Exec {
			flags |= unix.MS_NOEXEC
		}
		if _, err := os.Stat(b.Source); errors.Is(err, os.ErrNotExist) && b.Optional {
			continue
		}
		bind(b.Source, b.At(), flags)
	}
	bind(d.Program, spec.ProgramFile, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV)
	pkg := unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if !d.Profile.PackageExec {
		pkg |= unix.MS_NOEXEC
	}
	bind(d.Package, spec.PackageDir, pkg)
	if d.Limits.TmpBytes > 0 {
		tmpfs(spec.TmpDir, d.Limits.TmpBytes, d.Limits.TmpInodes)
	}
	if d.Limits.ShmBytes > 0 {
		tmpfs(spec.ShmDir, d.Limits.ShmBytes, 0)
	}
	if d.Workspace != "" {
		mapped := []configs.IDMap{{ContainerID: int64(d.Owner), HostID: int64(d.UID), Size: 1}}
		bind(d.Workspace, spec.WorkspaceDir, tight).IDMapping = &configs.MountIDMapping{UIDMappings: mapped, GIDMappings: mapped}
	}
	return all, nil
}
