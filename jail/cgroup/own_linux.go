package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// ErrNotDelegated is returned where a service manager keeps the group it started this
// process in for itself.
var ErrNotDelegated = errors.New("the control group is not delegated")

// Names of the groups below a unit's own.
const (
	leafName  = "supervisor" // of the launcher itself, as in the unit file
	jailsName = "jails"
)

// needed are the controllers without which a jail has no bounds.
var needed = []string{"memory", "pids", "cpu"}

// Unit finds the group of the unit that a service manager started this process in, moves
// the process into a leaf below it where it is not in one, and returns the group for
// jails, for Open. On a host without the unified hierarchy alone it returns "": nothing
// is delegated there.
//
// The leaf is needed because a group that holds processes hands out no controllers. The
// mark is needed because the manager would move or remove what it finds in a group that
// it did not give away, and nothing could be bounded. Sources: cgroups(7), "no internal
// processes"; systemd's CGROUP_DELEGATION.md.
func Unit() (parent string, err error) {
	if cgroups.Mode() != cgroups.Unified {
		return "", nil
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own, ok := ownGroup(string(raw))
	if !ok {
		return "", fmt.Errorf("the own group is not in sight: %q", raw)
	}
	unit, ok := marked(own)
	if !ok {
		return "", fmt.Errorf("%w: set Delegate=yes in the [Service] section of the unit of %q", ErrNotDelegated, own)
	}
	have, err := read(filepath.Join(mountpoint, unit, "cgroup.controllers"))
	if err != nil {
		return "", err
	}
	for _, c := range needed {
		if !slices.Contains(strings.Fields(have), c) {
			return "", fmt.Errorf("%w: the controller %s is not among those of %q (%s): set Delegate=yes in the [Service] section of its unit, which gives every one", ErrNotDelegated, c, unit, strings.TrimSpace(have))
		}
	}
	if own == unit {
		leaf := filepath.Join(mountpoint, unit, leafName)
		if err := unix.Mkdir(leaf, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return "", &os.PathError{Op: "mkdir", Path: leaf, Err: err}
		}
		if err := write(filepath.Join(leaf, "cgroup.procs"), "0"); err != nil {
			return "", err
		}
	}
	return strings.TrimPrefix(filepath.Join(unit, jailsName), "/"), nil
}

// ownGroup finds the group of the unified hierarchy in a process's list.
func ownGroup(list string) (string, bool) {
	for line := range strings.Lines(list) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/..")
		}
	}
	return "", false
}

// marked finds the group that systemd marked as given away: the own one, or the one
// above where the unit has a DelegateSubgroup.
func marked(own string) (string, bool) {
	for _, dir := range []string{own, filepath.Dir(own)} {
		// The first is for everybody to read, from systemd 251 on; the second is root's.
		for _, name := range []string{"user.delegate", "trusted.delegate"} {
			var value [1]byte
			n, err := unix.Getxattr(filepath.Join(mountpoint, dir), name, value[:])
			if err == nil && n == 1 && value[0] == '1' {
				return dir, true
			}
		}
	}
	return "", false
}
