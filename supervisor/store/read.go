package store

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
	"postern/refusal"
)

// Bounds of one read.
const (
	MaxPage = 1000    // records of one answer
	MaxScan = 200_000 // records looked at for one answer; a filter that finds little goes on by cursor

	clockSteps = 1000 // records in a row older than Since that end a read
)

// Query asks for records. Empty fields do not filter.
type Query struct {
	Project ids.Project
	Since   int64 // admitted at or after; nanoseconds since the epoch
	State   State

	// Newest first: only records numbered below Before (0: from the newest).
	Before int64
	// Oldest change first: only changes after After, of records numbered From or
	// above. Used when Changes is set.
	Changes     bool
	After, From int64

	Limit int // at most MaxPage; 0 means MaxPage
}

// Page answers a Query.
type Page struct {
	Calls []Call
	// Next is where the next page begins: Before of the next query or, with
	// Changes, After. It moves even when no record matched.
	Next int64
	More bool // there may be more now
	// OpenFrom is the number below which no record will change any more. With
	// Changes it is From of the next query.
	OpenFrom int64
}

const callColumns = `seq, change, id, at, account, host, project, task, principal, mode, session, connection, revision, tool, classes, policy,
	request_id, args_digest, args_size, state, ended, size, micros, code, count, incarnation, reason`

// Calls answers q from what is durable. It may be called from any goroutine.
func (s *Store) Calls(q Query) (Page, error) {
	if q.Limit <= 0 || q.Limit > MaxPage {
		q.Limit = MaxPage
	}
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return Page{}, fmt.Errorf("read the activity: closed: %w", ErrBusy)
	}
	var p Page
	var err error
	if q.Changes {
		p, err = s.changes(q)
	} else {
		p, err = s.newest(q)
	}
	if err != nil {
		return Page{}, fmt.Errorf("read the activity: %w", classify(err))
	}
	return p, nil
}

func (s *Store) newest(q Query) (p Page, err error) {
	before := q.Before
	if before <= 0 {
		before = 1 << 62
	}
	st, _, err := s.reader.Prepare(`SELECT ` + callColumns + ` FROM calls WHERE seq < ? ORDER BY seq DESC LIMIT ?`)
	if err != nil {
		return p, err
	}
	defer st.Close()
	if err := errors.Join(st.BindInt64(1, before), st.BindInt(2, MaxScan)); err != nil {
		return p, err
	}
	scanned, older := 0, 0
	for st.Step() {
		scanned++
		p.Next = st.ColumnInt64(0)
		if st.ColumnInt64(3) < q.Since {
			// Numbers follow the order of admission, so what comes now is older still,
			// unless the wall clock was set back for a while.
			if older++; older > clockSteps {
				return p, st.Err()
			}
			continue
		}
		older = 0
		if matches(st, q) {
			p.Calls = append(p.Calls, readCall(st))
			if len(p.Calls) == q.Limit {
				p.More = true
				return p, nil
			}
		}
	}
	p.More = scanned == MaxScan
	return p, st.Err()
}

