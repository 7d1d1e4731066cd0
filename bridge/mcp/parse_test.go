package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"postern/item"
	"postern/refusal"
)

func parse(line string) (*Message, *Fault) {
	var p Parser
	return p.Parse([]byte(line))
}

// TestMCP1_ALineHasOneMeaningOrIsRefused holds the parser-differential cases; each
// refused line stands beside a twin that is accepted.
func TestMCP1_ALineHasOneMeaningOrIsRefused(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{}}}`
	for _, c := range []struct {
		name, line string
		code       int // 0: accepted
		id         string
	}{
		{"a plain call", call, 0, ""},
		{"C001 Name beside name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","Name":"delete_file","arguments":{}}}`, -32600, "1"},
		{"C001 Name alone", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"delete_file"}}`, -32600, "1"},
		{"C001 METHOD", `{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`, -32600, "1"},
		{"C001 Params", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"Params":{"name":"delete_file"}}`, -32600, "1"},
		{"C001 Arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{},"Arguments":{}}}`, -32600, "1"},
		{"C001 ID beside id", `{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}`, -32600, "null"},
		{"C002 paramſ raw", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"paramſ":{"name":"delete_file"}}`, -32600, "1"},
		{"C002 param\\u017f escaped", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"param\u017f":{"name":"delete_file"}}`, -32600, "1"},
		{"C002 tas\\u212a in _meta beside tasK", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","_meta":{"task":1,"tas\u212a":2}}}`, -32600, "1"},
		{"C002 tas\\u212a in params", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","tas\u212a":2}}`, -32600, "1"},
		{"C002 twin: an unknown key in _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","_meta":{"com.example/tas\u212a":2}}}`, 0, ""},
		{"C004 name twice", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","name":"delete_file","arguments":{}}}`, -32600, "3"},
		{"C004 name twice, once escaped", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","n\u0061me":"delete_file"}}`, -32600, "3"},
		{"C004 path twice in arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a","path":"b"}}}`, -32600, "3"},
		{"C004 deep in arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","arguments":{"a":[{"b":1,"b":2}]}}}`, -32600, "3"},
		{"C004 id twice", `{"jsonrpc":"2.0","id":3,"id":4,"method":"ping"}`, -32600, "null"},
		{"C004 twin: the same name at two depths", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","arguments":{"name":"x","a":{"name":"y"}}}}`, 0, ""},
		{"C004 twin: case variants are the server's inside arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_file","arguments":{"a":1,"A":2}}}`, 0, ""},
		{"C005 an unknown member beside params", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"Method":"tools/call"}`, -32600, "1"},
		{"C005 another", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file"},"extra":{}}`, -32600, "1"},
		{"C007 an array", `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"denied_tool","arguments":{}}}]`, -32600, "null"},
		{"C007 spaces before it", " \t\r [" + call + "]", -32600, "null"},
		{"C007 the empty array", `[]`, -32600, "null"},
		{"C008 a mixed array", `[{"jsonrpc":"2.0","id":1,"method":"ping"},` + call + `]`, -32600, "null"},
		{"C019 a header line", `Content-Length: 40`, -32700, "null"},
		{"C019 a byte order mark", "\ufeff" + call, -32700, "null"},
		{"C019 twin: a line that ended in CRLF", call + "\r", 0, ""},
		{"C021 no JSON", `NOT VALID JSON`, -32700, "null"},
		{"C021 cut", `{"jsonrpc":`, -32700, "null"},
		{"C021 null", `null`, -32600, "null"},
		{"C021 a number", `42`, -32600, "null"},
		{"C021 a string", `"x"`, -32600, "null"},
		{"C021 another JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600, "null"},
		{"C021 none", `{"id":1,"method":"ping"}`, -32600, "null"},
		{"C022 two documents", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + call, -32700, "null"},
		{"C022 something behind", `{"jsonrpc":"2.0","id":1,"method":"ping"} x`, -32700, "null"},
		{"bad UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xff\"}", -32700, "null"},
		{"bad UTF-8 in arguments", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"arguments\":{\"a\":\"\xc3\"}}}", -32700, "null"},
		{"a lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"a":"\ud800"}}}`, -32700, "1"},
		{"a NUL in a name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name\u0000x":"b","name":"a"}}`, -32600, "1"},
		{"an id that is null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, "null"},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, "null"},
		{"an id that is too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", MaxID) + `","method":"ping"}`, -32600, "null"},
		{"params that are an array", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, -32602, "1"},
		{"_meta that is an array", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":[]}}`, -32602, "1"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":5}`, -32600, "1"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, -32600, "1"},
		{"a request that is an answer too", `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, -32600, "1"},
		{"twin: an answer", `{"jsonrpc":"2.0","id":1,"result":{}}`, 0, ""},
		{"twin: params null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, 0, ""},
	} {
		m, f := parse(c.line)
		switch {
		case c.code == 0 && f != nil:
			t.Errorf("%s: refused: %v", c.name, f)
		case c.code != 0 && f == nil:
			t.Errorf("%s: accepted: %+v", c.name, m)
		case c.code != 0:
			var got struct {
				ID    json.RawMessage
				Error struct{ Code int }
			}
			if err := json.Unmarshal(AppendError(nil, f.ID, f.Code, f.Text(), nil), &got); err != nil {
				t.Fatal(err)
			}
			if got.Error.Code != c.code || string(got.ID) != c.id {
				t.Errorf("%s: answered %d for %s, want %d for %s (%v)", c.name, got.Error.Code, got.ID, c.code, c.id, f)
			}
		}
	}
}

