package hostile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// What is here are attacks of the kinds that programs like this one fell to: one peer
// that ends all, output without a bound, a wait without an end, a storm of starts, a list
// that is no longer true. Each is tried on a whole Postern with real jails, while bob and
// another server of the same project go on.

// modern is what a request without a handshake brings.
const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// starts is how often the project's servers of the fixture hostile were started.
func (w *world) starts(p project) (n int) {
	w.t.Helper()
	b, _ := os.ReadFile(filepath.Join(p.workspace, "calls.log"))
	for line := range strings.Lines(string(b)) {
		if line == "start\n" {
			n++
		}
	}
	return n
}

// others are the twins of every attack: bob, and another server of the same session.
type others struct {
	w      *world
	r, bob *peer
}

func (o others) goOn(after string) {
	o.w.t.Helper()
	if m := o.bob.call("echo", `{}`); m.outcome() != "ok" {
		o.w.t.Errorf("bob after %s: %s", after, m.raw)
	}
	if m := o.r.call("echo", `{}`); m.outcome() != "ok" {
		o.w.t.Errorf("the other server after %s: %s", after, m.raw)
	}
}

// again waits until the hostile server can be called again.
func (o others) again(after string) {
	o.w.t.Helper()
	until(o.w.t, "it is called again after "+after, func() bool { return o.r.call("hostile.echo", `{}`).outcome() == "ok" })
}

// Ways in which one server breaks off in the middle of a session. Each ends the calls
// that it had, definitely; the next ones are another instance's, and there is never more
// than one; what the bridge holds is bounded, and both other servers go on.
func TestSiblings_AServerThatBreaksOffIsReplaced(t *testing.T) {
	w, r := hostileWorld(t, "echo", "endless", "die_quietly", "close_stdin", "last_words", "die_on_list", "hang")
	o := others{w, r, w.open(w.b, bobUID, "")}
	o.again("nothing")
	bridge := w.jail(w.a, "bridge").PID
	for _, row := range []struct {
		tool, ends string // how the call itself ends
	}{
		{"endless", "server_exited"},     // a line without an end
		{"die_quietly", "server_exited"}, // it closes its output and lives
		{"close_stdin", "ok"},            // it closes its input and lives
		{"last_words", "ok"},             // it answers and ends, as programs that serve one request do
		{"die_on_list", "ok"},            // it ends when it is asked what it lists now
	} {
		had := w.made(row.tool)
		if m := r.call(row.tool, `{}`); m.outcome() != row.ends {
			t.Errorf("%s: %.300s", row.tool, m.raw)
		}
		o.goOn(row.tool)
		o.again(row.tool)
		if n := w.made(row.tool) - had; n != 1 {
			t.Errorf("%s was received %d times", row.tool, n)
		}
		row2 := w.jail(w.a, "bridge")
		if row2.PID != bridge || row2.Memory > 128<<20 {
			t.Errorf("after %s the bridge is process %d, before %d, with %d MiB", row.tool, row2.PID, bridge, row2.Memory>>20)
		}
		until(t, "one instance is left after "+row.tool, func() bool {
			var ps api.PsResult
			if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range ps.Rows {
				if r.Kind == "server" && r.Label == "hostile" && r.PID != 0 {
					n++
				}
			}
			return n == 1
		})
	}
	until(t, "no record is open", func() bool {
		return !slices.ContainsFunc(w.records(w.a), func(r row) bool { return r.State == "admitted" || r.State == "started" })
	})
}

// A server that answers one call and ends, under a runtime that calls it without a pause:
// each call is answered by it or refused, none is made twice, and its starts are held back.
func TestSiblings_AServerForOneCallIsNoStorm(t *testing.T) {
	w, r := hostileWorld(t, "last_words")
	o := others{w, r, w.open(w.b, bobUID, "")}
	outcomes, calls := map[string]int{}, 0
	for began := time.Now(); time.Since(began) < 5*time.Second || outcomes["ok"] == 0; calls++ {
		outcomes[r.call("last_words", `{}`).outcome()]++
	}
	o.goOn("the storm")
	t.Logf("in five seconds: %v, %d starts", outcomes, w.starts(w.a))
	if n := outcomes["ok"] + outcomes["server_exited"]; w.made("last_words") > n || outcomes["ok"] == 0 {
		t.Errorf("it received %d calls, and %d were answered or cut off: %v", w.made("last_words"), n, outcomes)
	}
	if n := w.starts(w.a); n > 12 {
		t.Errorf("it was started %d times for %d calls", n, calls)
	}
}

