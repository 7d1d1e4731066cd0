package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"postern/supervisor/api"
)

// callWait bounds one call of the demo.
const callWait = 60 * time.Second

// call calls a tool and renders what came: the text, or the refusal's code.
func call(ctx context.Context, s *mcp.ClientSession, tool string, args map[string]any) (text, code string) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error(), "error"
	}
	var parts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	text = strings.Join(parts, " ")
	if r, ok := res.Meta["postern/refusal"].(map[string]any); ok {
		code, _ = r["code"].(string)
	} else if res.IsError {
		code = "isError"
	}
	return text, code
}

func (d *demo) steps(ctx context.Context) error {
	fmt.Println()
	s, err := d.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer s.Close()

	tools, err := s.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	var names []string
	for _, t := range tools.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	want := "list_directory read_text_file trigger-long-running-operation"
	d.check("list the tools", "only what is granted: "+want, strings.Join(names, " "), strings.Join(names, " ") == want)

	text, code := call(ctx, s, "read_text_file", map[string]any{"path": "/workspace/hello.txt"})
	d.check("read a file", "its text", text, code == "" && strings.Contains(text, "hello from the workspace"))

	text, code = call(ctx, s, "write_file", map[string]any{"path": "/workspace/new.txt", "content": "x"})
	d.check("write a file, which is not granted", "tool_not_granted, and no file", code+": "+text, code == "tool_not_granted" && !exists(d.workspace, "new.txt"))

	text, code = call(ctx, s, "read_text_file", map[string]any{"path": "/etc/shadow"})
	d.check("read a file of the host by its path", "path_outside: the server, whose jail has no such file, is not even asked", code+": "+text, code == "path_outside")

	host, _ := os.ReadFile("/etc/hostname")
	text, code = call(ctx, s, "read_text_file", map[string]any{"path": "/workspace/way-out"})
	name := strings.TrimSpace(string(host))
	d.check("read a file of the host by a symlink in the workspace", "path_outside", code+": "+text, code == "path_outside" && name != "" && !strings.Contains(text, name))

	if err := d.cli("connection", "grant", "demo", "files", "write_file"); err != nil {
		return err
	}
	text, code = call(ctx, s, "write_file", map[string]any{"path": "/workspace/new.txt", "content": "written in the jail\n"})
	owner := ownerOf(filepath.Join(d.workspace, "new.txt"))
	d.check("grant write_file and write in the same session", fmt.Sprintf("written; on disk it belongs to uid %d", personUID),
		fmt.Sprintf("%s; owner uid %d", text, owner), code == "" && owner == personUID)

	if err := d.cli("connection", "revoke", "demo", "files", "write_file"); err != nil {
		return err
	}
	text, code = call(ctx, s, "write_file", map[string]any{"path": "/workspace/second.txt", "content": "x"})
	d.check("revoke it and write again in the same session", "tool_not_granted, and no file", code+": "+text, code == "tool_not_granted" && !exists(d.workspace, "second.txt"))

	_, errb, exit := d.rig.CLI(personUID, "connection", "grant", "demo", "files", "write_file")
	d.check("grant it as the person, who is no root", "exit 77", fmt.Sprintf("exit %d: %s", exit, strings.TrimSpace(errb)), exit == 77)

	return d.killBridge(ctx, s)
}

// killBridge kills the bridge in the middle of a long call and looks at the record.
func (d *demo) killBridge(ctx context.Context, s *mcp.ClientSession) error {
	done := make(chan string, 1)
	go func() {
		text, code := call(ctx, s, "trigger-long-running-operation", map[string]any{"duration": 20, "steps": 4})
		done <- code + ": " + text
	}()
	if _, err := d.record("trigger-long-running-operation", func(r api.ActivityRow) bool { return r.State == "admitted" }); err != nil {
		return err
	}
	var ps api.PsResult
	if err := d.rig.Call(api.Ps, api.ProjectParams{}, &ps); err != nil {
		return err
	}
	for _, row := range ps.Rows {
		if row.Kind == "bridge" {
			fmt.Println("  # kill -9", row.PID)
			syscall.Kill(row.PID, syscall.SIGKILL)
		}
	}
	var came string
	select {
	case came = <-done:
	case <-time.After(callWait):
		came = "nothing"
	}
	r, err := d.record("trigger-long-running-operation", func(r api.ActivityRow) bool { return r.State == "unknown" })
	d.check("kill the bridge in the middle of a long call", "the client's call ends with an error; the record becomes unknown",
		fmt.Sprintf("%s; record %s", came, r.State), err == nil && strings.HasPrefix(came, "error"))

	again, err := d.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect again: %w", err)
	}
	defer again.Close()
	text, code := call(ctx, again, "read_text_file", map[string]any{"path": "/workspace/hello.txt"})
	d.check("connect again", "a new bridge serves", text, code == "" && strings.Contains(text, "hello from the workspace"))
	n := 0
	var act api.ActivityResult
	if err := d.rig.Call(api.Activity, api.ActivityParams{Project: "demo"}, &act); err != nil {
		return err
	}
	for _, r := range act.Rows {
		if r.Tool == "trigger-long-running-operation" {
			n++
		}
	}
	d.check("look for a second run of the killed call", "one record, nothing replayed", strconv.Itoa(n)+" record", n == 1)
	return nil
}

// record waits until a record of the tool is as asked.
func (d *demo) record(tool string, as func(api.ActivityRow) bool) (api.ActivityRow, error) {
	var last api.ActivityRow
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var act api.ActivityResult
		if err := d.rig.Call(api.Activity, api.ActivityParams{Project: "demo"}, &act); err != nil {
			return last, err
		}
		for _, r := range act.Rows {
			if r.Tool == tool {
				last = r
				if as(r) {
					return r, nil
				}
				break
			}
		}
	}
	return last, fmt.Errorf("the record of %s is %q", tool, last.State)
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func ownerOf(path string) int {
	fi, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