func TestMCP3_NoIdentityIsTakenFromAMessage(t *testing.T) {
	for _, name := range []string{"account", "project", "task", "principal", "mode", "Account", "TASK", "tas\u212a"} {
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"` + name + `":"x"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","` + name + `":"x"}}`,
		} {
			if _, f := parse(line); f == nil || f.Refusal != refusal.IdentityInRequest || string(f.ID) != "1" {
				t.Errorf("%s: %+v", line, f)
			}
		}
		// Inside arguments the same name is the tool's own.
		line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"` + name + `":"x"}}}`
		if _, f := parse(line); f != nil {
			t.Errorf("%s: %v", line, f)
		}
	}
	for _, key := range []string{"postern/task", "Postern/x", "po\u017ftern/refusal", "postern/"} {
		line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"` + key + `":1}}}`
		if _, f := parse(line); f == nil || f.Refusal != refusal.IdentityInRequest {
			t.Errorf("%s: %+v", line, f)
		}
	}
	if _, f := parse(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"com.postern/x":1,"traceparent":"t"}}}`); f != nil {
		t.Error(f)
	}
	if _, f := parse(`{"postern":{"stdio":"here"}}`); f == nil || !f.Handover {
		t.Errorf("a second hand-over: %+v", f)
	}
	// A server's forged refusal does not reach the runtime.
	var p Parser
	a, err := p.ReadAnswer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"postern/refusal":{"code":"x"},"p\u006fstern/y":1,"vendor/kept":12345678901234567890}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(Peer{}.AppendAnswer(nil, Value("7"), a)), `{"jsonrpc":"2.0","id":7,"result":{"content":[],"_meta":{"vendor/kept":12345678901234567890}}}`+"\n"; got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestMCP2_WhatIsSentIsBuiltFromTheParse(t *testing.T) {
	for _, c := range []struct{ name, line, legacy string }{
		{"values verbatim, order kept", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"future":[1.0,-0.0,1e3],"arguments":{"b":12345678901234567890,"a":" \u00e9 ","A":null},"name":"served"}}`,
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"future":[1.0,-0.0,1e3],"arguments":{"b":12345678901234567890,"a":" \u00e9 ","A":null},"name":"up/stream"}}`},
		{"the runtime's description stays here, its token is ours", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"progressToken":"t","traceparent":"00-1","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"up/stream","_meta":{"progressToken":77,"traceparent":"00-1"}}}`},
		{"nothing left of _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"io.modelcontextprotocol/logLevel":"debug"}}}`,
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"up/stream"}}`},
		{"an empty _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{},"name":"n"}}`,
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"_meta":{},"name":"up/stream"}}`},
		{"a message hidden between carriage returns", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"n\",\"arguments\":\r{\"method\":\"x\"}\r}}",
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"up/stream","arguments":{"method":"x"}}}`},
		{"carriage returns deep inside", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"n\",\"arguments\":{\"a\":[\r{}\r]}}}",
			`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"up/stream","arguments":{"a":[ {} ]}}}`},
	} {
		m, f := parse(c.line)
		if f != nil {
			t.Errorf("%s: %v", c.name, f)
			continue
		}
		if got := string(Peer{}.AppendCall(nil, 77, m, MethodToolsCall, Subject{Member: "name", Name: "up/stream"}, Extra{})); got != c.legacy+"\n" {
			t.Errorf("%s:\ngot  %swant %s", c.name, got, c.legacy)
		}
	}
	m, _ := parse(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"k":1}}}`)
	want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"k":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"postern","version":"v"},"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	if got := string(Peer{Modern: true, Version: "v"}.AppendCall(nil, 1, m, MethodToolsCall, Subject{Member: "name", Name: "n"}, Extra{})); got != want {
		t.Errorf("modern:\ngot  %swant %s", got, want)
	}
}

// anyJSON draws a JSON value without repeated names.
func anyJSON(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 5
		if depth > 0 {
			kinds = 7
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false", "0", "-0.0", "1e3", "1.0", "9007199254740993", "12345678901234567890123"}).Draw(t, "scalar")
		case 1, 2:
			b, _ := jsontext.AppendQuote(nil, rapid.String().Draw(t, "string"))
			return string(b)
		case 3:
			return `"\u00e9\ud83d\ude00\n"`
		case 4:
			return " [ ] "
		case 5:
			parts := rapid.SliceOfN(anyJSON(depth-1), 0, 4).Draw(t, "array")
			return "[" + strings.Join(parts, " , ") + "]"
		default:
			names := rapid.SliceOfNDistinct(rapid.StringN(0, 6, -1), 0, 4, rapid.ID).Draw(t, "names")
			var parts []string
			for _, n := range names {
				q, _ := jsontext.AppendQuote(nil, n)
				parts = append(parts, string(q)+":"+anyJSON(depth-1).Draw(t, "value"))
			}
			return "{" + strings.Join(parts, ",") + "}"
		}
	})
}

// TestMCP2_RebuildKeepsEveryValue: whatever the arguments, the server gets the same
// bytes, and whatever the result, the runtime does.
func TestMCP2_RebuildKeepsEveryValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := strings.TrimSpace(anyJSON(4).Draw(t, "value"))
		line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","x":` + v + `}}`
		m, f := parse(line)
		if f != nil {
			t.Fatalf("%s: %v", line, f)
		}
		if got, want := string(Peer{}.AppendCall(nil, 1, m, MethodToolsCall, Subject{Member: "name", Name: "n"}, Extra{})), line+"\n"; got != want {
			t.Fatalf("call\n%s%s", got, want)
		}
		var p Parser
		answer := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":` + v + `}}`
		a, err := p.ReadAnswer([]byte(answer))
		if err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		if got, want := string(Peer{}.AppendAnswer(nil, Value("1"), a)), answer+"\n"; got != want {
			t.Fatalf("answer\n%s%s", got, want)
		}
	})
}

