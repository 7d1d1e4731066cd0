package activity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
)

var now = time.UnixMilli(1_790_000_000_000)

func id[T ids.ID](n byte) T { return ids.New[T](now, [10]byte{n}) }

func record(tool, request string) Record {
	return Record{
		ID: id[ids.Call](1), At: now.UnixNano(), Account: id[ids.Account](1), Host: "local", Project: id[ids.Project](1), Task: id[ids.Task](1), Principal: "local:x",
		Mode: "code", Session: id[ids.Session](1), Tool: tool, RequestID: request, State: store.Completed, Classes: 2, Count: 1, ArgsDigest: store.Digest{1},
	}
}

func memory(t *testing.T) *store.Store {
	s, err := store.UnsafeOpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var nasty = []string{"a\nb", "a\r\n{\"call\":\"x\"}", "\x1b[2J", "a\u2028b", "a\u202eb", "a\u200bb", "\xff\xfe", "\x00", "a\u0085b", "\\n", "tab\tx", "a\u0301", "\u00a0"}

func TestActivity1_NoTextBeginsASecondRecord(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, tool, request string) {
		var out bytes.Buffer
		for _, r := range []Record{record(tool, request), record("read_file", "2")} {
			l, err := Export(&r, "p1", nil, nil)
			if err != nil {
				t.Fatalf("%v", err)
			}
			out.Write(append(l, '\n'))
		}
		if !utf8.Valid(out.Bytes()) {
			t.Fatalf("not UTF-8: %q", out.String())
		}
		for _, r := range strings.TrimSuffix(strings.Replace(out.String(), "\n", "", 2), "") {
			if r != ' ' && !shown(r) {
				t.Fatalf("%U is written as it is: %q", r, out.String())
			}
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines from %q", len(lines), tool)
		}
		for _, l := range lines {
			var m map[string]any
			if err := json.Unmarshal([]byte(l), &m); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
		}
	}
	for _, n := range nasty {
		check(t, n, n)
		if c := Clean(n, 100); c == n || !utf8.ValidString(c) || strings.ContainsFunc(c, func(r rune) bool { return !shown(r) }) {
			t.Errorf("%q is cleaned to %q", n, c)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "text") {
			s = rapid.String().Draw(t, "runes")
		}
		check(t, s, s)
		max := rapid.IntRange(4, 200).Draw(t, "max")
		c := Clean(s, max)
		if len(c) > max || !utf8.ValidString(c) || strings.ContainsFunc(c, func(r rune) bool { return !shown(r) }) {
			t.Fatalf("%q cleaned to %q (%d)", s, c, len(c))
		}
		if Shown(c, max) != c {
			t.Fatalf("%q is not shown as it is", c)
		}
	})
	for _, plain := range []string{"", "read_file", `"a-1"`, "naïve", "日本"} {
		if Clean(plain, 128) != plain {
			t.Errorf("%q is cleaned to %q", plain, Clean(plain, 128))
		}
	}
	if c := Clean(strings.Repeat("x", 300), 128); len(c) != 128 || !strings.HasSuffix(c, "…") {
		t.Errorf("cut to %d: %q", len(c), c)
	}
}

func TestActivity2_Cursors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Cursor{Before: rapid.Int64Range(0, 1<<62).Draw(t, "before")}
		if rapid.Bool().Draw(t, "follow") {
			c = Cursor{Follow: true, After: rapid.Int64Range(0, 1<<62).Draw(t, "after"), From: rapid.Int64Range(0, 1<<62).Draw(t, "from")}
			if rapid.Bool().Draw(t, "walk") {
				c.Follow, c.Walk = false, true
				c.At, c.Until, c.Floor = rapid.Int64Range(0, 1<<62).Draw(t, "at"), rapid.Int64Range(0, 1<<62).Draw(t, "until"), rapid.Int64Range(0, 1<<62).Draw(t, "floor")
			}
		}
		if rapid.Bool().Draw(t, "for somebody") {
			c.Reader = "0a1b2c"
		}
		if got, err := ParseCursor(c.String()); err != nil || got != c {
			t.Fatalf("%q is %+v, %v", c, got, err)
		}
	})
	for _, text := range []string{"p", "f", "f1", "p-1", "p01", "pA", "f1.", "f1.-2", "x1", "p1 ", "f1.2.3", "w1.2.3.4", "w1.2.3.4.5.6", "w1.2.3.4.-5", "p1-", "p1-" + strings.Repeat("x", 200), "p" + strings.Repeat("z", 30)} {
		if c, err := ParseCursor(text); err == nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
	if c, err := ParseCursor(""); err != nil || c != (Cursor{}) {
		t.Error("the newest page has no cursor")
	}
}

func TestPagesAndFollowing(t *testing.T) {
	s := memory(t)
	b := s.Batch()
	for range 5 {
		r := record("read_file", "1")
		b.Admit(&r)
	}
	other := record("read_file", "1")
	other.Project = id[ids.Project](2)
	b.Admit(&other)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	ask := func(c Cursor, limit int) (store.Page, Cursor) {
		q := store.Query{Project: id[ids.Project](1), Limit: limit}
		c.Apply(&q)
		p, err := s.Calls(q)
		if err != nil {
			t.Fatal(err)
		}
		return p, c.Next(p)
	}
	n := 0
	for c, more := (Cursor{}), true; more; {
		p, next := ask(c, 2)
		n += len(p.Calls)
		c, more = next, p.More
	}
	if n != 5 {
		t.Fatalf("%d records in pages of 2, want 5 of this project", n)
	}
	edge, err := s.Latest()
	if err != nil {
		t.Fatal(err)
	}
	c := Cursor{Follow: true, After: edge.Change, From: edge.OpenFrom}
	b.End(1, store.Outcome{State: store.Completed})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	p, next := ask(c, 10)
	if len(p.Calls) != 1 || p.Calls[0].State != store.Completed {
		t.Fatalf("%+v", p)
	}
	if p, _ := ask(next, 10); len(p.Calls) != 0 {
		t.Fatalf("twice: %+v", p)
	}
}

