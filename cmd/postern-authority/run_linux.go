package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"postern/supervisor/artifact"
	"postern/supervisor/audit"
	"postern/supervisor/control"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
	"postern/supervisor/workers"
)

// ordersFD is the order socket that posternd passes.
const ordersFD = 3

// bootIDPath names the current boot: a token of another boot has expired.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

func run(ctx context.Context, stateDir, runDir string, log hclog.Logger) error {
	// No core dump and no tracer of the same uid: tokens pass through this memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	unix.CloseOnExec(ordersFD)
	if t, err := unix.GetsockoptInt(ordersFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		return errors.New("descriptor 3 is not posternd's order socket; posternd starts this program")
	}
	boot, err := os.ReadFile(bootIDPath)
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	bootID := strings.TrimSpace(string(boot))

	start := newOpening(early, time.Now)
	st, err := store.OpenTelling(stateDir, start.alive)
	if err != nil {
		return err
	}
	defer st.Close()
	left, err := st.Recover(time.Now().UnixNano())
	if err != nil {
		return fmt.Errorf("close the records of former incarnations: %w", err)
	}
	log.Info("the store is open", "run_dir", runDir, "incarnation", st.Incarnation(), "unknown_calls", left.Calls, "closed_sessions", left.Sessions)
	start.alive()
	reg, err := registry.Load(st)
	if err != nil {
		return fmt.Errorf("load the registry: %w", err)
	}
	start.alive()
	held, err := st.HeldArtifacts()
	if err != nil {
		return fmt.Errorf("load the artifacts: %w", err)
	}
	claims := make([]artifact.Held, len(held))
	for i, h := range held {
		claims[i] = artifact.Held(h)
	}
	start.alive()
	kept, err := artifact.Open(stateDir, claims)
	if err != nil {
		return err
	}
	if err := kept.Left(); err != nil {
		log.Warn("files of artifacts that nothing holds could not be removed", "error", err)
	}
	instant := func() token.Instant {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return token.Instant{} // an empty boot id expires every token
		}
		return token.Instant{Wall: time.Now(), Boot: time.Duration(ts.Nano()), ID: bootID}
	}
	changes, err := audit.Open(stateDir, uint32(os.Geteuid()), audit.Default())
	if err != nil {
		return err
	}
	defer changes.Close()
	g := gate.New(gate.Config{Audit: recorder(changes, log), Registry: reg, Store: st, Artifacts: kept, Now: time.Now, Instant: instant, Random: func(b []byte) { rand.Read(b) }})

	group, ctx := errgroup.WithContext(ctx)
	listening := make(chan int, 1)
	w, err := workers.New(workers.Config{
		Gate: g, Orders: ordersFD, Log: log.Named("loop"), Artifacts: kept,
		Facts: func(r order.Root) error {
			root, err := rootOf(r, reg.Root())
			if err != nil {
				return err
			}
			if r.Audit != (order.Audit{}) {
				if err := changes.Retain(audit.Retention{MaxBytes: r.Audit.MaxBytes, Keep: r.Audit.Keep}); err != nil {
					return err
				}
			}
			begins := reg.Root().Version == 0
			news := reg.Root() == nil || reg.Root().Access != root.Access
			err = g.SetRoot(root)
			if begins {
				// What was read to begin with is a multiple of what is kept of it, and nothing
				// else needs as much again.
				debug.FreeOSMemory()
			}
			if err == nil && news {
				for _, text := range reg.Unmatched() {
					log.Warn("the access policy has a denial without a tool", "text", text)
				}
			}
			return err
		},
		Control: func(fd int) {
			select {
			case listening <- fd:
			default:
				unix.Close(fd)
			}
		},
	})
	if err != nil {
		return err
	}
	group.Go(func() error { return st.Run(ctx) })
	group.Go(func() error { return kept.Run(ctx) })
	group.Go(func() error {
		if err := w.Run(ctx); err != nil {
			return err
		}
		return context.Canceled
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case fd := <-listening:
			ln, err := listener(fd)
			if err != nil {
				return err
			}
			srv := control.New(control.Config{Gate: g, Workers: w, Store: st, Artifacts: kept, Bell: g.Bell(), Version: version(), Now: time.Now, Instant: instant, Log: log.Named("control")})
			return srv.Serve(ctx, ln)
		}
	})
	return group.Wait()
}

// recorder writes the record of a change of the authority's own facts.
func recorder(to *audit.Log, log hclog.Logger) func(gate.Actor, gate.Note) error {
	return func(who gate.Actor, n gate.Note) error {
		r := audit.Record{Actor: who.By, Origin: who.Origin, Action: who.Action, Request: who.Request, Target: n.Target, Before: n.Before, After: n.After, Failed: n.Failed}
		if r.Actor == "" {
			r.Actor, r.Origin, r.Action = "the authority", "itself", "follow"
		}
		err := to.Write(r)
		if err != nil {
			log.Error("a change could not be recorded, and was not made", "action", r.Action, "error", err)
		}
		return err
	}
}

// listener takes the listening socket fd over.
func listener(fd int) (*net.UnixListener, error) {
	f := os.NewFile(uintptr(fd), "control.sock")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	u, ok := ln.(*net.UnixListener)
	if !ok {
		ln.Close()
		return nil, errors.New("posternd passed a control socket of another kind")
	}
	u.SetUnlinkOnClose(false) // the name is posternd's
	return u, nil
}
