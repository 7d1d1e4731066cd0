// Command postern-bridge is one bridge worker. It knows descriptor 3, the socket to
// the authority, and nothing else: no flag, no environment, no file, no network.
//
// It runs jailed under a leased uid. What its invariants are, package bridge says.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"postern/bridge"
)

const (
	authorityFD = 3
	// Each goroutine that waits in a system call keeps one of Go's processors until it is
	// missed: where they are fewer than the goroutines of one session, every call pays for
	// handing them round. More than the machine has costs nothing while they wait.
	processors = 8
	// The heap is small and what a call leaves is garbage at once. A collection costs more
	// than the megabytes that it would save until the worker rests and gives them back.
	gcPercent = 400
	memoryAim = 192 << 20 // the jail's limit is 256 MiB; towards this the collector works harder
)

func main() {
	runtime.GOMAXPROCS(processors)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryAim)
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	if err := bridge.New(bridge.Config{FD: authorityFD, Version: version, Rest: debug.FreeOSMemory}).Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "postern-bridge:", err)
		os.Exit(1)
	}
}
