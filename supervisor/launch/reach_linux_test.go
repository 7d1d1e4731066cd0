package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A workspace that its owner cannot get to is taken, for a jail is handed the directory
// itself, and said to be one wherever it is named.
func TestAWorkspaceThatItsOwnerCannotEnterIsRemarked(t *testing.T) {
	r := start(t, newConfig(t))
	const uid = 64421
	r.must(api.AccountAdd, api.AccountAddParams{Name: "ana", UIDs: []uint32{uid}})
	outer := filepath.Join(r.dir, "outer")
	if err := os.Mkdir(outer, 0o755); err != nil {
		t.Fatal(err)
	}
	make := func(name string) string {
		t.Helper()
		path := filepath.Join(outer, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := make("first"), make("second")
	mode := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	told := func(m map[string]any, at string) {
		t.Helper()
		text := fmt.Sprint(m["warnings"])
		if at == "" && m["warnings"] != nil || at != "" && !strings.Contains(text, at) {
			t.Errorf("want %q in %s", at, text)
		}
	}
	above := fmt.Sprintf("uid %d, cannot enter %q above it", uid, outer)
	dry := func(q *api.Request) { q.DryRun = true }
	add := api.ProjectAddParams{Label: "shop", Workspace: first, Owner: "ana"}
	mode(outer, 0o700) // of root's
	told(r.must(api.ProjectAdd, add, dry), above)
	mode(outer, 0o711) // to pass through is enough
	told(r.must(api.ProjectAdd, add, dry), "")
	mode(outer, 0o700)
	told(r.must(api.ProjectAdd, add), above)
	on := true
	set := api.ProjectSetParams{Project: "shop", PersonBind: &on}
	told(r.must(api.ProjectSet, set), above)
	told(r.must(api.ProjectMove, api.ProjectMoveParams{Project: "shop", Workspace: second}), above)
	mode(outer, 0o755)
	told(r.must(api.ProjectSet, set), "")
	mode(second, 0o600)
	told(r.must(api.ProjectSet, set), fmt.Sprintf("uid %d, cannot enter it", uid))
	mode(second, 0o700)
	told(r.must(api.ProjectMove, api.ProjectMoveParams{Project: "shop", Workspace: first}), "")
}
