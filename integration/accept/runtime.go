package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"postern/integration/rig"
)

// answerWait bounds every wait for one answer.
const answerWait = 30 * time.Second

// runtime is one MCP client in one session.
type runtime interface {
	// tools lists names, sorted.
	tools() ([]string, error)
	// call returns the text of a result, or the code of a refusal; an error where the
	// session or the protocol ended it.
	call(tool string, args map[string]any) (text, code string, err error)
	close()
}

// clients are what each scenario is tried with.
var clients = []client{
	{"fixture", true, func(c *exec.Cmd) (runtime, error) { return openLines(c) }},
	{"runtime library (the Go MCP SDK, unmodified)", false, func(c *exec.Cmd) (runtime, error) { return openSDK(c) }},
}

type client struct {
	scope string
	told  bool // it says for what reason it was not let in
	open  func(*exec.Cmd) (runtime, error)
}

// connector is postern connect of a uid, with a token on descriptor 3 or with none.
func (w *world) connector(uid int, project, token string) (*exec.Cmd, error) {
	args := []string{"--run-dir", w.RunDir, "connect", "--project", project}
	c := exec.Command(filepath.Join(w.Bin, "postern"), args...)
	c.SysProcAttr, c.Dir, c.Env, c.Stderr = rig.As(uid), "/", []string{"PATH=/usr/bin:/bin"}, io.Discard
	if token == "" {
		return c, nil
	}
	rd, wr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(wr, token+"\n")
	if err = errors.Join(err, wr.Close()); err != nil {
		rd.Close()
		return nil, err
	}
	c.ExtraFiles = []*os.File{rd}
	c.Args = append(c.Args, "--token-fd", "3")
	return c, nil
}

// lines speaks the protocol by hand.
type lines struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	next int
}

func openLines(c *exec.Cmd) (runtime, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	l := &lines{cmd: c, in: in, out: bufio.NewReader(out)}
	var hello json.RawMessage
	if err := l.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"accept","version":"1"}}`, &hello); err != nil {
		l.close()
		return nil, err
	}
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return l, err
}

// ask sends one request and reads up to its answer.
func (l *lines) ask(method, params string, result any) error {
	l.next++
	if _, err := fmt.Fprintf(l.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", l.next, method, params); err != nil {
		return err
	}
	late := time.AfterFunc(answerWait, func() { l.cmd.Process.Kill() })
	defer late.Stop()
	for {
		line, err := l.out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the session ended: %w", err)
		}
		var m struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("%w: %s", err, line)
		}
		switch {
		case m.Error != nil && (m.ID == nil || *m.ID == l.next):
			return fmt.Errorf("refused: %s", m.Error)
		case m.ID != nil && *m.ID == l.next:
			return json.Unmarshal(m.Result, result)
		}
	}
}

func (l *lines) tools() ([]string, error) {
	var r struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	err := l.ask("tools/list", `{}`, &r)
	var names []string
	for _, t := range r.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names, err
}

func (l *lines) call(tool string, args map[string]any) (text, code string, err error) {
	if args == nil {
		args = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return "", "", err
	}
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Meta struct {
			Refusal struct {
				Code string `json:"code"`
			} `json:"postern/refusal"`
		} `json:"_meta"`
	}
	if err := l.ask("tools/call", string(raw), &r); err != nil {
		return "", "", err
	}
	for _, c := range r.Content {
		text += c.Text
	}
	if code = r.Meta.Refusal.Code; code == "" && r.IsError {
		code = "isError"
	}
	return text, code, nil
}

func (l *lines) close() {
	l.in.Close()
	late := time.AfterFunc(answerWait, func() { l.cmd.Process.Kill() })
	defer late.Stop()
	l.cmd.Wait()
}

// sdk is the library's client; nothing of it is changed.
type sdk struct{ s *mcp.ClientSession }

func openSDK(c *exec.Cmd) (runtime, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "accept", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		return nil, err
	}
	return sdk{s}, nil
}

func (s sdk) tools() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	r, err := s.s.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range r.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names, nil
}

func (s sdk) call(tool string, args map[string]any) (text, code string, err error) {
	if args == nil {
		args = map[string]any{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	r, err := s.s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	if refused, ok := r.Meta["postern/refusal"].(map[string]any); ok {
		code, _ = refused["code"].(string)
	} else if r.IsError {
		code = "isError"
	}
	return b.String(), code, nil
}

func (s sdk) close() { s.s.Close() }
