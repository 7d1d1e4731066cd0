package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// offers registers the server that has prompts, resources and questions, in one era,
// and connects a project to it. Nothing is granted yet. It writes what it receives into
// the project's directory.
func (w *world) offers(p project, label string, args ...string) {
	w.t.Helper()
	w.must(append([]string{"server", "add", label, "--profile", "static", "--package", filepath.Join(built.fixtures, "offers"), "--", "/package/offers"}, append(args, "/workspace/offers.log")...)...)
	w.must("connection", "add", p.label, label)
}

// received counts the lines with a text that the project's server received.
func (w *world) received(p project, text string) (n int) {
	w.t.Helper()
	b, _ := os.ReadFile(filepath.Join(p.workspace, "offers.log"))
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// note waits for a message that is not an answer and holds a text.
func (r *runtime) note(text string) message {
	r.t.Helper()
	late := time.After(answerWait)
	for {
		select {
		case m := <-r.notes:
			if strings.Contains(m.raw, text) {
				return m
			}
		case <-r.ended:
			r.t.Fatalf("the session ended before %q came", text)
		case <-late:
			r.t.Fatalf("%q did not come", text)
		}
	}
}

// modern asks without a handshake.
func (r *runtime) modern(method, params string) message {
	r.t.Helper()
	if params != "" {
		params += ","
	}
	return r.ask(method, "{"+params+statelessMeta+"}")
}

// eras are the two kinds of servers, each in a project of its own.
func eras(w *world, args ...string) []struct {
	name, label string
	p           project
} {
	w.offers(w.a, "legacy", args...)
	w.offers(w.b, "modern", append([]string{"modern"}, args...)...)
	return []struct {
		name, label string
		p           project
	}{{"a server with a handshake", "legacy", w.a}, {"a server without one", "modern", w.b}}
}

// Prompts and resources are reached by their grants alone, by runtimes of either era at
// servers of either, and what is refused is not heard of by the server. A revocation
// ends the subscriptions that it was for.
func TestA3_PromptsAndResourcesNeedTheirGrants(t *testing.T) {
	w := newWorld(t)
	const read = `{"uri":"file:///docs/a.txt"}`
	for _, c := range eras(w) {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			tok, _ := w.token(c.p, runtimeUID, "--binds", "2")
			r, m := w.connect(c.p, runtimeUID, tok).initialize(), w.connect(c.p, runtimeUID, tok)
			// Nothing is granted: nothing is listed, nothing is had, and no server starts.
			for method, params := range map[string]string{"prompts/list": "{}", "resources/list": "{}", "resources/templates/list": "{}"} {
				if got := r.ask(method, params).raw; strings.Contains(got, "review") || strings.Contains(got, "file://") || !strings.Contains(got, `"result"`) {
					t.Errorf("%s: %s", method, got)
				}
			}
			for method, params := range map[string]string{"prompts/get": `{"name":"review"}`, "resources/read": read, "resources/subscribe": read} {
				if got := r.ask(method, params); got.Error == nil {
					t.Errorf("%s without a grant: %s", method, got.raw)
				}
			}
			if got := m.modern("resources/read", `"uri":"file:///docs/a.txt"`); got.Error == nil || got.Error.Code != -32602 {
				t.Errorf("read without a grant: %s", got.raw)
			}
			if n := w.received(c.p, ""); n != 0 {
				t.Errorf("the server received %d lines", n)
			}

			w.must("connection", "grant", c.p.label, c.label, "touch", "--prompt", "review", "--resource-prefix", "file:///docs")
			for _, x := range []struct {
				how  string
				make func(method, params string) message
			}{
				{"with a handshake", func(method, params string) message { return r.ask(method, "{"+params+"}") }},
				{"without one", m.modern},
			} {
				if got := x.make("prompts/list", "").raw; !strings.Contains(got, `"x":12345678901234567890`) || strings.Contains(got, "hidden") {
					t.Errorf("%s, prompts: %s", x.how, got)
				}
				if got := x.make("prompts/get", `"name":"review","arguments":{"language":"go"}`).raw; !strings.Contains(got, `review {\"language\":\"go\"}`) {
					t.Errorf("%s, the prompt: %s", x.how, got)
				}
				if got := x.make("resources/list", "").raw; !strings.Contains(got, "docs/a.txt") || strings.Contains(got, "passwd") {
					t.Errorf("%s, resources: %s", x.how, got)
				}
				if got := x.make("resources/templates/list", "").raw; !strings.Contains(got, "file:///docs/{name}") || strings.Contains(got, "etc") {
					t.Errorf("%s, templates: %s", x.how, got)
				}
				if got := x.make("resources/read", `"uri":"file:///docs/a.txt"`).raw; !strings.Contains(got, `"y":12345678901234567890`) {
					t.Errorf("%s, read: %s", x.how, got)
				}
				for _, uri := range []string{"file:///etc/passwd", "file:///docs/../etc/passwd", "file:///docs%2f..%2fetc/passwd", "file:///docsx", "FILE:///docs/a.txt", "file:///"} {
					if got := x.make("resources/read", `"uri":"`+uri+`"`); got.Error == nil {
						t.Errorf("%s, %s: %s", x.how, uri, got.raw)
					}
				}
				if got := x.make("prompts/get", `"name":"hidden"`); got.outcome() != "tool_not_granted" && (got.Error == nil || got.Error.Code != -32602) {
					t.Errorf("%s, a prompt that is not granted: %s", x.how, got.raw)
				}
			}
			if n := w.received(c.p, "etc"); n != 0 {
				t.Errorf("the server heard %d times of what is not granted", n)
			}
			if n := w.received(c.p, `"hidden"`); n != 0 {
				t.Errorf("the server was asked %d times for the prompt that is not granted", n)
			}
			if n := w.received(c.p, `"resources/read"`); n != 2 {
				t.Errorf("the server was read %d times", n)
			}

			// Subscriptions of both, until the grant goes.
			if got := r.ask("resources/subscribe", read); got.Error != nil {
				t.Errorf("subscribe: %s", got.raw)
			}
			ended := m.expect(`"s"`)
			m.send(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["file:///docs/a.txt","file:///etc/passwd"]},` + statelessMeta + `}}`)
			if got := m.note("subscriptions/acknowledged").raw; strings.Contains(got, "passwd") || !strings.Contains(got, "docs/a.txt") {
				t.Errorf("acknowledged: %s", got)
			}
			r.call("touch", "{}")
			for _, who := range []*runtime{r, m} {
				if got := who.note("resources/updated").raw; !strings.Contains(got, `"uri":"file:///docs/a.txt"`) || !strings.Contains(got, `"z":12345678901234567890`) {
					t.Errorf("updated: %s", got)
				}
			}
			reads := w.received(c.p, `"resources/read"`)
			w.must("connection", "revoke", c.p.label, c.label, "--resource-prefix", "file:///docs")
			if got := m.wait(ended); got.Error != nil {
				t.Errorf("the stream ended with %s", got.raw)
			}
			until(t, "the server hears that the subscriptions are over", func() bool {
				return w.received(c.p, "resources/unsubscribe") > 0 || w.received(c.p, "notifications/cancelled") >= 2
			})
			r.call("touch", "{}")
			for _, who := range []*runtime{r, m} {
				if got := who.modern("resources/read", `"uri":"file:///docs/a.txt"`); got.Error == nil {
					t.Errorf("read after the revocation: %s", got.raw)
				}
				for more := true; more; {
					select {
					case n := <-who.notes:
						if strings.Contains(n.raw, "resources/updated") {
							t.Errorf("an update after the revocation: %s", n.raw)
						}
					default:
						more = false
					}
				}
			}
			if n := w.received(c.p, `"resources/read"`); n != reads {
				t.Errorf("the server was read %d times after the revocation", n-reads)
			}
			if got := r.ask("prompts/get", `{"name":"review"}`); got.Error != nil {
				t.Errorf("the prompt, which stays granted: %s", got.raw)
			}
			var read, refused bool
			for _, row := range w.records(c.p) {
				read = read || row.Tool == "resource:file:///docs/a.txt" && row.State == "completed"
				refused = refused || row.Tool == "resource:file:///etc/passwd" && row.State == "denied"
			}
			if !read || !refused {
				t.Errorf("the records hold a read: %t, and a refusal: %t", read, refused)
			}
		})
	}
}

// question is a server's question as a runtime without a handshake gets it.
func question(t *testing.T, m message) (handle, key string) {
	t.Helper()
	var a struct {
		Result struct {
			Type     string                     `json:"resultType"`
			Requests map[string]json.RawMessage `json:"inputRequests"`
			State    string                     `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(m.raw), &a); err != nil || a.Result.Type != "input_required" || len(a.Result.Requests) != 1 {
		t.Fatalf("no question: %s", m.raw)
	}
	for k := range a.Result.Requests {
		key = k
	}
	return a.Result.State, key
}

