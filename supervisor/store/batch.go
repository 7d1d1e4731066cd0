package store

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
)

// markEvery is how many numbers lie between two marks of where open calls begin.
const markEvery = 1024

// Batch gathers what the one writer decided since the last commit. Nothing in it
// is durable, and no admission in it may be told to anyone, before Commit has
// returned nil. There is one batch in a store, used again and again.
type Batch struct {
	f           *file
	incarnation uint64
	last        int64 // the last number given to a record or a change
	marked      int64
	openFrom    int64              // the mark in the file: below it no record changes any more
	nextFrom    int64              // the mark in the transaction
	isOpen      map[int64]struct{} // records that are open in the file

	calls  []*Call
	ends   []end
	folds  []fold
	opened []Session
	closed []closed

	artifacts []Artifact
	artifact  *sqlite3.Stmt
	args      *sqlite3.Stmt
	touch     *sqlite3.Stmt
	insert    *sqlite3.Stmt
	end       *sqlite3.Stmt
	fold      *sqlite3.Stmt
	session   *sqlite3.Stmt
	close_    *sqlite3.Stmt
	begin     *sqlite3.Stmt
	commit    *sqlite3.Stmt
	mark      *sqlite3.Stmt
}

type end struct {
	seq int64
	o   Outcome
}

type fold struct {
	seq, count, at int64
}

type closed struct {
	id     ids.Session
	at     int64
	reason string
}

// Batch returns the store's batch.
func (s *Store) Batch() *Batch { return &s.batch }

