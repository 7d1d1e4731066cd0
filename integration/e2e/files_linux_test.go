package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"postern/bridge/wire"
	"postern/supervisor/api"
)

// png is what the fixture writes into a file of so many bytes.
func png(bytes int) string {
	head := "\x89PNG\r\n\x1a\n"
	return (head + strings.Repeat("x", max(0, bytes-len(head))))[:bytes]
}

// link is the content by which a result names a file.
func link(uri string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":"named"},{"type":"resource_link","name":"it","uri":%q}]}`, uri)
}

// oneArtifact is what became of the one thing that the newest call brought or named. The
// call itself has completed, whatever became of it, and the record says why there is none.
func (w *world) oneArtifact() api.ArtifactRow {
	w.t.Helper()
	rec := w.records(w.a)[0]
	x := w.artifacts(aliceUID, 1, "--call", rec.Call)[0]
	rec = w.records(w.a)[0]
	if rec.State != "completed" || (x.Missing == "") != (len(rec.Artifacts) == 1) || (x.Missing != "") != (len(rec.NotKept) == 1 && rec.NotKept[0] == x.Missing) {
		w.t.Errorf("%+v of %+v", x, rec)
	}
	return x
}

// A file that a result names in its server's own directory is an artifact when the call is
// over, whatever becomes of the file; what leads elsewhere, or is no file of one name, is
// none, and its result is none the worse.
func TestE4_AFileThatAResultNamesIsAnArtifact(t *testing.T) {
	w := newWorld(t)
	w.pictures()
	w.must("connection", "grant", "a", "pictures", "make", "links")
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()

	if got := r.call("make", `{"path":"/workspace/chart.png","bytes":70000}`); got.text() != "made" || !strings.Contains(got.raw, `"uri":"file:///workspace/chart.png"`) {
		t.Fatalf("%.300s", got.raw)
	}
	x := w.oneArtifact()
	want := png(70000)
	sum := sha256.Sum256([]byte(want))
	if x.Digest != hex.EncodeToString(sum[:]) || x.Size != 70000 || x.Type != "image/png" || x.Task != task || x.Project != w.a.id || x.Name != "file:///workspace/chart.png" {
		t.Errorf("%+v", x)
	}
	if err := os.WriteFile(filepath.Join(w.a.workspace, "chart.png"), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, exit := w.get(aliceUID, x.Artifact); exit != 0 || out != want {
		t.Errorf("exit %d, %d of %d bytes", exit, len(out), len(want))
	}
	for who, uid := range map[string]int{"another project's owner": bobUID, "the runtime": runtimeUID, "the host": hostUID, "root": 0} {
		if out, exit := w.get(uid, x.Artifact); exit == 0 || out != "" {
			t.Errorf("%s gets it: exit %d, %d bytes", who, exit, len(out))
		}
	}

	// What lies beside it, put there by its owner or by root.
	theirs := filepath.Join(w.b.workspace, "secret.png")
	for path, raw := range map[string]string{theirs: "of b", filepath.Join(w.a.workspace, "roots"): "root's", filepath.Join(filepath.Dir(w.a.workspace), "beside"): "beside"} {
		if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Symlink(theirs, filepath.Join(w.a.workspace, "to-b")), syscall.Mkfifo(filepath.Join(w.a.workspace, "pipe"), 0o666),
		os.WriteFile(filepath.Join(w.a.workspace, "first"), nil, 0o644), os.Chown(filepath.Join(w.a.workspace, "first"), aliceUID, aliceUID))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ says, make, why string }{
		{"a link", `{"kind":"link","path":"/workspace/link","to":"chart.png"}`, "there is a symbolic link in its path"},
		{"a link to the host", `{"kind":"link","path":"/workspace/shadow","to":"/etc/shadow"}`, "there is a symbolic link in its path"},
		{"a link out", `{"kind":"link","path":"/workspace/out","to":"../beside"}`, "there is a symbolic link in its path"},
		{"a link in the middle", `{"kind":"link","path":"/workspace/dir","to":"."}`, "there is a symbolic link in its path"},
		{"a second name", `{"kind":"name","path":"/workspace/second","to":"/workspace/first"}`, "it has more than one name"},
		{"a directory", `{"kind":"directory","path":"/workspace/folder"}`, "it is not a regular file"},
		{"too large", `{"path":"/workspace/large","bytes":8388609}`, "it has more than 8388608 bytes"},
		{"elsewhere in the jail", `{"path":"/tmp/a.png","bytes":9}`, "what names it is not a path beneath the server's directory"},
	} {
		if got := r.call("make", row.make); got.outcome() != "ok" {
			t.Fatalf("%s: %.300s", row.says, got.raw)
		}
		if x := w.oneArtifact(); x.Missing != "artifact not kept: "+row.why {
			t.Errorf("%s: %+v", row.says, x)
		}
	}
	for uri, why := range map[string]string{
		"file:///workspace/to-b":                  "there is a symbolic link in its path",
		"file:///workspace/dir/chart.png":         "there is a symbolic link in its path",
		"file:///workspace/pipe":                  "it is not a regular file",
		"file:///workspace/first":                 "it has more than one name",
		"file:///workspace/roots":                 "its server may not read it",
		"file:///workspace/none.png":              "there is no such file",
		"file://" + theirs:                        "what names it is not a path beneath the server's directory",
		"file:///etc/passwd":                      "what names it is not a path beneath the server's directory",
		"file:///workspace/../etc/passwd":         "what names it is not a path beneath the server's directory",
		"file:///workspace/%2e%2e/etc/passwd":     "what names it is not a path beneath the server's directory",
		"file:///proc/self/root/etc/passwd":       "what names it is not a path beneath the server's directory",
		"file:///workspace/chart.png%0a":          "what names it is not the path of a file",
		"file://elsewhere/workspace/chart.png":    "what names it is not the path of a file",
		"file:///workspace/chart.png?size=1#frag": "what names it is not the path of a file",
	} {
		if got := r.call("say", link(uri)); got.text() != "named" || !strings.Contains(got.raw, uri) {
			t.Fatalf("%s: %.300s", uri, got.raw)
		}
		if x := w.oneArtifact(); x.Missing != "artifact not kept: "+why {
			t.Errorf("%s: %+v", uri, x)
		}
	}
	// However often one is named, only so much is looked at.
	if got := r.call("links", `{"path":"/workspace/chart.png","n":10000}`); got.text() != "named" {
		t.Fatalf("%.300s", got.raw)
	}
	rows := w.artifacts(aliceUID, wire.MaxArtifacts+1, "--call", w.records(w.a)[0].Call)
	kept := 0
	for _, x := range rows {
		if x.Missing == "" && x.Size == int64(len("another")) {
			kept++
		}
	}
	if len(rows) != wire.MaxArtifacts+1 || kept != wire.MaxArtifacts {
		t.Errorf("%d of %d are kept", kept, len(rows))
	}
	for _, f := range w.blobs() {
		raw, err := os.ReadFile(filepath.Join(w.StateDir, "artifacts", f[:2], f))
		if err != nil || (string(raw) != want && string(raw) != "another") {
			t.Errorf("%s: %.40q, %v", f, raw, err)
		}
	}
	// The file of a server that has ended is still fetched, and a text beside its name is no matter.
	if got := r.call("say", `{"content":[{"type":"text","text":"named"},{"type":"resource","resource":{"uri":"file:///workspace/chart.png","text":"another"}}]}`); got.text() != "named" {
		t.Fatalf("%.300s", got.raw)
	}
	if x := w.oneArtifact(); x.Missing != "" || x.Size != int64(len("another")) {
		t.Errorf("%+v", x)
	}
}