// Questions to the user cross between the eras: answered, declined, answered too late,
// and answered when the grant is gone.
func TestElicitation_AcrossTheEras(t *testing.T) {
	static, err := os.ReadFile(filepath.Join(built.repo, "profiles", "builtin", "static.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	brief := strings.Replace(string(static), "name: static", "name: brief\nmcp: {call_time: 1s, call_most: 3s}", 1)
	w := newWorldWith(t, map[string]string{"brief": brief})
	for _, c := range eras(w) {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.must("connection", "grant", c.p.label, c.label, "ask", "touch")
			tok, _ := w.token(c.p, runtimeUID, "--binds", "2")
			r, m := w.connect(c.p, runtimeUID, tok), w.connect(c.p, runtimeUID, tok)
			if got := r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"e2e","version":"1"}}`); got.Error != nil {
				t.Fatal(got.raw)
			}
			for _, answer := range []string{`{"action":"accept","content":{"name":"Ana"}}`, `{"action":"decline"}`} {
				// A runtime with a handshake is asked by a request.
				got := r.expect("900")
				r.send(`{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
				q := r.note("elicitation/create")
				if !strings.Contains(q.raw, `"postern/asks":"ask"`) {
					t.Errorf("asked %s", q.raw)
				}
				r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, answer))
				if text := r.wait(got).text(); !strings.Contains(text, answer) {
					t.Errorf("%s was answered %q", answer, text)
				}
				// One without is told to ask, and brings the answer with a new call.
				handle, key := question(t, m.modern("tools/call", `"name":"ask","arguments":{}`))
				retry := fmt.Sprintf(`"name":"ask","arguments":{},"inputResponses":{%q:%s},"requestState":%q`, key, answer, handle)
				if text := m.modern("tools/call", retry).text(); !strings.Contains(text, answer) {
					t.Errorf("%s was answered %q", answer, text)
				}
				if again := m.modern("tools/call", retry); again.Error == nil || again.Error.Code != -32602 {
					t.Errorf("the same answer again: %s", again.raw)
				}
			}
			// A retry when the grant is gone: refused, and the server gets no answer of a user.
			handle, key := question(t, m.modern("tools/call", `"name":"ask","arguments":{}`))
			w.must("connection", "revoke", c.p.label, c.label, "ask")
			if got := m.modern("tools/call", fmt.Sprintf(`"name":"ask","arguments":{},"inputResponses":{%q:{"action":"accept","content":{"name":"late"}}},"requestState":%q`, key, handle)); got.outcome() == "ok" {
				t.Errorf("a retry without the grant: %s", got.raw)
			}
			if n := w.received(c.p, `"late"`); n != 0 {
				t.Errorf("the server received the answer %d times", n)
			}
			w.must("connection", "grant", c.p.label, c.label, "ask")
			// Each record names the call with which its question began.
			linked := 0
			ids := map[string]bool{}
			for _, row := range w.records(c.p) {
				ids[row.Call] = true
			}
			for _, row := range w.records(c.p) {
				if row.State == "admitted" {
					t.Errorf("an open record: %+v", row)
				}
				if row.Continues != "" {
					if linked++; !ids[row.Continues] {
						t.Errorf("a record continues %s, which is none", row.Continues)
					}
				}
			}
			if linked == 0 {
				t.Error("no record names the call that it goes on with")
			}
		})
	}
	// Too late: the time that the profile gives a call with all its questions is over.
	w.t = t
	w.must("server", "add", "brief", "--profile", "brief", "--package", filepath.Join(built.fixtures, "offers"), "--", "/package/offers", "/workspace/offers.log")
	w.must("connection", "add", "a", "brief")
	w.must("connection", "grant", "a", "brief", "ask")
	tok, _ := w.token(w.a, runtimeUID)
	m := w.connect(w.a, runtimeUID, tok)
	handle, key := question(t, m.modern("tools/call", `"name":"brief.ask","arguments":{}`))
	until(t, "the call that asked has ended", func() bool { return w.records(w.a)[0].State != "admitted" })
	if n := w.received(w.a, `"result":{"action":"cancel"}`); n == 0 {
		t.Error("the server that asked was not told that nobody answers")
	}
	if got := m.modern("tools/call", fmt.Sprintf(`"name":"brief.ask","arguments":{},"inputResponses":{%q:{"action":"accept","content":{"name":"late"}}},"requestState":%q`, key, handle)); got.Error == nil || got.Error.Code != -32602 {
		t.Errorf("an answer that came too late: %s", got.raw)
	}
	if n := w.received(w.a, `"late"`); n != 0 {
		t.Errorf("the server received it %d times", n)
	}
}

