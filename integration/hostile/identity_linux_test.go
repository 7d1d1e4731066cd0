package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/supervisor/api"
)

// A token that ran out, was taken back, or belongs to a task that ended opens nothing.
func TestIdentity_T2_TokensEnd(t *testing.T) {
	w := newWorld(t)
	for _, ttl := range []int64{-1, 1 << 62, 9223372036854775807, 25 * 3600 * 1000} {
		r := w.control(hostUID, api.TaskNew, api.TaskNewParams{Project: w.a.id, ForUID: runtimeUID, TTLMs: ttl})
		if r.Refusal == nil {
			t.Errorf("a token for %d ms: %s", ttl, r.raw)
		}
	}
	for _, binds := range []int{-1, 65, 1 << 40} {
		r := w.control(hostUID, api.TaskNew, api.TaskNewParams{Project: w.a.id, ForUID: runtimeUID, Binds: binds})
		if r.Refusal == nil {
			t.Errorf("a token of %d binds: %s", binds, r.raw)
		}
	}
	for _, uid := range []uint32{0, hostUID} {
		if r := w.control(hostUID, api.TaskNew, api.TaskNewParams{Project: w.a.id, ForUID: uid}); r.Refusal == nil {
			t.Errorf("a token for uid %d: %s", uid, r.raw)
		}
	}
	for _, uid := range []int{aliceUID, malloryUID, runtimeUID, 0} {
		if r := w.control(uid, api.TaskNew, api.TaskNewParams{Project: w.a.id, ForUID: runtimeUID}); r.code() != "host_unknown" {
			t.Errorf("uid %d makes a task: %s", uid, r.raw)
		}
	}

	token, task := w.task(w.a, runtimeUID, 2)
	live := w.open(w.a, runtimeUID, token)
	if m := live.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	// A fresh token closes the former session, and the former token is no more.
	var fresh api.TaskResult
	r := w.control(hostUID, api.TaskToken, api.TaskParams{Task: task})
	if err := json.Unmarshal(r.Result, &fresh); err != nil || fresh.Token == "" {
		t.Fatalf("task token: %s", r.raw)
	}
	if m := live.call("echo", `{}`); m.outcome() == "ok" {
		t.Errorf("the former session: %s", m.raw)
	}
	if _, got := w.bind(w.a, runtimeUID, token); got == "" {
		t.Error("the former token still binds")
	}
	for _, uid := range []int{aliceUID, malloryUID, bobUID} {
		if r := w.control(uid, api.TaskToken, api.TaskParams{Task: task}); r.Refusal == nil {
			t.Errorf("uid %d gets a token of another's task: %s", uid, r.raw)
		}
	}
	again := w.open(w.a, runtimeUID, fresh.Token)
	if m := again.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the fresh token: %s", m.raw)
	}
	before := len(w.calls(w.a))
	unused, _ := w.task(w.a, runtimeUID, 1)
	w.must("task", "revoke", task)
	if m := again.call("echo", `{}`); m.outcome() == "ok" {
		t.Errorf("a session of a revoked task: %s", m.raw)
	}
	if r := w.control(hostUID, api.TaskToken, api.TaskParams{Task: task}); r.Refusal == nil {
		t.Errorf("a token for a revoked task: %s", r.raw)
	}
	if _, got := w.bind(w.a, runtimeUID, fresh.Token); got == "" {
		t.Error("the token of a revoked task binds")
	}
	if n := len(w.calls(w.a)); n != before {
		t.Errorf("%d calls after the end", n-before)
	}
	if m := w.open(w.a, runtimeUID, unused).call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("another task of the same runtime: %s", m.raw)
	}
	// A second too late.
	r = w.control(hostUID, api.TaskNew, api.TaskNewParams{Project: w.a.id, ForUID: runtimeUID, TTLMs: 300})
	var short api.TaskResult
	json.Unmarshal(r.Result, &short)
	c := w.door(w.a, runtimeUID)
	time.Sleep(400 * time.Millisecond)
	c.Write([]byte(bindLine(short.Token)))
	if got := codeOf(readLine(c)); got != "token_expired" {
		t.Errorf("an expired token: %q", got)
	}
}

