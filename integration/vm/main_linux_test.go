//go:build vm

package vm

import (
	"os"
	"testing"
)

// What this program does in place of the tests, in a process of another user or with other
// capabilities.
const (
	roleCalls = "capability-calls" // capability_linux_test.go
	roleFill  = "fill-a-store"     // start_linux_test.go
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case roleCalls:
			os.Exit(makeCalls(os.Args[2:]))
		case roleFill:
			os.Exit(fillStore(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}
