package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/probe/target"
	"postern/jail"
	"postern/jail/spec"
	"postern/profiles"
)

var update = flag.Bool("update", false, "write the golden tables")

// Bounds of one run of the prober in a jail.
const (
	jailWait = 30 * time.Second
	// stopWait is for the probe that stops itself: under a reaper it then waits
	// for ever, and only its launcher ends it.
	stopWait = time.Second
)

// Every probe, under every built-in profile, and outside twice: as the
// authority's own uid and as root. Nothing but what testdata says may be open;
// a refusal without a twin that is open proves nothing and needs a reason.
func TestJ8_C053_C057_C058_C059_C060_C062_C065_C067_EveryProbeUnderEveryProfile(t *testing.T) {
	needsRoot(t)
	aimed, err := target.New(filepath.Join(shortDir(t), "target"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := aimed.Close(); err != nil {
			t.Error(err)
		}
	})
	probes, err := aimed.List()
	if err != nil {
		t.Fatal(err)
	}

	// What a careless launcher is like.
	defer syscall.Umask(syscall.Umask(0))
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")

	open := map[string][]string{} // probe → where it is open
	for who, root := range map[string]bool{"uid": false, "root": true} {
		run, err := aimed.Twin(root)
		if err != nil {
			t.Fatal(err)
		}
		answers, err := target.Each(run, probes)
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range answers {
			if a.Verdict == "OPEN" {
				open[name] = append(open[name], who)
			}
		}
	}

	builtin, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	permitted, hosts := reasons(t, "open.txt"), reasons(t, "hosts.txt")
	refused := map[string]bool{} // by at least one profile
	count := 0
	l, _ := launcher(t)
	if err := aimed.Leak(); err != nil { // Open had closed them
		t.Fatal(err)
	}
	for _, profile := range slices.Sorted(maps.Keys(builtin)) {
		t.Run(profile, func(t *testing.T) {
			answers, err := target.Collect(jailed(t, l, aimed, builtin[profile]), probes)
			if err != nil {
				t.Fatal(err)
			}
			for name, a := range answers {
				// Which of several walls answers first depends on the host.
				if _, ok := hosts.Find(name); ok && a.Verdict == "CLOSED" {
					answers[name] = target.Answer{Verdict: "CLOSED", Detail: "any"}
				}
			}
			golden(t, profile+".txt", target.Format(probes, answers))
			closed := 0
			for _, p := range probes {
				switch a := answers[p.Name]; {
				case a.Refused():
					closed++
					refused[p.Name] = true
				case a.Verdict == "OPEN":
					if _, ok := permitted.Find(profile + " " + p.Name); !ok {
						t.Errorf("%s: %s is open, and testdata/open.txt has no reason: %s", profile, p.Name, p.What)
					}
					open[p.Name] = append(open[p.Name], profile)
				case a.Verdict != "INFO":
					t.Errorf("%s: %s: %s", profile, p.Name, a)
				}
			}
			count += closed
			t.Logf("%s: %d probes, %d refused, %d open for a reason, %d values", profile, len(probes), closed, countOpen(answers), len(probes)-closed-countOpen(answers))
			noSetIDFile(t, aimed)
		})
	}
	untwinned := reasons(t, "untwinned.txt")
	twins := 0
	for _, p := range probes {
		if !refused[p.Name] {
			continue
		}
		if len(open[p.Name]) > 0 {
			twins++
			continue
		}
		if _, ok := untwinned.Find(p.Name); !ok {
			t.Errorf("%s is open nowhere: it proves nothing, and testdata/untwinned.txt has no reason", p.Name)
		}
	}
	unused(t, "open.txt", permitted)
	unused(t, "untwinned.txt", untwinned)
	unused(t, "hosts.txt", hosts)
	t.Logf("in all: %d probes × %d profiles, %d refusals; of %d probes that some profile refuses, %d have a permitted twin, %d a reason why not",
		len(probes), len(builtin), count, len(refused), twins, len(refused)-twins)
}

