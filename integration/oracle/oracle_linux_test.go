package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"postern/integration/probe/target"
	"postern/jail/spec"
	"postern/profiles"
)

const (
	// wait bounds one run of the prober in a container.
	wait = 30 * time.Second
	// stopWait is for the probe that stops itself.
	stopWait = 2 * time.Second
)

// The same probes in a container of libcontainer: what it answers differently
// from the golden tables of our jails is listed with its reason, and nothing
// else differs. A difference that has gone fails too.
func TestOracle_TheSameProbesInALibcontainerJail(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root: namespaces, mounts and control groups")
		}
		t.Skip("needs root: namespaces, mounts and control groups")
	}
	dir, err := os.MkdirTemp("", "postern-oracle-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	helper := filepath.Join(dir, "oracle")
	build := exec.Command("go", "build", "-tags", "seccomp", "-o", helper, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	aimed, err := target.New(filepath.Join(dir, "target"))
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
	builtin, err := profiles.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	explained, err := target.ReadReasons("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	// The launcher is as careless as in the test of our jails.
	defer syscall.Umask(syscall.Umask(0))
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)

	group := fmt.Sprintf("postern-test/oracle-%d", os.Getpid())
	t.Cleanup(func() {
		if err := target.RemoveGroups(group); err != nil {
			t.Error(err)
		}
	})
	o := &oracle{helper: helper, dir: dir, group: group, aimed: aimed}
	same, differ := 0, 0
	for _, name := range slices.Sorted(maps.Keys(builtin)) {
		raw, err := os.ReadFile(filepath.Join("../probe/testdata", name+".txt"))
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("profile %s has no golden table to compare with", name)
			continue
		}
		ours := target.Parse(string(raw))
		theirs, err := target.Collect(o.runner(builtin[name]), probes)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range probes {
			a, b := ours[p.Name], theirs[p.Name]
			if target.Same(a, b) {
				same++
				continue
			}
			differ++
			key := fmt.Sprintf("%s %s / %s %s", p.Name, a, b, name)
			if _, ok := explained.Find(key); !ok {
				t.Errorf("a difference without a reason: %s", key)
			}
		}
	}
	for _, key := range explained.Unused() {
		t.Errorf("testdata/differences.txt: %q is no difference any more", key)
	}
	t.Logf("%d probes × %d profiles in libcontainer: %d answers like ours, %d that differ, each explained", len(probes), len(builtin), same, differ)
}

// oracle starts containers, one helper process each.
type oracle struct {
	helper, dir, group string
	aimed              *target.Target
	count              int
}

func (o *oracle) runner(p spec.Profile) target.Runner {
	limits := target.Limits(p.Limits)
	return func(names []string) (string, target.End, error) {
		o.count++
		d := Document{
			Dir: filepath.Join(o.dir, fmt.Sprintf("container-%d", o.count)), ID: fmt.Sprintf("c%d", o.count), Cgroup: o.group,
			Profile: p, Limits: limits, UID: target.UID, Argv: slices.Concat([]string{spec.ProgramFile}, o.aimed.Aim(true), names),
			Program: o.aimed.Program, Package: o.aimed.Package, Owner: target.Owner, Wait: wait,
		}
		if names[0] == "X20-stop" {
			d.Wait = stopWait
		}
		if err := os.Mkdir(d.Dir, 0o755); err != nil {
			return "", target.End{}, err
		}
		if p.Workspace {
			var err error
			if d.Workspace, err = o.aimed.Workspace(); err != nil {
				return "", target.End{}, err
			}
		}
		return o.run(d)
	}
}

// run starts the helper with the document on descriptor 3.
func (o *oracle) run(d Document) (string, target.End, error) {
	if err := o.aimed.Leak(); err != nil {
		return "", target.End{}, err
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return "", target.End{}, err
	}
	documentR, documentW, err := os.Pipe()
	if err != nil {
		return "", target.End{}, err
	}
	defer documentR.Close()
	endR, endW, err := os.Pipe()
	if err != nil {
		return "", target.End{}, err
	}
	defer endR.Close()
	stdin, hold, err := os.Pipe()
	if err != nil {
		return "", target.End{}, err
	}
	defer stdin.Close()
	hold.Close()

	var out, said bytes.Buffer
	cmd := exec.Command(o.helper)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &said
	cmd.ExtraFiles = []*os.File{documentR, endW}
	cmd.Env = append(os.Environ(), "AWS_SECRET_ACCESS_KEY=secret")
	err = cmd.Start()
	endW.Close()
	if err != nil {
		documentW.Close()
		return "", target.End{}, err
	}
	_, writeErr := documentW.Write(raw)
	documentW.Close()
	var end End
	decodeErr := json.NewDecoder(endR).Decode(&end)
	if err := errors.Join(writeErr, decodeErr, cmd.Wait()); err != nil {
		return "", target.End{}, fmt.Errorf("%w; it said %q and %q", err, out.String(), said.String())
	}
	if end.Error != "" {
		return "", target.End{}, fmt.Errorf("%s; it said %q and %q", end.Error, out.String(), said.String())
	}
	return out.String(), target.End{Code: end.Code, Signal: end.Signal, Forced: end.Forced}, nil
}
