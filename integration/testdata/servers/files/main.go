// Command files is a fixture tool server with filesystem operations under their known
// names. It writes down every call it receives, so that a test can prove which calls
// did not reach it, and it checks no path: what keeps it inside is not its own doing.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"postern/integration/testdata/servers/rpc"
)

const object = `"inputSchema":{"type":"object"}`

const tools = `[
{"name":"read_file","description":"Reads a file.",` + object + `},
{"name":"read_multiple_files","description":"Reads files.",` + object + `},
{"name":"write_file","description":"Writes a file.",` + object + `},
{"name":"move_file","description":"Moves a file.",` + object + `},
{"name":"list_files","description":"Lists a directory.",` + object + `},
{"name":"peek","description":"Reads a file, under no known name.",` + object + `}
]`

type arguments struct {
	Path        string   `json:"path"`
	Paths       []string `json:"paths"`
	Source      string   `json:"source"`
	Destination string   `json:"destination"`
	Content     string   `json:"content"`
}

func main() {
	log, err := os.OpenFile("/workspace/calls.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "files:", err)
		os.Exit(1)
	}
	fmt.Fprintln(log, "start")
	s := &rpc.Server{Name: "files", Tools: strings.ReplaceAll(tools, "\n", "")}
	s.Other = func(m *rpc.Message) bool {
		if m.Method == "tools/call" {
			fmt.Fprintf(log, "call %s %s %s\n", m.ID, m.Params.Name, m.Params.Arguments)
		}
		return false
	}
	s.Call = func(_ context.Context, m *rpc.Message) {
		text, err := do(m)
		if err != nil {
			quoted, _ := json.Marshal(err.Error())
			s.Result(m, `"content":[{"type":"text","text":`+string(quoted)+`}],"isError":true`)
			return
		}
		s.Text(m, text)
	}
	s.Run()
}

func do(m *rpc.Message) (string, error) {
	var a arguments
	_ = json.Unmarshal(m.Params.Arguments, &a)
	switch m.Params.Name {
	case "read_file", "peek":
		b, err := os.ReadFile(a.Path)
		return string(b), err
	case "read_multiple_files":
		var all []string
		for _, p := range a.Paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return "", err
			}
			all = append(all, string(b))
		}
		return strings.Join(all, "\n"), nil
	case "write_file":
		return "written", os.WriteFile(a.Path, []byte(a.Content), 0o644)
	case "move_file":
		return "moved", os.Rename(a.Source, a.Destination)
	case "list_files":
		if a.Path == "" {
			a.Path = "."
		}
		entries, err := os.ReadDir(a.Path)
		return fmt.Sprint(len(entries)), err
	}
	return "", fmt.Errorf("no tool is called %q", m.Params.Name)
}
