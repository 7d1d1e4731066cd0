package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/supervisor/api"
)

// Every action of both sockets, with every selector that could matter, from people
// who may not: nothing changes, and nothing of others is told.
func TestCLI_NoActionWidensForAnotherUID(t *testing.T) {
	w := newWorld(t)
	_, task := w.task(w.a, runtimeUID, 1)
	w.must("project", "set", w.a.id, "--person-bind=false") // a widening has something to widen
	state := func() string {
		var out strings.Builder
		for _, args := range [][]string{{"project", "show", w.a.id}, {"connection", "show", w.a.id, "count"}, {"account", "list"}, {"server", "list"}, {"task", "list"}} {
			out.WriteString(w.must(append([]string{"--json"}, args...)...))
		}
		return out.String()
	}
	before := state()
	for _, uid := range []int{bobUID, malloryUID, runtimeUID, 65534} {
		for _, action := range api.Actions() {
			if api.ServedBy(action) != api.ControlSocket || action == api.Activity {
				continue
			}
			for _, p := range []string{
				`{}`, `{"selector":"alice"}`, `{"selector":"` + w.a.id + `"}`, `{"selector":"a"}`, `{"selector":"count"}`,
				`{"project":"` + w.a.id + `"}`, `{"project":"` + w.a.id + `","account":"bob","role":"owner"}`, `{"project":"` + w.a.id + `","server":"count"}`,
				`{"project":"` + w.a.id + `","server":"count","tools":["write"]}`, `{"task":"` + task + `"}`, `{"project":"` + w.a.id + `","for_uid":62003}`,
				`{"task":"` + task + `","file":true}`, `{"project":"` + w.a.id + `","uid":0}`, `{"project":"` + w.a.id + `","project":"x"}`, `[]`, `null`, `7`,
			} {
				r := w.raw(uid, fmt.Sprintf(`{"id":1,"action":%q,"params":%s}`, action, p))
				if strings.Contains(r.raw, w.a.workspace) || strings.Contains(r.raw, task) && r.Refusal == nil || strings.Contains(r.raw, `"tool":"echo"`) && uid != bobUID {
					t.Errorf("uid %d, %s %s: %.300s", uid, action, p, r.raw)
				}
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	// The twins: alice sees her own, and narrows it.
	if r := w.control(aliceUID, api.ProjectShow, api.Selected{Selector: w.a.id}); r.Refusal != nil {
		t.Errorf("alice looks: %s", r.raw)
	}
	if r := w.control(aliceUID, api.ConnectionRevoke, api.ConnectionParams{Project: w.a.id, Server: "count", Tools: []string{"echo"}}); r.Refusal != nil {
		t.Errorf("alice revokes: %s", r.raw)
	}
	if r := w.control(bobUID, api.ProjectShow, api.Selected{Selector: w.b.id}); r.Refusal != nil {
		t.Errorf("bob looks: %s", r.raw)
	}
}

// raw sends one line to control.sock and returns the first one back.
func (w *world) raw(uid int, line string) reply {
	w.t.Helper()
	c, err := dialAs(uid, filepath.Join(w.RunDir, "control.sock"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, line+"\n")
	return parseReply(readLine(c))
}

func TestCLI_HostileLines(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{
		"", "{}", "[]", "null", "x", `{"id":1}`, `{"id":"1","action":"status"}`, `{"id":-1,"action":"status"}`, `{"id":18446744073709551616,"action":"status"}`,
		`{"id":1,"action":"status","uid":0}`, `{"id":1,"action":"status","action":"project.delete"}`, `{"id":1,"Action":"status"}`, `{"id":1,"action":"account.add","params":{"name":"eve","uids":[62003]}}`,
		`{"id":1,"action":"status"}{"id":2,"action":"status"}`, `[{"id":1,"action":"status"}]`, `{"id":1,"action":"` + strings.Repeat("x", 1<<16) + `"}`, "\x00", "\xff\xfe",
		`{"id":1,"action":"project.show","params":{"selector":"` + strings.Repeat("x", 1<<19) + `"}}`, strings.Repeat("[", 1<<18), `{"id":1,"action":"status","params":{"x":1}}`,
	} {
		if r := w.raw(malloryUID, line); r.Refusal == nil && r.raw != "" {
			t.Errorf("%.60q: %.200s", line, r.raw)
		}
	}
	// A line that is too long: refused, and the reader holds no more than it.
	c, err := dialAs(malloryUID, filepath.Join(w.RunDir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(c, strings.Repeat("x", 3<<20))
	if r := parseReply(readLine(c)); r.code() != "too_large" && r.code() != "end" {
		t.Errorf("3 MiB: %s", r.raw)
	}
	if r := w.control(malloryUID, api.Status, nil); r.raw == "" {
		t.Error("no answer afterwards")
	}
}

// 500 clients that say nothing, half a line, or never read: root and alice are served.
func TestCLI_FiveHundredSlowClients(t *testing.T) {
	w := newWorld(t)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for n := range 500 {
		c, err := dialAs(62300+n/20, filepath.Join(w.RunDir, "control.sock")) // 25 users
		if err != nil {
			continue // the backlog is full: they wait for nobody but themselves
		}
		held = append(held, c)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		switch n % 3 {
		case 1:
			io.WriteString(c, `{"id":1,"action":"sta`)
		case 2:
			io.WriteString(c, strings.Repeat(`{"id":1,"action":"status"}`+"\n", 200))
		}
	}
	t.Logf("%d clients are connected", len(held))
	began := time.Now()
	out := w.must("connection", "revoke", w.a.id, "count", "echo")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("root's revocation took %v: %s", took, out)
	}
	w.works(w.b)
}

func TestCLI_WorkspacesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	good := w.directory("good", aliceUID)
	deep := w.directory("deep/er", aliceUID)
	os.Chown(filepath.Join(w.Dir, "deep"), aliceUID, aliceUID)
	os.Symlink(good, filepath.Join(w.Dir, "link"))
	os.Symlink(filepath.Join(w.Dir, "deep"), filepath.Join(w.Dir, "parent"))
	rootOwned := filepath.Join(w.Dir, "roots")
	os.Mkdir(rootOwned, 0o755)
	inA := w.directory("ws-a/sub", aliceUID)
	file := filepath.Join(good, "file")
	os.WriteFile(file, nil, 0o644)
	os.Chown(file, aliceUID, aliceUID)
	inRun := filepath.Join(w.RunDir, "ws")
	os.Mkdir(inRun, 0o755)
	os.Chown(inRun, aliceUID, aliceUID)
	inState := w.directory("state/ws", aliceUID)
	inRoot := w.directory("root/ws", aliceUID)
	os.Chown(w.Dir, aliceUID, aliceUID) // an ancestor of everything
	defer os.Chown(w.Dir, 0, 0)
	fifo := filepath.Join(w.Dir, "fifo")
	syscall.Mkfifo(fifo, 0o666)
	for _, c := range []struct{ path, why string }{
		{filepath.Join(w.Dir, "link"), "a link"}, {filepath.Join(w.Dir, "link") + "/", "a link with a slash"}, {good + "/", "a trailing slash"}, {good + "/../good", "dots"},
		{good + "/.", "a dot"}, {"//" + good[1:], "two slashes"}, {"good", "relative"}, {"", "empty"}, {"/", "the root"}, {rootOwned, "root's"}, {file, "a file"}, {fifo, "a fifo"},
		{w.a.workspace, "another's"}, {inA, "in another's"}, {w.Dir, "above everything"}, {inRun, "in the run directory"}, {inState, "in the state directory"},
		{inRoot, "in the root directory"}, {w.StateDir, "the state directory"}, {filepath.Join(w.Dir, "nothing"), "not there"}, {"/proc/self/cwd", "a magic link"}, {"/proc", "proc"}, {"/dev/shm", "tmpfs"},
		{good + "\n", "a newline"}, {good + "\x00", "a NUL"}, {"/" + strings.Repeat("x/", 3000), "too long"}, {w.b.workspace, "bob's directory for alice"},
	} {
		err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "evil", Workspace: c.path, Owner: "alice"}, nil)
		if err == nil {
			t.Errorf("%s (%q) was accepted", c.why, c.path)
			w.CLI(0, "project", "delete", "evil")
		}
	}
	if r := w.rawRoot(`{"id":1,"action":"project.add","params":{"label":"evil","workspace":"/tmp/` + "\xff" + `","owner":"alice"}}`); r.Refusal == nil {
		t.Errorf("not UTF-8: %s", r.raw)
	}
	for _, label := range []string{"", " ", "a\nb", "a\x1b[2Jb", "a\u202eb", "a/b", "../a", "-rf", "--json", w.a.id, strings.Repeat("a", 300), "a\x00", "a"} {
		if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: label, Workspace: good, Owner: "alice"}, nil); err == nil {
			t.Errorf("the label %q was accepted", label)
			w.CLI(0, "project", "delete", label)
		}
	}
	// The access policy lies in w.Dir, and is looked for again once that is root's.
	if err := os.Chown(w.Dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if _, errb, exit := w.CLI(0, "access", "show"); exit == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the access policy does not heal: %s", errb)
		}
	}
	// The twins: the directory itself; and one whose parent is spelled by a link means
	// the directory behind it.
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "good", Workspace: good, Owner: "alice"}, nil); err != nil {
		t.Errorf("a good directory: %v", err)
	}
	var viaLink api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "via", Workspace: filepath.Join(w.Dir, "parent", "er"), Owner: "alice"}, &viaLink); err != nil || viaLink.Workspace != deep {
		t.Errorf("a parent that is a link: %+v %v", viaLink, err)
	}
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "evil", Workspace: filepath.Join(w.Dir, "deep"), Owner: "alice"}, nil); err == nil {
		t.Error("the directory above a project's was accepted")
	}
	// Bind mounts are second paths, not second places.
	bound := w.directory("bound", aliceUID)
	if err := syscall.Mount(w.a.workspace, bound, "", syscall.MS_BIND, ""); err == nil {
		defer syscall.Unmount(bound, syscall.MNT_DETACH)
		if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: "evil", Workspace: bound, Owner: "alice"}, nil); err == nil {
			t.Error("a bind mount of another project's directory was accepted")
		}
	}
	w.works(w.a)
}

