package target

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
)

// Probe is one row of the prober's own list.
type Probe struct {
	Name  string
	What  string
	Alone bool // it needs a process of its own
}

// Answer is what the kernel said to a probe: verdict and detail.
type Answer struct{ Verdict, Detail string }

// Refused tells whether the attempt came to nothing.
func (a Answer) Refused() bool { return a.Verdict == "CLOSED" || a.Verdict == "KILLED" }

func (a Answer) String() string { return strings.TrimSpace(a.Verdict + " " + a.Detail) }

// End is how one run of the prober ended.
type End struct {
	Code   int
	Signal int
	OOM    bool
	// Forced: it did not end, and its starter killed it.
	Forced bool
}

func (e End) String() string {
	switch {
	case e.Forced:
		return "by its launcher"
	case e.OOM:
		return "out of memory"
	case e.Signal != 0:
		return signalName(e.Signal)
	case e.Code > 128:
		return signalName(e.Code - 128) // from a reaper
	}
	return fmt.Sprintf("exit %d", e.Code)
}

func signalName(n int) string {
	for s, name := range map[syscall.Signal]string{syscall.SIGSYS: "SIGSYS", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGABRT: "SIGABRT", syscall.SIGXFSZ: "SIGXFSZ", syscall.SIGHUP: "SIGHUP"} {
		if int(s) == n {
			return name
		}
	}
	return fmt.Sprintf("signal %d", n)
}

// Runner runs the prober once with these probes, and returns what it said.
type Runner func(names []string) (out string, end End, err error)

// List asks the prober for its probes.
func (t *Target) List() ([]Probe, error) {
	out, err := exec.Command(t.Program, "-list").Output()
	if err != nil {
		return nil, err
	}
	var all []Probe
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 || seen[f[0]] {
			return nil, fmt.Errorf("the list holds %q", line)
		}
		seen[f[0]] = true
		all = append(all, Probe{Name: f[0], Alone: f[1] == "alone", What: f[2]})
	}
	return all, nil
}

// Collect runs every probe: together where they share a process, and going on
// after the one that ended it.
func Collect(run Runner, probes []Probe) (map[string]Answer, error) {
	answers := map[string]Answer{}
	var rest []string
	for _, p := range probes {
		if !p.Alone {
			rest = append(rest, p.Name)
			continue
		}
		if _, err := batch(run, []string{p.Name}, answers); err != nil {
			return nil, err
		}
	}
	for len(rest) > 0 {
		n, err := batch(run, rest, answers)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return answers, nil
}

// Each runs every probe in a process of its own.
func Each(run Runner, probes []Probe) (map[string]Answer, error) {
	answers := map[string]Answer{}
	for _, p := range probes {
		if _, err := batch(run, []string{p.Name}, answers); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// batch runs some probes and returns how many are answered by it.
func batch(run Runner, names []string, answers map[string]Answer) (int, error) {
	out, end, err := run(names)
	if err != nil {
		return 0, fmt.Errorf("run %q and %d more: %w", names[0], len(names)-1, err)
	}
	n := 0
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if n == len(names) || len(f) < 2 || f[0] != names[n] {
			return 0, fmt.Errorf("after %d of %q: the prober said %q", n, names, line)
		}
		answers[names[n]] = Answer{f[1], strings.Join(f[2:], " ")}
		n++
	}
	if n == len(names) {
		return n, nil
	}
	if end == (End{}) {
		return 0, fmt.Errorf("%s: no answer and a good end", names[n])
	}
	answers[names[n]] = Answer{"KILLED", end.String()}
	return n + 1, nil
}

// Format writes a table that people can read.
func Format(probes []Probe, answers map[string]Answer) string {
	var b strings.Builder
	for _, p := range probes {
		a := answers[p.Name]
		if a.Detail == "" {
			a.Detail = "-"
		}
		fmt.Fprintf(&b, "%-46s | %-7s | %-34s | %s\n", p.Name, a.Verdict, a.Detail, p.What)
	}
	return b.String()
}

// Parse reads a table back.
func Parse(table string) map[string]Answer {
	answers := map[string]Answer{}
	for line := range strings.Lines(table) {
		f := strings.Split(line, " | ")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(f) == 4 {
			answers[f[0]] = Answer{f[1], strings.TrimPrefix(f[2], "-")}
		}
	}
	return answers
}

// Same tells whether two answers mean the same. Which error a filter gives is a
// choice and no wall: a call that is refused is refused.
func Same(a, b Answer) bool {
	filtered := func(a Answer) bool {
		return a.Verdict == "CLOSED" && (a.Detail == "EPERM" || a.Detail == "ENOSYS" || a.Detail == "EAFNOSUPPORT")
	}
	any := a.Verdict == "CLOSED" && b.Verdict == "CLOSED" && (a.Detail == "any" || b.Detail == "any")
	return a == b || any || filtered(a) && filtered(b)
}

// Differences compares two tables line by line; a missing line is one.
func Differences(got, want string) []string {
	lines := func(s string) (names []string, rows map[string]string) {
		rows = map[string]string{}
		for line := range strings.Lines(s) {
			name, _, _ := strings.Cut(line, " ")
			names, rows[name] = append(names, name), strings.Join(strings.Fields(line), " ")
		}
		return names, rows
	}
	gotNames, gotRows := lines(got)
	wantNames, wantRows := lines(want)
	var out []string
	for _, n := range gotNames {
		if gotRows[n] != wantRows[n] {
			out = append(out, fmt.Sprintf("%q, the golden table has %q", gotRows[n], wantRows[n]))
		}
	}
	for _, n := range wantNames {
		if _, ok := gotRows[n]; !ok {
			out = append(out, fmt.Sprintf("nothing, the golden table has %q", wantRows[n]))
		}
	}
	return out
}

// Reasons is a file of lines "KEY : reason", # for comments. Keys may hold
// spaces, and * for anything.
type Reasons struct {
	keys []string
	is   map[string]*regexp.Regexp
	why  map[string]string
	used map[string]bool
}

// ReadReasons reads the file at path.
func ReadReasons(path string) (*Reasons, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &Reasons{is: map[string]*regexp.Regexp{}, why: map[string]string{}, used: map[string]bool{}}
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, why, ok := strings.Cut(line, " : ")
		key = strings.Join(strings.Fields(key), " ")
		if _, twice := r.why[key]; !ok || twice || len(strings.Fields(why)) < 3 {
			return nil, fmt.Errorf("%s: %q: want KEY : a reason, once", path, line)
		}
		r.is[key] = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(key), `\*`, ".*") + "$")
		r.keys, r.why[key] = append(r.keys, key), strings.TrimSpace(why)
	}
	return r, nil
}

// Find returns the reason of key, and remembers that it was needed.
func (r *Reasons) Find(key string) (string, bool) {
	for _, k := range r.keys {
		if r.is[k].MatchString(key) {
			r.used[k] = true
			return r.why[k], true
		}
	}
	return "", false
}

// Unused returns the keys that nothing asked for, but those whose reason begins
// with "host:", which other hosts may need.
func (r *Reasons) Unused() []string {
	var out []string
	for _, k := range r.keys {
		if !r.used[k] && !strings.HasPrefix(r.why[k], "host:") {
			out = append(out, k)
		}
	}
	return out
}
