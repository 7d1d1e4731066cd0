package suites

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const modern = "2026-07-28"

// eras are all revisions that a runtime may speak.
var eras = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", modern}

// talker speaks MCP by hand to a command.
type talker struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	era    string
	next   int
	stderr bytes.Buffer
}

// answerWait bounds the wait for one answer.
const answerWait = time.Minute

func talk(t *testing.T, argv []string, era string) *talker {
	t.Helper()
	k := &talker{t: t, cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 64), era: era}
	k.cmd.Dir, k.cmd.Env, k.cmd.Stderr = "/", []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}, &k.stderr
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(k.lines)
		in := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			k.lines <- line
		}
	}()
	t.Cleanup(func() {
		k.in.Close()
		k.cmd.Process.Kill()
		for range k.lines { // its reader ends with it
		}
		k.cmd.Wait()
	})
	if era != modern {
		k.ask("initialize", fmt.Sprintf(`"protocolVersion":%q,"capabilities":{"elicitation":{}},"clientInfo":{"name":"suites","version":"1"}`, era)) // what the bridge declares: some servers list more for it
		io.WriteString(k.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return k
}

// ask returns the members of the answer, but for its id, as they were written.
func (k *talker) ask(method, params string) map[string]string {
	k.t.Helper()
	k.next++
	if k.era == modern {
		meta := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"suites","version":"1"}}`, modern)
		if params != "" {
			params += ","
		}
		params += meta
	}
	if _, err := fmt.Fprintf(k.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`+"\n", k.next, method, params); err != nil {
		k.t.Fatal(err)
	}
	end := time.After(answerWait)
	for {
		select {
		case line, ok := <-k.lines:
			if !ok {
				k.t.Fatalf("%s: it ended: %s", method, k.stderr.String())
			}
			m := members(k.t, line)
			if m["id"] != fmt.Sprint(k.next) || m["method"] != "" {
				continue
			}
			delete(m, "id")
			return m
		case <-end:
			k.t.Fatalf("%s: no answer in time", method)
		}
	}
}

// members are those of an object, each value as it was written but for space.
func members(t *testing.T, object string) map[string]string {
	t.Helper()
	out := map[string]string{}
	d := jsontext.NewDecoder(strings.NewReader(object), jsontext.AllowInvalidUTF8(true))
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		t.Fatalf("no object: %v %.200s", err, object)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			t.Fatalf("%v: %.200s", err, object)
		}
		key := name.String()
		value, err := d.ReadValue()
		if err == nil {
			err = value.Compact(jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
		}
		if err != nil {
			t.Fatalf("%v: %.200s", err, object)
		}
		out[key] = string(value)
	}
	return out
}

// list returns the definitions of a server's tools by name, page by page.
func (k *talker) list() map[string]map[string]string {
	k.t.Helper()
	out, params := map[string]map[string]string{}, ""
	for range 64 {
		result := members(k.t, k.ask("tools/list", params)["result"])
		d := jsontext.NewDecoder(strings.NewReader(result["tools"]), jsontext.AllowInvalidUTF8(true))
		if _, err := d.ReadToken(); err != nil {
			k.t.Fatal(err)
		}
		for d.PeekKind() != ']' {
			v, err := d.ReadValue()
			if err != nil {
				k.t.Fatal(err)
			}
			tool := members(k.t, string(v))
			out[tool["name"]] = tool
		}
		if result["nextCursor"] == "" {
			return out
		}
		params = `"cursor":` + result["nextCursor"]
	}
	k.t.Fatal("the list does not end")
	return nil
}

// differences tells in what two objects differ, member by member.
func differences(direct, through map[string]string) (out []string) {
	names := maps.Clone(direct)
	maps.Copy(names, through)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d, inDirect := direct[name]
		b, inThrough := through[name]
		switch {
		case !inThrough:
			out = append(out, fmt.Sprintf("%s is lost: %s", name, d))
		case !inDirect:
			out = append(out, fmt.Sprintf("%s is added: %s", name, b))
		case d != b:
			out = append(out, fmt.Sprintf("%s\n  direct  %s\n  through %s", name, d, b))
		}
	}
	return out
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// spelled is a value that a parser which only understands it writes differently.
const spelled = `{"big":12345678901234567890,"f":[1.0,1e3,-0.0],"s":"\u00e9 é 😀 \/","nested":{"Name":"x","name":"y","account":"a"},"empty":{},"null":null}`