// A server that asks for more than it has, in every field of every message that it may
// send, changes nothing that is stored, and nothing that it says comes as Postern's word.
func TestA8_NothingThatIsOfferedGrantsAnything(t *testing.T) {
	w := newWorld(t)
	for _, c := range eras(w, "greedy") {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.must("connection", "grant", c.p.label, c.label, "ask", "touch", "log", "--prompt", "review", "--resource-prefix", "file:///docs")
			tok, _ := w.token(c.p, runtimeUID, "--binds", "2")
			r, m := w.connect(c.p, runtimeUID, tok), w.connect(c.p, runtimeUID, tok)
			r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"e2e","version":"1"}}`)
			if got := r.call("touch", "{}"); got.outcome() != "ok" { // it runs, and its list is compared
				t.Fatal(got.raw)
			}
			stored := func() string {
				var out strings.Builder
				for _, args := range [][]string{{"project", "show", c.p.label}, {"connection", "show", c.p.label, c.label}, {"server", "show", c.label}, {"task", "list"}, {"account", "list"}} {
					out.WriteString(w.must(append([]string{"--json"}, args...)...))
				}
				b, err := os.ReadFile(filepath.Join(w.StateDir, "audit.log"))
				if err != nil {
					t.Fatal(err)
				}
				return out.String() + string(b)
			}
			before := stored()
			var said strings.Builder
			hear := func(m message) { said.WriteString(m.raw) }
			hear(r.ask("prompts/get", `{"name":"review"}`))
			hear(r.ask("resources/list", `{}`))
			hear(r.ask("resources/read", `{"uri":"file:///docs/a.txt"}`))
			hear(r.ask("resources/subscribe", `{"uri":"file:///docs/a.txt"}`))
			hear(r.ask("logging/setLevel", `{"level":"debug"}`))
			hear(r.call("touch", `{}`))
			hear(r.call("log", `{}`))
			got := r.expect("901")
			r.send(`{"jsonrpc":"2.0","id":901,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
			q := r.note("elicitation/create")
			if strings.Count(q.raw, `"postern/`) != 1 || !strings.Contains(q.raw, `"postern/asks":"ask"`) {
				t.Errorf("the question says of itself %s", q.raw)
			}
			r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"yes"}}}`, q.ID))
			answered := r.wait(got)
			hear(answered)
			if !strings.Contains(answered.text(), "accept") {
				t.Errorf("answered %s", answered.raw)
			}
			handle, key := question(t, m.modern("tools/call", `"name":"ask","arguments":{}`))
			hear(m.modern("tools/call", fmt.Sprintf(`"name":"ask","arguments":{},"inputResponses":{%q:{"action":"accept","content":{"name":"yes"}}},"requestState":%q`, key, handle)))
			hear(m.modern("prompts/get", `"name":"review"`))
			hear(m.modern("resources/read", `"uri":"file:///docs/a.txt"`))
			for _, x := range []struct{ method, params string }{{"tools/call", `{"name":"step","arguments":{}}`}, {"prompts/get", `{"name":"hidden"}`}, {"resources/read", `{"uri":"file:///etc/passwd"}`}} {
				if got := r.ask(x.method, x.params).outcome(); got == "ok" {
					t.Errorf("%s %s works", x.method, x.params)
				}
			}
			until(t, "the calls have ended", func() bool {
				for _, row := range w.records(c.p) {
					if row.State == "admitted" {
						return false
					}
				}
				return true
			})
			for more := true; more; {
				select {
				case n := <-r.notes:
					hear(n)
				default:
					more = false
				}
			}
			if after := stored(); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
			for line := range strings.Lines(said.String()) {
				if strings.Contains(line, `"postern/grant"`) || strings.Contains(line, `"postern/approve"`) || strings.Contains(line, `"postern/mode"`) || strings.Contains(line, `"postern/refusal"`) {
					t.Errorf("it speaks as Postern: %s", line)
				}
			}
			if !strings.Contains(said.String(), `"contents"`) {
				t.Error("nothing of it was heard")
			}
		})
	}
}
