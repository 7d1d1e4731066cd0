package bridge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/mcp"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// The tests here replay public failures of MCP bridges against the whole loop; the
// number in each name is the case's. Those that only concern parsing stand in mcp.

func TestC001_C002_C004_C005_NothingHiddenReachesTheServer(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo", "write")
	c := a.passed().initialize()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"write","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call","params":{"name":"write"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"param\u017f":{"name":"write"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"task":1,"tas\u212a":2}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"write","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"path":"a","path":"b"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"Params":{"name":"write"},"Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","task":{"ttl":1}}}`,
	} {
		c.send("%s", line)
		c.wantError("1", -32600)
	}
	c.call("2", "echo", `{"path":"a","Path":"b"}`)
	c.want(`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{"path":"a","Path":"b"}}}`)
	if got := calls(t, log); len(got) != 1 || !strings.HasSuffix(got[0], ` echo {"path":"a","Path":"b"}`) {
		t.Errorf("the server saw %q", got)
	}
	if n := count[wire.Admit](a); n != 1 {
		t.Errorf("%d calls were asked about", n)
	}
	awaitCount[wire.Denied](a, 8)
	awaitIf(a, func(m wire.Denied) bool { return m.Code == refusal.IdentityInRequest && m.RequestID == "1" })
}

func TestC007_C008_ArraysAreRefusedWhole(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo")
	c := a.passed().initialize()
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	for _, line := range []string{"[" + call + "]", " \t[" + call + "]", "[]", `[{"jsonrpc":"2.0","id":2,"method":"ping"},` + call + `]`} {
		c.send("%s", line)
		c.wantError("null", -32600)
	}
	c.quiet()
	awaitCount[wire.Denied](a, 4)
	if count[wire.Admit](a) != 0 || calls(t, log)[0] != "" {
		t.Errorf("heard %+v", a.all())
	}
	c.send("%s", call)
	c.answer()
}

func TestC009_TheSameIdInFlightIsRefused(t *testing.T) {
	a := newAuthority(t)
	a.count("slow", "echo")
	c := a.passed().initialize()
	c.call("5", "slow", `{"ms":300}`)
	c.call("5", "echo", `{}`)
	c.wantError("5", -32600)
	c.call(`"5"`, "echo", `{}`) // another type is another id
	c.want(`{"jsonrpc":"2.0","id":"5","result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{}}}`)
	c.wantText("5", "slept")
	c.call("5", "echo", `{}`) // answered, so free again
	c.answer()
	awaitIf(a, func(m wire.Denied) bool { return m.Code == refusal.DuplicateID && m.RequestID == "5" })
}

