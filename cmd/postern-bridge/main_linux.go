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

// The worker is one of many on a host and mostly waits: it trades processor time of
// the garbage collector for memory.
const (
	authorityFD = 3
	processors  = 2
	gcPercent   = 40
	memoryAim   = 192 << 20 // the jail's limit is 256 MiB; towards this the collector works harder
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
