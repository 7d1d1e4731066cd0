package e2e

import (
	"fmt"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// destructive marks the tool env as one that destroys; it answers with its environment
// whenever it is reached.
func (w *world) destructive(tier string) {
	w.t.Helper()
	w.must("connection", "grant", "a", "count", "env", "--tier", tier)
}

// denials are the project's denied records of env.
func (w *world) denials() (out []api.ActivityRow) {
	w.t.Helper()
	for _, row := range w.records(w.a) {
		if row.Tool == "env" && row.State == "denied" {
			out = append(out, row)
		}
	}
	return out
}

// Calls that need an approval are never taken for one another: neither by the tool, nor
// by a request id that another session uses too, nor by one that is used again after a
// reconnect. Nothing approves yet, so each is refused and none reaches the server.
func TestC102_DestructiveCallsAreRefusedEachByItself(t *testing.T) {
	w := newWorld(t)
	w.destructive("destructive")
	open := func() *runtime {
		tok, _ := w.token(w.a, runtimeUID)
		r := w.connect(w.a, runtimeUID, tok).initialize()
		if got := r.call("echo", `{}`); got.outcome() != "ok" {
			t.Fatalf("a call that destroys nothing: %s", got.raw)
		}
		return r
	}
	send := func(r *runtime, text string) chan message {
		c := r.expect("7")
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"env","arguments":{"text":%q}}}`, text))
		return c
	}
	first, second := open(), open()
	one, two := send(first, "one"), send(second, "two")
	for _, m := range []message{first.wait(one), second.wait(two)} {
		if m.outcome() != "approval_required" {
			t.Errorf("at the same time: %s", m.raw)
		}
	}
	first.close()
	again := open()
	if m := again.wait(send(again, "one")); m.outcome() != "approval_required" {
		t.Errorf("after a reconnect: %s", m.raw)
	}
	rows, digests, sessions := w.denials(), map[string]int{}, map[string]bool{}
	for _, row := range rows {
		digests[row.ArgsDigest]++
		sessions[string(row.Session)] = true
	}
	if len(rows) != 3 || len(digests) != 2 || len(sessions) != 3 || digests[rows[0].ArgsDigest] != 2 {
		t.Errorf("the records: %+v", rows)
	}
	for _, c := range w.calls(w.a) {
		if strings.Contains(c, "env") {
			t.Errorf("the server received %s", c)
		}
	}
	// Its twin: the same calls of a tool that is not marked.
	w.must("connection", "revoke", "a", "count", "env")
	w.destructive("reversible")
	if m := again.wait(send(again, "one")); m.outcome() != "ok" {
		t.Errorf("not marked: %s", m.raw)
	}
}

// What is refused for want of an approval is told with what would have to be approved:
// the tool, its revision, for whom, and the arguments by size and digest. Nothing that
// a runtime wrote is printed as it came.
func TestC103_ADestructiveCallIsToldWholeAndHarmless(t *testing.T) {
	w := newWorld(t)
	w.destructive("destructive")
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	r.call("echo", `{}`)
	const id = `"\u202e7\u001b[2J"`
	long := strings.Repeat("x", 200<<10)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"env","arguments":{"text":"\u202e\u001b]0;\u0007` + long + `"}}}`)
	until(t, "the call is recorded", func() bool { return len(w.denials()) == 1 })
	row := w.denials()[0]
	if row.Code != "approval_required" || row.ArgsSize < int64(len(long)) || len(row.ArgsDigest) != 64 || row.Revision == "" || row.Task != task || row.Principal == "" {
		t.Errorf("the record: %+v", row)
	}
	explained, _, exit := w.CLI(0, "explain", "--task", task, "env")
	if exit != 65 {
		t.Errorf("explain: exit %d", exit)
	}
	for _, text := range []string{w.must("activity", "--project", "a"), w.must("activity", "show", row.Cursor), w.must("activity", "show", row.Cursor, "--json"), explained} {
		if strings.ContainsAny(text, "\u202e\x1b\x07") || len(text) > 64<<10 {
			t.Errorf("printed as it came, or without a bound: %.300q", text)
		}
		if !strings.Contains(text, "approval_required") {
			t.Errorf("does not say what is missing: %.300s", text)
		}
	}
}
