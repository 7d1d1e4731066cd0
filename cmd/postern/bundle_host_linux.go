package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"postern/supervisor/api"
	"postern/supervisor/config"
	"postern/supervisor/order"
)

// configuration reads the files as posternd does, and shows of them what has a member here.
func (b *bundling) configuration(ctx context.Context) (any, error) {
	type host struct {
		ID       string `json:"id"`
		UID      uint32 `json:"uid"`
		Accounts int    `json:"accounts"` // -1: all
		Projects int    `json:"projects"` // -1: all
		Channels int    `json:"channels"`
	}
	type mistake struct {
		File string `json:"file"`
		Line int    `json:"line"`
	}
	path := b.configFile(ctx)
	out := struct {
		File       string              `json:"file"`
		Found      bool                `json:"found"`
		UIDs       order.Range         `json:"uid_range"`
		Keep       order.Keep          `json:"activity"`
		Artifacts  order.KeepArtifacts `json:"artifacts"`
		Sessions   order.Sessions      `json:"sessions"`
		AuditKiB   uint32              `json:"audit_kib"`
		AuditFiles uint32              `json:"audit_files"`
		Drain      *uint32             `json:"drain_seconds,omitempty"`
		MetricsUID uint32              `json:"metrics_uid"`
		Hosts      []host              `json:"hosts"`
		Said       []config.Said       `json:"said"`
		Mistakes   []mistake           `json:"mistakes"`
		Unreadable []string            `json:"unreadable,omitempty"`
	}{File: path, Hosts: []host{}, Said: []config.Said{}, Mistakes: []mistake{}}
	names := []string{path}
	more, _ := filepath.Glob(filepath.Join(path+".d", "*.yaml"))
	slices.Sort(more)
	var files []config.Source
	for _, name := range append(names, more[:min(len(more), config.MaxFiles)]...) {
		raw, err := head(name, config.MaxFile+1)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			out.Unreadable = append(out.Unreadable, name)
		default:
			out.Found = out.Found || name == path
			files = append(files, config.Source{Name: name, Raw: raw})
		}
	}
	f, err := config.Decode(files...)
	for _, m := range mistakesOf(err) {
		out.Mistakes = append(out.Mistakes, mistake{m.File, m.Line})
	}
	out.UIDs, out.Keep, out.Artifacts, out.Sessions, out.AuditKiB, out.AuditFiles, out.Drain, out.MetricsUID = f.UIDs, f.Keep, f.Artifacts, f.Sessions, f.Audit.KiB, f.Audit.Files, f.Drain, f.MetricsUID
	count := func(list []string) int {
		if slices.Contains(list, "*") {
			return -1
		}
		return len(list)
	}
	for _, h := range f.Hosts {
		out.Hosts = append(out.Hosts, host{h.ID, h.UID, count(h.Accounts), count(h.Projects), len(h.Channels)})
	}
	out.Said = append(out.Said, f.Said[:min(len(f.Said), bundleRows)]...)
	return out, nil
}

// mistakesOf takes a joined error apart.
func mistakesOf(err error) (out []config.Mistake) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range all.Unwrap() {
			out = append(out, mistakesOf(e)...)
		}
		return out
	}
	var m config.Mistake
	if errors.As(err, &m) {
		out = append(out, m)
	}
	return out
}

// head reads the beginning of a plain file, of whoever it is: nothing that a read could
// wait for, and no link.
func head(path string, most int64) ([]byte, error) {
	f, err := openPlainFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func openPlainFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%q is no plain file", path))
	}
	return f, nil
}

// bundleChange is what a bundle has of one record of changes. Before and after hold paths,
// names and identities; a target may be an identity or whatever a client typed.
type bundleChange struct {
	At      string `json:"at"`
	Actor   string `json:"actor"`
	Origin  string `json:"origin"`
	Action  string `json:"action"`
	Target  string `json:"target,omitempty"` // an id, or nothing
	Version uint64 `json:"version,omitzero"`
	Failed  bool   `json:"failed,omitzero"`
}