// A hundred first calls of two sessions to a server that takes two seconds to start: it
// is started once and all of them are answered, while others do not wait. And nine
// runtimes that call without a pause what ends at each start: few starts in all.
func TestSiblings_C121_C122_ManyRuntimesAreOneStart(t *testing.T) {
	w := newWorld(t)
	w.server("late", "hostile", "late_in_project")
	w.connect(w.a, "late", "twice")
	w.server("flaky", "hostile", "crash_in_project")
	w.connect(w.a, "flaky", "id_string")
	r := w.open(w.a, aliceUID, "")
	o := others{w, r, w.open(w.b, bobUID, "")}
	callers := []*peer{w.open(w.a, aliceUID, ""), w.open(w.a, aliceUID, "")}
	for id := range 50 {
		for _, c := range callers {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"twice","arguments":{}}}`, id))
		}
	}
	o.goOn("the calls of what is not there yet")
	for _, c := range callers {
		for range 50 {
			if m := c.read(); m.outcome() != "ok" {
				t.Fatalf("a first call: %s", m.raw)
			}
		}
	}
	if n := w.starts(w.a); n != 1 || w.made("twice") != 100 {
		t.Errorf("it was started %d times and received %d calls", n, w.made("twice"))
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for range 9 {
		c := w.open(w.a, aliceUID, "")
		wg.Go(func() {
			for began := time.Now(); time.Since(began) < 5*time.Second; {
				m := c.call("id_string", `{}`)
				mu.Lock()
				outcomes[m.outcome()]++
				mu.Unlock()
			}
		})
	}
	o.goOn("nine runtimes and what does not start")
	wg.Wait()
	t.Logf("in five seconds: %v, %d starts", outcomes, w.starts(w.a)-1)
	if n := w.starts(w.a) - 1; n > 8 {
		t.Errorf("what ends at its start was started %d times", n)
	}
	if outcomes["ok"] != 0 {
		t.Errorf("it was never there, and: %v", outcomes)
	}
}

// A server that says without an end that its list has changed: its runtimes are told now
// and then, it is asked now and then, and its calls and everybody else's go on.
func TestSiblings_C032_EndlessChangesAreNoNews(t *testing.T) {
	w, r := hostileWorld(t, "spam_changes", "echo")
	o := others{w, r, w.open(w.b, bobUID, "")}
	listener := w.session(w.a, aliceUID, "")
	listener.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modern + `}}`)
	listener.read()
	listener.ask("tools/list", `{`+modern+`}`)
	if m := r.call("spam_changes", `{}`); m.outcome() != "ok" {
		t.Fatal(m.raw)
	}
	began := time.Now()
	for range 20 {
		if m := r.call("hostile.echo", `{"a":1}`); m.outcome() != "ok" {
			t.Errorf("a call of it: %s", m.raw)
		}
		o.goOn("a change")
	}
	// A request that is answered comes after whatever was told before.
	listener.send(`{"jsonrpc":"2.0","id":"end","method":"server/discover","params":{` + modern + `}}`)
	told := 0
	for m := listener.read(); string(m.ID) != `"end"`; m = listener.read() {
		if m.raw == "" {
			t.Fatal("the session of who listens ended")
		}
		told++
	}
	took := time.Since(began)
	t.Logf("20 calls and %d notifications in %v", told, took)
	if most := 2*20 + 4 + int(took/time.Second); told > most || told == 0 {
		t.Errorf("a runtime was told %d times in %v", told, took)
	}
}

// A server that writes and never speaks: its start ends in time, nobody else waits, and
// what it wrote is counted and kept by no one.
func TestSiblings_C139_BabbleIsNoStart(t *testing.T) {
	w := newWorld(t)
	w.server("babble", "hostile", "babble_in_project")
	w.connect(w.a, "babble", "twice")
	r := w.open(w.a, aliceUID, "")
	o := others{w, r, w.open(w.b, bobUID, "")}
	o.goOn("nothing")
	babbled := w.open(w.a, aliceUID, "")
	babbled.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"twice","arguments":{}}}`)
	done := make(chan message, 1)
	go func() { done <- babbled.answer("1") }()
	worst, n := time.Duration(0), 0
	for {
		began := time.Now()
		o.goOn("babble")
		if names := r.tools(); !slices.Contains(names, "echo") {
			t.Errorf("listed %v", names)
		}
		worst, n = max(worst, time.Since(began)), n+1
		select {
		case m := <-done:
			t.Logf("its call ended as %s; beside it %d rounds, the slowest %v", m.outcome(), n, worst)
			if m.outcome() != "server_unavailable" {
				t.Errorf("its call: %s", m.raw)
			}
			if mem := w.jail(w.a, "bridge").Memory; mem > 64<<20 {
				t.Errorf("the bridge holds %d MiB", mem>>20)
			}
			o.goOn("its end")
			return
		default:
		}
	}
}

