package bridge

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/refusal"
)

const (
	eraLegacy = upstream.EraLegacy
	eraModern = upstream.EraModern
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

const infoMeta = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"postern","version":"test"}}`

// offers registers the fixture that has everything, in one era, with all its tools, the
// prompt "review" and the resources beneath file:///docs.
func (a *authority) offers(era string) (ids.Connection, string) {
	log := filepath.Join(a.t.TempDir(), "lines.log")
	command := []string{"offers", log}
	if era != eraLegacy {
		command = []string{"offers", era, log}
	}
	conn := a.server(command, "ask", "touch", "log", "wait", "step")
	a.set(func() {
		a.tools = append(a.tools,
			wire.Tool{Name: "prompt:review", Connection: conn, Tool: "prompt:review", Callable: true, Definition: []byte(`{"name":"review","description":"Reviews code","x":12345678901234567890}`)},
			wire.Tool{Name: "prompt:hidden", Connection: conn, Tool: "prompt:hidden"},
			wire.Tool{Name: "resource:file:///docs", Connection: conn, Tool: "resource:file:///docs", Callable: true, Definition: []byte("null")})
	})
	return conn, log
}

// both runs a test against a server of each era.
func both(t *testing.T, f func(t *testing.T, a *authority, conn ids.Connection, log string)) {
	for _, era := range []string{eraLegacy, eraModern} {
		t.Run(era+" server", func(t *testing.T) {
			a := newAuthority(t)
			conn, log := a.offers(era)
			f(t, a, conn, log)
		})
	}
}

func (c *client) modern(id, method, params string) {
	c.t.Helper()
	if params != "" {
		params += ","
	}
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s%s}}`, id, method, params, modernMeta)
}

func (c *client) elicits() *client {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`)
	c.line()
	return c
}

// sent counts the lines of a log with a text.
func sent(t *testing.T, log, text string) (n int) {
	t.Helper()
	for _, line := range calls(t, log) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestPrompts_AreListedFromPinsAndGotLikeCalls(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		a.admit = func(m wire.Admit) refusal.Code {
			if m.Tool == "prompt:hidden" {
				return refusal.ToolNotGranted
			}
			return ""
		}
		c := a.passed().initialize()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`)
		c.want(`{"jsonrpc":"2.0","id":1,"result":{"prompts":[{"name":"review","description":"Reviews code","x":12345678901234567890}]}}`)
		if n := count[wire.Start](a); n != 0 {
			t.Errorf("a list started a server")
		}
		c.modern("2", "prompts/list", "")
		c.want(`{"jsonrpc":"2.0","id":2,"result":{"prompts":[{"name":"review","description":"Reviews code","x":12345678901234567890}],"resultType":"complete","ttlMs":0,"cacheScope":"private",` + infoMeta + `}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"review","arguments":{"language":"go"}}}`)
		if got := c.line(); !strings.Contains(got, `"text":"review {\"language\":\"go\"}"`) {
			t.Errorf("got %s", got)
		}
		c.modern("4", "prompts/get", `"name":"review"`)
		if got := c.line(); !strings.Contains(got, `"text":"review "`) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "3" })
		if m.Tool != "prompt:review" || m.Connection != conn || m.Digest != fmt.Sprintf("%x", sum(`{"language":"go"}`)) {
			t.Errorf("asked %+v", m)
		}
		c.send(`{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"hidden"}}`)
		if e := c.wantError("5", -32000); e.Error.Message != refusal.Of(refusal.ToolNotGranted).Sentence || !strings.Contains(string(e.Error.Data), "tool_not_granted") {
			t.Errorf("%+v", e.Error)
		}
		c.send(`{"jsonrpc":"2.0","id":6,"method":"prompts/get","params":{"name":"none"}}`)
		if e := c.wantError("6", -32602); e.Error.Message != "Unknown prompt: none" {
			t.Errorf("%+v", e.Error)
		}
		// No kind is reached by the request of another.
		for i, name := range []string{"prompt:review", "resource:file:///docs/a.txt"} {
			c.call(fmt.Sprint(10+i), name, "{}")
			c.wantError(fmt.Sprint(10+i), -32602)
		}
		c.send(`{"jsonrpc":"2.0","id":12,"method":"prompts/get","params":{"name":"ask"}}`)
		c.wantError("12", -32602)
		if n := sent(t, log, `"method":"prompts/get"`); n != 2 {
			t.Errorf("the server was asked for %d prompts", n)
		}
		raw := string(a.catalog[conn])
		if !strings.Contains(raw, `][{"name":"review"`) || !strings.Contains(raw, `{"name":"hidden"}`) || strings.Contains(raw, "bad name") {
			t.Errorf("the catalogue is %s", raw)
		}
		awaitIf(a, func(m wire.Catalogue) bool { return m.Last && len(m.Quarantined) == 1 })
	})
}

