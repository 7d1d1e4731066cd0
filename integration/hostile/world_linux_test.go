package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// The people, the host and the runtimes of the tests. None has an entry in passwd.
const (
	aliceUID   = 62001
	bobUID     = 62002
	malloryUID = 62003 // has no account
	runtimeUID = 62050
	hostUID    = 62100
)

// answerWait bounds every wait for one answer.
const answerWait = 30 * time.Second

var built struct{ bin, fixtures string }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "the hostile tests need root")
			return 1
		}
		fmt.Println("the hostile tests need root; none was run")
		return 0
	}
	dir, err := os.MkdirTemp("/tmp", "hostile-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	repo, err := rig.Repository()
	if err != nil {
		return err
	}
	built.bin, built.fixtures = filepath.Join(dir, "bin"), filepath.Join(dir, "fixtures")
	if err := rig.Build(repo, built.bin); err != nil {
		return err
	}
	for _, name := range []string{"count", "hostile"} {
		if _, err := rig.BuildServer(repo, built.fixtures, name); err != nil {
			return err
		}
	}
	return nil
}

// world is one private Postern. Alice owns a, Bob b; both may bind as themselves,
// and both are connected to the counting server with a few tools granted.
type world struct {
	*rig.Rig
	t    *testing.T
	a, b project
}

type project struct {
	id, label, workspace string
	owner                int
}

var granted = []string{"echo", "slow", "read", "progress", "stubborn", "big"}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, rig.Config{})
}

func newWorldWith(t *testing.T, cfg rig.Config) *world {
	t.Helper()
	cfg.Bin, cfg.Hosts = built.bin, []rig.Host{{ID: "agents", UID: hostUID}}
	w := &world{Rig: rig.ForTest(t, cfg), t: t}
	w.must("account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	w.must("account", "add", "bob", "--uid", fmt.Sprint(bobUID))
	w.server("count", "count")
	w.a, w.b = w.addProject("a", "alice", aliceUID), w.addProject("b", "bob", bobUID)
	for _, p := range []project{w.a, w.b} {
		w.connect(p, "count", granted...)
	}
	return w
}

// server registers a fixture under a label, with arguments.
func (w *world) server(label, fixture string, args ...string) {
	w.t.Helper()
	w.must(append([]string{"server", "add", label, "--profile", "static", "--package", filepath.Join(built.fixtures, fixture), "--", "/package/" + fixture}, args...)...)
}

func (w *world) connect(p project, server string, tools ...string) {
	w.t.Helper()
	w.must("connection", "add", p.id, server)
	w.must(append([]string{"connection", "grant", p.id, server}, tools...)...)
}

func (w *world) addProject(label, owner string, uid int) project {
	w.t.Helper()
	p := project{label: label, workspace: w.directory("ws-"+label, uid), owner: uid}
	secret := filepath.Join(p.workspace, "secret.txt")
	if err := os.WriteFile(secret, []byte("the secret of "+label), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chown(secret, uid, uid); err != nil {
		w.t.Fatal(err)
	}
	var added api.ProjectResult
	if err := w.Call(api.ProjectAdd, api.ProjectAddParams{Label: label, Workspace: p.workspace, Owner: owner}, &added); err != nil {
		w.t.Fatalf("project add %s: %v", label, err)
	}
	p.id = added.Project
	w.must("project", "set", p.id, "--person-bind=true")
	return p
}

// directory makes a directory of uid below the rig's.
func (w *world) directory(name string, uid int) string {
	w.t.Helper()
	dir := filepath.Join(w.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		w.t.Fatal(err)
	}
	return dir
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

// calls is what the project's tool servers wrote down of the calls they received.
func (w *world) calls(p project) []string {
	w.t.Helper()
	b, _ := os.ReadFile(filepath.Join(p.workspace, "calls.log"))
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
	var all []api.ActivityRow
	for cursor := ""; ; {
		var act api.ActivityResult
		if err := w.Call(api.Activity, api.ActivityParams{Project: p.id, Limit: 500, Cursor: cursor}, &act); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, act.Rows...)
		if cursor = act.Cursor; !act.More {
			return all
		}
	}
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

// dialAs connects as another user: the kernel keeps the identity of the thread that
// connects. The thread is not used again.
func dialAs(uid int, path string) (*net.UnixConn, error) {
	type dialled struct {
		c   *net.UnixConn
		err error
	}
	got := make(chan dialled, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if uid != 0 {
			n := uintptr(uid)
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
				got <- dialled{err: e}
				return
			}
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, n, n, n); e != 0 {
				got <- dialled{err: e}
				return
			}
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, n, n, n); e != 0 {
				got <- dialled{err: e}
				return
			}
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			got <- dialled{err: err}
			return
		}
		if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			syscall.Close(fd)
			got <- dialled{err: err}
			return
		}
		f := os.NewFile(uintptr(fd), path)
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			got <- dialled{err: err}
			return
		}
		got <- dialled{c: c.(*net.UnixConn)}
	}()
	d := <-got
	return d.c, d.err
}