func TestActivity3_DenialsAreFoldedAndAdmissionsNever(t *testing.T) {
	s := memory(t)
	b := s.Batch()
	var f Folder
	deny := func(at time.Duration, session byte, tool string, code refusal.Code) {
		r := record(tool, "1")
		r.At, r.Session, r.Code = now.Add(at).UnixNano(), id[ids.Session](session), code
		f.Deny(b, &r)
	}
	const flood = 10_000
	for i := range flood {
		deny(time.Duration(i)*100*time.Microsecond, 1, fmt.Sprint("tool", i%100), refusal.ToolNotGranted)
		if i%10 == 0 {
			r := record("read_file", "1")
			b.Admit(&r)
		}
		if i%100 == 0 {
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	deny(time.Second, 2, "tool", refusal.ToolNotGranted) // another session is not drowned
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	read := func(state store.State) []Record {
		var out []Record
		for q := (store.Query{State: state}); ; {
			p, err := s.Calls(q)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, p.Calls...)
			if q.Before = p.Next; !p.More {
				return out
			}
		}
	}
	sum, mine, theirs := int64(0), 0, 0
	for _, r := range read(store.Denied) {
		if r.Session == id[ids.Session](1) {
			mine++
			sum += r.Count
		} else {
			theirs++
		}
	}
	if sum != flood || mine > DenialsEach+1 || theirs != 1 {
		t.Fatalf("%d records count %d denials of %d; the other session has %d", mine, sum, flood, theirs)
	}
	if n := len(read(store.Admitted)); n != flood/10 {
		t.Fatalf("%d of %d admissions", n, flood/10)
	}
	deny(2*DenialWindow, 1, "late", refusal.ToolNotGranted)
	f.Forget(id[ids.Session](1))
	deny(2*DenialWindow, 1, "a\nb", refusal.ToolUnknown)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	got := read(store.Denied)
	if got[0].Tool != `a\nb` || got[1].Tool != "late" {
		t.Fatalf("%q, %q", got[0].Tool, got[1].Tool)
	}
}

func TestActivity4_AnExportedLineHasAFixedShape(t *testing.T) {
	r := record("read_file", `"1"`)
	r.Seq, r.Ended, r.Size, r.Micros, r.Code, r.Incarnation, r.Policy = 35, now.Add(time.Second).UnixNano(), 7, 8, refusal.ServerExited, 3, "grant"
	r.Connection, r.Revision = id[ids.Connection](1), id[ids.Revision](1)
	out, err := Export(&r, Cursor{Before: r.Seq}.String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	uuid := string(r.ID)[3:]
	want := strings.NewReplacer("~", uuid, "D", "01"+strings.Repeat("0", 62)).Replace(`{"cursor":"pz","call":"cal~","time":"2026-09-21T14:13:20Z","state":"completed","account":"acc~","host":"local","project":"prj~","task":"tsk~",` +
		`"principal":"local:x","mode":"code","policy":"grant","session":"ses~","connection":"con~","revision":"rev~","tool":"read_file","classes":["filesystem.read"],"request_id":"\"1\"",` +
		`"args_digest":"D","args_size":0,"ended":"2026-09-21T14:13:21Z","size":7,"micros":8,"code":"server_exited","count":1,"incarnation":3}`)
	if out.String() != want {
		t.Fatalf("got  %s\nwant %s", out, want)
	}
}

func TestABellWakesWhoeverListened(t *testing.T) {
	var b Bell
	b.Ring() // nobody
	one, two := b.Next(), b.Next()
	select {
	case <-one:
		t.Fatal("rung before anything happened")
	default:
	}
	b.Ring()
	<-one
	<-two
	three := b.Next()
	select {
	case <-three:
		t.Fatal("an old ring was heard")
	default:
	}
	go b.Ring()
	<-three
}

func TestItem_WhatIsCutSaysHowLongItIs(t *testing.T) {
	long := "resource:file:///" + strings.Repeat("a", 900)
	for _, c := range []struct{ in, end string }{
		{"read_file", "read_file"}, {strings.Repeat("a", MaxTool), "aaa"}, {long, "… (917 bytes)"}, {long + "b", "… (918 bytes)"},
		{strings.Repeat("\x01", 200), "… (200 bytes)"},
	} {
		got := Item(c.in)
		if len(got) > MaxTool || !strings.HasSuffix(got, c.end) {
			t.Errorf("%.20q…: %d bytes, %q", c.in, len(got), got)
		}
		if again := Item(got); again != got {
			t.Errorf("not the same a second time: %q", again)
		}
	}
}

func TestContinues_IsTheCallThatTheRecordNames(t *testing.T) {
	first := id[ids.Call](7)
	for policy, want := range map[string]string{
		"tier=observe grant=grt_x " + Continuing(first): string(first), "tier=observe": "", "": "", "continues=": "", "continues=cal_forged": "", "xcontinues=" + string(first): "",
	} {
		if got := Continues(policy); got != want {
			t.Errorf("%q: %q", policy, got)
		}
		r := record("ask", "1")
		r.Policy = policy
		line, err := Export(&r, "p1", nil, nil)
		if has := strings.Contains(string(line), `"continues":"`+want+`"`); err != nil || has != (want != "") {
			t.Errorf("exported %s (%v)", line, err)
		}
	}
}
