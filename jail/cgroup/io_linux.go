package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What one jail may read, and write, on each disk of the host. It is far above
// what a tool needs for long and well below what a disk does, so that one jail
// cannot keep the others from theirs.
const (
	ioBytes      = 128 << 20 // each second, in each direction
	ioOperations = 8192      // each second, in each direction
)

// delegated tells whether the unified hierarchy at dir hands out a controller.
// A host without io bounds everything else, so its jails run without this one.
func delegated(dir, controller string) bool {
	raw, err := read(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(raw), controller)
}

// limitIO bounds the group on every disk there is now. It writes one line for
// each disk, where containerd writes four.
func (g *Group) limitIO() error {
	numbers, err := disks()
	if err != nil {
		return err
	}
	for _, disk := range numbers {
		line := fmt.Sprintf("%s rbps=%d wbps=%d riops=%d wiops=%d", disk, ioBytes, ioBytes, ioOperations, ioOperations)
		if err := write(filepath.Join(g.unified, "io.max"), line); err != nil {
			return err
		}
	}
	return nil
}

// disks lists the numbers of the disks that have hardware, or a hypervisor's,
// below them. What is stacked on top of those (loop, dm, md) passes its requests
// down with the group they came from, and what has only memory below needs none.
func disks() ([]string, error) {
	found, err := filepath.Glob("/sys/block/*/device")
	if err != nil {
		return nil, err
	}
	var numbers []string
	for _, device := range found {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(device), "dev"))
		if err != nil {
			continue // unplugged, or a hidden path of a disk that is listed itself
		}
		numbers = append(numbers, strings.TrimSpace(string(raw)))
	}
	return numbers, nil
}
