package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// artifacts waits until a user sees so many, and returns them, the newest first.
func (w *world) artifacts(uid, n int, args ...string) (rows []api.ArtifactRow) {
	w.t.Helper()
	until(w.t, "artifacts", func() bool {
		out, errb, exit := w.CLI(uid, append([]string{"--json", "artifact", "list"}, args...)...)
		var r api.ArtifactListResult
		if err := json.Unmarshal([]byte(out), &r); err != nil || exit != 0 {
			w.t.Fatalf("artifact list: exit %d, %v\n%s%s", exit, err, out, errb)
		}
		rows = r.Rows
		return len(rows) >= n
	})
	return rows
}

// get is what the command writes to a pipe.
func (w *world) get(uid int, artifact string) (string, int) {
	w.t.Helper()
	out, _, exit := w.CLI(uid, "artifact", "get", artifact)
	return out, exit
}

func (w *world) pictures() {
	w.t.Helper()
	w.must("server", "add", "pictures", "--profile", "static", "--package", filepath.Join(built.fixtures, "pictures"), "--", "/package/pictures")
	w.must("connection", "add", "a", "pictures")
	w.must("connection", "grant", "a", "pictures", "draw", "say")
}

// The image of a published server: through the jail and the bridge, byte for byte in the
// answer and byte for byte as an artifact.
func TestE4_AnImageOfAPublishedServerIsAnArtifact(t *testing.T) {
	w := newWorld(t)
	w.published("everything", "stdio")
	w.must("connection", "grant", "a", "everything", "get-tiny-image", "--tier", "reversible")
	tok, task := w.token(w.a, runtimeUID)
	got := w.connect(w.a, runtimeUID, tok).initialize().call("get-tiny-image", `{}`)
	var answer struct {
		Result struct {
			Content []struct{ Type, Data, MimeType string }
		}
	}
	if err := json.Unmarshal([]byte(got.raw), &answer); err != nil {
		t.Fatal(err)
	}
	var image []byte
	for _, c := range answer.Result.Content {
		if c.Type == "image" {
			var err error
			if image, err = base64.StdEncoding.DecodeString(c.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(image) == 0 {
		t.Fatalf("no image came: %.300s", got.raw)
	}
	x := w.artifacts(aliceUID, 1, "--task", task)[0]
	sum := sha256.Sum256(image)
	if x.Digest != hex.EncodeToString(sum[:]) || x.Size != int64(len(image)) || x.Type != "image/png" || x.Task != task || x.Missing != "" {
		t.Errorf("%+v", x)
	}
	if out, exit := w.get(aliceUID, x.Artifact); exit != 0 || out != string(image) {
		t.Errorf("exit %d, %d of %d bytes", exit, len(out), len(image))
	}
	if rec := w.records(w.a)[0]; rec.Call != x.Call || len(rec.Artifacts) != 1 || rec.Artifacts[0] != x.Artifact {
		t.Errorf("%+v", rec)
	}
	for who, uid := range map[string]int{"another project's owner": bobUID, "the runtime": runtimeUID, "the host": hostUID, "root": 0} {
		if out, exit := w.get(uid, x.Artifact); exit == 0 || out != "" {
			t.Errorf("%s gets it: exit %d, %d bytes", who, exit, len(out))
		}
	}
}

// Equal bytes are one file; what is too large, too many or no base64 is in the record,
// and the runtime has its result all the same.
func TestE4_LimitsAreInTheRecordAndNeverInTheWay(t *testing.T) {
	w := newWorld(t)
	w.pictures()
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	const most = 8 << 20
	for _, row := range []struct {
		args string
		kept int
		not  string
	}{
		{`{"n":2,"bytes":1000}`, 2, ""},
		{`{"n":1,"bytes":1000,"kind":"resource"}`, 1, ""}, // the same bytes, in another form
		{`{"n":1,"bytes":` + itoa(most) + `}`, 1, ""},
		{`{"n":1,"bytes":` + itoa(most+1) + `}`, 0, "it has more than 8388608 bytes"},
		{`{"n":18,"bytes":9}`, 16, "the result has more than 16; this stands for the others"},
	} {
		if got := r.call("draw", row.args); got.outcome() != "ok" || got.text() != "drawn" {
			t.Fatalf("%s: %.200s", row.args, got.raw)
		}
		call := w.records(w.a)[0].Call
		want := row.kept
		if row.not != "" {
			want++
		}
		rows := w.artifacts(aliceUID, want, "--call", call)
		kept, not := 0, ""
		for _, x := range rows {
			if x.Missing == "" {
				kept++
			} else {
				not = x.Missing
			}
		}
		if kept != row.kept || len(rows) != want || row.not != "" && not != "artifact not kept: "+row.not {
			t.Errorf("%s: %d of %d kept, %q", row.args, kept, len(rows), not)
		}
		if rec := w.records(w.a)[0]; rec.State != "completed" || len(rec.Artifacts) != row.kept || row.not != "" && !strings.Contains(strings.Join(rec.NotKept, ""), row.not) {
			t.Errorf("%s: %+v", row.args, rec)
		}
	}
	if got := w.blobs(); len(got) != 3 { // of 1,000 bytes, of the most, of nine
		t.Errorf("%d files: %v", len(got), got)
	}
	// Through the command and its pieces, the largest comes whole.
	for _, x := range w.artifacts(aliceUID, 1) {
		if x.Size == most && x.Missing == "" {
			out, exit := w.get(aliceUID, x.Artifact)
			if sum := sha256.Sum256([]byte(out)); exit != 0 || hex.EncodeToString(sum[:]) != x.Digest {
				t.Errorf("exit %d, %d bytes", exit, len(out))
			}
		}
	}
}

// blobs are the files of artifacts.
func (w *world) blobs() (names []string) {
	filepath.WalkDir(filepath.Join(w.StateDir, "artifacts"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
		}
		return nil
	})
	return names
}

// After a kill of everything: no row is without its bytes, no bytes without a row.
func TestE4_AKillLeavesNoRowWithoutBytesAndNoBytesWithoutARow(t *testing.T) {
	w := newWorld(t)
	w.pictures()
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for i := range 8 {
		r.call("draw", `{"n":4,"bytes":`+itoa(400_000+i)+`}`)
	}
	w.Kill9() // while most of them are on their way
	// What a crash between bytes and row leaves.
	sum := sha256.Sum256([]byte("orphan"))
	name := hex.EncodeToString(sum[:])
	shelf := filepath.Join(w.StateDir, "artifacts", name[:2])
	state, err := os.Stat(w.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(shelf, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{name, "half"} {
		if err := os.WriteFile(filepath.Join(shelf, f), bytes.Repeat([]byte("x"), 10), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(shelf, f), uidOf(state), uidOf(state)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(shelf, uidOf(state), uidOf(state)); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{}
	for _, x := range w.artifacts(aliceUID, 0) {
		if x.Missing != "" {
			continue
		}
		digests[x.Digest] = true
		out, exit := w.get(aliceUID, x.Artifact)
		if got := sha256.Sum256([]byte(out)); exit != 0 || hex.EncodeToString(got[:]) != x.Digest {
			t.Errorf("%s: exit %d, %d bytes", x.Artifact, exit, len(out))
		}
	}
	for _, f := range w.blobs() {
		if !digests[f] {
			t.Errorf("%s has no row", f)
		}
	}
	t.Logf("%d artifacts of 32 were durable at the kill", len(digests))
}