// A runtime that asks for a list of many megabytes again and again, 64 times at once, and
// reads none, in four sessions: they may end, and their bridge, the honest session in it and
// bob go on.
func TestSiblings_C016_ListsThatNobodyReads(t *testing.T) {
	w := newWorld(t)
	names := w.wide(1000)
	honest := w.open(w.a, aliceUID, "")
	o := others{w, honest, w.open(w.b, bobUID, "")}
	if n := len(honest.tools()); n != len(names)+len(granted) {
		t.Fatalf("%d tools are listed", n)
	}
	bridge := w.jail(w.a, "bridge").PID
	var greedy []*peer
	for range 4 {
		r := w.open(w.a, aliceUID, "")
		var b strings.Builder
		for id := range 64 {
			fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", id)
		}
		io.WriteString(r.c, b.String())
		greedy = append(greedy, r)
	}
	for range 10 {
		o.goOn("lists that nobody reads")
		if m := honest.ask("tools/list", `{}`); m.outcome() != "ok" && m.outcome() != "busy" {
			t.Errorf("an honest list: %.300s", m.raw)
		}
	}
	row := w.jail(w.a, "bridge")
	t.Logf("the bridge holds %d MiB", row.Memory>>20)
	if row.PID != bridge {
		t.Error("the bridge ended")
	}
	for _, r := range greedy {
		r.c.Close()
	}
	until(t, "the whole list is read again", func() bool { return len(honest.tools()) == len(names)+len(granted) })
}

// A server with a thousand tools and megabytes to say of them is registered and shown:
// every tool is there, and what is said of each is cut.
func TestSiblings_C016_ALongListIsShown(t *testing.T) {
	w := newWorld(t)
	w.server("wordy", "hostile", "wordy")
	w.must("connection", "add", w.a.id, "wordy")
	w.must("connection", "grant", w.a.id, "wordy", "w999")
	for _, args := range [][]string{{"server", "show", "wordy"}, {"connection", "show", w.a.id, "wordy"}} {
		for _, form := range [][]string{args, append([]string{"--json"}, args...)} {
			if out := w.must(form...); !strings.Contains(out, "w0") || !strings.Contains(out, "w999") {
				t.Errorf("postern %s: %.300s", strings.Join(form, " "), out)
			}
		}
	}
	r := w.open(w.a, aliceUID, "")
	if m := r.call("w999", `{}`); m.outcome() != "ok" {
		t.Errorf("its granted tool: %s", m.raw)
	}
	if m := r.call("w998", `{}`); m.outcome() != "tool_not_granted" {
		t.Errorf("its sibling: %s", m.raw)
	}
}

// The last tool of a page is revoked while a runtime walks through the pages: the walk
// goes on, ends, shows every other tool once and the revoked one no more.
func TestSiblings_C023_C086_ARevocationInTheMiddleOfAWalk(t *testing.T) {
	w := newWorld(t)
	names := w.wide(700)
	r := w.open(w.a, aliceUID, "")
	first := r.ask("tools/list", `{}`)
	cursor := between(first.raw, `"nextCursor":"`, `"`)
	if cursor == "" {
		t.Fatalf("one page of %d tools", len(first.Result.Tools))
	}
	seen := map[string]int{}
	for _, tool := range first.Result.Tools {
		seen[tool.Name]++
	}
	last := first.Result.Tools[len(first.Result.Tools)-1].Name
	server := "many"
	if !strings.HasPrefix(last, "w") {
		server = "count"
	}
	w.must("connection", "revoke", w.a.id, server, last)
	for pages := 1; cursor != ""; pages++ {
		m := r.ask("tools/list", `{"cursor":"`+cursor+`"}`)
		if m.outcome() != "ok" || pages > 9 {
			t.Fatalf("page %d: %.300s", pages, m.raw)
		}
		for _, tool := range m.Result.Tools {
			seen[tool.Name]++
		}
		cursor = between(m.raw, `"nextCursor":"`, `"`)
	}
	for _, name := range append(names, granted...) {
		if seen[name] != 1 {
			t.Errorf("%s was listed %d times", name, seen[name])
		}
	}
	if slices.Contains(r.tools(), last) {
		t.Errorf("%s is listed after its revocation", last)
	}
}

// wide grants so many tools of a server with megabytes of definitions.
func (w *world) wide(n int) (names []string) {
	w.t.Helper()
	w.server("many", "hostile", "wide")
	w.must("connection", "add", w.a.id, "many")
	for i := range n {
		names = append(names, fmt.Sprint("w", i))
	}
	for some := range slices.Chunk(names, 500) {
		w.must(append([]string{"connection", "grant", w.a.id, "many"}, some...)...)
	}
	return names
}

