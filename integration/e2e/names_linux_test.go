package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A protected name that root has opened for a project can be written by its servers,
// and no other name, no other project's, and not in a task's own directory. Closing it
// takes effect with the command: what ran is ended.
func TestOpenNames_RootOpensThemForOneProject(t *testing.T) {
	w := newWorld(t)
	w.perTask()
	w.must("connection", "grant", "b", "count", "write")
	w.must("connection", "grant", "a", "count", "write")
	for _, p := range []project{w.a, w.b} {
		for _, dir := range []string{".git", ".git/hooks"} {
			path := filepath.Join(p.workspace, dir)
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, p.owner, p.owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	tokA, _ := w.token(w.a, runtimeUID)
	tokB, _ := w.token(w.b, runtimeUID)
	a, b := w.connect(w.a, runtimeUID, tokA).initialize(), w.connect(w.b, runtimeUID, tokB).initialize()
	write := func(r *runtime, name string, want bool) {
		t.Helper()
		got := r.call("write", `{"path":"/workspace/`+name+`","text":"x"}`)
		switch text := got.text(); {
		case want && got.outcome() != "ok":
			t.Errorf("%s: %s", name, got.raw)
		case !want && (got.outcome() != "isError" || !strings.Contains(text, "read-only file system") && !strings.Contains(text, "permission denied")):
			t.Errorf("%s: %s, not the kernel's refusal", name, got.raw)
		}
	}
	const hook = ".git/hooks/pre-commit"
	write(a, hook, false)
	write(a, "plain", true)

	before := w.jailPID("server")
	audit, _ := os.ReadFile(filepath.Join(w.RootDir, "audit.log"))
	w.must("project", "set", "a", "--open-name", ".git/hooks", "--open-name", ".envrc")
	if err := os.Remove(filepath.Join(w.a.workspace, "plain")); err != nil {
		t.Fatal(err)
	}
	write(a, hook, true)
	write(a, ".envrc", true)
	for _, name := range []string{".git/config", ".mcp.json/x", ".claude/settings.json", ".git/info/exclude", ".vscode/tasks.json"} {
		write(a, name, false)
	}
	write(b, hook, false)
	write(b, "plain", true)
	if got := a.sys("write", at("/workspace/.envrc")); !strings.HasPrefix(got, "refused: ") {
		t.Errorf("in a task's own directory: %s", got)
	}
	if now := w.jailPID("server"); now == before {
		t.Error("the instance that ran before is still there")
	}

	// It is shown, and recorded.
	var shown api.ProjectShowResult
	if err := json.Unmarshal([]byte(w.must("project", "show", "a", "--json")), &shown); err != nil || !slices.Equal(shown.OpenNames, []string{".envrc", ".git/hooks"}) {
		t.Errorf("project show --json: %v %v", shown.OpenNames, err)
	}
	if out := w.must("project", "show", "a"); !strings.Contains(out, ".envrc,.git/hooks") {
		t.Errorf("project show:\n%s", out)
	}
	now, _ := os.ReadFile(filepath.Join(w.RootDir, "audit.log"))
	if line := string(now[len(audit):]); strings.Count(line, "\n") != 1 || !strings.Contains(line, "project.set") || !strings.Contains(line, ".git/hooks") {
		t.Errorf("the audit: %q", line)
	}
	for _, uid := range []int{aliceUID, runtimeUID, hostUID} {
		if _, _, exit := w.CLI(uid, "project", "set", "a", "--open-name", ".mcp.json"); exit != 77 {
			t.Errorf("uid %d opens a name: exit %d", uid, exit)
		}
	}
	if _, errb, exit := w.CLI(0, "project", "set", "a", "--open-name", "src"); exit != 2 && exit != 65 || !strings.Contains(errb, ".git/hooks") {
		t.Errorf("a name that is not protected: exit %d %s", exit, errb)
	}

	// Closed: the content stays, and nobody writes it.
	w.must("project", "set", "a", "--close-name", ".git/hooks")
	write(a, hook, false)
	write(a, ".git/hooks/other", false)
	write(a, ".envrc", true)
	if raw, err := os.ReadFile(filepath.Join(w.a.workspace, hook)); err != nil || string(raw) != "x" {
		t.Errorf("the hook: %q %v", raw, err)
	}
	// And it is a fact: it outlasts posternd.
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	// An ordinary stop loses no outcome.
	for _, row := range w.records(w.a) {
		if row.Tool == "write" && row.State != "completed" && row.State != "failed" {
			t.Errorf("after the stop: %+v", row)
		}
	}
	tokA, _ = w.token(w.a, runtimeUID)
	a = w.connect(w.a, runtimeUID, tokA).initialize()
	write(a, ".envrc", true)
	write(a, hook, false)
}