func (s *Store) changes(q Query) (p Page, err error) {
	p.Next = q.After
	// One transaction, so that both questions see the same moment.
	if err := s.reader.Exec(`BEGIN`); err != nil {
		return p, err
	}
	defer s.reader.Exec(`ROLLBACK`)
	if err := each(s.reader, `SELECT coalesce((SELECT value FROM meta WHERE key = 'open_from'), 0)`, func(r *sqlite3.Stmt) { p.OpenFrom = r.ColumnInt64(0) }); err != nil {
		return p, err
	}
	st, _, err := s.reader.Prepare(`SELECT ` + callColumns + ` FROM calls WHERE seq >= ?1 AND change > ?2 AND at >= ?3
		AND (?4 = '' OR project = ?4) AND (?5 = 0 OR state = ?5) ORDER BY change LIMIT ?6`)
	if err != nil {
		return p, err
	}
	defer st.Close()
	if err := errors.Join(st.BindInt64(1, q.From), st.BindInt64(2, q.After), st.BindInt64(3, q.Since), st.BindText(4, string(q.Project)),
		st.BindInt(5, int(q.State)), st.BindInt(6, q.Limit)); err != nil {
		return p, err
	}
	for st.Step() {
		p.Calls = append(p.Calls, readCall(st))
		p.Next = st.ColumnInt64(1)
	}
	if err := st.Err(); err != nil {
		return p, err
	}
	if p.More = len(p.Calls) == q.Limit; p.More {
		p.OpenFrom = q.From // what comes next in this answer may lie below the mark
		return p, nil
	}
	p.OpenFrom = max(p.OpenFrom, q.From)
	newest, _, err := s.reader.Prepare(`SELECT coalesce(max(change), 0) FROM calls WHERE seq >= ?`)
	if err != nil {
		return p, err
	}
	defer newest.Close()
	if err := newest.BindInt64(1, q.From); err != nil {
		return p, err
	}
	for newest.Step() {
		p.Next = max(p.Next, newest.ColumnInt64(0))
	}
	return p, newest.Err()
}

// Latest returns the number of the newest change, and the number below which no
// record will change: After and From of a follower that wants only what comes.
func (s *Store) Latest() (after, from int64, err error) {
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return 0, 0, fmt.Errorf("read the activity: closed: %w", ErrBusy)
	}
	err = each(s.reader, `WITH mark (seq) AS (SELECT coalesce((SELECT value FROM meta WHERE key = 'open_from'), 0))
		SELECT coalesce((SELECT max(change) FROM calls WHERE seq >= mark.seq), 0), mark.seq FROM mark`, func(r *sqlite3.Stmt) {
		after, from = r.ColumnInt64(0), r.ColumnInt64(1)
	})
	return after, from, classify(err)
}

func matches(st *sqlite3.Stmt, q Query) bool {
	return (q.Project == "" || string(st.ColumnRawText(6)) == string(q.Project)) && (q.State == NoState || State(st.ColumnInt(19)) == q.State)
}

func readCall(r *sqlite3.Stmt) Call {
	c := Call{
		Seq: r.ColumnInt64(0), Change: r.ColumnInt64(1), ID: ids.Call(r.ColumnText(2)), At: r.ColumnInt64(3),
		Account: ids.Account(r.ColumnText(4)), Host: r.ColumnText(5), Project: ids.Project(r.ColumnText(6)), Task: ids.Task(r.ColumnText(7)),
		Principal: r.ColumnText(8), Mode: r.ColumnText(9), Session: ids.Session(r.ColumnText(10)), Connection: ids.Connection(r.ColumnText(11)),
		Revision: ids.Revision(r.ColumnText(12)), Tool: r.ColumnText(13), Classes: uint16(r.ColumnInt(14)), Policy: r.ColumnText(15),
		RequestID: r.ColumnText(16), ArgsSize: r.ColumnInt64(18), State: State(r.ColumnInt(19)), Ended: r.ColumnInt64(20),
		Size: r.ColumnInt64(21), Micros: r.ColumnInt64(22), Code: refusal.Code(r.ColumnText(23)), Count: r.ColumnInt64(24),
		Incarnation: uint64(r.ColumnInt64(25)), Reason: r.ColumnText(26),
	}
	copy(c.ArgsDigest[:], r.ColumnRawBlob(17))
	return c
}

// Sessions returns how many sessions are open of each task, from what is durable.
func (s *Store) Sessions() (map[ids.Task]int, error) {
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	open := map[ids.Task]int{}
	if s.reader == nil {
		return nil, fmt.Errorf("read the sessions: closed: %w", ErrBusy)
	}
	err := each(s.reader, `SELECT task, count(*) FROM sessions WHERE ended = 0 GROUP BY task`, func(r *sqlite3.Stmt) {
		open[ids.Task(r.ColumnText(0))] = r.ColumnInt(1)
	})
	return open, classify(err)
}