var (
	anID     = regexp.MustCompile(`^[a-z]{3}_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	anAction = regexp.MustCompile(`^[a-z][a-z._ ]{0,40}$`)
	aTime    = regexp.MustCompile(`^[0-9T:.Z-]{20,35}$`)
	// What Postern writes of itself and of who asked.
	ofOurs = regexp.MustCompile(`^[a-zA-Z0-9 ,./_-]{0,120}$`)
)

func (b *bundling) changes(context.Context) (any, error) {
	type file struct {
		rows[bundleChange]
		Unread string `json:"unread,omitempty"`
	}
	out := struct {
		Root      file `json:"root"`
		Authority file `json:"authority"`
	}{}
	for dir, to := range map[string]*file{b.rootDir: &out.Root, b.stateDir: &out.Authority} {
		var err error
		if to.rows, err = changesIn(filepath.Join(dir, "audit.log")); err != nil {
			to.Unread = whyMissing(err)
		}
	}
	return out, nil
}

// changesIn reads the end of one record of changes. The authority's was written by its
// user, who may be anybody by now: what is no record of the known shape is passed over.
func changesIn(path string) (rows[bundleChange], error) {
	out := rows[bundleChange]{Rows: []bundleChange{}}
	f, err := openPlainFile(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, err
	}
	from := max(0, info.Size()-bundleTail)
	raw, err := io.ReadAll(io.NewSectionReader(f, from, bundleTail))
	if err != nil {
		return out, err
	}
	if from > 0 { // it begins inside a line
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	lines := slices.Collect(bytes.Lines(raw))
	lines = lines[max(0, len(lines)-bundleRecords):]
	for _, line := range lines {
		r, err := api.DecodeResult[struct {
			bundleChange
			Failed string `json:"failed"`
		}](bytes.TrimSpace(line))
		if c := r.bundleChange; err == nil && aTime.MatchString(c.At) && ofOurs.MatchString(c.Actor) && ofOurs.MatchString(c.Origin) && anAction.MatchString(c.Action) {
			if !anID.MatchString(c.Target) {
				c.Target = ""
			}
			c.Failed = r.Failed != ""
			out.Rows = append(out.Rows, c)
		}
	}
	return out, nil
}

func (b *bundling) warnings(ctx context.Context) (any, error) {
	r, err := b.rootStatus(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		Warnings rows[string] `json:"warnings"`
		Restart  []string     `json:"restart_needed"`
		Mistaken bool         `json:"config_mistaken"`
		Access   []int        `json:"access_mistaken_lines"`
	}{rowsOf(r.Warnings, bundleRows, func(s string) string { return s }), r.Config.Restart, r.Config.Error != "", linesOf(r.Access.Mistakes)}, nil
}

func linesOf(all []api.AccessMistake) []int {
	out := []int{}
	for _, m := range all[:min(len(all), bundleRows)] {
		out = append(out, m.Line)
	}
	return out
}

// processStates are the lines of /proc/PID/status that a bundle has.
var processStates = []string{"Threads", "VmPeak", "VmSize", "VmHWM", "VmRSS", "VmSwap", "FDSize", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd"}

func (b *bundling) processes(ctx context.Context) (any, error) {
	r, err := b.rootStatus(ctx)
	if err != nil {
		return nil, err
	}
	type process struct {
		Program     string            `json:"program"`
		PID         int               `json:"pid"`
		Goroutines  int               `json:"goroutines,omitzero"`
		Descriptors int               `json:"descriptors"`
		Limits      map[string]string `json:"limits"` // soft and hard
		Status      map[string]string `json:"status"`
	}
	out := struct {
		Processes []process `json:"processes"`
	}{[]process{}}
	goroutines := 0
	if s, err := b.authorityStatus(ctx); err == nil && s.StatusCounts != nil {
		goroutines = s.Goroutines
	}
	for _, p := range []process{{Program: "posternd", PID: r.PID, Goroutines: r.Goroutines}, {Program: "postern-authority", PID: r.Authority, Goroutines: goroutines}} {
		dir := filepath.Join("/proc", strconv.Itoa(p.PID))
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it has ended, or was never there
		}
		p.Descriptors = len(fds)
		p.Status = named(filepath.Join(dir, "status"), processStates)
		p.Limits = map[string]string{}
		raw, _ := head(filepath.Join(dir, "limits"), 1<<16)
		for line := range strings.Lines(string(raw)) {
			if name, rest, ok := strings.Cut(line, "  "); ok && slices.Contains([]string{"Max open files", "Max processes", "Max locked memory", "Max core file size"}, name) {
				if f := strings.Fields(rest); len(f) >= 2 {
					p.Limits[name] = f[0] + " " + f[1]
				}
			}
		}
		out.Processes = append(out.Processes, p)
	}
	return out, nil
}

// named takes lines "Name: value" of a file of the kernel's.
func named(path string, names []string) map[string]string {
	out := map[string]string{}
	raw, _ := head(path, 1<<16)
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && slices.Contains(names, name) {
			out[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return out
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kernelFiles are files of the kernel of one line each that a bundle has whole.
var kernelFiles = []string{
	"/sys/kernel/security/lsm", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cgroup.subtree_control", "/proc/loadavg",
	"/proc/sys/fs/file-max", "/proc/sys/fs/file-nr", "/proc/sys/fs/nr_open", "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/inotify/max_user_instances", "/proc/sys/fs/inotify/max_user_watches",
	"/proc/sys/fs/protected_symlinks", "/proc/sys/fs/protected_hardlinks", "/proc/sys/fs/protected_fifos", "/proc/sys/fs/protected_regular",
	"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/kernel/tainted",
	"/proc/sys/kernel/seccomp/actions_avail", "/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_pid_namespaces", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/unix/max_dgram_qlen",
}

func (b *bundling) kernel(context.Context) (any, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	files, pressure := map[string]string{}, map[string]string{}
	for _, path := range kernelFiles {
		if raw, err := head(path, 4096); err == nil {
			files[path] = strings.TrimSpace(string(raw))
		}
	}
	for _, of := range []string{"cpu", "memory", "io"} {
		if raw, err := head("/proc/pressure/"+of, 4096); err == nil {
			pressure[of] = strings.TrimSpace(string(raw))
		}
	}
	return struct {
		System   string            `json:"system"`
		Release  string            `json:"release"`
		Version  string            `json:"version"`
		Machine  string            `json:"machine"`
		CPUs     int               `json:"cpus"`
		Memory   map[string]string `json:"memory"`
		Pressure map[string]string `json:"pressure"`
		Files    map[string]string `json:"files"`
	}{unix.ByteSliceToString(u.Sysname[:]), kernelRelease(), unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]), runtime.NumCPU(),
		named("/proc/meminfo", []string{"MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Shmem"}), pressure, files}, nil
}

// mountFlags are those of statfs, by name.
var mountFlags = []struct {
	flag int64
	name string
}{{unix.ST_RDONLY, "ro"}, {unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"}, {unix.ST_SYNCHRONOUS, "sync"},
	{unix.ST_MANDLOCK, "mand"}, {unix.ST_NOATIME, "noatime"}, {unix.ST_NODIRATIME, "nodiratime"}, {unix.ST_RELATIME, "relatime"}}

func (b *bundling) filesystems(ctx context.Context) (any, error) {
	type place struct {
		Directory string   `json:"directory"`
		Of        string   `json:"of"`
		Type      string   `json:"type,omitempty"`
		Flags     []string `json:"flags,omitempty"`
		Bytes     uint64   `json:"bytes,omitzero"`
		Free      uint64   `json:"free_bytes,omitzero"`
		Files     uint64   `json:"files,omitzero"`
		FreeFiles uint64   `json:"free_files,omitzero"`
		Error     string   `json:"error,omitempty"`
	}
	all := []place{{Directory: b.rootDir, Of: "root directory"}, {Directory: b.stateDir, Of: "state directory"}, {Directory: b.a.runDir, Of: "run directory"}, {Directory: "/sys/fs/cgroup", Of: "control groups"}, {Directory: "/run/lock", Of: "locks"}}
	if r, err := b.projectList(ctx); err == nil {
		for _, p := range r.Projects {
			all = append(all, place{Directory: p.Workspace, Of: p.Project})
		}
	}
	return rowsOf(all, bundleRows, func(p place) place {
		var st unix.Statfs_t
		if err := unix.Statfs(p.Directory, &st); err != nil {
			p.Error = err.Error()
			return p
		}
		size := uint64(st.Bsize)
		p.Type, p.Bytes, p.Free, p.Files, p.FreeFiles = filesystem(p.Directory), st.Blocks*size, st.Bavail*size, st.Files, st.Ffree
		for _, m := range mountFlags {
			if st.Flags&m.flag != 0 {
				p.Flags = append(p.Flags, m.name)
			}
		}
		return p
	}), nil
}
