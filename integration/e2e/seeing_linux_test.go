package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// What an operator looks at when something is wrong, on real jails: top, logs and status.
func TestTopLogsAndStatusOfRealJails(t *testing.T) {
	w := newWorld(t)
	w.must("server", "add", "noisy", "--profile", "static", "--package", filepath.Join(built.fixtures, "noisy"), "--", "/package/noisy")
	w.must("connection", "add", "a", "noisy")
	w.must("connection", "grant", "a", "noisy", "echo")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("noisy.echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	var top struct {
		Rows []struct {
			api.PsRow
			CPU float64 `json:"cpu_percent"`
		} `json:"rows"`
	}
	if err := json.Unmarshal([]byte(w.must("--json", "top", "--once", "--interval", "250ms")), &top); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, row := range top.Rows {
		if row.Label == "noisy" {
			found = row.MemoryMax > 0 && row.Memory > 0 && row.Memory < row.MemoryMax && row.PidsMax > 0 && row.InFlight == 0 && row.CPU >= 0
		}
	}
	if !found {
		t.Errorf("top shows %+v", top.Rows)
	}

	// What of its bounds is used, as the kernel counts it.
	var quota api.QuotaResult
	out, errb, exit := w.CLI(aliceUID, "--json", "quota", "--project", "a")
	if err := json.Unmarshal([]byte(out), &quota); err != nil || exit != 0 || len(quota.Projects) != 1 {
		t.Fatalf("quota: %v %s%s", err, out, errb)
	}
	used := map[string]api.QuotaRow{}
	for _, q := range quota.Projects[0].Rows {
		if q.Label == "noisy" || q.Label == "" {
			used[q.What] = q
		}
	}
	if m := used["memory, with its /tmp"]; m.Used <= 0 || m.Most != 256<<20 || m.SetBy != "profile static" {
		t.Errorf("memory: %+v", m)
	}
	if p := used["processes and threads"]; p.Used <= 0 || p.Most != 64 {
		t.Errorf("processes: %+v", p)
	}
	if s := used["sessions"]; s.Used != 1 || used["granted items"].Used != 1 {
		t.Errorf("quota says %+v", quota)
	}

	// The owner reads what it wrote; root hears that it runs, and nothing of it.
	until(t, "its stderr has come", func() bool {
		out, errb, exit := w.CLI(aliceUID, "logs", "a", "noisy", "--lines", "1")
		if exit != 0 {
			t.Fatal(errb)
		}
		return strings.HasPrefix(out, "== noisy jal_") && strings.HasSuffix(out, "banner banner \n")
	})
	if out := w.must("logs", "a", "noisy"); strings.Contains(out, "banner") || !strings.Contains(out, "running (not shown: it may tell what calls were about") {
		t.Errorf("root reads\n%s", out)
	}
	if out := w.must("status"); !strings.Contains(out, "serving") || !strings.Contains(out, "1 completed") {
		t.Errorf("status says\n%s", out)
	}
	if out, _, exit := w.CLI(aliceUID, "status"); exit != 0 || !strings.Contains(out, "serving") || strings.Contains(out, "calls admitted") {
		t.Errorf("to an owner status says\n%s", out)
	}
}
