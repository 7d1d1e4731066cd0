package registry

import (
	"fmt"
	"strings"
	"testing"

	"postern/policy/access"
)

// Each denial that denies nothing is told with its place; a denial of anything that
// exists is not.
func TestC082_ADenialThatMatchesNoToolIsTold(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, `[{"name":"read_file","inputSchema":{"type":"object"}}]`)
	root := *w.r.Root()
	p, mistakes := access.Parse([]byte("modes:\n  m:\n    denied:\n" +
		"      - read_file\n      - files/read_file\n      - files/*\n      - '*/read_file'\n      - bash\n      - move_file\n" +
		"      - purge_all\n      - mcp__files__read_file\n      - file/read_file\n      - nobody/*\n      - READ_FILE\n"))
	if len(mistakes) != 0 {
		t.Fatal(mistakes)
	}
	root.Access, root.AccessFile.Path = p, "/etc/postern/access.yaml"
	w.r.SetRoot(&root)
	got := w.r.Unmatched()
	for i, name := range []string{"purge_all", "mcp__files__read_file", "file/read_file", "nobody/*", "READ_FILE"} {
		want := fmt.Sprintf("/etc/postern/access.yaml:%d: modes.m.denied[%d]: %q matches no tool", i+10, i+6, name)
		if len(got) != 5 || !strings.HasPrefix(got[i], want) {
			t.Fatalf("%q, want %s", got, want)
		}
	}
	root.Access = nil
	if got := w.r.Unmatched(); len(got) != 0 {
		t.Errorf("without a policy: %q", got)
	}
}
