package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"postern/bridge/mcp"
)

// A requestState is good until its time is over and not after, and one that was put away
// is not missed when the time comes.
func TestElicitation_AHandleIsGoodForItsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{b: &Bridge{}, handles: map[string]*handle{}, asks: map[string]*asks{}}
		keep := func() string {
			s.b.mu.Lock()
			defer s.b.mu.Unlock()
			return s.newHandleLocked(&handle{})
		}
		good := func(name string) bool {
			s.b.mu.Lock()
			defer s.b.mu.Unlock()
			return s.handles[name] != nil
		}
		first := keep()
		time.Sleep(AskWait / 2)
		second := keep()
		time.Sleep(AskWait/2 - 1)
		synctest.Wait()
		if !good(first) || !good(second) || first == second || len(first) != 32 {
			t.Errorf("just before its time %q is good: %v; %q: %v", first, good(first), second, good(second))
		}
		time.Sleep(1)
		synctest.Wait()
		if good(first) || !good(second) {
			t.Errorf("at its time the first is good: %v, the second: %v", good(first), good(second))
		}
		// What presents it then is told what a made-up one is told.
		var p mcp.Parser
		m, f := p.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{},"requestState":"` + first + `","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if f != nil {
			t.Fatalf("%+v", f)
		}
		if f := (&call{s: s}).resume(m); f == nil || !strings.Contains(f.Error(), "too late") {
			t.Errorf("a retry that is late: %+v", f)
		}
		s.b.mu.Lock()
		s.dropHandleLocked(second)
		s.b.mu.Unlock()
		time.Sleep(2 * AskWait)
		synctest.Wait()
		if len(s.handles) != 0 {
			t.Errorf("%d are left", len(s.handles))
		}
		// As many as may be open at a time, and no more.
		for range MaxOpenQuestions {
			if keep() == "" {
				t.Error("refused below the bound")
			}
		}
		if keep() != "" {
			t.Error("kept past the bound")
		}
		time.Sleep(AskWait)
		synctest.Wait()
	})
}
