package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"postern/integration/rig"
)

// cost is what one process has used so far.
type cost struct {
	cpu      time.Duration
	switches int // how often its threads stopped running, by themselves or not
}

// costs are those of one Postern's processes, by what they do.
type costs map[string]cost

// costsOf reads them from /proc: the numbers there are the kernel's, and hold also
// where other work slows the measured calls down.
func costsOf(r *rig.Rig) costs {
	out := costs{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 2 || f[1] != strconv.Itoa(r.PID()) {
			continue
		}
		dir := filepath.Dir(path)
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name := "tool server"
		switch arg0, _, _ := strings.Cut(string(cmdline), "\x00"); arg0 {
		case "postern-authority":
			name = "authority"
		case "/program":
			name = "bridge"
		}
		out[name] = costOf(dir)
	}
	return out
}

func costOf(dir string) (c cost) {
	tasks, _ := filepath.Glob(filepath.Join(dir, "task/*"))
	for _, t := range tasks {
		sched, _ := os.ReadFile(filepath.Join(t, "schedstat"))
		if f := strings.Fields(string(sched)); len(f) > 0 {
			ns, _ := strconv.ParseInt(f[0], 10, 64)
			c.cpu += time.Duration(ns)
		}
		status, _ := os.ReadFile(filepath.Join(t, "status"))
		for line := range strings.Lines(string(status)) {
			if name, n, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(name, "_ctxt_switches") {
				k, _ := strconv.Atoi(strings.TrimSpace(n))
				c.switches += k
			}
		}
	}
	return c
}

// perCall says what n calls have cost since before.
func (c costs) perCall(before costs, n int) string {
	var s []string
	for _, name := range []string{"bridge", "authority", "tool server"} {
		d := c[name]
		s = append(s, fmt.Sprintf("%s %.0f µs and %.1f switches", name, float64((d.cpu-before[name].cpu).Nanoseconds())/1e3/float64(n), float64(d.switches-before[name].switches)/float64(n)))
	}
	return strings.Join(s, ", ")
}