func TestBridge3_C010_TwoRuntimesWithEqualIds(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	const rounds = 200
	var group sync.WaitGroup
	for who := range 2 {
		c := a.passed().initialize()
		group.Go(func() {
			for i := range rounds {
				c.call("2", "echo", fmt.Sprintf(`{"who":%d,"round":%d}`, who, i))
				if got, want := <-c.lines, fmt.Sprintf(`"structuredContent":{"who":%d,"round":%d}}}`, who, i); !strings.HasSuffix(got, want) {
					t.Errorf("got %s, want %s", got, want)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestBridge3_C030_ProgressGoesToWhoAskedForIt(t *testing.T) {
	a := newAuthority(t)
	a.count("progress")
	one, two, none := a.passed().initialize(), a.passed().initialize(), a.passed().initialize()
	ask := func(c *client, token string) {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{"n":20}%s}}`, token)
	}
	ask(one, `,"_meta":{"progressToken":1}`)
	ask(two, `,"_meta":{"progressToken":"1"}`)
	ask(none, "")
	for c, token := range map[*client]string{one: "1", two: `"1"`} {
		for i := range 20 {
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":20}}`, token, i+1))
		}
		if got := c.answer(); string(got.ID) != "1" || got.Result.Content[0].Text == "token 1" && token == `"1"` {
			t.Errorf("answer %+v", got)
		}
		c.quiet()
	}
	none.wantText("1", "token ")
	none.quiet()
}

func TestC031_LateProgressIsDropped(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "late_progress", "progress_all", "echo")
	c := a.passed().initialize()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"late_progress","_meta":{"progressToken":"t"}}}`)
	c.wantText("1", "done")
	c.call("2", "progress_all", `{}`) // invents tokens while another call is in flight
	c.wantText("2", "done")
	c.call("3", "echo", `{}`)
	c.wantText("3", "{}")
	c.quiet()
}

func TestC013_AnswersToNobodyAreDropped(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "id_string", "id_null", "id_unknown", "echo", "twice", "id_others")
	c := a.passed().initialize()
	for i, tool := range []string{"id_string", "id_null", "id_unknown"} {
		c.call(strconv.Itoa(i), tool, `{}`)
		m := awaitIf(a, func(m wire.Admit) bool { return m.Tool == tool })
		c.call(`"after"`, "echo", `{}`)
		c.wantText(`"after"`, "{}")
		// The call stays until its deadline, which is the authority's.
		a.tell(wire.Cancel{Call: callOf(m.Seq), Code: refusal.CallTimeout})
		c.wantRefusal(strconv.Itoa(i), refusal.CallTimeout)
		if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Unknown || e.Code != refusal.CallTimeout {
			t.Errorf("%s ended %+v", tool, e)
		}
	}
	c.call("7", "twice", `{}`)
	c.wantText("7", "first")
	c.quiet()
}

func TestC015_LinesUpToTheBound(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "lines", "echo")
	c := a.passed().initialize()
	for i, n := range []int{65_535, 65_536, 65_537, 1_048_577, mcp.MaxLine} {
		c.call(strconv.Itoa(i), "lines", fmt.Sprintf(`{"bytes":%d}`, n))
		if a := c.answer(); a.Error != nil || a.Result.IsError || len(a.Result.Content[0].Text) < n-200 {
			t.Errorf("%d bytes: %+v", n, a)
		}
	}
	c.call("9", "lines", fmt.Sprintf(`{"bytes":%d}`, mcp.MaxLine+1))
	c.wantRefusal("9", refusal.ServerAnswer)
	c.call("10", "echo", `{}`)
	c.wantText("10", "{}")
}

func TestC016_AnOversizeAnswerEndsItsOwnCall(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "huge", "huge_last", "echo", "hang")
	c := a.passed().initialize()
	c.call("1", "hang", `{}`) // so that it is not the only call in flight
	for _, tool := range []string{"huge", "huge_last"} {
		c.call(`"`+tool+`"`, tool, fmt.Sprintf(`{"bytes":%d}`, 100<<20))
		c.wantRefusal(`"`+tool+`"`, refusal.ServerAnswer)
		m := awaitIf(a, func(m wire.Admit) bool { return m.Tool == tool })
		if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Failed || e.Code != refusal.ServerAnswer || e.Size < mcp.MaxLine {
			t.Errorf("ended %+v", e)
		}
		c.call("3", "echo", `{}`)
		c.wantText("3", "{}")
	}
}

func TestC018_CharactersSplitAcrossReads(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "one_byte", "bad_utf8", "echo")
	c := a.passed().initialize()
	c.call("1", "one_byte", `{}`)
	c.wantText("1", "a — 😀")
	c.call("2", "bad_utf8", `{}`)
	c.wantRefusal("2", refusal.ServerAnswer)
	c.call("3", "echo", `{}`)
	c.wantText("3", "{}")
}

func TestC019_C021_C022_BadLinesLeaveTheSessionUsable(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	for _, line := range []string{"Content-Length: 40\r", "NOT VALID JSON", `{"jsonrpc":`, "\ufeff{}", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`} {
		c.send("%s", line)
		c.wantError("null", -32700)
	}
	for _, line := range []string{"null", "42", `"x"`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`} {
		c.send("%s", line)
		c.wantError("null", -32600)
	}
	c.send("\r")
	c.send("")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\r")
	if got := c.answer(); string(got.ID) != "1" || len(got.Result.Tools) != 1 {
		t.Errorf("list %+v", got)
	}
	if count[wire.Admit](a) != 0 {
		t.Error("a hidden call was asked about")
	}
}

func TestC023_EveryPageIsRead(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"hostile", "pages"}, "tool0")
	c := a.passed().initialize()
	c.call("1", "tool0", `{}`)
	c.answer()
	names := a.catalogue(t, conn)
	if len(names) != 25 || names[0] != "tool0" || names[24] != "tool24" {
		t.Errorf("catalogue %q", names)
	}
}

// catalogue waits for the last part and returns the names in it.
func (a *authority) catalogue(t *testing.T, conn any) (names []string) {
	t.Helper()
	last := awaitIf(a, func(m wire.Catalogue) bool { return m.Last && any(m.Connection) == conn })
	if last.Error != "" {
		t.Fatalf("catalogue: %s", last.Error)
	}
	var defs []struct{ Name string }
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := json.Unmarshal(a.catalog[last.Connection], &defs); err != nil {
		t.Fatal(err)
	}
	for _, d := range defs {
		names = append(names, d.Name)
	}
	return names
}

func TestC024_EndlessListsEnd(t *testing.T) {
	for how, text := range map[string]string{"cursor_repeat": "came twice", "cursor_endless": "pages", "cursor_number": "nextCursor", "too_many": "more than", "not_array": "not an array", "none": "not an array", "list_error": "no list today", "version": "1999"} {
		t.Run(how, func(t *testing.T) {
			a := newAuthority(t)
			a.server([]string{"hostile", how}, "echo")
			c := a.passed().initialize()
			c.call("1", "echo", `{}`)
			c.wantRefusal("1", refusal.ServerUnavailable)
			if m := await[wire.Catalogue](a); !m.Last || !strings.Contains(m.Error, text) {
				t.Errorf("catalogue %+v", m)
			}
		})
	}
	a := newAuthority(t)
	conn := a.server([]string{"hostile", "cursor_empty"}, "echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.wantText("1", "{}")
	if names := a.catalogue(t, conn); len(names) != 1 {
		t.Errorf("catalogue %q", names)
	}
}

func TestC026_C027_CancelReachesTheServerWithItsOwnId(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("slow", "deaf", "stubborn")
	c := a.passed().initialize()
	c.call("899", "slow", `{"ms":1}`)
	c.answer()
	c.call("900", "slow", `{"ms":30000}`)
	own := strings.Fields(logged(t, log, "call 4 slow"))[1]
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":900,"reason":"enough"}}`)
	logged(t, log, "cancel "+own)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Code == refusal.CallCancelled }); e.Outcome != wire.Cancelled || e.Returned {
		t.Errorf("ended %+v", e)
	}
	c.quiet() // no answer to a cancelled request

	c.call("901", "deaf", `{"ms":30000}`)
	m := awaitIf(a, func(m wire.Admit) bool { return m.Tool == "deaf" })
	logged(t, log, "call 5 deaf")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":901}}`)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Unknown {
		t.Errorf("never confirmed: %+v", e)
	}
	c.call("902", "stubborn", `{"ms":200}`)
	m = awaitIf(a, func(m wire.Admit) bool { return m.Tool == "stubborn" })
	logged(t, log, "call 6 stubborn")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":902}}`)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Completed || e.Returned {
		t.Errorf("answered all the same: %+v", e)
	}
	c.quiet()
}

