package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
)

// made is how often the project's servers received a call of a tool.
func (w *world) made(tool string) (n int) {
	for _, line := range w.calls(w.a) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == tool { // call, id, tool
			n++
		}
	}
	return n
}

// A server that did something and died before it answered: that happened once, the
// record says unknown, and nobody asks again, whatever the tool says of itself. The
// deaths of the bridge, the authority and posternd are TestCrash_X13's.
func TestOutcome_C143_ADeathInTheMiddleIsNeverRepeated(t *testing.T) {
	w, r := hostileWorld(t, "die", "echo")
	m := r.call("die", `{}`)
	if m.outcome() == "ok" {
		t.Fatal(m.raw)
	}
	until(t, "the record says unknown", func() bool {
		got := w.records(w.a)[0]
		return got.Tool == "die" && got.State == "unknown"
	})
	// The next call starts another instance: the time in which a repetition would come.
	if m := r.call("hostile.echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	if n := w.made("die"); n != 1 {
		t.Errorf("it was received %d times", n)
	}
	if n := len(w.records(w.a)); n != 2 {
		t.Errorf("%d records of two calls", n)
	}
}

// A tool that fails says so to its caller, in its own words, and is not asked again:
// an error is an answer and no broken connection.
func TestOutcome_C144_AnErrorIsAnAnswer(t *testing.T) {
	w, r := hostileWorld(t, "error_result", "error_params", "echo")
	for tool, want := range map[string]string{"error_result": "no such row", "error_params": "no such column"} {
		m := r.call(tool, `{}`)
		if !strings.Contains(m.raw, want) || m.outcome() == "ok" {
			t.Errorf("%s: %s", tool, m.raw)
		}
		until(t, "the record has an end", func() bool {
			got := w.records(w.a)[0]
			return got.Tool == tool && (got.State == "failed" || got.State == "completed")
		})
	}
	if m := r.call("hostile.echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	for _, tool := range []string{"error_result", "error_params"} {
		if n := w.made(tool); n != 1 {
			t.Errorf("%s was received %d times", tool, n)
		}
	}
	if ps := w.jail(w.a, "bridge"); ps.Restarts != 0 {
		t.Errorf("the bridge was started again: %+v", ps)
	}
}

// A name of 200 KiB with a NUL and line breaks: one record, one line of an export,
// and no line of the log that a journal would cut.
func TestOutcome_C147_ARecordIsNoLineOfALog(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	before := len(w.records(w.a))
	name, _ := json.Marshal("x\x00\n{\"state\":\"completed\"}\r\u2028" + strings.Repeat("y", 200<<10))
	if m := r.ask("tools/call", `{"name":`+string(name)+`,"arguments":{}}`); m.outcome() == "ok" {
		t.Fatal(m.raw)
	}
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	out, errb, exit := w.CLI(0, "activity", "export", "--project", w.a.id)
	if exit != 0 {
		t.Fatal(errb)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if want := len(w.records(w.a)); len(lines) != want || want > before+2 {
		t.Errorf("%d lines, %d records, %d before", len(lines), want, before)
	}
	for _, l := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil || len(l) > 4<<10 || strings.ContainsAny(l, "\x00\r\u2028") {
			t.Errorf("%v in a line of %d bytes: %.100q", err, len(l), l)
		}
	}
	for l := range strings.Lines(w.Log.String()) {
		if len(l) > 16<<10 || strings.Contains(l, "\x00") {
			t.Errorf("a line of the log has %d bytes", len(l))
		}
	}
}

// stuck is a log that nobody reads: a write never returns before let is closed.
type stuck struct{ let chan struct{} }

func (s stuck) Write(b []byte) (int, error) {
	<-s.let
	return len(b), nil
}

// plug fills the pipe that is a process's standard error and that nobody reads.
func plug(t *testing.T, pid int) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", pid), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Who copies from it takes some before it is stuck: full is what stays full.
	for end, quiet := time.Now().Add(answerWait), 0; quiet < 10; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pipe does not fill")
		}
		raw.Write(func(fd uintptr) bool {
			quiet++
			for {
				if _, err := syscall.Write(int(fd), bytes.Repeat([]byte("x"), 4096)); err != nil {
					return true
				}
				quiet = 0
			}
		})
	}
}

// Nobody reads what posternd writes, and it and the authority have more to say: calls
// are made as ever, with large arguments too, and jails end and start.
func TestOutcome_C152_ABlockedLogHoldsNoCallUp(t *testing.T) {
	log := stuck{make(chan struct{})}
	let := sync.OnceFunc(func() { close(log.let) })
	t.Cleanup(let)
	w := newWorldWith(t, rig.Config{Log: log})
	t.Cleanup(let) // before the world is closed
	plug(t, w.PID())
	w.must("account", "add", "carol", "--uid", "62004") // which posternd logs
	another := func() {                                 // bridge starts, after a pause that grows with each of their deaths
		until(t, "a bridge", func() bool {
			c, code := w.bind(w.a, aliceUID, "")
			c.Close()
			return code == ""
		})
	}
	for range 2 {
		another()
		r := w.open(w.a, aliceUID, "")
		for _, args := range []string{`{}`, `{"pad":"` + strings.Repeat("p", 3<<20) + `"}`} {
			began := time.Now()
			m := r.call("echo", args)
			if took := time.Since(began); m.raw == "" || took > answerWait/2 {
				t.Fatalf("after %v: %.200s", took, m.raw)
			}
		}
		r.c.Close()
		pid := w.jail(w.a, "bridge").PID
		kill9(t, pid) // which both of them log
		until(t, "its end is seen", func() bool { return w.jail(w.a, "bridge").PID != pid })
	}
	another()
	w.works(w.a)
	w.must("project", "show", w.a.id)
}