// rawRoot sends one line to root.sock as root.
func (w *world) rawRoot(line string) reply {
	w.t.Helper()
	c, err := dialAs(0, filepath.Join(w.RunDir, "root.sock"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, line+"\n")
	return parseReply(readLine(c))
}

func TestCLI_PackagesAndCommandsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	pkg := func(name string, add func(dir string)) string {
		dir := filepath.Join(w.Dir, "pkg-"+name)
		os.MkdirAll(dir, 0o755)
		b, _ := os.ReadFile(filepath.Join(built.fixtures, "count", "count"))
		os.WriteFile(filepath.Join(dir, "count"), b, 0o755)
		add(dir)
		return dir
	}
	add := func(label, dir string, command ...string) error {
		return w.Call(api.ServerAdd, api.ServerParams{Label: label, Profile: "static", Package: dir, Command: command}, nil)
	}
	for name, make := range map[string]func(dir string){
		"absolute link": func(d string) { os.Symlink("/etc/passwd", filepath.Join(d, "l")) },
		"dots":          func(d string) { os.Symlink("../../etc/passwd", filepath.Join(d, "l")) },
		"two links": func(d string) {
			os.Mkdir(filepath.Join(d, "a"), 0o755)
			os.Symlink("a", filepath.Join(d, "x"))
			os.Symlink("x/../../..", filepath.Join(d, "y"))
		},
		"fifo":    func(d string) { syscall.Mkfifo(filepath.Join(d, "f"), 0o666) },
		"device":  func(d string) { syscall.Mknod(filepath.Join(d, "n"), syscall.S_IFCHR|0o666, 1<<8|3) },
		"socket":  func(d string) { l, _ := net.Listen("unix", filepath.Join(d, "s")); _ = l },
		"set-uid": func(d string) { os.Chmod(filepath.Join(d, "count"), os.ModeSetuid|0o755) },
		"set-gid": func(d string) { os.Chmod(filepath.Join(d, "count"), os.ModeSetgid|0o755) },
		"deep":    func(d string) { os.MkdirAll(filepath.Join(d, strings.Repeat("d/", 80)), 0o755) },
		"huge":    func(d string) { os.Truncate(filepath.Join(d, "count"), 3<<30) },
	} {
		if err := add("evil", pkg(strings.ReplaceAll(name, " ", "-"), make), "/package/count"); err == nil {
			t.Errorf("a package with %s was accepted", name)
			w.must("server", "delete", "evil")
		}
	}
	fine := pkg("fine", func(d string) {
		os.Symlink("count", filepath.Join(d, "l"))
		os.Link(filepath.Join(d, "count"), filepath.Join(d, "hard"))
		os.Mkdir(filepath.Join(d, "many"), 0o755)
		os.WriteFile(filepath.Join(d, "plain"), []byte("x"), 0o644)
	})
	for _, command := range [][]string{
		{}, {""}, {"count"}, {"./count"}, {"/package/../package/count"}, {"/package//count"}, {"/package/nothing"}, {"/package/plain"}, {"/package"}, {"/package/"}, {"/workspace/x"}, {"/tmp/x"},
		{"/proc/self/exe"}, {"/bin/sh"}, {"/usr/bin/env"}, {"/etc/passwd"}, {"/package/count", "a\x00b"}, {"/package/count", strings.Repeat("x", 1<<20)}, {"/package/many"},
	} {
		if err := add("evil", fine, command...); err == nil {
			t.Errorf("the command %.60q was accepted", command)
			w.must("server", "delete", "evil")
		}
	}
	if err := add("evil", "", "/package/count"); err == nil {
		t.Error("a command under /package without a package was accepted")
	}
	for _, dir := range []string{"relative", "/nothing", built.fixtures + "/count/", filepath.Join(fine, "count")} {
		if err := add("evil", dir, "/package/count"); err == nil {
			t.Errorf("the package %q was accepted", dir)
			w.must("server", "delete", "evil")
		}
	}
	link := filepath.Join(w.Dir, "pkg-link")
	os.Symlink(fine, link)
	if err := add("evil", link, "/package/count"); err == nil {
		t.Error("a link to a package was accepted")
		w.must("server", "delete", "evil")
	}
	for _, profile := range []string{"bridge", "", "none", "../static", "Static"} {
		if err := w.Call(api.ServerAdd, api.ServerParams{Label: "evil", Profile: profile, Package: fine, Command: []string{"/package/count"}}, nil); err == nil {
			t.Errorf("the profile %q was accepted", profile)
		}
	}
	for _, label := range []string{"", "a\nb", "\x1b[2J", "srv_01a22c62-d1e2-7cc4-bf8d-4f2adae14440", "count", "-x", "a b", strings.Repeat("a", 300), "a.b/c"} {
		if err := add(label, fine, "/package/count"); err == nil {
			t.Errorf("the label %q was accepted", label)
		}
	}
	if err := add("fine", fine, "/package/l"); err != nil {
		t.Errorf("a good package: %v", err)
	}
	if err := add("many", pkg("many", func(d string) {
		for n := range 20000 {
			os.WriteFile(filepath.Join(d, fmt.Sprint(n)), nil, 0o644)
		}
	}), "/package/count"); err != nil {
		t.Errorf("20,000 files: %v", err)
	}
	// What was ingested is what runs, whatever becomes of the source.
	os.WriteFile(filepath.Join(fine, "count"), []byte("#!/bin/false\n"), 0o755)
	w.must("server", "probe", "fine")
	// Nothing of the refused ones is left in the store.
	names, _ := filepath.Glob(filepath.Join(w.RootDir, "pkg", ".new-*"))
	if len(names) != 0 {
		t.Errorf("half copies: %v", names)
	}
	if b, err := exec.Command("find", filepath.Join(w.RootDir, "pkg"), "-perm", "/6000").Output(); err != nil || len(b) != 0 {
		t.Errorf("set-id files in the store: %s %v", b, err)
	}
	w.works(w.a)
}

