package gate

import (
	"postern/ids"
	"postern/supervisor/registry"
)

// Place is where a session's calls of a connection go: to the one instance of the
// connection, or, where its server is of scope task, to the task's own.
type Place struct {
	Conn ids.Connection
	Task ids.Task // "" where one instance serves every task
}

// placeKey names a place of one set.
type placeKey struct {
	set   Set
	place Place
}

// Place tells where a session's calls of a connection go now. What is not the
// project's is a place that nothing runs in.
func (g *Gate) Place(set Set, id ids.Session, conn ids.Connection) Place {
	if s := g.session(set, id); s != nil {
		return g.placeOf(s, conn)
	}
	return Place{Conn: conn}
}

func (g *Gate) placeOf(s *session, conn ids.Connection) Place {
	c := g.reg.View(s.set.Project).Connections[conn]
	if c == nil {
		return Place{Conn: conn}
	}
	return s.placeIn(conn, g.reg.Root().Servers[c.Server].Revisions[c.Accepted])
}

// placeIn is the same where the connection's accepted revision is at hand, nil for none.
func (s *session) placeIn(conn ids.Connection, accepted *registry.RootRevision) Place {
	at := Place{Conn: conn}
	if accepted != nil && accepted.PerTask {
		at.Task = s.task.ID
	}
	return at
}

// Slot is the number by which bridges know a place among those of its connection: 0
// where there is one only, else the task's, which says nothing else.
func (g *Gate) Slot(at Place) uint64 {
	if at.Task == "" {
		return 0
	}
	n := g.slots[at.Task]
	if n == 0 {
		g.lastSlot++
		n = g.lastSlot
		g.slots[at.Task] = n
	}
	return n
}

// ForgetTask drops what is kept for a task that has ended and has no instance.
func (g *Gate) ForgetTask(t ids.Task) { delete(g.slots, t) }

// TaskOver tells whether a task has ended, or never was: nothing will be done for it.
func (g *Gate) TaskOver(t ids.Task) bool {
	task := g.reg.Task(t)
	return task == nil || task.Ended != 0
}
