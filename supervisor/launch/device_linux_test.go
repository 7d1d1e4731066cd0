package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"postern/refusal"
	"postern/supervisor/order"
)

// loopAttach gives a file the next free loop device, which goes with its last mount.
func loopAttach(file string) (dev string, held *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer backing.Close()
	const tries = 16 // somebody else may take the one that was free
	for range tries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		dev = fmt.Sprintf("/dev/loop%d", n)
		held, err = os.OpenFile(dev, os.O_RDWR, 0)
		if err != nil {
			return "", nil, err
		}
		err = unix.IoctlLoopConfigure(int(held.Fd()), &unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			return dev, held, nil
		}
		held.Close()
		if !errors.Is(err, unix.EBUSY) {
			return "", nil, os.NewSyscallError("LOOP_CONFIGURE", err)
		}
	}
	return "", nil, errors.New("every loop device was taken meanwhile")
}

func deviceOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

// TestLaunch4_P2_AnotherDeviceNumberIsTheSameDirectory: a device is numbered in the order
// in which devices appear, so that after a reboot the same file system may have another
// number. A copy of the file system is told apart by the same test that a copied
// directory is.
func TestLaunch4_P2_AnotherDeviceNumberIsTheSameDirectory(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "at")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		dev, held, err := loopAttach(image)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close() // the mount keeps it
		if err := unix.Mount(dev, at, "ext4", 0, ""); err != nil {
			t.Fatalf("mount %s: %v", dev, err)
		}
	}
	_, held, err := loopAttach(image)
	if err != nil {
		// A guest without loop devices, as the virtual machine of the tests is one.
		t.Logf("no loop device can be had: %v", err)
		return
	}
	held.Close()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v %s", err, out)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	mount()
	ws := filepath.Join(at, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	p := registered(t, ws)
	before := deviceOf(t, ws)
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	// Something else gets the number that is free now.
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Truncate(other, size)); err != nil {
		t.Fatal(err)
	}
	if _, held, err = loopAttach(other); err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	mount()
	after := deviceOf(t, ws)
	if before == after {
		t.Logf("the device number is %d again: somebody else took part", after)
	}
	if refused := again(p); refused != nil {
		t.Errorf("device %d, then %d: %v", before, after, refused)
	}
	// Made again on that file system it is another one, whatever its number.
	if err := errors.Join(os.Remove(ws), os.Mkdir(ws, 0o755)); err != nil {
		t.Fatal(err)
	}
	if refused := again(p); refused == nil || refused.Code != refusal.ProjectReplaced {
		t.Errorf("made again: %v", refused)
	}
}

// TestLaunch4_P2_WhatIsMountedOverAWorkspace: another directory over it is not the
// project, under the same path; the directory itself over itself is. Renamed away and
// back it is the project again.
func TestLaunch4_P2_WhatIsMountedOverAWorkspace(t *testing.T) {
	r := start(t, newConfig(t))
	p, ws := r.project("alice", 1000)
	server, rev := r.server("echo")
	d := r.drive()
	bind := func(from string) {
		t.Helper()
		if err := unix.Mount(from, ws, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unbind := func() {
		t.Helper()
		if err := unix.Unmount(ws, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { unix.Unmount(ws, unix.MNT_DETACH) })
	runs := func(says string, seq uint64) {
		t.Helper()
		d.give(order.LaunchServer{Seq: seq, Project: p, Server: server, Revision: rev})
		l, pipes := d.launched()
		pipes[0].Close()
		if x, _ := expect[order.Exited](d); x.Jail != l.Jail {
			t.Fatalf("%s: %+v", says, x)
		}
	}
	refused := func(says string, seq uint64) {
		t.Helper()
		d.give(order.LaunchServer{Seq: seq, Project: p, Server: server, Revision: rev})
		d.notLaunched(refusal.ProjectReplaced)
	}
	runs("its own directory", 1)

	other := filepath.Join(r.dir, "other")
	if err := errors.Join(os.Mkdir(other, 0o755), os.Chown(other, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	mark := make([]byte, 64)
	if n, err := unix.Getxattr(ws, markName, mark); err == nil {
		if err := unix.Setxattr(other, markName, mark[:n], 0); err != nil {
			t.Fatal(err)
		}
	}
	bind(other)
	refused("another directory over it, with its mark", 2)
	unbind()
	runs("when that is gone", 3)
	bind(ws)
	runs("mounted over itself", 4)
	unbind()

	if err := os.Rename(ws, ws+".away"); err != nil {
		t.Fatal(err)
	}
	refused("renamed away", 5)
	if err := os.Rename(ws+".away", ws); err != nil {
		t.Fatal(err)
	}
	runs("renamed back", 6)
}