func TestC027_ACallThatWaitsIsNeverSent(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo")
	asked := make(chan wire.Admit, 1)
	first := true
	a.admit = func(m wire.Admit) refusal.Code {
		if first {
			first = false
			return ""
		}
		asked <- m
		return held
	}
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.answer()
	c.call("2", "echo", `{"n":2}`)
	m := <-asked
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	c.quiet()
	call := a.admitted(m)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == call }); e.Outcome != wire.Cancelled {
		t.Errorf("ended %+v", e)
	}
	if got := calls(t, log); len(got) != 1 {
		t.Errorf("the server saw %q", got)
	}
}

func TestC034_C040_OrderOfTheHandshake(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.call("2", "echo", `{}`)
	c.wantError("2", -32600)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":20250618}}`)
	c.wantError("3", -32602)
	c.send(`{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2099-01-01","capabilities":{"roots":{}}}}`)
	c.want(`{"jsonrpc":"2.0","id":4,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}},"serverInfo":{"name":"postern","version":"test"},"instructions":"` + mcp.Instructions + `"}}`)
	c.send(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"debug"}}`)
	c.want(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.send(`{"jsonrpc":"2.0","id":6,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	c.wantError("6", -32600)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}`)
	c.wantError("7", -32601)
	c.call("8", "echo", `{}`)
	c.answer()
}

func TestC035_AnswersAtTheDeadline(t *testing.T) {
	a := newAuthority(t)
	a.count("slow")
	c := a.passed().initialize()
	const rounds = 1000
	for i := range rounds {
		id := strconv.Itoa(i)
		c.call(id, "slow", fmt.Sprintf(`{"ms":%d}`, i%2))
		m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == id })
		a.tell(wire.Cancel{Call: callOf(m.Seq), Code: refusal.CallTimeout})
		if got := c.answer(); string(got.ID) != id || got.Error != nil { // the one or the other, never both
			t.Fatalf("got %+v %+v", got, got.Error)
		}
		awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) })
	}
	c.quiet()
	seen := map[string]wire.Ended{}
	for _, m := range a.all() {
		if e, ok := m.(wire.Ended); ok {
			if first, twice := seen[string(e.Call)]; twice {
				t.Errorf("two ends of one call: %+v and %+v", first, e)
			}
			seen[string(e.Call)] = e
		}
	}
	if len(seen) != rounds {
		t.Errorf("%d ends of %d calls", len(seen), rounds)
	}
}

func TestBridge5_C036_ARuntimeThatLeavesHarmsNobody(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("slow", "echo")
	one, two := a.passed().initialize(), a.passed().initialize()
	one.call("1", "slow", `{"ms":30000}`)
	logged(t, log, "call")
	one.in.Close()
	one.ends() // its descriptors are closed at once
	awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == one.id && m.Reason == "end of input" })
	logged(t, log, "cancel")
	if e := await[wire.Ended](a); e.Returned || e.Outcome != wire.Cancelled {
		t.Errorf("ended %+v", e)
	}
	two.call("1", "echo", `{}`)
	two.answer()
	if got := calls(t, log); len(got) != 3 {
		t.Errorf("the server saw %q", got)
	}
	// The lifeline alone ends a session too.
	three := a.passed().initialize()
	three.conn.Close()
	three.ends()
	awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == three.id })
}

func TestC038_AServerThatNeverSpeaks(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile", "exit"}, "echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.wantRefusal("1", refusal.ServerUnavailable)
	if m := await[wire.Catalogue](a); !strings.Contains(m.Error, "import error") {
		t.Errorf("catalogue %+v", m)
	}
	awaitIf(a, func(m wire.Denied) bool { return m.Code == refusal.ServerUnavailable && m.Tool == "echo" })
}

func TestC041_ACrashEndsTheCallsAtOnce(t *testing.T) {
	a := newAuthority(t)
	conn, log := a.count("slow", "echo")
	c := a.passed().initialize()
	c.call("1", "slow", `{"ms":30000}`)
	c.call("2", "slow", `{"ms":30000}`)
	logged(t, log, "call 4")
	a.kill(conn)
	for range 2 {
		if got := c.answer(); got.Result.Meta.Refusal.Code != string(refusal.ServerExited) {
			t.Errorf("got %+v", got)
		}
	}
	c.call("3", "echo", `{}`) // starts a fresh one
	c.want(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{}}}`)
	// One for each instance, and the second once more where it reached the authority
	// before the authority knew of the end.
	if n := count[wire.Start](a); n != 2 && n != 3 {
		t.Errorf("%d starts", n)
	}
	if got := calls(t, log); len(got) != 3 {
		t.Errorf("something was repeated: %q", got)
	}
	for _, m := range a.all() {
		if e, ok := m.(wire.Ended); ok && e.Outcome == wire.Unknown && e.Code != refusal.ServerExited {
			t.Errorf("ended %+v", e)
		}
	}
}

