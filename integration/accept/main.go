// Command accept goes through what was agreed that tools of a project must do, one
// scenario after the other, and prints for each why it matters, what is put in, what is
// expected, what came, and on what it was tried: a fixture that speaks the protocol line
// by line, a client library that nobody here wrote, or a browser.
//
// It needs root. It runs the programs as make install puts them, with real jails, in a
// private Postern. A scenario that cannot be tried yet is not run, which is said and is
// never a pass; one that differs makes the command fail.
//
// It is no test of details: those are in the packages and in the rest of integration.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"postern/integration/rig"
)

func main() {
	only := flag.String("only", "", "go through the scenarios whose name contains this")
	flag.Parse()
	different, err := accept(*only, scenarios(), os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "accept:", err)
		os.Exit(1)
	case different > 0:
		os.Exit(1)
	}
}

// scenario is one thing that was agreed.
type scenario struct {
	name, why, input, expected string
	run                        func(*stage) (came string, ok bool, err error)
	notRun                     string // why it cannot be tried, or a part of it
}

// accept builds, installs, goes through all and says how many differed.
func accept(only string, all []scenario, out io.Writer) (different int, err error) {
	repo, err := rig.Repository()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("/tmp", "accept-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	install := exec.Command("make", "-s", "install", "DESTDIR="+dir, "PREFIX=/usr")
	install.Dir = repo
	if b, err := install.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("make install: %w\n%s", err, b)
	}
	pkg, err := rig.BuildServer(repo, dir, "count")
	if err != nil {
		return 0, err
	}
	pictures, err := rig.BuildServer(repo, dir, "pictures")
	if err != nil {
		return 0, err
	}
	r, err := rig.Start(rig.Config{Prefix: filepath.Join(dir, "usr"), Hosts: []rig.Host{{ID: "agents", UID: hostUID}}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	w := &world{Rig: r, pkg: pkg, pictures: pictures}
	if err := w.prepare(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, r.Log)
	}
	tally := map[string]int{}
	for _, s := range all {
		if !strings.Contains(s.name, only) {
			continue
		}
		fmt.Fprintf(out, "\n%s\n  why:       %s\n  input:     %s\n  expected:  %s\n", s.name, s.why, s.input, s.expected)
		for _, c := range clients {
			if s.run == nil {
				break
			}
			came, ok, err := s.run(&stage{world: w, client: c})
			verdict := "passed"
			if err != nil {
				came = strings.TrimSpace(came + " " + err.Error())
			}
			if err != nil || !ok {
				verdict = "DIFFERENT"
				different++
			}
			tally[verdict]++
			fmt.Fprintf(out, "  came:      %s\n  scope:     %s: %s\n", strings.ReplaceAll(came, "\n", "⏎ "), c.scope, verdict)
		}
		if s.notRun != "" {
			tally["not run"]++
			fmt.Fprintf(out, "  scope:     %s: not run\n", s.notRun)
		}
	}
	fmt.Fprintf(out, "\n%d passed, %d different, %d not run\n", tally["passed"], tally["DIFFERENT"], tally["not run"])
	if different > 0 {
		fmt.Fprintf(out, "\nwhat posternd and the authority logged:\n%s", r.Log)
	}
	return different, nil
}
