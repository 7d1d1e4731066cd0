package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"postern/supervisor/api"
	"postern/supervisor/order"
	"postern/supervisor/owned"
)

var allPrograms = []string{authorityProgram, bridgeProgram, jailProgram}

// installing gives cfg a directory of programs that a test may do anything to.
func installing(t *testing.T, cfg *Config) (old map[string][]byte) {
	t.Helper()
	dir := newDir(t)
	old = map[string][]byte{}
	for _, name := range append([]string{"server"}, allPrograms...) {
		raw, err := os.ReadFile(filepath.Join(cfg.Libexec, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		old[name] = raw
	}
	cfg.Libexec = dir
	return old
}

// install puts a program in the place of another as an installer does: beside, renamed.
func install(t *testing.T, dir, name string, raw []byte) {
	t.Helper()
	fresh := filepath.Join(dir, name+".dpkg-new")
	if err := errors.Join(os.WriteFile(fresh, raw, 0o755), os.Rename(fresh, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

func kept(cfg Config, name string) string { return filepath.Join(cfg.RootDir, programsDir, name) }

// runs fails unless the process was started from a file of this content.
func runs(t *testing.T, pid int, want []byte) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || !bytes.Equal(raw, want) {
		t.Errorf("process %d runs a file of %d bytes, want that of %d: %v", pid, len(raw), len(want), err)
	}
}

// A package manager took the name of the installed bridge away while posternd ran, and from
// then on no bridge could be mounted into its jail, until posternd was started again; and
// what builds jails was the new one at once.
func TestLaunch14_WhatIsInstalledMeanwhileRunsFromTheNextStartOn(t *testing.T) {
	cfg := newConfig(t)
	old := installing(t, &cfg)
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	launches := func(seq uint64, bridge []byte) {
		t.Helper()
		d := r.drive()
		d.give(order.LaunchBridge{Seq: seq, Project: p, Set: 1})
		l, _ := d.launched()
		runs(t, l.PID, bridge)
		d.give(order.LaunchServer{Seq: seq + 1, Project: p, Set: 1, Server: server, Revision: rev})
		d.launched()
	}
	launches(1, old[bridgeProgram])

	// First nothing is there, then what no jail could be made with, and that under an
	// authority that is started again as well.
	for _, name := range allPrograms {
		if err := os.Remove(filepath.Join(cfg.Libexec, name)); err != nil {
			t.Fatal(err)
		}
	}
	launches(11, old[bridgeProgram])
	for _, name := range allPrograms {
		install(t, cfg.Libexec, name, []byte("no program"))
	}
	before := int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pid := 0
	waitFor(t, "another authority serves", func() bool {
		pid = int(r.must(api.RootStatus, struct{}{})["authority_pid"].(float64))
		return pid != 0 && pid != before
	})
	runs(t, pid, old[authorityProgram])
	launches(21, old[bridgeProgram])
	r.down()

	// A restart takes what is installed, and only what differs is written.
	bridge := append(bytes.Clone(old[bridgeProgram]), "of the next version"...)
	for name, raw := range map[string][]byte{authorityProgram: old[authorityProgram], bridgeProgram: bridge, jailProgram: old[jailProgram]} {
		install(t, cfg.Libexec, name, raw)
	}
	was, err := os.Stat(kept(cfg, jailProgram))
	if err != nil {
		t.Fatal(err)
	}
	r = start(t, cfg)
	launches(1, bridge)
	if is, err := os.Stat(kept(cfg, jailProgram)); err != nil || !os.SameFile(was, is) {
		t.Errorf("a copy that was the same is written again: %v", err)
	}
}

// A copy is whole after a crash at any step of its writing, is written again where its
// content is another, and is refused where somebody changed more of it than that.
func TestTheCopyOfAProgramIsMadeWhole(t *testing.T) {
	cfg := newConfig(t)
	old := installing(t, &cfg)
	keep := func() error {
		dir, err := cfg.keepPrograms(context.Background())
		if err == nil {
			err = dir.Close()
		}
		return err
	}
	path, dir := kept(cfg, bridgeProgram), filepath.Join(cfg.RootDir, programsDir)
	for name, c := range map[string]struct {
		do   func() error
		want string // "" is accepted
	}{
		"nothing": {func() error { return nil }, ""},
		"a crash before the rename": {func() error {
			return os.WriteFile(filepath.Join(dir, programTemp+bridgeProgram), []byte("half"), 0o700)
		}, ""},
		"a crash after the first one": {func() error { return os.Remove(kept(cfg, jailProgram)) }, ""},
		"none":                        {func() error { return os.Remove(path) }, ""},
		"an older one":                {func() error { return os.WriteFile(path, []byte("older"), 0o755) }, ""},
		"one byte changed": {func() error {
			return os.WriteFile(path, append(old[bridgeProgram][:len(old[bridgeProgram])-1:len(old[bridgeProgram])-1], old[bridgeProgram][len(old[bridgeProgram])-1]^1), 0o755)
		}, ""},
		"cut off":             {func() error { return os.Truncate(path, 4096) }, ""},
		"of another uid":      {func() error { return os.Chown(path, 1234, 0) }, "belongs to uid 1234"},
		"writable by others":  {func() error { return os.Chmod(path, 0o757) }, "has mode 0757"},
		"not executable":      {func() error { return os.Chmod(path, 0o644) }, "has mode -rw-r--r--"},
		"setuid":              {func() error { return os.Chmod(path, 0o755|os.ModeSetuid) }, "has mode u"},
		"with a further name": {func() error { return os.Link(path, filepath.Join(dir, "further")) }, "2 names"},
		"a link": {func() error {
			return errors.Join(os.Remove(path), os.Symlink(filepath.Join(cfg.Libexec, bridgeProgram), path))
		}, "symbolic link"},
		"a pipe":               {func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o755)) }, "neither a file nor a directory"},
		"a directory":          {func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }, "has mode d"},
		"in one of others":     {func() error { return os.Chmod(dir, 0o701) }, "has mode 0701"},
		"installed by another": {func() error { return os.Chown(filepath.Join(cfg.Libexec, jailProgram), 1234, 0) }, "belongs to uid 1234"},
		"not installed":        {func() error { return os.Remove(filepath.Join(cfg.Libexec, jailProgram)) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(cfg.RootDir); err != nil {
				t.Fatal(err)
			}
			for _, name := range allPrograms {
				install(t, cfg.Libexec, name, old[name])
			}
			if err := errors.Join(keep(), c.do()); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			err := keep()
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
					t.Errorf("what was refused is not as it was: %v, %v", after, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{bridgeProgram, jailProgram} {
				var st unix.Stat_t
				raw, err := os.ReadFile(kept(cfg, name))
				if err := errors.Join(err, unix.Stat(kept(cfg, name), &st)); err != nil || !bytes.Equal(raw, old[name]) || st.Uid != 0 || st.Mode&0o7777 != 0o755 || st.Nlink != 1 {
					t.Errorf("%s: %d bytes, uid %d, mode %o, %d names, %v", name, len(raw), st.Uid, st.Mode, st.Nlink, err)
				}
			}
			if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
				t.Errorf("there are %v, %v", all, err)
			}
		})
	}
}