func TestC032_C033_TheListIsReadAgain(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"hostile"}, "grow", "changed_broken", "changed", "echo")
	c := a.passed().initialize()
	c.call("1", "changed_broken", `{}`)
	c.wantText("1", "done")
	awaitIf(a, func(m wire.Catalogue) bool { return m.Last && strings.Contains(m.Error, "no list today") })
	c.quiet() // the runtime is told by the authority's word only
	a.set(func() { a.catalog[conn] = nil })
	c.call("2", "grow", `{}`)
	c.wantText("2", "done")
	m := awaitIf(a, func(m wire.Catalogue) bool { return strings.Contains(string(m.Data), "grown") })
	if m.Connection != conn {
		t.Errorf("catalogue of %s", m.Connection)
	}
	a.tell(wire.Changed{})
	c.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

// A list that cannot be read is asked for again, without another word of the server.
func TestC033_AListThatFailedIsAskedForAgain(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "grow", "changed_broken", "echo")
	c := a.passed().initialize()
	c.call("1", "changed_broken", `{}`)
	c.wantText("1", "done")
	failed := 0
	awaitIf(a, func(m wire.Catalogue) bool {
		if strings.Contains(m.Error, "no list today") {
			failed++
		}
		return failed == 2
	})
	// Whether it may be called meanwhile is the authority's to say: it is asked.
	c.call("2", "grow", `{}`)
	c.wantText("2", "done")
	awaitIf(a, func(m wire.Catalogue) bool { return strings.Contains(string(m.Data), "grown") })
	c.call("3", "echo", `{"a":1}`)
	c.wantText("3", `{"a":1}`)
}

