package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wakings is how often the threads of a process went to sleep so far.
func wakings(t *testing.T, pid int) (sum int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		_, rest, _ := strings.Cut(string(raw), "\nvoluntary_ctxt_switches:")
		n := 0
		fmt.Sscan(rest, &n)
		sum += n
	}
	return sum
}

// An authority with nothing to do, or with a session that does nothing, woke more than six
// thousand times in ten seconds: its loop ten times a second, and Go's monitor after it.
func TestAnAuthorityAtRestHardlyWakes(t *testing.T) {
	const (
		window = 5 * time.Second
		most   = 1500 // about 400 on an idle machine
	)
	w := newWorld(t)
	rests := func(when string) {
		t.Helper()
		pid, least := w.authorityPID(), 0
		for range 3 { // what came before may have left work
			before := wakings(t, pid)
			time.Sleep(window)
			if n := wakings(t, pid) - before; least == 0 || n < least {
				least = n
			}
			if least <= most {
				break
			}
		}
		t.Logf("%s: %d in %v", when, least, window)
		if least > most || least == 0 {
			t.Errorf("%s it woke %d times in %v, at most %d are meant", when, least, window, most)
		}
	}
	rests("with nothing")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
	rests("with a session")
	// The twin: it is there at once.
	if got := r.call("echo", `{}`); got.outcome() != "ok" {
		t.Fatal(got.raw)
	}
}
