package bridge

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/refusal"
)

// What is set for runtimes, below, at and above: the request that reaches a bound is
// refused, and the session goes on.
func TestBridge6_B4_BoundsOfARuntime(t *testing.T) {
	const line, depth, requests = 5000, 10, 3
	echo := func(id, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"echo","arguments":%s}}`, id, args)
	}
	echoed := func(c *client, id, args string) {
		c.t.Helper()
		if got := c.answer(); string(got.ID) != id || string(got.Result.Structured) != args {
			c.t.Errorf("%s: got %.300s", id, got.Result.Structured)
		}
	}
	goesOn := func(c *client) {
		c.t.Helper()
		c.call(`"after"`, "echo", `{"still":"here"}`)
		echoed(c, `"after"`, `{"still":"here"}`)
	}
	bound := func(t *testing.T, b wire.SessionBounds) *client {
		a := newAuthority(t)
		a.bounds = b
		a.count("echo", "slow")
		return a.passed().initialize()
	}
	t.Run("line", func(t *testing.T) {
		c := bound(t, wire.SessionBounds{Line: line})
		for n := line - 1; n <= line+1; n++ {
			args := fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("x", n-len(echo("7", `{"a":""}`))))
			c.send("%s", echo("7", args))
			if n <= line {
				echoed(c, "7", args)
			} else if got := c.line(); !strings.Contains(got, `"id":7,"error"`) || !strings.Contains(got, "5000 bytes") {
				t.Errorf("told %s", got)
			}
			goesOn(c)
		}
	})
	t.Run("depth", func(t *testing.T) {
		c := bound(t, wire.SessionBounds{Depth: depth})
		for n := depth - 1; n <= depth+1; n++ { // the message, its params and the arguments are three
			args := `{"a":` + strings.Repeat("[", n-3) + strings.Repeat("]", n-3) + `}`
			c.send("%s", echo(strconv.Itoa(n), args))
			if n <= depth {
				echoed(c, strconv.Itoa(n), args)
			} else if got := c.line(); !strings.Contains(got, `"too_large"`) {
				t.Errorf("told %s", got)
			}
			goesOn(c)
		}
	})
	t.Run("requests", func(t *testing.T) {
		c := bound(t, wire.SessionBounds{Requests: requests})
		for i := range requests {
			c.call(strconv.Itoa(i), "slow", `{"ms":600000}`)
		}
		c.call(`"more"`, "slow", `{}`)
		c.wantRefusal(`"more"`, refusal.LimitCalls)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
		goesOn(c)
	})
	t.Run("queue", func(t *testing.T) {
		for queue, loses := range map[int64]bool{64 << 10: true, 1 << 20: false, 0: false} {
			a := newAuthority(t)
			a.bounds = wire.SessionBounds{Queue: queue}
			a.count("big", "echo")
			c := a.unread()
			c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			for i := range 16 { // of which the pipe takes two
				c.call(strconv.Itoa(i+1), "big", `{"bytes":30000}`)
			}
			if loses {
				if m := awaitIf(a, func(m wire.SessionEnded) bool { return m.Session == c.id }); !strings.Contains(m.Reason, "does not read") {
					t.Errorf("%d bytes: ended %+v", queue, m)
				}
				continue
			}
			awaitCount[wire.Ended](a, 16)
			c.read(c.out) // now it does, and has each answer
			c.answer()
			for range 16 {
				c.answer()
			}
			goesOn(c)
		}
	})
}

// Half a line that stops on its way keeps the memory of long lines from nobody for long.
// Its own session hears so under the line's id, and goes on.
func TestBridge6_AHalfLineIsGivenUpAndItsSessionGoesOn(t *testing.T) {
	a := newAuthority(t)
	a.bounds = wire.SessionBounds{LineWaitMs: 300}
	a.count("echo")
	const half = 15 << 20
	var stuck []*client
	for range MaxIncoming / half { // as much as there is for all
		c := a.passed().initialize()
		stuck = append(stuck, c)
		if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":"half","method":"tools/call","params":{"name":"echo","arguments":{"a":"%s`, strings.Repeat("x", half)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range stuck {
		if got := c.line(); !strings.Contains(got, `"id":"half"`) || !strings.Contains(got, `"line_unfinished"`) {
			t.Errorf("told %.300s", got)
		}
	}
	long := fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("y", half))
	c := a.passed().initialize()
	c.call("1", "echo", long)
	if got := c.answer(); len(got.Result.Structured) != len(long) {
		t.Errorf("%d bytes came back", len(got.Result.Structured))
	}
	for _, c := range stuck {
		c.send(`"}}}`) // the end of what was given up, of which nothing is made
		c.call("1", "echo", `{"a":1}`)
		if got := c.answer(); string(got.Result.Structured) != `{"a":1}` {
			t.Errorf("got %.300s", got.Result.Structured)
		}
	}
}

