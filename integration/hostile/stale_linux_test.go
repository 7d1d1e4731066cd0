package hostile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"postern/supervisor/api"
)

// TestStale_C087_AStoreThatIsTakenAwayDenies: after a good call a file of the store is
// closed to the authority, renamed away, or removed for good. Nothing is called on what
// it remembers; posternd stays, and put back everything is as it was, also what was
// taken away from people before.
func TestStale_C087_AStoreThatIsTakenAwayDenies(t *testing.T) {
	w := newWorld(t)
	w.must("connection", "revoke", w.a.id, "count", "slow")
	w.must("account", "suspend", "bob")
	posternd := w.PID()
	// binds says how a bind is answered, also where nobody listens.
	binds := func(p project, uid int) string {
		c, err := dialAs(uid, w.doorOf(p))
		if err != nil {
			return "nobody listens"
		}
		defer c.Close()
		io.WriteString(c, bindLine(""))
		line := readLine(c)
		if strings.Contains(line, "ses_") {
			return "ok"
		}
		return codeOf(line)
	}
	for _, name := range []string{"policy.db", "activity.db"} {
		path := filepath.Join(w.StateDir, name)
		for _, row := range []struct {
			says       string
			away, back func() error
		}{
			{"nobody may open it", func() error { return os.Chmod(path, 0) }, func() error { return os.Chmod(path, 0o600) }},
			{"renamed away", func() error { return os.Rename(path, path+".away") }, func() error { return os.Rename(path+".away", path) }},
			{"removed, and another name kept", func() error { return errors.Join(os.Link(path, path+".kept"), os.Remove(path)) }, func() error { return os.Rename(path+".kept", path) }},
		} {
			until(t, "a session", func() bool { return binds(w.a, aliceUID) == "ok" })
			r := w.open(w.a, aliceUID, "")
			if m := r.call("echo", `{}`); m.outcome() != "ok" {
				t.Fatalf("%s %s, before: %s", name, row.says, m.raw)
			}
			if err := row.away(); err != nil {
				t.Fatal(err)
			}
			misses := 0 // in a row: on a busy machine one may have another reason
			until(t, name+" "+row.says+": it is noticed", func() bool {
				if misses++; w.Call(api.Status, nil, nil) == nil {
					misses = 0
				}
				return misses >= 5
			})
			had := len(w.calls(w.a))
			if m := r.call("echo", `{}`); m.outcome() == "ok" {
				t.Errorf("%s %s: %s", name, row.says, m.raw)
			}
			for range 3 {
				if binds(w.a, aliceUID) == "ok" {
					t.Errorf("%s %s: a session was bound", name, row.says)
				}
			}
			if _, _, exit := w.CLI(0, "connection", "grant", w.a.id, "count", "slow"); exit == 0 {
				t.Errorf("%s %s: something was granted", name, row.says)
			}
			if n := len(w.calls(w.a)); n != had {
				t.Errorf("%s %s: the server received %d calls", name, row.says, n-had)
			}
			if err := row.back(); err != nil {
				t.Fatal(err)
			}
			until(t, name+" "+row.says+": calls work again", func() bool {
				return w.Call(api.Status, nil, nil) == nil && binds(w.a, aliceUID) == "ok"
			})
			again := w.open(w.a, aliceUID, "")
			if m := again.call("echo", `{}`); m.outcome() != "ok" {
				t.Errorf("%s %s, put back: %s", name, row.says, m.raw)
			}
			if m := again.call("slow", `{"ms":0}`); m.outcome() != "tool_not_granted" && m.outcome() != "-32602" {
				t.Errorf("%s %s: what was revoked before: %s", name, row.says, m.raw)
			}
			if got := binds(w.b, bobUID); got != "account_suspended" {
				t.Errorf("%s %s: who was suspended before binds: %q", name, row.says, got)
			}
			again.c.Close()
			r.c.Close()
		}
	}
	if w.PID() != posternd || syscall.Kill(posternd, 0) != nil {
		t.Error("posternd was started again")
	}
}

