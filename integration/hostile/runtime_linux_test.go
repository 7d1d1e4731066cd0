package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/supervisor/api"
)

// Every kind of line that is no acceptable message is answered or skipped, reaches no
// server, and leaves the session usable.
func TestRuntime_C089_C001_C022_HostileLinesReachNoServer(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "ok" { // the server runs: what reaches it is seen at once
		t.Fatal(m.raw)
	}
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	lines := []string{
		"[" + call + "]", " \t[" + call + "]", "[]", "[[" + call + "]]", "[" + call + `,{"jsonrpc":"2.0","id":8,"method":"ping"}]`,
		call + call, call + " " + call, call + "\r" + call, "\ufeff" + call, "null", "42", `"x"`, "true", "{}", "NOT JSON", `{"jsonrpc":`,
		"Content-Length: 40", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"id":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","Name":"write","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"METHOD":"tools/call","method":"ping","Params":{"name":"echo"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope"},"params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope","name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n\u0061me":"nope","name":"echo","arguments":{}}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"param\u017f\":{\"name\":\"echo\"},\"params\":{\"name\":\"nope\"}}",
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"path":"a","path":"b"}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":` + deep + `}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":[]}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":"{}"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":7,"arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":null,"arguments":{}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["echo"]}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":1e}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":NaN}}}`,
		`{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":[1],"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 4096) + `","method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"x\":\"\xc3\"}}}",
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"x\":\"\\ud800\"}}}",
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"x\":\"\x00\"}}}",
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","arguments":{}}}`, // a notification asks for nothing
		`{"jsonrpc":"2.0","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","result":{},"params":{"name":"echo","arguments":{}}}`,
		strings.Repeat(" ", 1<<16), "", "\r", "\x00\x00", "\x1b[2J",
	}
	sent := 1
	for _, line := range lines {
		if err := r.send(line); err != nil {
			t.Fatalf("after %.80q: %v", line, err)
		}
		if m := r.call("nobody's", "{}"); m.outcome() != "-32602" {
			t.Fatalf("after %.80q the session says %s", line, m.raw)
		}
		// What was admitted before this call is sent before it, and written down before it
		// is answered.
		if m := r.call("echo", `{}`); m.outcome() != "ok" {
			t.Fatalf("after %.80q the session says %s", line, m.raw)
		}
		if sent++; len(w.calls(w.a)) != sent {
			t.Fatalf("after %.120q %d calls reached the server, not %d", line, len(w.calls(w.a)), sent)
		}
	}
	// Names that are not the granted one.
	for _, name := range []string{"Echo", "ECHO", "echo ", " echo", "echo\u200b", "ｅcho", "e\u0441ho", "count.echo", "count/echo", "count__echo", "mcp__count__echo",
		"echo\x00", "*", "", "../echo", strings.Repeat("e", 300), "b.echo", "\u202eohce", "write", "destroy", "env"} {
		if m := r.call(name, `{}`); m.outcome() == "ok" {
			t.Errorf("%q was called: %s", name, m.raw)
		}
	}
	for _, method := range []string{"resources/read", "prompts/get", "completion/complete", "sampling/createMessage", "elicitation/create", "roots/list", "tasks/get", "x/y", "postern/grant", "tools/grant", ""} {
		if m := r.ask(method, `{"name":"echo","uri":"file:///etc/passwd"}`); m.outcome() == "ok" {
			t.Errorf("%q was answered: %s", method, m.raw)
		}
	}
	if n := len(w.calls(w.a)); n != sent {
		t.Fatalf("%d calls reached the server, not %d", n, sent)
	}
	w.works(w.a)
}

