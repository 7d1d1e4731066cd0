package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
)

// Artifact is the row of one artifact: whose it is, and by which digest its bytes lie in
// the artifact store. Where Missing says why, they do not.
type Artifact struct {
	N       int64 // its place; set when it is written
	ID      ids.Artifact
	At      int64 // nanoseconds since the epoch
	Account ids.Account
	Project ids.Project
	Task    ids.Task
	Call    ids.Call
	Seq     int64 // of the call's record
	Digest  Digest
	Size    int64
	Type    string
	Name    string // escaped and bounded by the writer
	Missing string // why it was not kept, in words
}

// Bounds of reading and removing artifacts.
const (
	MaxArtifacts     = 500 // rows of one answer
	maxArtifactsScan = 20_000
	dropPiece        = 64 // rows that are removed at once
)

const (
	insertArtifact  = `INSERT INTO artifacts VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?)`
	artifactColumns = `n, id, at, account, project, task, call, seq, digest, size, type, name, missing`
	// Who follows the records is shown the call once more, with its artifacts. A record
	// below the mark changes no more, and whoever reads it then sees them all the same.
	touchCall = `UPDATE calls SET change = ? WHERE seq = ? AND seq >= ?`
)

// Artifact adds the row of an artifact whose bytes are durable, or will never be there.
// It waits for the next successful Commit.
func (b *Batch) Artifact(a Artifact) { b.artifacts = append(b.artifacts, a) }

func (b *Batch) writeArtifact(a *Artifact) error {
	st := b.artifact
	st.BindText(1, string(a.ID))
	st.BindInt64(2, a.At)
	st.BindText(3, string(a.Account))
	st.BindText(4, string(a.Project))
	st.BindText(5, string(a.Task))
	st.BindText(6, string(a.Call))
	st.BindInt64(7, a.Seq)
	st.BindBlob(8, a.Digest[:])
	st.BindInt64(9, a.Size)
	st.BindText(10, a.Type)
	st.BindText(11, a.Name)
	if err := errors.Join(st.BindText(12, a.Missing), st.Exec()); err != nil {
		return err
	}
	b.last++
	t := b.touch
	t.BindInt64(1, b.last)
	t.BindInt64(2, a.Seq)
	return errors.Join(t.BindInt64(3, b.openFrom), t.Exec())
}

// ArtifactQuery asks for rows, the newest first. Empty fields do not filter; Projects
// always does.
type ArtifactQuery struct {
	Projects []ids.Project
	Task     ids.Task
	Call     ids.Call
	Before   int64 // 0: from the newest
	Limit    int   // at most MaxArtifacts; 0 means that
}

// Artifacts answers q from what is durable; more tells that there may be older ones,
// below the last N. Any goroutine may call it.
func (s *Store) Artifacts(q ArtifactQuery) (rows []Artifact, next int64, more bool, err error) {
	if q.Limit <= 0 || q.Limit > MaxArtifacts {
		q.Limit = MaxArtifacts
	}
	if next = q.Before; next <= 0 {
		next = 1 << 62
	}
	mine := map[ids.Project]bool{}
	for _, p := range q.Projects {
		mine[p] = true
	}
	// Of one call, or of one project, an index leads to them.
	where, what := "?3 = ''", ""
	switch {
	case q.Call != "":
		where, what = "call = ?3", string(q.Call)
	case len(q.Projects) == 1:
		where, what = "project = ?3", string(q.Projects[0])
	}
	err = s.readArtifacts(`SELECT `+artifactColumns+` FROM artifacts WHERE n < ?1 AND `+where+` ORDER BY n DESC LIMIT ?2`, func(st *sqlite3.Stmt) error {
		return errors.Join(st.BindInt64(1, next), st.BindInt(2, maxArtifactsScan), st.BindText(3, what))
	}, func(scanned int, a Artifact) bool {
		next = a.N
		if mine[a.Project] && (q.Task == "" || a.Task == q.Task) && (q.Call == "" || a.Call == q.Call) {
			rows = append(rows, a)
		}
		more = len(rows) == q.Limit || scanned == maxArtifactsScan
		return !more
	})
	return rows, next, more, err
}

// ArtifactByID returns the row of one artifact, nil where there is none.
func (s *Store) ArtifactByID(id ids.Artifact) (found *Artifact, err error) {
	err = s.readArtifacts(`SELECT `+artifactColumns+` FROM artifacts WHERE id = ?1`, func(st *sqlite3.Stmt) error {
		return st.BindText(1, string(id))
	}, func(_ int, a Artifact) bool { found = &a; return false })
	return found, err
}

