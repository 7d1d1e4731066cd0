package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A server whose program cannot be executed any more: everyone is told that it was not
// started, and nobody but root what was tried, whose path tells of the registration.
func TestU1_WhyALaunchFailedTellsNothingOfTheRegistration(t *testing.T) {
	const planted = "planted-of-the-registration"
	w := newWorld(t)
	for name, uid := range map[string]string{"member": "61003", "viewer": "61004"} {
		w.must("account", "add", name, "--uid", uid)
		w.must("project", "member", "add", "a", name, "--role", name)
	}
	pkg := filepath.Join(w.Dir, "pkg")
	raw, err := os.ReadFile(filepath.Join(built.fixtures, "count", "count"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(pkg, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pkg, planted), raw, 0o755); err != nil {
		t.Fatal(err)
	}
	w.must("server", "add", "broken", "--profile", "static", "--package", pkg, "--", "/package/"+planted, planted+"-argument")
	w.must("connection", "add", "a", "broken")
	w.must("connection", "grant", "a", "broken", "env")
	w.must("connection", "disable", "a", "count")
	tok, task := w.token(w.a, runtimeUID)
	copies, _ := filepath.Glob(filepath.Join(w.RootDir, "pkg", "*", planted))
	if len(copies) != 1 {
		t.Fatalf("copies: %v", copies)
	}
	if err := os.Chmod(copies[0], 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, name := range r.tools() {
		refused := r.call(name, `{}`)
		if refused.outcome() == "ok" {
			t.Fatalf("%s was called", name)
		}
		if strings.Contains(refused.raw, planted) {
			t.Errorf("the runtime is told: %s", refused.raw)
		}
	}
	w.CLI(0, "server", "probe", "broken") // fails in the same way, and its reason is kept with the catalogue
	until(t, "the twin: root's log says what was tried", func() bool { return strings.Contains(w.Log.String(), planted) })
	asker := api.AskerParams{Task: task}
	connection := api.ConnectionParams{Project: "a", Server: "broken"}
	reasons := 0
	for _, uid := range []int{aliceUID, 61003, 61004, bobUID, hostUID, runtimeUID} {
		for action, params := range map[api.Action]any{
			api.Ps: api.ProjectParams{}, api.ConnectionShow: connection, api.ConnectionList: api.ProjectParams{Project: "a"}, api.ProjectShow: api.Selected{Selector: "a"},
			api.ServerCatalogue: api.Selected{Selector: "broken"}, api.Explain: api.ExplainParams{AskerParams: asker, Tool: "env"}, api.Capabilities: api.CapabilitiesParams{AskerParams: asker},
			api.Activity: api.ActivityParams{Project: "a"}, api.TaskShow: api.TaskParams{Task: task}, api.Status: nil,
		} {
			got := w.asUID(uid, action, params)
			if strings.Contains(got, planted) {
				t.Errorf("%s as %d shows it: %s", action, uid, got)
			}
			if strings.Contains(got, "was not started") || strings.Contains(got, "server_unavailable") || strings.Contains(got, "server cannot be called") {
				reasons++
			}
		}
	}
	if reasons == 0 {
		t.Error("the twin: nobody is told that it was not started")
	}
	if out := w.must("--json", "server", "show", "broken"); !strings.Contains(out, planted) {
		t.Error("the twin: root does not see the registration")
	}
}
