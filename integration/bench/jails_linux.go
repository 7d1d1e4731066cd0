package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/integration/probe/target"
	"postern/jail"
	"postern/jail/spec"
	"postern/profiles"
)

// Bounds and ids of the jails' table.
const (
	firstWait   = 20 * time.Second // for a program's first byte, and for its end
	stormSize   = 300              // processes
	stormRounds = 5
	jailUID     = 3_980_000 // the first of those leased here; apart from any that another program uses
	jailOwner   = 3_989_999 // of workspaces
)

// namespaces are those of every contender but the plain program.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// contender is one way to start the program. start returns when the program was
// started, and what it returns waits for the end of everything.
type contender struct {
	name    string
	against string // the contender it is compared with; bubblewrap where none is named
	start   func(out *os.File) (end func() error, err error)
	took    []time.Duration // from the call of start to the first byte
}

// jails are what the table of jails needs.
type jails struct {
	repo, dir string // dir is this run's own
	program   string // static, says one byte
	group     string // parent group of every contender that has one
	launcher  *jail.Launcher
	builtin   map[string]spec.Profile
	floor     int // O_PATH of the group that the floor is cloned into, -1 for none
	count     int
}

// jailTable measures launches, rounds of each contender taking turns in random order,
// so that a noisy machine is noisy for all of them, and so is the kernel's taking down
// of the network namespace that the one before has left.
func jailTable(repo string, launches int) (err error) {
	j := &jails{repo: repo, floor: -1, group: fmt.Sprintf("postern-bench/%d", os.Getpid())}
	if j.dir, err = os.MkdirTemp("/var/tmp", "bench-jails-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(j.dir)) }()
	if err := os.Chmod(j.dir, 0o755); err != nil {
		return err
	}
	j.program = filepath.Join(j.dir, "first")
	if said, err := exec.Command("cc", "-O2", "-static", "-s", "-o", j.program, filepath.Join(repo, "integration/bench/testdata/first.c")).CombinedOutput(); err != nil {
		return fmt.Errorf("build first.c (make deps installs a compiler): %w\n%s", err, said)
	}
	if j.builtin, err = profiles.Builtin(); err != nil {
		return err
	}
	if j.launcher, err = jail.Open(jail.Config{Init: filepath.Join(repo, "bin/postern-jail"), Cgroup: j.group}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, j.launcher.Close())
		if j.floor >= 0 {
			unix.Close(j.floor)
		}
		left, sweepErr := j.launcher.Sweep()
		for _, name := range left {
			if name != floorGroup {
				err = errors.Join(err, fmt.Errorf("left behind: %s", name))
			}
		}
		err = errors.Join(err, sweepErr, target.RemoveGroups(j.group))
	}()
	all, err := j.contenders()
	if err != nil {
		return err
	}
	for range launches {
		for _, i := range rand.Perm(len(all)) {
			if err := all[i].turn(); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
		}
	}
	showJails(all, launches)
	return errors.Join(j.storm(), j.cycles(launches))
}

// turn launches once.
func (c *contender) turn() error {
	out, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.SetReadDeadline(time.Now().Add(firstWait)); err != nil {
		theirs.Close()
		return err
	}
	begin := time.Now()
	end, err := c.start(theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	n, err := out.Read(make([]byte, 1))
	took := time.Since(begin)
	if err := end(); err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("no first byte: %w", err)
	}
	c.took = append(c.took, took)
	return nil
}

// floorGroup is one group for every launch of the floor: making one is not part of it.
const floorGroup = "floor"

// contenders are in the order of the table: the floor, the jail that the others are
// compared with, the rest.
func (j *jails) contenders() ([]*contender, error) {
	unified := "/sys/fs/cgroup"
	if j.launcher.Mode() == "hybrid" {
		unified += "/unified"
	}
	if j.launcher.Mode() != "v1" {
		dir := filepath.Join(unified, j.group, floorGroup)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		var err error
		if j.floor, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
	}
	all := []*contender{
		{name: "bare clone3, these namespaces", start: j.bare},
		{name: "the program, no namespace", start: func(out *os.File) (func() error, error) { return run1(out, nil, j.program) }},
	}
	rivals, err := j.rivals()
	if err != nil {
		return nil, err
	}
	all = append(all, rivals...)
	return append(all,
		&contender{name: "ours: bridge", start: j.ours("bridge", nil)},
		&contender{name: "ours: static, no names held", start: j.ours("static", []string{})},
		&contender{name: "ours: static", against: holding, start: j.ours("static", jail.DefaultProtect())},
	), nil
}

// run1 starts a command without an environment.
func run1(out *os.File, sys *syscall.SysProcAttr, argv ...string) (func() error, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Files: []*os.File{null, out, os.Stderr}, Sys: sys,
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		state, err := p.Wait()
		if err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		return err
	}, nil
}

// bare is the least that can be done with these namespaces: one clone into a group
// that is there, and exec.
func (j *jails) bare(out *os.File) (func() error, error) {
	sys := &syscall.SysProcAttr{Cloneflags: namespaces}
	if j.floor >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, j.floor
	}
	return run1(out, sys, j.program)
}

