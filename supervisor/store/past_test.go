package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
)

// pageLimit is what a page of records may take at its 95th hundredth, however many there are.
const pageLimit = 50 * time.Millisecond

// history writes n records at once, as if that many calls had ended: 7 projects, one
// of which has 1 record in 5,000, one failure in 1,000, one record each second.
func history(t testing.TB, s *Store, n int) {
	t.Helper()
	c := s.activity.writer
	err := c.Exec(`PRAGMA synchronous = OFF`)
	const step = 200_000
	for from := 1; err == nil && from <= n; from += step {
		err = c.Exec(fmt.Sprintf(`WITH RECURSIVE n (x) AS (VALUES (%d) UNION ALL SELECT x + 1 FROM n WHERE x < %d)
			INSERT INTO calls SELECT x, x, 'cal_019961f0-0000-7000-8000-' || printf('%%012x', x), %d + x * 1000000000, 'acc_019961f0-0000-7000-8000-000000000001', 'local',
			CASE WHEN x %% 5000 = 7 THEN 'prj_rare' ELSE 'prj_' || (x %% 6) END, 'tsk_019961f0-0000-7000-8000-000000000001', 'local:acc_019961f0-0000-7000-8000-000000000001', 'code',
			'ses_019961f0-0000-7000-8000-000000000001', 'con_019961f0-0000-7000-8000-000000000001', 'rev_019961f0-0000-7000-8000-000000000001', 'read_file', 2,
			'tier=observe grant=grt_019961f0-0000-7000-8000-000000000001', '"' || x || '"', randomblob(32), 100, CASE WHEN x %% 1000 = 3 THEN 4 ELSE 3 END, %d + x * 1000000000 + 5000, 200, 5, '', 1, 1, '' FROM n`,
			from, min(from+step-1, n), moment.UnixNano(), moment.UnixNano()))
		if err == nil {
			err = c.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
		}
	}
	if err == nil {
		err = c.Exec(`PRAGMA synchronous = FULL`)
	}
	if err == nil {
		s.batch.last = int64(n)
		s.batch.Admit(call(1)) // the next mark says that all of it has ended
		err = s.batch.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tended lets Tend work until it has nothing to do.
func tended(t testing.TB, s *Store, now time.Time, keep Keep) {
	t.Helper()
	s.tending.prune = time.Time{}
	for past := int64(-2); past != s.tending.past || keep != (Keep{}) && s.tending.prune.IsZero(); {
		past = s.tending.past
		if err := s.Tend(now, keep); err != nil {
			t.Fatal(err)
		}
	}
}

// queries are the kinds of pages that people ask for.
var queries = map[string]Query{
	"the newest":           {Limit: 100},
	"of a project":         {Project: "prj_3", Limit: 100},
	"of a rare project":    {Project: "prj_rare", Limit: 100},
	"of no project":        {Project: "prj_none", Limit: 100},
	"of a state":           {State: Failed, Limit: 100},
	"of an absent state":   {State: Cancelled, Limit: 100},
	"of both":              {Project: "prj_3", State: Failed, Limit: 100},
	"of a project's state": {Project: "prj_rare", State: Failed, Limit: 100},
	"of several projects":  {Projects: []ids.Project{"prj_1", "prj_rare", "prj_none"}, Limit: 100},
	"since a moment":       {Project: "prj_1", Since: moment.UnixNano() + 150_000*1_000_000_000, Limit: 100},
	"the largest page":     {Project: "prj_2", Limit: 500},
}

// pages reads every record that q finds, page by page, and how long each page took:
// the shortest of three times, since the machine is shared.
func pages(t testing.TB, s *Store, q Query, most int) (seqs []int64, took []time.Duration) {
	t.Helper()
	for range most {
		var p Page
		shortest := time.Hour
		for range 3 {
			began := time.Now()
			p = page(t, s, q)
			shortest = min(shortest, time.Since(began))
		}
		took = append(took, shortest)
		for _, c := range p.Calls {
			seqs = append(seqs, c.Seq)
		}
		if q.Before = p.Next; !p.More {
			break
		}
	}
	return seqs, took
}

// What the index answers is what a look at every record answers.
func TestTheIndexFindsWhatALookAtEveryRecordFinds(t *testing.T) {
	s := open(t, stateDir(t))
	const n = 60_000
	history(t, s, n)
	before := map[string][]int64{}
	for name, q := range queries {
		before[name], _ = pages(t, s, q, 1000)
	}
	tended(t, s, moment, Keep{})
	if s.tending.past < n-pastPiece {
		t.Fatalf("the index ends at %d", s.tending.past)
	}
	for name, q := range queries {
		if q.Since != 0 {
			q.Since = moment.UnixNano() + 50_000*1_000_000_000
			before[name], _ = pages(t, s, Query{Since: q.Since, Limit: 100}, 1000)
			before[name] = slices.DeleteFunc(before[name], func(seq int64) bool { return seq%6 != 1 || seq%5000 == 7 || seq > n })
		}
		got, _ := pages(t, s, q, 1000)
		if !reflect.DeepEqual(got, before[name]) {
			t.Errorf("%s: %d records by the index, %d without", name, len(got), len(before[name]))
		}
	}
	if len(before["of a rare project"]) != n/5000 || len(before["of no project"]) != 0 || len(before["of a state"]) != n/1000 {
		t.Errorf("the history is not what this test thinks: %d, %d", len(before["of a rare project"]), len(before["of a state"]))
	}
	// After a restart it goes on where it was.
	dir := filepath.Dir(s.activity.path)
	s.Close()
	s = open(t, dir)
	if err := s.Tend(moment, Keep{}); err != nil || s.tending.past < n-pastPiece {
		t.Fatalf("%d %v", s.tending.past, err)
	}
	if got, _ := pages(t, s, queries["of both"], 1000); !reflect.DeepEqual(got, before["of both"]) {
		t.Error("after a restart")
	}
}

// No question of a page looks at every record: each statement's plan begins at a key.
func TestNoPageScansTheTable(t *testing.T) {
	s := open(t, stateDir(t))
	for _, sql := range []string{newestCalls, pastOfProject, pastOfState, pastCall} {
		plan := ""
		if err := each(s.reader, `EXPLAIN QUERY PLAN `+strings.NewReplacer("?1", "1", "?2", "1", "?3", "9", "?", "9").Replace(sql), func(r *sqlite3.Stmt) { plan += r.ColumnText(3) + "; " }); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") || !strings.Contains(plan, "SEARCH") {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
	// The check can fail.
	plan := ""
	each(s.reader, `EXPLAIN QUERY PLAN SELECT seq FROM calls WHERE project = 'x' ORDER BY at`, func(r *sqlite3.Stmt) { plan += r.ColumnText(3) })
	if !strings.Contains(plan, "SCAN") || !strings.Contains(plan, "TEMP B-TREE") {
		t.Fatal(plan)
	}
}

// A page of a long history takes no longer than one of a short one. POSTERN_RECORDS
// says how many records; make bench-records takes ten million.
func TestAPageOfALongHistoryIsShort(t *testing.T) {
	n := 200_000
	if text := os.Getenv("POSTERN_RECORDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, stateDir(t))
	began := time.Now()
	history(t, s, n)
	wrote := time.Since(began)
	began = time.Now()
	// What is measured are pages, not the disk's syncs.
	if err := s.activity.writer.Exec(`PRAGMA synchronous = OFF`); err != nil {
		t.Fatal(err)
	}
	tended(t, s, moment, Keep{})
	t.Logf("%d records, written in %v, indexed in %v", n, wrote.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for name, q := range queries {
		_, took := pages(t, s, q, 20)
		q.Before = int64(n / 2)
		_, middle := pages(t, s, q, 20)
		took = append(took, middle...)
		slices.Sort(took)
		p95 := took[len(took)*95/100]
		t.Logf("%-22s %3d pages, median %v, 95th hundredth %v, longest %v", name, len(took), took[len(took)/2].Round(time.Microsecond), p95.Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond))
		// The middle one: on a busy machine any single page can wait for a processor.
		if m := took[len(took)/2]; m > pageLimit {
			t.Errorf("%s: a page takes %v, at most %v is wanted", name, m, pageLimit)
		}
	}
	var from int64
	if took := typical(func() (err error) {
		from, err = s.FirstSince(moment.UnixNano() + int64(n/2)*1_000_000_000)
		return err
	}, t); from != int64(n/2) || took > pageLimit {
		t.Errorf("the first of a moment: %d of %d after %v", from, n/2, took)
	}
	var p Page
	if took := typical(func() error {
		p = page(t, s, Query{Walk: true, From: from, Until: int64(n), Limit: 500})
		return nil
	}, t); len(p.Calls) != 500 || !p.More || took > pageLimit {
		t.Errorf("walking: %d records, more %v, after %v", len(p.Calls), p.More, took)
	}
}

// typical is the middle of nine times.
func typical(do func() error, t *testing.T) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 9 {
		began := time.Now()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestWalkingSeesEachRecordOnceAndOnlyWhatChanged(t *testing.T) {
	s := open(t, stateDir(t))
	const n = 30_000
	history(t, s, n)
	q := Query{Walk: true, Until: n, Project: "prj_rare", Limit: 2}
	var got []int64
	for {
		p := page(t, s, q)
		for _, c := range p.Calls {
			got = append(got, c.Seq)
		}
		if q.From = p.Next; !p.More {
			break
		}
	}
	if !reflect.DeepEqual(got, []int64{7, 5007, 10007, 15007, 20007, 25007}) {
		t.Fatal(got)
	}
	if p := page(t, s, Query{Walk: true, Until: n, After: n - 2}); len(p.Calls) == 0 && !p.More {
		t.Fatal("it ended before the end")
	}
	if p := page(t, s, Query{Walk: true, From: n - 5, Until: n, After: n - 2}); len(p.Calls) != 2 || p.More || p.Next != n+1 {
		t.Fatalf("%+v", p)
	}
}

// What is removed is the oldest, and nothing that is open, nor a token's use.
func TestPruningTakesTheOldestAndNothingThatIsOpen(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	b := s.Batch()
	const n = 20_000
	history(t, s, n)
	b.OpenSession(Session{ID: id[ids.Session](1), Task: id[ids.Task](1), Token: Digest{1}, Opened: 1})
	b.EndSession(id[ids.Session](1), 2, "done")
	openCall := call(2)
	openCall.At = moment.UnixNano() // older than all of them
	b.Admit(openCall)
	for range 3 * markEvery {
		c := call(3)
		c.At = moment.UnixNano() + (n+5)*int64(time.Second)
		b.Admit(c)
		b.End(c.Seq, Outcome{State: Completed, At: c.At})
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	oldest := func(s *Store) (seq, count int64) {
		each(s.activity.writer, `SELECT coalesce(min(seq), 0), count(*) FROM calls`, func(r *sqlite3.Stmt) { seq, count = r.ColumnInt64(0), r.ColumnInt64(1) })
		return seq, count
	}
	now := moment.Add(n * time.Second)
	tended(t, s, now, Keep{})
	if seq, _ := oldest(s); seq != 1 {
		t.Fatalf("records begin at %d, though all are kept", seq)
	}
	// By age: what is older than 5,000 seconds goes.
	tended(t, s, now, Keep{Age: 5000 * time.Second})
	if seq, _ := oldest(s); seq != n-5000 {
		t.Fatalf("records begin at %d, want %d", seq, n-5000)
	}
	if got, _ := pages(t, s, Query{Project: "prj_rare", Limit: 10}, 100); !reflect.DeepEqual(got, []int64{15007}) {
		t.Fatalf("the index still knows %v", got)
	}
	// By size: as long as more is in use.
	used := func() (bytes int64) {
		each(s.activity.writer, `SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)`, func(r *sqlite3.Stmt) { bytes = r.ColumnInt64(0) * pageBytes })
		return bytes
	}
	most := used() * 3 / 4
	tended(t, s, now, Keep{Bytes: most})
	if got := used(); got > most {
		t.Fatalf("%d bytes in use, at most %d are kept", got, most)
	}
	if _, count := oldest(s); count < 1000 {
		t.Fatalf("%d records are left: more went than had to", count)
	}
	// By both to nothing: what is open stays, and everything after it.
	tended(t, s, now.Add(1000*time.Hour), Keep{Age: time.Hour, Bytes: 1})
	seq, count := oldest(s)
	if seq > openCall.Seq || count < 1 {
		t.Fatalf("an open call was removed: records begin at %d of %d", seq, count)
	}
	if used, err := s.Binds(); err != nil || used[Digest{1}] != 1 {
		t.Fatalf("a token's use was forgotten: %v %v", used, err)
	}
	// A denial counted on a record that is gone is no error, and numbers are never given again.
	last := b.last
	b.Fold(1, 5, 6)
	b.End(openCall.Seq, Outcome{State: Completed, At: 9})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	if r, err := s.Recover(99); err != nil || r.Calls != 1 { // history's own call
		t.Fatalf("%+v %v", r, err)
	}
	c := call(9)
	s.Batch().Admit(c)
	if c.Seq <= last {
		t.Fatalf("number %d is given again, %d was the last", c.Seq, last)
	}
}

// An index and a pruning that meet a full or locked file leave everything as it is.
func TestTendingALockedFileIsBusyAndThenWorks(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	history(t, s, 5000)
	other, err := connect(filepath.Join(dir, ActivityFile), "", sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if err := s.Tend(moment, Keep{}); err == nil || s.tending.past != 0 {
		t.Fatalf("%v, indexed to %d", err, s.tending.past)
	}
	if err := other.Exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	tended(t, s, moment, Keep{})
	if s.tending.past == 0 {
		t.Fatal("nothing was indexed")
	}
}
