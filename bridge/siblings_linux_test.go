package bridge

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/refusal"
)

// A server that says without a pause that its tools changed is read once a second, and
// once for each call that waits; each call is answered. Sibling of C024 and C032.
func TestC024_AFloodOfChangesIsReadInTurn(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "changed", "echo")
	c := a.passed().initialize()
	const rounds = 40
	began := time.Now()
	for i := range rounds {
		c.call(strconv.Itoa(2*i), "changed", `{}`) // five of them
		c.wantText(strconv.Itoa(2*i), "done")
		c.call(strconv.Itoa(2*i+1), "echo", `{"a":1}`)
		c.wantText(strconv.Itoa(2*i+1), `{"a":1}`)
	}
	lists := 0
	for _, m := range a.all() {
		if m, ok := m.(wire.Catalogue); ok && m.Last {
			lists++
		}
	}
	if most := 2 + 2*2*rounds + int(time.Since(began)/RelistPause); lists > most {
		t.Errorf("%d lists were read for %d calls", lists, 2*rounds)
	}
}

// Cancellations of nothing, answers to nothing and notifications of nothing cost their
// sender nothing but the lines. Sibling of C013 and C035.
func TestC013_AFloodOfWhatMeansNothingIsDropped(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	for i := range 3000 {
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		c.send(`{"jsonrpc":"2.0","id":"postern-%d","result":{"action":"accept"}}`, i)
		c.send(`{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"x"}}`, i)
		c.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}`, i)
	}
	c.quiet()
	c.call("1", "echo", `{}`)
	c.answer()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	for _, s := range a.b.sessions {
		if len(s.live)+len(s.asks)+len(s.handles)+len(s.listens) != 0 {
			t.Errorf("%d, %d, %d and %d things are remembered of it", len(s.live), len(s.asks), len(s.handles), len(s.listens))
		}
	}
}

// Progress of one call that is not read takes at most half of what may wait: the answer
// still has room, and the session goes on. Sibling of C015 and C126.
func TestC126_ProgressLeavesRoomForTheAnswer(t *testing.T) {
	a := newAuthority(t)
	a.bounds = wire.SessionBounds{Queue: 64 << 10}
	a.server([]string{"hostile"}, "progress_flood", "echo")
	c := a.unread()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress_flood","arguments":{},"_meta":{"progressToken":"t"}}}`)
	m := awaitIf(a, func(m wire.Ended) bool { return true })
	if m.Outcome != wire.Completed || !m.Returned {
		t.Errorf("ended %+v", m)
	}
	c.read(c.out) // now it reads: what was kept of the progress, and then the answer
	c.answer()
	notes := 0
	for {
		got := c.answer()
		if got.Method == "" {
			if string(got.ID) != "1" || len(got.Result.Content) != 1 || got.Result.Content[0].Text != "done" {
				t.Errorf("got %+v", got)
			}
			break
		}
		notes++
	}
	if notes == 0 || notes >= 20000 {
		t.Errorf("%d of 20000 signs of progress came", notes)
	}
	c.call("2", "echo", `{"a":1}`)
	c.wantText("2", `{"a":1}`)
}

// Half an answer that comes to a halt ends its own call, long before the call's limit, and
// the next one is answered. Sibling of C015, C016 and C041.
func TestC016_HalfAnAnswerEndsItsOwnCall(t *testing.T) {
	a := newAuthority(t)
	a.serverBounds = wire.Bounds{LineWaitMs: 300}
	a.server([]string{"hostile"}, "half", "echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{"a":1}`)
	c.wantText("1", `{"a":1}`)
	c.call("2", "half", fmt.Sprintf(`{"bytes":%d}`, 1<<20))
	got := c.answer()
	if string(got.ID) != "2" || got.Result.Meta.Refusal.Code != "server_answer_refused" {
		t.Errorf("got %+v", got)
	}
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Outcome == wire.Failed }); e.Size < 1<<20 {
		t.Errorf("ended %+v", e)
	}
	c.call("3", "echo", `{"a":3}`) // its server finishes the line first
	c.wantText("3", `{"a":3}`)
}

