package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel refuses the next fork: that launch fails and says what failed, what runs
// goes on, nothing is left of the failed one, and the same launch works with room.
func TestC130_AForkThatIsRefusedFailsThatLaunchAlone(t *testing.T) {
	l := launcher(t)
	runs := start(t, l, request(t, "bridge", "eof"))
	runs.line(t)
	next := request(t, "bridge", "eof")
	before := leavings(t, l)
	// The parent group of the jails may hold no process more: its limit counts theirs.
	var files []string
	for _, pattern := range []string{"/sys/fs/cgroup/pids/", "/sys/fs/cgroup/"} {
		f := filepath.Join(pattern, l.tree.Parent(), "pids.max")
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatal("no group of the jails has a limit of processes")
	}
	limit := func(to string) {
		t.Helper()
		for _, f := range files {
			if err := os.WriteFile(f, []byte(to), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit("1")
	_, err := tryStart(t, l, next)
	limit("max")
	if err == nil {
		t.Fatal("it was started over the limit")
	}
	if !strings.Contains(err.Error(), "resource temporarily unavailable") {
		t.Errorf("the error does not say why: %v", err)
	}
	leftNothing(t, l, before)
	select {
	case <-runs.Done():
		t.Fatalf("the one that ran has ended: %+v", runs.Exit())
	default:
	}
	again := start(t, l, request(t, "bridge", "eof"))
	for _, p := range []*running{again, runs} {
		p.stdin.Close()
		gone(t, p.Process)
		if e := p.Exit(); e != (Exit{}) {
			t.Errorf("exit %+v", e)
		}
	}
}