// A completion is admitted as the prompt, or as what everything that a template stands
// for lies beneath; the server hears its own name of it.
func TestCompletion_GoesByTheGrantOfWhatItIsAbout(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		a.set(func() {
			a.tools = append(a.tools, wire.Tool{Name: "prompt:other.review", Connection: conn, Tool: "prompt:review", Callable: true})
		})
		a.admit = func(m wire.Admit) refusal.Code {
			if m.Tool == "prompt:hidden" {
				return refusal.ToolNotGranted
			}
			return ""
		}
		c := a.passed().initialize()
		const argument = `"argument":{"name":"language","value":"g","n":12345678901234567890}`
		complete := func(id, ref string) {
			c.send(`{"jsonrpc":"2.0","id":%s,"method":"completion/complete","params":{"ref":%s,%s,"context":{"arguments":{}}}}`, id, ref, argument)
		}
		const values = `"completion":{"values":["go","gopher"],"total":12345678901234567890}`
		for i, x := range []struct{ ref, key, hears string }{
			{`{"type":"ref/prompt","name":"review"}`, "prompt:review", `"ref":{"type":"ref/prompt","name":"review"},` + argument + `,"context":{"arguments":{}}`},
			{`{"name":"other.review","title":"x","Name":"hidden","type":"ref/prompt"}`, "prompt:review", `"ref":{"type":"ref/prompt","name":"review"},` + argument},
			{`{"type":"ref/resource","uri":"file:///docs/{name}"}`, "resource:file:///docs/", `"ref":{"type":"ref/resource","uri":"file:///docs/{name}"},` + argument},
			{`{"type":"ref/resource","uri":"file:///docs/sub/re{x}/{y}"}`, "resource:file:///docs/sub/", `"uri":"file:///docs/sub/re{x}/{y}"`},
			{`{"type":"ref/resource","uri":"file:///docs/a.txt"}`, "resource:file:///docs/a.txt", `"uri":"file:///docs/a.txt"`},
		} {
			id := fmt.Sprint(10 + i)
			complete(id, x.ref)
			if got := c.line(); !strings.Contains(got, values) || !strings.Contains(got, `"id":`+id) {
				t.Errorf("%s: %s", x.ref, got)
			}
			if m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == id }); m.Tool != x.key || m.Connection != conn || m.Size == 0 {
				t.Errorf("%s was asked about as %+v", x.ref, m)
			}
			if sent(t, log, x.hears) == 0 {
				t.Errorf("%s: the server heard %q", x.ref, calls(t, log))
			}
		}
		c.modern("20", "completion/complete", `"ref":{"type":"ref/prompt","name":"review"},`+argument)
		if got := c.line(); !strings.Contains(got, values) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		one := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "10" })
		two := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "12" })
		if one.Digest == two.Digest {
			t.Error("two questions have one digest")
		}
		before := sent(t, log, "completion/complete")
		complete("30", `{"type":"ref/prompt","name":"hidden"}`)
		c.wantError("30", -32000)
		for i, ref := range []string{`{"type":"ref/prompt","name":"none"}`, `{"type":"ref/prompt","name":"ask"}`, `{"type":"ref/prompt","name":"prompt:review"}`, `{"type":"ref/prompt"}`,
			`{"type":"ref/tool","name":"ask"}`, `"review"`, `{"name":"review"}`, `{"type":"ref/resource","uri":"{any}"}`, `{"type":"ref/resource","uri":"` + strings.Repeat("x", item.MaxURI+1) + `"}`} {
			id := fmt.Sprint(40 + i)
			complete(id, ref)
			c.wantError(id, -32602)
		}
		for i, uri := range []string{"file:///{x}", "file:///docs{x}", "file:///doc{x}/a", "file:///etc/{name}", "file:///docs/../{x}", "FILE:///docs/{x}"} {
			id := fmt.Sprint(60 + i)
			complete(id, `{"type":"ref/resource","uri":"`+uri+`"}`)
			if e := c.wantError(id, -32002); string(e.Error.Data) != `{"uri":"`+uri+`"}` {
				t.Errorf("%s: %+v", uri, e.Error)
			}
		}
		c.send(`{"jsonrpc":"2.0","id":70,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"review"},"argument":{"name":"language"}}}`)
		c.wantError("70", -32602)
		if n := sent(t, log, "completion/complete"); n != before {
			t.Errorf("%d refused ones reached the server", n-before)
		}
	})
}

// What is found by a probe is the hint for the next start.
func TestProbe_SaysWhichErasAServerSpeaks(t *testing.T) {
	for _, era := range []string{eraLegacy, eraModern, upstream.EraBoth} {
		t.Run(era, func(t *testing.T) {
			a := newAuthority(t)
			conn, _ := a.offers(era)
			a.start(conn)
			if m := awaitIf(a, func(m wire.Catalogue) bool { return m.Last }); m.Era != era || m.Error != "" {
				t.Errorf("it is said to speak %q, %q", m.Era, m.Error)
			}
			if err := <-a.done; err != nil {
				t.Error(err)
			}
			a.done <- nil // for the clean-up
		})
	}
}

// A server of both eras is asked in that of the runtime for which it is started, and
// serves one of the other all the same.
func TestAServerOfBothErasSpeaksAsWhoeverCallsFirst(t *testing.T) {
	for _, first := range []string{eraLegacy, eraModern} {
		t.Run(first, func(t *testing.T) {
			a := newAuthority(t)
			a.era = upstream.EraBoth
			_, log := a.offers(upstream.EraBoth)
			modern, legacy := a.passed(), a.passed().elicits()
			asksModern := func() {
				modern.modern("1", "tools/call", `"name":"ask","arguments":{}`)
				h, key := ask(t, modern)
				if (key == "who") != (first == eraModern) { // its own key, or one of ours
					t.Errorf("the key is %q", key)
				}
				modern.modern("2", "tools/call", fmt.Sprintf(`"name":"ask","arguments":{},"requestState":%q,"inputResponses":{%q:{"action":"decline"}}`, h, key))
				if got := modern.answer(); got.Error != nil || !strings.Contains(got.Result.Content[0].Text, `{"action":"decline"}`) {
					t.Errorf("got %+v", got)
				}
			}
			asksLegacy := func() {
				legacy.call("1", "ask", `{}`)
				var q struct{ ID, Method string }
				if err := json.Unmarshal([]byte(legacy.line()), &q); err != nil || q.Method != "elicitation/create" {
					t.Fatalf("%+v %v", q, err)
				}
				legacy.send(`{"jsonrpc":"2.0","id":%q,"result":{"action":"decline"}}`, q.ID)
				if got := legacy.answer(); got.Error != nil || !strings.Contains(got.Result.Content[0].Text, `{"action":"decline"}`) {
					t.Errorf("got %+v", got)
				}
			}
			if first == eraModern {
				asksModern()
				asksLegacy()
			} else {
				asksLegacy()
				asksModern()
			}
			if n := sent(t, log, `"method":"initialize"`); (n == 0) != (first == eraModern) {
				t.Errorf("%d handshakes", n)
			}
			if m := awaitIf(a, func(m wire.Catalogue) bool { return m.Last }); m.Era != first {
				t.Errorf("it is said to speak %q", m.Era)
			}
		})
	}
}

