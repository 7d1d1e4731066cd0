package bridge

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// datagrams has the test read the bridge's datagrams whole, beside their messages.
func (a *authority) datagrams() (all func() []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raw = []string{}
	return func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return append([]string(nil), a.raw...)
	}
}

func TestCallsThatComeAtOnceAreAskedAboutAtOnce(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	c.call("1", "echo", `{"text":"x"}`) // starts the server
	c.answer()
	sent := a.datagrams()
	const line = `{"jsonrpc":"2.0","id":%,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`
	var lines []string
	for _, id := range []string{"2", "3", "4"} {
		lines = append(lines, strings.Replace(line, "%", id, 1))
	}
	c.send("%s", strings.Join(lines, "\n")) // one write of three lines
	for range 3 {
		if got := c.answer(); got.Result.IsError || got.Error != nil {
			t.Errorf("%+v", got)
		}
	}
	awaitCount[wire.Admit](a, 4)
	if first := sent(); strings.Count(first[0]+first[min(1, len(first)-1)], "Admit ") < 3 {
		t.Errorf("three calls at once were asked about in %q", first)
	}
	awaitCount[wire.Ended](a, 4)
}

func TestTheEndOfACallGoesWithTheNextOne(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	const calls = 50
	sent := a.datagrams()
	for range calls {
		c.call("1", "echo", `{"text":"x"}`)
		c.answer()
	}
	awaitCount[wire.Ended](a, calls) // the last one's too, though nothing comes after it
	together := 0
	for _, d := range sent() {
		if strings.Contains(d, "Ended ") && strings.Contains(d, "Admit ") {
			together++
		}
	}
	// On a loaded machine some calls begin later than that.
	if together == 0 {
		t.Error("no end went with the next call")
	}
}

func TestBridge4_FencedGoesBehindTheEndsBeforeIt(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.passed().initialize()
	for n := range uint64(20) {
		c.call("1", "echo", `{"text":"x"}`)
		c.answer() // its end is told after the answer, and maybe waits
		a.fence(n + 1)
		fenced := false
		for _, m := range a.all() {
			switch m := m.(type) {
			case wire.Fenced:
				fenced = fenced || m.N == n+1
			case wire.Ended:
				if fenced && m.Call == callOf(uint64(n)) {
					t.Errorf("call %d ended behind a fence that came after it", n)
				}
			}
		}
	}
}

func TestSeveralMessagesInADatagram(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("slow", "echo")
	c := a.passed().initialize()
	a.set(func() { a.admit = func(wire.Admit) refusal.Code { return held } })
	c.call("1", "echo", `{"text":"x"}`)
	c.call("2", "echo", `{"text":"y"}`)
	awaitCount[wire.Admit](a, 2)
	var d wire.Datagram
	for _, m := range a.all() {
		if m, ok := m.(wire.Admit); ok {
			if err := d.Down(wire.Admitted{Seq: m.Seq, Call: callOf(m.Seq), DeadlineMs: 60_000}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Down(wire.Fence{N: 7}); err != nil {
		t.Fatal(err)
	}
	a.tellRaw(d.Bytes())
	awaitIf(a, func(m wire.Fenced) bool { return m.N == 7 })
	for range 2 {
		if got := c.answer(); got.Result.IsError || got.Error != nil {
			t.Errorf("%+v", got)
		}
	}
	logged(t, log, "call")
}

func TestADatagramOfSeveralHasNoDescriptors(t *testing.T) {
	a := newAuthority(t)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	id := newID[ids.Session](a)
	a.mu.Unlock()
	var d wire.Datagram
	for _, m := range []wire.Down{wire.Session{Session: id}, wire.Drain{}} {
		if err := d.Down(m); err != nil {
			t.Fatal(err)
		}
	}
	a.tellRaw(d.Bytes(), p[0])
	closeOne(p[0])
	select {
	case err := <-a.done:
		if err == nil {
			t.Error("the bridge ended as if it had been told to")
		}
		a.done <- err
	case <-time.After(patience):
		t.Fatal("the bridge goes on")
	}
	// Nobody holds the descriptor that came.
	if _, err := unix.Write(p[1], []byte("x")); err != unix.EPIPE {
		t.Errorf("write to the pipe: %v", err)
	}
	closeOne(p[1])
}
