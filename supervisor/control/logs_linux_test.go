package control

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// What a server wrote may hold arguments: whoever sees artifacts sees it, and root hears
// only what runs and how it ended.
func TestLogsAreForWhoeverReadsContent(t *testing.T) {
	r := newRig(t)
	b, _ := r.session(owner, "")
	r.event(func() {
		in := b.started[r.conn]
		b.said = []wire.Stderr{
			{Connection: r.conn, Instance: in.Instance, At: 100, Data: []byte("one\ntwo \x1b[31m\xff\nthr")},
			{Connection: r.conn, Instance: in.Instance, At: 118, Data: []byte("ee\n")},
			{Connection: r.conn, Instance: fresh[ids.Jail](), Data: []byte("never handed to this bridge")},
			{Connection: fresh[ids.Connection](), Instance: in.Instance, Data: []byte("of no connection of this project")},
		}
	})
	logs := func(uid uint32, p api.LogsParams) api.LogRow {
		t.Helper()
		p.Project = "shop"
		got := must[api.LogsResult](r.as(uid), api.Logs, p)
		if len(got.Rows) != 1 {
			t.Fatalf("uid %d: %+v", uid, got.Rows)
		}
		return got.Rows[0]
	}
	const text = "one\ntwo \x1b[31m\uFFFD\nthree\n"
	for _, uid := range []uint32{owner, viewer} {
		if got := logs(uid, api.LogsParams{}); got.Text != text || got.Next != 121 || got.Lost != 100 || got.Missing != "" || got.Ended || got.Label != "files" {
			t.Errorf("uid %d: %+v", uid, got)
		}
	}
	for _, uid := range []uint32{root, member, host} {
		if got := logs(uid, api.LogsParams{}); got.Text != "" || !strings.HasPrefix(got.Missing, "it may tell what calls were about") || got.Instance == "" {
			t.Errorf("uid %d: %+v", uid, got)
		}
	}
	if got := logs(owner, api.LogsParams{Lines: 1}); got.Text != "three\n" || got.Lost != 0 {
		t.Errorf("one line: %+v", got)
	}
	from := map[string]uint64{logs(owner, api.LogsParams{}).Instance: 115}
	if got := logs(owner, api.LogsParams{From: from}); got.Text != "three\n" || got.Next != 121 || got.Lost != 0 {
		t.Errorf("from there on: %+v", got)
	}
	if got := logs(owner, api.LogsParams{Server: "files"}); got.Text != text {
		t.Errorf("of the connection: %+v", got)
	}
	if _, code := r.as(owner).ask(api.Logs, api.LogsParams{Project: "shop", Server: "nothing"}); code != refusal.NotFound {
		t.Errorf("a connection that is none: %q", string(code))
	}
	if _, code := r.as(owner).ask(api.Logs, api.LogsParams{Project: "shop", Lines: MaxLogLines + 1}); code != refusal.BadRequest {
		t.Errorf("too many lines: %q", string(code))
	}

	// One that does not answer is said so, and its calls go on.
	r.event(func() { b.silent = true })
	for range 2 {
		if got := logs(owner, api.LogsParams{}); !strings.HasPrefix(got.Missing, "its bridge ") || got.Text != "" {
			t.Errorf("a silent bridge: %+v", got)
		}
	}
	if _, code := b.admit(onlySession(b), r.conn, "read_rows"); code != "" {
		t.Errorf("afterwards a call is refused: %s", string(code))
	}
}

// A bridge that tells what it was not asked for is ended.
func TestStderrThatNobodyAskedForEndsItsBridge(t *testing.T) {
	r := newRig(t)
	b, _ := r.session(owner, "")
	b.send(wire.Stderr{Seq: 1, Last: true})
	r.await("the bridge is ended", func() bool { return r.ends[b.jail] == nil })
}

func onlySession(b *bridge) (out ids.Session) {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	for s := range b.sessions {
		out = s
	}
	return out
}

func TestLogTextIsCutAtLinesAndBytes(t *testing.T) {
	for _, row := range []struct {
		text        string
		lines, most int
		want        string
	}{
		{"a\nb\nc\n", 2, 100, "b\nc\n"}, {"a\nb\nc", 1, 100, "c"}, {"a\nb\nc\n", 9, 100, "a\nb\nc\n"}, {"", 3, 100, ""}, {"\n\n\n", 1, 100, "\n"}, {"abcdef", 3, 2, "ef"}, {"abc", 3, 0, ""},
	} {
		if got := string(lastLines([]byte(row.text), row.lines, row.most)); got != row.want {
			t.Errorf("%q, %d lines, %d bytes: %q", row.text, row.lines, row.most, got)
		}
	}
	for _, row := range []struct {
		from uint64
		want string
		lost uint64
	}{{0, "abc", 10}, {10, "abc", 0}, {12, "c", 0}, {13, "", 0}, {99, "", 0}} {
		if got, lost := since([]byte("abc"), 10, row.from); string(got) != row.want || lost != row.lost {
			t.Errorf("from %d: %q, lost %d", row.from, got, lost)
		}
	}
}

// A server that fills its log takes no room of an answer from one that does not.
func TestLogs_OneServersFloodHidesNoOther(t *testing.T) {
	of := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for _, row := range []struct {
		sizes, want []int
	}{
		{[]int{1000, 10}, []int{90, 10}},
		{[]int{10, 1000}, []int{10, 90}},
		{[]int{1000, 1000, 1000}, []int{33, 33, 34}},
		{[]int{40, 1000, 5}, []int{40, 55, 5}},
		{[]int{30, 20}, []int{30, 20}},
		{[]int{0, 200}, []int{0, 100}},
		{nil, []int{}},
	} {
		var texts [][]byte
		for _, n := range row.sizes {
			texts = append(texts, of(n))
		}
		if got := shares(texts, MaxLogLines, 100); !slices.Equal(got, row.want) {
			t.Errorf("%v: %v, want %v", row.sizes, got, row.want)
		}
	}
	if got := shares([][]byte{[]byte("a\nb\nc\n"), of(200)}, 1, 100); !slices.Equal(got, []int{2, 98}) {
		t.Errorf("one line of each: %v", got)
	}
}
