// Command postern-authority decides, admits and records.
//
// It runs as user postern without capabilities, started by posternd with the
// order socket as descriptor 3. It starts no process, opens no network socket and
// receives no descriptor from anybody but posternd. Everything that reaches it by
// the project sockets, control.sock and the bridges is hostile.
//
// Invariants:
//   - authority-1: it serves nothing before open records of former incarnations are unknown.
//   - authority-2: when the store, posternd or the loop is lost, it ends, and every jail with it.
//
// It joins its parts and has no logic of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"postern/refusal"
	"postern/supervisor/sink"
)

func main() {
	stateDir := flag.String("state-dir", "/var/lib/postern", "directory of policy.db and activity.db")
	runDir := flag.String("run-dir", "/run/postern", "directory of the sockets; used in messages only")
	flag.Parse()
	lines := sink.New(os.Stderr)
	defer lines.Close()
	log := hclog.New(&hclog.LoggerOptions{Name: "authority", Level: hclog.Info, Output: lines, JSONFormat: os.Getenv("JOURNAL_STREAM") != ""})
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "postern-authority takes no arguments, got %q\n", flag.Arg(0))
		os.Exit(refusal.ExitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := run(ctx, *stateDir, *runDir, log)
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("the authority ends", "error", err)
		lines.Close()
		os.Exit(refusal.ExitFailed)
	}
}

// version is the module's, as the build recorded it.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}