// Whatever ends a person's right ends their open session with it, at the next call at
// the latest; restoring the right restores nothing that was open.
func TestIdentity_U2_RightsEndWhileSessionsLive(t *testing.T) {
	for _, c := range []struct {
		name string
		who  int
		end  func(w *world)
		back func(w *world)
	}{
		{"person_bind off", aliceUID, func(w *world) { w.must("project", "set", w.a.id, "--person-bind=false") }, func(w *world) { w.must("project", "set", w.a.id, "--person-bind=true") }},
		{"the member is removed", bobUID, func(w *world) { w.must("project", "member", "remove", w.a.id, "bob") }, func(w *world) { w.must("project", "member", "add", w.a.id, "bob", "--role", "member") }},
		{"the member becomes a viewer", bobUID, func(w *world) {
			w.must("project", "member", "remove", w.a.id, "bob")
			w.must("project", "member", "add", w.a.id, "bob", "--role", "viewer")
		}, nil},
		{"the account is suspended", aliceUID, func(w *world) { w.must("account", "suspend", "alice") }, func(w *world) { w.must("account", "activate", "alice") }},
		{"the account is deleted", bobUID, func(w *world) { w.must("account", "delete", "bob") }, nil},
		{"the uid moves to another account", bobUID, func(w *world) {
			w.must("account", "delete", "bob")
			w.must("account", "add", "robert", "--uid", fmt.Sprint(bobUID))
		}, nil},
		{"the project is deleted", aliceUID, func(w *world) { w.must("project", "delete", w.a.id) }, nil},
		{"the server is deleted", aliceUID, func(w *world) { w.must("server", "delete", "count") }, nil},
		{"the server is updated", aliceUID, func(w *world) {
			w.must("server", "update", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count", "/workspace/calls.log")
		}, func(w *world) { w.must("connection", "accept", w.a.id, "count") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.must("project", "member", "add", w.a.id, "bob", "--role", "member")
			// Without a policy a project admits its owner alone.
			w.must("access", "set", "local", "alice", "--owner")
			w.must("access", "set", "local", "bob", "--owner")
			r := w.open(w.a, c.who, "")
			if m := r.call("echo", `{}`); m.outcome() != "ok" {
				t.Fatal(m.raw)
			}
			other := w.open(w.b, bobUID, "")
			before := len(w.calls(w.a))
			c.end(w)
			began := time.Now()
			if m := r.call("echo", `{}`); m.outcome() == "ok" {
				t.Errorf("the open session: %s", m.raw)
			} else {
				t.Logf("the open session hears %s after %v", m.outcome(), time.Since(began).Round(time.Millisecond))
			}
			if conn, err := dialAs(c.who, w.doorOf(w.a)); err == nil && !strings.Contains(c.name, "server") {
				conn.Write([]byte(bindLine("")))
				if codeOf(readLine(conn)) == "" {
					t.Error("a new session opens")
				}
				conn.Close()
			}
			if n := len(w.calls(w.a)); n != before {
				t.Errorf("%d calls reached the server", n-before)
			}
			if c.who != bobUID && !strings.Contains(c.name, "server") {
				if m := other.call("echo", `{}`); m.outcome() != "ok" {
					t.Errorf("bob in his own project: %s", m.raw)
				}
			}
			if c.back == nil {
				return
			}
			c.back(w)
			if m := w.open(w.a, c.who, "").call("echo", `{}`); m.outcome() != "ok" {
				t.Errorf("afterwards, anew: %s", m.raw)
			}
		})
	}
}

// A project made again under the label and in the directory of a deleted one inherits
// nothing; nor does a server of a deleted one's label.
func TestIdentity_P8_NothingIsInheritedByALabel(t *testing.T) {
	w := newWorld(t)
	token, task := w.task(w.a, runtimeUID, 4)
	live := w.open(w.a, runtimeUID, token)
	if m := live.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	old := w.a
	w.must("project", "delete", w.a.id)
	before := len(w.calls(w.a))
	again := w.addProject("a", "alice", aliceUID)
	if again.id == old.id {
		t.Fatal("the id was used again")
	}
	if m := live.call("echo", `{}`); m.outcome() == "ok" {
		t.Errorf("a session of the deleted project: %s", m.raw)
	}
	if _, got := w.bind(again, runtimeUID, token); got != "token_invalid" {
		t.Errorf("a token of the deleted project at the new one: %q", got)
	}
	if c, err := dialAs(runtimeUID, w.doorOf(old)); err == nil {
		c.Close()
		t.Error("the deleted project's socket is still there")
	}
	r := w.open(again, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "-32602" {
		t.Errorf("a tool that the deleted project was granted: %s", m.raw)
	}
	if names := r.tools(); len(names) != 0 {
		t.Errorf("listed: %v", names)
	}
	if r := w.control(hostUID, api.TaskToken, api.TaskParams{Task: task}); r.Refusal == nil {
		t.Errorf("a token for the deleted project's task: %s", r.raw)
	}
	if n := len(w.calls(w.a)); n != before {
		t.Errorf("%d calls", n-before)
	}
	w.must("server", "delete", "count")
	w.server("count", "count")
	if m := w.open(w.b, bobUID, "").call("echo", `{}`); m.outcome() == "ok" {
		t.Errorf("a server of the same label inherited bob's grant: %s", m.raw)
	}
	w.connect(again, "count", "echo")
	if m := w.open(again, aliceUID, "").call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("granted anew: %s", m.raw)
	}
}

// A host that root took out of its configuration: its live tasks end, its tokens too.
func TestIdentity_T6_ARemovedHostEndsItsTasks(t *testing.T) {
	w := newWorld(t)
	token, task := w.task(w.a, runtimeUID, 4)
	if m := w.open(w.a, runtimeUID, token).call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, "postern.yaml"), []byte("hosts: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	before := len(w.calls(w.a))
	if _, got := w.bind(w.a, runtimeUID, token); got == "" {
		t.Error("a token of a removed host binds")
	} else {
		t.Logf("refused: %s", got)
	}
	if r := w.control(hostUID, api.TaskToken, api.TaskParams{Task: task}); r.code() != "host_unknown" {
		t.Errorf("a removed host asks for a token: %s", r.raw)
	}
	if n := len(w.calls(w.a)); n != before {
		t.Errorf("%d calls", n-before)
	}
	w.works(w.a)
}

// The token is in no argument, environment, log, store or answer.
func TestIdentity_C112_TheTokenIsNowhere(t *testing.T) {
	w := newWorld(t)
	token, task := w.task(w.a, runtimeUID, 1)
	if m := w.open(w.a, runtimeUID, token).call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	w.bind(w.a, runtimeUID, token)
	for what, text := range map[string]string{
		"the log": w.Log.String(), "task show": w.must("--json", "task", "show", task), "activity": w.must("--json", "activity"), "ps": w.must("--json", "ps"),
	} {
		if strings.Contains(text, token) {
			t.Errorf("the token is in %s", what)
		}
	}
	filepath.Walk(w.Dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > 64<<20 {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), token) {
			t.Errorf("the token is in %s", path)
		}
		return nil
	})
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		for _, f := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(p, f)); err == nil && strings.Contains(string(b), token) {
				t.Errorf("the token is in %s/%s", p, f)
			}
		}
	}
}

