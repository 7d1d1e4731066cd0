package gate

import "postern/ids"

// Usage is what lives, counted for a report: on the loop, once for all projects.
type Usage struct {
	Sessions map[ids.Project]int
	OfHost   map[string]int // sessions of a host's tasks
	OfTask   map[ids.Task]int
	Calls    map[ids.Task]int // open ones
	InFlight map[ids.Connection]int
}

// Usage counts.
func (g *Gate) Usage() Usage {
	u := Usage{Sessions: map[ids.Project]int{}, OfHost: map[string]int{}, OfTask: map[ids.Task]int{}, Calls: map[ids.Task]int{}, InFlight: map[ids.Connection]int{}}
	for _, s := range g.sessions {
		u.Sessions[s.set.Project]++
		u.OfHost[s.task.Host]++
		u.OfTask[s.task.ID]++
		u.Calls[s.task.ID] += s.open
	}
	// A connection may have an instance for each ceiling and task; the fullest one is what
	// meets the bound.
	for k, n := range g.perPlace {
		u.InFlight[k.place.Conn] = max(u.InFlight[k.place.Conn], n)
	}
	return u
}

// InFlightMost is how many calls one instance of a connection's accepted revision may have open.
func (g *Gate) InFlightMost(server ids.Server, rev ids.Revision) int {
	return callsOf(g.reg.Root().Servers[server].Revisions[rev])
}