// TestStale_C086_WhatWasListedIsNotWhatMayBeCalled: a runtime that keeps its list of
// tools and never asks again calls by it, in one open session, over each way that an
// authorization ends; no call that is sent after the change returned reaches the server.
func TestStale_C086_WhatWasListedIsNotWhatMayBeCalled(t *testing.T) {
	w := newWorld(t)
	r := w.open(w.a, aliceUID, "")
	listed := r.tools()
	if len(listed) != len(granted) {
		t.Fatalf("listed: %v", listed)
	}
	for _, row := range []struct {
		says       string
		take, give []string
	}{
		{"revoked", []string{"connection", "revoke", w.a.id, "count", "echo"}, []string{"connection", "grant", w.a.id, "count", "echo"}},
		{"disabled", []string{"connection", "disable", w.a.id, "count"}, []string{"connection", "enable", w.a.id, "count"}},
	} {
		for range 10 {
			if m := r.call("echo", `{}`); m.outcome() != "ok" {
				t.Fatalf("%s, before: %s", row.says, m.raw)
			}
			w.must(row.take...)
			had := len(w.calls(w.a))
			for range 20 {
				if m := r.call("echo", `{}`); m.outcome() == "ok" {
					t.Fatalf("%s: %s", row.says, m.raw)
				}
			}
			if n := len(w.calls(w.a)); n != had {
				t.Fatalf("%s: the server received %d calls", row.says, n-had)
			}
			w.must(row.give...)
		}
	}
}

