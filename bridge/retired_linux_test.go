package bridge

import (
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// A retired server finishes what it has, gets nothing else, and hears the end of its
// input with its last answer; who calls meanwhile asks for another one.
func TestARetiredServerFinishesWhatItHas(t *testing.T) {
	a := newAuthority(t)
	conn, log := a.count("slow", "echo")
	c := a.passed().initialize()
	c.call("1", "slow", `{"ms":3000}`)
	logged(t, log, "call")
	first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" }).Instance
	var ended chan struct{}
	a.set(func() { ended = a.ends[conn] })
	a.tell(wire.Retired{Connection: conn, Instance: newID[ids.Jail](a)}) // another one: nothing follows
	a.fence(1)
	a.tell(wire.Retired{Connection: conn, Instance: first})
	a.fence(2)
	c.call("2", "echo", `{}`)
	c.wantText("2", "echo")
	if second := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "2" }).Instance; second == first {
		t.Error("the retired server got another call")
	}
	select {
	case <-ended:
		t.Fatal("it ended before its call")
	default:
	}
	c.wantText("1", "slept")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it was not asked to end")
	}
}

// While a drain is on no call is asked about or sent, lists go on, and when it is taken
// back calls are made again, in the same session.
func TestDrain_NoNewCallIsAskedAbout(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.answer()
	a.tell(wire.Drain{})
	a.fence(1)
	c.call("2", "echo", `{}`)
	if e := c.wantError("2", refusal.Of(refusal.Draining).Form.JSONRPC()); !strings.Contains(string(e.Error.Data), string(refusal.Draining)) {
		t.Errorf("refused with %s", e.Error.Data)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	if got := c.answer(); len(got.Result.Tools) != 1 {
		t.Errorf("listed %+v", got)
	}
	a.tell(wire.Drain{Over: true})
	a.fence(2)
	c.call("4", "echo", `{}`)
	c.answer()
	if n, asked := len(calls(t, log)), count[wire.Admit](a); n != 2 || asked != 2 {
		t.Errorf("%d calls were received and %d asked about", n, asked)
	}
}