// Binding races with the revocation of the task: once it has returned, no session of
// the task makes a call, whichever won.
func TestIdentity_A2_BindsRaceWithTheEndOfTheirTask(t *testing.T) {
	w := newWorld(t)
	for round := range 5 {
		token, task := w.task(w.a, runtimeUID, 30)
		type won struct{ c net.Conn }
		bound := make(chan won, 30)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 30 {
			c := w.door(w.a, runtimeUID)
			wg.Go(func() {
				<-start
				io.WriteString(c, bindLine(token))
				if strings.Contains(readLine(c), `"session"`) {
					bound <- won{c}
				}
			})
		}
		close(start)
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)
		w.must("task", "revoke", task)
		before := len(w.calls(w.a))
		wg.Wait()
		close(bound)
		n := 0
		for b := range bound {
			n++
			io.WriteString(b.c, `{"postern":{"stdio":"here"}}`+"\n"+`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`+"\n"+
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`+"\n")
			for line := readLine(b.c); line != ""; line = readLine(b.c) {
				if strings.Contains(line, `"text":"echo"`) {
					t.Errorf("a call after the task's end: %s", line)
				}
			}
		}
		if got := len(w.calls(w.a)); got != before {
			t.Errorf("%d calls after the task's end", got-before)
		}
		t.Logf("round %d: %d had bound", round, n)
	}
	w.works(w.a)
}

// More sessions than a bridge has room for: the last are refused, the first go on.
func TestIdentity_TooManySessionsAreRefused(t *testing.T) {
	w := newWorld(t)
	first := w.open(w.a, aliceUID, "")
	refused := 0
	for range 140 {
		if _, code := w.bind(w.a, aliceUID, ""); code != "" {
			refused++
			if code != "too_many_sessions" {
				t.Errorf("refused as %q", code)
			}
		}
	}
	if refused == 0 || refused > 20 {
		t.Errorf("%d of 140 were refused", refused)
	}
	if m := first.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the first session: %s", m.raw)
	}
	w.works(w.b)
}

// The same without a restart: the file alone is changed, and the live session ends. A
// file with a mistake changes nothing, in either direction, and doctor says so.
func TestIdentity_T6_C8_AHostIsRemovedWhilePosterndRuns(t *testing.T) {
	w := newWorld(t)
	token, task := w.task(w.a, runtimeUID, 4)
	live := w.open(w.a, runtimeUID, token)
	if m := live.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	file := filepath.Join(w.Dir, "postern.yaml")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	says := func(doc, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, want, func() bool {
			var st api.RootStatusResult
			return w.Call(api.RootStatus, nil, &st) == nil && strings.Contains(st.Config.Error, want) && (want != "" || st.Config.Error == "")
		})
	}
	says("hosts: everyone\n", "postern.yaml:1: hosts: want a list")
	if out := w.must("doctor"); !strings.Contains(out, "the configuration has mistakes") {
		t.Errorf("%s", out)
	}
	if m := live.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("a bad file ended a task: %s", m.raw)
	}
	says(string(good), "")
	before := len(w.calls(w.a))
	says("hosts: []\n", "")
	until(t, "the task's end", func() bool { return strings.Contains(w.must("--json", "task", "show", task), "\"ended\"") })
	if m := live.call("echo", `{}`); m.outcome() == "ok" || len(w.calls(w.a)) != before {
		t.Errorf("a task of a removed host calls: %s", m.raw)
	}
	// It does not come back with the host.
	says(string(good), "")
	if _, got := w.bind(w.a, runtimeUID, token); got == "" {
		t.Error("an ended task binds again")
	}
	w.works(w.a)
}