// Where nothing can be started from the file system of the root directory, posternd says so
// at its start, and not every launch.
func TestARootDirectoryThatNothingRunsFromIsRefused(t *testing.T) {
	cfg := newConfig(t)
	cfg.Log = hclog.NewNullLogger()
	if err := os.Mkdir(cfg.RootDir, 0o700); err != nil {
		t.Fatal(err)
	}
	mount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("none", cfg.RootDir, "tmpfs", flags, "mode=0700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(cfg.RootDir, unix.MNT_DETACH) })
	}
	mount(unix.MS_NOEXEC)
	if err := Run(context.Background(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "noexec") {
		t.Errorf("it ended with %v", err)
	}
	mount(0)
	start(t, cfg)
}

// An installer gives a program a second name for a moment. A start in that moment ended as
// over a mistake of somebody's, which no service manager tries again.
func TestAProgramThatIsBeingReplacedIsWaitedFor(t *testing.T) {
	cfg := newConfig(t)
	old := installing(t, &cfg)
	path := filepath.Join(cfg.Libexec, authorityProgram)
	if err := os.Link(path, path+".dpkg-tmp"); err != nil {
		t.Fatal(err)
	}
	looked := make(chan *os.File, 1)
	failed := make(chan error, 1)
	go func() {
		f, err := cfg.openProgram(context.Background(), authorityProgram)
		failed <- err
		looked <- f
	}()
	select {
	case err := <-failed:
		t.Fatalf("it was not waited for: %v", err)
	case <-time.After(3 * replacedLook):
	}
	install(t, cfg.Libexec, authorityProgram, append(bytes.Clone(old[authorityProgram]), "new"...))
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	f := <-looked
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(old[authorityProgram]))+3 {
		t.Errorf("%v, %v", info, err)
	}
}

// What keeps its second name is refused like every such file, and whoever asks posternd to
// end while it waits is heard.
func TestTheWaitForAnInstallerEnds(t *testing.T) {
	cfg := newConfig(t)
	installing(t, &cfg)
	path := filepath.Join(cfg.Libexec, bridgeProgram)
	if err := os.Link(path, path+".second"); err != nil {
		t.Fatal(err)
	}
	if f, err := openSettled(context.Background(), nil, path, 3*replacedLook); f != nil || !errors.Is(err, owned.ErrRefused) || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("%v, %v", f, err)
	}
	cfg.Log = hclog.NewNullLogger()
	leave := make(chan struct{})
	close(leave)
	left := cfg
	left.Leave = leave
	if err := Run(context.Background(), left); err != nil {
		t.Errorf("asked to leave, it ended with %v", err)
	}
	ctx, end := context.WithCancel(context.Background())
	end()
	if err := Run(ctx, cfg); err != nil {
		t.Errorf("asked to end, it ended with %v", err)
	}
	// Nothing is held any more, and without the second name the same serves.
	if err := os.Remove(path + ".second"); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
}