func TestResources_OnlyWhatAPrefixCovers(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		c := a.passed().initialize()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
		c.want(`{"jsonrpc":"2.0","id":1,"result":{"resources":[{"uri":"file:///docs/a.txt","name":"a","size":12345678901234567890},{"uri":"file:///docs/b.txt","name":"b"}]}}`)
		c.send(`{"jsonrpc":"2.0","id":2,"method":"resources/templates/list"}`)
		c.want(`{"jsonrpc":"2.0","id":2,"result":{"resourceTemplates":[{"uriTemplate":"file:///docs/{name}","name":"doc"}]}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"file:///docs/a.txt"}}`)
		if got := c.line(); !strings.Contains(got, `"contents":[{"uri":"file:///docs/a.txt","text":"contents","y":12345678901234567890}]`) {
			t.Errorf("got %s", got)
		}
		if m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "3" }); m.Tool != "resource:file:///docs/a.txt" || m.Connection != conn {
			t.Errorf("asked %+v", m)
		}
		for i, uri := range []string{"file:///etc/passwd", "file:///docs/../etc/passwd", "file:///docs/%2e%2e/etc/passwd", "file:///docsx", "FILE:///docs/a.txt", "docs"} {
			id := fmt.Sprint(10 + i)
			c.send(`{"jsonrpc":"2.0","id":%s,"method":"resources/read","params":{"uri":"%s"}}`, id, uri)
			if e := c.wantError(id, -32002); !strings.HasPrefix(e.Error.Message, "Resource not found: ") || string(e.Error.Data) != fmt.Sprintf(`{"uri":%q}`, uri) {
				t.Errorf("%s: %+v", uri, e.Error)
			}
		}
		c.modern("20", "resources/read", `"uri":"file:///etc/passwd"`)
		c.wantError("20", -32602)
		c.modern("21", "resources/read", `"uri":"file:///docs/b.txt"`)
		if got := c.line(); !strings.Contains(got, `"uri":"file:///docs/b.txt"`) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		if n := sent(t, log, `"method":"resources/read"`); n != 2 {
			t.Errorf("the server was asked to read %d times", n)
		}
		a.tell(wire.Changed{})
		got := []string{c.line(), c.line()}
		if got[0] != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` || got[1] != `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}` {
			t.Errorf("told %q", got)
		}
		c.call("30", "touch", `{"uri":"file:///none","level":"list"}`)
		c.want(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		c.answer()
	})
}

func TestC139_OneBrokenServerDelaysNoList(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.offers(eraLegacy)
	mute := a.server([]string{"hostile", "mute"})
	a.set(func() {
		a.tools = append(a.tools, wire.Tool{Name: "resource:mute:x", Connection: mute, Tool: "resource:mute:x", Callable: true, Definition: []byte("null")})
	})
	c := a.passed().initialize()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if got := c.answer(); len(got.Result.Tools) != 5 {
		t.Errorf("%d tools", len(got.Result.Tools))
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"resources/list"}`)
	if got := c.line(); !strings.Contains(got, `"file:///docs/a.txt"`) {
		t.Errorf("the healthy server of %s is not listed: %s", conn, got)
	}
	if n := count[wire.Catalogue](a); n == 0 {
		t.Error("no server was asked")
	}
	for _, m := range a.all() {
		if m, ok := m.(wire.Catalogue); ok && m.Connection == mute {
			t.Error("the list waited for the broken server")
		}
	}
}

func TestBridge8_SubscriptionsAreAdmittedAndEndWithTheirGrant(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		a.admit = func(m wire.Admit) refusal.Code {
			if m.Tool == "resource:file:///docs/b.txt" {
				return refusal.ToolUnknown
			}
			return ""
		}
		old, other := a.passed().initialize(), a.passed().initialize()
		old.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///docs/a.txt"}}`)
		if got := old.answer(); got.Error != nil {
			t.Fatalf("%+v", got.Error)
		}
		old.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///docs/b.txt"}}`)
		old.wantError("2", -32002)
		old.send(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"file:///etc/passwd"}}`)
		old.wantError("3", -32002)

		now := a.passed()
		now.modern(`"s"`, "subscriptions/listen", `"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["file:///docs/a.txt","file:///docs/b.txt","file:///etc/passwd"]}`)
		now.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["file:///docs/a.txt"]}}}`)
		if n := sent(t, log, "passwd") + sent(t, log, "b.txt"); n != 0 {
			t.Errorf("the server heard %d times of what is not granted", n)
		}
		updates := func(id string) (string, string) {
			old.call(id, "touch", `{"uri":"file:///docs/a.txt"}`)
			return old.line(), now.line()
		}
		const told = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///docs/a.txt","z":12345678901234567890`
		o, n := updates("4")
		if o != told+"}}" || n != told+`,"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}` {
			t.Errorf("told %s\nand %s", o, n)
		}
		if got := old.answer(); string(got.ID) != "4" { // a modern server tells once for each who subscribed
			got = old.answer()
		}
		other.quiet()
		// The grant goes: nothing passes until it was asked about, and then the stream ends.
		a.set(func() { a.tools = a.tools[:len(a.tools)-1] })
		a.tell(wire.Changed{})
		if got := now.line(); got != `{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}` {
			t.Errorf("told %s", got)
		}
		now.want(`{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`)
		old.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if conn == "" {
			t.Fatal()
		}
		if sent(t, log, `"subscriptions/listen"`) > 0 && strings.Contains(logged(t, log, `{"jsonrpc":"2.0","method":"notifications/cancelled"`), "requestId") {
			// a modern server was told by the end of its request
		} else {
			waitFor(t, log, `"method":"resources/unsubscribe","params":{"uri":"file:///docs/a.txt"}`)
		}
		old.call("9", "touch", `{}`)
		if got := old.answer(); string(got.ID) != "9" {
			t.Errorf("told %+v after the grant was taken back", got)
		}
		now.modern(`"q"`, "resources/read", `"uri":"file:///docs/a.txt"`)
		now.wantError(`"q"`, -32602)
	})
}

