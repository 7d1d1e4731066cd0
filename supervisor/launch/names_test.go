package launch

import (
	"slices"
	"testing"

	"postern/ids"
	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// What is open is a root fact: only protected names can be opened, each once, and
// whatever is not open stays protected.
func TestOpenNames_OnlyProtectedOnesAndEachOnce(t *testing.T) {
	f := Facts{Projects: []Project{{Project: order.Project{ID: newID[ids.Project](t0), Label: "demo"}}, {Project: order.Project{ID: newID[ids.Project](t0), Label: "other"}}}}
	set := func(open, closed []string, want []string, code refusal.Code) {
		t.Helper()
		g, p, refused := f.setProject(api.ProjectSetParams{Project: "demo", OpenNames: open, CloseNames: closed})
		if code != "" {
			if refused == nil || refused.Code != code {
				t.Errorf("%v, %v: %v", open, closed, refused)
			}
			return
		}
		if refused != nil || !slices.Equal(p.OpenNames, want) || len(g.Projects[1].OpenNames) != 0 || g.Version != f.Version+1 {
			t.Fatalf("%v, %v: %v %v", open, closed, p.OpenNames, refused)
		}
		for _, name := range jail.DefaultProtect() {
			if slices.Contains(protectedIn(p), name) == slices.Contains(want, name) {
				t.Errorf("with %v open, %s is wrong", want, name)
			}
		}
		f = g
	}
	set([]string{".git/hooks"}, nil, []string{".git/hooks"}, "")
	set([]string{".envrc", ".git/hooks", ".envrc"}, nil, []string{".envrc", ".git/hooks"}, "")
	for _, name := range []string{"", ".", "..", ".git", ".git/hooks/pre-commit", "/etc", "src", ".GIT/hooks", ".git/hooks/", ".envrc\x00"} {
		set([]string{name}, nil, nil, refusal.BadRequest)
		set(nil, []string{name}, nil, refusal.BadRequest)
	}
	set([]string{".mcp.json"}, []string{".mcp.json"}, nil, refusal.BadRequest)
	set([]string{".mcp.json"}, []string{".envrc"}, []string{".git/hooks", ".mcp.json"}, "")
	set(nil, []string{".git/hooks", ".mcp.json", ".vscode"}, nil, "")
	set(jail.DefaultProtect(), nil, slices.Sorted(slices.Values(jail.DefaultProtect())), "")
	if got := protectedIn(f.Projects[0]); got == nil || len(got) != 0 {
		t.Errorf("everything is open, and %v is protected", got)
	}
	if len(jail.DefaultProtect()) > maxOpenNames {
		t.Error("not every name can be opened")
	}
}
