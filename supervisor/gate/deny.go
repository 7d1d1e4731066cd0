package gate

import (
	"fmt"

	"postern/bridge/wire"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// deny records one refused call of a session, folded with its like.
func (g *Gate) deny(s *session, rec store.Call) {
	g.sign(s, &rec)
	g.counts.refuse(rec.Code)
	g.folder.Deny(g.ledger, &rec)
}

// sign writes into a record whose it is and when.
func (g *Gate) sign(s *session, rec *store.Call) {
	t := s.task
	rec.Account, rec.Host, rec.Project, rec.Task, rec.Principal, rec.Mode, rec.Session = t.Account, t.Host, t.Project, t.ID, t.Principal, t.Mode, s.id
	rec.At = g.now().UnixNano()
}

// Denied records what a bridge's codec refused before it could be asked about.
func (g *Gate) Denied(set Set, m wire.Denied) {
	if s := g.session(set, m.Session); s != nil {
		g.deny(s, store.Call{Tool: m.Tool, RequestID: m.RequestID, Code: m.Code})
	}
}

// denyBind records a connection that became no session. All of them are folded as
// one session's, so that nobody fills the disk by connecting. It names the task of
// a token only to its own project.
func (g *Gate) denyBind(r BindRequest, code refusal.Code) {
	rec := store.Call{At: g.now().UnixNano(), Project: r.Project, Host: registry.LocalHost, Policy: fmt.Sprintf("bind uid=%d", r.UID), Code: code}
	if a, ok := g.reg.Root().AccountOf(r.UID); ok {
		rec.Account = a.ID
	}
	if t, err := token.Parse(r.Token); err == nil {
		rec.Account, rec.Host = "", ""
		if b := g.reg.Token(t.Digest()); b != nil && b.Project == r.Project {
			if task := g.reg.Task(b.Task); task != nil {
				rec.Account, rec.Host, rec.Task, rec.Principal, rec.Mode = task.Account, task.Host, task.ID, task.Principal, task.Mode
			}
		}
	}
	g.counts.refuse(code)
	g.folder.Deny(g.ledger, &rec)
}
