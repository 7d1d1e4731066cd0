package workers

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// ProbeWait bounds a whole probe.
const ProbeWait = 60 * time.Second

// probeOver is why a probe's bridge is ended.
const probeOver = "the probe is over"

// probe is a fresh bridge with no session and no project, and the probed server.
type probe struct {
	inst    *instance
	jail    ids.Jail // the server's, also after it is gone
	set     *set
	fds     []int // the server's, until the bridge has them
	startMs int64
	done    chan Probed
	told    bool
	listed  bool         // its bridge has said all that it says
	refused refusal.Code // of the launch, where the server itself is not to blame
}

// Probed is what a probe found: the joined data of its catalogue and the tools
// that were kept out of it.
type Probed struct {
	Data   []byte
	Kept   []wire.Quarantined
	Era    string // in which it was listed
	reason string
	code   refusal.Code // where the launch was refused
}

// Probe launches the revision in an empty workspace and returns what it lists, or
// an error that says why there is nothing. conn is a fresh id that names the
// server to the probe's bridge, project whose credential the server is given, "" for
// none. Both jails are told to end in the next turn.
func (w *Workers) Probe(ctx context.Context, server ids.Server, revision ids.Revision, project ids.Project, conn ids.Connection, startMs int64) (Probed, error) {
	p := &probe{startMs: startMs, done: make(chan Probed, 1)}
	if err := w.Do(ctx, func() {
		if w.draining {
			p.over("Postern is draining")
			return
		}
		s := &set{key: gate.Set{}, link: link{fd: -1}, since: time.Now(), sessions: map[ids.Session]bool{}, insts: map[gate.Place]*instance{}, probe: p}
		p.set = s
		p.inst = &instance{at: gate.Place{Conn: conn}, server: server, revision: revision, set: s}
		s.insts[p.inst.at] = p.inst
		w.ask(func(seq uint64) order.Up {
			return order.LaunchProbe{Seq: seq, Server: server, Revision: revision, Project: project}
		}, func(m order.Down, fds []int) { p.launched(w, m, fds) })
	}); err != nil {
		return Probed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeWait)
	defer cancel()
	var out Probed
	select {
	case out = <-p.done:
	case <-w.over:
		return Probed{}, refusal.Draining
	case <-ctx.Done():
		out.reason = "the probe took too long"
	}
	w.Post(func() {
		if p.set != nil {
			w.endSet(p.set, probeOver)
		}
	})
	if out.code == refusal.CredentialMissing {
		return Probed{}, fmt.Errorf("%s: %w", out.reason, out.code)
	}
	if out.reason != "" {
		return Probed{}, fmt.Errorf("probe: %s", out.reason)
	}
	return out, nil
}

func (p *probe) launched(w *Workers, m order.Down, fds []int) {
	l, ok := m.(order.Launched)
	if !ok || len(fds) != 4 {
		closeAll(fds)
		why := "posternd did not answer in time"
		if n, ok := m.(order.NotLaunched); ok {
			why = n.Text
			if n.Code == refusal.CredentialMissing {
				p.refused = n.Code
			}
		}
		p.set.lastErr = why
		w.endSet(p.set, why)
		return
	}
	p.set.jail, p.inst.jail = l.Bridge, l.Jail
	p.jail, p.inst.state = l.Jail, instListing
	w.jails[l.Bridge], w.jails[l.Jail] = owner{set: p.set}, owner{set: p.set, inst: p.inst}
	if p.set.ended {
		closeAll(fds)
		w.stopJail(l.Jail, 0)
		w.stopJail(l.Bridge, 0)
		return
	}
	p.fds = fds[1:]
	w.adopt(p.set, fds[0])
}

// begin hands the server to the bridge. Where it has ended already its pipes are
// closed, and the bridge says so in its one catalogue.
func (p *probe) begin(w *Workers, s *set) {
	w.tell(s, wire.Started{Connection: p.inst.at.Conn, Instance: p.jail, Revision: p.inst.revision, StartMs: p.startMs, Era: w.era(p.inst.revision), Bounds: w.gate.Bounds(p.inst.server, p.inst.revision)}, p.fds...)
	closeAll(p.fds)
	p.fds = nil
}

func (p *probe) catalogue(w *Workers, s *set, m wire.Catalogue) error {
	if m.Connection != p.inst.at.Conn || m.Instance != p.jail {
		return errParts
	}
	whole, err := p.inst.collect(m)
	if err != nil || !whole {
		return err
	}
	w.learn(p.inst.revision, m)
	if m.Error != "" {
		p.over(m.Error)
	} else if !p.told {
		p.told = true
		p.done <- Probed{Data: p.inst.data, Kept: m.Quarantined, Era: m.Era}
	}
	// A bridge ends by itself after its one catalogue. That its wire closes then is no
	// failure, and nothing of it is left that would have to be killed.
	p.listed = true
	w.endSet(s, probeOver)
	return nil
}

// over ends the probe without a catalogue; twice is harmless.
func (p *probe) over(why string) {
	closeAll(p.fds)
	p.fds = nil
	if !p.told {
		p.told = true
		p.done <- Probed{reason: why, code: p.refused}
	}
}

// TokenFile asks posternd for a file that only uid can read. The descriptor is
// the caller's.
func (w *Workers) TokenFile(ctx context.Context, project ids.Project, task ids.Task, uid uint32) (fd int, path string, err error) {
	type got struct {
		fd   int
		path string
		err  error
	}
	done := make(chan got, 1)
	if err := w.Do(ctx, func() {
		w.ask(func(seq uint64) order.Up { return order.TokenFile{Seq: seq, Task: task, UID: uid, Project: project} }, func(m order.Down, fds []int) {
			switch m := m.(type) {
			case order.TokenFileIs:
				w.files[task] = true
				done <- got{fd: fds[0], path: m.Path}
			case order.Done:
				closeAll(fds)
				done <- got{err: m.Code}
			default:
				closeAll(fds)
				done <- got{err: refusal.Busy}
			}
		})
	}); err != nil {
		return -1, "", err
	}
	select {
	case g := <-done:
		return g.fd, g.path, g.err
	case <-w.over:
		return -1, "", refusal.Draining
	}
}

// WriteTokenFile writes what TokenFile returned and closes it.
func WriteTokenFile(fd int, text string) error {
	defer unix.Close(fd)
	b := []byte(text + "\n")
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return fmt.Errorf("write token file: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// tickTokenFiles has the files removed whose token can bind no more: used up, too
// late, or its task ended, by whatever way.
func (w *Workers) tickTokenFiles() {
	for task := range w.files {
		if w.gate.TokenLive(task) {
			continue
		}
		delete(w.files, task)
		w.order(order.TokenFileGone{Task: task})
	}
}

// Retire asks posternd for a project's tombstone and waits for it.
func (w *Workers) Retire(ctx context.Context, project ids.Project) error {
	done := make(chan error, 1)
	if err := w.Do(ctx, func() {
		w.ask(func(seq uint64) order.Up { return order.Retire{Seq: seq, Project: project} }, func(m order.Down, fds []int) {
			closeAll(fds)
			if d, ok := m.(order.Done); ok {
				if d.Code != "" {
					done <- d.Code
				} else {
					done <- nil
				}
				return
			}
			done <- refusal.Busy
		})
	}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-w.over:
		return refusal.Draining
	}
}
