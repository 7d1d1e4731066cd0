package gate

import (
	"time"

	"postern/bridge/wire"
	"postern/refusal"
	"postern/supervisor/store"
)

// folds keeps a session's recent denials, so that a runtime that repeats itself
// writes one record with a count.
type folds struct {
	since time.Time
	seen  map[foldKey]*fold
}

type foldKey struct {
	tool string
	code refusal.Code
}

type fold struct {
	rec   *store.Call
	count int64
}

// otherTools stands for every further denial of a session that was denied too
// many different ones.
const otherTools = "(others)"

// deny records one refused call, folded with its like.
func (g *Gate) deny(s *session, rec store.Call) {
	now := g.now()
	rec.At = now.UnixNano()
	if rec.Task == "" {
		t := s.task
		rec.Account, rec.Host, rec.Project, rec.Task, rec.Principal, rec.Mode, rec.Session = t.Account, t.Host, t.Project, t.ID, t.Principal, t.Mode, s.id
	}
	f := &s.folds
	if d := now.Sub(f.since); f.seen == nil || d > FoldWindow || d < 0 {
		f.since, f.seen = now, map[foldKey]*fold{}
	}
	key := foldKey{rec.Tool, rec.Code}
	if f.seen[key] == nil && len(f.seen) >= MaxDenials {
		key.tool, rec.Tool, rec.Connection = otherTools, otherTools, ""
	}
	if was := f.seen[key]; was != nil {
		was.count++
		if was.rec.Seq != 0 {
			g.ledger.Fold(was.rec.Seq, was.count, rec.At)
		}
		return
	}
	kept := &rec
	kept.Count = 1
	g.ledger.Deny(kept)
	f.seen[key] = &fold{rec: kept, count: 1}
}

// Denied records what a bridge's codec refused before it could be asked about.
func (g *Gate) Denied(m wire.Denied) {
	if s := g.sessions[m.Session]; s != nil {
		g.deny(s, store.Call{Tool: m.Tool, RequestID: m.RequestID, Code: m.Code})
	}
}
