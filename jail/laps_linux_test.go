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

	"golang.org/x/sys/unix"
)

const tags = "laps"

func now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func BenchmarkLaps(b *testing.B) {
	l := launcher(b)
	for _, w := range []struct {
		name, profile string
		protect       []string
	}{{"bridge", "bridge", nil}, {"static-open", "static", []string{}}, {"static", "static", DefaultProtect()}} {
		b.Run(w.name, func(b *testing.B) {
			took := map[string][]time.Duration{}
			var order []string
			r := request(b, w.profile, "ids")
			if r.Workspace != nil {
				r.Workspace.Protect = w.protect
			}
			for b.Loop() {
				laps.said = nil
				out, theirs, _ := os.Pipe()
				err, theirErr, _ := os.Pipe()
				r.Stdout, r.Stderr = theirs, theirErr
				p, e := l.Launch(r)
				if e != nil {
					b.Fatal(e)
				}
				theirs.Close()
				theirErr.Close()
				out.Read(make([]byte, 1))
				first := now()
				raw, _ := io.ReadAll(err)
				gone(b, p)
				out.Close()
				err.Close()
				type at struct {
					name string
					ns   int64
				}
				var all []at
				for line := range strings.Lines(string(laps.said) + string(raw) + fmt.Sprintf("+first %d\n", first)) {
					var a at
					if n, _ := fmt.Sscan(line, &a.name, &a.ns); n == 2 {
						all = append(all, a)
					}
				}
				slices.SortStableFunc(all, func(x, y at) int { return int(x.ns - y.ns) })
				begin := all[0].ns
				last := map[bool]int64{true: begin, false: begin}
				for _, a := range all {
					if a.name == "+clone" || a.name == "+enter" {
						last[false] = a.ns
					}
					if strings.HasPrefix(a.name, "+(") {
						took[a.name+"@"] = append(took[a.name+"@"], time.Duration(a.ns-begin))
						if !slices.Contains(order, a.name+"@") {
							order = append(order, a.name+"@")
						}
						continue
					}
					ours := a.name[0] == '+'
					prev := last[ours]
					if a.name == "+first" {
						prev = last[false]
					}
					last[ours] = a.ns
					took[a.name] = append(took[a.name], time.Duration(a.ns-prev))
					took[a.name+"@"] = append(took[a.name+"@"], time.Duration(a.ns-begin))
					if !slices.Contains(order, a.name) {
						order = append(order, a.name)
					}
				}
			}
			for _, n := range order {
				m := func(k string) time.Duration {
					d := took[k]
					slices.Sort(d)
					if len(d) == 0 {
						return 0
					}
					return d[len(d)/2]
				}
				fmt.Printf("%-20s %8d µs   at %8d µs\n", n, m(n).Microseconds(), m(strings.TrimSuffix(n, "@")+"@").Microseconds())
			}
		})
	}
}