func between(s, begin, end string) string {
	_, s, _ = strings.Cut(s, begin)
	s, _, _ = strings.Cut(s, end)
	return s
}

// Sixty signs of progress of a megabyte each to a runtime that reads none before the
// answer is there: what is kept is bounded, the answer comes, and the bridge stays.
func TestSiblings_C030_HugeProgressIsNoFlood(t *testing.T) {
	w, r := hostileWorld(t, "huge_progress", "echo")
	o := others{w, w.open(w.a, aliceUID, ""), w.open(w.b, bobUID, "")}
	o.goOn("nothing")
	bridge := w.jail(w.a, "bridge").PID
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"huge_progress","arguments":{"bytes":1000000},"_meta":{"progressToken":"p"}}}`)
	until(t, "the call has ended", func() bool {
		return slices.ContainsFunc(w.records(w.a), func(r row) bool { return r.Tool == "huge_progress" && r.State == "completed" })
	})
	o.goOn("progress")
	notes := 0
	for {
		m := r.read()
		if m.Method == "" {
			if m.outcome() != "ok" || string(m.ID) != "1" {
				t.Errorf("the answer: %.300s", m.raw)
			}
			break
		}
		notes++
	}
	t.Logf("%d of 60 signs of progress were kept", notes)
	if row := w.jail(w.a, "bridge"); row.PID != bridge || notes == 0 || notes > 30 {
		t.Errorf("%d signs of progress were kept; the bridge is process %d, before %d", notes, row.PID, bridge)
	}
	o.goOn("the answer")
}

// Files of the configuration that are written again as they are, by each way in which an
// editor or a deployment does that, and signals to read them again: nothing is recorded,
// started or ended, and calls go on. Its twin: what is written differently is taken.
func TestSiblings_C124_FilesThatAreWrittenAsTheyAre(t *testing.T) {
	own, err := os.ReadFile("../../profiles/builtin/static.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldWith(t, rig.Config{Profiles: map[string]string{"own": strings.Replace(string(own), "name: static", "name: own", 1)}})
	w.must("server", "add", "own", "--profile", "own", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count")
	w.connect(w.a, "own", "echo")
	r := w.open(w.a, aliceUID, "")
	jails := func() []string {
		var ps api.PsResult
		if err := w.Call(api.Ps, api.ProjectParams{Project: w.a.id}, &ps); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, row := range ps.Rows {
			out = append(out, fmt.Sprint(row.Kind, " ", row.Label, " ", row.PID))
		}
		slices.Sort(out)
		return out
	}
	calls := func() {
		t.Helper()
		for _, tool := range []string{"echo", "own.echo"} {
			if m := r.call(tool, `{}`); m.outcome() != "ok" {
				t.Fatalf("%s: %s", tool, m.raw)
			}
		}
	}
	facts := func() any {
		t.Helper()
		var st api.StatusResult
		if err := w.Call(api.Status, nil, &st); err != nil {
			t.Fatal(err)
		}
		return st.Facts
	}
	taken := func() int {
		raw, err := os.ReadFile(filepath.Join(w.RootDir, "audit.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(raw), `"config reload"`)
	}
	calls()
	before, was, authority, had, logged := jails(), facts(), w.authority(), taken(), strings.Count(w.Log.String(), "\n")
	yaml, profile := filepath.Join(w.Dir, "postern.yaml"), filepath.Join(w.Dir, "profiles.d", "own.yaml")
	for n := range 60 {
		for _, path := range []string{yaml, profile} {
			text, err := os.ReadFile(path)
			if err == nil {
				switch n % 3 {
				case 0:
					err = os.Chtimes(path, time.Now(), time.Now())
				case 1:
					err = os.WriteFile(path, text, 0o600)
				case 2:
					err = errors.Join(os.WriteFile(path+".new~", text, 0o600), os.Rename(path+".new~", path))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Kill(w.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if n%10 == 0 {
			calls()
		}
	}
	calls()
	if now := facts(); now != was || w.authority() != authority || taken() != had {
		t.Errorf("facts %v became %v, authority %d became %d, and %d changes were recorded", was, now, authority, w.authority(), taken()-had)
	}
	if now := jails(); !slices.Equal(now, before) {
		t.Errorf("the jails were %v and are %v", before, now)
	}
	if n := strings.Count(w.Log.String(), "\n") - logged; n > 5 {
		t.Errorf("the log has %d more lines:\n%s", n, w.Log)
	}
	if err := os.WriteFile(profile, []byte(strings.Replace(strings.Replace(string(own), "name: static", "name: own", 1), "pids: 64", "pids: 63", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "a profile that is another is taken", func() bool { return taken() == had+1 })
}