// A call that comes after the server has said that its tools changed is asked about when
// the authority has the new list, never before.
func TestC032_ACallAfterAChangeWaitsForTheList(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "grow", "echo")
	c := a.passed().initialize()
	for i := range 3 {
		c.call(strconv.Itoa(2*i), "grow", `{}`)
		c.wantText(strconv.Itoa(2*i), "done")
		c.call(strconv.Itoa(2*i+1), "echo", `{"a":1}`)
		c.wantText(strconv.Itoa(2*i+1), `{"a":1}`)
	}
	lists, calls := 0, 0
	for _, m := range a.all() {
		switch m := m.(type) {
		case wire.Catalogue:
			if m.Last {
				lists++
			}
		case wire.Admit:
			if m.Tool == "echo" {
				if calls++; lists < 1+calls { // the first, and one for each change
					t.Errorf("call %d was asked about with %d lists told", calls, lists)
				}
			}
		}
	}
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestHostile_AnswersThatAreNone(t *testing.T) {
	a := newAuthority(t)
	tools := []string{"duplicate", "no_message", "not_object", "bad_error", "deep"}
	a.server([]string{"hostile"}, append([]string{"echo", "flood_notes", "flood_requests", "forge", "inject", "asks", "nul", "hang"}, tools...)...)
	c := a.passed().initialize()
	c.call(`"hang"`, "hang", `{}`)
	for i, tool := range tools {
		c.call(strconv.Itoa(i), tool, `{}`)
		c.wantRefusal(strconv.Itoa(i), refusal.ServerAnswer)
	}
	for _, tool := range []string{"flood_notes", "flood_requests", "nul"} {
		c.call(`"`+tool+`"`, tool, `{}`)
		c.wantText(`"`+tool+`"`, "done")
	}
	c.call("20", "forge", `{}`)
	c.want(`{"jsonrpc":"2.0","id":20,"result":{"content":[{"type":"text","text":"x"}],"isError":true,"_meta":{"vendor/kept":1}}}`)
	c.call("21", "inject", `{}`)
	c.want(`{"jsonrpc":"2.0","id":21,"result":{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}}`)
	c.call("22", "asks", `{}`)
	text := c.answer().Result.Content[0].Text
	if strings.Count(text, "-32601") != 3 || !strings.Contains(text, `{"jsonrpc":"2.0","id":"ping","result":{}}`) {
		t.Errorf("the server was answered %s", text)
	}
}

func TestNoisy_NoiseIsSkipped(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"noisy"}, "echo")
	c := a.passed().initialize()
	for i := range 20 {
		c.call(strconv.Itoa(i), "echo", `{"a":1}`)
		c.wantText(strconv.Itoa(i), `{"a":1}`)
	}
}

func TestNoisy_WhatWasSkippedIsCountedAndTold(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"noisy"}, "echo")
	quiet, _ := a.count("slow")
	c := a.passed().initialize()
	for i, tool := range []string{"slow", "echo"} {
		c.call(strconv.Itoa(-i), tool, `{"ms":1}`)
		c.answer()
	}
	told := awaitIf(a, func(m wire.Skipped) bool { return m.Connection == conn && m.Lines > 0 })
	if told.Instance == "" || told.Long != 0 || told.Unmatched != 0 {
		t.Errorf("told %+v", told)
	}
	listed := awaitIf(a, func(m wire.Catalogue) bool { return m.Connection == conn && m.Last })
	if len(listed.Quarantined) != 1 || listed.Quarantined[0].Tool != "(output)" || !strings.Contains(listed.Quarantined[0].Reason, "lines of its output") {
		t.Errorf("the list says %+v", listed.Quarantined)
	}
	// More of it rises, however much comes at once, and a server without it is not told of.
	for i := range 50 {
		c.call(strconv.Itoa(i+2), "echo", `{}`)
		c.answer()
	}
	awaitIf(a, func(m wire.Skipped) bool { return m.Connection == conn && m.Lines > told.Lines+400 })
	if n := count[wire.Skipped](a); n > 10 {
		t.Errorf("told %d times", n)
	}
	for _, m := range a.all() {
		if m, ok := m.(wire.Skipped); ok && m.Connection == quiet {
			t.Errorf("told %+v of a server that wrote none", m)
		}
	}
}