// request is a launch under p, with a workspace of its own where p has one.
func (j *jails) request(p spec.Profile, protect []string, argv ...string) (jail.Request, error) {
	j.count++
	r := jail.Request{Name: fmt.Sprintf("b%d", j.count), Profile: p, UID: jailUID + uint32(j.count), GID: jailUID + uint32(j.count), Argv: argv}
	if !p.Workspace {
		return r, nil
	}
	dir := filepath.Join(j.dir, r.Name)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, jailOwner, jailOwner)); err != nil {
		return r, err
	}
	f, err := os.Open(dir)
	r.Workspace = &jail.Workspace{Dir: f, UID: jailOwner, GIDs: []uint32{jailOwner}, Protect: protect}
	return r, err
}

// ours launches under a built-in profile. Each launch has the lease of another uid, as
// posternd's have.
func (j *jails) ours(profile string, protect []string) func(out *os.File) (func() error, error) {
	r, requestErr := j.request(j.builtin[profile], protect, spec.ProgramFile)
	program, programErr := os.Open(j.program)
	first := r.UID
	return func(out *os.File) (func() error, error) {
		if err := errors.Join(requestErr, programErr); err != nil {
			return nil, err
		}
		r.Program, r.Stdout = program, out
		r.UID = first + (r.UID-first+97)%4096
		r.GID = r.UID
		p, err := j.launcher.Launch(r)
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := gone(p); err != nil || p.Exit() == (jail.Exit{}) {
				return err
			}
			return fmt.Errorf("ended with %+v", p.Exit())
		}, nil
	}
}

func gone(p *jail.Process) error {
	select {
	case <-p.Gone():
		return nil
	case <-time.After(firstWait):
		return fmt.Errorf("jail %s is not gone", p.Name())
	}
}

// storm kills a jail full of processes that ignore everything, some of which fork.
func (j *jails) storm() error {
	profile := j.builtin["node-spawn"]
	profile.Limits.PidsMax = 2 * stormSize
	var told, all []time.Duration
	for range stormRounds {
		r, err := j.request(profile, []string{}, spec.ProgramFile, "storm", fmt.Sprint(stormSize))
		if err != nil {
			return err
		}
		defer r.Workspace.Dir.Close()
		program, err := os.Open(j.program)
		if err != nil {
			return err
		}
		defer program.Close()
		r.Program = program
		out, theirs, err := os.Pipe()
		if err != nil {
			return err
		}
		defer out.Close()
		r.Stdout = theirs
		p, err := j.launcher.Launch(r)
		theirs.Close()
		if err != nil {
			return err
		}
		if n, err := out.Read(make([]byte, 1)); n != 1 {
			return fmt.Errorf("storm: %w", errors.Join(err, gone(p)))
		}
		if s, err := p.Stats(); err != nil || s.Pids < stormSize {
			return fmt.Errorf("storm: %+v, %w", s, err)
		}
		begin := time.Now()
		go p.Kill()
		<-p.Done()
		told = append(told, time.Since(begin))
		if err := gone(p); err != nil {
			return err
		}
		all = append(all, time.Since(begin))
	}
	fmt.Printf("\nkilling a jail of %d processes that ignore everything: %s until the last has ended, %s until its group is removed (median of %d)\n",
		stormSize, ms(median(told)), ms(median(all)), stormRounds)
	return nil
}

// cycles launches and waits until nothing is left, one after the other.
func (j *jails) cycles(n int) error {
	for _, profile := range []string{"bridge", "static"} {
		c := contender{start: j.ours(profile, nil)}
		begin := time.Now()
		for range n {
			if err := c.turn(); err != nil {
				return err
			}
		}
		fmt.Printf("launched, ended and gone, one after the other, %s: %.0f a second (%d)\n", profile, float64(n)/time.Since(begin).Seconds(), n)
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func showJails(all []*contender, launches int) {
	floor, measures := median(all[0].took), map[string]time.Duration{}
	for _, c := range all {
		measures[c.name] = median(c.took)
	}
	fmt.Printf("\nlaunch to first byte of a static C program, %d rounds in turn, %d processors\n\n", launches, runtime.NumCPU())
	fmt.Printf("%-34s | %9s %9s | %9s %9s\n", "", "median ms", "p10 ms", "× floor", "× bwrap")
	for _, c := range all {
		against := c.against
		if against == "" {
			against = bubblewrap
		}
		d := slices.Sorted(slices.Values(c.took))
		m := d[len(d)/2]
		fmt.Printf("%-34s | %9.2f %9.2f | %9.2f %9.2f\n", c.name, float64(m)/1e6, float64(d[len(d)/10])/1e6, float64(m)/float64(floor), float64(m)/float64(measures[against]))
	}
	fmt.Printf("\nthe bar for ours: 1.3 × bwrap; what holds names is compared with bwrap holding them\n")
}
