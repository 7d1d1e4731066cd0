package bridge

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/refusal"
)

func TestBridge1_OnlyAdmittedCallsReachTheServer(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo", "write")
	a.admit = func(m wire.Admit) refusal.Code {
		if m.Tool == "write" {
			return refusal.ToolNotGranted
		}
		return ""
	}
	c := a.passed().initialize()
	c.call("1", "echo", `{"n":12345678901234567890}`)
	c.want(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{"n":12345678901234567890}}}`)
	c.call("2", "write", `{"path":"x"}`)
	c.wantRefusal("2", refusal.ToolNotGranted)
	c.call("3", "nothing", `{}`)
	if e := c.wantError("3", -32602); e.Error.Message != "Unknown tool: nothing" {
		t.Errorf("message %q", e.Error.Message)
	}
	c.call("4", "echo", `{}`)
	c.answer()
	if got := calls(t, log); len(got) != 2 {
		t.Errorf("the server saw %q", got)
	}
	m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
	// The digest is of the very bytes of the arguments.
	if m.Digest != fmt.Sprintf("%x", sum(`{"n":12345678901234567890}`)) || m.Size != 26 || m.Instance == "" {
		t.Errorf("asked %+v", m)
	}
	e := await[wire.Ended](a)
	if e.Outcome != wire.Completed || !e.Returned || e.Size == 0 {
		t.Errorf("ended %+v", e)
	}
}

func TestHere_TheConnectionCarriesTheMessages(t *testing.T) {
	a := newAuthority(t)
	a.count("echo")
	c := a.here().initialize()
	c.call(`"a"`, "echo", `{}`)
	c.want(`{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{}}}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.want(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`)
}

func TestModern_OneSessionSpeaksBothEras(t *testing.T) {
	a := newAuthority(t)
	a.count("echo", "progress")
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}`
	const info = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"postern","version":"test"}}`
	c := a.passed()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{%s}}}`, meta)
	if got := c.line(); !strings.Contains(got, `"supportedVersions":["2026-07-28",`) || !strings.Contains(got, `"cacheScope":"private"`) || !strings.Contains(got, `"ttlMs":0`) {
		t.Errorf("discover: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{%s},"notifications":{"toolsListChanged":true,"promptsListChanged":true}}}`, meta)
	c.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"},"notifications":{"toolsListChanged":true,"promptsListChanged":true}}}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{%s}}}`, meta)
	c.want(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"progress","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private",` + info + `}}`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"a":1},%s}}}`, meta)
	c.want(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"echo"}],"structuredContent":{"a":1},"resultType":"complete",` + info + `}}`)
	c.send(`{"jsonrpc":"2.0","id":4,"method":"ping","params":{%s}}}`, meta)
	c.wantError("4", -32601)
	c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if e := c.wantError("5", -32022); string(e.Error.Data) != `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"}` {
		t.Errorf("data %s", e.Error.Data)
	}
	c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	c.wantError("6", -32602)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"server/discover"}`)
	c.wantError("7", -32602)
	// A runtime that was answered in one era may still try the other.
	c.initialize()
	c.call("8", "echo", `{}`)
	c.answer()
	a.tell(wire.Changed{})
	got := map[string]bool{c.line(): true, c.line(): true, c.line(): true}
	if !got[`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`] || !got[`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}}`] {
		t.Errorf("notified %v", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"sub"}}`)
	c.quiet()
	a.tell(wire.Changed{})
	c.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	c.quiet()
}

// A server's own list that changed is told to those whose calls reach it and to nobody
// else; nothing has to be asked again for it.
func TestBridge8_AServersListIsToldToItsOwnSessions(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.count("echo", "slow")
	c, other := a.passed().initialize(), a.passed().initialize()
	c.call("1", "echo", `{}`)
	c.answer()
	views := count[wire.View](a)
	a.tell(wire.Changed{Connection: conn, Slot: 7}) // another place of the same connection
	a.fence(1)
	c.quiet()
	a.tell(wire.Changed{Connection: conn})
	c.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	other.quiet() // it has called nothing there
	c.call("2", "echo", `{}`)
	c.answer()
	if n := count[wire.View](a); n != views {
		t.Errorf("%d views were asked for", n-views)
	}
}

func sum(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }
