package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFull_C149_C150_WithoutRoomForRootsRecordsNothingIsChanged: the root directory, in
// which each change of a root fact is recorded and written, has no room. What would
// change a fact is refused and changes nothing; calls, looking and taking away go on,
// for they are recorded elsewhere; with room again everything works in place.
func TestFull_C149_C150_WithoutRoomForRootsRecordsNothingIsChanged(t *testing.T) {
	w := newWorld(t)
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.RootDir, w.RootDir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.RootDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", w.RootDir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer func() { w.Down(); syscall.Unmount(w.RootDir, syscall.MNT_DETACH) }()
	if out, err := as(0, "/bin/cp", "-a", w.RootDir+".old/.", w.RootDir); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	posternd, authority := w.PID(), w.authority()
	r := w.open(w.a, aliceUID, "")
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	fill := filepath.Join(w.RootDir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size >= 1; size /= 2 {
		for chunk := make([]byte, size); ; {
			if _, err := f.Write(chunk); err != nil {
				break
			}
		}
	}
	f.Close()

	accounts := w.must("account", "list")
	refused := 0
	for n := range 40 { // a line of the record may find room behind the last one
		_, errb, exit := w.CLI(0, "account", "add", fmt.Sprint("eve", n), "--uid", fmt.Sprint(62300+n))
		if exit == 0 {
			accounts = w.must("account", "list")
			continue
		}
		refused++
		if errb == "" {
			t.Error("it is refused without a word")
		}
	}
	if refused == 0 {
		t.Fatal("the root directory is not full")
	}
	for _, args := range [][]string{{"project", "set", w.b.id, "--execution-profile", "isolated"}, {"server", "delete", "count"}} {
		if out, errb, exit := w.CLI(0, args...); exit == 0 {
			t.Errorf("postern %s: %s%s", strings.Join(args, " "), out, errb)
		}
	}
	if got := w.must("account", "list"); got != accounts {
		t.Errorf("the accounts were\n%sand are\n%s", accounts, got)
	}
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("a call, which needs no fact changed: %s", m.raw)
	}
	w.must("connection", "revoke", w.a.id, "count", "echo")
	had := len(w.calls(w.a))
	if m := r.call("echo", `{}`); m.outcome() == "ok" || len(w.calls(w.a)) != had {
		t.Errorf("after it was revoked: %s", m.raw)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.must("account", "add", "late", "--uid", "62399")
	w.must("connection", "grant", w.a.id, "count", "echo")
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("with room again, in the same session: %s", m.raw)
	}
	if w.PID() != posternd || w.authority() != authority {
		t.Error("something was started again")
	}
}

// TestOutcome_C143_AnIdThatIsUsedAgainIsAnotherCall: a runtime is lost in the middle of
// a call, comes back and asks again under the same id. The first call was made once and
// has its own record; the second is a call of its own, because the runtime asked for it.
func TestOutcome_C143_AnIdThatIsUsedAgainIsAnotherCall(t *testing.T) {
	w := newWorld(t)
	const ask = `{"jsonrpc":"2.0","id":"same","method":"tools/call","params":{"name":"stubborn","arguments":{"ms":1500}}}`
	first := w.open(w.a, aliceUID, "")
	first.send(ask)
	until(t, "the server has the call", func() bool { return w.made("stubborn") == 1 })
	first.c.Close()
	second := w.open(w.a, aliceUID, "")
	// Nothing is made of the first one again by the new session.
	if m := second.call("echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	if n := w.made("stubborn"); n != 1 {
		t.Fatalf("it was received %d times before it was asked for again", n)
	}
	second.send(ask)
	if m := second.answer(`"same"`); m.outcome() != "ok" {
		t.Errorf("asked for again: %s", m.raw)
	}
	if n := w.made("stubborn"); n != 2 {
		t.Errorf("it was received %d times, for two requests", n)
	}
	until(t, "both records have an end of their own", func() bool {
		states := map[string]int{}
		for _, row := range w.records(w.a) {
			if row.Tool == "stubborn" {
				states[row.State]++
			}
		}
		return states["completed"] == 1 && states["cancelled"]+states["unknown"] == 1
	})
}
