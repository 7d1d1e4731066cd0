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

// costs are those of one Postern's processes, by what they do; of several together.
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
		one := costOf(dir)
		out[name] = cost{out[name].cpu + one.cpu, out[name].switches + one.switches}
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

// spent is what a number of calls have cost.
type spent struct {
	by    costs
	calls int
}

// add counts n calls, before and after which the costs were these.
func (s *spent) add(before, after costs, n int) {
	if s.by == nil {
		s.by = costs{}
	}
	for name, c := range after {
		was := before[name]
		s.by[name] = cost{s.by[name].cpu + c.cpu - was.cpu, s.by[name].switches + c.switches - was.switches}
	}
	s.calls += n
}

func (s *spent) perCall() string {
	var all []string
	for _, name := range []string{"bridge", "authority", "tool server"} {
		c := s.by[name]
		all = append(all, fmt.Sprintf("%s %.0f µs and %.1f switches", name, float64(c.cpu.Nanoseconds())/1e3/float64(s.calls), float64(c.switches)/float64(s.calls)))
	}
	return strings.Join(all, ", ")
}
