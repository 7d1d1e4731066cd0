// Command secret is a fixture tool server that was handed a credential: it proves that it
// has it by a digest, and never says what it is unless it is asked to misbehave. Its
// arguments are the name of a variable or the number of a descriptor.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"time"

	"postern/integration/testdata/servers/rpc"
)

const tools = `[{"name":"digest","description":"Answers with the digest of what it was handed.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"wait","description":"Waits ms milliseconds.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"die","description":"Dies of a fault.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`

func main() {
	secret := handed(os.Args[1])
	s := &rpc.Server{Name: "secret", Tools: tools}
	s.Call = func(ctx context.Context, m *rpc.Message) {
		switch m.Params.Name {
		case "wait":
			var a struct {
				Ms int `json:"ms"`
			}
			_ = json.Unmarshal(m.Params.Arguments, &a)
			select {
			case <-time.After(time.Duration(a.Ms) * time.Millisecond):
			case <-ctx.Done():
			}
			s.Text(m, "waited")
		case "die":
			panic("as it was asked")
		default:
			sum := sha256.Sum256(secret)
			s.Text(m, hex.EncodeToString(sum[:]))
		}
	}
	s.Run()
}

// handed is what came by the variable or the descriptor that is named.
func handed(by string) []byte {
	n, err := strconv.Atoi(by)
	if err != nil {
		return []byte(os.Getenv(by))
	}
	b, err := io.ReadAll(os.NewFile(uintptr(n), "credential"))
	if err != nil {
		return nil
	}
	return b
}
