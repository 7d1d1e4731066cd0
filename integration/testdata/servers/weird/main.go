// Command weird is a fixture tool server with every shape of tool and result that a
// typed proxy is known to lose. Its answers depend on nothing but the call.
package main

import (
	"context"
	_ "embed"
	"strings"

	"postern/integration/testdata/servers/rpc"
)

// tools.json holds one definition a line; results.txt one `name members` a line.
var (
	//go:embed tools.json
	tools string
	//go:embed results.txt
	results string
)

func main() {
	answers := map[string]string{}
	for line := range strings.Lines(results) {
		name, members, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		answers[name] = members
	}
	s := &rpc.Server{Name: "weird", Tools: "[" + strings.ReplaceAll(strings.TrimSpace(tools), "\n", ",") + "]"}
	s.Call = func(_ context.Context, m *rpc.Message) {
		name := m.Params.Name
		switch members, ok := answers[name]; {
		case name == "params": // shows what arrived, byte for byte
			s.Result(m, `"content":[],"structuredContent":{"line":`+strings.TrimSpace(string(m.Line))+`}`)
		case strings.HasPrefix(name, "error"):
			s.Line(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, members)
		case name == "last": // the order of members that TypeScript servers use
			s.Line(`{"result":{%s},"jsonrpc":"2.0","id":%s}`, members, m.ID)
		case ok:
			s.Result(m, members)
		default:
			s.Error(m, -32602, "Unknown tool: "+name)
		}
	}
	s.Run()
}