// Calls that wait are bounded by their bytes, for one session and for all of them: below
// and at the bound they wait, above it they are refused, and what ends makes room again.
func TestBridge6_B4_BytesOfCallsThatWait(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo")
	one, other := a.passed().initialize(), a.passed().initialize()
	for _, c := range []*client{one, other} {
		for range 5 { // the server runs, both know their routes, and its ids have two digits
			c.call("0", "echo", `{}`)
			c.answer()
		}
	}
	const empty = len(`{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"echo","arguments":{"a":""}}}` + "\n")
	a.set(func() { a.admit = func(wire.Admit) refusal.Code { return held } })
	hold := func(c *client, id string, size int) {
		t.Helper()
		c.call(id, "echo", fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("x", size-empty)))
	}
	waits := func(c *client, id string, size int) wire.Admit {
		t.Helper()
		hold(c, id, size)
		return awaitIf(a, func(m wire.Admit) bool { return m.RequestID == id })
	}
	const half = 15 << 20
	first := waits(one, "1", half)
	waits(one, "2", half)
	hold(one, "3", MaxHeld-2*half+1)
	one.wantRefusal("3", refusal.LimitCalls)
	last := waits(one, "4", MaxHeld-2*half) // at the bound of a session
	hold(one, "5", empty)
	one.wantRefusal("5", refusal.LimitCalls)
	waits(other, "6", half)
	hold(other, "7", MaxHeldAll-MaxHeld-half+1)
	other.wantRefusal("7", refusal.LimitCalls)
	waits(other, "8", MaxHeldAll-MaxHeld-half) // at that of all
	hold(other, "9", empty)
	other.wantRefusal("9", refusal.LimitCalls)
	a.tell(wire.Refused{Seq: first.Seq, Code: refusal.ToolNotGranted})
	one.wantRefusal("1", refusal.ToolNotGranted)
	waits(one, "10", half)
	a.admitted(last)
	if got := one.answer(); string(got.ID) != "4" || len(got.Result.Structured) < MaxHeld-2*half-empty {
		t.Errorf("got %.300s", got.Result.Structured)
	}
	if n := len(calls(t, log)); n != 2*5+1 {
		t.Errorf("%d calls were received", n)
	}
}

// Calls of one server are bounded over all sessions; another server's are not touched,
// and what ends makes room again.
func TestBridge6_B4_CallsOfOneServer(t *testing.T) {
	a := newAuthority(t)
	a.count("slow", "echo")
	a.server([]string{"hostile"}, "twice")
	var sessions []*client
	for range MaxConnCalls/MaxInFlight + 1 {
		sessions = append(sessions, a.passed().initialize())
	}
	full, late := sessions[:len(sessions)-1], sessions[len(sessions)-1]
	late.call("0", "twice", `{}`)
	late.answer()
	for _, c := range full {
		for i := range MaxInFlight {
			c.call(strconv.Itoa(i), "slow", `{"ms":600000}`)
		}
	}
	awaitCount[wire.Admit](a, 1+MaxConnCalls)
	late.call("1", "echo", `{}`)
	late.wantRefusal("1", refusal.LimitCalls)
	late.call("2", "twice", `{}`)
	late.answer()
	full[0].send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
	awaitIf(a, func(m wire.Ended) bool { return m.Outcome == wire.Cancelled })
	late.call("3", "echo", `{"a":1}`)
	if got := late.answer(); string(got.Result.Structured) != `{"a":1}` {
		t.Errorf("got %+v", got)
	}
}
