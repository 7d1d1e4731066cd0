package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// published registers the server that npm has under @modelcontextprotocol/server-<label>,
// and has project a use it. It returns what would run it directly.
func (w *world) published(label string, args ...string) (node, script string) {
	w.t.Helper()
	modules, err := rig.NPM(built.repo, filepath.Join(built.repo, "out"))
	if err != nil {
		w.t.Fatal(err)
	}
	if node, err = rig.Node(); err != nil {
		w.t.Fatal(err)
	}
	script = "node_modules/@modelcontextprotocol/server-" + label + "/dist/index.js"
	w.must(append([]string{"server", "add", label, "--profile", "node", "--package", modules, "--", node, "/package/" + script}, args...)...)
	w.must("connection", "add", "a", label)
	return node, filepath.Join(modules, script)
}

// The published servers, in their jails: every tool they list directly comes
// through the bridge member by member, and a call of each works.
func TestPublishedServersComeThroughWhole(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		label      string
		args       []string
		atLeast    int
		call, with string
		says       string
	}{
		{"filesystem", []string{"/workspace"}, 14, "read_text_file", `{"path":"/workspace/secret.txt"}`, "the secret of a"},
		{"memory", nil, 9, "read_graph", `{}`, "entities"},
		{"everything", []string{"stdio"}, 10, "get-sum", `{"a":2,"b":40}`, "42"},
	} {
		t.Run(c.label, func(t *testing.T) {
			node, script := w.published(c.label, c.args...)
			var cat api.CatalogueResult
			if err := w.Call(api.ServerCatalogue, api.Selected{Selector: c.label}, &cat); err != nil {
				t.Fatal(err)
			}
			names := []string{}
			for _, tool := range cat.Tools {
				if tool.State == "quarantined" {
					t.Errorf("%s is quarantined: %s", tool.Tool, tool.Reason)
				}
				names = append(names, tool.Tool)
			}
			if len(names) < c.atLeast {
				t.Fatalf("%d tools: %v", len(names), names)
			}
			if err := w.Call(api.ConnectionGrant, api.ConnectionParams{Project: "a", Server: c.label, Tools: names, Tier: "reversible"}, nil); err != nil {
				t.Fatal(err)
			}
			tok, _ := w.token(w.a, runtimeUID)
			r := w.connect(w.a, runtimeUID, tok).initialize()
			through := listed(t, r.ask("tools/list", `{}`).raw)
			args := append([]string{script}, c.args...)
			if c.label == "filesystem" {
				args[1] = w.a.workspace
			}
			for name, direct := range direct(t, node, args...) {
				// A name that the counting server has already is served by connection and name.
				if renamed, ok := through[c.label+"."+name]; ok {
					through[name] = renamed
					renamed["name"] = name
				}
				if !reflect.DeepEqual(through[name], direct) {
					t.Errorf("%s\ndirect:  %v\nthrough: %v", name, direct, through[name])
				}
			}
			got := r.call(c.call, c.with)
			if got.outcome() != "ok" || !strings.Contains(got.raw, c.says) {
				t.Errorf("%s: %s", c.call, got.raw)
			}
		})
	}
}

// listed reads the tools of a tools/list answer, numbers as they were written.
func listed(t *testing.T, raw string) map[string]map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var m struct {
		Result struct {
			Tools []map[string]any `json:"tools"`
		} `json:"result"`
	}
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	out := map[string]map[string]any{}
	for _, tool := range m.Result.Tools {
		out[fmt.Sprint(tool["name"])] = tool
	}
	return out
}

// direct asks a server without Postern.
func direct(t *testing.T, name string, args ...string) map[string]map[string]any {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env, c.Dir = []string{"PATH=/usr/bin", "HOME=/tmp"}, "/"
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`,
	} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%s ended: %v %s", args[0], err, stderr.String())
		}
		if strings.Contains(line, `"id":2`) {
			return listed(t, line)
		}
	}
}
