package workers

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/supervisor/order"
)

// order gives one order to posternd, after those that wait already. posternd reads
// at once, but one turn may give more than the socket holds. Where an order can not
// be given, the authority ends, and everything with it: an order that is lost could
// be the end of a jail.
func (w *Workers) order(m order.Up) {
	b, err := order.EncodeUp(m)
	if err == nil {
		w.unsent = append(w.unsent, b)
		err = w.sendOrders()
	}
	if err != nil && w.lost == nil {
		w.lost = fmt.Errorf("order %T: %w", m, err)
	}
}

// sendOrders sends what waits, as far as there is room.
func (w *Workers) sendOrders() error {
	for len(w.unsent) > 0 {
		err := w.orders.send(w.unsent[0])
		if err == errSlow && len(w.unsent) <= MaxUnsent {
			return nil
		}
		if err != nil {
			return err
		}
		w.unsent = w.unsent[1:]
	}
	return nil
}

// ask sends an order and keeps what to do with its answer.
func (w *Workers) ask(make func(seq uint64) order.Up, then func(order.Down, []int)) {
	w.askFor(OrderWait, make, then)
}

// askFor is ask with a time of its own.
func (w *Workers) askFor(wait time.Duration, make func(seq uint64) order.Up, then func(order.Down, []int)) {
	w.seq++
	w.asked[w.seq] = asked{until: time.Now().Add(wait), then: then}
	w.order(make(w.seq))
}

func (w *Workers) hearPosternd(buf []byte) error {
	for {
		n, fds, err := w.orders.recvWith(buf, 4)
		if err != nil {
			return fmt.Errorf("posternd: %w", err)
		}
		if n == 0 {
			return nil
		}
		m, err := order.DecodeDown(buf[:n])
		if err != nil {
			closeAll(fds)
			return fmt.Errorf("posternd: %w", err)
		}
		if want := order.Descriptors(m); want >= 0 && len(fds) != want {
			closeAll(fds)
			return fmt.Errorf("posternd: %T with %d descriptors", m, len(fds))
		}
		if err := w.obey(m, fds); err != nil {
			return err
		}
	}
}

// obey acts on one message of posternd and owns fds.
func (w *Workers) obey(m order.Down, fds []int) error {
	switch m := m.(type) {
	case order.Facts:
		defer unix.Close(fds[0])
		raw, err := readAll(fds[0], order.MaxRoot)
		if err != nil {
			return fmt.Errorf("root facts: %w", err)
		}
		root, err := order.DecodeRoot(raw)
		if err != nil {
			return err
		}
		// What was admitted earlier in this turn is told first, so that its bridge hears
		// of the admission before the cancel and the fence.
		if err := w.commit(); err != nil {
			return err
		}
		if err := w.cfg.Facts(root); err != nil {
			return fmt.Errorf("root facts: %w", err)
		}
		w.reconsiderAll(func(n Narrowed) { w.order(ackOf(m.Version, n)) })
	case order.Control:
		w.cfg.Control(fds[0])
	case order.ProjectSocket:
		return w.listen(fds[0], m.Project)
	case order.Exited:
		w.exited(m)
	case order.Launched:
		w.answered(m.Seq, m, fds)
	case order.NotLaunched:
		w.answered(m.Seq, m, nil)
	case order.Resolved:
		w.answered(m.Seq, m, nil)
	case order.Fetched:
		w.answered(m.Seq, m, fds)
	case order.TokenFileIs:
		w.answered(m.Seq, m, fds)
	case order.Done:
		w.answered(m.Seq, m, nil)
	case order.TaskDirs:
		w.taskDirs(m)
	case order.Stats:
		w.stats(m)
	case order.Drain:
		// What was admitted in this turn is told first: its bridge hears of the admission
		// before it hears of the end.
		if err := w.commit(); err != nil {
			return err
		}
		w.leave(time.Duration(m.TimeoutMs) * time.Millisecond)
	case order.Ping:
		// The loop answers, after the commits that came before: a disk that never answers is
		// no sign of life either.
		w.order(order.Pong{N: m.N, Sessions: uint64(w.Count().Sessions), Calls: uint64(w.gate.OpenCalls())})
	}
	return nil
}

// ackOf tells that facts decide now, and what they cut.
func ackOf(version uint64, n Narrowed) order.FactsAck {
	out := order.FactsAck{Version: version, More: max(0, len(n.Stands)-order.MaxStands)}
	for _, s := range n.Stands[:len(n.Stands)-out.More] {
		tool := strings.ToValidUTF8(s.Tool[:min(len(s.Tool), order.MaxStandTool)], "")
		out.Stands = append(out.Stands, order.Stand{Call: s.Call, Tool: tool, AgeMs: s.Age.Milliseconds(), CancelSent: s.CancelSent, Drains: s.Drains})
	}
	return out
}

func (w *Workers) answered(seq uint64, m order.Down, fds []int) {
	a, ok := w.asked[seq]
	if !ok {
		// Its time was over. A jail that came too late must not live.
		closeAll(fds)
		if l, ok := m.(order.Launched); ok {
			w.stopJail(l.Jail, 0)
			if l.Bridge != "" {
				w.stopJail(l.Bridge, 0)
			}
		}
		return
	}
	delete(w.asked, seq)
	a.then(m, fds)
}

func (w *Workers) stopJail(j ids.Jail, grace time.Duration) {
	w.order(order.Stop{Jail: j, GraceMs: grace.Milliseconds()})
}

func (w *Workers) listen(fd int, project ids.Project) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return fmt.Errorf("project socket: %w", err)
	}
	w.unlisten(project) // the one of before, where there was one
	if err := w.watch(fd); err != nil {
		unix.Close(fd)
		return err
	}
	w.listeners[fd], w.doors[project] = project, fd
	return nil
}

// unlisten closes the socket of a project that is retired, or is given another.
func (w *Workers) unlisten(project ids.Project) {
	fd, ok := w.doors[project]
	if !ok {
		return
	}
	delete(w.doors, project)
	delete(w.listeners, fd)
	unix.Close(fd)
}
