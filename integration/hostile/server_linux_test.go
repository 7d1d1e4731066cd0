package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/supervisor/api"
)

// hostileWorld is a world whose project a is connected to the hostile server as well.
// Both servers have a tool echo; the hostile one's is served as hostile.echo.
func hostileWorld(t *testing.T, tools ...string) (*world, *peer) {
	t.Helper()
	w := newWorld(t)
	w.server("hostile", "hostile")
	w.connect(w.a, "hostile", tools...)
	return w, w.open(w.a, aliceUID, "")
}

func (r *peer) sys(args string) string {
	r.t.Helper()
	m := r.call("sys", args)
	if m.outcome() != "ok" {
		return m.outcome()
	}
	return m.text()
}

// Every way of answering wrongly ends its own call, with a record that says so, while
// bob's and the other server's calls go on.
func TestServer_WrongAnswersEndTheirOwnCall(t *testing.T) {
	tools := []string{"id_string", "id_null", "id_unknown", "id_others", "twice", "late_progress", "progress_all", "huge", "lines", "bad_utf8", "duplicate", "no_message", "not_object", "bad_error",
		"flood_notes", "flood_requests", "asks", "die", "die_quietly", "forge", "inject", "changed", "nul", "deep", "stop_reading", "sys"}
	w, r := hostileWorld(t, tools...)
	bob := w.open(w.b, bobUID, "")
	for _, tool := range slices.DeleteFunc(tools, func(s string) bool { return s == "sys" }) {
		args := `{}`
		switch tool {
		case "huge":
			args = `{"bytes":100000000}`
		case "lines":
			args = `{"bytes":16777216}`
		case "id_string", "id_null", "id_unknown", "id_others", "no_message", "die_quietly":
			continue // wait for the deadline: together, below
		}
		began := time.Now()
		m := r.call(tool, args)
		t.Logf("%s: %s after %v", tool, m.outcome(), time.Since(began).Round(time.Millisecond))
		if m.outcome() == "end" {
			t.Fatalf("%s ended the session", tool)
		}
		if strings.Contains(m.raw, "postern/refusal") && tool == "forge" {
			t.Errorf("a forged refusal was passed on: %s", m.raw)
		}
		if m := bob.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("bob after %s: %s", tool, m.raw)
		}
		if m := r.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("the other server after %s: %s", tool, m.raw)
		}
	}
	// stop_reading was the last: the server hangs at the first message that is no call, as
	// the question for its list after the change is one. A call of it ends at its limit, and
	// others go on.
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the other server: %s", m.raw)
	}
	for _, row := range w.records(w.a) {
		if row.State == "started" {
			t.Errorf("an open record: %+v", row)
		}
	}
}

func TestServer_C126_StderrDoesNotBlockACall(t *testing.T) {
	w, r := hostileWorld(t, "sys")
	if got := r.sys(`{"op":"stderr","n":10485760}`); got != "shouted" {
		t.Errorf("10 MiB on stderr: %s", got)
	}
	if mem := w.jail(w.a, "bridge").Memory; mem > 64<<20 {
		t.Errorf("the bridge holds %d bytes of it", mem)
	}
	w.works(w.a)
}

