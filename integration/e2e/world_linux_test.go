package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// The people, the host and the runtime of the tests. None has an entry in passwd.
const (
	aliceUID   = 61001
	bobUID     = 61002
	runtimeUID = 61050 // one OS user that runs both projects' runtimes
	hostUID    = 61100
)

// answerWait bounds every wait for one answer.
const answerWait = 30 * time.Second

var built struct {
	bin, fixtures, repo string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "the end-to-end tests need root")
			return 1
		}
		fmt.Println("the end-to-end tests need root; none was run")
		return 0
	}
	dir, err := os.MkdirTemp("/tmp", "e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	built.repo, err = rig.Repository()
	built.bin, built.fixtures = filepath.Join(dir, "bin"), filepath.Join(dir, "fixtures")
	if err == nil {
		err = rig.Build(built.repo, built.bin)
	}
	for _, name := range []string{"count", "hostile", "files", "offers", "noisy", "secret", "pictures"} {
		if err == nil {
			_, err = rig.BuildServer(built.repo, built.fixtures, name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// world is one private Postern with two projects: alice's a and bob's b, each
// connected to the counting server, with echo, slow, read and progress granted.
type world struct {
	*rig.Rig
	t    *testing.T
	a, b project
}

type project struct {
	id, label, workspace string
	owner                int
}

func newWorld(t *testing.T) *world { t.Helper(); return newWorldWith(t, nil) }

// newBareWorld is a private Postern in which nothing is registered.
func newBareWorld(t *testing.T) *world { t.Helper(); return newBareWorldWith(t, nil) }

func newBareWorldWith(t *testing.T, profiles map[string]string) *world {
	t.Helper()
	return &world{Rig: rig.ForTest(t, rig.Config{Bin: built.bin, Hosts: []rig.Host{{ID: "agents", UID: hostUID, Channels: []string{"sms"}}}, Profiles: profiles}), t: t}
}

func newWorldWith(t *testing.T, profiles map[string]string) *world {
	t.Helper()
	w := newBareWorldWith(t, profiles)
	w.must("account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	w.must("account", "add", "bob", "--uid", fmt.Sprint(bobUID))
	w.must("server", "add", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--tier", "write=reversible", "--", "/package/count")
	w.a = w.addProject("a", "alice", aliceUID)
	w.b = w.addProject("b", "bob", bobUID)
	return w
}

func (w *world) addProject(label, owner string, uid int) project {
	w.t.Helper()
	p := project{label: label, workspace: filepath.Join(w.Dir, "ws-"+label), owner: uid}
	if err := os.Mkdir(p.workspace, 0o700); err != nil {
		w.t.Fatal(err)
	}
	secret := filepath.Join(p.workspace, "secret.txt")
	if err := os.WriteFile(secret, []byte("the secret of "+label), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for _, f := range []string{p.workspace, secret} {
		if err := os.Chown(f, uid, uid); err != nil {
			w.t.Fatal(err)
		}
	}
	var added api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: label, Workspace: p.workspace, Owner: owner}, &added); err != nil {
		w.t.Fatalf("project add %s: %v", label, err)
	}
	p.id = added.Project
	w.must("connection", "add", label, "count")
	w.must("connection", "grant", label, "count", "echo", "slow", "read", "progress", "stubborn", "env", "fds", "deaf")
	return p
}

// must runs the command as root.
func (w *world) must(args ...string) string {
	w.t.Helper()
	out, errb, exit := w.CLI(0, args...)
	if exit != 0 {
		w.t.Fatalf("postern %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errb)
	}
	return out
}

// calls is what the project's tool server wrote down of the calls it received.
func (w *world) calls(p project) []string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.workspace, "calls.log"))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "call ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// records are the project's records, newest first.
func (w *world) records(p project) []api.ActivityRow {
	w.t.Helper()
	var act api.ActivityResult
	if err := w.Call(api.Activity, api.ActivityParams{Project: p.id, Limit: 500}, &act); err != nil {
		w.t.Fatal(err)
	}
	return act.Rows
}

// until waits for a condition that something outside brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(answerWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it did not come about: %s", what)
}

// token makes a task of the host for uid and returns the token as it came by
// descriptor 3 of the command, and the task.
func (w *world) token(p project, uid int, args ...string) (token, task string) {
	w.t.Helper()
	token, task, errb, exit := w.tryToken(p, uid, args...)
	if exit != 0 {
		w.t.Fatalf("task new: exit %d\n%s", exit, errb)
	}
	return token, task
}

func (w *world) tryToken(p project, uid int, args ...string) (token, task, errb string, exit int) {
	w.t.Helper()
	return w.minted(append([]string{"new", "--project", p.id, "--for-uid", fmt.Sprint(uid)}, args...)...)
}

// fresh returns another token of a live task.
func (w *world) fresh(task string) string {
	w.t.Helper()
	token, _, errb, exit := w.minted("token", task)
	if exit != 0 {
		w.t.Fatalf("task token: exit %d\n%s", exit, errb)
	}
	return token
}

// minted runs a command of the host's that hands out a token.
func (w *world) minted(args ...string) (token, task, errb string, exit int) {
	w.t.Helper()
	rd, wr, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	defer rd.Close()
	c := exec.Command(filepath.Join(w.Bin, "postern"), append([]string{"--run-dir", w.RunDir, "--json", "task", args[0], "--token-fd", "3"}, args[1:]...)...)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr, c.Dir, c.ExtraFiles, c.SysProcAttr = &out, &stderr, "/", []*os.File{wr}, rig.As(hostUID)
	c.Env = []string{"PATH=/usr/bin"}
	err = c.Run()
	w.Printed(c.Args[1:], out.Bytes())
	wr.Close()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return "", "", stderr.String() + out.String(), ee.ExitCode()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(rd)
	if err != nil {
		w.t.Fatal(err)
	}
	var res api.TaskResult
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		w.t.Fatalf("task %s printed %q: %v", args[0], out.String(), err)
	}
	if strings.Contains(out.String(), strings.TrimSpace(string(b))) {
		w.t.Errorf("task %s printed the token", args[0])
	}
	return strings.TrimSpace(string(b)), res.Task, "", 0
}

// message is one JSON-RPC message as it came.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		Meta       struct {
			Refusal struct {
				Code string `json:"code"`
			} `json:"postern/refusal"`
		} `json:"_meta"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Code string `json:"code"`
		} `json:"data"`
	} `json:"error"`
	raw string
}

// outcome says in one word what came of a call: its text, or the refusal.
func (m message) outcome() string {
	switch {
	case m.Error != nil && m.Error.Data.Code != "":
		return m.Error.Data.Code
	case m.Error != nil:
		return fmt.Sprint(m.Error.Code)
	case m.Result.Meta.Refusal.Code != "":
		return m.Result.Meta.Refusal.Code
	case m.Result.IsError:
		return "isError"
	}
	return "ok"
}

func (m message) text() string {
	if len(m.Result.Content) == 0 {
		return ""
	}
	return m.Result.Content[0].Text
}

// runtime is a client that speaks MCP by hand through postern connect.
type runtime struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr *bytes.Buffer
	mu     sync.Mutex
	next   int
	got    map[string]chan message
	notes  chan message
	ended  chan struct{}
}

// connect starts postern connect as uid with a token on descriptor 3 ("" for none).
func (w *world) connect(p project, uid int, token string) *runtime {
	w.t.Helper()
	r := &runtime{t: w.t, stderr: &bytes.Buffer{}, got: map[string]chan message{}, notes: make(chan message, 4096), ended: make(chan struct{})}
	args := []string{"--run-dir", w.RunDir, "connect", "--project", p.id}
	if token != "" {
		args = append(args, "--token-fd", "3")
	}
	r.cmd = exec.Command(filepath.Join(w.Bin, "postern"), args...)
	if token != "" {
		rd, wr, err := os.Pipe()
		if err != nil {
			w.t.Fatal(err)
		}
		defer rd.Close()
		if _, err := wr.WriteString(token + "\n"); err != nil {
			w.t.Fatal(err)
		}
		wr.Close()
		r.cmd.ExtraFiles = []*os.File{rd}
	}
	r.cmd.SysProcAttr, r.cmd.Dir, r.cmd.Env, r.cmd.Stderr = rig.As(uid), "/", []string{"PATH=/usr/bin"}, r.stderr
	in, err := r.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	r.in = in
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go r.read(out)
	w.t.Cleanup(func() { r.close() })
	return r
}

func (r *runtime) read(out io.Reader) {
	defer close(r.ended)
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal([]byte(line), &m) != nil {
			continue
		}
		m.raw = line
		if m.Method != "" || len(m.ID) == 0 || string(m.ID) == "null" {
			select {
			case r.notes <- m:
			default:
			}
			continue
		}
		r.mu.Lock()
		c := r.got[string(m.ID)]
		delete(r.got, string(m.ID))
		r.mu.Unlock()
		if c != nil {
			c <- m
		} else {
			r.notes <- m
		}
	}
}

// send writes one line.
func (r *runtime) send(line string) error {
	_, err := io.WriteString(r.in, line+"\n")
	return err
}

// expect registers for the answer to an id.
func (r *runtime) expect(id string) chan message {
	c := make(chan message, 1)
	r.mu.Lock()
	r.got[id] = c
	r.mu.Unlock()
	return c
}

func (r *runtime) wait(c chan message) message {
	r.t.Helper()
	select {
	case m := <-c:
		return m
	case <-r.ended:
		select {
		case m := <-c:
			return m
		default:
		}
		return message{Error: &struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Code string `json:"code"`
			} `json:"data"`
		}{Code: 1, Message: "the session ended"}}
	case <-time.After(answerWait):
		r.t.Fatalf("no answer in time; stderr: %s", r.stderr)
		panic("unreachable")
	}
}

// ask sends one request with an id of its own and waits for the answer.
func (r *runtime) ask(method, params string) message {
	r.t.Helper()
	r.mu.Lock()
	r.next++
	id := fmt.Sprint(r.next)
	r.mu.Unlock()
	c := r.expect(id)
	if err := r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)); err != nil {
		select { // what came before the end says why
		case <-r.ended:
		case <-time.After(answerWait):
		}
	}
	return r.wait(c)
}

func (r *runtime) call(tool, args string) message {
	r.t.Helper()
	return r.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// initialize opens the session as an older runtime does.
func (r *runtime) initialize() *runtime {
	r.t.Helper()
	m := r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`)
	if m.Error != nil {
		r.t.Fatalf("initialize: %s stderr: %s", m.raw, r.stderr)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *runtime) tools() []string {
	r.t.Helper()
	var out []string
	for _, t := range r.ask("tools/list", `{}`).Result.Tools {
		out = append(out, t.Name)
	}
	return out
}

// refused waits for a connector that was not let in: its one error line.
func (r *runtime) refused() string {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(answerWait):
		r.t.Fatal("the connector was not refused in time")
	}
	r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 1 {
		r.t.Errorf("connect ended with %d, not 1", code)
	}
	if lines := strings.Count(strings.TrimSpace(r.stderr.String()), "\n"); lines != 0 {
		r.t.Errorf("more than one line on stderr: %q", r.stderr)
	}
	select {
	case m := <-r.notes:
		return m.outcome()
	default:
	}
	return "nothing on stdout; stderr: " + r.stderr.String()
}

func (r *runtime) close() {
	r.in.Close()
	done := make(chan struct{})
	go func() { r.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		r.cmd.Process.Kill()
		<-done
	}
}