func TestBridge8_AGrantThatStaysKeepsItsSubscription(t *testing.T) {
	both(t, func(t *testing.T, a *authority, _ ids.Connection, log string) {
		now := a.passed()
		now.modern(`"s"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["file:///docs"]}`)
		now.line()
		a.tell(wire.Changed{})
		now.modern("1", "tools/call", `"name":"touch","arguments":{"uri":"file:///docs/sub/x"}`)
		seen := []string{now.line(), now.line()}
		if !strings.Contains(strings.Join(seen, ""), `"subscriptionId":"s"`) && !strings.Contains(strings.Join(seen, ""), `subscriptionId":"s"`) {
			t.Errorf("the update was lost: %q", seen)
		}
		now.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`)
		now.modern("2", "tools/call", `"name":"touch","arguments":{}`)
		if got := now.answer(); string(got.ID) != "2" {
			t.Errorf("told %+v after the stream was cancelled", got)
		}
	})
}

func TestSubscriptions_EndWithTheirServer(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.offers(eraLegacy)
	old, now := a.passed().initialize(), a.passed()
	old.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///docs/a.txt"}}`)
	old.answer()
	now.modern(`"s"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["file:///docs/a.txt"]}`)
	now.line()
	a.kill(conn)
	old.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///docs/a.txt"}}`)
	now.want(`{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`)
	old.quiet()
}

// waitFor waits until a line of the log has a text.
func waitFor(t *testing.T, log, text string) {
	t.Helper()
	for range 2000 {
		if sent(t, log, text) > 0 {
			return
		}
		logPause()
	}
	t.Fatalf("the server was never sent %s; it was sent %q", text, calls(t, log))
}

func TestLogs_ReachOnlyWhoseCallItIs(t *testing.T) {
	both(t, func(t *testing.T, a *authority, _ ids.Connection, log string) {
		const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s","data":{"n":12345678901234567890}}}`
		c, other := a.passed().initialize(), a.passed().initialize()
		c.call("1", "log", `{}`)
		c.wantText("1", "logged") // nobody asked for messages
		c.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`)
		c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		other.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		other.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}`)
		c.wantError("3", -32602)
		c.call("4", "log", `{}`)
		c.want(fmt.Sprintf(line, "info"))
		c.want(fmt.Sprintf(line, "error"))
		c.wantText("4", "logged")
		other.quiet()
		c.modern("5", "tools/call", `"name":"log","arguments":{}`)
		c.wantText("5", "logged") // a modern request asks for itself
		c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"log","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"error"}}}`)
		c.want(fmt.Sprintf(line, "error"))
		c.wantText("6", "logged")
		c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"log","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}}}`)
		c.wantError("7", -32602)
		// With another session's call in flight nobody can tell whose message it is.
		other.call("8", "wait", `{}`)
		waitFor(t, log, `"name":"wait"`)
		c.call("9", "log", `{}`)
		c.wantText("9", "logged")
		other.quiet()
		if n := sent(t, log, `"method":"logging/setLevel"`); n > 0 && sent(t, log, `"level":"debug"`) != 1 {
			t.Error("a legacy server was not told the most curious level once")
		}
	})
}