// A server that asks for everything in every field changes no stored row.
func TestServer_A8_NothingItSaysGrantsAnything(t *testing.T) {
	w := newWorld(t)
	w.server("boasts", "hostile", "boasts")
	w.must("connection", "add", w.a.id, "boasts")
	r := w.open(w.a, aliceUID, "")
	for _, tool := range []string{"drop_table", "read_text_file", "boasts.echo"} {
		if m := r.call(tool, `{}`); m.outcome() == "ok" {
			t.Errorf("%s is callable and was not granted: %s", tool, m.raw)
		}
	}
	w.must("connection", "grant", w.a.id, "boasts", "echo")
	w.server("hostile", "hostile")
	w.connect(w.a, "hostile", "sys")
	show := func() string {
		var out strings.Builder
		for _, args := range [][]string{{"project", "show", w.a.id}, {"connection", "show", w.a.id, "boasts"}, {"connection", "show", w.a.id, "hostile"}, {"task", "list"}, {"account", "list"}} {
			out.WriteString(w.must(append([]string{"--json"}, args...)...))
		}
		return out.String()
	}
	before := show()
	if m := r.call("sys", `{"op":"claim"}`); m.outcome() != "ok" || strings.Contains(m.raw, "postern/") {
		t.Errorf("claims: %s", m.raw)
	}
	if m := r.call("boasts.echo", `{}`); m.outcome() != "ok" {
		t.Errorf("its one granted tool: %s", m.raw)
	}
	until(t, "the calls have ended", func() bool { return w.records(w.a)[0].State == "completed" })
	if after := show(); !sameButSessions(before, after) {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	// Nor does any of it reach a runtime as Postern's word or bend the class to reading.
	list := r.ask("tools/list", `{}`).raw
	if strings.Contains(list, "postern/") {
		t.Errorf("the list carries Postern's own keys: %s", list)
	}
	for _, name := range r.tools() {
		if name == "drop_table" || name == "read_text_file" {
			t.Errorf("%s is listed", name)
		}
	}
	out := w.must("connection", "show", w.a.id, "boasts")
	if strings.ContainsAny(out, "\x1b\x00") {
		t.Errorf("control characters: %q", out)
	}
}

func sameButSessions(a, b string) bool { return a == b }

// What a project's instance lists is compared with what was probed: a changed tool is
// refused, a new one is not callable, its siblings go on.
func TestServer_C095_RugPullsAreNotCallable(t *testing.T) {
	w := newWorld(t)
	w.server("rug", "hostile", "rug")
	w.server("renamed", "hostile", "renamed")
	w.connect(w.a, "rug", "echo", "steady")
	w.must("connection", "add", w.a.id, "renamed")
	w.must("connection", "grant", w.a.id, "renamed", "before")
	r := w.open(w.a, aliceUID, "")
	if m := r.call("steady", `{}`); m.outcome() != "ok" {
		t.Errorf("the unchanged tool: %s", m.raw)
	}
	before := len(w.calls(w.a))
	until(t, "the changed tool is refused", func() bool { return r.call("rug.echo", `{}`).outcome() == "tool_changed" })
	t.Logf("%d calls of the changed tool got through before its instance was compared", len(w.calls(w.a))-before)
	for _, tool := range []string{"newcomer", "rug.newcomer", "after", "renamed.after"} {
		if m := r.call(tool, `{}`); m.outcome() == "ok" {
			t.Errorf("%s: %s", tool, m.raw)
		}
	}
	r.call("before", `{}`)
	until(t, "the renamed tool is refused", func() bool { return r.call("before", `{}`).outcome() != "ok" })
	if names := r.tools(); slices.Contains(names, "newcomer") || slices.Contains(names, "after") || slices.Contains(names, "rug.echo") || !slices.Contains(names, "steady") {
		t.Errorf("listed: %v", names)
	}
	if m := r.call("steady", `{}`); m.outcome() != "ok" {
		t.Errorf("the unchanged tool afterwards: %s", m.raw)
	}
}

// Names that look like others are not grantable; too many tools spoil nothing else.
func TestServer_C085_LookAlikesAndTooManyTools(t *testing.T) {
	w := newWorld(t)
	w.server("look", "hostile", "lookalikes")
	w.must("connection", "add", w.a.id, "look")
	for _, name := range []string{"re\u0430d_file", "read_file\u200b", "\u202eelif_daer", "ｒead", "a/b", "echo "} {
		if out, errb, exit := w.CLI(0, "connection", "grant", w.a.id, "look", name); exit == 0 {
			t.Errorf("%q was granted: %s%s", name, out, errb)
		}
	}
	for _, pattern := range []string{"*", "e*", "", " ", "look/*", ".*"} {
		if _, _, exit := w.CLI(0, "connection", "grant", w.a.id, "look", pattern); exit == 0 {
			t.Errorf("the pattern %q was granted", pattern)
		}
	}
	w.must("connection", "grant", w.a.id, "look", "ECHO")
	out, _, _ := w.CLI(0, "connection", "show", w.a.id, "look")
	if strings.ContainsAny(out, "\u200b\u202e\x00\x1b") {
		t.Errorf("raw characters on a terminal: %q", out)
	}
	stdout, stderr, exit := w.CLI(0, "server", "add", "many", "--profile", "static", "--package", filepath.Join(built.fixtures, "hostile"), "--", "/package/hostile", "ten_thousand")
	t.Logf("10,000 tools: exit %d %.300s%.300s", exit, stdout, stderr)
	r := w.open(w.a, aliceUID, "")
	if names := r.tools(); !slices.Contains(names, "echo") || !slices.Contains(names, "ECHO") {
		t.Errorf("listed: %v", names)
	}
	w.works(w.a)
}

// From inside the complete jail: nothing of the host, and nothing on disk that the
// host would run with anybody's privilege.
func TestServer_J8_NothingOfTheHostIsReached(t *testing.T) {
	w := newWorld(t)
	// What something outside executes and is there when the server starts.
	for _, name := range []string{".git/config", ".git/hooks/x", ".mcp.json", ".envrc", ".claude/settings.json"} {
		path := filepath.Join(w.a.workspace, name)
		os.MkdirAll(filepath.Dir(path), 0o777)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", aliceUID, aliceUID), w.a.workspace).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	w.server("hostile", "hostile")
	w.connect(w.a, "hostile", "sys")
	r := w.open(w.a, aliceUID, "")
	outside := filepath.Join(w.Dir, "outside.txt")
	if err := os.WriteFile(outside, []byte("the sentinel"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := r.sys(`{"op":"read","path":"/workspace/secret.txt"}`); got != "the secret of a" {
		t.Errorf("its own file: %s", got)
	}
	for _, path := range []string{outside, "/etc/shadow", "/etc/passwd", "/etc/hostname", w.b.workspace + "/secret.txt", w.RootDir + "/facts.json", w.StateDir + "/policy.db",
		"/proc/1/root" + outside, "/proc/self/root" + outside, "/proc/thread-self/root" + outside, "/proc/self/cwd/../../.." + outside, "/dev/fd/3", "/proc/kallsyms",
		"/sys/fs/cgroup", "/proc/sys/kernel/core_pattern", "/workspace/../ws-b/secret.txt", "/run/systemd/private"} {
		got := r.sys(`{"op":"read","path":"` + path + `"}`)
		if !strings.HasPrefix(got, "refused") {
			t.Errorf("read %s: %q", path, got)
		}
	}
	for _, path := range []string{"/etc/x", "/x", "/package/x", "/package/hostile", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/dev/x", "/workspace/.git/config", "/workspace/.git/hooks/pre-commit",
		"/workspace/.mcp.json", "/workspace/.envrc", "/workspace/.claude/settings.json"} {
		if got := r.sys(`{"op":"write","path":"` + path + `"}`); !strings.HasPrefix(got, "refused") {
			t.Errorf("write %s: %q", path, got)
		}
	}
	for _, path := range []string{filepath.Join(w.RunDir, "control.sock"), filepath.Join(w.RunDir, "root.sock"), w.doorOf(w.a), w.doorOf(w.b), "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "@x"} {
		if got := r.sys(`{"op":"dial","path":"` + path + `"}`); !strings.HasPrefix(got, "refused") {
			t.Errorf("dial %s: %q", path, got)
		}
	}
	for _, addr := range []string{"127.0.0.1:22", "0.0.0.0:80", "169.254.169.254:80", "[::1]:80", "10.0.0.1:443"} {
		if got := r.sys(`{"op":"tcp","path":"` + addr + `"}`); !strings.HasPrefix(got, "refused") {
			t.Errorf("tcp %s: %q", addr, got)
		}
	}
	// Links in the workspace lead nowhere outside, made by the server or by the owner.
	if got := r.sys(`{"op":"symlink","to":"` + outside + `","path":"/workspace/note"}`); got == "linked" {
		if got := r.sys(`{"op":"read","path":"/workspace/note"}`); !strings.HasPrefix(got, "refused") {
			t.Errorf("through its own link: %q", got)
		}
	}
	for name, to := range map[string]string{"up": "..", "etc": "/etc", "b": w.b.workspace, "notyet": filepath.Join(w.Dir, "notyet")} {
		if err := os.Symlink(to, filepath.Join(w.a.workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/workspace/up/ws-b/secret.txt", "/workspace/etc/passwd", "/workspace/b/secret.txt", "/workspace/./up/../etc/shadow", "/workspace//b/secret.txt"} {
		if got := r.sys(`{"op":"read","path":"` + path + `"}`); !strings.HasPrefix(got, "refused") {
			t.Errorf("read %s: %q", path, got)
		}
	}
	r.sys(`{"op":"write","path":"/workspace/notyet"}`)
	if _, err := os.Lstat(filepath.Join(w.Dir, "notyet")); err == nil {
		t.Error("a write through a link landed outside")
	}
	// Hard links: of a file of its own it may, of nothing else.
	if got := r.sys(`{"op":"link","to":"/workspace/secret.txt","path":"/workspace/twin"}`); got != "linked" {
		t.Errorf("a hard link within: %s", got)
	}
	for _, to := range []string{"/package/hostile", "/tmp/x", outside} {
		if got := r.sys(`{"op":"link","to":"` + to + `","path":"/workspace/hard"}`); got == "linked" {
			t.Errorf("a hard link to %s", to)
		}
	}
	// No set-id file, seen from the host.
	t.Logf("set-id: what succeeded is %q", r.sys(`{"op":"setid","path":"/workspace/suid"}`))
	filepath.Walk(w.a.workspace, func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return nil
	})
	// Only its own processes, and no signal to others.
	if got := r.sys(`{"op":"procs"}`); strings.Count(got, "/proc/") > 2 {
		t.Errorf("it sees %s", got)
	}
	victim := exec.Command("/bin/sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if got := r.sys(fmt.Sprintf(`{"op":"signal","n":%d}`, victim.Process.Pid)); got == "signalled" {
		t.Error("it signalled a process of the host")
	}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the host's process: %v", err)
	}
	victim.Process.Kill()
	victim.Wait()
	w.works(w.a)
}

// Bombs end their own jail or are bounded in it; bob and the bridge go on.
func TestServer_C153_BombsStayInTheirJail(t *testing.T) {
	w, r := hostileWorld(t, "sys", "echo")
	bob := w.open(w.b, bobUID, "")
	twin := func(after string) {
		t.Helper()
		if m := bob.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("bob after %s: %s", after, m.raw)
		}
		if m := r.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("the other server after %s: %s", after, m.raw)
		}
		if m := r.call("hostile.echo", `{}`); m.outcome() != "ok" {
			t.Errorf("a new instance after %s: %s", after, m.raw)
		}
	}
	if got := r.sys(`{"op":"fork"}`); got != "forked 0" {
		t.Errorf("fork: %s", got)
	}
	twin("the fork bomb")
	if got := r.sys(`{"op":"fill","path":"/tmp","n":4096}`); !strings.Contains(got, "no space left") {
		t.Errorf("/tmp: %s", got)
	}
	if got := r.sys(`{"op":"fill","path":"/workspace","n":1100}`); !strings.Contains(got, "file too large") {
		t.Errorf("/workspace: %s", got)
	}
	os.Remove(filepath.Join(w.a.workspace, "fill"))
	if got := r.sys(`{"op":"files","path":"/tmp","n":100000}`); !strings.Contains(got, "no space left") {
		t.Errorf("inodes of /tmp: %s", got)
	}
	twin("filling")
	if got := r.sys(`{"op":"memory"}`); got != "server_exited" {
		t.Errorf("the memory bomb: %s", got)
	}
	twin("the memory bomb")
	rows := w.records(w.a)
	if i := slices.IndexFunc(rows, func(r row) bool { return r.Code == "server_memory" }); i < 0 || rows[i].State != "unknown" || !strings.HasPrefix(rows[i].Reason, "the memory limit ended it (jal_") {
		t.Errorf("the record of the memory bomb: %+v", rows[:3])
	}
	// Spinning and ignoring signals: the session ends, and everything with it.
	spin := w.open(w.a, aliceUID, "")
	spin.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"sys","arguments":{"op":"spin"}}}`)
	until(t, "it spins", func() bool { return w.server1(w.a, "hostile").CPUUsec > 500_000 })
	began := time.Now()
	for range 5 {
		if m := bob.call("echo", `{}`); m.outcome() != "ok" {
			t.Errorf("bob beside a spinning server: %s", m.raw)
		}
	}
	t.Logf("five calls of bob beside a spinning server: %v", time.Since(began))
	pid := w.server1(w.a, "hostile").PID
	began = time.Now()
	w.must("connection", "disable", w.a.id, "hostile")
	until(t, "the spinning server is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	t.Logf("a server that ignores SIGTERM and spins was gone after %v", time.Since(began))
	w.must("connection", "enable", w.a.id, "hostile")
	twin("spinning")
	// One that is stopped is ended all the same.
	stop := w.open(w.a, aliceUID, "")
	pid = w.server1(w.a, "hostile").PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stop.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"hostile.echo","arguments":{}}}`)
	until(t, "the call is open", func() bool {
		return slices.ContainsFunc(w.records(w.a), func(r row) bool { return r.State == "admitted" })
	})
	w.must("connection", "disable", w.a.id, "hostile")
	until(t, "the stopped server is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	w.must("connection", "enable", w.a.id, "hostile")
	twin("stopping")
}

