package landlock

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"postern/jail/spec"
)

// restricted runs f on a thread that has given itself rules, and that ends
// with f: Landlock holds for ever, but for one thread here.
func restricted(t *testing.T, rules []spec.PathRule, f func()) {
	t.Helper()
	if ABI() < Least {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs Landlock ABI %d, the kernel has %d", Least, ABI())
		}
		t.Skipf("needs Landlock ABI %d, the kernel has %d", Least, ABI())
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = Install(Least, rules)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func TestLandlock1_AVersionTheKernelOrThisProgramLacksIsAnError(t *testing.T) {
	for _, abi := range []int{-1, 0, 1, 5, 99} {
		if err := Install(abi, nil); err == nil {
			t.Errorf("ABI %d was accepted", abi)
		}
	}
	dir := t.TempDir()
	if err := open(dir, unix.O_RDONLY); err != nil {
		t.Errorf("a refused Install restricted the thread: %v", err)
	}
}

func TestLandlock2_WhatNoRuleNamesIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"read", "write", "none"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rules := []spec.PathRule{
		{Path: filepath.Join(dir, "read"), Read: true},
		{Path: filepath.Join(dir, "write"), Read: true, Write: true},
		{Path: filepath.Join(dir, "absent"), Read: true, Optional: true},
		{Path: dir, List: true},
	}
	restricted(t, rules, func() {
		if err := open(filepath.Join(dir, "none"), unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
			t.Errorf("listing, which has a rule: %v", err)
		}
		for path, want := range map[string]error{"read/f": nil, "write/f": nil, "none/f": unix.EACCES} {
			if err := open(filepath.Join(dir, path), unix.O_RDONLY); err != want {
				t.Errorf("read %s: %v, want %v", path, err, want)
			}
		}
		for path, want := range map[string]error{"read/f": unix.EACCES, "read/new": unix.EACCES, "write/f": nil, "write/new": nil, "none/f": unix.EACCES} {
			if err := open(filepath.Join(dir, path), unix.O_WRONLY|unix.O_CREAT); err != want {
				t.Errorf("write %s: %v, want %v", path, err, want)
			}
		}
		if err := unix.Mknod(filepath.Join(dir, "write", "dev"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != unix.EACCES && err != unix.EPERM {
			t.Errorf("a device node: %v", err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 1}); err != unix.EACCES {
			t.Errorf("bind: %v", err)
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 1}); err != unix.EACCES {
			t.Errorf("connect: %v", err)
		}
		if err := unix.Kill(os.Getppid(), 0); err != unix.EPERM {
			t.Errorf("a signal out of the domain: %v", err)
		}
	})
	if err := unix.Kill(os.Getppid(), 0); err != nil {
		t.Errorf("outside, the same signal: %v", err)
	}
	if err := Install(Least, []spec.PathRule{{Path: filepath.Join(dir, "absent"), Read: true}}); err == nil {
		t.Error("a rule for nothing was accepted")
	}
}

func TestLandlock3_RenamingBetweenDirectoriesWorks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	from, to := filepath.Join(dir, "a", "f"), filepath.Join(dir, "b", "f")
	if err := os.WriteFile(from, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	restricted(t, []spec.PathRule{{Path: dir, Read: true, Write: true}}, func() {
		if err := unix.Rename(from, to); err != nil {
			t.Errorf("rename: %v", err)
		}
	})
}