func TestLogs_AFloodIsCut(t *testing.T) {
	a := newAuthority(t)
	a.offers(eraLegacy)
	c := a.passed().initialize()
	c.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`)
	c.line()
	c.call("4", "log", `{"n":20000}`)
	n := 0
	for ; !strings.Contains(c.line(), `"id":4`); n++ {
	}
	if n < NotesPerSec/2 || n > 20*NotesPerSec {
		t.Errorf("%d messages of 20,000 passed", n)
	}
}

func ask(t *testing.T, c *client) (handle string, message string) {
	t.Helper()
	var a struct {
		Result struct {
			Type     string `json:"resultType"`
			Requests map[string]struct {
				Method string `json:"method"`
				Params struct {
					Message string                     `json:"message"`
					Meta    map[string]json.RawMessage `json:"_meta"`
				} `json:"params"`
			} `json:"inputRequests"`
			State string `json:"requestState"`
		} `json:"result"`
	}
	line := c.line()
	if err := json.Unmarshal([]byte(line), &a); err != nil || a.Result.Type != "input_required" || len(a.Result.State) < 32 {
		t.Fatalf("no question: %s (%v)", line, err)
	}
	for key, r := range a.Result.Requests {
		if r.Method != "elicitation/create" || string(r.Params.Meta["postern/asks"]) != `"ask"` {
			t.Errorf("asked %s", line)
		}
		message = key
	}
	return a.Result.State, message
}

func TestElicitation_AModernRuntimeRetriesWithItsHandle(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		legacy := conn != "" && strings.Contains(t.Name(), "legacy")
		c := a.passed()
		const args = `"name":"ask","arguments":{"n":1}`
		c.modern("1", "tools/call", args)
		h, key := ask(t, c)
		first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
		if first.Continues != "" {
			t.Errorf("the first continues %s", first.Continues)
		}
		reply := fmt.Sprintf(`"inputResponses":{"%s":{"action":"accept","content":{"name":"Ana","n":12345678901234567890}},"other":{}},"requestState":"%s"`, key, h)
		c.modern("2", "tools/call", args+","+reply)
		got := c.answer()
		if len(got.Result.Content) != 1 || !strings.Contains(got.Result.Content[0].Text, `{"action":"accept","content":{"name":"Ana","n":12345678901234567890}}`) || strings.Contains(got.Result.Content[0].Text, "other") {
			t.Errorf("got %+v", got)
		}
		second := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "2" })
		if second.Continues != callOf(first.Seq) || second.Digest == first.Digest {
			t.Errorf("the retry was asked about as %+v", second)
		}
		for _, m := range []wire.Admit{first, second} {
			e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) })
			if e.Outcome != wire.Completed {
				t.Errorf("ended %+v", e)
			}
		}
		if strings.Contains(fmt.Sprint(calls(t, log)), h) {
			t.Error("the server saw the handle")
		}
		if legacy != (sent(t, log, `"method":"tools/call"`) == 1) {
			t.Error("a legacy server was called again, or a modern one not")
		}
		// It is used up.
		c.modern("3", "tools/call", args+","+reply)
		c.wantError("3", -32602)
		before := sent(t, log, `"method":"tools/call"`)
		for i, wrong := range []func(h string) (*client, string){
			func(h string) (*client, string) {
				return c, `"name":"ask","arguments":{"n":2},"requestState":"` + h + `"`
			},
			func(h string) (*client, string) {
				return c, `"name":"touch","arguments":{"n":1},"requestState":"` + h + `"`
			},
			func(h string) (*client, string) { return a.passed(), args + `,"requestState":"` + h + `"` },
			func(h string) (*client, string) { return c, args + `,"requestState":"` + h + `x"` },
		} {
			id := fmt.Sprint(10 + 2*i)
			c.modern(id, "tools/call", args)
			h, _ := ask(t, c)
			who, params := wrong(h)
			who.modern(fmt.Sprint(11+2*i), "tools/call", params)
			who.wantError(fmt.Sprint(11+2*i), -32602)
			if i < 2 { // presented with another request, the handle and what it stood for end
				c.modern(id+"0", "tools/call", args+`,"requestState":"`+h+`"`)
				c.wantError(id+"0", -32602)
				m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == id })
				awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) })
			} else { // and otherwise it still is the asker's
				c.modern(id+"1", "tools/call", args+`,"inputResponses":{"`+key+`":{"action":"decline"}},"requestState":"`+h+`"`)
				if got := c.answer(); got.Error != nil || !strings.Contains(got.Result.Content[0].Text, `{"action":"decline"}`) {
					t.Errorf("%d: %+v", i, got)
				}
			}
		}
		if legacy && sent(t, log, `"method":"tools/call"`) != before+4 {
			t.Errorf("a refused retry reached the server")
		}
	})
}

// Answers without a handle go on with nothing: the call is a fresh one. A modern server
// reads them as it would if it were asked directly, a legacy one asks.
func TestElicitation_AnswersToNothingGoWithAFreshCall(t *testing.T) {
	both(t, func(t *testing.T, a *authority, conn ids.Connection, log string) {
		legacy := strings.Contains(t.Name(), "legacy")
		c := a.passed()
		const unasked = `"name":"ask","arguments":{},"inputResponses":{"who":{"action":"accept","content":{"n":12345678901234567890},"_meta":{"x":1}},"more":12345}`
		c.modern("1", "tools/call", unasked)
		if legacy {
			ask(t, c)
		} else if got := c.answer(); got.Error != nil || !strings.Contains(got.Result.Content[0].Text, `answered {"who":{"action":"accept","content":{"n":12345678901234567890}},"more":{"action":"cancel"}}`) {
			t.Errorf("got %+v", got)
		}
		plain := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
		if plain.Continues != "" || (plain.Digest == fmt.Sprintf("%x", sum(`{}`))) != legacy {
			t.Errorf("asked about as %+v", plain)
		}
		// What the runtime could not have asked its user is left out.
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, unasked)
		c.line()
		if n := sent(t, log, "inputResponses"); n > 1 || legacy && n > 0 {
			t.Errorf("%d answers reached the server", n)
		}
		before := sent(t, log, `"method":"tools/call"`)
		for i, bad := range []string{`"text"`, `[]`, `{"0":{},"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1}`} {
			id := fmt.Sprint(10 + i)
			c.modern(id, "tools/call", `"name":"ask","arguments":{},"inputResponses":`+bad)
			c.wantError(id, -32602)
		}
		if sent(t, log, `"method":"tools/call"`) != before {
			t.Error("a malformed one reached the server")
		}
	})
}