// What a server of scope task makes leaves its task's directory as an artifact.
func TestE4_J2_AFileOfATasksOwnDirectoryLeavesItAsAnArtifact(t *testing.T) {
	w := newWorld(t)
	w.must("server", "add", "pictures", "--profile", "static", "--scope", "task", "--package", filepath.Join(built.fixtures, "pictures"), "--", "/package/pictures")
	w.must("connection", "add", "a", "pictures")
	w.must("connection", "grant", "a", "pictures", "make", "say")
	tokOne, one := w.token(w.a, runtimeUID)
	tokTwo, _ := w.token(w.a, runtimeUID)
	r1, r2 := w.connect(w.a, runtimeUID, tokOne).initialize(), w.connect(w.a, runtimeUID, tokTwo).initialize()
	r1.call("make", `{"path":"/workspace/chart.png","bytes":100}`)
	x := w.oneArtifact()
	if x.Missing != "" || x.Size != 100 || x.Task != one {
		t.Fatalf("%+v", x)
	}
	r2.call("say", link("file:///workspace/chart.png"))
	if x := w.oneArtifact(); x.Missing != "artifact not kept: there is no such file" {
		t.Errorf("another task's: %+v", x)
	}
	w.must("task", "revoke", one)
	until(t, "the end of its directory", func() bool {
		_, err := os.Lstat(filepath.Join(w.RootDir, "work", one))
		return os.IsNotExist(err)
	})
	if out, exit := w.get(aliceUID, x.Artifact); exit != 0 || out != png(100) {
		t.Errorf("after its task: exit %d, %d bytes", exit, len(out))
	}
}
