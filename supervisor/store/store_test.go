package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"postern/ids"
	"postern/refusal"
)

var moment = time.UnixMilli(1_790_000_000_000)

func id[T ids.ID](n byte) T { return ids.New[T](moment, [10]byte{n}) }

func call(n byte) *Call {
	return &Call{
		ID: id[ids.Call](n), At: moment.UnixNano() + int64(n), Account: id[ids.Account](1), Host: "local", Project: id[ids.Project](1), Task: id[ids.Task](1),
		Principal: "local:" + string(id[ids.Account](1)), Mode: "code", Session: id[ids.Session](1), Connection: id[ids.Connection](1),
		Revision: id[ids.Revision](1), Tool: "read_file", Classes: 2, Policy: "grant", RequestID: "1", ArgsDigest: Digest{n}, ArgsSize: 12,
	}
}

func stateDir(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func page(t testing.TB, s *Store, q Query) Page {
	t.Helper()
	p, err := s.Calls(q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// record makes a whole row of every kind, in an order the references allow.
func record() Change {
	p, con, rev, task := id[ids.Project](1), id[ids.Connection](1), id[ids.Revision](1), id[ids.Task](1)
	return Change{Put: []Row{
		Account{id[ids.Account](1), true, 3}, Member{p, id[ids.Account](2), "member"},
		Connection{con, p, id[ids.Server](1), rev, true, "keyless", 4, 5},
		Served{p, "read_file", con, "read_file"},
		Grant{id[ids.Grant](1), p, con, "read_file", "read_file", 2, "root", 6, rev, Digest{7}},
		Probe{rev, 8, "", "both", []Pin{{"b", []byte(`{"a":1}`), Digest{9}, 2, 1, ""}, {"a", []byte(`null`), Digest{10}, 0, 0, "bad"}}},
		Task{task, id[ids.Account](1), "host", p, "local:x", "code", 11, 0, "", 17},
		Token{Digest{12}, task, p, 1000, 2, 13, 14, "boot", 15, false},
		Paired{"whatsapp", "+5511999998888", "agent", 16},
	}}
}

func TestStore1_WhatApplyWroteIsReadBack(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	c := record()
	if err := s.Apply(c); err != nil {
		t.Fatal(err)
	}
	before, err := s.Policy()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	after, err := open(t, dir).Policy()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("before %+v\nafter %+v", before, after)
	}
	want := Policy{
		Accounts: []Account{c.Put[0].(Account)}, Members: []Member{c.Put[1].(Member)}, Connections: []Connection{c.Put[2].(Connection)},
		Served: []Served{c.Put[3].(Served)}, Grants: []Grant{c.Put[4].(Grant)}, Probes: []Probe{c.Put[5].(Probe)},
		Tasks: []Task{c.Put[6].(Task)}, Tokens: []Token{c.Put[7].(Token)}, Paired: []Paired{c.Put[8].(Paired)},
	}
	if !reflect.DeepEqual(after, want) {
		t.Fatalf("got %+v\nwant %+v", after, want)
	}
}

func TestStore2_AFailedChangeLeavesNothing(t *testing.T) {
	s := open(t, stateDir(t))
	p := id[ids.Project](1)
	err := s.Apply(Change{Put: []Row{
		Member{p, id[ids.Account](2), "member"},
		Grant{id[ids.Grant](1), p, id[ids.Connection](9), "x", "x", 0, "root", 1, id[ids.Revision](1), Digest{}}, // of no connection
	}})
	if err == nil {
		t.Fatal("a grant of no connection was written")
	}
	if got, _ := s.Policy(); len(got.Members) != 0 {
		t.Fatalf("half a change remains: %+v", got)
	}
	if err := s.Apply(record()); err != nil {
		t.Fatalf("the store did not recover: %v", err)
	}
}

func TestATaskIsImmutableInTheFileToo(t *testing.T) {
	s := open(t, stateDir(t))
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	task := record().Put[6].(Task)
	moved := task
	moved.Project = id[ids.Project](2)
	if err := s.Apply(Change{Put: []Row{moved}}); err == nil {
		t.Error("a task was moved to another project")
	}
	moved = task
	moved.Moved++
	if err := s.Apply(Change{Put: []Row{moved}}); err == nil {
		t.Error("a task was given another directory")
	}
	task.Ended, task.Reason = 20, "revoked"
	if err := s.Apply(Change{Put: []Row{task}}); err != nil {
		t.Fatalf("a task could not be ended: %v", err)
	}
	task.Ended = 0
	if err := s.Apply(Change{Put: []Row{task}}); err == nil {
		t.Error("an ended task was made live")
	}
	if err := s.Apply(Change{Delete: []Row{task}}); err == nil {
		t.Error("a task was removed")
	}
}

func TestStore1_CommittedCallsAndOutcomes(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	b := s.Batch()
	one, two, no := call(1), call(2), call(3)
	b.Admit(one)
	b.Admit(two)
	no.Code = refusal.ToolNotGranted
	b.Deny(no)
	if got := page(t, s, Query{}); len(got.Calls) != 0 {
		t.Fatalf("read before commit: %+v", got)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.End(one.Seq, Outcome{State: Completed, At: 5, Size: 6, Micros: 7})
	b.End(two.Seq, Outcome{State: Started, At: 5}) // not an outcome
	b.Fold(no.Seq, 9, 8)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.End(one.Seq, Outcome{State: Failed, At: 9}) // written once
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	got := page(t, s, Query{}).Calls
	if len(got) != 3 || got[0].State != Denied || got[0].Count != 9 || got[0].Code != refusal.ToolNotGranted || got[1].State != Unknown ||
		got[2].State != Completed || got[2].Size != 6 || got[2].Ended != 5 || got[2].Micros != 7 {
		t.Fatalf("%+v", got)
	}
	want := *one
	want.State, want.Ended, want.Size, want.Micros, want.Change = Completed, 5, 6, 7, got[2].Change
	if !reflect.DeepEqual(got[2], want) {
		t.Fatalf("got %+v\nwant %+v", got[2], want)
	}
	if p := page(t, s, Query{State: Denied}); len(p.Calls) != 1 {
		t.Errorf("by state: %+v", p)
	}
	if p := page(t, s, Query{Project: id[ids.Project](2)}); len(p.Calls) != 0 {
		t.Errorf("of another project: %+v", p)
	}
	if p := page(t, s, Query{Limit: 2}); len(p.Calls) != 2 || !p.More || page(t, s, Query{Before: p.Next}).Calls[0].Seq != one.Seq {
		t.Errorf("pages: %+v", p)
	}
}

func TestStore3_ARestartEndsWhatWasOpen(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	b := s.Batch()
	if s.Incarnation() != 1 {
		t.Fatalf("first incarnation is %d", s.Incarnation())
	}
	for i := range 3000 {
		c := call(byte(i))
		b.Admit(c)
		if i != 5 && i != 2999 {
			b.End(c.Seq, Outcome{State: Completed, At: 1})
		}
		if i%100 == 0 {
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.OpenSession(Session{ID: id[ids.Session](1), Task: id[ids.Task](1), Project: id[ids.Project](1), UID: 1000, Token: Digest{1}, Opened: 1})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	last := b.last
	s.Close()

	s = open(t, dir)
	if s.Incarnation() != 2 || s.Batch().last < last {
		t.Fatalf("incarnation %d, numbers go on at %d after %d", s.Incarnation(), s.Batch().last, last)
	}
	r, err := s.Recover(99)
	if err != nil || r.Calls != 2 || r.Sessions != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	n := 0
	for q := (Query{}); ; {
		p := page(t, s, q)
		for _, c := range p.Calls {
			if c.State.Open() || c.Incarnation != 1 {
				t.Fatalf("still open: %+v", c)
			}
			if c.State == Unknown && c.Reason == restarted {
				n++
			}
		}
		if q.Before = p.Next; !p.More {
			break
		}
	}
	if n != 2 {
		t.Fatalf("%d calls are unknown, want 2", n)
	}
	if used, err := s.Binds(); err != nil || used[Digest{1}] != 1 {
		t.Fatalf("binds %v, %v", used, err)
	}
	if live, err := s.Sessions(); err != nil || len(live) != 0 {
		t.Fatalf("sessions %v, %v", live, err)
	}
	if r, err := s.Recover(99); err != nil || r != (Recovered{}) {
		t.Fatalf("a second time: %+v, %v", r, err)
	}
	s.Batch().OpenSession(Session{ID: id[ids.Session](2), Task: id[ids.Task](1), Opened: 2})
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	if live, _ := s.Sessions(); live[id[ids.Task](1)] != 1 {
		t.Fatalf("sessions %v", live)
	}
	s.Batch().EndSession(id[ids.Session](2), 3, "done")
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	if live, _ := s.Sessions(); len(live) != 0 {
		t.Fatalf("sessions %v", live)
	}
}

func TestStore4_AnIncarnationIsNeverUsedTwice(t *testing.T) {
	dir := stateDir(t)
	for n := uint64(1); n < 5; n++ {
		s := open(t, dir)
		if s.Incarnation() != n {
			t.Fatalf("opening %d is incarnation %d", n, s.Incarnation())
		}
		if second, err := Open(dir); !errors.Is(err, ErrBusy) {
			if second != nil {
				second.Close()
			}
			t.Fatalf("a second writer: %v", err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Calls(Query{}); err == nil {
			t.Fatal("a closed store answers")
		}
	}
}

func TestFollowingSeesEachChangeOnce(t *testing.T) {
	s := open(t, stateDir(t))
	b := s.Batch()
	edge, err := s.Latest()
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Changes: true, After: edge.Change, From: edge.OpenFrom, Limit: 100}
	seen := func() (out []string) {
		for {
			p := page(t, s, q)
			for _, c := range p.Calls {
				out = append(out, fmt.Sprint(c.Seq, c.State))
			}
			q.After, q.From = p.Next, p.OpenFrom
			if !p.More {
				return out
			}
		}
	}
	slow := call(0)
	b.Admit(slow)
	b.Commit()
	if got := seen(); !reflect.DeepEqual(got, []string{"1 admitted"}) {
		t.Fatal(got)
	}
	for range 2 * markEvery {
		c := call(1)
		b.Admit(c)
		b.Commit()
		b.End(c.Seq, Outcome{State: Failed})
	}
	b.Commit()
	if got := seen(); len(got) != 2*markEvery {
		t.Fatalf("%d changes, want one for each call", len(got))
	}
	b.End(slow.Seq, Outcome{State: Completed})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := seen(); !reflect.DeepEqual(got, []string{"1 completed"}) {
		t.Fatalf("the end of an old call was missed: %v", got)
	}
	if got := seen(); got != nil {
		t.Fatalf("twice: %v", got)
	}
}

// TestStore1_NoAdmissionIsLostByKill9 runs a writer in a child process that tells
// each admission it was told is durable, kills it in the middle, and reads.
func TestStore1_NoAdmissionIsLostByKill9(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_CHILD"); dir != "" {
		s, err := Open(dir)
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		go s.Run(context.Background())
		b := s.Batch()
		for {
			c := call(1)
			b.Admit(c)
			if err := b.Commit(); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			fmt.Println(c.Seq)
			if c.Seq%2 == 0 {
				b.End(c.Seq, Outcome{State: Completed, At: 1})
			}
		}
	}
	dir := stateDir(t)
	total := map[int64]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			seq, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if total[seq] {
				t.Fatalf("number %d was given twice", seq)
			}
			total[seq] = true
			if n == 700+round*37 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Recover(moment.UnixNano())
		if err != nil || r.Calls == 0 {
			t.Fatalf("recovered %+v, %v", r, err)
		}
		have := map[int64]State{}
		for q := (Query{}); ; {
			p := page(t, s, q)
			for _, c := range p.Calls {
				have[c.Seq] = c.State
			}
			if q.Before = p.Next; !p.More {
				break
			}
		}
		for seq := range total {
			if st, ok := have[seq]; !ok || st.Open() {
				t.Fatalf("admission %d is %v after kill -9", seq, st)
			}
		}
		s.Close()
	}
	if len(total) < 3000 {
		t.Fatalf("only %d admissions", len(total))
	}
}

func TestTheLogIsRecycledAndNeverGrows(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	wal := filepath.Join(dir, ActivityFile+"-wal")
	size := func() int64 {
		fi, err := os.Stat(wal)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	if size() < walBytes {
		t.Fatalf("the log has %d bytes at first", size())
	}
	b := s.Batch()
	for range 12000 {
		c := call(1)
		b.Admit(c)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		b.End(c.Seq, Outcome{State: Completed})
	}
	if size() > 2*walBytes {
		t.Errorf("the log has %d bytes after 12,000 commits", size())
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := page(t, open(t, dir), Query{Limit: 1}); len(got.Calls) != 1 {
		t.Fatal("nothing was kept")
	}
}

func TestStore5_LandedSchemasAreNeverEdited(t *testing.T) {
	for name, schemas := range map[string][]string{"policy": policySchemas, "activity": activitySchemas} {
		for i, sql := range schemas {
			landed, err := os.ReadFile(fmt.Sprintf("testdata/landed_%s_%d.sql", name, i+1))
			if err != nil || string(landed) != sql {
				t.Errorf("schema %d of %s differs from what landed (%v)", i+1, name, err)
			}
		}
		// One that lies there and is in no list was never made.
		if files, err := filepath.Glob("schema/" + name + "_*.sql"); err != nil || len(files) != len(schemas) {
			t.Errorf("%d schemas of %s are used, of %v", len(schemas), name, files)
		}
	}
}

// The artifacts of one call were looked for among those of all others: the index of the
// newest schema lay there and was made by nobody.
func TestTheArtifactsOfACallAreFoundByAnIndex(t *testing.T) {
	s := open(t, stateDir(t))
	for where, index := range map[string]string{"call = 'x'": "artifacts_by_call", "project = 'x'": "artifacts_project"} {
		plan := ""
		if err := each(s.activity.writer, `EXPLAIN QUERY PLAN SELECT id FROM artifacts WHERE n < 9 AND `+where+` ORDER BY n DESC LIMIT 3`, func(r *sqlite3.Stmt) { plan += r.ColumnText(3) }); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, index) {
			t.Errorf("%s: %s", where, plan)
		}
	}
}

func TestStore5_MigrationCopiesFirstAndAnUnknownSchemaIsRefused(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	path := filepath.Join(dir, PolicyFile)
	now := len(policySchemas)
	newer := append(policySchemas[:now:now], `ALTER TABLE accounts ADD COLUMN note TEXT NOT NULL DEFAULT ''`)
	for range 2 {
		f, err := openFile(path, "", newer, silent)
		if err != nil {
			t.Fatal(err)
		}
		f.close()
	}
	copied, err := openFile(fmt.Sprintf("%s.schema-%d", path, now), "", policySchemas, silent)
	if err != nil {
		t.Fatalf("no copy: %v", err)
	}
	n := 0
	each(copied.writer, `SELECT id FROM accounts`, func(*sqlite3.Stmt) { n++ })
	copied.close()
	if n != 1 {
		t.Fatal("the copy is empty")
	}
	if _, err := Open(dir); !errors.Is(err, ErrNewer) {
		t.Fatalf("a newer schema: %v", err)
	}
	// A migration that fails leaves the old schema.
	dir = stateDir(t)
	open(t, dir).Close()
	if _, err := openFile(filepath.Join(dir, PolicyFile), "", append(policySchemas[:now:now], `CREATE TABLE t (x); CREATE TABLE accounts (x)`), silent); err == nil {
		t.Fatal("a failing migration passed")
	}
	open(t, dir)
}

// What an older version wrote is what this one reads.
func TestStore5_EverySchemaThatLandedIsBroughtForward(t *testing.T) {
	for n := 1; n < len(policySchemas); n++ {
		dir := stateDir(t)
		f, err := openFile(filepath.Join(dir, PolicyFile), "", policySchemas[:n], silent)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.writer.Exec(`INSERT INTO accounts VALUES ('acc_01997d5e-0000-7000-8000-000000000001', 1, 3)`); err != nil {
			t.Fatal(err)
		}
		if err := f.writer.Exec(`INSERT INTO tasks (id, account, host, project, principal, mode, created, ended, reason)
			VALUES ('tsk_01997d5e-0000-7000-8000-000000000001', '', '', '', '', '', 5, 0, '')`); err != nil {
			t.Fatal(err)
		}
		f.close()
		s := open(t, dir)
		d := Definition{Digest: Digest{1}, Raw: []byte("{}")}
		if err := s.Apply(Change{Put: []Row{d}}); err != nil {
			t.Errorf("from schema %d: %v", n, err)
		}
		p, err := s.Policy()
		if err != nil || len(p.Accounts) != 1 || p.Accounts[0].Version != 3 || len(p.Definitions) != 1 || string(p.Definitions[0].Raw) != "{}" {
			t.Errorf("from schema %d: %+v, %v", n, p, err)
		}
		if len(p.Tasks) != 1 || p.Tasks[0].Created != 5 || p.Tasks[0].Moved >= 0 {
			t.Errorf("from schema %d: %+v", n, p.Tasks)
		}
		s.Close()
	}
}

func TestADamagedPolicyIsRefused(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	path := filepath.Join(dir, PolicyFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * pageBytes; i < len(raw); i += 97 {
		raw[i] ^= 0x5a
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a damaged file: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("another file: %v", err)
	}
}

func TestUnsafeFilesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"directory for all": func(t *testing.T, dir string) { os.Chmod(dir, 0o777) },
		"file for all":      func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, PolicyFile), 0o644) },
		"two names": func(t *testing.T, dir string) {
			os.Link(filepath.Join(dir, PolicyFile), filepath.Join(t.TempDir(), "other"))
		},
		"symbolic link": func(t *testing.T, dir string) {
			p := filepath.Join(dir, ActivityFile)
			os.Rename(p, p+".moved")
			os.Symlink(p+".moved", p)
		},
		"not a directory": func(t *testing.T, dir string) {
			os.Rename(dir, dir+".moved")
			os.Symlink(dir+".moved", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			open(t, dir).Close()
			open(t, dir).Close() // it opens while nothing is spoiled
			spoil(t, dir)
			if s, err := Open(dir); !errors.Is(err, ErrUnsafe) {
				if s != nil {
					s.Close()
				}
				t.Fatalf("%v", err)
			}
		})
	}
}

func TestStore2_ALockedFileIsBusyAndThenWorks(t *testing.T) {
	dir := stateDir(t)
	s := open(t, dir)
	other, err := connect(filepath.Join(dir, ActivityFile), "", sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	c := call(1)
	b.Admit(c)
	if err := b.Commit(); !errors.Is(err, ErrBusy) {
		t.Fatalf("a locked file: %v", err)
	}
	if b.Waiting() != 0 {
		t.Fatalf("%d things wait: a denied admission must not be written later", b.Waiting())
	}
	if err := other.Exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if got := page(t, s, Query{}); len(got.Calls) != 0 {
		t.Fatalf("%+v", got)
	}
	b.Admit(call(2))
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestTheMemoryStoreAnswersTheSame(t *testing.T) {
	s, err := UnsafeOpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Apply(record()); err != nil {
		t.Fatal(err)
	}
	s.Batch().Admit(call(1))
	if err := s.Batch().Commit(); err != nil {
		t.Fatal(err)
	}
	if p := page(t, s, Query{}); len(p.Calls) != 1 {
		t.Fatalf("%+v", p)
	}
}

// Records of every schema that ever landed are read after the migration, and new ones written.
func TestStore5_ActivityOfEveryLandedSchemaIsRead(t *testing.T) {
	for n := 1; n < len(activitySchemas); n++ {
		dir := stateDir(t)
		policy, err := openFile(filepath.Join(dir, PolicyFile), "", policySchemas, silent)
		if err != nil {
			t.Fatal(err)
		}
		policy.close()
		old, err := openFile(filepath.Join(dir, ActivityFile), "", activitySchemas[:n], silent)
		if err != nil {
			t.Fatal(err)
		}
		insert := `INSERT INTO calls (seq, change, id, at, account, host, project, task, principal, mode, session, connection, revision, tool, classes, policy,
			request_id, args_digest, args_size, state, ended, size, micros, code, count, incarnation)
			VALUES (1, 1, 'cal_x', 5, 'acc', 'local', 'prj', 'tsk', 'local:x', 'code', 'ses', 'con', 'rev', 'read', 1, 'p', '1', x'00', 3, 1, 0, 0, 0, '', 1, 1)`
		if err := old.writer.Exec(insert); err != nil {
			t.Fatal(err)
		}
		old.close()
		s := open(t, dir)
		if _, err := s.Recover(9); err != nil {
			t.Fatal(err)
		}
		got := page(t, s, Query{})
		if len(got.Calls) != 1 || got.Calls[0].ID != "cal_x" || got.Calls[0].State != Unknown || got.Calls[0].Reason != restarted {
			t.Fatalf("from schema %d: %+v", n, got.Calls)
		}
		c := call(2)
		b := s.Batch()
		b.Admit(c)
		b.End(c.Seq, Outcome{State: Unknown, Code: refusal.ServerExited, Reason: "why"})
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := page(t, s, Query{Limit: 1}); got.Calls[0].Reason != "why" {
			t.Fatalf("from schema %d: %+v", n, got.Calls)
		}
	}
}