func TestElicitation_ALegacyRuntimeIsAsked(t *testing.T) {
	both(t, func(t *testing.T, a *authority, _ ids.Connection, log string) {
		c := a.passed().elicits()
		c.call("1", "ask", `{}`)
		const asked = `{"jsonrpc":"2.0","id":"postern-1","method":"elicitation/create","params":{"message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}},"_meta":{"postern/asks":"ask"}}}`
		c.want(asked)
		c.send(`{"jsonrpc":"2.0","id":"postern-9","result":{"action":"accept"}}`)
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
		c.send(`{"jsonrpc":"2.0","id":"postern-1","result":{"action":"accept","content":{"name":"Ana"},"_meta":{"io.modelcontextprotocol/x":1}}}`)
		got := c.answer()
		if string(got.ID) != "1" || !strings.Contains(got.Result.Content[0].Text, `{"action":"accept","content":{"name":"Ana"}}`) {
			t.Errorf("got %+v", got)
		}
		c.send(`{"jsonrpc":"2.0","id":"postern-1","result":{"action":"accept"}}`) // twice
		for _, answer := range []string{`"result":{"action":"made up"}`, `"error":{"code":-1,"message":"no"}`, `"result":{"action":"accept","content":[]}`} {
			c.call("2", "ask", `{}`)
			var q struct{ ID string }
			if err := json.Unmarshal([]byte(c.line()), &q); err != nil {
				t.Fatal(err)
			}
			c.send(`{"jsonrpc":"2.0","id":"%s",%s}`, q.ID, answer)
			if got := c.answer(); !strings.Contains(got.Result.Content[0].Text, `{"action":"cancel"}`) {
				t.Errorf("%s: %+v", answer, got)
			}
		}
		n := 0
		for _, m := range a.all() {
			if m, ok := m.(wire.Admit); ok && m.Continues != "" {
				n++
			}
		}
		if want := map[bool]int{true: 0, false: 4}[strings.Contains(t.Name(), "legacy_server")]; n != want {
			t.Errorf("%d admissions continue another, want %d", n, want)
		}
		// Cancelled while the user is asked: the server learns it, and nothing comes back.
		c.call("3", "ask", `{}`)
		c.line()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
		c.quiet()
		first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "3" })
		awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(first.Seq) })
	})
}

func TestElicitation_ARuntimeThatCannotAskIsNotAsked(t *testing.T) {
	both(t, func(t *testing.T, a *authority, _ ids.Connection, log string) {
		c := a.passed().initialize()
		c.call("1", "ask", `{}`)
		got := c.answer()
		if refused := got.Result.Meta.Refusal.Code == string(refusal.ServerAnswer); !refused && !strings.Contains(got.Result.Content[0].Text, "-32601") {
			t.Errorf("got %+v", got)
		}
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}}`)
		got = c.answer()
		if refused := got.Result.Meta.Refusal.Code == string(refusal.ServerAnswer); !refused && !strings.Contains(got.Result.Content[0].Text, "-32601") {
			t.Errorf("got %+v", got)
		}
		if sent(t, log, `"elicitation":{"form":{}}`) > 1 {
			t.Error("a modern server was told that this runtime can ask")
		}
		// What may not be asked is not, though the runtime could.
		d := a.passed().elicits()
		for i, bad := range []string{`\"mode\":\"url\",\"message\":\"m\",\"url\":\"https://x\"`, `\"message\":1,\"requestedSchema\":{}`, `\"message\":\"m\",\"requestedSchema\":{},\"task\":{}`, `\"message\":\"m\",\"message\":\"n\",\"requestedSchema\":{}`} {
			d.call(fmt.Sprint(i), "ask", `{"ask":"`+bad+`"}`)
			got := d.answer()
			if refused := got.Result.Meta.Refusal.Code == string(refusal.ServerAnswer); !refused && !strings.Contains(got.Result.Content[0].Text, "-32601") {
				t.Errorf("%s: %+v", bad, got)
			}
		}
	})
}

func TestElicitation_NobodyElsesUserIsAsked(t *testing.T) {
	a := newAuthority(t)
	_, log := a.offers(eraLegacy)
	c, other := a.passed().elicits(), a.passed().elicits()
	other.call("1", "wait", `{}`)
	waitFor(t, log, `"name":"wait"`)
	c.call("2", "ask", `{}`)
	if got := c.answer(); !strings.Contains(got.Result.Content[0].Text, "nobody can tell whose user") {
		t.Errorf("got %+v", got)
	}
	other.quiet()
	// Given up and never answered: the server may still be at it, and ask for it.
	other.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
	awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) })
	c.call("3", "ask", `{}`)
	if got := c.answer(); !strings.Contains(got.Result.Content[0].Text, "nobody can tell whose user") {
		t.Errorf("got %+v", got)
	}
}

