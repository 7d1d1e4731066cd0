package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A path argument of a known filesystem operation that lies outside the project is
// refused before the tool server sees it, whatever its spelling; its twin inside works.
func TestC13_APathArgumentOutsideTheProjectIsRefusedBeforeTheServer(t *testing.T) {
	w := newWorld(t)
	w.must("server", "add", "files", "--profile", "static", "--package", filepath.Join(built.fixtures, "files"), "--", "/package/files")
	w.must("connection", "add", "a", "files")
	w.must("connection", "grant", "a", "files", "read_file", "read_multiple_files", "write_file", "move_file", "list_files", "peek")
	in := func(name string) string { return filepath.Join(w.a.workspace, name) }
	for name, to := range map[string]string{"out": "/etc/passwd", "up": "../ws-b", "within": "secret.txt", "mounted": "/workspace/secret.txt"} {
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(in("sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(in("sub"), aliceUID, aliceUID); err != nil {
		t.Fatal(err)
	}
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()

	// The first call of all: a refused one starts no server.
	if got := r.call("read_file", `{"path":"/etc/passwd"}`); got.outcome() != "path_outside" {
		t.Fatalf("%s", got.raw)
	}
	if _, err := os.Stat(in("calls.log")); err == nil {
		t.Fatal("a call that was refused for its path started the server")
	}
	refused := 1
	for _, c := range []struct{ tool, args string }{
		{"read_file", `{"path":"../ws-b/secret.txt"}`}, {"read_file", `{"path":"/workspace/../etc/passwd"}`}, {"read_file", `{"path":"out"}`}, {"read_file", `{"path":"up/secret.txt"}`},
		{"read_file", `{"path":"sub/../../ws-b"}`}, {"read_file", `{"path":"` + in("secret.txt") + `"}`}, {"read_file", `{"path":"secret.txt\u0000"}`}, {"read_file", `{"path":1}`},
		{"read_file", `{"path":["secret.txt",{"path":"/etc/passwd"}]}`}, {"read_file", `{}`}, {"read_file", `{"Path":"/etc/passwd","path":"secret.txt"}`}, {"read_file", `{"p\u0061th":"\u002e\u002e/x"}`},
		{"read_file", `{"path":"~/x"}`}, {"read_file", `{"path":"file:///etc/passwd"}`}, {"read_file", `{"path":"/proc/self/root/etc/passwd"}`}, {"read_file", `{"path":"` + strings.Repeat("a/", 3000) + `"}`},
		{"read_multiple_files", `{"paths":["secret.txt","/etc/passwd"]}`}, {"read_multiple_files", `{"paths":["secret.txt",7]}`}, {"read_multiple_files", `{"paths":[]}`},
		{"write_file", `{"path":"up/new.txt","content":"x"}`}, {"write_file", `{"path":"sub/new/../../../x","content":"x"}`}, {"write_file", `{"edits":[{"path":"/etc/x"}],"path":"ok.txt","content":"x"}`},
		{"move_file", `{"source":"secret.txt","destination":"../ws-b/stolen"}`}, {"move_file", `{"source":"/etc/passwd","destination":"stolen"}`}, {"move_file", `{"source":"secret.txt"}`},
		{"list_files", `{"path":"/"}`}, {"list_files", `{"path":".."}`},
	} {
		if got := r.call(c.tool, c.args); got.outcome() != "path_outside" {
			t.Errorf("%s %.80s: %s", c.tool, c.args, got.raw)
		}
		refused++
	}
	if calls := w.calls(w.a); len(calls) != 0 {
		t.Fatalf("the server received %v", calls)
	}
	received := 0
	for _, c := range []struct{ tool, args, says string }{
		{"read_file", `{"path":"secret.txt"}`, "the secret of a"}, {"read_file", `{"path":"/workspace/secret.txt"}`, "the secret of a"}, {"read_file", `{"path":"sub/../within"}`, "the secret of a"},
		{"read_file", `{"path":"mounted"}`, "the secret of a"}, {"read_multiple_files", `{"paths":["./secret.txt","/workspace//within"]}`, "the secret of a\nthe secret of a"},
		{"write_file", `{"path":"sub/new.txt","content":"../not a path"}`, "written"}, {"move_file", `{"source":"sub/new.txt","destination":"/workspace/sub/moved.txt"}`, "moved"},
		{"list_files", `{}`, ""}, {"list_files", `{"path":"."}`, ""},
	} {
		if got := r.call(c.tool, c.args); got.outcome() != "ok" || c.says != "" && got.text() != c.says {
			t.Errorf("%s %s: %s", c.tool, c.args, got.raw)
		}
		received++
	}
	// What is not there is the server's to say, and a tool of another name the jail's.
	for _, c := range []struct{ tool, args string }{{"read_file", `{"path":"not/there"}`}, {"peek", `{"path":"/workspace/../etc/shadow"}`}} {
		if got := r.call(c.tool, c.args); got.outcome() != "isError" {
			t.Errorf("%s: %s", c.args, got.raw)
		}
		received++
	}
	if calls := w.calls(w.a); len(calls) != received {
		t.Errorf("%d calls reached the server, want %d: %v", len(calls), received, calls)
	}
	n, reasons := 0, map[string]bool{}
	for _, row := range w.records(w.a) {
		if row.Code == "path_outside" {
			n += int(max(row.Count, 1))
			reasons[row.Reason] = true
		}
	}
	// Which argument it was is recorded, and none of what the call was given.
	if !reasons["path argument 1 of 1 (path): it is not a path beneath the directory"] || strings.Contains(fmt.Sprint(reasons), "passwd") || strings.Contains(fmt.Sprint(reasons), "secret") {
		t.Errorf("%v", reasons)
	}
	if n != refused {
		t.Errorf("%d refusals for a path are recorded, want %d", n, refused)
	}

	// The directory is swapped with a link out while paths are looked at: nothing of
	// outside is read, by the gate's answer or by the jail's.
	for _, d := range []string{"swap"} {
		if err := os.Mkdir(in(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("swap/secret.txt"), []byte("INSIDE"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.b.workspace, in("other")); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			unix.Renameat2(unix.AT_FDCWD, in("swap"), unix.AT_FDCWD, in("other"), unix.RENAME_EXCHANGE)
		}
	}()
	seen := map[string]int{}
	for range 200 {
		got := r.call("read_file", `{"path":"swap/secret.txt"}`)
		seen[got.outcome()]++
		if strings.Contains(got.raw, "the secret of b") || got.outcome() == "ok" && got.text() != "INSIDE" {
			t.Fatalf("a swapped link was followed out: %s", got.raw)
		}
	}
	stop.Store(true)
	<-done
	if seen["ok"] == 0 || seen["path_outside"] == 0 {
		t.Errorf("the race was none: %s", fmt.Sprint(seen))
	}
}

// The same with the published filesystem server, whose own check comes after.
func TestC13_ThePublishedFilesystemServer(t *testing.T) {
	w := newWorld(t)
	w.published("filesystem", "/workspace")
	w.must("connection", "grant", "a", "filesystem", "read_text_file", "read_multiple_files", "edit_file", "write_file", "list_allowed_directories", "directory_tree", "--tier", "reversible")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, c := range []struct{ tool, args, want string }{
		{"read_text_file", `{"path":"secret.txt"}`, "ok"},
		{"read_text_file", `{"path":"/workspace/secret.txt"}`, "ok"},
		{"read_text_file", `{"path":"/workspace/none.txt"}`, "isError"},
		{"read_text_file", `{"path":" /etc/passwd"}`, "path_outside"},
		{"read_text_file", `{"path":"~/x"}`, "path_outside"},
		{"read_multiple_files", `{"paths":["secret.txt","/workspace/secret.txt"]}`, "ok"},
		{"read_multiple_files", `{"paths":["secret.txt","/etc/passwd"]}`, "path_outside"},
		{"write_file", `{"path":"new.txt","content":"one\n"}`, "ok"},
		{"edit_file", `{"path":"new.txt","edits":[{"oldText":"one","newText":"/etc/passwd"}]}`, "ok"},
		{"edit_file", `{"path":"../new.txt","edits":[{"oldText":"one","newText":"two"}]}`, "path_outside"},
		{"directory_tree", `{"path":"/"}`, "path_outside"},
		{"list_allowed_directories", `{}`, "ok"},
	} {
		if got := r.call(c.tool, c.args); got.outcome() != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.args, got.raw, c.want)
		}
	}
}
