package workers

import (
	"context"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
)

// Row is one live jail as ps shows it: posternd's measures and the loop's state.
type Row struct {
	order.JailRow
	Connection ids.Connection
	State      string
	Calls      uint64
	Open       int // of them, without an outcome
	Restarts   int
	Sessions   int
	LastError  string
	Skipped    wire.Skipped // what this jail wrote that was passed over
}

// statsWait is one Ps that collects the rows of posternd.
type statsWait struct {
	rows []order.JailRow
	then func([]order.JailRow)
}

// Ps returns the live jails.
func (w *Workers) Ps(ctx context.Context) ([]Row, error) {
	done := make(chan []Row, 1)
	if err := w.Do(ctx, func() {
		sw := &statsWait{then: func(rows []order.JailRow) { done <- w.rows(rows) }}
		w.seq++
		w.asked[w.seq] = asked{until: time.Now().Add(OrderWait), then: w.statsThen(sw)}
		w.order(order.StatJails{Seq: w.seq})
	}); err != nil {
		return nil, err
	}
	select {
	case rows := <-done:
		return rows, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.over:
		return nil, refusal.Draining
	}
}

func (w *Workers) statsThen(sw *statsWait) func(order.Down, []int) {
	return func(m order.Down, fds []int) {
		closeAll(fds)
		st, ok := m.(order.Stats)
		if ok {
			sw.rows = append(sw.rows, st.Rows...)
		}
		if !ok || st.Last {
			sw.then(sw.rows)
			return
		}
		w.asked[st.Seq] = asked{until: time.Now().Add(OrderWait), then: w.statsThen(sw)}
	}
}

func (w *Workers) stats(m order.Stats) { w.answered(m.Seq, m, nil) }

func (w *Workers) rows(jails []order.JailRow) []Row {
	out := make([]Row, 0, len(jails))
	for _, j := range jails {
		r := Row{JailRow: j, State: "unknown"}
		o := w.jails[j.Jail]
		switch {
		case o.inst != nil:
			r.Connection, r.Task, r.State, r.Calls = o.inst.at.Conn, o.inst.at.Task, instStates[o.inst.state], o.inst.calls
			r.Open = w.gate.OpenAt(o.set.key, o.inst.at)
			r.Restarts, r.LastError = o.inst.back.restarts, o.inst.back.lastErr
			r.Sessions = len(o.set.sessions)
			if o.inst.skipped.Instance == j.Jail {
				r.Skipped = o.inst.skipped
			}
		case o.set != nil:
			r.State = "starting"
			if o.set.ready {
				r.State = "ready"
			}
			if o.set.ended {
				r.State = "ending"
			}
			r.Sessions, r.LastError = len(o.set.sessions), o.set.lastErr
			if back := w.restarts[o.set.key]; back != nil {
				r.Restarts = back.restarts
				if r.LastError == "" {
					r.LastError = back.lastErr
				}
			}
		}
		out = append(out, r)
	}
	// A server that is down for a reason is shown too: that is when one looks.
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if inst.state == instIdle && w.why(inst) != "" {
				out = append(out, Row{JailRow: order.JailRow{Kind: "server", Project: s.key.Project, Task: inst.at.Task, Revision: inst.revision}, Connection: inst.at.Conn,
					State: "down", Calls: inst.calls, Restarts: inst.back.restarts, Sessions: len(s.sessions), LastError: w.why(inst)})
			}
		}
	}
	return out
}

// Down says why the server of a connection cannot be called: it does not run, or does not
// list its tools after a change. "" where it can, or was not needed. It runs on the loop.
func (w *Workers) Down(p ids.Project, conn ids.Connection) string {
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if s.key.Project == p && inst.at.Conn == conn && (inst.state == instIdle || !inst.unlisted.IsZero()) {
				if why := w.why(inst); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// why says why a server does not run. What befell one of a former revision says nothing
// about this one.
func (w *Workers) why(inst *instance) string {
	if !w.gate.Runs(inst.set.key.Project, inst.at.Conn, inst.revision) {
		return ""
	}
	return inst.back.down
}

// Counts is how much lives.
type Counts struct{ Bridges, Servers, Sessions int }

// Count counts; it runs on the loop.
func (w *Workers) Count() Counts {
	var c Counts
	for _, s := range w.sets {
		c.Bridges++
		c.Sessions += len(s.sessions)
		for _, inst := range s.insts {
			if inst.state != instIdle {
				c.Servers++
			}
		}
	}
	return c
}

// Held tells whether a server of a connection is kept from starting for a while,
// because it failed. It runs on the loop.
func (w *Workers) Held(p ids.Project, conn ids.Connection) bool {
	for _, s := range w.sets {
		for _, inst := range s.insts {
			if s.key.Project == p && inst.at.Conn == conn && inst.state == instIdle && time.Now().Before(inst.back.until) && w.gate.Runs(p, conn, inst.revision) {
				return true
			}
		}
	}
	return false
}
