// Command count is a fixture tool server that writes down every call it receives, so
// that a test can prove which calls did not reach it. The log is /workspace/calls.log,
// or the first argument.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"postern/integration/testdata/servers/rpc"
)

const object = `"inputSchema":{"type":"object"}`

const tools = `[
{"name":"echo","description":"Returns its arguments.",` + object + `,"annotations":{"readOnlyHint":true}},
{"name":"slow","description":"Waits ms milliseconds; stops when cancelled.",` + object + `,"annotations":{"readOnlyHint":true}},
{"name":"deaf","description":"Waits ms milliseconds; says nothing more when cancelled.",` + object + `},
{"name":"stubborn","description":"Waits ms milliseconds, whatever happens.",` + object + `},
{"name":"write","description":"Writes text to a file of the workspace.",` + object + `,"annotations":{"readOnlyHint":false}},
{"name":"read","description":"Reads a file.",` + object + `,"annotations":{"readOnlyHint":true}},
{"name":"env","description":"Prints its environment.",` + object + `},
{"name":"fds","description":"Lists its open descriptors.",` + object + `},
{"name":"progress","description":"Reports progress n times, then answers.",` + object + `},
{"name":"big","description":"Answers with bytes bytes of text.",` + object + `},
{"name":"destroy","description":"Says that it is destructive; only counts.",` + object + `,"annotations":{"destructiveHint":true}}
]`

type arguments struct {
	Ms    int    `json:"ms"`
	N     int    `json:"n"`
	Bytes int    `json:"bytes"`
	Path  string `json:"path"`
	Text  string `json:"text"`
}

func main() {
	path := "/workspace/calls.log"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	// One write for each line, in append mode: the kernel keeps lines whole.
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
	s := &rpc.Server{Name: "count", Tools: strings.ReplaceAll(tools, "\n", "")}
	s.Other = func(m *rpc.Message) bool {
		switch m.Method {
		case "tools/call":
			fmt.Fprintf(log, "call %s %s %s\n", m.ID, m.Params.Name, m.Params.Arguments)
		case "notifications/cancelled":
			fmt.Fprintf(log, "cancel %s\n", m.Params.RequestID)
		}
		return false
	}
	s.Call = func(ctx context.Context, m *rpc.Message) { call(ctx, s, m) }
	s.Run()
}

func call(ctx context.Context, s *rpc.Server, m *rpc.Message) {
	var a arguments
	_ = json.Unmarshal(m.Params.Arguments, &a)
	wait := time.Duration(a.Ms) * time.Millisecond
	switch m.Params.Name {
	case "echo":
		args := m.Params.Arguments
		if args == nil {
			args = json.RawMessage("{}")
		}
		s.Result(m, `"content":[{"type":"text","text":"echo"}],"structuredContent":`+string(args))
	case "slow":
		select {
		case <-time.After(wait):
			s.Text(m, "slept")
		case <-ctx.Done():
			s.Error(m, -32800, "cancelled")
		}
	case "deaf":
		select {
		case <-time.After(wait):
			s.Text(m, "slept")
		case <-ctx.Done():
		}
	case "stubborn":
		time.Sleep(wait)
		s.Text(m, "slept")
	case "write":
		answer(s, m, "written", os.WriteFile(a.Path, []byte(a.Text), 0o644))
	case "read":
		b, err := os.ReadFile(a.Path)
		answer(s, m, string(b), err)
	case "env":
		s.Text(m, strings.Join(os.Environ(), "\n"))
	case "fds":
		var lines []string
		names, err := filepath.Glob("/proc/self/fd/*")
		for _, name := range names {
			target, _ := os.Readlink(name)
			lines = append(lines, filepath.Base(name)+" "+target)
		}
		answer(s, m, strings.Join(lines, "\n"), err)
	case "progress":
		for i := range a.N {
			if m.Token() != nil {
				s.Line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`, m.Token(), i+1, a.N)
			}
		}
		s.Text(m, fmt.Sprintf("token %s", m.Token()))
	case "big":
		s.Text(m, strings.Repeat("x", a.Bytes))
	case "destroy":
		s.Text(m, "destroyed nothing")
	default:
		s.Error(m, -32602, "Unknown tool: "+m.Params.Name)
	}
}

func answer(s *rpc.Server, m *rpc.Message, text string, err error) {
	if err != nil {
		quoted, _ := json.Marshal(err.Error())
		s.Result(m, `"content":[{"type":"text","text":`+string(quoted)+`}],"isError":true`)
		return
	}
	s.Text(m, text)
}