func TestModernServer_IsSpokenToInItsEra(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"modern"}, "echo", "ask")
	c := a.passed().initialize()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"traceparent":"x"}}}`)
	c.want(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"modern"}],"structuredContent":[1,2],"_meta":{"meta":{"traceparent":"x","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"postern","version":"test"},"io.modelcontextprotocol/clientCapabilities":{}},"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"1"}}}}`)
	c.call("2", "ask", `{}`)
	c.wantRefusal("2", refusal.ServerAnswer)
	if m := await[wire.Catalogue](a); m.Era != "modern" {
		t.Errorf("catalogue %+v", m)
	}
}

func TestHandover_OnlyTheTwoForms(t *testing.T) {
	var pipe, second [2]int
	for _, p := range []*[2]int{&pipe, &second} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer closeAll(p[:])
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeOne(null)
	a := newAuthority(t)
	for _, c := range []struct {
		name, line string
		fds        []int
	}{
		{"passed without descriptors", linePassed, nil},
		{"passed with one", linePassed, []int{pipe[0]}},
		{"passed with three", linePassed, []int{pipe[0], second[1], second[0]}},
		{"passed the wrong way round", linePassed, []int{second[1], pipe[0]}},
		{"passed a device", linePassed, []int{pipe[0], null}},
		{"passed another device", linePassed, []int{null, second[1]}},
		{"here with descriptors", lineHere, []int{pipe[0], second[1]}},
		{"MCP before the line", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil},
		{"another member", `{"postern":{"stdio":"here","x":1}}`, nil},
		{"too long", strings.Repeat(" ", MaxHandover+1), nil},
	} {
		s := a.bind()
		s.handover(c.line+"\n", c.fds...)
		m := awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == s.id })
		if !strings.Contains(m.Reason, "hand-over") {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
	// The permitted twins, and then a second line.
	for _, s := range []*client{a.passed().initialize(), a.here().initialize()} {
		s.handover(lineHere + "\n")
		s.ends()
		awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == s.id })
	}
	// Sockets may stand for stdin and stdout.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := a.bind()
	s.handover(linePassed+"\n", pair[1], pair[1])
	closeOne(pair[1])
	s.in = nonblocking(pair[0])
	s.read(s.in)
	s.initialize().quiet()
}

func TestBridge4_FencedAfterEverythingBefore(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("slow", "echo")
	c := a.passed().initialize()
	c.call("1", "slow", `{"ms":30000}`)
	m := awaitIf(a, func(m wire.Admit) bool { return m.Tool == "slow" })
	logged(t, log, "call")
	a.tell(wire.Cancel{Call: callOf(m.Seq), Code: refusal.ToolNotGranted})
	a.fence(1)
	if got := logged(t, log, "cancel"); got == "" {
		t.Error("not cancelled")
	}
	c.wantRefusal("1", refusal.ToolNotGranted)
	a.tell(wire.Drain{})
	a.fence(2)
	c.call("2", "echo", `{}`)
	c.wantError("2", refusal.ServerError.JSONRPC())
}

func TestBridge6_ABoundEndsTheRequestThatReachedIt(t *testing.T) {
	a := newAuthority(t)
	a.count("slow", "echo")
	c := a.passed().initialize()
	other := a.passed().initialize()
	for i := range MaxInFlight {
		c.call(strconv.Itoa(i), "slow", `{"ms":3000}`)
	}
	c.call(`"more"`, "slow", `{}`)
	c.wantRefusal(`"more"`, refusal.LimitCalls)
	other.call("1", "echo", `{}`)
	other.answer()
	// A line over the limit is refused and the session goes on.
	c.send(`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"echo","arguments":{"a":"%s"}}}`, strings.Repeat("x", mcp.MaxLine))
	c.wantError(`"big"`, -32600)
	c.quiet()
}

