package bridge

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The two benchmarks differ by the bridge and a round trip to an authority that
// admits at once: what the bridge adds to a call.

const benchCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}}` + "\n"

func BenchmarkCallDirect(b *testing.B) {
	cmd := exec.Command(filepath.Join(bin, "count"), filepath.Join(b.TempDir(), "log"))
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReader(out)
	for b.Loop() {
		if _, err := io.WriteString(in, benchCall); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	_ = in.Close()
	_ = cmd.Wait()
}

func BenchmarkCallThroughTheBridge(b *testing.B) {
	a := newAuthority(b)
	a.count("echo")
	c := a.passed()
	c.initialize()
	c.call("1", "echo", `{}`)
	c.answer()
	a.quiet = true
	for b.Loop() {
		if _, err := io.WriteString(c.in, benchCall); err != nil {
			b.Fatal(err)
		}
		if line := <-c.lines; !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":7,"result"`) {
			b.Fatal(line)
		}
	}
}