func TestRuntime_C040_NothingBeforeTheHandshakeAndNoSecondOne(t *testing.T) {
	w := newWorld(t)
	r := w.session(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "not_initialized" {
		t.Errorf("tools/call first: %s", m.raw)
	}
	if m := r.ask("tools/list", `{}`); m.outcome() != "not_initialized" {
		t.Errorf("tools/list first: %s", m.raw)
	}
	for _, bad := range []string{`{"protocolVersion":20250618}`, `[]`, `{"protocolVersion":null,"capabilities":{}}`} {
		if m := r.ask("initialize", bad); m.outcome() == "ok" {
			t.Errorf("initialize %s: %s", bad, m.raw)
		}
	}
	if m := r.call("echo", `{}`); m.outcome() != "not_initialized" {
		t.Errorf("after bad handshakes: %s", m.raw)
	}
	if n := len(w.calls(w.a)); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
	for n := range 2 {
		m := r.ask("initialize", `{"protocolVersion":"2099-01-01","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
		if (m.outcome() == "ok") != (n == 0) {
			t.Errorf("initialize %d: %s", n, m.raw)
		}
	}
	// Both eras in one session, with a wrong version among them.
	modern := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	if m := r.ask("tools/call", `{"name":"echo","arguments":{},`+modern+`}`); m.outcome() != "ok" {
		t.Errorf("modern: %s", m.raw)
	}
	if m := r.ask("tools/call", `{"name":"echo","arguments":{},`+strings.Replace(modern, "2026-07-28", "2199-01-01", 1)+`}`); m.outcome() == "ok" {
		t.Errorf("a version that nobody has: %s", m.raw)
	}
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("legacy: %s", m.raw)
	}
	if n := len(w.calls(w.a)); n != 2 {
		t.Errorf("%d calls reached the server, not 2", n)
	}
}

// Ids of any kind come back as they were written, and only to whom they belong.
func TestRuntime_C009_C012_IdsAreTheSessionsOwn(t *testing.T) {
	w := newWorld(t)
	r, other := w.open(w.a, aliceUID, ""), w.open(w.a, aliceUID, "")
	for _, id := range []string{`0`, `-1`, `1.5`, `"1"`, `1`, `"007"`, `""`, `9007199254740993`, `123456789012345678901234567890`, `-0`, `"\u0061"`, `"\u2028\n"`, `"ses_x"`} {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"n":123456789012345678901234567890}}}`)
		m := r.read()
		if string(m.ID) != id || m.outcome() != "ok" || !strings.Contains(m.raw, "123456789012345678901234567890") {
			t.Errorf("id %s came back as %s", id, m.raw)
		}
	}
	before := len(w.calls(w.a))
	// The same id twice in flight; a cancel of another session's id; a cancel of nonsense.
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":700}}}`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
	for _, id := range []string{"5", `"5"`, "5.0", "null", "{}", "1"} {
		other.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	}
	if m := other.ask("ping", "{}"); m.outcome() != "ok" {
		t.Errorf("the other: %s", m.raw)
	}
	first, second := r.answer("5"), r.answer("5")
	if first.outcome() != "duplicate_id" || second.outcome() != "ok" || second.text() != "slept" {
		t.Errorf("the same id twice: %s then %s", first.raw, second.raw)
	}
	if n := len(w.calls(w.a)); n != before+1 {
		t.Errorf("%d calls reached the server, not one", n-before)
	}
}

// 10,000 requests without reading one answer, from eight sessions at once, one that
// never reads, one with half a line for ever: bob's call is not later for it, and
// each call that was admitted has an end.
func TestRuntime_FloodsHarmNobodyElse(t *testing.T) {
	w := newWorld(t)
	bob := w.open(w.b, bobUID, "")
	if m := bob.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		r := w.open(w.a, aliceUID, "")
		wg.Go(func() {
			var b strings.Builder
			for i := range 10000 {
				fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%d,"method":"tools/%s","params":{"name":"echo","arguments":{}}}`+"\n", i, []string{"call", "list"}[n%2])
			}
			r.c.SetWriteDeadline(time.Now().Add(5 * time.Second))
			io.WriteString(r.c, b.String())
			if n > 1 {
				return // never reads
			}
			for range 10000 {
				if m := r.read(); m.raw == "" {
					break
				}
			}
		})
	}
	half := w.open(w.a, aliceUID, "")
	io.WriteString(half.c, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ec`)
	worst := time.Duration(0)
	for range 40 {
		began := time.Now()
		if m := bob.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("bob during the flood: %s", m.raw)
		}
		worst = max(worst, time.Since(began))
	}
	wg.Wait()
	t.Logf("bob's slowest call during the flood: %v", worst)
	if worst > 5*time.Second {
		t.Errorf("bob waited %v", worst)
	}
	until(t, "no call of a stays open", func() bool {
		return !slices.ContainsFunc(w.records(w.a)[:min(500, len(w.records(w.a)))], func(r row) bool { return r.State == "admitted" })
	})
	w.works(w.a)
}

// Lines at and over the limit: one ends its own request only.
func TestRuntime_SixteenMebibytes(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	head, tail := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"x":"`, `"}}}`
	for _, c := range []struct {
		size int
		want string
	}{{1 << 20, "ok"}, {16<<20 - 100, ""}, {16<<20 + 1, "too_large"}, {40 << 20, "too_large"}} {
		done := make(chan error, 1)
		go func() { done <- r.send(head + strings.Repeat("x", c.size-len(head)-len(tail)) + tail) }()
		m := r.answer("3")
		if err := <-done; err != nil {
			t.Fatalf("%d bytes: %v", c.size, err)
		}
		if c.want != "" && m.outcome() != c.want {
			t.Errorf("%d bytes: %s %.200s", c.size, m.outcome(), m.raw)
		}
		if m := r.call("echo", `{}`); m.outcome() != "ok" {
			t.Fatalf("after %d bytes: %s", c.size, m.raw)
		}
	}
}

// One runtime of a project opens many sessions, each of which holds as much as it may
// of the bridge's memory. Another session of the same project keeps working.
func TestRuntime_ManyGreedySessionsDoNotEndTheirBridge(t *testing.T) {
	w := newWorld(t)
	honest := w.open(w.a, aliceUID, "")
	if m := honest.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	before, sent := w.jail(w.a, "bridge").PID, 0
	for _, attack := range []struct {
		name string
		do   func(r *peer)
	}{
		{"half lines of 15 MiB", func(r *peer) {
			r.c.SetWriteDeadline(time.Now().Add(3 * time.Second))
			io.WriteString(r.c, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"x":"`+strings.Repeat("x", 15<<20))
		}},
		{"answers of 15 MiB that nobody reads", func(r *peer) {
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"big","arguments":{"bytes":15000000}}}`)
			// One after the other: it is the bridge that they must not fill, and all at
			// once fill the server.
			sent++
			until(t, "its answer is the bridge's", func() bool {
				ended := 0
				for _, row := range w.records(w.a) {
					if row.Tool == "big" && row.State != "admitted" && row.State != "started" {
						ended++
					}
				}
				return ended == sent
			})
		}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			var greedy []net.Conn
			for range 14 {
				r := w.open(w.a, aliceUID, "")
				attack.do(r)
				greedy = append(greedy, r.c)
			}
			row := w.jail(w.a, "bridge")
			t.Logf("the bridge holds %d MiB", row.Memory>>20)
			if m := honest.call("echo", `{}`); m.outcome() != "ok" {
				t.Errorf("the honest session: %s", m.raw)
			}
			if row.PID != before {
				t.Errorf("the bridge ended")
			}
			for _, c := range greedy {
				c.Close()
			}
		})
	}
	w.works(w.a)
}

// A revocation that meets 256 open calls cancels each of them and ends no bridge.
func TestRuntime_A2_RevokingUnderManyOpenCalls(t *testing.T) {
	w := newWorld(t)
	other := w.open(w.a, aliceUID, "")
	if m := other.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	before := w.jail(w.a, "bridge").PID
	var sessions []*peer
	for range 4 {
		r := w.open(w.a, aliceUID, "")
		for id := range 60 {
			r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`, id))
		}
		sessions = append(sessions, r)
	}
	until(t, "240 calls are open", func() bool { return len(w.calls(w.a)) == 241 })
	began := time.Now()
	out := w.must("--json", "connection", "revoke", w.a.id, "count", "slow")
	t.Logf("the revocation took %v", time.Since(began))
	var cut api.RevokeResult
	if err := json.Unmarshal([]byte(out), &cut); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(cut.Stands) != api.MaxStands || len(cut.Stands)+cut.More != 240 {
		t.Errorf("%d calls are named as cancelled and %d counted, not %d and the rest of 240", len(cut.Stands), cut.More, api.MaxStands)
	}
	for _, c := range cut.Stands {
		if !c.CancelSent || c.Tool != "slow" {
			t.Errorf("named as cancelled: %+v", c)
		}
	}
	for _, r := range sessions {
		for range 60 {
			if m := r.read(); m.outcome() == "ok" || m.raw == "" {
				t.Fatalf("a call that was revoked: %s", m.raw)
			}
		}
	}
	if m := other.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("another tool: %s", m.raw)
	}
	if got := w.jail(w.a, "bridge").PID; got != before {
		t.Error("the bridge was ended")
	}
	until(t, "no record is open", func() bool {
		return !slices.ContainsFunc(w.records(w.a), func(r row) bool { return r.State == "admitted" || r.State == "started" })
	})
}