// doorOf is the project's socket.
func (w *world) doorOf(p project) string { return filepath.Join(w.RunDir, "p", p.id, "bridge.sock") }

// door connects to a project's socket as uid.
func (w *world) door(p project, uid int) *net.UnixConn {
	w.t.Helper()
	c, err := dialAs(uid, w.doorOf(p))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// bindLine is the first line, with a token where there is one.
func bindLine(token string) string {
	if token == "" {
		return `{"postern":{"bind":1}}` + "\n"
	}
	return `{"postern":{"bind":1,"token":"` + token + `"}}` + "\n"
}

// readLine reads one line within the bound; "" at the end.
func readLine(c net.Conn) string {
	c.SetReadDeadline(time.Now().Add(answerWait))
	defer c.SetReadDeadline(time.Time{})
	var line []byte
	var b [1]byte
	for {
		n, err := c.Read(b[:])
		if n == 1 {
			if b[0] == '\n' {
				return string(line)
			}
			line = append(line, b[0])
		}
		if err != nil {
			return string(line)
		}
	}
}

// codeOf is the code of an error line, "" where it is none.
func codeOf(line string) string {
	var m message
	if json.Unmarshal([]byte(line), &m) != nil || m.Error == nil {
		return ""
	}
	if m.Error.Data.Code != "" {
		return m.Error.Data.Code
	}
	return fmt.Sprint(m.Error.Code)
}

// bind sends the bind line and returns the code of the refusal, "" for a session.
func (w *world) bind(p project, uid int, token string) (net.Conn, string) {
	w.t.Helper()
	c := w.door(p, uid)
	io.WriteString(c, bindLine(token))
	line := readLine(c)
	if strings.HasPrefix(line, `{"postern":{"session":"ses_`) {
		return c, ""
	}
	if code := codeOf(line); code != "" {
		return c, code
	}
	return c, "no answer: " + line
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
		Meta struct {
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
	Postern *struct {
		Ended string `json:"ended"`
	} `json:"postern"`
	raw string
}

// outcome says in one word what came of a call: ok, or the refusal.
func (m message) outcome() string {
	switch {
	case m.raw == "":
		return "end"
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

// peer is a runtime that writes bytes by hand on a bound connection.
type peer struct {
	t    *testing.T
	c    net.Conn
	in   *bufio.Reader
	next int
}

// session binds as uid and carries MCP on the connection itself.
func (w *world) session(p project, uid int, token string) *peer {
	w.t.Helper()
	c, code := w.bind(p, uid, token)
	if code != "" {
		w.t.Fatalf("bind: %s", code)
	}
	io.WriteString(c, `{"postern":{"stdio":"here"}}`+"\n")
	return &peer{t: w.t, c: c, in: bufio.NewReaderSize(c, 1<<16), next: 100000}
}

// open is a session that has shaken hands.
func (w *world) open(p project, uid int, token string) *peer {
	w.t.Helper()
	r := w.session(p, uid, token)
	if m := r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`); m.outcome() != "ok" {
		w.t.Fatalf("initialize: %s", m.raw)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *peer) send(line string) error {
	r.c.SetWriteDeadline(time.Now().Add(answerWait))
	_, err := io.WriteString(r.c, line+"\n")
	return err
}

// read returns the next message; its raw is "" at the end.
func (r *peer) read() message {
	r.t.Helper()
	r.c.SetReadDeadline(time.Now().Add(answerWait))
	line, err := r.in.ReadBytes('\n')
	var m message
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		r.t.Fatalf("no answer in time")
	}
	if err != nil {
		return m
	}
	if err := json.Unmarshal(line, &m); err != nil {
		r.t.Errorf("the bridge wrote %.200q: %v", line, err)
	}
	m.raw = string(bytes.TrimSpace(line))
	return m
}

// answer reads up to the answer of an id.
func (r *peer) answer(id string) message {
	r.t.Helper()
	for {
		m := r.read()
		if m.raw == "" || m.Method == "" && string(m.ID) == id {
			return m
		}
	}
}

func (r *peer) ask(method, params string) message {
	r.t.Helper()
	r.next++
	id := fmt.Sprint(r.next)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`) // an ended session answers with its end
	return r.answer(id)
}

func (r *peer) call(tool, args string) message {
	r.t.Helper()
	name, _ := json.Marshal(tool)
	return r.ask("tools/call", `{"name":`+string(name)+`,"arguments":`+args+`}`)
}

func (r *peer) tools() []string {
	r.t.Helper()
	var out []string
	for cursor := ""; ; {
		m := r.ask("tools/list", `{`+cursor+`}`)
		for _, t := range m.Result.Tools {
			out = append(out, t.Name)
		}
		var next struct {
			Result struct {
				NextCursor string `json:"nextCursor"`
			} `json:"result"`
		}
		json.Unmarshal([]byte(m.raw), &next)
		if next.Result.NextCursor == "" {
			slices.Sort(out)
			return out
		}
		cursor = `"cursor":"` + next.Result.NextCursor + `"`
	}
}

// works is the permitted twin of most attacks: the project's own person still calls.
func (w *world) works(p project) {
	w.t.Helper()
	before := len(w.calls(p))
	r := w.open(p, p.owner, "")
	defer r.c.Close()
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		w.t.Errorf("an ordinary call of %s afterwards: %s", p.label, m.raw)
	}
	if n := len(w.calls(p)); n != before+1 {
		w.t.Errorf("an ordinary call of %s reached its server %d times", p.label, n-before)
	}
}

// reply is one line of a CLI socket.
type reply struct {
	Result  json.RawMessage `json:"result"`
	Refusal *struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"refusal"`
	raw string
}

func (r reply) code() string {
	switch {
	case r.Refusal != nil:
		return r.Refusal.Code
	case r.raw == "":
		return "end"
	}
	return ""
}

// control asks control.sock as uid.
func (w *world) control(uid int, action api.Action, params any) reply {
	w.t.Helper()
	c, err := dialAs(uid, filepath.Join(w.RunDir, "control.sock"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	raw, _ := json.Marshal(params)
	if params == nil {
		raw = []byte("{}")
	}
	fmt.Fprintf(c, "{\"id\":1,\"action\":%q,\"params\":%s}\n", action, raw)
	return parseReply(readLine(c))
}

func parseReply(line string) reply {
	r := reply{raw: line}
	json.Unmarshal([]byte(line), &r)
	return r
}

// task makes a task of the host for uid and returns it with its token.
func (w *world) task(p project, uid, binds int) (token, task string) {
	w.t.Helper()
	r := w.control(hostUID, api.TaskNew, api.TaskNewParams{Project: p.id, ForUID: uint32(uid), Binds: binds})
	var res api.TaskResult
	if json.Unmarshal(r.Result, &res) != nil || res.Token == "" {
		w.t.Fatalf("task new: %s", r.raw)
	}
	return res.Token, res.Task
}

type row = api.ActivityRow

// jail is the project's jail of a kind.
func (w *world) jail(p project, kind string) api.PsRow {
	w.t.Helper()
	var ps api.PsResult
	if err := w.Call(api.Ps, api.ProjectParams{Project: p.id}, &ps); err != nil {
		w.t.Fatal(err)
	}
	for _, row := range ps.Rows {
		if row.Kind == kind {
			return row
		}
	}
	return api.PsRow{}
}

// authority is the authority's process.
func (w *world) authority() int {
	w.t.Helper()
	var st api.RootStatusResult
	if err := w.Call(api.RootStatus, nil, &st); err != nil {
		w.t.Fatal(err)
	}
	return st.Authority
}

func as(uid int, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.SysProcAttr, c.Dir, c.Env = rig.As(uid), "/", []string{"PATH=/usr/bin:/bin"}
	out, err := c.Output()
	return string(out), err
}
