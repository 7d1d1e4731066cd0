package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// given are the newest record's arguments, as a user sees them.
func (w *world) given(uid int) (value, not string) {
	w.t.Helper()
	out, errb, exit := w.CLI(uid, "--json", "activity", "--arguments", "--limit", "1")
	var r api.ActivityResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || exit != 0 || len(r.Rows) != 1 {
		w.t.Fatalf("activity: exit %d, %v\n%s%s", exit, err, out, errb)
	}
	return string(r.Rows[0].Arguments), r.Rows[0].NotRecorded
}

// Off, on and off again on a live session; the server has its arguments to the byte
// whatever is recorded of them.
func TestE1_ArgumentsAreRecordedByRootsWordWithoutWhatIsSecret(t *testing.T) {
	w := newWorld(t)
	w.must("server", "add", "vault", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--secret-field", "pin", "--secret-field", "/auth/key", "--", "/package/count")
	w.must("connection", "add", "a", "vault")
	w.must("connection", "grant", "a", "vault", "echo")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	args := `{"x":1,"pin":"s3cret","auth":[{"key":"s3cret","user":"u"}],"Api-Key":"s3cret"}`
	const masked = `{"x":1,"pin":"[masked]","auth":[{"key":"[masked]","user":"u"}],"Api-Key":"[masked]"}`
	call := func() {
		t.Helper()
		if got := r.call("vault.echo", args); got.outcome() != "ok" {
			t.Fatalf("%.300s", got.raw)
		}
	}
	const off = "the project records none (project set --record-arguments)"
	call()
	if value, not := w.given(aliceUID); value != "" || not != off {
		t.Errorf("off: %s %s", value, not)
	}
	for _, uid := range []int{aliceUID, hostUID, runtimeUID} {
		if _, _, exit := w.CLI(uid, "project", "set", "a", "--record-arguments", "on"); exit == 0 {
			t.Errorf("uid %d switches it on", uid)
		}
	}
	w.must("project", "set", "a", "--record-arguments", "on")
	call()
	if value, not := w.given(aliceUID); value != masked || not != "" {
		t.Errorf("on: %s %s", value, not)
	}
	for who, uid := range map[string]int{"root": 0, "the host": hostUID} {
		if out, errb, exit := w.CLI(uid, "activity", "--arguments"); exit == 0 || strings.Contains(out+errb, "masked") {
			t.Errorf("%s sees arguments: exit %d, %s", who, exit, out)
		}
	}
	if out, _, exit := w.CLI(aliceUID, "activity", "export", "--arguments"); exit != 0 || strings.Count(out, `"arguments":`+masked) != 1 {
		t.Errorf("exit %d, %s", exit, out)
	}
	w.must("project", "set", "a", "--record-arguments", "off")
	call()
	if value, not := w.given(aliceUID); value != "" || not != off {
		t.Errorf("off again: %s %s", value, not)
	}
	// No file of Postern's holds the secret; the server had it each time.
	for _, dir := range []string{w.StateDir, w.RootDir} {
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), "s3cret") {
					t.Errorf("%s holds a secret", path)
				}
			}
			return nil
		})
	}
	if n := strings.Count(strings.Join(w.calls(w.a), "\n"), args); n != 3 {
		t.Errorf("calls: %q", w.calls(w.a))
	}
}
