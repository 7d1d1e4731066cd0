package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// denied is a posternd under MemoryDenyWriteExecute=, as far as that it looks around.
func denied() {
	err := unix.Prctl(unix.PR_SET_MDWE, 1, 0, 0, 0) // PR_MDWE_REFUSE_EXEC_GAIN, linux/prctl.h
	if err == nil {
		var s surroundings
		if s, err = lookAround(); err == nil {
			err = errors.Join(s.inTheWay()...)
		}
	}
	fmt.Println(err)
}

// What denies executable memory without a filter is seen, and is all that is; without it
// the same host has nothing in the way, which TestSurroundings_ThisHostIsReadAsItIs shows.
func TestSurroundings_C169_DeniedExecutableMemoryIsRead(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "POSTERN_LAUNCH_ROLE=denied")
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "no memory may become executable here (PR_SET_MDWE is 0x1)") || strings.Count(string(said), "\n") != 1 {
		t.Errorf("%v: %s", err, said)
	}
}
