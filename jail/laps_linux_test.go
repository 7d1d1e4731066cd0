//go:build laps

package jail

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// tags are those that postern-jail is built with for the tests.
const tags = "laps"

// mark is one noted time. Those of the launcher's side begin with a plus, and are in
// brackets where they were made beside the rest.
type mark struct {
	name string
	at   int64 // nanoseconds
}

// BenchmarkLaps prints what each part of a launch takes, and when it has ended: first
// the launcher's side, then postern-jail's steps, which begin while the launcher still
// works. It needs the build tag laps, and is run by itself:
//
//	go test -tags laps -run '^$' -bench Laps -benchtime 200x ./jail
func BenchmarkLaps(b *testing.B) {
	l := launcher(b)
	for _, w := range []struct {
		name, profile string
		protect       []string
	}{{"bridge", "bridge", nil}, {"static", "static", DefaultProtect()}} {
		b.Run(w.name, func(b *testing.B) {
			r := request(b, w.profile, "ids")
			if r.Workspace != nil {
				r.Workspace.Protect = w.protect
			}
			t := table{took: map[string][]time.Duration{}, ended: map[string][]time.Duration{}}
			for b.Loop() {
				t.add(lapsOf(b, l, r))
			}
			t.print(w.name)
		})
	}
}

// table gathers the launches of one profile.
type table struct {
	order       []string
	took, ended map[string][]time.Duration
}

func (t *table) add(all []mark) {
	last := map[bool]int64{true: all[0].at, false: all[0].at}
	for _, m := range all[1:] {
		ours := strings.HasPrefix(m.name, "+")
		if !slices.Contains(t.order, m.name) {
			t.order = append(t.order, m.name)
		}
		since := last[ours]
		switch {
		case strings.HasPrefix(m.name, "+("):
			since = all[0].at
		case m.name == "+first-byte":
			since = last[false] // since the last step
		default:
			last[ours] = m.at
		}
		if m.name == "+enter" {
			last[false] = m.at // the new process begins
		}
		t.took[m.name] = append(t.took[m.name], time.Duration(m.at-since))
		t.ended[m.name] = append(t.ended[m.name], time.Duration(m.at-all[0].at))
	}
}

func (t *table) print(title string) {
	fmt.Printf("\n%-20s %10s %10s %10s\n", title, "median µs", "mean µs", "ended at")
	for _, name := range t.order {
		fmt.Printf("%-20s %10d %10d %10d\n", name, middle(t.took[name]), mean(t.took[name]), middle(t.ended[name]))
	}
}

// lapsOf launches r once and returns what both sides noted, in the order of time.
func lapsOf(b *testing.B, l *Launcher, r Request) []mark {
	var pipes [4]*os.File
	for i := range 2 {
		var err error
		if pipes[2*i], pipes[2*i+1], err = os.Pipe(); err != nil {
			b.Fatal(err)
		}
	}
	defer pipes[0].Close()
	defer pipes[2].Close()
	r.Stdout, r.Stderr = pipes[1], pipes[3]
	laps.said = nil
	p, err := l.Launch(r)
	pipes[1].Close()
	pipes[3].Close()
	if err != nil {
		b.Fatal(err)
	}
	if n, err := pipes[0].Read(make([]byte, 1)); n != 1 {
		b.Fatal(err)
	}
	lap("+first-byte")
	steps, err := io.ReadAll(pipes[2])
	if err != nil {
		b.Fatal(err)
	}
	gone(b, p)
	var all []mark
	for _, line := range strings.Split(strings.TrimSpace(string(laps.said)+string(steps)), "\n") {
		var m mark
		if _, err := fmt.Sscan(line, &m.name, &m.at); err != nil {
			b.Fatalf("%q: %v", line, err)
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(x, y mark) int { return int(x.at - y.at) })
	return all
}

func middle(d []time.Duration) int64 {
	slices.Sort(d)
	return d[len(d)/2].Microseconds()
}

func mean(d []time.Duration) int64 {
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	return (sum / time.Duration(len(d))).Microseconds()
}
