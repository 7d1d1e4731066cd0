// Command noisy is a fixture tool server that prints what does not belong on stdout
// before and after everything it says.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"postern/integration/testdata/servers/rpc"
)

func main() {
	s := &rpc.Server{Name: "noisy", Tools: `[{"name":"echo","inputSchema":{"type":"object"}}]`}
	noise := func() {
		s.Raw("Listening on stdio…\n\n42\n\"a string\"\nnull\n[1,2]\n{\"level\":30,\"msg\":\"a log\"}\n{}\n{\"not\": \"finished\n\x1b[31mred\x1b[0m\n\xff\xfe\n")
	}
	noise()
	fmt.Fprintln(os.Stderr, strings.Repeat("banner ", 5000))
	s.Other = func(*rpc.Message) bool { noise(); return false }
	s.Call = func(_ context.Context, m *rpc.Message) {
		s.Text(m, string(m.Params.Arguments))
		noise()
	}
	s.Run()
}