const (
	insertCall = `INSERT INTO calls VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	// An outcome is written once: what has ended stays as it is.
	endCall       = `UPDATE calls SET change = ?, state = ?, ended = ?, size = ?, micros = ?, code = ?, reason = ? WHERE seq = ? AND state IN (1, 2)`
	foldCall      = `UPDATE calls SET change = ?, count = ?, ended = ? WHERE seq = ? AND state = 6`
	insertSession = `INSERT INTO sessions VALUES (?,?,?,?,?,?,0,'')`
	endSession    = `UPDATE sessions SET ended = ?, reason = ? WHERE id = ? AND ended = 0`
	setMark       = `INSERT INTO meta VALUES ('open_from', ?), ('change', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`
)

func (b *Batch) open(f *file, incarnation uint64) error {
	b.f, b.incarnation, b.isOpen = f, incarnation, map[int64]struct{}{}
	for _, p := range []struct {
		to  **sqlite3.Stmt
		sql string
	}{
		{&b.insert, insertCall}, {&b.end, endCall}, {&b.fold, foldCall}, {&b.session, insertSession}, {&b.close_, endSession},
		{&b.begin, `BEGIN IMMEDIATE`}, {&b.commit, `COMMIT`}, {&b.mark, setMark}, {&b.artifact, insertArtifact}, {&b.touch, touchCall}, {&b.args, insertArguments},
	} {
		st, _, err := f.writer.PrepareFlags(p.sql, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return classify(err)
		}
		*p.to = st
	}
	// Numbers go on after the highest that was ever given: the last record's, the
	// mark's, or one given to a change of a record behind the mark.
	return classify(errors.Join(
		each(f.writer, `SELECT coalesce(max(seq), 0) FROM calls`, func(r *sqlite3.Stmt) { b.last = max(b.last, r.ColumnInt64(0)) }),
		each(f.writer, `SELECT value FROM meta WHERE key = 'change'`, func(r *sqlite3.Stmt) { b.last = max(b.last, r.ColumnInt64(0)) }),
		each(f.writer, `SELECT value FROM meta WHERE key = 'open_from'`, func(r *sqlite3.Stmt) { b.openFrom, b.nextFrom = r.ColumnInt64(0), r.ColumnInt64(0) }),
		each(f.writer, `SELECT seq, change, state FROM calls WHERE seq >= coalesce((SELECT value FROM meta WHERE key = 'open_from'), 0)`, func(r *sqlite3.Stmt) {
			b.last = max(b.last, r.ColumnInt64(1))
			if State(r.ColumnInt(2)).Open() {
				b.isOpen[r.ColumnInt64(0)] = struct{}{}
			}
		}),
	))
}

func (b *Batch) close() error {
	var errs []error
	for _, st := range []*sqlite3.Stmt{b.insert, b.end, b.fold, b.session, b.close_, b.begin, b.commit, b.mark, b.artifact, b.touch, b.args} {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	*b = Batch{}
	return errors.Join(errs...)
}

// Admit adds an admitted call and numbers it. The batch keeps c until Commit.
func (b *Batch) Admit(c *Call) { c.State = Admitted; b.add(c) }

// Deny adds a denied call and numbers it. The batch keeps c until Commit.
func (b *Batch) Deny(c *Call) { c.State = Denied; b.add(c) }

func (b *Batch) add(c *Call) {
	b.last++
	c.Seq, c.Change, c.Incarnation = b.last, b.last, b.incarnation
	c.Count = max(c.Count, 1)
	b.calls = append(b.calls, c)
}

// End adds the outcome of the call numbered seq. An outcome that is not final
// counts as Unknown. It waits for the next successful Commit.
func (b *Batch) End(seq int64, o Outcome) {
	if o.State.Open() || o.State == NoState || o.State == Denied || o.State > Unknown {
		o.State = Unknown
	}
	b.ends = append(b.ends, end{seq, o})
}

// Fold sets how many denials the denied record numbered seq stands for, and when the last one was.
func (b *Batch) Fold(seq, count, at int64) { b.folds = append(b.folds, fold{seq, count, at}) }

// OpenSession adds a session; its token's digest counts as one bind of the token.
func (b *Batch) OpenSession(s Session) { b.opened = append(b.opened, s) }

// EndSession adds the end of a session. It waits for the next successful Commit.
func (b *Batch) EndSession(id ids.Session, at int64, reason string) {
	b.closed = append(b.closed, closed{id, at, reason})
}

// Waiting tells how many things wait for Commit.
func (b *Batch) Waiting() int {
	return len(b.calls) + len(b.ends) + len(b.folds) + len(b.opened) + len(b.closed) + len(b.artifacts)
}

// Commit makes everything in the batch durable, with one sync. If it fails, the
// admissions, denials and sessions of the batch never happened, and the outcomes
// and ends stay for the next Commit. It returns ErrFull, ErrBusy or ErrIO.
func (b *Batch) Commit() error {
	if b.Waiting() == 0 {
		return nil
	}
	if err := b.write(); err != nil {
		err = fmt.Errorf("record %d calls: %w", len(b.calls), b.f.rollback(err))
		b.nextFrom = b.openFrom
		clear(b.calls)
		b.calls, b.opened = b.calls[:0], b.opened[:0]
		return err
	}
	for _, c := range b.calls {
		if c.State.Open() {
			b.isOpen[c.Seq] = struct{}{}
		}
	}
	for _, e := range b.ends {
		delete(b.isOpen, e.seq)
	}
	b.openFrom = b.nextFrom
	clear(b.calls)
	b.calls, b.ends, b.folds, b.opened, b.closed, b.artifacts = b.calls[:0], b.ends[:0], b.folds[:0], b.opened[:0], b.closed[:0], b.artifacts[:0]
	return b.f.recycle()
}

func (b *Batch) write() error {
	if err := b.begin.Exec(); err != nil {
		return err
	}
	for i := range b.opened {
		if err := b.writeSession(&b.opened[i]); err != nil {
			return err
		}
	}
	for _, c := range b.calls {
		if err := b.writeCall(c); err != nil {
			return err
		}
	}
	for _, e := range b.ends {
		b.last++
		st := b.end
		st.BindInt64(1, b.last)
		st.BindInt(2, int(e.o.State))
		st.BindInt64(3, e.o.At)
		st.BindInt64(4, e.o.Size)
		st.BindInt64(5, e.o.Micros)
		st.BindText(6, string(e.o.Code))
		st.BindText(7, e.o.Reason)
		if err := errors.Join(st.BindInt64(8, e.seq), st.Exec()); err != nil {
			return err
		}
	}
	for _, f := range b.folds {
		b.last++
		st := b.fold
		st.BindInt64(1, b.last)
		st.BindInt64(2, f.count)
		st.BindInt64(3, f.at)
		if err := errors.Join(st.BindInt64(4, f.seq), st.Exec()); err != nil {
			return err
		}
	}
	for _, c := range b.closed {
		st := b.close_
		st.BindInt64(1, c.at)
		st.BindText(2, c.reason)
		if err := errors.Join(st.BindText(3, string(c.id)), st.Exec()); err != nil {
			return err
		}
	}
	for i := range b.artifacts {
		if err := b.writeArtifact(&b.artifacts[i]); err != nil {
			return err
		}
	}
	if b.last >= b.marked+markEvery {
		if err := b.writeMark(); err != nil {
			return err
		}
	}
	return b.commit.Exec()
}

func (b *Batch) writeSession(s *Session) error {
	st := b.session
	st.BindText(1, string(s.ID))
	st.BindText(2, string(s.Task))
	st.BindText(3, string(s.Project))
	st.BindInt64(4, int64(s.UID))
	if s.Token == (Digest{}) {
		st.BindNull(5)
	} else {
		st.BindBlob(5, s.Token[:])
	}
	return errors.Join(st.BindInt64(6, s.Opened), st.Exec())
}

func (b *Batch) writeCall(c *Call) error {
	st := b.insert
	st.BindInt64(1, c.Seq)
	st.BindInt64(2, c.Change)
	st.BindText(3, string(c.ID))
	st.BindInt64(4, c.At)
	st.BindText(5, string(c.Account))
	st.BindText(6, c.Host)
	st.BindText(7, string(c.Project))
	st.BindText(8, string(c.Task))
	st.BindText(9, c.Principal)
	st.BindText(10, c.Mode)
	st.BindText(11, string(c.Session))
	st.BindText(12, string(c.Connection))
	st.BindText(13, string(c.Revision))
	st.BindText(14, c.Tool)
	st.BindInt64(15, int64(c.Classes))
	st.BindText(16, c.Policy)
	st.BindText(17, c.RequestID)
	st.BindBlob(18, c.ArgsDigest[:])
	st.BindInt64(19, c.ArgsSize)
	st.BindInt64(20, int64(c.State))
	st.BindInt64(21, c.Ended)
	st.BindInt64(22, c.Size)
	st.BindInt64(23, c.Micros)
	st.BindText(24, string(c.Code))
	st.BindInt64(25, c.Count)
	st.BindInt64(26, int64(c.Incarnation))
	return errors.Join(st.BindText(27, c.Reason), st.Exec(), b.writeArguments(c))
}

// writeMark notes the first record that may be open, so that the next start reads
// from there and not the whole history. What is open in this batch counts as open.
func (b *Batch) writeMark() error {
	from := b.last + 1
	for seq := range b.isOpen {
		from = min(from, seq)
	}
	for _, c := range b.calls {
		from = min(from, c.Seq)
	}
	b.mark.BindInt64(1, from)
	if err := errors.Join(b.mark.BindInt64(2, b.last), b.mark.Exec()); err != nil {
		return err
	}
	b.marked, b.nextFrom = b.last, from
	return nil
}

// Recovered counts what Recover ended.
type Recovered struct {
	Calls    int64
	Sessions int64
}

// restarted is why what Recover ends has ended.
const restarted = "the authority restarted"

// Recover ends what an earlier incarnation left open: its calls become Unknown
// and its sessions ended. It must have returned before the first admission.
func (s *Store) Recover(now int64) (Recovered, error) {
	var r Recovered
	b := &s.batch
	for seq := range b.isOpen {
		b.End(seq, Outcome{State: Unknown, At: now, Reason: restarted})
	}
	r.Calls = int64(len(b.isOpen))
	err := b.f.transaction(func(c *sqlite3.Conn) error {
		st, _, err := c.Prepare(`UPDATE sessions SET ended = ?, reason = ? WHERE ended = 0`)
		if err != nil {
			return err
		}
		defer st.Close()
		err = errors.Join(st.BindInt64(1, now), st.BindText(2, restarted), st.Exec())
		r.Sessions = c.Changes()
		return err
	})
	if err != nil {
		return r, err
	}
	return r, b.Commit()
}

// Binds returns how often each token was used to bind a session.
func (s *Store) Binds() (map[Digest]int, error) {
	used := map[Digest]int{}
	err := each(s.activity.writer, `SELECT token, count(*) FROM sessions WHERE token IS NOT NULL GROUP BY token`, func(r *sqlite3.Stmt) {
		var d Digest
		copy(d[:], r.ColumnRawBlob(0))
		used[d] = r.ColumnInt(1)
	})
	return used, classify(err)
}