// TestPin_C096_AReplacedProgramIsNotRun: another program lies where a package was
// registered from. The registered copy goes on; registered again it is another revision,
// refused until root accepts it, and the former contents are the former revision's.
func TestPin_C096_AReplacedProgramIsNotRun(t *testing.T) {
	w := newWorld(t)
	// The package's directory is replaced beneath the registration: what runs is the copy.
	pkg := filepath.Join(w.Dir, "pkg")
	raw, err := os.ReadFile(filepath.Join(built.fixtures, "count", "count"))
	if err == nil {
		err = errors.Join(os.Mkdir(pkg, 0o755), os.WriteFile(filepath.Join(pkg, "count"), raw, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	add := func(verb string, more ...string) (string, int) {
		out, errb, exit := w.CLI(0, append(append([]string{"server", verb, "mine", "--profile", "static", "--package", pkg}, more...), "--", "/package/count")...)
		return out + errb, exit
	}
	if out, exit := add("add"); exit != 0 {
		t.Fatal(out)
	}
	w.connect(w.a, "mine", "echo")
	call := func() message {
		t.Helper()
		r := w.open(w.a, aliceUID, "")
		defer r.c.Close()
		return r.call("mine.echo", `{}`)
	}
	if m := call(); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	evil, err := os.ReadFile(filepath.Join(built.fixtures, "hostile", "hostile"))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(pkg, "count.new"), evil, 0o755), os.Rename(filepath.Join(pkg, "count.new"), filepath.Join(pkg, "count")))
	}
	if err != nil {
		t.Fatal(err)
	}
	kill9(t, w.jail(w.a, "server").PID) // the next call starts the program again
	until(t, "the copy answers", func() bool { return call().outcome() == "ok" })
	// Registered again as it reads, it is another revision, and refused until accepted.
	if out, exit := add("update"); exit != 0 {
		t.Fatal(out)
	}
	had := len(w.calls(w.a))
	if m := call(); m.outcome() != "server_revision_changed" {
		t.Errorf("after the update: %s", m.raw)
	}
	if n := len(w.calls(w.a)); n != had {
		t.Errorf("the new program received %d calls", n-had)
	}
	// Put back and registered again it is what was accepted: its contents are, not its name.
	if err := os.WriteFile(filepath.Join(pkg, "count"), raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, exit := add("update"); exit != 0 {
		t.Fatal(out)
	}
	if out := w.must("connection", "accept", w.a.id, "mine", "--yes"); !strings.Contains(out, "accepted") {
		t.Errorf("accept says %s", out)
	}
	if m := call(); m.outcome() != "ok" {
		t.Errorf("accepted: %s", m.raw)
	}
}

// TestPin_C095_AToolThatAppearsInASessionIsNotGranted: while a session is open
// the server says that its list has changed. What was granted and is the same goes on;
// what appeared is not callable, by either name, and is not listed.
func TestPin_C095_AToolThatAppearsInASessionIsNotGranted(t *testing.T) {
	w, r := hostileWorld(t, "grow", "echo")
	if m := r.call("hostile.echo", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	if m := r.call("grow", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	for range 20 { // the list is read anew meanwhile
		for _, name := range []string{"grown", "hostile.grown"} {
			if m := r.call(name, `{}`); m.outcome() == "ok" {
				t.Fatalf("%s: %s", name, m.raw)
			}
		}
		if m := r.call("hostile.echo", `{}`); m.outcome() != "ok" {
			t.Fatalf("the unchanged tool: %s", m.raw)
		}
	}
	for _, name := range r.tools() {
		if strings.Contains(name, "grown") {
			t.Errorf("%s is listed", name)
		}
	}
	if n := w.made("grown"); n != 0 {
		t.Errorf("it was received %d times", n)
	}
}

// TestPin_C095_AToolThatChangesInASessionIsRefused: while a session is open the server
// gives a granted tool another schema. Where it says so, no later call of the tool
// reaches it; where it does not, none after a runtime has listed. Runtimes of both eras
// are told, the tool is listed to none, its sibling goes on, the connection says what is
// wrong, and the tool is callable again when the server has made it what was accepted.
func TestPin_C095_AToolThatChangesInASessionIsRefused(t *testing.T) {
	w, r := hostileWorld(t, "echo", "alter", "one_byte")
	other, listener := w.session(w.a, aliceUID, ""), w.session(w.a, aliceUID, "")
	listener.send(`{"jsonrpc":"2.0","id":"tools","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modern + `}}`)
	if m := listener.read(); m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatal(m.raw)
	}
	alter := func(how string) {
		t.Helper()
		listener.ask("tools/list", `{`+modern+`}`) // what came before is read
		if m := r.call("alter", how); m.outcome() != "ok" {
			t.Fatal(m.raw)
		}
	}
	told := func(says string) {
		t.Helper()
		if m := listener.read(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("%s: who listens is told %q", says, m.raw)
		}
	}
	changed := func(says string) {
		t.Helper()
		if m := r.call("hostile.echo", `{"cc":"x"}`); m.outcome() != "tool_changed" {
			t.Errorf("%s, with the new argument: %s", says, m.raw)
		}
		m := other.ask("tools/call", `{"name":"hostile.echo","arguments":{},`+modern+`}`)
		if m.outcome() != "tool_changed" {
			t.Errorf("%s, by the other session: %s", says, m.raw)
		}
		if names := r.tools(); slices.Contains(names, "hostile.echo") || !slices.Contains(names, "one_byte") {
			t.Errorf("%s: listed: %v", says, names)
		}
		if m := r.call("one_byte", `{}`); m.outcome() != "ok" {
			t.Errorf("%s, the unchanged tool: %s", says, m.raw)
		}
		if out := w.must("connection", "show", w.a.id, "hostile"); !strings.Contains(out, "changed") {
			t.Errorf("%s: connection show says\n%s", says, out)
		}
	}
	works := func(says string) {
		t.Helper()
		until(t, says+": the tool that was accepted is called again", func() bool {
			r.tools()
			return r.call("hostile.echo", `{}`).outcome() == "ok"
		})
	}

	works("before")
	had := w.made("echo")
	alter(`{"say":true}`)
	changed("said")
	if n := w.made("echo") - had; n != 0 {
		t.Errorf("said: it was received %d times", n)
	}
	told("said")
	alter(`{"say":true,"back":true}`)
	works("said, and taken back")

	alter(`{}`)
	until(t, "silently: a list finds it", func() bool { return !slices.Contains(r.tools(), "hostile.echo") })
	had = w.made("echo")
	changed("silently")
	if n := w.made("echo") - had; n != 0 {
		t.Errorf("silently: it was received %d times", n)
	}
	told("silently")
	alter(`{"back":true}`)
	works("silently, and taken back")

	// Another process of the same program is what was accepted.
	alter(`{"say":true}`)
	changed("said, before the end")
	kill9(t, w.server1(w.a, "hostile").PID)
	works("after its restart")
}