// Text of runtimes and servers does not forge records or reach a terminal raw.
func TestCLI_C146_RecordsCannotBeForged(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	for _, evil := range []string{`x\nJan 1 audit: decision=allow`, `\r\u001b[2J`, `\u2028\u0000`, `\u202e`, `","state":"completed`} {
		r.send(`{"jsonrpc":"2.0","id":"` + evil + `","method":"tools/call","params":{"name":"` + evil + `","arguments":{}}}`)
		r.send(`{"jsonrpc":"2.0","id":"` + evil + `","method":"tools/call","params":{"name":"echo","arguments":{"` + evil + `":1}}}`)
		r.read()
		r.read()
	}
	out := w.must("activity", "--project", w.a.id)
	for _, c := range out {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x2028 || c == 0x202e || c == 0x7f || c == 0x9b {
			t.Errorf("a raw %q in %q", c, out)
			break
		}
	}
	rows := len(w.records(w.a))
	if lines := strings.Count(strings.TrimSpace(out), "\n"); lines > rows+2 {
		t.Errorf("%d records on %d lines:\n%s", rows, lines, out)
	}
	var doc any
	if err := json.Unmarshal([]byte(w.must("--json", "activity", "--project", w.a.id)), &doc); err != nil {
		t.Errorf("--json: %v", err)
	}
	// One document on stdout for an error as well.
	for _, args := range [][]string{{"--json", "project", "show", "nothing"}, {"--json", "activity", "--state", "bogus"}, {"--json", "nonsense"}} {
		stdout, _, exit := w.CLI(0, args...)
		if exit == 0 || stdout != "" && json.Unmarshal([]byte(stdout), &doc) != nil {
			t.Errorf("%v: exit %d, stdout %q", args, exit, stdout)
		}
	}
}

