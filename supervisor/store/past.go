package store

import (
	"errors"
	"time"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
)

// Keep says how long records are kept. The zero value keeps them for ever.
type Keep struct {
	Age   time.Duration // 0: however old
	Bytes int64         // of activity.db in use; 0: however large
}

// Bounds of what is done between two turns of the writer.
const (
	TendBudget = 2 * time.Millisecond // after which the next piece waits for another turn
	pastPiece  = 256                  // records that enter the index at once
	prunePiece = 256                  // records that are removed at once
	pruneEvery = 10 * time.Second     // between two looks at what is too old or too much
)

// tending is what Tend remembers from turn to turn.
type tending struct {
	past  int64     // the last record in the index; -1: not read yet
	prune time.Time // when to look again for what is too old or too much

	behind bool // the last Tend had no time for the rest
}

// Tend does a small piece of what keeps the records usable: it moves records that
// change no more into the index, and removes what keep does not hold. It never
// touches an open call, nor a session, whose row may be a token's use. It belongs to
// the writer's goroutine. ErrFull and ErrBusy leave the rest for another turn.
func (s *Store) Tend(now time.Time, keep Keep) error {
	t := &s.tending
	t.behind = true
	end := time.Now().Add(TendBudget)
	for {
		more, err := s.index(t)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
	if keep == (Keep{}) || now.Before(t.prune) && now.After(t.prune.Add(-2*pruneEvery)) {
		t.behind = false
		return nil
	}
	for {
		more, err := s.prune(t, now, keep)
		if err != nil {
			return err
		}
		if !more {
			t.prune, t.behind = now.Add(pruneEvery), false
			return nil
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

// Behind tells whether the last Tend left something to do. It belongs to the writer's
// goroutine.
func (s *Store) Behind() bool { return s.tending.behind }

// index moves the next piece of records into the index.
func (s *Store) index(t *tending) (more bool, err error) {
	if t.past < 0 {
		err := each(s.activity.writer, `SELECT coalesce((SELECT value FROM meta WHERE key = 'past_to'), 0)`, func(r *sqlite3.Stmt) { t.past = r.ColumnInt64(0) })
		if err != nil {
			return false, classify(err)
		}
	}
	if s.batch.openFrom-1-t.past < pastPiece {
		return false, nil
	}
	to := t.past + pastPiece
	err = s.activity.transaction(func(c *sqlite3.Conn) error {
		return errors.Join(
			runOn(c, `INSERT OR IGNORE INTO past_projects (project) SELECT DISTINCT project FROM calls WHERE seq > ? AND seq <= ?`, t.past, to),
			runOn(c, `INSERT OR IGNORE INTO past SELECT p.n, c.state, c.seq FROM calls c CROSS JOIN past_projects p ON p.project = c.project WHERE c.seq > ? AND c.seq <= ?`, t.past, to),
			runOn(c, `INSERT INTO meta VALUES ('past_to', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, to))
	})
	if err == nil {
		t.past = to
	}
	return err == nil, err
}

// prune removes the oldest piece of records that keep does not hold.
func (s *Store) prune(t *tending, now time.Time, keep Keep) (more bool, err error) {
	c := s.activity.writer
	var used, cut int64
	count := 0
	err = each(c, `SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)`, func(r *sqlite3.Stmt) { used = r.ColumnInt64(0) * pageBytes })
	if err != nil {
		return false, classify(err)
	}
	st, _, err := c.Prepare(`SELECT seq, at FROM calls WHERE seq < ? ORDER BY seq LIMIT ?`)
	if err != nil {
		return false, classify(err)
	}
	defer st.Close()
	if err := errors.Join(st.BindInt64(1, s.batch.openFrom), st.BindInt(2, prunePiece)); err != nil {
		return false, classify(err)
	}
	tooMuch := keep.Bytes > 0 && used > keep.Bytes
	for st.Step() {
		if tooOld := keep.Age > 0 && now.Sub(time.Unix(0, st.ColumnInt64(1))) > keep.Age; !tooMuch && !tooOld {
			break
		}
		cut, count = st.ColumnInt64(0), count+1
	}
	if err := st.Err(); err != nil || count == 0 {
		return false, classify(err)
	}
	st.Reset()
	err = s.activity.transaction(func(c *sqlite3.Conn) error {
		for state := Completed; state <= Unknown; state++ {
			if err := runOn(c, `DELETE FROM past WHERE state = ? AND seq <= ?`, int64(state), cut); err != nil {
				return err
			}
		}
		if err := errors.Join(runOn(c, `DELETE FROM calls WHERE seq <= ?`, cut), runOn(c, `DELETE FROM arguments WHERE seq <= ?`, cut)); err != nil || cut <= t.past {
			return err
		}
		return runOn(c, `INSERT INTO meta VALUES ('past_to', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, cut)
	})
	if err == nil {
		t.past = max(t.past, cut)
	}
	return err == nil && count == prunePiece, err
}

func runOn(c *sqlite3.Conn, sql string, args ...int64) error {
	st, _, err := c.Prepare(sql)
	if err != nil {
		return err
	}
	defer st.Close()
	for i, a := range args {
		if err := st.BindInt64(i+1, a); err != nil {
			return err
		}
	}
	return st.Exec()
}

// Two questions to the index: one list of numbers for each project and state, or one
// for each state of all projects.
const (
	pastOfProject = `SELECT seq FROM past WHERE project = (SELECT n FROM past_projects WHERE project = ?1) AND state = ?2 AND seq < ?3 ORDER BY seq DESC`
	pastOfState   = `SELECT seq FROM past WHERE state = ?2 AND seq < ?3 ORDER BY seq DESC`
	pastCall      = `SELECT ` + callColumns + ` FROM calls WHERE seq = ?`
)

// past takes records below before by the index: the lists that q asks for are read
// side by side, the highest number first, and only as far as the page is long.
func (s *Store) past(t *taker, before int64) error {
	first, last := Completed, Unknown
	if t.q.State != NoState {
		first, last = t.q.State, t.q.State
	}
	projects := t.q.Projects
	if t.q.Project != "" {
		projects = []ids.Project{t.q.Project}
	}
	sql := pastOfProject
	if len(projects) == 0 || len(projects) > MaxProjects {
		sql, projects = pastOfState, []ids.Project{""}
	}
	var lists []*sqlite3.Stmt
	defer func() {
		for _, st := range lists {
			st.Close()
		}
	}()
	for _, p := range projects {
		for state := first; state <= last; state++ {
			st, _, err := s.reader.Prepare(sql)
			if err != nil {
				return err
			}
			lists = append(lists, st)
			if p != "" {
				err = st.BindText(1, string(p))
			}
			if err := errors.Join(err, st.BindInt(2, int(state)), st.BindInt64(3, before)); err != nil {
				return err
			}
			if !st.Step() {
				lists = lists[:len(lists)-1]
				if err := st.Close(); err != nil {
					return err
				}
			}
		}
	}
	call, _, err := s.reader.Prepare(pastCall)
	if err != nil {
		return err
	}
	defer call.Close()
	for len(lists) > 0 {
		at := 0
		for i := range lists {
			if lists[i].ColumnInt64(0) > lists[at].ColumnInt64(0) {
				at = i
			}
		}
		if err := errors.Join(call.Reset(), call.BindInt64(1, lists[at].ColumnInt64(0))); err != nil {
			return err
		}
		if call.Step() && t.take(call) {
			return call.Err()
		}
		if err := call.Err(); err != nil {
			return err
		}
		if !lists[at].Step() {
			err := lists[at].Close()
			lists = append(lists[:at], lists[at+1:]...)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
