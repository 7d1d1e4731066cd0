package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Home is where the calling thread was found in the v1 hierarchies, so that it can
// go into a jail's groups, have a child that is born in them, and come back.
//
// Moving another process, as Join does, takes the lock that every fork and exit on
// the machine takes for reading, and waits until the kernel knows that no processor
// holds it: milliseconds on a busy host. A thread that moves itself alone does not.
// Source: Linux kernel/cgroup/cgroup.c, cgroup_procs_write_start.
type Home struct {
	tree  *Tree
	tasks []int // of the own groups, in the order of Tree.homes
}

// Home finds the calling thread's groups. On the unified hierarchy alone there is
// nothing to find: a child is cloned into its group.
//
// Preconditions: the thread is locked, and stays where it is but by Around.
func (t *Tree) Home() (_ *Home, err error) {
	h := &Home{tree: t}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if t.mode == V2 {
		return h, nil
	}
	raw, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	var seen []string
	for _, c := range v1Controllers {
		root, ok := t.v1[c]
		if !ok {
			continue
		}
		before := len(seen)
		if seen = appendNew(seen, root, ""); len(seen) == before {
			continue
		}
		own := ""
		for line := range strings.Lines(string(raw)) {
			if col := strings.SplitN(strings.TrimSpace(line), ":", 3); len(col) == 3 && slices.Contains(strings.Split(col[1], ","), c) {
				own = col[2]
			}
		}
		file := filepath.Join(root, own, "tasks")
		if own == "" || strings.HasPrefix(own, "/..") {
			return nil, fmt.Errorf("%s: the own group %q is not in sight", c, own)
		}
		fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: file, Err: err}
		}
		h.tasks = append(h.tasks, fd)
	}
	return h, nil
}

// Close forgets the place.
func (h *Home) Close() {
	for _, fd := range h.tasks {
		unix.Close(fd)
	}
	h.tasks = nil
}

// self is what stands for the writing thread in a tasks file.
var self = []byte("0")

// Around calls start while the calling thread is in the v1 groups of g. It comes
// back in any case: a thread that stayed would be ended with the jail, and with it
// the launcher, so not coming back is a broken invariant and panics.
func (h *Home) Around(g *Group, start func() error) (err error) {
	defer func() {
		for _, fd := range h.tasks {
			if _, backErr := unix.Write(fd, self); backErr != nil {
				panic("the launcher's thread cannot leave a jail's group: " + backErr.Error())
			}
		}
	}()
	for _, dir := range g.dirs {
		file := filepath.Join(dir, "tasks")
		fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: file, Err: err}
		}
		_, err = unix.Write(fd, self)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("enter %s: %w", dir, err)
		}
	}
	return start()
}
