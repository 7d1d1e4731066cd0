package gate

import (
	"maps"

	"postern/refusal"
	"postern/supervisor/store"
)

// Counts are sums since the gate was made. They say how much, never whose.
type Counts struct {
	Admitted    uint64
	Ended       [store.Unknown + 1]uint64 // by the state in which they ended
	Refused     map[refusal.Code]uint64   // of the closed table; folded records count whole
	AuditErrors uint64                    // changes that were not made, because their record was not
}

// refuse counts one refusal. A code is of the closed table, so the map stays small.
func (c *Counts) refuse(code refusal.Code) {
	if c.Refused == nil {
		c.Refused = map[refusal.Code]uint64{}
	}
	c.Refused[code]++
}

// Counts returns a copy.
func (g *Gate) Counts() Counts {
	out := g.counts
	out.Refused = maps.Clone(g.counts.Refused)
	return out
}
