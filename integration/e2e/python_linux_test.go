package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/supervisor/api"
)

// pythonServer answers what it was asked and where it was imported from.
const pythonServer = `import json, sys
def answer(i, result):
    print(json.dumps({"jsonrpc": "2.0", "id": i, "result": result}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        answer(m["id"], {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "py", "version": "1"}})
    elif m.get("method") == "tools/list":
        answer(m["id"], {"tools": [{"name": "where", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]})
    elif m.get("method") == "tools/call":
        import deep.linked
        answer(m["id"], {"content": [{"type": "text", "text": " ".join([sys.prefix, __file__, deep.linked.__file__, str(deep.linked.VALUE)])}]})
    elif "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
`

// TestP3_AVirtualEnvironmentOfPythonIsAPackage: as python3 -m venv makes it, with its
// links and ten thousand files, it is copied and runs; a link that leads elsewhere is
// still none.
func TestP3_AVirtualEnvironmentOfPythonIsAPackage(t *testing.T) {
	w := newWorld(t)
	venv := filepath.Join(w.Dir, "venv")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", "--symlinks", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	site, err := filepath.Glob(filepath.Join(venv, "lib/python3.*/site-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("%v, %v", site, err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(site[0], "py_server/__main__.py"), pythonServer)
	write(filepath.Join(site[0], "store/linked.py"), "VALUE = 42\n")
	if err := os.Symlink("store", filepath.Join(site[0], "deep")); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		write(filepath.Join(site[0], fmt.Sprintf("many/p%d/m%d.py", i/100, i)), fmt.Sprintln("N =", i))
	}
	command := []string{"--profile", "python", "--package", venv, "--", "/package/bin/python", "-m", "py_server"}
	begun := time.Now()
	w.must(append([]string{"server", "add", "py"}, command...)...)
	t.Logf("registered and probed in %v", time.Since(begun).Round(time.Millisecond))
	w.must("connection", "add", "a", "py")
	w.must("connection", "grant", "a", "py", "where")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	got := r.call("where", `{}`)
	if text := got.text(); !strings.HasPrefix(text, "/package /package/lib/python3.") || !strings.HasSuffix(text, "/site-packages/deep/linked.py 42") {
		t.Errorf("%s", got.raw)
	}
	var s api.ServerResult
	if err := w.Call(api.ServerShow, api.Selected{Selector: "py"}, &s); err != nil || len(s.Recorded) != 1 || !strings.HasPrefix(s.Recorded[0], "/usr/bin/python3 sha256:") {
		t.Errorf("the interpreter is recorded as %q, %v", s.Recorded, err)
	}
	if err := os.RemoveAll(filepath.Join(site[0], "many")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to string }{{"lib/x", "/etc/passwd"}, {"lib/x", "/usr/bin/env"}, {"bin/x", "/usr/bin/../bin/python3"}, {"bin/x", "/"}} {
		link := filepath.Join(venv, c.from)
		if err := os.Symlink(c.to, link); err != nil {
			t.Fatal(err)
		}
		if _, errb, exit := w.CLI(0, append([]string{"server", "update", "py", "--dry-run"}, command...)...); exit != 65 || !strings.Contains(errb, "neither in the package nor executed by the profile") {
			t.Errorf("a link to %s: %d %s", c.to, exit, errb)
		}
		os.Remove(link)
	}
	w.must(append([]string{"server", "update", "py", "--dry-run"}, command...)...)
}
