package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// What a server prints that is no message is passed over, counted, and shown: of the
// probe with the server, of what runs in ps.
func TestB4_SkippedOutputIsShown(t *testing.T) {
	w := newWorld(t)
	w.must("server", "add", "noisy", "--profile", "static", "--package", filepath.Join(built.fixtures, "noisy"), "--", "/package/noisy")
	if out := w.must("server", "show", "noisy"); !strings.Contains(out, "(output)") || !strings.Contains(out, "lines of its output are no messages") {
		t.Errorf("server show says\n%s", out)
	}
	if out := w.must("server", "show", "count"); strings.Contains(out, "(output)") {
		t.Errorf("a server without noise is shown as\n%s", out)
	}
	w.must("connection", "add", "a", "noisy")
	w.must("connection", "grant", "a", "noisy", "echo")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, tool := range []string{"noisy.echo", "echo"} {
		if got := r.call(tool, `{}`); got.outcome() != "ok" {
			t.Fatalf("%s: %s", tool, got.raw)
		}
	}
	skipped := func(label string) int64 {
		var ps api.PsResult
		if err := json.Unmarshal([]byte(w.must("--json", "ps")), &ps); err != nil {
			t.Fatal(err)
		}
		for _, row := range ps.Rows {
			if row.Label == label {
				return row.Skipped
			}
		}
		return -1
	}
	until(t, "ps counts the lines that were skipped", func() bool { return skipped("noisy") > 10 })
	if n := skipped("count"); n != 0 {
		t.Errorf("%d lines of a server without noise", n)
	}
	if out := w.must("ps"); !strings.Contains(out, "SKIPPED") {
		t.Errorf("ps says\n%s", out)
	}
}