// ArtifactsOf returns the artifacts of the records numbered so, in their order.
func (s *Store) ArtifactsOf(calls []Call) (map[int64][]Artifact, error) {
	of := map[int64][]Artifact{}
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return nil, errClosed
	}
	// Most records have none, and most of the time no artifact is as old as they are.
	var first, last int64
	if err := each(s.reader, `SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM artifacts`, func(r *sqlite3.Stmt) { first, last = r.ColumnInt64(0), r.ColumnInt64(1) }); err != nil {
		return nil, classify(err)
	}
	st, _, err := s.reader.Prepare(`SELECT ` + artifactColumns + ` FROM artifacts WHERE seq = ? ORDER BY n`)
	if err != nil {
		return nil, classify(err)
	}
	defer st.Close()
	for i := range calls {
		seq := calls[i].Seq
		if seq < first || seq > last || calls[i].State == Denied {
			continue
		}
		if err := errors.Join(st.Reset(), st.BindInt64(1, seq)); err != nil {
			return nil, classify(err)
		}
		for st.Step() {
			of[seq] = append(of[seq], readArtifact(st))
		}
		if err := st.Err(); err != nil {
			return nil, classify(err)
		}
	}
	return of, nil
}

var errClosed = fmt.Errorf("read the artifacts: closed: %w", ErrBusy)

func (s *Store) readArtifacts(sql string, bind func(*sqlite3.Stmt) error, row func(scanned int, a Artifact) (on bool)) error {
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return errClosed
	}
	st, _, err := s.reader.Prepare(sql)
	if err != nil {
		return classify(err)
	}
	defer st.Close()
	if err := bind(st); err != nil {
		return classify(err)
	}
	for scanned := 1; st.Step(); scanned++ {
		if !row(scanned, readArtifact(st)) {
			break
		}
	}
	return classify(st.Err())
}

func readArtifact(r *sqlite3.Stmt) Artifact {
	a := Artifact{N: r.ColumnInt64(0), ID: ids.Artifact(r.ColumnText(1)), At: r.ColumnInt64(2), Account: ids.Account(r.ColumnText(3)), Project: ids.Project(r.ColumnText(4)),
		Task: ids.Task(r.ColumnText(5)), Call: ids.Call(r.ColumnText(6)), Seq: r.ColumnInt64(7), Size: r.ColumnInt64(9), Type: r.ColumnText(10),
		Name: r.ColumnText(11), Missing: r.ColumnText(12)}
	copy(a.Digest[:], r.ColumnRawBlob(8))
	return a
}

// Held is one artifact's claim on its bytes.
type Held struct {
	Project ids.Project
	Digest  Digest
	Size    int64
	Missing bool // it has none
}

// HeldArtifacts lists what every row holds. It belongs to the writer's goroutine.
func (s *Store) HeldArtifacts() (held []Held, err error) {
	err = each(s.activity.writer, `SELECT project, digest, size, missing <> '' FROM artifacts`, func(r *sqlite3.Stmt) { held = append(held, readHeld(r)) })
	return held, classify(err)
}

func readHeld(r *sqlite3.Stmt) Held {
	h := Held{Project: ids.Project(r.ColumnText(0)), Size: r.ColumnInt64(2), Missing: r.ColumnBool(3)}
	copy(h.Digest[:], r.ColumnRawBlob(1))
	return h
}

// DropArtifacts removes a piece of the oldest rows: those made before a moment or, where
// tooMuch is set, whatever is oldest. It returns what they held once they are gone. It
// belongs to the writer's goroutine.
func (s *Store) DropArtifacts(before time.Time, tooMuch bool) (gone []Held, err error) {
	var cut int64
	most, piece := before.UnixNano(), dropPiece
	if tooMuch {
		most, piece = 1<<62, 1 // bytes are many in one row: not one more than is needed
	}
	err = each(s.activity.writer, fmt.Sprintf(`SELECT project, digest, size, missing <> '', n FROM artifacts WHERE at < %d ORDER BY n LIMIT %d`, most, piece), func(r *sqlite3.Stmt) {
		gone, cut = append(gone, readHeld(r)), r.ColumnInt64(4)
	})
	if err != nil || len(gone) == 0 {
		return nil, classify(err)
	}
	err = s.activity.transaction(func(c *sqlite3.Conn) error {
		return runOn(c, `DELETE FROM artifacts WHERE n <= ? AND at < ?`, cut, most)
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}
