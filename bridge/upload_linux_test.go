package bridge

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"postern/bridge/mcp"
	"postern/bridge/wire"
)

const pngHead = "\x89PNG\r\n\x1a\n"

func picture(fill string, n int) string {
	return (pngHead + strings.Repeat(fill, max(0, n-len(pngHead))))[:n]
}

// sent gathers the artifacts of one call from what the authority heard, in their order.
func (a *authority) sent(c wire.Ended) (all []string) {
	a.t.Helper()
	for n := range c.Artifacts {
		awaitIf(a, func(p wire.Piece) bool { return p.Call == c.Call && (p.N == n || p.Why == wire.WhyMany) && p.Last })
	}
	parts := map[int]string{}
	for _, m := range a.all() {
		p, ok := m.(wire.Piece)
		if !ok || p.Call != c.Call {
			continue
		}
		parts[p.N] += string(p.Data)
		if p.Part == 0 && p.Why == "" && p.N != len(all) {
			a.t.Errorf("artifact %d comes as number %d", p.N, len(all))
		}
		if p.Last && p.Why != "" {
			all = append(all, string(p.Why))
		} else if p.Last {
			all = append(all, parts[p.N])
		}
	}
	return all
}

func TestBridge9_BytesGoUpAfterTheResultAndTheOutcome(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"pictures"}, "draw", "say")
	c := a.passed().initialize()
	for i, row := range []struct {
		args string
		want []string
	}{
		{`{"n":1,"bytes":9}`, []string{picture("x", 9)}},
		{`{"n":2,"bytes":100,"fill":"y","kind":"resource"}`, []string{picture("y", 100), picture("y", 100)}},
		{`{"n":1,"bytes":32768}`, []string{picture("x", 32768)}}, // one part and no more
		{`{"n":1,"bytes":32769}`, []string{picture("x", 32769)}},
		{`{"n":1,"bytes":8388608,"kind":"audio"}`, []string{picture("x", 8<<20)}},
		{`{"n":1,"bytes":8388609}`, []string{"large"}},
		{`{"n":16,"bytes":8}`, slices.Repeat([]string{pngHead}, 16)},
		{`{"n":17,"bytes":8}`, append(slices.Repeat([]string{pngHead}, 16), "many")},
		{`{"n":0}`, nil},
	} {
		id := fmt.Sprint(10 + i)
		c.call(id, "draw", row.args)
		line := c.line()
		if !strings.Contains(line, `"drawn"`) {
			t.Fatalf("%s: %.200s", row.args, line)
		}
		awaitCount[wire.Ended](a, i+1)
		var ended wire.Ended
		at, first := 0, -1
		for j, m := range a.all() {
			if e, ok := m.(wire.Ended); ok {
				ended, at = e, j
			}
		}
		if ended.Outcome != wire.Completed || !ended.Returned || ended.Artifacts != len(row.want) {
			t.Errorf("%s: %+v", row.args, ended)
		}
		got := a.sent(ended)
		for j, m := range a.all() {
			if p, ok := m.(wire.Piece); ok && p.Call == ended.Call && first < 0 {
				first = j
			}
		}
		if first >= 0 && first < at {
			t.Errorf("%s: a piece comes before the outcome", row.args)
		}
		if len(got) != len(row.want) {
			t.Fatalf("%s: %d artifacts", row.args, len(got))
		}
		for n := range got {
			if sha256.Sum256([]byte(got[n])) != sha256.Sum256([]byte(row.want[n])) {
				t.Errorf("%s: artifact %d has %d bytes, want %d", row.args, n, len(got[n]), len(row.want[n]))
			}
		}
	}
	// What is no base64, and a result with an error of the server's own.
	c.call("90", "say", `{"content":[{"type":"image","data":"no!","mimeType":"image/png"},{"type":"image","data":"aGk="}]}`)
	c.line()
	last := callOf(lastSeq(a))
	ended := awaitIf(a, func(e wire.Ended) bool { return e.Call == last })
	if got := a.sent(ended); !slices.Equal(got, []string{"invalid", "hi"}) {
		t.Errorf("%q", got)
	}
}

// What a result names goes up as its path alone, and the result stays as it is.
func TestBridge9_E4_AFileThatIsNamedGoesUpAsItsPath(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"pictures"}, "draw", "say", "links")
	c := a.passed().initialize()
	link := func(uri string) string {
		return fmt.Sprintf(`{"type":"resource_link","name":"x","uri":%q,"mimeType":"text/x"}`, uri)
	}
	long := "file:///workspace/" + strings.Repeat("a", wire.MaxPath)
	content := "[" + strings.Join([]string{link("file:///workspace/a%20b"), link("https://host/a"), `{"type":"resource","resource":{"uri":"file:///workspace/t","text":"t"}}`, `{"type":"image","data":"aGk="}`,
		link("file://host/a"), link("file:///workspace/a%0Ab"), link("file:///workspace/%ff"), link("file:///workspace/..%2f..%2fetc"), link(long)}, ",") + "]"
	c.call("1", "say", `{"content":`+content+`}`)
	if line := c.line(); !strings.Contains(line, content) {
		t.Errorf("the result is another: %.300s", line)
	}
	ended := awaitIf(a, func(wire.Ended) bool { return true })
	if ended.Artifacts != 8 {
		t.Fatalf("%+v", ended)
	}
	a.sent(ended)
	var got []string
	for _, m := range a.all() {
		if p, ok := m.(wire.Piece); ok {
			got = append(got, fmt.Sprintf("%d %s %s %.20s %s%s", p.N, p.Type, p.Path, p.Name, p.Why, p.Data))
		}
	}
	want := []string{"0 text/x /workspace/a b file:///workspace/a% ", "1  /workspace/t file:///workspace/t ", "2    hi", "3 text/x  file://host/a uri", "4 text/x  file:///workspace/a% uri", "5 text/x  file:///workspace/%f uri",
		"6 text/x /workspace/../../etc file:///workspace/.. ", "7 text/x  file:///workspace/aa uri"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	c.call("2", "links", `{"n":10000,"path":"/workspace/a"}`)
	c.line()
	first := ended.Call
	ended = awaitIf(a, func(e wire.Ended) bool { return e.Call != first })
	if all := a.sent(ended); len(all) != wire.MaxArtifacts+1 || all[wire.MaxArtifacts] != string(wire.WhyMany) {
		t.Errorf("%d: %q", ended.Artifacts, all)
	}
}

func lastSeq(a *authority) (seq uint64) {
	for _, m := range a.all() {
		if x, ok := m.(wire.Admit); ok {
			seq = x.Seq
		}
	}
	return seq
}

// Beyond what may wait, the bytes are left out and the call says so.
func TestBridge9_WhatIsTooMuchIsLeftOutAndNothingWaits(t *testing.T) {
	b := &Bridge{}
	b.uploads.bytes = MaxUpload - 10
	b.uploads.running = true // nobody sends in this test
	a := answerOf(t, `{"content":[{"type":"image","data":"aGhoaA=="},{"type":"image","data":"aGk="}]}`)
	all := b.attachments("cal_x", a)
	if len(all) != 2 || all[0].why != "" || all[1].why != wire.WhyBusy || b.uploads.bytes != MaxUpload {
		t.Errorf("%+v, %d", all, b.uploads.bytes)
	}
}

func answerOf(t *testing.T, result string) *mcp.Answer {
	t.Helper()
	var p mcp.Parser
	a, err := p.ReadAnswer([]byte(`{"id":1,"result":` + result + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