func TestBridge6_ARuntimeThatDoesNotReadLosesItsSessionOnly(t *testing.T) {
	a := newAuthority(t)
	a.count("big", "echo")
	c := a.unread()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	for i := range 8 {
		c.call(strconv.Itoa(i+1), "big", `{"bytes":8000000}`)
	}
	other := a.passed().initialize()
	other.call("1", "echo", `{}`)
	other.answer()
	m := awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == c.id })
	if !strings.Contains(m.Reason, "does not read") {
		t.Errorf("ended %+v", m)
	}
	other.call("2", "echo", `{}`)
	other.answer()
}

func TestBridge2_EveryRequestHasOneAnswerAndEveryCallOneEnd(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.count("echo", "slow", "deaf")
	a.admit = func(m wire.Admit) refusal.Code {
		if m.Seq%5 == 0 {
			return refusal.ToolNotGranted
		}
		return ""
	}
	c := a.passed().initialize()
	const total = 400
	answered := map[string]int{}
	cancelled := map[string]bool{}
	in := 0
	take := func() {
		got := c.answer()
		answered[string(got.ID)]++
		in--
	}
	for i := range total {
		id := strconv.Itoa(i)
		c.call(id, []string{"echo", "slow", "deaf"}[i%3], `{"ms":2}`)
		in++
		if i%7 == 0 {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
			cancelled[id] = true
		}
		if i == total/2 {
			a.kill(conn)
		}
		for in-len(cancelled) > 20 {
			take()
		}
	}
	for {
		missing := 0
		for i := range total {
			if id := strconv.Itoa(i); answered[id] == 0 && !cancelled[id] {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		take()
	}
	for id, n := range answered {
		if n != 1 {
			t.Errorf("%s was answered %d times", id, n)
		}
	}
	a.fence(1)
	admitted := map[string]bool{}
	for _, m := range a.all() {
		if m, ok := m.(wire.Admit); ok && m.Seq%5 != 0 && m.Instance != "" {
			admitted[string(callOf(m.Seq))] = true
		}
	}
	for call := range admitted {
		awaitIf(a, func(e wire.Ended) bool { return string(e.Call) == call })
	}
	if n := count[wire.Ended](a); n != len(admitted) {
		t.Errorf("%d ends of %d admitted calls", n, len(admitted))
	}
}

func TestProbe_OneCatalogueAndTheEnd(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"hostile", "mixed"})
	a.start(conn)
	names := a.catalogue(t, conn)
	if len(names) != 2 || names[0] != "good" || names[1] != "also_good" {
		t.Errorf("catalogue %q", names)
	}
	last := awaitIf(a, func(m wire.Catalogue) bool { return m.Last })
	if len(last.Quarantined) != 18 {
		t.Errorf("quarantined %+v", last.Quarantined)
	}
	if err := <-a.done; err != nil {
		t.Errorf("the probe ended with %v", err)
	}
	a.done <- nil // for the clean-up
}

func TestView_LargeOnesComeByMemfd(t *testing.T) {
	a := newAuthority(t)
	var names []string
	for i := range 1200 {
		names = append(names, fmt.Sprintf("tool%04d", i))
	}
	a.count(names...)
	c := a.passed().initialize()
	seen, cursor := 0, ""
	for {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, cursor)
		got := c.answer()
		seen += len(got.Result.Tools)
		if got.Result.Next == "" {
			break
		}
		cursor = `"cursor":"` + got.Result.Next + `"`
	}
	if seen != len(names) {
		t.Errorf("%d of %d tools", seen, len(names))
	}
}

func TestStart_ARefusedStartIsTheCallsRefusal(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	a.set(func() { a.noStart = refusal.CredentialMissing })
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.wantRefusal("1", refusal.CredentialMissing)
	if count[wire.Denied](a) != 0 || count[wire.Admit](a) != 0 {
		t.Errorf("heard %+v", a.all())
	}
	a.set(func() { a.noStart = "" })
	c.call("2", "echo", `{}`)
	c.answer()
}

func TestSessionEnd_EndsItAndOnlyIt(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("slow", "echo")
	one, two := a.here().initialize(), a.passed().initialize()
	one.call("1", "slow", `{"ms":30000}`)
	logged(t, log, "call")
	a.tell(wire.SessionEnd{Session: one.id, Code: refusal.TaskEnded})
	one.ends()
	awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == one.id && m.Reason == string(refusal.TaskEnded) })
	if e := await[wire.Ended](a); e.Returned {
		t.Errorf("ended %+v", e)
	}
	two.call("1", "echo", `{}`)
	two.answer()
}