// A stream of records ends with the right to read it, and carries nothing of others.
func TestCLI_E3_AFollowEndsWithTheRight(t *testing.T) {
	w := newWorld(t)
	w.must("project", "member", "add", w.a.id, "bob", "--role", "viewer")
	follow := func(uid int, params string) net.Conn {
		c, err := dialAs(uid, filepath.Join(w.RunDir, "control.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, `{"id":1,"action":"activity","params":%s}`+"\n", params)
		return c
	}
	bob := follow(bobUID, `{"project":"`+w.a.id+`","follow":true}`)
	alice := follow(aliceUID, `{"project":"`+w.a.id+`","follow":true}`)
	everything := follow(malloryUID, `{"follow":true}`)
	w.works(w.a)
	for _, c := range []net.Conn{bob, alice} {
		if line := readLine(c); !strings.Contains(line, `"tool":"echo"`) {
			t.Errorf("a reader's stream: %s", line)
		}
	}
	w.must("project", "member", "remove", w.a.id, "bob")
	w.works(w.a)
	deadline := time.Now().Add(5 * time.Second)
	for {
		line := readLine(bob)
		if line == "" || strings.Contains(line, `"refusal"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a removed member's stream goes on")
		}
		if strings.Contains(line, `"event"`) && strings.Contains(line, `"state":"admitted"`) && strings.Count(line, w.a.id) > 0 {
			t.Logf("after the removal: %.200s", line)
		}
	}
	if line := readLine(alice); line == "" {
		t.Error("alice's own stream ended")
	}
	everything.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	var buf [4096]byte
	n, _ := everything.Read(buf[:])
	if strings.Contains(string(buf[:n]), "echo") {
		t.Errorf("somebody without an account follows: %s", buf[:n])
	}
	for _, params := range []string{`{"cursor":"garbage"}`, `{"cursor":"` + strings.Repeat("9", 300) + `"}`, `{"cursor":"-1"}`, `{"limit":-1}`, `{"limit":1000000000}`, `{"since":-9223372036854775808}`,
		`{"since":9223372036854775807}`, `{"state":"bogus"}`, `{"project":"` + w.b.id + `"}`, `{"project":"'; drop table calls; --"}`} {
		r := w.raw(aliceUID, `{"id":1,"action":"activity","params":`+params+`}`)
		if strings.Contains(r.raw, w.b.id) && r.Refusal == nil || r.code() == "internal" || r.code() == "end" {
			t.Errorf("%s: %.300s", params, r.raw)
		}
	}
	// A cursor carries no authority: alice's, used by bob.
	var page api.ActivityResult
	json.Unmarshal(w.raw(aliceUID, `{"id":1,"action":"activity","params":{"limit":1}}`).Result, &page)
	r := w.raw(bobUID, `{"id":1,"action":"activity","params":{"cursor":"`+page.Cursor+`"}}`)
	if strings.Contains(r.raw, w.a.id) {
		t.Errorf("alice's cursor in bob's hands: %.300s", r.raw)
	}
	if r := w.control(bobUID, api.Ps, nil); strings.Contains(r.raw, w.a.id) {
		t.Errorf("bob sees the workers of a: %s", r.raw)
	}
	w.works(w.b)
}
