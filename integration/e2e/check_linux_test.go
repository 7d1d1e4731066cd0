package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// hook runs postern check as a hook of Claude Code, as a user, told about one tool.
func (w *world) hook(uid uint32, task, cwd, tool string, input map[string]any) (status int, said string) {
	w.t.Helper()
	told, err := json.Marshal(map[string]any{"session_id": "s", "cwd": cwd, "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": "toolu_1"})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(built.bin, "postern"), "--run-dir", w.RunDir, "check", "--hook", "claude", "--task", task)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Stdin, cmd.Env, cmd.Dir = bytes.NewReader(told), []string{}, "/"
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	if out.Len() > 0 {
		w.t.Errorf("the hook printed %q where its runtime reads a document", out.String())
	}
	return cmd.ProcessState.ExitCode(), errb.String()
}

// A runtime's hook asks about its own tools: the paths are looked at where they lie,
// through links, and what is answered is in activity. Nobody else's task is answered.
func TestC13_AHookIsHeldToTheWorkspaceAndRecorded(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	ws := w.a.workspace
	for name, to := range map[string]string{"out": "/etc/passwd", "within": "secret.txt", "away": "/etc"} {
		if err := os.Symlink(to, filepath.Join(ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	sub := filepath.Join(ws, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		tool, cwd, path string
		want            int
	}{
		{"Read", ws, ws + "/secret.txt", 0},
		{"Read", ws, ws + "/within", 0},
		{"Read", sub, "../secret.txt", 0},
		{"Write", ws, ws + "/sub/new.txt", 0},
		{"Grep", sub, "", 0},
		{"Read", ws, "/etc/passwd", 2},
		{"Read", ws, ws + "/out", 2},
		{"Read", ws, ws + "/../x", 2},
		{"Read", sub, "../../x", 2},
		{"Write", ws, ws + "/away/new", 2},
		{"Grep", "/etc", "", 2},
		{"Read", "/etc", "passwd", 2},
		{"Read", ws, "~/x", 2},
		{"Write", ws, ws + "-sibling/x", 2},
	} {
		input := map[string]any{"pattern": "x"}
		switch {
		case row.path == "":
		case row.tool == "Grep":
			input["path"] = row.path
		default:
			input["file_path"] = row.path
		}
		status, said := w.hook(runtimeUID, task, row.cwd, row.tool, input)
		if status != row.want || (status == 0) != (said == "") || status == 2 && !strings.Contains(said, "path_outside") {
			t.Errorf("%s %q in %s: status %d, %q; want %d", row.tool, row.path, row.cwd, status, said, row.want)
		}
	}
	if status, said := w.hook(runtimeUID, task, ws, "Bash", map[string]any{"command": "id"}); status != 2 || !strings.Contains(said, "blocked by Postern") {
		t.Errorf("Bash: status %d, %q", status, said)
	}
	if status, said := w.hook(bobUID, task, ws, "WebFetch", map[string]any{"url": "http://x"}); status != 2 || !strings.Contains(said, "task_unknown") {
		t.Errorf("somebody else's task: status %d, %q", status, said)
	}
	if status, said := w.hook(runtimeUID, task, ws, "WebFetch", map[string]any{"url": "http://x"}); status != 0 {
		t.Errorf("its own: status %d, %q", status, said)
	}
	states := map[string]int{}
	for _, r := range w.records(w.a) {
		if r.Task == task {
			states[r.State] += max(1, r.Count)
		}
	}
	if want := "map[completed:6 denied:10]"; fmt.Sprint(states) != want {
		t.Errorf("recorded %v, want %s", states, want)
	}
	w.must("task", "revoke", task)
	if status, said := w.hook(aliceUID, task, ws, "WebFetch", map[string]any{"url": "http://x"}); status != 2 || !strings.Contains(said, "task_ended") {
		t.Errorf("after its end: status %d, %q", status, said)
	}
}

// What is explained is what happens, over the real sockets.
func TestA6_ExplainedAsItHappens(t *testing.T) {
	w := newWorld(t)
	tok, task := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	explain := func(tool string) (out map[string]any, exit int) {
		t.Helper()
		stdout, stderr, exit := w.CLI(aliceUID, "--json", "explain", "--task", task, tool)
		if err := json.Unmarshal([]byte(stdout), &out); err != nil {
			t.Fatalf("%v: %s%s", err, stdout, stderr)
		}
		return out, exit
	}
	if got := r.call("echo", `{"text":"x"}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	if got, exit := explain("echo"); got["allowed"] != true || exit != 0 {
		t.Errorf("%v", got)
	}
	before := len(w.calls(w.a))
	w.must("connection", "revoke", "a", "count", "echo")
	got, exit := explain("count.echo")
	if got["code"] != "tool_not_granted" || exit != 65 {
		t.Errorf("%v, status %d", got, exit)
	}
	if got := r.call("echo", `{"text":"x"}`); !strings.Contains(got.raw, `"tool_not_granted"`) {
		t.Errorf("%s", got.raw)
	}
	if after := len(w.calls(w.a)); after != before {
		t.Errorf("the server was reached %d times more", after-before)
	}
	if _, stderr, exit := w.CLI(bobUID, "explain", "--task", task, "echo"); exit != 65 || !strings.Contains(stderr, "task_unknown") {
		t.Errorf("a stranger: status %d, %s", exit, stderr)
	}
}

// A hook speaks of paths of the host. /workspace means a project's directory inside a
// jail alone: a directory of that name on the host is somebody else's.
func TestC13_AHookThatNamesTheJailsDirectoryNamesAnotherOne(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	ws := w.a.workspace
	for name, to := range map[string]string{"jails": "/workspace/secret.txt", "hosts": ws + "/secret.txt"} {
		if err := os.Symlink(to, filepath.Join(ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{
		"/workspace/secret.txt":   2,
		"/workspace":              2,
		"//workspace/./new":       2,
		ws + "/jails":             2,
		ws + "/secret.txt":        0,
		ws + "/hosts":             0,
		ws + "/workspace/new.txt": 0,
	} {
		if status, said := w.hook(runtimeUID, task, ws, "Read", map[string]any{"file_path": path}); status != want || want == 2 && !strings.Contains(said, "path_outside") {
			t.Errorf("%s: status %d, %q; want %d", path, status, said, want)
		}
	}
}

// Paths that are more than one question can hold are refused alone: the authority and
// everybody's sessions go on.
func TestA3_AHookWithMorePathsThanAQuestionHoldsHarmsNobody(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	token, _ := w.token(w.b, runtimeUID)
	other := w.connect(w.b, runtimeUID, token).initialize()
	defer other.close()
	authority := w.authorityPID()
	long := func(n int, part string) (paths []string) {
		for i := range n {
			paths = append(paths, fmt.Sprintf("%s/%d%s", w.a.workspace, i, part))
		}
		return paths
	}
	for says, row := range map[string]struct {
		paths []string
		want  int
	}{
		"many long ones":         {long(256, strings.Repeat("x", 2000)), 2},
		"one that is very long":  {long(1, strings.Repeat("x/", 100_000)), 2},
		"control characters":     {long(200, strings.Repeat("\x01", 100)), 2},
		"characters that double": {long(40, strings.Repeat(`"`, 200)+"x"), 0},
		"more than may be":       {long(257, ""), 2},
		"as many as may be":      {long(256, ""), 0},
	} {
		if status, said := w.hook(runtimeUID, task, w.a.workspace, "read_many_files", map[string]any{"paths": row.paths}); status != row.want || row.want == 2 && !strings.Contains(said, "path_outside") {
			t.Errorf("%s: status %d, %.200q; want %d", says, status, said, row.want)
		}
		if now := w.authorityPID(); now != authority {
			t.Fatalf("%s: the authority ended", says)
		}
	}
	if tools := other.tools(); len(tools) == 0 {
		t.Error("another project's session has no tools")
	}
}

// A pattern is read as the runtime's matcher reads it: what its braces, escapes and
// classes spell leads out of the workspace as if it were written plainly.
func TestC13_APatternThatSpellsAWayOutIsRefused(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	ws := w.a.workspace
	if err := os.Symlink("/etc", filepath.Join(ws, "away")); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{
		"{src,lib}/**/*.{ts,js}":  0,
		ws + "/{src,lib}/*":       0,
		".{git,env}*":             0,
		".{.,x}/*":                2,
		"{.,a}{.,b}/*":            2,
		"[.]./*":                  2,
		`\.\./*`:                  2,
		"{,x}/etc/*":              2,
		"{src,away}/*":            2,
		"[a]way/*":                2,
		`a\way/*`:                 2,
		ws + "/{src,away}/passwd": 2,
	} {
		if status, said := w.hook(runtimeUID, task, ws, "Glob", map[string]any{"pattern": pattern}); status != want || want == 2 && !strings.Contains(said, "path_outside") {
			t.Errorf("%s: status %d, %q; want %d", pattern, status, said, want)
		}
	}
}

// A patch writes where its text says, and no argument of its own names that.
func TestC13_APatchIsHeldToTheWorkspace(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	ws := w.a.workspace
	for _, row := range []struct {
		input map[string]any
		want  int
	}{
		{map[string]any{"input": "*** Begin Patch\n*** Add File: new.txt\n+x\n*** Update File: " + ws + "/secret.txt\n@@\n-a\n+b\n*** End Patch"}, 0},
		{map[string]any{"input": "*** Begin Patch\n*** Add File: new.txt\n+x\n*** Update File: /etc/passwd\n@@\n-a\n+b\n*** End Patch"}, 2},
		{map[string]any{"patch": "*** Begin Patch\n*** Update File: secret.txt\n*** Move to: ../x\n*** End Patch"}, 2},
		{map[string]any{"input": "*** Begin Patch\n*** End Patch"}, 2},
		{map[string]any{}, 2},
	} {
		if status, said := w.hook(runtimeUID, task, ws, "apply_patch", row.input); status != row.want || row.want == 2 && !strings.Contains(said, "path_outside") {
			t.Errorf("%v: status %d, %q; want %d", row.input, status, said, row.want)
		}
	}
}