// A server that dies with half an answer written ends that call as unknown; nothing is
// made of the half. Sibling of C041 and C133.
func TestC041_ADeathInTheMiddleOfAnAnswer(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "half_dead", "echo")
	c := a.passed().initialize()
	c.call("1", "half_dead", fmt.Sprintf(`{"bytes":%d}`, 100<<10))
	got := c.answer()
	if got.Result.Meta.Refusal.Code != "server_exited" || strings.Contains(fmt.Sprint(got), "xxxx") {
		t.Errorf("got %+v", got)
	}
	if e := awaitIf(a, func(wire.Ended) bool { return true }); e.Outcome != wire.Unknown {
		t.Errorf("ended %+v", e)
	}
	c.call("2", "echo", `{"a":2}`) // another one is started
	c.wantText("2", `{"a":2}`)
}

// A server that changes its list and says nothing of it is found out when a runtime
// lists, once: what is the same is not told again, and a list that cannot be read is no
// change. Nobody who lists waits for it. Sibling of C032 and C095.
func TestC095_AListThatChangedInSilenceIsTold(t *testing.T) {
	a := newAuthority(t)
	conn := a.server([]string{"hostile"}, "alter", "echo")
	c := a.passed().initialize()
	id := 0
	alter := func(how string) {
		t.Helper()
		id++
		c.call(strconv.Itoa(id), "alter", how)
		c.wantText(strconv.Itoa(id), "done")
	}
	// looks lists until the server's list was read for it, and returns how many lists the
	// authority was told.
	looks := func() int {
		t.Helper()
		a.b.mu.Lock()
		in := a.b.instances[place{conn: conn}]
		before := in.looked
		a.b.mu.Unlock()
		for end := time.Now().Add(patience); ; {
			id++
			c.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id)
			if got := c.answer(); string(got.ID) != strconv.Itoa(id) || len(got.Result.Tools) != 2 {
				t.Fatalf("listed %+v", got)
			}
			a.b.mu.Lock()
			done := in.looked.After(before)
			a.b.mu.Unlock()
			if done {
				break
			}
			if time.Now().After(end) {
				t.Fatal("its list was not read")
			}
			time.Sleep(10 * time.Millisecond)
		}
		c.call("0", "echo", `{}`) // its answer comes after whatever was told
		c.wantText("0", `{}`)
		return count[wire.Catalogue](a)
	}
	alter(`{"back":true}`)
	first := count[wire.Catalogue](a)
	if n := looks(); n != first {
		t.Errorf("nothing has changed, and %d parts of lists were told", n-first)
	}
	alter(`{}`)
	looks()
	awaitCount[wire.Catalogue](a, first+2) // the definitions, and the end
	if n := looks(); n != first+2 {
		t.Errorf("the same list was told again: %d parts", n-first)
	}
	alter(`{"fail":true}`)
	if n := looks(); n != first+2 {
		t.Errorf("a list that could not be read was told: %d parts", n-first)
	}
}

// Views are asked for one at a time, and by each session one at a time, because each can
// have as many bytes as all definitions of a project: 60 lists at once of each of five
// sessions, and calls that need a view too. Every one is answered. Sibling of C016.
func TestC016_OneViewIsHeldAtATime(t *testing.T) {
	a := newAuthority(t)
	a.lateViews = true
	_, log := a.count("echo")
	var clients []*client
	for range 5 {
		clients = append(clients, a.passed().initialize())
	}
	for _, c := range clients {
		for id := range 40 {
			c.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id)
		}
		for id := range 20 {
			c.call(strconv.Itoa(100+id), "echo", `{}`)
		}
	}
	for _, c := range clients {
		for range 60 {
			if got := c.answer(); got.Error != nil || got.Result.IsError {
				t.Fatalf("got %+v", got)
			}
		}
	}
	if n := len(calls(t, log)); n != 5*20 {
		t.Errorf("%d calls were received", n)
	}
	if n := a.mostViews.Load(); n != 1 {
		t.Errorf("%d views were asked for at once", n)
	}
}

// A call that the authority ended is answered at once; what its server still says of its
// progress reaches nobody, for runtimes close a session over it. Sibling of C031.
func TestC031_ProgressOfAnEndedCallIsDropped(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "cancelled_progress", "echo")
	c := a.passed().initialize()
	c.call("0", "echo", `{}`)
	c.wantText("0", `{}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cancelled_progress","arguments":{},"_meta":{"progressToken":"t"}}}`)
	if got := c.answer(); got.Method != "notifications/progress" {
		t.Fatalf("got %+v", got)
	}
	m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
	a.tell(wire.Cancel{Call: callOf(m.Seq), Code: refusal.CallRevoked})
	c.wantRefusal("1", refusal.CallRevoked)
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Cancelled {
		t.Errorf("ended %+v", e) // its error came, and so what was before it
	}
	c.quiet()
}
