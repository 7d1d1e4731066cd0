package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientWait bounds one run of a client.
const clientWait = 2 * time.Minute

// runNode runs a program on the pinned Node with a home of its own and returns what it
// wrote to stdout.
func runNode(t *testing.T, home string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runIn(t, home, append([]string{built.node}, args...))
}

func runIn(t *testing.T, home string, argv []string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clientWait)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr, c.Dir, c.WaitDelay = &out, &errb, home, 5*time.Second
	c.Env = []string{"PATH=" + filepath.Dir(built.node) + ":/usr/bin:/bin", "HOME=" + home, "XDG_CONFIG_HOME=" + home, "MCP_INSPECTOR_SECRET_STORE=memory", "TERM=dumb",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "GEMINI_TELEMETRY_ENABLED=false"}
	err = c.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.String(), errb.String(), err
}

func (w *world) clients(path string) string {
	return filepath.Join(built.clients, "node_modules", path)
}

// The TypeScript SDKs, in every way in which they choose an era.
func TestTheTypeScriptClientsListAndCall(t *testing.T) {
	w := newWorld(t)
	through := w.behind(fixture("everything"))
	script := filepath.Join(built.clients, "client.mjs") // beside node_modules, where it finds its packages
	b, err := os.ReadFile("testdata/client.mjs")
	if err == nil {
		err = os.WriteFile(script, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for mode, version := range map[string]string{"v1": "2025-11-25", "legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"} {
		t.Run(mode, func(t *testing.T) {
			args, err := json.Marshal(through)
			if err != nil {
				t.Fatal(err)
			}
			out, errb, err := runNode(t, t.TempDir(), script, mode, string(args))
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errb)
			}
			var got struct {
				Tools   []string `json:"tools"`
				Text    string   `json:"text"`
				Version string   `json:"version"`
				Unknown string   `json:"unknown"`
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if len(got.Tools) < 10 || got.Version != version || !strings.Contains(got.Text, "simple text") || !strings.Contains(got.Unknown, "Unknown tool") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The inspector's command line, in both eras.
func TestTheInspectorListsAndCalls(t *testing.T) {
	w := newWorld(t)
	through := w.behind(fixture("everything"))
	for _, era := range []string{"legacy", "modern", "auto"} {
		t.Run(era, func(t *testing.T) {
			home := t.TempDir()
			config := filepath.Join(home, "mcp.json")
			b, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"postern": map[string]any{"command": through[0], "args": through[1:], "protocolEra": era}}})
			if err == nil {
				err = os.WriteFile(config, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			ask := func(args ...string) string {
				t.Helper()
				out, errb, err := runNode(t, home, append([]string{w.clients("@modelcontextprotocol/inspector/" + inspectorMain(t)), "--cli", "--config", config, "--server", "postern", "--protocol-era", era, "--format", "json", "-q"}, args...)...)
				if err != nil {
					t.Fatalf("%v\n%s%s", err, out, errb)
				}
				return out
			}
			if out := ask("--method", "tools/list"); !strings.Contains(out, `"test_simple_text"`) || !strings.Contains(out, `"inputSchema"`) {
				t.Errorf("tools/list: %s", out)
			}
			if out := ask("--method", "tools/call", "--tool-name", "test_simple_text", "--tool-args-json", "{}"); !strings.Contains(out, "simple text") {
				t.Errorf("tools/call: %s", out)
			}
		})
	}
}

// inspectorMain is the program that the inspector's package names.
func inspectorMain(t *testing.T) string {
	t.Helper()
	var p struct {
		Bin map[string]string `json:"bin"`
	}
	b, err := os.ReadFile(filepath.Join(built.clients, "node_modules/@modelcontextprotocol/inspector/package.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Bin["mcp-inspector"] == "" {
		t.Fatalf("the inspector names no program: %v", err)
	}
	return p.Bin["mcp-inspector"]
}

// What people run says that the server is healthy, and says of one that refuses them
// that it is not.
func TestTheRuntimesFindTheServerHealthy(t *testing.T) {
	w := newWorld(t)
	through := w.behind(fixture("everything"))
	refused := through[4:] // as root, who is no member of the project
	servers := map[string]any{
		"postern": map[string]any{"command": through[0], "args": through[1:]},
		"refused": map[string]any{"command": refused[0], "args": refused[1:]},
	}
	for name, c := range map[string]struct {
		argv   []string
		config string
		with   map[string]any
		good   string
	}{
		"claude": {argv: []string{w.clients("@anthropic-ai/claude-code-linux-x64/claude"), "mcp", "list"}, config: ".claude.json", good: "Connected"},
		"gemini": {argv: []string{built.node, w.clients("@google/gemini-cli/bundle/gemini.js"), "mcp", "list"}, config: ".gemini/settings.json", good: "Connected",
			with: map[string]any{"security": map[string]any{"folderTrust": map[string]any{"enabled": false}}}},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			path := filepath.Join(home, c.config)
			doc := map[string]any{"mcpServers": servers}
			for k, v := range c.with {
				doc[k] = v
			}
			b, err := json.Marshal(doc)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(path), 0o700)
			}
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, errb, err := runIn(t, home, c.argv)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errb)
			}
			said := map[string]string{}
			for line := range strings.Lines(out + errb) {
				for _, s := range []string{"postern", "refused"} {
					if strings.Contains(line, s+":") {
						said[s] = line
					}
				}
			}
			if !strings.Contains(said["postern"], c.good) {
				t.Errorf("of the server: %q\n%s%s", said["postern"], out, errb)
			}
			if said["refused"] == "" || strings.Contains(said["refused"], " "+c.good) {
				t.Errorf("of the one that refuses: %q\n%s%s", said["refused"], out, errb)
			}
		})
	}
}
