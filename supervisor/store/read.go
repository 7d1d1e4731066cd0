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
	MaxPage = 1000   // records of one answer
	MaxScan = 20_000 // records looked at for one answer; a filter that finds little goes on by cursor

	MaxProjects = 64 // of one query

	clockSteps = 1000 // records in a row older than Since that end a read
)

// Query asks for records. Empty fields do not filter.
type Query struct {
	Project  ids.Project
	Projects []ids.Project // without Project: any of these; more than MaxProjects filter nothing
	Since    int64         // admitted at or after; nanoseconds since the epoch
	State    State

	// Newest first: only records numbered below Before (0: from the newest).
	Before int64
	// Oldest change first: only changes after After, of records numbered From or
	// above. Used when Changes is set.
	Changes     bool
	After, From int64
	// Oldest first: records numbered From to Until that changed after After. Used
	// when Walk is set; it costs what it passes, however much lies between.
	Walk  bool
	Until int64

	Limit int // at most MaxPage; 0 means MaxPage
}

// Page answers a Query.
type Page struct {
	Calls []Call
	// Next is where the next page begins: Before of the next query or, with
	// Changes, After or, with Walk, From. It moves even when no record matched.
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
	// One transaction, so that every question of an answer sees the same moment.
	if err = s.reader.Exec(`BEGIN`); err == nil {
		switch {
		case q.Changes:
			p, err = s.changes(q)
		case q.Walk:
			p, err = s.walk(q)
		default:
			p, err = s.newest(q)
		}
		err = errors.Join(err, s.reader.Exec(`ROLLBACK`))
	}
	if err != nil {
		return Page{}, fmt.Errorf("read the activity: %w", classify(err))
	}
	return p, nil
}

// newest answers from the newest record backwards: the records that no index knows
// yet one by one, and those below by the index where a filter asks for few of them.
func (s *Store) newest(q Query) (p Page, err error) {
	before := q.Before
	if before <= 0 {
		before = 1 << 62
	}
	floor := int64(0)
	if q.filtered() {
		if floor, err = s.number(`past_to`); err != nil {
			return p, err
		}
	}
	t := taker{q: q, p: &p}
	if before > floor+1 {
		st, _, err := s.reader.Prepare(newestCalls)
		if err != nil {
			return p, err
		}
		defer st.Close()
		if err := errors.Join(st.BindInt64(1, before), st.BindInt64(2, floor), st.BindInt(3, MaxScan)); err != nil {
			return p, err
		}
		for st.Step() {
			if t.take(st) {
				return p, st.Err()
			}
		}
		if err := st.Err(); err != nil {
			return p, err
		}
		if p.More = t.scanned == MaxScan; p.More {
			return p, nil
		}
	}
	if floor == 0 {
		return p, nil
	}
	return p, s.past(&t, min(before, floor+1))
}

const newestCalls = `SELECT ` + callColumns + ` FROM calls WHERE seq < ?1 AND seq > ?2 ORDER BY seq DESC LIMIT ?3`

// taker gathers the records of one page.
type taker struct {
	q              Query
	p              *Page
	scanned, older int
}

// take looks at the record in st and tells whether the page is done.
func (t *taker) take(st *sqlite3.Stmt) (done bool) {
	t.scanned++
	t.p.Next = st.ColumnInt64(0)
	if st.ColumnInt64(3) < t.q.Since {
		// Numbers follow the order of admission, so what comes now is older still,
		// unless the wall clock was set back for a while.
		t.older++
		return t.older > clockSteps
	}
	t.older = 0
	if matches(st, t.q) {
		t.p.Calls = append(t.p.Calls, readCall(st))
		t.p.More = len(t.p.Calls) == t.q.Limit
	}
	return t.p.More
}

// walk answers from the oldest record on.
func (s *Store) walk(q Query) (p Page, err error) {
	st, _, err := s.reader.Prepare(`SELECT ` + callColumns + ` FROM calls WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT ?`)
	if err != nil {
		return p, err
	}
	defer st.Close()
	if err := errors.Join(st.BindInt64(1, q.From), st.BindInt64(2, q.Until), st.BindInt(3, MaxScan)); err != nil {
		return p, err
	}
	p.Next = q.Until + 1
	for scanned := 1; st.Step(); scanned++ {
		seq := st.ColumnInt64(0)
		if st.ColumnInt64(1) > q.After && st.ColumnInt64(3) >= q.Since && matches(st, q) {
			p.Calls = append(p.Calls, readCall(st))
		}
		if scanned == MaxScan || len(p.Calls) == q.Limit {
			p.Next, p.More = seq+1, seq < q.Until
			break
		}
	}
	return p, st.Err()
}

