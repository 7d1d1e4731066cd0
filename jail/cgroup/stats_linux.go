package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// Stats is what a group uses now, and the most memory it ever used.
type Stats struct {
	MemoryBytes int64
	MemoryPeak  int64
	CPUUsec     int64
	Pids        int
	// Pressure is nil where the kernel does not keep it for groups.
	Pressure *Pressure
}

// Pressure is how much of the last ten seconds, in percent, something in the group
// waited for a resource.
// Source: Linux Documentation/accounting/psi.rst, "some avg10".
type Pressure struct{ Memory, CPU, IO float64 }

// Stats reads the group's counters. A counter this host does not keep is 0.
func (g *Group) Stats() (Stats, error) {
	if g.tree.mode == V2 {
		m, err := g.manager.StatFiltered(cgroup2.StatPids | cgroup2.StatCPU | cgroup2.StatMemory)
		if err != nil {
			return Stats{}, err
		}
		return Stats{
			MemoryBytes: int64(m.Memory.GetUsage()),
			MemoryPeak:  int64(m.Memory.GetMaxUsage()),
			CPUUsec:     int64(m.CPU.GetUsageUsec()),
			Pids:        int(m.Pids.GetCurrent()),
			Pressure:    g.pressure(),
		}, nil
	}
	var s Stats
	var pids, nanos int64
	for _, f := range []struct {
		controller, file string
		to               *int64
	}{
		{"memory", "memory.usage_in_bytes", &s.MemoryBytes},
		{"memory", "memory.max_usage_in_bytes", &s.MemoryPeak},
		{"pids", "pids.current", &pids},
		{"cpuacct", "cpuacct.usage", &nanos},
	} {
		if g.v1[f.controller] == "" {
			continue
		}
		raw, err := read(filepath.Join(g.v1[f.controller], f.file))
		if err != nil {
			return Stats{}, err
		}
		if *f.to, err = strconv.ParseInt(strings.TrimSpace(raw), 10, 64); err != nil {
			return Stats{}, err
		}
	}
	s.Pids, s.CPUUsec, s.Pressure = int(pids), nanos/1000, g.pressure()
	return s, nil
}

// pressure reads what the unified hierarchy says, which on a hybrid host knows the
// jail's processes too. A kernel without it, or with it switched off, has no files or
// refuses to read them: nil.
func (g *Group) pressure() *Pressure {
	if g.unified == "" {
		return nil
	}
	var p Pressure
	for _, f := range []struct {
		file string
		to   *float64
	}{{"memory.pressure", &p.Memory}, {"cpu.pressure", &p.CPU}, {"io.pressure", &p.IO}} {
		raw, err := read(filepath.Join(g.unified, f.file))
		if err != nil {
			return nil
		}
		avg, ok := someAvg10(raw)
		if !ok {
			return nil
		}
		*f.to = avg
	}
	return &p
}

// someAvg10 finds the number in "some avg10=0.12 avg60=…".
func someAvg10(raw string) (float64, bool) {
	for line := range strings.Lines(raw) {
		rest, ok := strings.CutPrefix(line, "some avg10=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, " ")
		avg, err := strconv.ParseFloat(number, 64)
		return avg, err == nil && avg >= 0 && avg <= 100
	}
	return 0, false
}

// OOMKilled reports whether the kernel killed something in the group because
// its memory was used up.
func (g *Group) OOMKilled() bool {
	file := filepath.Join(g.unified, "memory.events")
	if g.tree.mode != V2 {
		file = filepath.Join(g.v1["memory"], "memory.oom_control")
	}
	raw, err := read(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(raw) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (name == "oom_kill" || name == "oom_group_kill") && value != "0" {
			return true
		}
	}
	return false
}
