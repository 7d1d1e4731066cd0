package launch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/order"
	"postern/supervisor/owned"
)

// ownPrograms gives a configuration programs that the test may replace.
func ownPrograms(t *testing.T) Config {
	t.Helper()
	cfg := newConfig(t)
	dir := filepath.Join(filepath.Dir(cfg.RunDir), "libexec")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{authorityProgram, bridgeProgram, jailProgram, "server"} {
		raw, err := os.ReadFile(filepath.Join(cfg.Libexec, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Libexec = dir
	return cfg
}

// replace does to an installed program what dpkg does: the old file gets a second name,
// the new one takes its first, and then the second is gone.
func replace(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path+".dpkg-new", raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Link(path, path+".dpkg-tmp"), os.Rename(path+".dpkg-new", path), os.Remove(path+".dpkg-tmp")); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st.Ino
}

// A package manager replaces every program while posternd runs. What is launched
// afterwards, the authority too, is of the build that runs; the next start takes the new.
func TestLaunch14_WhatRunsIsOfOneBuildWhateverIsInstalledMeanwhile(t *testing.T) {
	cfg := ownPrograms(t)
	r := start(t, cfg)
	p, _ := r.project("alice", 1000)
	server, rev := r.server("echo")
	kept := filepath.Join(cfg.RootDir, programsDir)
	was := inode(t, filepath.Join(kept, bridgeProgram))
	both := func(d *driver, first uint64) {
		t.Helper()
		d.give(order.LaunchBridge{Seq: first, Project: p, Set: 1})
		d.launched()
		d.give(order.LaunchServer{Seq: first + 1, Project: p, Set: 1, Server: server, Revision: rev})
		if _, files := d.launched(); hear(t, files[1]).UID == 0 {
			t.Error("the server runs as root")
		}
	}
	both(r.drive(), 1)

	good := map[string][]byte{}
	for _, name := range []string{authorityProgram, bridgeProgram, jailProgram} {
		raw, err := os.ReadFile(filepath.Join(cfg.Libexec, name))
		if err != nil {
			t.Fatal(err)
		}
		good[name] = raw
		replace(t, filepath.Join(cfg.Libexec, name), []byte("#!/bin/false\n")) // of a build that this one cannot use
	}
	d := r.drive()
	both(d, 11)
	d.say("!end") // and the next authority is of this build as well
	waitFor(t, "another authority", func() bool { return strings.Count(r.log.String(), "authority ready") == 2 })
	both(r.drive(), 21)
	r.down()
	if now := inode(t, filepath.Join(kept, bridgeProgram)); now != was {
		t.Error("the copy changed while posternd ran")
	}

	// The next start takes what is installed, here builds that differ in what nobody reads.
	for name, raw := range good {
		replace(t, filepath.Join(cfg.Libexec, name), append(raw, '\n'))
	}
	r = start(t, cfg)
	both(r.drive(), 1)
	for _, name := range []string{bridgeProgram, jailProgram} {
		raw, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil || !bytes.Equal(raw, append(good[name], '\n')) {
			t.Errorf("%s is not what is installed now: %d bytes, %v", name, len(raw), err)
		}
	}
	now := inode(t, filepath.Join(kept, bridgeProgram))
	r.down()
	start(t, cfg)
	if again := inode(t, filepath.Join(kept, bridgeProgram)); again != now {
		t.Error("a copy that is the same was written again")
	}
}

// Whatever lies where a copy belongs is replaced where it is not the very program, and
// nothing outside is written through it.
func TestLaunch14_ACopyThatIsNotTheProgramIsWrittenAgain(t *testing.T) {
	root := newDir(t)
	installed := filepath.Join(root, bridgeProgram)
	content := bytes.Repeat([]byte("a program "), 100_000)
	if err := os.WriteFile(installed, content, 0o755); err != nil {
		t.Fatal(err)
	}
	needRoot(t)
	for says, spoil := range map[string]func(copy string) error{
		"nothing is there":       os.Remove,
		"it is cut short":        func(c string) error { return os.Truncate(c, 1000) },
		"it is longer":           func(c string) error { return os.WriteFile(c, append(content, 'x'), 0o755) },
		"one byte differs":       func(c string) error { return os.WriteFile(c, append([]byte("b"), content[1:]...), 0o755) },
		"others may write it":    func(c string) error { return os.Chmod(c, 0o757) },
		"nobody may execute it":  func(c string) error { return os.Chmod(c, 0o644) },
		"it runs as its owner":   func(c string) error { return os.Chmod(c, 0o755|os.ModeSetuid) },
		"it is somebody else's":  func(c string) error { return os.Chown(c, 1000, 1000) },
		"it has another name":    func(c string) error { return os.Link(c, c+"2") },
		"it is a link elsewhere": func(c string) error { return errors.Join(os.Remove(c), os.Symlink(installed, c)) },
		"a half one is left":     func(c string) error { return errors.Join(os.Remove(c), os.WriteFile(c+".new", content[:9], 0o600)) },
		"the half one is a link": func(c string) error { return errors.Join(os.Remove(c), os.Symlink(installed, c+".new")) },
	} {
		path := filepath.Join(root, strings.ReplaceAll(says, " ", "-"))
		dir, err := privateDir(path)
		if err != nil {
			t.Fatal(err)
		}
		first, err := keepProgram(dir, installed)
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		kept := filepath.Join(path, bridgeProgram)
		if err := spoil(kept); err != nil {
			t.Fatal(err)
		}
		f, err := keepProgram(dir, installed)
		if err != nil {
			t.Errorf("%s: %v", says, err)
			continue
		}
		var st unix.Stat_t
		raw, err := os.ReadFile(kept)
		if err := errors.Join(err, unix.Lstat(kept, &st)); err != nil || !bytes.Equal(raw, content) || st.Mode != unix.S_IFREG|0o755 || st.Uid != 0 || st.Nlink != 1 {
			t.Errorf("%s: %d bytes, mode %o, uid %d, %d names, %v", says, len(raw), st.Mode, st.Uid, st.Nlink, err)
		}
		if _, err := os.Lstat(kept + ".new"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a half copy is left (%v)", says, err)
		}
		f.Close()
		dir.Close()
	}
	if raw, err := os.ReadFile(installed); err != nil || !bytes.Equal(raw, content) {
		t.Errorf("what is installed was written: %d bytes, %v", len(raw), err)
	}
}

// A second name is refused, but for the moment in which dpkg gives one.
func TestLaunch14_AProgramThatIsBeingReplacedIsWaitedFor(t *testing.T) {
	needRoot(t)
	path := filepath.Join(newDir(t), authorityProgram)
	if err := os.WriteFile(path, []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := openProgram(path); !errors.Is(err, owned.ErrRefused) {
		t.Errorf("with a second name: %v", err)
	}
	if took := time.Since(began); took > replaceWait/2 {
		t.Errorf("it was waited for %v", took)
	}
	if err := errors.Join(os.Remove(path+".old"), os.WriteFile(path+".dpkg-new", []byte("new"), 0o755), os.Link(path, path+".dpkg-tmp")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	time.AfterFunc(4*replaceStep, func() {
		done <- errors.Join(os.Rename(path+".dpkg-new", path), os.Remove(path+".dpkg-tmp"))
	})
	f, err := openProgram(path)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if raw, err := os.ReadFile(f.Name()); err != nil || string(raw) != "new" {
		t.Errorf("%q, %v", raw, err)
	}
}

// A root directory from which nothing is executed is named, with what to do.
func TestLaunch14_ARootDirectoryThatExecutesNothingIsNamed(t *testing.T) {
	cfg := ownPrograms(t)
	if err := os.Mkdir(cfg.RootDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", cfg.RootDir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(cfg.RootDir, unix.MNT_DETACH)
	err := Run(context.Background(), cfg)
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "noexec") || !strings.Contains(err.Error(), cfg.RootDir) {
		t.Fatalf("%v", err)
	}
	if err := unix.Mount("", cfg.RootDir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		t.Fatal(err)
	}
	r := start(t, cfg)
	r.down()
}
