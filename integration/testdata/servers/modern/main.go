// Command modern is a fixture tool server that speaks only the stateless revision. With
// "strict" it ends at any other first request, with "silent" it answers none.
package main

import (
	"context"
	"fmt"
	"os"

	"postern/integration/testdata/servers/rpc"
)

const version = "2026-07-28"

func main() {
	s := &rpc.Server{Name: "modern"}
	s.Other = func(m *rpc.Message) bool {
		if m.ID == nil {
			return false
		}
		if m.Method == "initialize" && len(os.Args) > 1 {
			if os.Args[1] == "strict" {
				os.Exit(1)
			}
			return true
		}
		if m.Method == "initialize" || m.Method == "ping" {
			s.Error(m, -32601, "Method not found")
			return true
		}
		if v := string(m.Params.Meta["io.modelcontextprotocol/protocolVersion"]); v != `"`+version+`"` {
			s.Line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["%s"],"requested":%q}}}`, m.ID, version, v)
			return true
		}
		switch m.Method {
		case "server/discover":
			s.Result(m, fmt.Sprintf(`"resultType":"complete","supportedVersions":[%q],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"1"}}`, version))
		case "subscriptions/listen":
			s.Line(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}`, m.ID)
		case "tools/list":
			s.Result(m, `"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}},{"name":"ask","inputSchema":{"type":"object"}}]`)
		default:
			return false
		}
		return true
	}
	s.Call = func(_ context.Context, m *rpc.Message) {
		if m.Params.Name == "ask" {
			s.Result(m, `"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"password?","requestedSchema":{"type":"object"}}}},"requestState":"x"`)
			return
		}
		s.Result(m, fmt.Sprintf(`"resultType":"complete","content":[{"type":"text","text":"modern"}],"structuredContent":[1,2],"_meta":{"meta":%s,"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"1"}}`, m.Params.RawMeta))
	}
	s.Run()
}
