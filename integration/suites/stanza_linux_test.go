package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"postern/integration/rig"
)

// home makes a directory of the person's own with one file in it.
func (w *world) home(t *testing.T, name, file, text string) string {
	t.Helper()
	home := filepath.Join(w.Dir, "home-"+name)
	path := filepath.Join(home, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for p := path; p != w.Dir; p = filepath.Dir(p) {
		if err := os.Chown(p, personUID, personUID); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// asPerson is argv as the person's. A clone may lie where only root can go, so the
// pinned clients are mounted, in a namespace of its own, where the person reaches them.
func (w *world) asPerson(t *testing.T, argv ...string) []string {
	t.Helper()
	at := filepath.Join(w.Dir, "clients")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(personUID)
	for i, word := range argv {
		argv[i] = strings.ReplaceAll(word, built.clients, at)
	}
	return append([]string{"/usr/bin/unshare", "--mount", "/bin/sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", built.clients, at,
		"/usr/bin/setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"}, argv...)
}

// What client-config prints is written, as it is, where it says, and the client itself
// reads it: claude and gemini start the server as the person, codex lists it.
func TestWhatClientConfigPrintsIsReadByTheClients(t *testing.T) {
	w := newWorld(t)
	through := w.behind(fixture("count"))
	project := through[len(through)-1]
	for _, c := range []struct {
		client, file string
		argv         []string
		want         []string
	}{
		{"claude", ".claude.json", []string{w.clients("@anthropic-ai/claude-code-linux-x64/claude"), "mcp", "list"}, []string{"postern:", "Connected"}},
		{"gemini", ".gemini/settings.json", []string{built.node, w.clients("@google/gemini-cli/bundle/gemini.js"), "mcp", "list"}, []string{"postern:", "Connected"}},
		{"codex", ".codex/config.toml", []string{w.clients("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"), "mcp", "list"},
			[]string{filepath.Join(w.Bin, "postern"), "connect --project " + project, "enabled"}},
	} {
		t.Run(c.client, func(t *testing.T) {
			text, where, exit := w.CLI(personUID, "client-config", "--project", "count", "--for", c.client)
			if exit != 0 || !strings.Contains(where, "~/"+c.file) {
				t.Fatalf("exit %d, for %q", exit, where)
			}
			home := w.home(t, c.client, c.file, text)
			if c.client == "gemini" { // its user has said that the folder is trusted
				w.home(t, c.client, ".gemini/trustedFolders.json", `{"`+home+`":"TRUST_FOLDER"}`)
			}
			out, errb, err := runIn(t, home, w.asPerson(t, c.argv...))
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errb)
			}
			for line := range strings.Lines(out + errb) {
				found := strings.Contains(line, "postern")
				for _, s := range c.want {
					found = found && strings.Contains(line, s)
				}
				if found {
					return
				}
			}
			t.Errorf("it does not say %q:\n%s%s", c.want, out, errb)
		})
	}
	// The twin: the same stanza, for a project that does not let a person connect.
	t.Run("refused", func(t *testing.T) {
		w.must("project", "set", "count", "--person-bind", "off")
		text, errb, _ := w.CLI(personUID, "client-config", "--project", "count", "--for", "claude")
		if !strings.Contains(errb, "person bind is off") {
			t.Errorf("nothing is said beforehand: %q", errb)
		}
		home := w.home(t, "refused", ".claude.json", text)
		out, errb, err := runIn(t, home, w.asPerson(t, w.clients("@anthropic-ai/claude-code-linux-x64/claude"), "mcp", "list"))
		if err != nil || !strings.Contains(out, "postern:") || strings.Contains(out, "Connected") {
			t.Errorf("%v\n%s%s", err, out, errb)
		}
	})
}

// server is one entry of a client's file, with every member that its documents name for
// a server that is started as a command.
type server struct {
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	EnvFile string            `json:"envFile"`
}

// Two clients without a command line of that kind: what is printed has the shape that
// their documents give, with no member that they do not know, and its command serves.
func TestWhatClientConfigPrintsForEditorsHasTheirShape(t *testing.T) {
	w := newWorld(t)
	w.behind(fixture("count"))
	read := func(client string, into any) {
		t.Helper()
		text, errb, exit := w.CLI(personUID, "client-config", "--project", "count", "--for", client)
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(into); exit != 0 || err != nil {
			t.Fatalf("exit %d, %v: %s%s", exit, err, text, errb)
		}
	}
	var cursor struct {
		Servers map[string]server `json:"mcpServers"`
	}
	read("cursor", &cursor)
	var vscode struct {
		Servers map[string]server `json:"servers"`
		Inputs  []json.RawMessage `json:"inputs"`
	}
	read("vscode", &vscode)
	if vscode.Servers["postern"].Type != "stdio" {
		t.Errorf("VS Code wants a type: %+v", vscode)
	}
	for client, s := range map[string]server{"cursor": cursor.Servers["postern"], "vscode": vscode.Servers["postern"]} {
		c := exec.Command(s.Command, s.Args...)
		c.SysProcAttr, c.Dir, c.Env = rig.As(personUID), "/", []string{}
		c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + client + `","version":"1"}}}` + "\n")
		out, err := c.Output()
		if err != nil || !bytes.Contains(out, []byte(`"serverInfo"`)) {
			t.Errorf("%s: %v: %s", client, err, out)
		}
	}
}
