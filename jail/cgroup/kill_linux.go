package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of killing and removing.
const (
	killRounds  = 64                     // freeze, kill, thaw at most this often
	freezeWait  = time.Second            // for FREEZING to become FROZEN
	removeWait  = 2 * time.Second        // for the kernel to let go of an empty group
	removePause = 500 * time.Microsecond // EBUSY lasts 1-2 ms after the last exit
	maxNested   = 4096                   // directories that one leftover group may hold
)

// ErrBusy is returned when a group could not be emptied or removed in time.
// Its name and everything leased to it must not be used again.
var ErrBusy = errors.New("cgroup is still in use")

// Kill sends SIGKILL to every process of the group and of groups nested in it.
// It returns when all have been told, not when all are gone.
func (g *Group) Kill() error {
	if g.unified != "" {
		return write(filepath.Join(g.unified, "cgroup.kill"), "1")
	}
	return killV1(g.dirs, g.v1["freezer"])
}

// killV1 empties v1 directories. A frozen process cannot fork, so a round that
// kills everything it sees misses nothing that was there when it froze; but
// only thawed processes die, so the round ends with a thaw.
func killV1(dirs []string, freezer string) error {
	for range killRounds {
		if freezer != "" && exists(filepath.Join(freezer, "freezer.state")) {
			freeze(freezer)
		}
		alive := 0
		for _, dir := range dirs {
			pids, err := processes(dir)
			if err != nil {
				return err
			}
			for _, pid := range pids {
				if kill(pid, dir) {
					alive++
				}
			}
		}
		if freezer != "" && exists(filepath.Join(freezer, "freezer.state")) {
			if err := write(filepath.Join(freezer, "freezer.state"), "THAWED"); err != nil {
				return err
			}
		}
		if alive == 0 {
			return nil
		}
		time.Sleep(removePause)
	}
	return ErrBusy
}

// freeze asks for FROZEN and waits a bounded while. Where it fails, the rounds
// of killV1 still end: pids.max bounds what can be forked meanwhile.
func freeze(dir string) {
	file := filepath.Join(dir, "freezer.state")
	for end := time.Now().Add(freezeWait); time.Now().Before(end); time.Sleep(removePause) {
		// Writing again makes the kernel retry tasks that were forking.
		if write(file, "FROZEN") != nil {
			return
		}
		if state, err := read(file); err != nil || strings.TrimSpace(state) == "FROZEN" {
			return
		}
	}
}

// kill ends pid if it is a member of dir, and reports whether it was alive.
// The descriptor is taken before the membership is read again, so that a
// number which came to mean another process in between is never signalled.
func kill(pid int, dir string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	again, err := processes(dir)
	if err != nil || !slices.Contains(again, pid) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes lists the processes of dir and of everything nested in it. A
// directory that is gone has none.
func processes(dir string) ([]int, error) {
	var pids []int
	all, err := nested(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		raw, err := read(filepath.Join(d, "cgroup.procs"))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(raw) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// nested returns dir and every group below it, deepest first.
func nested(dir string) ([]string, error) {
	var found []string
	var walk func(string) error
	walk = func(d string) error {
		entries, err := os.ReadDir(d)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				if err := walk(filepath.Join(d, e.Name())); err != nil {
					return err
				}
			}
		}
		if found = append(found, d); len(found) > maxNested {
			return fmt.Errorf("more than %d groups below %s", maxNested, dir)
		}
		return nil
	}
	return found, walk(dir)
}

// Empty reports whether no process is left in the group.
func (g *Group) Empty() bool {
	if g.unified != "" {
		raw, err := read(filepath.Join(g.unified, "cgroup.events"))
		return errors.Is(err, unix.ENOENT) || err == nil && strings.Contains(raw, "populated 0")
	}
	for _, dir := range g.dirs {
		if pids, err := processes(dir); err != nil || len(pids) > 0 {
			return false
		}
	}
	return true
}

// Remove deletes the group once it is empty, waiting a bounded while for the
// kernel. It may be called again, also after it succeeded.
func (g *Group) Remove() error {
	if g.fd >= 0 {
		unix.Close(g.fd)
		g.fd = -1
	}
	dirs := g.dirs
	if g.unified != "" {
		dirs = append(slices.Clone(dirs), g.unified)
	}
	return removeAll(dirs)
}

// removeAll removes each directory depth first: a group that holds a group,
// empty or not, is EBUSY.
func removeAll(dirs []string) error {
	end := time.Now().Add(removeWait)
	for _, dir := range dirs {
		for {
			err := removeOnce(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("%w: %w", ErrBusy, err)
			}
			time.Sleep(removePause)
		}
	}
	return nil
}

func removeOnce(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	all, listErr := nested(dir)
	if listErr != nil {
		return listErr
	}
	for _, d := range all {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
			return &os.PathError{Op: "rmdir", Path: d, Err: err}
		}
	}
	return nil
}

// Sweep kills and removes every group below the parent for which keep is
// false, in every hierarchy, and returns their names. It goes on past a group
// it cannot remove, and reports that one in the error.
func (t *Tree) Sweep(keep func(name string) bool) ([]string, error) {
	names := map[string]bool{}
	parents := t.parents()
	for _, parent := range parents {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && !keep(e.Name()) {
				names[e.Name()] = true
			}
		}
	}
	var swept []string
	var failed []error
	for name := range names {
		if err := t.sweep(name); err != nil {
			failed = append(failed, fmt.Errorf("sweep %q: %w", name, err))
			continue
		}
		swept = append(swept, name)
	}
	slices.Sort(swept)
	return swept, errors.Join(failed...)
}

func (t *Tree) sweep(name string) error {
	rel := filepath.Join(t.parent, name)
	var v1, all []string
	for _, c := range v1Controllers {
		if root, ok := t.v1[c]; ok {
			v1 = appendNew(v1, root, rel)
		}
	}
	all = v1
	if t.unified != "" {
		dir := filepath.Join(t.unified, rel)
		all = append(slices.Clone(v1), dir)
		if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	// A launcher that died between clone and join left a process in some of the
	// hierarchies only, so the v1 directories are emptied in any case.
	freezer := ""
	if root, ok := t.v1["freezer"]; ok {
		freezer = filepath.Join(root, rel)
	}
	if err := killV1(v1, freezer); err != nil {
		return err
	}
	return removeAll(all)
}
