package activity

import (
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
)

// Bounds of recorded denials. Beyond them a denial only counts.
const (
	DenialsEach  = 8                // records of one session in one window
	DenialWindow = 10 * time.Second // after which a session may write records again
	maxSessions  = 4096             // sessions that are told apart
)

// Folder turns a flood of denials into few records with counts. It belongs to
// the one writer.
type Folder struct {
	sessions map[string]*folding
}

type folding struct {
	since   time.Time
	written int
	last    map[foldKey]*folded
}

type foldKey struct {
	tool string
	code refusal.Code
}

type folded struct {
	seq, count int64
}

// Deny adds a denial to the batch: as a record of its own while the session has
// written few, else as one more count of the record like it, else of the
// session's record for everything that came too fast. r.At is the moment. Keys
// are bounded by DenialsEach and the closed table of codes.
func (f *Folder) Deny(b *store.Batch, r *Record) { f.DenyAs(string(r.Session), b, r) }

// DenyAs is Deny for what belongs to no session: it is folded with its like under a
// key of the caller's, as a session's are.
func (f *Folder) DenyAs(key string, b *store.Batch, r *Record) {
	now := time.Unix(0, r.At)
	r.Tool, r.RequestID = Item(r.Tool), Shown(r.RequestID, MaxRequestID)
	if f.sessions == nil || len(f.sessions) > maxSessions {
		f.sessions = map[string]*folding{}
	}
	s := f.sessions[key]
	if s == nil || now.Sub(s.since) >= DenialWindow || now.Before(s.since) {
		s = &folding{since: now, last: map[foldKey]*folded{}}
		f.sessions[key] = s
	}
	k := foldKey{r.Tool, r.Code}
	if s.written >= DenialsEach {
		like := s.last[k]
		if like == nil {
			// A record of another tool can not count this one; one record without a
			// tool stands for all that came too fast.
			k = foldKey{code: r.Code}
			r.Tool, r.RequestID, r.Args = "", "", store.Arguments{}
			like = s.last[k]
		}
		if like != nil {
			like.count++
			b.Fold(like.seq, like.count, r.At)
			return
		}
	}
	b.Deny(r)
	s.written++
	s.last[k] = &folded{seq: r.Seq, count: 1}
}

// Forget drops what is known of a session that ended.
func (f *Folder) Forget(s ids.Session) { delete(f.sessions, string(s)) }