// A script whose interpreter is whoever runs it must not make postern-jail run
// itself, privileged as it was, nor be a way to write it (CVE-2019-5736).
func TestL1_TheLauncherIsNotTheInterpreter(t *testing.T) {
	needsRoot(t)
	builtin, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	l, init := launcher(t)
	before, err := os.ReadFile(init)
	if err != nil {
		t.Fatal(err)
	}
	pkg := shortDir(t)
	if err := os.Chmod(pkg, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(shortDir(t), "probe")
	if err := target.Build(program, "postern/integration/probe"); err != nil {
		t.Fatal(err)
	}
	for name, interpreter := range map[string]string{"self": "/proc/self/exe", "other": spec.ProgramFile} {
		if err := os.WriteFile(filepath.Join(pkg, name), []byte("#!"+interpreter+" -list\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, profile := range []string{"static", "node-spawn"} {
		p := builtin[profile]
		p.PackageExec = true
		for script, starts := range map[string]bool{"self": false, "other": true} {
			ws := t.TempDir()
			if err := os.Chown(ws, target.Owner, target.Owner); err != nil {
				t.Fatal(err)
			}
			out, end, err := launch(l, jail.Request{
				Name: profile + "-" + script, Profile: p, UID: target.UID, GID: target.UID, Argv: []string{"/package/" + script},
				Program: open(t, program), Package: open(t, pkg), Workspace: &jail.Workspace{Dir: open(t, ws), UID: target.Owner, GIDs: []uint32{target.Owner}},
			}, jailWait)
			var step *jail.StepError
			switch {
			case starts && (err != nil || out == "" && end.Code == 0):
				t.Errorf("%s: the twin says %q and ends with %v, %v", profile, out, end, err)
			case !starts && (!errors.As(err, &step) || step.Step != "exec" || step.Errno != syscall.EACCES):
				t.Errorf("%s: %v, said %q; want EACCES of exec", profile, err, out)
			}
		}
	}
	if after, err := os.ReadFile(init); err != nil || !bytes.Equal(before, after) {
		t.Errorf("postern-jail has changed: %v", err)
	}
}

// jailed runs the prober under profile with every limit lowered to what it
// can use up quickly.
func jailed(t *testing.T, l *jail.Launcher, aimed *target.Target, p spec.Profile) target.Runner {
	t.Helper()
	program, pkg := open(t, aimed.Program), open(t, aimed.Package)
	limits := target.Limits(p.Limits)
	n := 0
	return func(names []string) (string, target.End, error) {
		n++
		r := jail.Request{
			Name: fmt.Sprintf("%s-%d", p.Name, n), Profile: p, UID: target.UID, GID: target.UID, Limits: limits,
			Argv: slices.Concat([]string{spec.ProgramFile}, aimed.Aim(true), names), Program: program, Package: pkg,
		}
		if p.Workspace {
			dir, err := aimed.Workspace()
			if err != nil {
				return "", target.End{}, err
			}
			d, err := os.Open(dir)
			if err != nil {
				return "", target.End{}, err
			}
			defer d.Close()
			r.Workspace = &jail.Workspace{Dir: d, UID: target.Owner, GIDs: []uint32{target.Owner}}
		}
		wait := jailWait
		if names[0] == "X20-stop" {
			wait = stopWait
		}
		return launch(l, r, wait)
	}
}

// launch runs r to its end.
func launch(l *jail.Launcher, r jail.Request, wait time.Duration) (string, target.End, error) {
	var ends [3][2]*os.File // a launch's own pipes: stdio is never shared
	for i := range ends {
		a, b, err := os.Pipe()
		if err != nil {
			return "", target.End{}, err
		}
		defer a.Close()
		defer b.Close()
		ends[i] = [2]*os.File{a, b}
	}
	r.Stdin, r.Stdout, r.Stderr = ends[0][0], ends[1][1], ends[2][1]
	p, err := l.Launch(r)
	if err != nil {
		return "", target.End{}, err
	}
	for _, f := range []*os.File{ends[0][0], ends[0][1], ends[1][1], ends[2][1]} {
		f.Close()
	}
	late := time.AfterFunc(wait, p.Kill)
	defer late.Stop()
	stderr := make(chan []byte)
	go func() {
		raw, _ := io.ReadAll(io.LimitReader(ends[2][0], 1<<16))
		stderr <- raw
	}()
	out, err := io.ReadAll(ends[1][0])
	if err != nil {
		return "", target.End{}, err
	}
	<-p.Gone()
	said := <-stderr
	e := p.Exit()
	end := target.End{Code: e.Code, Signal: e.Signal, OOM: e.OOM, Forced: e.Forced}
	if e.Code == 2 {
		return "", end, fmt.Errorf("the prober failed: %s", said)
	}
	return string(out), end, nil
}

// noSetIDFile looks from the host at what the probes left in the workspaces.
func noSetIDFile(t *testing.T, aimed *target.Target) {
	t.Helper()
	err := filepath.WalkDir(filepath.Dir(aimed.Program), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(path, "/workspace-") {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 {
			t.Errorf("on the host: %s has mode %v, %v", path, info.Mode(), err)
		}
		if strings.HasPrefix(d.Name(), "core") {
			t.Errorf("on the host: a core file %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func countOpen(answers map[string]target.Answer) (n int) {
	for _, a := range answers {
		if a.Verdict == "OPEN" {
			n++
		}
	}
	return n
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: a profile without a golden table; go test ./integration/probe -update writes it, to be read", err)
	}
	for _, d := range target.Differences(got, string(want)) {
		t.Errorf("%s: %s", name, d)
	}
}

func reasons(t *testing.T, name string) *target.Reasons {
	t.Helper()
	r, err := target.ReadReasons(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func unused(t *testing.T, name string, r *target.Reasons) {
	t.Helper()
	for _, key := range r.Unused() {
		t.Errorf("testdata/%s: %q is not true any more", name, key)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root: namespaces, mounts and control groups")
		}
		t.Skip("needs root: namespaces, mounts and control groups")
	}
}

// shortDir is a directory that the twin's uid can reach, with a path short
// enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "postern-probe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// launcher opens one, and returns the path of its postern-jail too.
func launcher(t *testing.T) (*jail.Launcher, string) {
	t.Helper()
	init := filepath.Join(shortDir(t), "postern-jail")
	if err := target.Build(init, "postern/cmd/postern-jail"); err != nil {
		t.Fatal(err)
	}
	parent := fmt.Sprintf("postern-test/probe-%d", os.Getpid())
	l, err := jail.Open(jail.Config{Init: init, Cgroup: parent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := l.Sweep(); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		if err := target.RemoveGroups(parent); err != nil {
			t.Error(err)
		}
	})
	return l, init
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
