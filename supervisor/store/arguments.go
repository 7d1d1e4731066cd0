package store

import (
	"errors"
	"fmt"
)

// Arguments are those of one call, as they are recorded where a project has that. Where
// Missing says why, there is no value. The zero one is none at all.
type Arguments struct {
	Value   string // JSON, masked, escaped and bounded by the writer of the record
	Missing string
}

const insertArguments = `INSERT INTO arguments VALUES (?,?,?)`

// writeArguments writes them in the transaction of their record.
func (b *Batch) writeArguments(c *Call) error {
	if c.Args == (Arguments{}) {
		return nil
	}
	st := b.args
	st.BindInt64(1, c.Seq)
	st.BindText(2, c.Args.Value)
	return errors.Join(st.BindText(3, c.Args.Missing), st.Exec())
}

// ArgumentsOf returns the arguments of records, by their numbers. The caller asks for
// those that their reader may see.
func (s *Store) ArgumentsOf(calls []Call) (map[int64]Arguments, error) {
	of := map[int64]Arguments{}
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	if s.reader == nil {
		return nil, fmt.Errorf("read arguments: closed: %w", ErrBusy)
	}
	st, _, err := s.reader.Prepare(`SELECT value, missing FROM arguments WHERE seq = ?`)
	if err != nil {
		return nil, classify(err)
	}
	defer st.Close()
	for i := range calls {
		if err := errors.Join(st.Reset(), st.BindInt64(1, calls[i].Seq)); err != nil {
			return nil, classify(err)
		}
		for st.Step() {
			of[calls[i].Seq] = Arguments{Value: st.ColumnText(0), Missing: st.ColumnText(1)}
		}
		if err := st.Err(); err != nil {
			return nil, classify(err)
		}
	}
	return of, nil
}
