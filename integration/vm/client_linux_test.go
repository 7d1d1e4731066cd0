//go:build vm

package vm

import (
	"bufio"
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
)

// shop is a project of alice's that has the fixture count, on an installed Postern.
type shop struct {
	project, workspace string
	pkg                string // the directory of the fixture
}

// newShop registers what a session needs, by the commands that a person would give.
func newShop(t *testing.T) shop {
	t.Helper()
	pkg := fixture(t, "count")
	command(t, "postern", "account", "add", "alice", "--uid", fmt.Sprint(aliceUID))
	addServer(t, "count", "--profile", "static", "--package", pkg, "--", "/package/count")
	w := addProject(t, "shop", "count", "echo", "slow")
	w.pkg = pkg
	return w
}

// addServer registers a server. A probe that did not start in its time is made again.
func addServer(t *testing.T, label string, args ...string) {
	t.Helper()
	out, err := exec.Command("postern", append([]string{"server", "add", label}, args...)...).CombinedOutput()
	if err == nil {
		return
	}
	if !strings.Contains(string(out), "server_unavailable") {
		t.Fatalf("postern server add %s: %v\n%s", label, err, out)
	}
	until(t, "the probe of "+label, func() bool { return exec.Command("postern", "server", "probe", label).Run() == nil })
}

// fixture hands out a tool server in a directory that ends with the test.
func fixture(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	pkg, err := rig.BuildServer("../..", dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// addProject makes a project of alice's and grants it tools of a server.
func addProject(t *testing.T, name, server string, tools ...string) (w shop) {
	t.Helper()
	w.workspace = filepath.Join("/srv", name)
	if err := errors.Join(os.RemoveAll(w.workspace), os.MkdirAll(w.workspace, 0o700), os.Chown(w.workspace, aliceUID, aliceUID)); err != nil {
		t.Fatal(err)
	}
	var added struct {
		Project string `json:"project"`
	}
	if err := json.Unmarshal([]byte(command(t, "postern", "--json", "project", "add", name, "--workspace", w.workspace, "--owner", "alice")), &added); err != nil {
		t.Fatal(err)
	}
	w.project = added.Project
	command(t, "postern", "project", "set", name, "--person-bind", "on")
	command(t, "postern", "connection", "add", name, server)
	command(t, "postern", append([]string{"connection", "grant", name, server}, tools...)...)
	return w
}

// calls is how many calls reached the project's server.
func (w shop) calls() int {
	raw, _ := os.ReadFile(filepath.Join(w.workspace, "calls.log"))
	return strings.Count("\n"+string(raw), "\ncall ")
}

// record is what an exported record of a call says.
type record struct {
	Tool   string `json:"tool"`
	State  string `json:"state"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// records are those of the project, the oldest first.
func (w shop) records(t *testing.T) (out []record) {
	t.Helper()
	for line := range strings.Lines(command(t, "postern", "activity", "export", "--project", w.project)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// client is one `postern connect`, run as alice.
type client struct {
	in    io.Writer
	ended chan struct{} // closed when it has ended, by itself or with the test
	said  strings.Builder

	mu      sync.Mutex
	waiting map[int]chan string
}

func connect(t *testing.T, project string) *client {
	t.Helper()
	cmd := exec.Command("postern", "connect", "--project", project)
	cmd.SysProcAttr, cmd.Dir = rig.As(aliceUID), "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{in: in, ended: make(chan struct{}), waiting: map[int]chan string{}}
	cmd.Stderr = &c.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); <-c.ended })
	go func() {
		defer close(c.ended)
		defer cmd.Wait()
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			var m struct {
				ID     int    `json:"id"`
				Method string `json:"method"`
			}
			if json.Unmarshal([]byte(line), &m) != nil || m.Method != "" {
				continue
			}
			c.mu.Lock()
			if answer := c.waiting[m.ID]; answer != nil {
				answer <- line
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// ask sends a request and returns where its answer will be. The first is initialize.
func (c *client) ask(id int, method, params string) chan string {
	answer := make(chan string, 1)
	c.mu.Lock()
	c.waiting[id] = answer
	c.mu.Unlock()
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params) // one that ended answers nothing
	return answer
}

func (c *client) initialize() chan string {
	answer := c.ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"vm","version":"1"}}`)
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

func (c *client) call(id int, tool, args string) chan string {
	return c.ask(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// wait returns an answer, or "" and why where the session ended without one.
func (c *client) wait(t *testing.T, answer chan string) (line, why string) {
	t.Helper()
	select {
	case line = <-answer:
		return line, ""
	case <-c.ended:
		select {
		case line = <-answer: // it came before the end
			return line, ""
		default:
			return "", c.said.String()
		}
	case <-time.After(patience):
		t.Fatal("no answer in time")
		return "", ""
	}
}

// session opens one as alice and calls a tool. What it returns is open until the test
// ends, or posternd.
func session(t *testing.T, project string) (ended chan struct{}) {
	t.Helper()
	return opened(t, project, "echo", `{"text":"from a jail"}`, "from a jail").ended
}

// opened opens a session whose first call is answered with want. What an emulated machine
// beside other work did not start in its time is started by the next connection, as for
// anybody who tries again.
func opened(t *testing.T, project, tool, args, want string) *client {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		c := connect(t, project)
		c.initialize()
		line, why := c.wait(t, c.call(2, tool, args))
		if strings.Contains(line, want) {
			return c
		}
		if !strings.Contains(line+why, "server_unavailable") || time.Now().After(end) {
			t.Fatalf("the tool answered %q; the session said %q", line, why)
		}
	}
}