func TestBridge6_AServerThatDoesNotReadIsBusy(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"hostile"}, "stop_reading", "echo")
	_, log := a.count("write")
	c := a.passed().initialize()
	c.call("0", "stop_reading", `{}`)
	c.wantText("0", "done")
	big := strings.Repeat("x", 6<<20)
	c.call("1", "echo", `{"a":"`+big+`"}`) // the server takes one more, and the queue three
	instance := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" }).Instance
	until := time.Now().Add(time.Minute)
	for seq := uint64(1); !strings.Contains(string(words(a, seq)[instance].Data), "reads no more"); seq++ {
		if time.Now().After(until) {
			t.Fatal("the server did not take the first call")
		}
	}
	for i := range 4 {
		c.call(strconv.Itoa(i+2), "echo", `{"a":"`+big+`"}`)
	}
	c.wantRefusal("5", refusal.Busy)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Code == refusal.Busy }); e.Outcome != wire.Failed {
		t.Errorf("ended %+v", e)
	}
	c.call("6", "write", `{"path":"`+log+`.new","text":"t"}`) // another server is not touched
	c.wantText("6", "written")
	// One that waits can still be cancelled, and was never sent.
	m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "3" })
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Cancelled {
		t.Errorf("ended %+v", e)
	}
	a.kill(conn)
	for range 3 {
		if got := c.answer(); got.Result.Meta.Refusal.Code != string(refusal.ServerExited) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestBridge6_TooManySessions(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	var all []*client
	for range MaxSessions {
		all = append(all, a.here())
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeOne(pair[0])
	var id = all[0].id
	a.set(func() { id = newID[ids.Session](a) })
	a.tell(wire.Session{Session: id}, pair[1])
	closeOne(pair[1])
	awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == id })
	buf := make([]byte, 256)
	if n, _ := unix.Read(pair[0], buf); !strings.Contains(string(buf[:n]), "-32000") {
		t.Errorf("answered %q", buf[:n])
	}
	for _, c := range all[:3] {
		c.initialize().quiet()
	}
	all[0].close()
	awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == all[0].id })
	a.here().initialize().quiet()
}

// TestStart_AServerThatEndsBeforeItsEndIsKnown: the authority takes a Start for the
// server that it still believes to run, and says nothing.
// A hundred first calls of two sessions at once ask for one start, and each is answered
// by its own answer.
func TestC121_ManyFirstCallsAskForOneStart(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "echo")
	one, two := a.passed().initialize(), a.passed().initialize()
	const each = 50
	for i := range each {
		one.call(strconv.Itoa(i), "echo", fmt.Sprintf(`{"one":%d}`, i))
		two.call(strconv.Itoa(i), "echo", fmt.Sprintf(`{"two":%d}`, i))
	}
	for who, c := range map[string]*client{"one": one, "two": two} {
		seen := map[string]bool{}
		for range each {
			got := c.answer()
			if id := string(got.ID); seen[id] || len(got.Result.Content) != 1 || got.Result.Content[0].Text != fmt.Sprintf(`{"%s":%s}`, who, id) {
				t.Errorf("%s, %s: %+v", who, id, got)
			}
			seen[string(got.ID)] = true
		}
		if len(seen) != each {
			t.Errorf("%s: %d answers", who, len(seen))
		}
	}
	if n := count[wire.Start](a); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func TestStart_AServerThatEndsBeforeItsEndIsKnown(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.count("echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.answer()
	started := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" }).Instance
	a.set(func() { a.deaf = 1 })
	a.tell(wire.Exited{Connection: conn, Instance: started, How: "killed"})
	a.fence(1)
	c.call("2", "echo", `{}`)
	awaitCount[wire.Start](a, 2) // and no answer to it
	a.tell(wire.Exited{Connection: conn, Instance: started, How: "killed"})
	c.want(`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{}}}`)
}

// TestRun_EndsAtOnceWithItsAuthority: neither a server that never speaks nor a call
// that waits for it keeps the bridge alive.
func TestRun_EndsAtOnceWithItsAuthority(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile", "mute"}, "echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	await[wire.Start](a)
	a.fence(1)
	begun := time.Now()
	_ = unix.Shutdown(a.fd, unix.SHUT_RDWR)
	if err := <-a.done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(begun); took > 2*time.Second { // the server had three
		t.Errorf("it took %v", took)
	}
	c.ends()
	a.done <- nil // for the clean-up
}