func (s *Store) changes(q Query) (p Page, err error) {
	p.Next = q.After
	if p.OpenFrom, err = s.number(`open_from`); err != nil {
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

// Edge is where the records end at a moment.
type Edge struct {
	Seq      int64 // of the newest record
	Change   int64 // of the newest change
	OpenFrom int64 // below it no record will change any more
}

// Latest returns the edge: After and From of a follower that wants only what comes.
func (s *Store) Latest() (e Edge, err error) {
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return e, fmt.Errorf("read the activity: closed: %w", ErrBusy)
	}
	err = each(s.reader, `WITH mark (seq) AS (SELECT coalesce((SELECT value FROM meta WHERE key = 'open_from'), 0))
		SELECT coalesce((SELECT max(change) FROM calls WHERE seq >= mark.seq), 0), mark.seq, coalesce((SELECT max(seq) FROM calls), 0),
		coalesce((SELECT value FROM meta WHERE key = 'change'), 0) FROM mark`, func(r *sqlite3.Stmt) {
		e = Edge{Change: max(r.ColumnInt64(0), r.ColumnInt64(3)), OpenFrom: r.ColumnInt64(1), Seq: r.ColumnInt64(2)}
	})
	return e, classify(err)
}

// FirstSince returns the number of the first record of a moment on, in nanoseconds
// since the epoch, or the number after the last. Records are in the order of their
// admission; where the wall clock was set back, for at most clockSteps of them, what
// was admitted meanwhile is taken to be of the moment before.
func (s *Store) FirstSince(at int64) (int64, error) {
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return 0, fmt.Errorf("read the activity: closed: %w", ErrBusy)
	}
	var low, high int64
	err := each(s.reader, `SELECT coalesce(min(seq), 0) FROM calls`, func(r *sqlite3.Stmt) { low = r.ColumnInt64(0) })
	err = errors.Join(err, each(s.reader, `SELECT coalesce(max(seq), 0) + 1 FROM calls`, func(r *sqlite3.Stmt) { high = r.ColumnInt64(0) }))
	st, _, e := s.reader.Prepare(`SELECT at FROM calls WHERE seq <= ? ORDER BY seq DESC LIMIT ?`)
	if err = errors.Join(err, e); err != nil {
		return 0, classify(err)
	}
	defer st.Close()
	for low < high {
		mid := low + (high-low)/2
		if err := errors.Join(st.Reset(), st.BindInt64(1, mid), st.BindInt(2, clockSteps+1)); err != nil {
			return 0, classify(err)
		}
		reached := false
		for !reached && st.Step() {
			reached = st.ColumnInt64(0) >= at
		}
		if err := st.Err(); err != nil {
			return 0, classify(err)
		}
		if reached {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low, nil
}

// number reads one number of activity.db's meta table, 0 where it is not there.
func (s *Store) number(key string) (n int64, err error) {
	err = each(s.reader, `SELECT value FROM meta WHERE key = '`+key+`'`, func(r *sqlite3.Stmt) { n = r.ColumnInt64(0) })
	return n, err
}

// filtered tells that the index finds what q asks for.
func (q *Query) filtered() bool {
	return q.Project != "" || q.State != NoState || len(q.Projects) > 0 && len(q.Projects) <= MaxProjects
}

func matches(st *sqlite3.Stmt, q Query) bool {
	if q.State != NoState && State(st.ColumnInt(19)) != q.State {
		return false
	}
	project := st.ColumnRawText(6)
	if q.Project != "" {
		return string(project) == string(q.Project)
	}
	if len(q.Projects) == 0 || len(q.Projects) > MaxProjects {
		return true
	}
	for i := range q.Projects {
		if string(project) == string(q.Projects[i]) {
			return true
		}
	}
	return false
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
