package cgroup

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OOMEvents returns a file that can be read once the group's memory is used
// up, nil on the unified hierarchy: there the kernel itself ends the whole
// group (memory.oom.group), where v1 ends one process and lets the others live
// on half dead. The file must be closed before the group is removed, which
// would count as an event too.
//
// Source: Linux Documentation/admin-guide/cgroup-v1/memory.rst, "OOM Control".
func (g *Group) OOMEvents() (*os.File, error) {
	if g.tree.mode == V2 {
		return nil, nil
	}
	control, err := unix.Open(filepath.Join(g.v1["memory"], "memory.oom_control"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open memory.oom_control: %w", err)
	}
	defer unix.Close(control) // needed only until the two are tied together
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := write(filepath.Join(g.v1["memory"], "cgroup.event_control"), fmt.Sprintf("%d %d", event, control)); err != nil {
		unix.Close(event)
		return nil, err
	}
	return os.NewFile(uintptr(event), "oom"), nil
}