// A user who does not answer keeps others from being asked for AskYield and no longer, in
// whichever era the question was put.
func TestElicitation_AnUnansweredQuestionYields(t *testing.T) {
	for _, era := range []string{eraLegacy, eraModern} {
		t.Run(era+" runtime", func(t *testing.T) {
			a := newAuthority(t)
			_, log := a.offers(eraLegacy)
			silent, c := a.passed(), a.passed().elicits()
			if era == eraModern {
				silent.modern("1", "tools/call", `"name":"ask","arguments":{}`)
				ask(t, silent)
			} else {
				silent.elicits().call("1", "ask", `{}`)
				silent.line()
			}
			blocked := func(id string) {
				t.Helper()
				c.call(id, "ask", `{}`)
				if got := c.answer(); string(got.ID) != id || !strings.Contains(got.Result.Content[0].Text, "nobody can tell whose user") {
					t.Errorf("got %+v", got)
				}
			}
			first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
			open := func() bool {
				for _, m := range a.all() {
					if e, ok := m.(wire.Ended); ok && e.Call == callOf(first.Seq) {
						return false
					}
				}
				return true
			}
			blocked("2")
			if !open() {
				t.Fatal("a question yielded at once")
			}
			a.b.mu.Lock()
			for _, s := range a.b.sessions { // as if it had been put so long ago
				for _, h := range s.handles {
					h.since = h.since.Add(-AskYield)
				}
				for _, q := range s.asks {
					q.since = q.since.Add(-AskYield)
				}
			}
			a.b.mu.Unlock()
			blocked("3") // it came too early, and is the last that does
			waitFor(t, log, `{"action":"cancel"}`)
			awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(first.Seq) })
			c.call("4", "ask", `{}`)
			var q struct{ ID, Method string }
			if err := json.Unmarshal([]byte(c.line()), &q); err != nil || q.Method != "elicitation/create" {
				t.Fatalf("asked %+v, %v", q, err)
			}
			c.send(`{"jsonrpc":"2.0","id":"%s","result":{"action":"accept","content":{"name":"Ana"}}}`, q.ID)
			if got := c.answer(); !strings.Contains(got.Result.Content[0].Text, "Ana") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestElicitation_ARefusedRetryEndsTheHeldCall(t *testing.T) {
	for _, era := range []string{eraLegacy, eraModern} {
		a := newAuthority(t)
		_, log := a.offers(era)
		c := a.passed()
		c.modern("1", "tools/call", `"name":"ask","arguments":{}`)
		h, key := ask(t, c)
		a.set(func() { a.admit = func(wire.Admit) refusal.Code { return refusal.ToolNotGranted } })
		before := len(calls(t, log))
		c.modern("2", "tools/call", `"name":"ask","arguments":{},"inputResponses":{"`+key+`":{"action":"accept"}},"requestState":"`+h+`"`)
		c.wantRefusal("2", refusal.ToolNotGranted)
		m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
		e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) })
		if want := wire.Completed; e.Outcome != want {
			t.Errorf("%s: the held call ended %+v", era, e)
		}
		if era == eraLegacy {
			waitFor(t, log, `"method":"notifications/cancelled"`)
		} else if len(calls(t, log)) != before {
			t.Error("the refused retry reached the server")
		}
		if strings.Contains(strings.Join(calls(t, log), ""), `"accept"`) {
			t.Errorf("%s: the answer of a refused retry reached the server", era)
		}
	}
}

func TestElicitation_AHeldCallEndsWithItsSessionAndByTheAuthority(t *testing.T) {
	a := newAuthority(t)
	_, log := a.offers(eraLegacy)
	c := a.passed()
	c.modern("1", "tools/call", `"name":"ask","arguments":{}`)
	h, _ := ask(t, c)
	m := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
	if al := awaitIf(a, func(m wire.Alive) bool { return true }); !al.Waits || al.Call != callOf(m.Seq) {
		t.Errorf("told %+v", al)
	}
	a.tell(wire.Cancel{Call: callOf(m.Seq), Code: refusal.CallRevoked})
	if e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(m.Seq) }); e.Outcome != wire.Completed || e.Returned {
		t.Errorf("ended %+v", e) // its server was told that nobody answers, and gave a result
	}
	c.modern("2", "tools/call", `"name":"ask","arguments":{},"requestState":"`+h+`"`)
	c.wantError("2", -32602)
	d := a.passed()
	d.modern("3", "tools/call", `"name":"ask","arguments":{}`)
	ask(t, d)
	d.close()
	awaitIf(a, func(e wire.SessionEnded) bool { return e.Session == d.id })
	waitFor(t, log, `"method":"notifications/cancelled"`)
}

func TestElicitation_RoundsAreBounded(t *testing.T) {
	a := newAuthority(t)
	a.offers(eraModern)
	c := a.passed().elicits()
	c.call("1", "step", `{"n":3}`)
	c.wantText("1", "after 3")
	c.call("2", "step", `{"n":100}`)
	c.wantRefusal("2", refusal.ServerAnswer)
	if n := count[wire.Admit](a); n != 4+MaxRounds+1 {
		t.Errorf("%d admissions", n)
	}
}

// A legacy server that never has enough of asking is told so; what it makes of that is the
// call's end. Each answer was one admission of a modern runtime, and of a legacy one none.
func TestElicitation_QuestionsOfOneCallAreBounded(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.offers(eraLegacy)
	a.set(func() {
		a.tools = append(a.tools, wire.Tool{Name: "nag", Connection: conn, Tool: "nag", Callable: true})
	})
	old, now := a.passed().elicits(), a.passed()
	for _, n := range []int{MaxHeldRounds, MaxHeldRounds + 1} {
		had := count[wire.Admit](a)
		old.call("1", "nag", fmt.Sprintf(`{"n":%d}`, n))
		asked := 0
		var got answer
		for got = old.answer(); got.Method == "elicitation/create"; got = old.answer() {
			asked++
			old.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, got.ID)
		}
		text := got.Result.Content[0].Text
		if asked != MaxHeldRounds || strings.Contains(text, "as often as one call may") != (n > MaxHeldRounds) || count[wire.Admit](a) != had+1 {
			t.Errorf("legacy, %d questions: %d were asked, the last was answered %s", n, asked, text)
		}
		had = count[wire.Admit](a)
		args := fmt.Sprintf(`"name":"nag","arguments":{"n":%d}`, n)
		now.modern("1", "tools/call", args)
		for asked = 0; ; asked++ {
			line := now.line()
			if !strings.Contains(line, `"input_required"`) {
				if err := json.Unmarshal([]byte(line), &got); err != nil {
					t.Fatal(err)
				}
				break
			}
			_, state, _ := strings.Cut(line, `"requestState":"`)
			now.modern("1", "tools/call", args+`,"requestState":"`+state[:strings.IndexByte(state, '"')]+`","inputResponses":{"question":{"action":"accept","content":{}}}`)
		}
		text = got.Result.Content[0].Text
		if asked != MaxHeldRounds || strings.Contains(text, "as often as one call may") != (n > MaxHeldRounds) || count[wire.Admit](a) != had+1+MaxHeldRounds {
			t.Errorf("modern, %d questions: %d were asked, the last was answered %s", n, asked, text)
		}
	}
}

