// Package cgroup knows the control groups that hold one jail: how they are
// made, joined, read, killed and removed on the three kinds of host there are.
//
//	v2      everything is in the one unified hierarchy
//	hybrid  memory, pids, cpu, devices and freezer are v1 hierarchies; an empty
//	        unified hierarchy beside them gives cgroup.kill and CLONE_INTO_CGROUP
//	v1      no unified hierarchy: killing is freeze, SIGKILL, thaw
//
// It runs as root in the launcher. Group names come from the launcher and are
// checked; what lies under the parent group may have been left by a crashed
// launcher and may hold live, hostile processes.
//
// On the unified hierarchy the groups are made and read by containerd's
// cgroup2, which knows how controllers are switched on down the path. The v1
// files are written here: containerd's cgroup1 took 1.5 ms to make a group and
// 9.8 ms to add a process, where five mkdir and nine writes take 0.3 ms, and a
// launch waits for both.
//
// Invariants:
//   - cgroup-1: a group is fresh: New refuses a name that exists in any
//     hierarchy, because after one cgroup.kill every child cloned into the same
//     group dies at birth.
//   - cgroup-2: limits are in force before the first process is.
//   - cgroup-3: Kill leaves no process alive, whatever it ignores or forks.
//   - cgroup-4: Sweep removes everything below the parent, nested groups and
//     live processes included, and nothing beside it.
//
// It does not know what runs in a group, and it builds no namespaces (jail).
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// Mode is the kind of host.
type Mode int

const (
	V1 Mode = iota + 1
	Hybrid
	V2
)

func (m Mode) String() string {
	switch m {
	case V1:
		return "v1"
	case Hybrid:
		return "hybrid"
	case V2:
		return "v2"
	}
	return "none"
}

const (
	mountpoint = "/sys/fs/cgroup"
	cpuPeriod  = 100_000 // microseconds, the kernel's default
	dirMode    = 0o755
	maxFile    = 64 << 10 // bytes read of one control file
)

// ErrMissing is returned by Open when the host lacks a layer no jail can do without.
var ErrMissing = errors.New("missing cgroup layer")

// v1Controllers are joined where they are mounted, in this order.
var v1Controllers = []string{"memory", "pids", "cpu", "cpuacct", "devices", "freezer"}

// Tree is the place below which all groups of one launcher lie.
type Tree struct {
	mode   Mode
	parent string // relative to each hierarchy
	// v1 is controller → mount point; two controllers may share one.
	v1      map[string]string
	unified string // mount point, empty on v1
	io      bool   // the unified hierarchy hands out io
}

// Open finds the hierarchies and makes the parent group in each. parent is
// relative, clean, and belongs to one launcher alone.
func Open(parent string) (*Tree, error) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return open(V2, parent)
	case cgroups.Hybrid:
		return open(Hybrid, parent)
	case cgroups.Legacy:
		return open(V1, parent)
	}
	return nil, fmt.Errorf("%w: nothing is mounted at %s", ErrMissing, mountpoint)
}

func open(mode Mode, parent string) (*Tree, error) {
	if parent == "" || !filepath.IsLocal(parent) || filepath.Clean(parent) != parent || parent == "." {
		return nil, fmt.Errorf("cgroup parent %q: want a clean relative path", parent)
	}
	t := &Tree{mode: mode, parent: parent, v1: map[string]string{}}
	switch mode {
	case V2:
		t.unified = mountpoint
		t.io = delegated(mountpoint, "io")
		// Making one group with every limit switches the controllers on along
		// the path, or says which of them this place does not get.
		probe := "postern-probe-" + strconv.Itoa(os.Getpid())
		g, err := t.New(probe, spec.Limits{MemoryBytes: spec.MinMemory, PidsMax: 1, CPUPercent: 100})
		if err != nil {
			return nil, fmt.Errorf("%w: memory, pids or cpu is not delegated to %q: %w", ErrMissing, parent, err)
		}
		killable := exists(filepath.Join(g.unified, "cgroup.kill"))
		if err := g.Remove(); err != nil {
			return nil, err
		}
		if !killable {
			return nil, fmt.Errorf("%w: cgroup.kill", ErrMissing)
		}
		return t, nil
	case Hybrid:
		t.unified = filepath.Join(mountpoint, "unified")
	}
	for _, c := range v1Controllers {
		// cpu and cpuacct are often one hierarchy under two links: what is compared
		// later is the directory itself.
		if dir, err := filepath.EvalSymlinks(filepath.Join(mountpoint, c)); err == nil && exists(filepath.Join(dir, "cgroup.procs")) {
			t.v1[c] = dir
		}
	}
	must := []string{"memory", "pids", "cpu"}
	if mode == V1 {
		must = append(must, "freezer") // the only way to kill all without a race
	}
	for _, c := range must {
		if t.v1[c] == "" {
			return nil, fmt.Errorf("%w: %s", ErrMissing, c)
		}
	}
	for _, dir := range t.parents() {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, fmt.Errorf("make parent group: %w", err)
		}
	}
	if mode == Hybrid && !exists(filepath.Join(t.unified, parent, "cgroup.kill")) {
		return nil, fmt.Errorf("%w: cgroup.kill", ErrMissing)
	}
	return t, nil
}

// Mode returns the kind of host.
func (t *Tree) Mode() Mode { return t.mode }

// Parent returns the parent group, relative to each hierarchy.
func (t *Tree) Parent() string { return t.parent }

// parents returns the parent group's directory in each hierarchy, without duplicates.
func (t *Tree) parents() []string {
	var dirs []string
	for _, c := range v1Controllers {
		if root, ok := t.v1[c]; ok {
			dirs = appendNew(dirs, root, t.parent)
		}
	}
	if t.unified != "" {
		dirs = append(dirs, filepath.Join(t.unified, t.parent))
	}
	return dirs
}

// appendNew adds root/rel unless it is there: two controllers may share a hierarchy.
func appendNew(dirs []string, root, rel string) []string {
	if dir := filepath.Join(root, rel); !slices.Contains(dirs, dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}

// Group is the control groups of one jail.
type Group struct {
	tree *Tree
	name string
	// v1 is controller → this group's directory; dirs the distinct ones.
	v1   map[string]string
	dirs []string
	// unified is this group's directory in the unified hierarchy, empty on v1,
	// and fd an O_PATH descriptor of it, else -1.
	unified string
	fd      int
	manager *cgroup2.Manager // on v2 only
}

// ValidName reports whether s can name a group: [a-z0-9_-]{1,64}.
func ValidName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// New makes a fresh group with its limits. On error nothing is left of it.
func (t *Tree) New(name string, limits spec.Limits) (_ *Group, err error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("group name %q: want [a-z0-9_-]{1,64}", name)
	}
	g := &Group{tree: t, name: name, v1: map[string]string{}, fd: -1}
	rel := filepath.Join(t.parent, name)
	defer func() {
		if err != nil {
			g.Remove()
		}
	}()

	if t.unified != "" {
		dir := filepath.Join(t.unified, rel)
		if t.mode == V2 {
			// containerd makes a missing parent; only the last mkdir must be fresh.
			if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
				return nil, err
			}
		}
		if err := os.Mkdir(dir, dirMode); err != nil {
			return nil, err
		}
		g.unified = dir
		if g.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return nil, &os.PathError{Op: "open", Path: dir, Err: err}
		}
	}
	if t.mode == V2 {
		r := resources(limits)
		if t.io {
			r.IO = &cgroup2.IO{} // asks for the controller; limitIO says how much
		}
		if g.manager, err = cgroup2.NewManager(t.unified, "/"+rel, r); err != nil || !t.io {
			return g, err
		}
		return g, g.limitIO()
	}
	for _, c := range v1Controllers {
		root, ok := t.v1[c]
		if !ok {
			continue
		}
		before := len(g.dirs)
		g.dirs = appendNew(g.dirs, root, rel)
		g.v1[c] = filepath.Join(root, rel)
		if len(g.dirs) == before {
			continue
		}
		if err := unix.Mkdir(g.v1[c], dirMode); err != nil {
			g.dirs = g.dirs[:before] // it is somebody else's: do not remove it
			return nil, &os.PathError{Op: "mkdir", Path: g.v1[c], Err: err}
		}
	}
	return g, g.limitV1(limits)
}

// resources are the limits as the unified hierarchy takes them. One process
// that runs out of memory ends the jail, so that none lives on half dead.
func resources(l spec.Limits) *cgroup2.Resources {
	memory, swap, group := l.MemoryBytes, int64(0), true
	quota, period := int64(l.CPUPercent)*cpuPeriod/100, uint64(cpuPeriod)
	return &cgroup2.Resources{
		Memory: &cgroup2.Memory{Max: &memory, Swap: &swap, OOMGroup: &group},
		Pids:   &cgroup2.Pids{Max: int64(l.PidsMax)},
		CPU:    &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)},
	}
}

func (g *Group) limitV1(l spec.Limits) error {
	memory := strconv.FormatInt(l.MemoryBytes, 10)
	sets := []struct{ controller, file, value string }{
		{"memory", "memory.limit_in_bytes", memory},
		{"pids", "pids.max", strconv.Itoa(l.PidsMax)},
		{"cpu", "cpu.cfs_quota_us", strconv.Itoa(l.CPUPercent * cpuPeriod / 100)},
	}
	if exists(filepath.Join(g.v1["memory"], "memory.memsw.limit_in_bytes")) {
		// Without this the kernel swaps instead of refusing.
		sets = append(sets, struct{ controller, file, value string }{"memory", "memory.memsw.limit_in_bytes", memory})
	}
	if _, ok := g.v1["devices"]; ok {
		// null, zero, full for everything; random and urandom for reading. The
		// jail has no other node and cannot make one: this is the second wall.
		sets = append(sets, struct{ controller, file, value string }{"devices", "devices.deny", "a"})
		for _, d := range []string{"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 r", "c 1:9 r"} {
			sets = append(sets, struct{ controller, file, value string }{"devices", "devices.allow", d})
		}
	}
	for _, s := range sets {
		if err := write(filepath.Join(g.v1[s.controller], s.file), s.value); err != nil {
			return err
		}
	}
	return nil
}

// FD returns the descriptor for CLONE_INTO_CGROUP, false where there is no
// unified hierarchy. It stays the group's.
func (g *Group) FD() (int, bool) { return g.fd, g.fd >= 0 }

// Join puts process pid, which must be waiting and single, into the v1 groups.
// On the unified hierarchy it was born in its group.
func (g *Group) Join(pid int) error {
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// ID returns the inode of the unified directory, which is the cgroup id that
// PIDFD_GET_INFO tells of a peer; 0 on v1.
func (g *Group) ID() uint64 {
	var st unix.Stat_t
	if g.fd < 0 || unix.Fstat(g.fd, &st) != nil {
		return 0
	}
	return st.Ino
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil
}

// write sets one control file. It avoids os.WriteFile, which would create the
// file where the kernel does not offer it.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

// read returns one control file.
func read(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var all []byte
	buf := make([]byte, 4096)
	for len(all) < maxFile {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		all = append(all, buf[:n]...)
	}
	return string(all), nil
}
