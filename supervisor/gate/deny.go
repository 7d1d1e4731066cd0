package gate

import (
	"postern/bridge/wire"
	"postern/supervisor/store"
)

// deny records one refused call of a session, folded with its like.
func (g *Gate) deny(s *session, rec store.Call) {
	t := s.task
	rec.Account, rec.Host, rec.Project, rec.Task, rec.Principal, rec.Mode, rec.Session = t.Account, t.Host, t.Project, t.ID, t.Principal, t.Mode, s.id
	rec.At = g.now().UnixNano()
	g.folder.Deny(g.ledger, &rec)
}

// Denied records what a bridge's codec refused before it could be asked about.
func (g *Gate) Denied(m wire.Denied) {
	if s := g.sessions[m.Session]; s != nil {
		g.deny(s, store.Call{Tool: m.Tool, RequestID: m.RequestID, Code: m.Code})
	}
}