// A question that a modern runtime does not come back to in time ends the call that waits
// for it: its server is told both, the record has an end, and the name is good for nothing.
func TestElicitation_ExpiryEndsTheHeldCall(t *testing.T) {
	a := newAuthority(t)
	_, log := a.offers(eraLegacy)
	c := a.passed()
	const args = `"name":"ask","arguments":{}`
	c.modern("1", "tools/call", args)
	h, key := ask(t, c)
	first := awaitIf(a, func(m wire.Admit) bool { return m.RequestID == "1" })
	a.b.mu.Lock()
	open := a.b.sessions[c.id].handles[h]
	a.b.mu.Unlock()
	open.timer.Reset(0)
	e := awaitIf(a, func(e wire.Ended) bool { return e.Call == callOf(first.Seq) })
	if e.Outcome == wire.Completed && e.Returned {
		t.Errorf("ended %+v", e)
	}
	if sent(t, log, `"method":"notifications/cancelled"`) != 1 || sent(t, log, `"result":{"action":"cancel"}`) != 1 {
		t.Errorf("its server heard %q", calls(t, log))
	}
	c.modern("2", "tools/call", args+fmt.Sprintf(`,"requestState":"%s","inputResponses":{"%s":{"action":"accept","content":{}}}`, h, key))
	c.wantError("2", -32602)
	if n := count[wire.Admit](a); n != 1 {
		t.Errorf("%d admissions", n)
	}
	c.modern("3", "tools/call", args) // the server can be asked for another
	ask(t, c)
}

func TestNotPassed_IsRefusedByName(t *testing.T) {
	a := newAuthority(t)
	a.offers(eraLegacy)
	c := a.passed().initialize()
	for method := range notPassed {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"%s","params":{}}`, method)
		if e := c.wantError("1", -32601); e.Error.Message != "Method not found: "+method+" (Postern does not pass it on)" {
			t.Errorf("%+v", e.Error)
		}
	}
	if item.Reserved("a") {
		t.Fatal()
	}
}

// What a server speaks is found out whatever it does with the first question, and what
// was found out before is only a hint.
func TestEra_IsFoundOutWhicheverQuestionComesFirst(t *testing.T) {
	for _, c := range []struct {
		command []string
		hint    string
		ok      bool
	}{
		{[]string{"modern"}, "", true},
		{[]string{"modern"}, eraModern, true},
		{[]string{"modern", "silent"}, "", true},
		{[]string{"modern", "silent"}, eraModern, true},
		{[]string{"modern", "strict"}, "", false}, // the authority asks the other way at its next start
		{[]string{"modern", "strict"}, eraModern, true},
		{[]string{"count"}, eraModern, true},
		{[]string{"count"}, eraLegacy, true},
		{[]string{"hostile", "mute"}, eraModern, false},
	} {
		t.Run(strings.Join(append(c.command, c.hint), " "), func(t *testing.T) {
			a := newAuthority(t)
			a.era = c.hint
			command := append([]string{}, c.command...)
			if command[0] == "count" {
				command = append(command, filepath.Join(t.TempDir(), "calls.log"))
			}
			a.server(command, "echo")
			r := a.passed().initialize()
			r.call("1", "echo", `{}`)
			got := r.answer()
			if ok := !got.Result.IsError && got.Error == nil; ok != c.ok {
				t.Errorf("got %+v", got)
			}
			m := awaitIf(a, func(m wire.Catalogue) bool { return m.Last })
			if c.ok && (m.Era == eraModern) != (c.command[0] == "modern") {
				t.Errorf("it is said to speak %q", m.Era)
			}
		})
	}
}

// A runtime that never lists again calls what was taken away, and is told so.
func TestC174_ARuntimeThatIgnoresChangesIsToldWhenItCalls(t *testing.T) {
	a := newAuthority(t)
	_, log := a.count("echo", "read")
	c := a.passed().initialize()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.answer()
	c.call("2", "echo", `{}`)
	c.answer()
	a.set(func() {
		a.tools[0].Callable, a.tools[0].Definition = false, []byte("null")
		a.admit = func(m wire.Admit) refusal.Code {
			if m.Tool == "echo" {
				return refusal.ToolNotGranted
			}
			return ""
		}
	})
	a.tell(wire.Changed{})
	c.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for id := range 3 {
		c.call(fmt.Sprint(10+id), "echo", `{}`)
		c.wantRefusal(fmt.Sprint(10+id), refusal.ToolNotGranted)
	}
	c.call("20", "read", `{"path":"/nowhere"}`)
	c.answer()
	if n := sent(t, log, " echo "); n != 1 {
		t.Errorf("the server was called %d times", n)
	}
}

// A server that floods its stderr, and large arguments, hold up nobody.
func TestC126_C152_NobodyWaitsForDiagnostics(t *testing.T) {
	a := newAuthority(t)
	a.server([]string{"hostile"}, "stderr", "echo")
	c := a.passed().initialize()
	for id, n := range []int{256 << 10, 10 << 20} {
		c.call(fmt.Sprint(id), "stderr", fmt.Sprintf(`{"bytes":%d}`, n))
		c.wantText(fmt.Sprint(id), "done")
	}
	args := `{"text":"` + strings.Repeat("x", 5<<20) + `"}`
	c.call("9", "echo", args)
	c.wantText("9", args)
}
