// Command bench measures the bars side by side in one run: the disk's floor, a
// tool server called directly, through a plain relay, through Postern's bridge
// with decision and durable record, and by postern connect, in three sizes; other
// gateways; the decision alone; launching in other people's jails and in ours; a worker
// at rest, and the end of a storm. RIVAL names one more gateway to run in the same turns,
// as a command line in which {} stands for the server's, or as the URL of one that runs.
//
// It needs root. Every figure is of one machine at one time: read the ratios.
// It is no test: nothing here passes or fails.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"postern/integration/rig"
)

func main() {
	relay := flag.Bool("relay", false, "be the plain relay in front of the command that follows")
	calls := flag.Int("calls", 3000, "calls of each kind and turn")
	turns := flag.Int("turns", 5, "turns; the median of their medians is shown")
	launches := flag.Int("launches", 100, "launches of each kind; 0 leaves launching and deciding out")
	beside := flag.String("beside", "", "a directory with the programs of another build, which take part in the same turns")
	only := flag.String("only", "", "measure only the ways whose name contains this, beside the direct one")
	typed := flag.Bool("typed", false, "be the typed proxy in front of the command that follows")
	alone := flag.Bool("jails", false, "measure launching and jails alone")
	large := flag.Bool("scale", false, "measure an installation of many projects alone")
	projects := flag.Int("projects", 10_000, "how many; ten tools are granted in each")
	cut := flag.Bool("revoke", false, "measure revocations under sessions that call alone")
	flag.Parse()
	var err error
	switch {
	case *large:
		err = scale(*projects)
	case *cut:
		err = revocations()
	case *relay:
		err = runRelay(flag.Args())
	case *typed:
		err = runTyped(flag.Args())
	case *alone:
		err = jailsAlone(*launches)
	default:
		err = run(*calls, *turns, *launches, *only, *beside)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// way is one path from a client to the same tool server.
type way struct {
	name string
	open func() (*client, error)
	one  []sample    // one caller, a sample for each turn
	size [2][]sample // one caller, larger: see sizes
	many []sample    // sixteen callers
	rig  *rig.Rig    // whose processes do the work; nil where it is no Postern
	cost [2]spent    // by one caller and by sixteen, of all turns
}

// sample is one turn's result.
type sample struct {
	p10, p50, p99 time.Duration // of one call
	rate          float64       // calls per second
}

const callers = 16

// sizes are the larger calls: arguments that come back, and a result.
var sizes = [2]struct {
	name, call string
	share      int // of the calls of a turn, one in so many
}{
	{"10 KB there and back", `"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("0123456789abcdef", 640) + `"}}`, 10},
	{"1 MB result", `"tools/call","params":{"name":"big","arguments":{"bytes":1048576}}`, 100},
}

// think is about the time between two syncs of one caller's calls. A disk that was at
// rest for that long answers later than one that is kept busy.
const think = 300 * time.Microsecond

// longest is the longest line of an answer.
const longest = 4 << 20

// private runs on a Postern of its own, with a directory and the package of the counting
// server.
func private(run func(r *rig.Rig, repo, dir, pkg string) error) (err error) {
	repo, err := rig.Repository()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	pkg, err := rig.BuildServer(repo, dir, "count")
	if err != nil {
		return err
	}
	r, err := rig.Start(rig.Config{Bin: filepath.Join(repo, "bin")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return run(r, repo, dir, pkg)
}

func run(calls, turns, launches int, only, beside string) error {
	return private(func(r *rig.Rig, repo, _, pkg string) error {
		return compare(r, repo, pkg, calls, turns, launches, only, beside)
	})
}

func compare(r *rig.Rig, repo, pkg string, calls, turns, launches int, only, beside string) (err error) {
	ours, project, end, err := through(r, pkg, "")
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return err
	}
	server := []string{filepath.Join(pkg, "count"), "/dev/null"}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ways := append([]*way{
		{name: "direct, over pipes", open: func() (*client, error) { return spawn(server, 0) }},
		{name: "a plain relay", open: func() (*client, error) { return spawn(append([]string{self, "-relay", "--"}, server...), 0) }},
	}, ours...)
	if beside != "" {
		other, err := rig.Start(rig.Config{Bin: beside})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, other.Close()) }()
		theirs, _, end, err := through(other, pkg, ", beside")
		defer func() { err = errors.Join(err, end()) }()
		if err != nil {
			return err
		}
		ways = append(ways, theirs...)
	}
	ways = append(ways, rivals(repo, self, server)...)
	direct := ways[0]
	ways = slices.DeleteFunc(ways, func(w *way) bool { return w != direct && !strings.Contains(w.name, only) })
	if err := errors.Join(atRest(r, project, "after one call"), togetherAtRest(r, project)); err != nil {
		return err
	}
	var floor, paused []time.Duration
	for t := range turns {
		fmt.Fprintf(os.Stderr, "turn %d of %d\n", t+1, turns)
		f, err := diskFloor(r.StateDir, 0)
		if err != nil {
			return err
		}
		g, err := diskFloor(r.StateDir, think)
		if err != nil {
			return err
		}
		floor, paused = append(floor, f), append(paused, g)
		for _, w := range ways {
			if err := w.turn(calls); err != nil {
				return fmt.Errorf("%s: %w\n%s", w.name, err, r.Log)
			}
		}
	}
	show(ways, median(floor), median(paused))
	if launches == 0 {
		return nil
	}
	if err := atRest(r, project, "after the calls above"); err != nil {
		return err
	}
	if err := jailTable(repo, launches); err != nil {
		return err
	}
	if err := lapsTable(repo, launches); err != nil {
		return err
	}
	return decisionTable(repo)
}

// through makes the ways that lead through one Postern: its project, and that of a second
// Postern of the same programs whose records lie in memory, which end closes.
func through(r *rig.Rig, pkg, suffix string) (ways []*way, project string, end func() error, err error) {
	end = func() error { return nil }
	if project, err = setUp(r, pkg); err != nil {
		return nil, "", end, fmt.Errorf("%w\n%s", err, r.Log)
	}
	mem, err := memoryRig(r.Bin)
	if err != nil {
		return nil, "", end, err
	}
	end = func() error { return errors.Join(mem.Close(), os.RemoveAll(filepath.Dir(mem.StateDir))) }
	inMemory, err := setUp(mem, pkg)
	if err != nil {
		return nil, "", end, fmt.Errorf("%w\n%s", err, mem.Log)
	}
	return []*way{
		{name: "bridge, over its socket" + suffix, rig: r, open: func() (*client, error) { return dial(r, project) }},
		{name: "bridge, by connect" + suffix, rig: r, open: func() (*client, error) { return connect(r, project) }},
		{name: "connect, record in memory" + suffix, rig: mem, open: func() (*client, error) { return connect(mem, inMemory) }},
	}, project, end, nil
}

func jailsAlone(launches int) error {
	repo, err := rig.Repository()
	if err != nil {
		return err
	}
	return errors.Join(jailTable(repo, launches), lapsTable(repo, launches))
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func show(ways []*way, floor, paused time.Duration) {
	us := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e3) }
	fmt.Printf("\nF, a 320-byte overwrite with fdatasync: %s µs (median); each after a pause of %v: %s µs\n\n", us(floor), think, us(paused))
	fmt.Printf("%-33s | %6s %6s %7s %8s | %6s %7s %8s | %s\n", "one tools/call", "p10 µs", "p50 µs", "p99 µs", "calls/s", "p50 µs", "p99 µs", "calls/s", "added p10, p50")
	fmt.Printf("%-33s | %30s | %23s |\n", "", "1 caller", fmt.Sprint(callers, " callers"))
	base := middle(ways[0].one)
	for _, w := range ways {
		a, b := middle(w.one), middle(w.many)
		fmt.Printf("%-33s | %6s %6s %7s %8.0f | %6s %7s %8.0f | %s, %s µs\n", w.name, us(a.p10), us(a.p50), us(a.p99), a.rate, us(b.p50), us(b.p99), b.rate, us(a.p10-base.p10), us(a.p50-base.p50))
	}
	fmt.Printf("\n%-33s | %21s p50 µs | %21s p50 µs and as often as direct\n", "one caller", sizes[0].name, sizes[1].name)
	for _, w := range ways {
		small, big := middle(w.size[0]).p50, middle(w.size[1]).p50
		fmt.Printf("%-33s | %28s | %28s  %.2f\n", w.name, us(small), us(big), float64(big)/float64(middle(ways[0].size[1]).p50))
	}
	fmt.Println("\nprocessor time of one call, one caller / sixteen")
	for _, w := range ways {
		if w.rig != nil {
			fmt.Printf("%s: %s / %s\n", w.name, w.cost[0].perCall(), w.cost[1].perCall())
		}
	}
	fmt.Printf("\nthe bar for connect at 1 caller: 2F + 120 = %s µs added\n", us(2*floor+120*time.Microsecond))
}

// middle takes the median of each figure over the turns.
func middle(s []sample) sample {
	pick := func(f func(sample) float64) float64 {
		v := make([]float64, len(s))
		for i := range s {
			v[i] = f(s[i])
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return sample{
		p10:  time.Duration(pick(func(x sample) float64 { return float64(x.p10) })),
		p50:  time.Duration(pick(func(x sample) float64 { return float64(x.p50) })),
		p99:  time.Duration(pick(func(x sample) float64 { return float64(x.p99) })),
		rate: pick(func(x sample) float64 { return x.rate }),
	}
}

// lapsTable prints what each part of a launch takes, in a build for measuring.
func lapsTable(repo string, launches int) error {
	c := exec.Command("go", "test", "-tags", "laps", "-run", "^$", "-bench", "Laps", "-benchtime", fmt.Sprint(launches, "x"), "./jail")
	c.Dir = repo
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("laps: %w\n%s", err, out)
	}
	fmt.Printf("\nwhat each part of a launch takes (docs/performance.md)\n%s", out)
	return nil
}

// decisionTable runs the decision's own benchmarks, and prints their figures.
func decisionTable(repo string) error {
	for _, b := range []struct{ pkg, name, times string }{
		{"./policy", "BenchmarkDecide", "1s"},
		{"./supervisor/gate", ".", "1s"},
	} {
		c := exec.Command("go", "test", "-run", "^$", "-bench", b.name, "-benchtime", b.times, b.pkg)
		c.Dir = repo
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", b.name, err, out)
		}
		in := bufio.NewScanner(bytes.NewReader(out))
		fmt.Printf("\n%s\n", b.pkg)
		for in.Scan() {
			if strings.HasPrefix(in.Text(), "Benchmark") {
				fmt.Println(strings.Join(strings.Fields(in.Text()), " "))
			}
		}
	}
	return nil
}

// runRelay copies lines both ways: the least any gateway can do.
func runRelay(argv []string) error {
	c := exec.Command(argv[0], argv[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	go func() { io.Copy(in, os.Stdin); in.Close() }()
	io.Copy(os.Stdout, out)
	return c.Wait()
}
