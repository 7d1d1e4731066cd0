// Command postern-metrics shows how much Postern does to Prometheus.
//
// It runs as a user of its own, without privilege, as a client of control.sock like any
// other; the authority answers it where postern.yaml names its user as metrics_uid, with
// sums that name nobody. It is the only program here that links an HTTP library. Whoever
// reaches its port is hostile: it serves three documents, takes no parameters, and bounds
// connections, headers and times.
//
// Invariants:
//   - metrics-1: no label has a value that people, runtimes or tool servers choose.
//   - metrics-2: an authority that does not answer is postern_up 0, never an old number.
//   - metrics-3: ready means that the authority answered now and takes calls.
//
// It decides nothing and keeps nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"postern/refusal"
	"postern/supervisor/api"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9469", "address and port; beyond loopback put something that authenticates before it")
	runDir := flag.String("run-dir", "/run/postern", "directory of the supervisor's sockets")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "postern-metrics takes no arguments, got %q\n", flag.Arg(0))
		os.Exit(refusal.ExitUsage)
	}
	log := hclog.New(&hclog.LoggerOptions{Name: "metrics", Level: hclog.Info, Output: os.Stderr, JSONFormat: os.Getenv("JOURNAL_STREAM") != ""})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *listen, filepath.Join(*runDir, string(api.ControlSocket)), log, func(net.Addr) {}); err != nil {
		log.Error("it ends", "error", err)
		os.Exit(refusal.ExitFailed)
	}
}

// run serves until ctx ends; listening is told where.
func run(ctx context.Context, listen, socket string, log hclog.Logger, listening func(net.Addr)) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("serving", "address", ln.Addr().String(), "socket", socket)
	listening(ln.Addr())
	s := server(socket, log)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(newBounded(ln)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	leave, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	_ = s.Shutdown(leave) // whoever still reads then is cut off
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