// Every shape of tool and of answer that a typed proxy loses comes through as it was
// written, in each revision that a runtime may speak. What differs is documented in
// docs/runtime-authors.md, and is all that differs.
func TestEveryShapeComesThrough(t *testing.T) {
	w := newWorld(t)
	u := fixture("weird")
	through := w.behind(u)
	weird := "../testdata/servers/weird/"
	direct := talk(t, u.direct, "2025-11-25")
	tools := direct.list()
	results := map[string]map[string]string{}
	var names []string
	for _, line := range lines(t, weird+"results.txt") {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
		results[name] = direct.ask("tools/call", fmt.Sprintf(`"name":%q,"arguments":{}`, name))
	}
	if len(names) < 15 || len(tools) < 15 {
		t.Fatalf("%d shapes of answers, %d tools", len(names), len(tools))
	}
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			k := talk(t, through, era)
			listed := k.list()
			for name, tool := range tools {
				got := listed[name]
				switch why := documentedTools[strings.Trim(name, `"`)]; {
				case why.gone && got == nil:
				case why.gone:
					t.Errorf("%s is listed", name)
				case got == nil:
					t.Errorf("%s is not listed", name)
				default:
					check(t, name, differences(tool, got), why.differ(era))
				}
			}
			// The other way: the server receives what was sent, down to its spelling.
			got := members(t, members(t, k.ask("tools/call", `"name":"params","arguments":`+spelled)["result"])["structuredContent"])
			if sent := members(t, members(t, got["line"])["params"]); sent["arguments"] != spelled {
				t.Errorf("the server received\n%s\nof\n%s", sent["arguments"], spelled)
			}
			for name := range listed {
				if tools[name] == nil {
					t.Errorf("%s is listed, and is no tool of the server", name)
				}
			}
			for _, name := range names {
				if documentedTools[name].gone {
					continue
				}
				got := k.ask("tools/call", fmt.Sprintf(`"name":%q,"arguments":{}`, name))
				check(t, name+"'s answer", answerDifferences(t, era, results[name], got), documentedAnswers[name].differ(era))
			}
		})
	}
}

// answerDifferences compares two answers and what lies in their results or errors. In
// the stateless revision a result has two members of the protocol's more.
func answerDifferences(t *testing.T, era string, direct, through map[string]string) []string {
	t.Helper()
	var out []string
	for _, member := range []string{"result", "error"} {
		d, b := direct[member], through[member]
		if d == "" || b == "" {
			if d != b {
				out = append(out, fmt.Sprintf("%s: direct %q, through %q", member, d, b))
			}
			continue
		}
		dm, bm := members(t, d), members(t, b)
		if era == modern && member == "result" {
			if _, own := dm["resultType"]; !own && bm["resultType"] == `"complete"` {
				delete(bm, "resultType")
			}
			if meta := bm["_meta"]; meta != "" {
				mm := members(t, meta)
				if !strings.Contains(mm["io.modelcontextprotocol/serverInfo"], `"postern"`) {
					out = append(out, "the stateless revision's serverInfo is missing")
				}
				delete(mm, "io.modelcontextprotocol/serverInfo")
				if bm["_meta"] = object(mm); len(mm) == 0 {
					delete(bm, "_meta")
				}
			}
			if own := dm["_meta"]; own != "" {
				dm["_meta"] = object(members(t, own))
			}
		}
		out = append(out, differences(dm, bm)...)
	}
	return out
}

// object writes members in the order of their names.
func object(m map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%q:%s,", name, m[name])
	}
	return b.String()
}

// documented says how something differs through the bridge, and for whom.
type documented struct {
	gone   bool     // it is not there at all
	legacy []string // the members that differ for a runtime with a handshake
	modern []string // and for one without
}

func (d documented) differ(era string) []string {
	if era == modern {
		return d.modern
	}
	return d.legacy
}

// documentedTools are the definitions that are changed, or kept from the model.
var documentedTools = map[string]documented{
	"rich.tool/v1": {gone: true},                                           // its name is kept out
	"app_only":     {gone: true},                                           // for an app's page
	"out_array":    {legacy: []string{"outputSchema"}},                     // older clients refuse the whole list over it
	"out_anyof":    {legacy: []string{"outputSchema"}},                     // the same
	"out_notype":   {legacy: []string{"outputSchema"}},                     // the same
	"bad_icon":     {legacy: []string{"icons"}, modern: []string{"icons"}}, // addresses that nobody may be led to
}

// documentedAnswers are the answers that are changed: what promises the runtime more
// than the bridge can keep is replaced by a refusal.
var documentedAnswers = map[string]documented{
	"task":           {modern: []string{"_meta", "content", "isError", "resultType", "task"}},
	"input_required": {modern: []string{"_meta", "content", "isError", "resultType", "inputRequests", "requestState"}},
}

// check compares the members that differ with those that may.
func check(t *testing.T, what string, found, allowed []string) {
	t.Helper()
	left := slices.Clone(allowed)
	for _, f := range found {
		name := strings.FieldsFunc(f, func(r rune) bool { return r == ' ' || r == '\n' || r == ':' })[0]
		if i := slices.Index(left, name); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		t.Errorf("%s: %s", what, f)
	}
	for _, name := range left {
		t.Errorf("%s: %s does not differ, and is said to", what, name)
	}
}

// The published servers list the same tools directly and through the bridge, in each
// revision, down to the bytes of every member.
func TestPublishedToolsAreTheSame(t *testing.T) {
	w := newWorld(t)
	for _, u := range []upstream{published(t, "server-everything", "stdio", "stdio"), published(t, "server-filesystem", "/tmp", "/workspace")} {
		through := w.behind(u)
		direct := talk(t, u.direct, "2025-11-25").list()
		if len(direct) < 10 {
			t.Fatalf("%s has %d tools", u.label, len(direct))
		}
		for _, era := range eras {
			t.Run(u.label+"/"+era, func(t *testing.T) {
				listed := talk(t, through, era).list()
				for name, tool := range direct {
					if listed[name] == nil {
						t.Errorf("%s is not listed", name)
						continue
					}
					check(t, name, differences(tool, listed[name]), nil)
				}
				if len(listed) != len(direct) {
					t.Errorf("%d tools through the bridge, %d directly", len(listed), len(direct))
				}
			})
		}
	}
}