// server1 is the project's jail of one server.
func (w *world) server1(p project, label string) api.PsRow {
	w.t.Helper()
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: p.id}, &ps); err != nil {
		w.t.Fatal(err)
	}
	for _, row := range ps.Rows {
		if row.Kind == "server" && row.Label == label {
			return row
		}
	}
	return api.PsRow{}
}

// A server that ends at its start is not started without end, and says why.
func TestServer_C122_CrashLoopsBackOff(t *testing.T) {
	w := newWorld(t)
	w.server("flaky", "hostile")
	w.connect(w.a, "flaky", "die", "echo")
	r := w.open(w.a, aliceUID, "")
	outcomes := map[string]int{}
	began := time.Now()
	for time.Since(began) < 4*time.Second {
		outcomes[r.call("die", `{}`).outcome()]++
	}
	t.Logf("in four seconds: %v", outcomes)
	if outcomes["server_exited"] > 12 {
		t.Errorf("the server was started %d times", outcomes["server_exited"])
	}
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the healthy server meanwhile: %s", m.raw)
	}
	until(t, "it can be called again", func() bool { return r.call("flaky.echo", `{}`).outcome() == "ok" })
}

// The workspace is another directory at the same path: nothing of the project's runs
// in it, whatever its owner, mark and content say.
func TestServer_P2_AReplacedWorkspaceIsNotTheProject(t *testing.T) {
	w := newWorld(t)
	w.works(w.a)
	moved := w.a.workspace + ".old"
	for n, c := range []struct {
		name    string
		replace func()
	}{
		{"a new directory", func() { w.directory("ws-a", aliceUID) }},
		{"a link to it", func() { os.Symlink(moved, w.a.workspace) }},
		{"a copy with its mark", func() {
			w.directory("ws-a", aliceUID)
			buf := make([]byte, 256)
			if n, err := unix.Getxattr(moved, "trusted.postern.project", buf); err == nil {
				unix.Setxattr(w.a.workspace, "trusted.postern.project", buf[:n], 0)
			}
		}},
		{"bob's", func() { os.Symlink(w.b.workspace, w.a.workspace) }},
		{"nothing", func() {}},
	} {
		label := fmt.Sprint("count", n) // a server of its own: it has not been started yet
		w.server(label, "count")
		w.connect(w.a, label, "echo")
		if err := os.Rename(w.a.workspace, moved); err != nil {
			t.Fatal(err)
		}
		c.replace()
		r := w.open(w.a, aliceUID, "")
		if got := r.call(label+".echo", `{}`).outcome(); got != "project_replaced" && got != "workspace_refused" {
			t.Errorf("%s: %s", c.name, got)
		}
		r.c.Close()
		os.RemoveAll(w.a.workspace)
		if err := os.Rename(moved, w.a.workspace); err != nil {
			t.Fatal(err)
		}
	}
	w.server("again", "count")
	w.connect(w.a, "again", "echo")
	if m := w.open(w.a, aliceUID, "").call("again.echo", `{}`); m.outcome() != "ok" {
		t.Errorf("its own directory again: %s", m.raw)
	}
	if n := len(w.calls(w.b)); n != 0 {
		t.Errorf("bob's workspace was written to %d times", n)
	}
}

