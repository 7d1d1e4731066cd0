package store

import (
	"testing"
	"time"
)

// Arguments are written with their record and go with it; a batch that failed leaves none.
func TestE1_ArgumentsComeAndGoWithTheirRecord(t *testing.T) {
	s := open(t, stateDir(t))
	b := s.Batch()
	const records = 2 * prunePiece
	old := moment.Add(-time.Hour)
	for n := range records {
		c := call(byte(n))
		c.At = moment.UnixNano()
		if n < prunePiece {
			c.At = old.UnixNano()
		}
		if c.Args.Value = `{"n":1}`; n%2 == 1 {
			c.Args = Arguments{Missing: "why"}
		}
		b.Deny(c)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	none := call(7)
	none.At = moment.UnixNano()
	b.Deny(none)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	held := func() (of map[int64]Arguments, calls []Call) {
		calls = page(t, s, Query{}).Calls
		of, err := s.ArgumentsOf(calls)
		if err != nil {
			t.Fatal(err)
		}
		return of, calls
	}
	of, calls := held()
	if len(calls) != records+1 || len(of) != records || of[calls[0].Seq] != (Arguments{}) || of[calls[1].Seq].Missing != "why" || of[calls[2].Seq].Value != `{"n":1}` {
		t.Fatalf("%d of %d records", len(of), len(calls))
	}
	first := calls[len(calls)-1].Seq
	if err := b.writeMark(); err != nil { // nothing is open
		t.Fatal(err)
	}
	b.openFrom = b.nextFrom
	for range 10 {
		if err := s.Tend(moment.Add(time.Minute), Keep{Age: 30 * time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	of, calls = held()
	if len(calls) != prunePiece+1 || len(of) != prunePiece {
		t.Errorf("%d of %d records", len(of), len(calls))
	}
	if gone, err := s.ArgumentsOf([]Call{{Seq: first}}); err != nil || len(gone) != 0 {
		t.Errorf("the arguments of a record that is gone: %v, %v", gone, err)
	}
}