func TestMCP4_IdsAreKeptVerbatim(t *testing.T) {
	for _, id := range []string{`"1"`, `1`, `"init-1"`, `"007"`, `""`, `9007199254740993`, `1e3`, `-0`, `1.5`, `"\u0061"`, `12345678901234567890`} { // C012
		m, f := parse(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if f != nil {
			t.Errorf("%s: %v", id, f)
			continue
		}
		if got, want := string(AppendResponse(nil, m.ID, Value("{}"))), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`+"\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
	}
	if IDKey(Value(`"\u0061"`)) != IDKey(Value(`"a"`)) || IDKey(Value(`"1"`)) == IDKey(Value(`1`)) {
		t.Error("ids are compared by how they are escaped, or without their type")
	}
}

func TestMCP6_BoundsHold(t *testing.T) {
	nest := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}}`
	}
	if _, f := parse(nest(MaxDepth - 3)); f != nil {
		t.Errorf("the deepest: %v", f)
	}
	if _, f := parse(nest(MaxDepth - 2)); f == nil || f.Refusal != refusal.TooLarge {
		t.Errorf("one deeper: %v", f)
	}
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":1`, i)
		}
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n"` + b.String() + `}}`
	}
	if _, f := parse(members(MaxMembers - 1)); f != nil {
		t.Errorf("the most members: %v", f)
	}
	if _, f := parse(members(MaxMembers)); f == nil || f.Refusal != refusal.TooLarge {
		t.Errorf("one more: %v", f)
	}
	long := func(n int) []byte {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{"a":"`, `"}}}`
		return []byte(head + strings.Repeat("x", n-len(head)-len(tail)) + tail)
	}
	var p Parser
	if _, f := p.Parse(long(MaxLine)); f != nil {
		t.Errorf("the longest: %v", f)
	}
	if _, f := p.Parse(long(MaxLine + 1)); f == nil || f.Refusal != refusal.TooLarge {
		t.Errorf("one byte more: %v", f)
	}
	// Nesting of a hostile server ends its call, not the bridge.
	if a, err := p.ReadAnswer([]byte(`{"id":5,"result":{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`)); err != ErrAnswer || string(a.ID) != "5" {
		t.Errorf("deep answer: %+v %v", a, err)
	}
}

func TestMCP5_C092_OneMalformedToolIsKeptOutAlone(t *testing.T) {
	raw := []Value{
		Value(`{"name":"good","inputSchema":{"type":"object"}}`),
		Value(`{"name":"type_array","inputSchema":{"type":["object","null"]}}`),
		Value(`{"name":"schema_bool","inputSchema":true}`),
		Value(`{"name":"hint","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"true"}}`),
		Value(`{"name":"case","Name":"good","inputSchema":{"type":"object"}}`),
		Value(`{"name":"repeat","inputSchema":{"type":"object","a":1,"a":2}}`),
		Value(`{"name":"surrogate","description":"\ud800","inputSchema":{"type":"object"}}`),
		Value(`{"name":"twin","inputSchema":{"type":"object"}}`),
		Value(`{"name":"twin","inputSchema":{"type":"object"}}`),
		Value(`{"name":7}`), Value(`null`), Value(`{"name":"a b","inputSchema":{"type":"object"}}`),
		Value(`{"name":"` + strings.Repeat("n", MaxToolName+1) + `","inputSchema":{"type":"object"}}`),
		Value(`{"name":"` + strings.Repeat("n", MaxToolName) + `","inputSchema":{"type":"object"},"annotations":{"category":"x","readOnlyHint":false}}`),
	}
	good, bad := CheckTools(raw, 0)
	if len(good) != 2 || good[0].Name != "good" || len(bad) != len(raw)-2 {
		t.Errorf("kept %v, quarantined %v", good, bad)
	}
	for _, q := range bad {
		if q.Reason == "" {
			t.Errorf("%q has no reason", q.Name)
		}
	}
}

func TestListResult_ServesDefinitionsUnderTheirServedNames(t *testing.T) {
	tools := []Served{
		{"a.x", Value(`{"future":{"n":12345678901234567890},"name":"x","inputSchema":{"$schema":"s","type":"object","oneOf":[]},"outputSchema":{"type":"array"}}`)},
		{"y", Value(`{"name":"y","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{}},"icons":[{"src":"http://x/i"},{"src":"https://x/i"}]}`)},
		{"app", Value(`{"name":"app","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}`)},
	}
	got, err := Peer{}.ListResult(Tools, tools, nil)
	want := `{"tools":[{"future":{"n":12345678901234567890},"name":"a.x","inputSchema":{"$schema":"s","type":"object","oneOf":[]}},{"name":"y","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{}},"icons":[{"src":"https://x/i"}]}]}`
	if string(got) != want || err != nil {
		t.Errorf("legacy, %v\ngot  %s\nwant %s", err, got, want)
	}
	got, err = Peer{Modern: true}.ListResult(Tools, tools[:1], nil)
	if err != nil || !strings.Contains(string(got), `"outputSchema":{"type":"array"}`) || !strings.Contains(string(got), `"cacheScope":"private"`) || !strings.Contains(string(got), `"ttlMs":0`) {
		t.Errorf("modern: %s %v", got, err)
	}
	// A long list is walked to its end, each tool once.
	many := make([]Served, 2*MaxPageTools+7)
	for i := range many {
		many[i] = Served{fmt.Sprint("t", i), Value(`{"name":"x","inputSchema":{"type":"object"}}`)}
	}
	var cursor Value
	seen := map[string]int{}
	for range 10 {
		page, err := Peer{}.ListResult(Tools, many, cursor)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Tools      []struct{ Name string }
			NextCursor json.RawMessage
		}
		if err := json.Unmarshal(page, &r); err != nil {
			t.Fatal(err)
		}
		for _, tool := range r.Tools {
			seen[tool.Name]++
		}
		if cursor = Value(r.NextCursor); cursor == nil {
			break
		}
	}
	if len(seen) != len(many) || cursor != nil {
		t.Errorf("%d of %d tools", len(seen), len(many))
	}
	for _, bad := range []Value{Value(`"bm9uZQ"`), Value(`7`), Value(`"!"`)} {
		if _, err := (Peer{}).ListResult(Tools, many, bad); err != ErrCursor {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestOversizeID(t *testing.T) {
	x := strings.Repeat("x", 5000)
	for _, c := range []struct{ head, tail, want string }{
		{`{"jsonrpc":"2.0","id":17,"result":{"content":"` + x, x + `"}}`, "17"},
		{`{"result":{"content":"` + x, x + `"},"jsonrpc":"2.0","id":17}`, "17"},
		{`{"result":{"content":"` + x, x + `","id":17}}`, ""},
		{`{"result":"` + x, x + `\"id\":17}`, ""},
		{`{"result":{"id":3,"content":"` + x, x + `"}}`, ""},
		{x, x, ""},
	} {
		if got := string(OversizeID([]byte(c.head), []byte(c.tail))); got != c.want {
			t.Errorf("%.30s…%s: got %q", c.head, c.tail[len(c.tail)-20:], got)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for params, want := range map[string]string{ // C034
		`{"protocolVersion":"2024-11-05"}`: Version20241105, `{"protocolVersion":"2025-03-26"}`: Version20250326,
		`{"protocolVersion":"2025-06-18"}`: Version20250618, `{"protocolVersion":"2025-11-25"}`: Version20251125,
		`{"protocolVersion":"2099-01-01"}`: LatestLegacy, `{"protocolVersion":""}`: LatestLegacy, `{}`: LatestLegacy,
		`{"protocolVersion":"2026-07-28"}`: LatestLegacy, `{"protocolVersion":20250618}`: "",
	} {
		m, f := parse(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + params + `}`)
		if f != nil {
			t.Fatal(f)
		}
		got, f := m.Negotiate()
		if got != want || (want == "") != (f != nil && f.Code == CodeInvalidParams) {
			t.Errorf("%s: %q %v", params, got, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	seeds(f, "runtime.txt")
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,2]},"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"r"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"file:///a/{b}"},"argument":{"name":"b","value":"c"},"context":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"b","value":"c"},"inputResponses":{"x":{"action":"accept"}}}}`,
		`[]`, `{"jsonrpc":"2.0","id":1,"id":2}`, "{\"a\":\r1}", `{"jsonrpc":"2.0","id":1,"result":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, fault := parse(string(line))
		if fault != nil {
			if !json.Valid(AppendError(nil, fault.ID, fault.Code, fault.Text(), nil)) {
				t.Fatalf("%q: the answer is not JSON", line)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatalf("%q was accepted", line)
		}
		if m.Kind == Response {
			return
		}
		// What is built parses again, to the same values, and has one line.
		out := Peer{}.AppendCall(nil, 5, m, MethodToolsCall, Subject{Member: "name", Name: "tool"}, Extra{})
		if bytes.IndexByte(out, '\n') != len(out)-1 || bytes.IndexByte(out, '\r') >= 0 {
			t.Fatalf("%q became %q", line, out)
		}
		var p Parser
		again, fault := p.Parse(bytes.Clone(out))
		if fault != nil {
			t.Fatalf("%q became %q: %v", line, out, fault)
		}
		if got := again.Param("arguments"); !reflect.DeepEqual(got, m.Param("arguments")) {
			t.Fatalf("arguments %q became %q", m.Param("arguments"), got)
		}
		if name := again.Param("name"); m.Param("name") != nil && string(name) != `"tool"` {
			t.Fatalf("name became %q", name)
		}
		if u, f := m.Unasked(); f == nil && u != nil && !json.Valid(u) {
			t.Fatalf("answers became %q", u)
		}
		c, f := m.Completes()
		if f != nil {
			return
		}
		if !json.Valid(c.Asked(m)) || c.Name == "" || c.Kind == item.Resource && !strings.HasPrefix(c.URI, c.Name) {
			t.Fatalf("%q asks for a completion of %+v: %s", line, c, c.Asked(m))
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	seeds(f, "server.txt")
	seeds(f, "catalogue.txt")
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"postern/x":1}}}`, `{"id":1,"error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`, `noise`, `{"id":1,"result":{"a":"\ud800"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p Parser
		a, err := p.ReadAnswer(bytes.Clone(line))
		if err != nil || a.Kind != Response {
			return
		}
		for _, peer := range []Peer{{}, {Modern: true, Version: "v"}} {
			out := peer.AppendAnswer(nil, Value("1"), a)
			if !json.Valid(out) || bytes.IndexByte(out, '\n') != len(out)-1 || bytes.IndexByte(out, '\r') >= 0 {
				t.Fatalf("%q became %q", line, out)
			}
		}
	})
}

func BenchmarkParseAndRebuild(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 100) + `"},"_meta":{"progressToken":1}}}`)
	var p Parser
	b.ReportAllocs()
	for b.Loop() {
		m, f := p.Parse(line)
		if f != nil {
			b.Fatal(f)
		}
		_ = Peer{}.AppendCall(make([]byte, 0, 256), 1, m, MethodToolsCall, Subject{Member: "name", Name: "echo"}, Extra{})
	}
}

// A walk through the pages of a list that changes meanwhile goes on: behind the last name
// of the page before, or, where that is gone, with what has moved to its place.
func TestListResult_ACursorSurvivesTheEndOfItsName(t *testing.T) {
	var all []Served
	for i := range 2*MaxPageTools + 10 {
		name := fmt.Sprintf("t%04d", i)
		all = append(all, Served{Name: name, Definition: Value(`{"name":"` + name + `"}`)})
	}
	page := func(all []Served, cursor Value) (first string, n int, next Value, err error) {
		raw, err := Peer{}.ListResult(Tools, all, cursor)
		if err != nil {
			return "", 0, nil, err
		}
		members, _ := Members(raw)
		names := strings.Split(string(Find(members, "tools")), `"name":"`)
		return names[1][:5], len(names) - 1, Find(members, "nextCursor"), nil
	}
	_, n, next, err := page(all, nil)
	if err != nil || n != MaxPageTools || next == nil {
		t.Fatalf("%d tools, %s, %v", n, next, err)
	}
	for _, row := range []struct {
		says string
		all  []Served
		want string
	}{
		{"the same list", all, "t0500"},
		{"the last of the page is gone", slices.Delete(slices.Clone(all), MaxPageTools-1, MaxPageTools), "t0500"},
		{"the first of the next is gone", slices.Delete(slices.Clone(all), MaxPageTools, MaxPageTools+1), "t0501"},
		{"one is new at the front", slices.Insert(slices.Clone(all), 0, Served{Name: "a0000", Definition: Value(`{"name":"a0000"}`)}), "t0500"},
	} {
		if first, n, _, err := page(row.all, next); first != row.want || n != MaxPageTools || err != nil {
			t.Errorf("%s: %d tools from %s, %v; want them from %s", row.says, n, first, err, row.want)
		}
	}
	if raw, err := (Peer{}).ListResult(Tools, all[:10], next); err != nil || !strings.Contains(string(raw), `"tools":[]`) || strings.Contains(string(raw), "nextCursor") {
		t.Errorf("a list that became shorter: %s, %v", raw, err)
	}
	for _, bad := range []string{`7`, `""`, `"%%"`, `"dDA0OTk"`, `"LTEgdA"`, `"eCB0"`} { // t0499, -1 t, x t
		if _, err := (Peer{}).ListResult(Tools, all, Value(bad)); err != ErrCursor {
			t.Errorf("the cursor %s: %v", bad, err)
		}
	}
}
