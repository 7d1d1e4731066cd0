package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/supervisor/api"
)

// register registers the server that does what it is told, in one of its ways, and
// grants tools of it to a.
func (w *world) register(label, how string, tools ...string) {
	w.t.Helper()
	w.must("server", "add", label, "--profile", "static", "--package", filepath.Join(built.fixtures, "hostile"), "--", "/package/hostile", how)
	w.must("connection", "add", "a", label)
	w.must(append([]string{"connection", "grant", "a", label}, tools...)...)
}

// A server that is registered without any root argument reaches the project's directory
// and no other: the jail is the root, and it cannot be left out.
func TestC071_WithoutARootAServerHasTheProjectAlone(t *testing.T) {
	w := newWorld(t)
	w.register("git", "", "sys")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	secret := filepath.Join(w.Dir, "other")
	if err := os.MkdirAll(filepath.Join(secret, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, ".git", "HEAD"), []byte("ref: refs/heads/main"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{secret + "/.git/HEAD", w.b.workspace + "/secret.txt", w.a.workspace + "/secret.txt", "/root/other/.git/HEAD", "/etc/passwd", "/proc/1/root/etc/passwd"} {
		if got := r.sys("read", at(path)); !strings.HasPrefix(got, "refused: ") {
			t.Errorf("reads %s: %q", path, got)
		}
	}
	if got := r.sys("list", at("/")); strings.Contains(got, "root") || strings.Contains(got, "home") || !strings.Contains(got, "workspace") {
		t.Errorf("its root holds %s", got)
	}
	if got := r.sys("read", at("/workspace/secret.txt")); got != "the secret of a" {
		t.Errorf("the project's own: %q", got)
	}
}

// A path argument that begins with a dash is an option to many programs: it is refused
// before the server. As a path it is written ./-name, which is passed on. What other
// arguments a server makes options of, writes nothing outside its jail.
func TestC072_APathThatCouldBeAnOptionIsRefused(t *testing.T) {
	w := newWorld(t)
	w.register("git", "", "sys")
	w.must("server", "add", "reader", "--profile", "static", "--package", filepath.Join(built.fixtures, "files"), "--", "/package/files")
	w.must("connection", "add", "a", "reader")
	w.must("connection", "grant", "a", "reader", "read_file", "read_multiple_files", "list_files")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("read_file", `{"path":"secret.txt"}`); got.outcome() != "ok" {
		t.Fatalf("a plain path: %s", got.raw)
	}
	before := len(w.calls(w.a))
	for _, c := range [][2]string{
		{"read_file", `{"path":"--output=/tmp/x"}`}, {"read_file", `{"path":"-h"}`}, {"read_file", `{"path":"-"}`}, {"list_files", `{"path":"--upload-pack=touch /tmp/p"}`},
		{"read_multiple_files", `{"paths":["secret.txt","-rf"]}`}, {"read_file", `{"path":"\u002dh"}`},
	} {
		if got := r.call(c[0], c[1]); got.outcome() != "path_outside" {
			t.Errorf("%s %s: %s", c[0], c[1], got.raw)
		}
	}
	if n := len(w.calls(w.a)); n != before {
		t.Errorf("%d of them reached the server", n-before)
	}
	r.call("read_file", `{"path":"./-h"}`)
	r.call("read_file", `{"path":"secret-txt"}`)
	if n := len(w.calls(w.a)); n != before+2 {
		t.Errorf("%d of two paths reached the server", n-before)
	}
	mark := filepath.Join("/tmp", filepath.Base(w.Dir)+"-c072")
	if got := r.sys("write", at(mark)); got != "written" { // as git's --output would
		t.Errorf("its own /tmp: %s", got)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("an option of the server's made a file of the host")
	}
}

// A hard link within one writable root works; across roots, and to a file of somebody
// else, the kernel refuses it.
func TestC074_LinksWithinOneRootWork(t *testing.T) {
	w := newWorld(t)
	w.register("npm", "", "sys")
	foreign := filepath.Join(w.a.workspace, "foreign")
	if err := os.WriteFile(foreign, []byte("root's"), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	for _, path := range []string{"/workspace/a", "/tmp/a"} {
		if got := r.sys("write", at(path)); got != "written" {
			t.Fatalf("%s: %s", path, got)
		}
	}
	link := func(to, path string) string { return r.sys("link", at(path), fmt.Sprintf(`,"to":%q`, to)) }
	for _, dir := range []string{"/workspace", "/tmp"} {
		if got := link(dir+"/a", dir+"/b"); got != "linked" {
			t.Errorf("within %s: %s", dir, got)
		}
		if got := r.sys("read", at(dir+"/b")); got != "written by a tool server" {
			t.Errorf("through the link: %q", got)
		}
	}
	for _, c := range [][2]string{{"/workspace/a", "/tmp/across"}, {"/tmp/a", "/workspace/across"}, {"/package/hostile", "/workspace/across"}, {"/workspace/foreign", "/workspace/theirs"}} {
		if got := link(c[0], c[1]); !strings.HasPrefix(got, "refused: ") {
			t.Errorf("%s to %s: %s", c[1], c[0], got)
		}
	}
}

// A registration that is written again and again with the same content changes nothing:
// no revision, no version of the facts, no start.
func TestC124_TheSameRegistrationAgainStartsNothing(t *testing.T) {
	w := newWorld(t)
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	pid, bridge := w.jailPID("server"), w.jailPID("bridge")
	same := api.ServerParams{Label: "count", Profile: "static", Package: filepath.Join(built.fixtures, "count"), Command: []string{"/package/count"},
		Scope: "project", Credential: "none", Tiers: map[string]string{"write": "reversible"}}
	var first, now api.ServerResult
	if err := w.Call(api.ServerShow, api.Selected{Selector: "count"}, &first); err != nil {
		t.Fatal(err)
	}
	var before, after api.StatusResult
	if err := w.Call(api.Status, nil, &before); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		stamp := time.Now()
		if err := os.Chtimes(filepath.Join(same.Package, "count"), stamp, stamp); err != nil {
			t.Fatal(err)
		}
		if err := w.Call(api.ServerUpdate, same, &now); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Call(api.Status, nil, &after); err != nil {
		t.Fatal(err)
	}
	if now.Revision != first.Revision || after.Facts != before.Facts {
		t.Errorf("revision %s became %s, facts %d became %d", first.Revision, now.Revision, before.Facts, after.Facts)
	}
	if got := r.call("echo", `{}`); got.outcome() != "ok" || w.jailPID("server") != pid || w.jailPID("bridge") != bridge {
		t.Errorf("something was started again: %s", got.raw)
	}
	// Its twin: another command is another revision.
	same.Command = append(same.Command, "/workspace/other.log")
	if err := w.Call(api.ServerUpdate, same, &now); err != nil || now.Revision == first.Revision {
		t.Errorf("another command: %v, %s", err, now.Revision)
	}
	if got := r.call("echo", `{}`); got.outcome() != "server_revision_changed" {
		t.Errorf("after another command: %s", got.raw)
	}
}

// A server that crashes whenever it is started is one thing to say, however often it is
// called: few records with counts, one row of ps with the reason and the count.
func TestC138_ACrashLoopIsFewRecords(t *testing.T) {
	w := newWorld(t)
	w.register("crash", "crash_in_project", "sys")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	const calls = 40
	for range calls {
		if got := r.sys("procs"); got != "server_unavailable" && got != "limit_starts" {
			t.Fatalf("a call of a server that crashes: %s", got)
		}
	}
	records, counted := 0, 0
	for _, row := range w.records(w.a) {
		if row.Tool == "sys" || row.Tool == "" {
			records++
			counted += max(row.Count, 1)
		}
	}
	if records > 12 || counted != calls {
		t.Errorf("%d records that stand for %d of %d calls: %+v", records, counted, calls, w.records(w.a))
	}
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, row := range ps.Rows {
		if row.Label == "crash" {
			if rows++; row.LastError == "" {
				t.Errorf("without a reason: %+v", row)
			}
		}
	}
	if rows != 1 {
		t.Errorf("ps has %d rows of it", rows)
	}
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Errorf("the other server: %s", got.raw)
	}
}

// One server that never answers its handshake holds up no list and no other server's
// call, and is shown as what it is.
func TestC139_ASilentServerHoldsUpNothing(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.register(fmt.Sprint("well", i), "", "echo")
	}
	w.register("silent", "mute_in_project", "sys")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	waits := r.expect("500")
	r.send(`{"jsonrpc":"2.0","id":500,"method":"tools/call","params":{"name":"sys","arguments":{"op":"procs"}}}`)
	state := func() string {
		var ps api.PsResult
		if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
			t.Fatal(err)
		}
		for _, row := range ps.Rows {
			if row.Label == "silent" {
				return row.State
			}
		}
		return ""
	}
	until(t, "the silent one is shown as one that has not listed yet", func() bool { return state() == "listing" })
	began := time.Now()
	if got := r.tools(); len(got) < 6 {
		t.Errorf("the list holds %v", got)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the list took %v", took)
	}
	for _, tool := range []string{"echo", "well0.echo", "well1.echo", "well2.echo", "well3.echo"} {
		if got := r.call(tool, `{}`); got.outcome() != "ok" {
			t.Errorf("%s: %s", tool, got.raw)
		}
	}
	select {
	case m := <-waits:
		t.Errorf("the silent one's call was answered: %s", m.raw)
	default:
	}
}