func kill9(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
}

// Names that something outside executes cannot be made where they are absent, and
// what holds their place is gone from the workspace afterwards, however it ends.
func TestServer_C070_AbsentNamesAreNotMade(t *testing.T) {
	w := newWorld(t)
	w.server("hostile", "hostile")
	w.connect(w.a, "hostile", "sys")
	names := []string{".git/config", ".git/hooks/pre-commit", ".envrc", ".mcp.json", ".vscode/tasks.json", ".claude/settings.json"}
	left := func() []string {
		var out []string
		entries, err := os.ReadDir(w.a.workspace)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "secret.txt" && e.Name() != "calls.log" && e.Name() != "own" {
				out = append(out, e.Name())
			}
		}
		return out
	}
	attack := func() {
		t.Helper()
		r := w.open(w.a, aliceUID, "")
		if got := r.sys(`{"op":"write","path":"/workspace/own"}`); got != "written" {
			t.Errorf("its own file: %s", got)
		}
		for _, name := range names {
			if got := r.sys(`{"op":"write","path":"/workspace/` + name + `"}`); !strings.HasPrefix(got, "refused") {
				t.Errorf("%s was made: %s", name, got)
			}
			if got := r.sys(`{"op":"symlink","to":"own","path":"/workspace/` + name + `"}`); !strings.HasPrefix(got, "refused") {
				t.Errorf("%s was linked: %s", name, got)
			}
		}
		for _, name := range names {
			if fi, err := os.Stat(filepath.Join(w.a.workspace, name)); err == nil && fi.Mode().IsRegular() && fi.Size() > 1 {
				t.Errorf("%s holds %d bytes", name, fi.Size())
			}
		}
	}
	attack()
	w.must("connection", "disable", w.a.id, "hostile")
	until(t, "nothing is left after an orderly end", func() bool { return len(left()) == 0 })
	w.must("connection", "enable", w.a.id, "hostile")
	attack()
	w.Kill9()
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	attack() // and its end takes away what the killed one left
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if names := left(); len(names) != 0 {
		t.Errorf("left in the workspace: %v", names)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
}
