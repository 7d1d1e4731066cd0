package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// C140: fifty connections at once start exactly one bridge.
func TestWorkers4_C140_FiftyConnectionsStartOneBridge(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.mute = true } })
	const many = 50
	lines := make(chan string, many)
	for n := range many {
		c := r.dial(path, []uint32{aliceUID, bobUID}[n%2])
		c.f.WriteString(bindPlain)
		go func() { lines <- c.line() }()
	}
	b := r.bridgeOf(shop)
	r.settled("all wait", func() bool { return len(r.w.sets[b.key].waiting) == many })
	b.send(wire.Hello{Version: "test"})
	seen := map[string]bool{}
	for range many {
		line := <-lines
		if seen[line] || !strings.Contains(line, "ses_") {
			t.Fatalf("%q", line)
		}
		seen[line] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(only[order.LaunchBridge](r)); n != 1 || len(r.bridges) != 1 {
		t.Fatalf("%d bridges were started", n)
	}
}

// C140: while another one ends it again and again, there is never more than one,
// and nothing untracked at the end.
func TestWorkers4_C140_NeverMoreThanOneBridgeLivesWhileItIsEnded(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	var mu sync.Mutex
	live, most := 0, 0
	r.event(func() {
		r.setUp = func(b *bridge) {
			mu.Lock()
			defer mu.Unlock()
			if live++; live > most {
				most = live
			}
			go func() {
				<-b.gone
				mu.Lock()
				live--
				mu.Unlock()
			}()
		}
	})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, _, _ := r.bind(path, []uint32{aliceUID, bobUID}[n%2], bindPlain)
				c.f.Close()
			}
		})
	}
	for range 20 {
		if err := r.do(func() error {
			for _, s := range r.w.sets {
				r.w.endSet(s, "it was idle") // the one reason that is held against nobody
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		r.session(path, shop)
	}
	close(stop)
	all.Wait()
	r.settled("everything tracked", func() bool {
		n := 0
		for _, o := range r.w.jails {
			if o.set.ended {
				return false
			}
			n++
		}
		return n == len(r.w.sets) && len(r.w.asked) == 0
	})
	mu.Lock()
	defer mu.Unlock()
	if most > 2 { // one ending and one starting
		t.Errorf("%d lived at once", most)
	}
}

// C121: fifty first calls to a server that does not run yet.
func TestWorkers4_C121_FiftyStartsStartOneServer(t *testing.T) {
	r := newRig(t)
	b, s := r.session(r.socket(shop), shop)
	r.event(func() { r.onServer = func(order.LaunchServer) refusal.Code { return held } })
	const many = 50
	codes := make(chan refusal.Code, many)
	for range many {
		go func() { _, code := b.start(s, r.conn[shop], "read_rows"); codes <- code }()
	}
	r.settled("all wait", func() bool {
		in := r.w.sets[b.key].insts[gate.Place{Conn: r.conn[shop]}]
		return in != nil && len(in.waiting) == many
	})
	r.await("the order", func() bool { return len(only[order.LaunchServer](r)) > 0 })
	r.mu.Lock()
	orders := only[order.LaunchServer](r)
	r.mu.Unlock()
	if len(orders) != 1 || orders[0].Project != id[ids.Project](shop) || orders[0].Set != b.key.Number || orders[0].Server != id[ids.Server](files) || orders[0].Revision != id[ids.Revision](files) || orders[0].Task != "" {
		t.Fatalf("%+v", orders)
	}
	r.launchServer(orders[0])
	for range many {
		if code := <-codes; code != "" {
			t.Fatalf("%q", string(code))
		}
	}
	// No honest bridge asks for more than the wire's bound.
	other, os_ := r.session(r.socket(blog), blog)
	for n := range 3 * wire.MaxAsked {
		other.send(wire.Start{Seq: uint64(1000 + n), Session: os_, Connection: r.conn[blog], Tool: "read_rows"})
	}
	r.settled("they are bounded", func() bool {
		in := r.w.sets[other.key].insts[gate.Place{Conn: r.conn[blog]}]
		return in != nil && len(in.waiting) == wire.MaxAsked
	})
}

func TestWorkers4_ARefusedCallStartsNothing(t *testing.T) {
	r := newRig(t)
	b, s := r.session(r.socket(shop), shop)
	for _, row := range []struct {
		c    ids.Connection
		tool string
		want refusal.Code
	}{{r.conn[shop], "no_such_tool", refusal.ToolUnknown}, {r.conn[blog], "read_rows", refusal.ToolUnknown}, {fresh[ids.Connection](), "read_rows", refusal.ToolUnknown}} {
		if _, code := b.start(s, row.c, row.tool); code != row.want {
			t.Errorf("%q", string(code))
		}
	}
	r.narrow(shop, revokeRead(r.conn[shop]))
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.ToolNotGranted {
		t.Errorf("%q", string(code))
	}
	r.mu.Lock()
	if n := len(only[order.LaunchServer](r)); n != 0 {
		t.Errorf("%d servers were started", n)
	}
	r.mu.Unlock()
	if _, code := b.start(s, r.conn[shop], "list_dir"); code != "" {
		t.Errorf("its twin: %q", string(code))
	}
}

// C122: a server that fails at its start is held back more and more, for all
// sessions together, and says why.
func TestWorkers4_C122_AServerThatFailsIsHeldBack(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	b, s := r.session(path, shop)
	_, second, _ := r.bind(path, bobUID, bindPlain)
	r.event(func() { r.onServer = func(order.LaunchServer) refusal.Code { return refusal.ServerUnavailable } })
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.ServerUnavailable {
		t.Fatalf("%q", string(code))
	}
	for range 9 {
		if _, code := b.start(second, r.conn[shop], "read_rows"); code != refusal.LimitStarts {
			t.Fatalf("%q", string(code))
		}
	}
	r.mu.Lock()
	if n := len(only[order.LaunchServer](r)); n != 1 {
		t.Errorf("%d starts", n)
	}
	for _, m := range b.heard {
		if n, ok := m.(wire.NotStarted); ok && n.Text != "by the test" {
			t.Errorf("the reason is %q", n.Text)
		}
	}
	r.mu.Unlock()
	// It works again, after the pause.
	r.event(func() { r.onServer = nil })
	r.settled("the pause is over", func() bool {
		return !time.Now().Before(r.w.sets[b.key].insts[gate.Place{Conn: r.conn[shop]}].back.until)
	})
	if _, code := b.start(second, r.conn[shop], "read_rows"); code != "" {
		t.Fatalf("%q", string(code))
	}
}

// C122, C125: how long starts are held back, by the numbers.
func TestWorkers4_C125_BackOffGrowsIsCappedAndIsForgottenAfterHealth(t *testing.T) {
	var b backoff
	at := time.Unix(1e9, 0)
	starts := 0
	for now := at; now.Before(at.Add(time.Minute)); {
		starts++
		b.failed(now, "/bin/false")
		if pause := b.until.Sub(now); pause < BackoffFirst || pause > BackoffMost {
			t.Fatalf("start %d: %v", starts, pause)
		}
		now = b.until
	}
	if starts > 7 {
		t.Errorf("%d starts in a minute", starts)
	}
	// It dies 200 ms after each start for a long while: the pause stays at its most.
	for range 300 {
		b.ended(at, 200*time.Millisecond, "it died")
		if pause := b.until.Sub(at); pause > BackoffMost {
			t.Fatal(pause)
		}
	}
	if b.until.Sub(at) != BackoffMost {
		t.Errorf("a short life is forgiven: %v", b.until.Sub(at))
	}
	b.ended(at, HealthyAfter-1, "it died")
	if b.until.Sub(at) != BackoffMost {
		t.Error("almost healthy is forgiven")
	}
	b.ended(at, HealthyAfter, "it died")
	if b.until.Sub(at) != BackoffFirst || b.fails != 1 || b.lastErr != "it died" {
		t.Errorf("after a healthy life: %+v", b)
	}
}

func TestWorkers4_ABridgeThatDoesNotStart(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.onBridge = func(order.LaunchBridge) refusal.Code { return refusal.LayerMissing } })
	_, _, line := r.bind(path, aliceUID, bindPlain)
	if refusalIn(line) != refusal.LayerMissing || !strings.Contains(line, "by the test") {
		t.Fatalf("%q", line)
	}
	for range 5 {
		if _, _, line := r.bind(path, aliceUID, bindPlain); refusalIn(line) != refusal.LimitStarts {
			t.Fatalf("%q", line)
		}
	}
	r.mu.Lock()
	if n := len(only[order.LaunchBridge](r)); n != 1 {
		t.Errorf("%d starts", n)
	}
	r.mu.Unlock()
	r.settled("no session is left", func() bool {
		for _, task := range r.g.Registry().AllTasks() {
			if r.g.Sessions(task.ID) != 0 {
				return false
			}
		}
		return true
	})
	// Another project is not held back; and this one is not for ever.
	r.event(func() { r.onBridge = nil })
	r.session(r.socket(blog), blog)
	r.settled("the pause is over", func() bool { return !time.Now().Before(r.w.restarts[shopKey].until) })
	r.session(path, shop)
}

var shopKey = gateSet(shop)

func TestWorkers5_ALateLaunchedIsStopped(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	var late order.LaunchBridge
	r.event(func() { r.onBridge = func(m order.LaunchBridge) refusal.Code { late = m; return held } })
	c := r.dial(path, aliceUID)
	c.f.WriteString(bindPlain)
	r.settled("the order", func() bool { return len(r.w.asked) == 1 })
	if err := r.do(func() error {
		for seq, a := range r.w.asked { // the time of the answer is over
			a.until = time.Now().Add(-1)
			r.w.asked[seq] = a
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := refusalIn(c.line()); got != refusal.ServerUnavailable {
		t.Fatalf("%q", string(got))
	}
	r.await("the order", func() bool { return late.Seq != 0 })
	r.launchBridge(late)
	r.await("its end", func() bool { return len(r.bridges) == 1 && r.jails[r.bridges[0].jail].gone })
	r.bridges[0].isGone("it came late")
	// The same where the set was ended while the order was on its way.
	r.settled("the pause is over", func() bool { return !time.Now().Before(r.w.restarts[shopKey].until) })
	r.event(func() { late.Seq = 0 })
	c = r.dial(path, aliceUID)
	c.f.WriteString(bindPlain)
	r.await("the order", func() bool { return late.Seq != 0 })
	if err := r.do(func() error { r.w.endSet(r.w.sets[shopKey], "the test ends it"); return nil }); err != nil {
		t.Fatal(err)
	}
	r.launchBridge(late)
	r.await("its end", func() bool { return len(r.bridges) == 2 && r.jails[r.bridges[1].jail].gone })
	r.settled("nothing is tracked", func() bool { return len(r.w.jails) == 0 && len(r.w.byFD) == 0 })
}

func TestTheDeathOfABridgeEndsEverythingOfIt(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	cl, s, _ := r.bind(path, aliceUID, bindPlain)
	b := r.bridgeOf(shop)
	inst, _ := b.start(s, r.conn[shop], "read_rows")
	var calls []ids.Call
	for range 5 {
		c, code := b.admit(s, r.conn[shop], inst, "read_rows")
		if code != "" {
			t.Fatal(string(code))
		}
		calls = append(calls, c)
	}
	begin := time.Now()
	r.kill(b.jail, order.Exited{Signal: 9, Status: -1})
	for _, c := range calls {
		if x := r.record(c, store.Unknown); x.Code != refusal.ServerExited {
			t.Fatalf("%+v", x)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if got := cl.line(); got != "" {
		t.Fatalf("the connection lives: %q", got)
	}
	r.await("a line about it", func() bool { return strings.Contains(r.log.String(), "a bridge ended") })
	r.await("its server's end", func() bool { return r.jails[inst].gone })
	r.settled("nothing is left", func() bool { return len(r.w.sets) == 0 && r.g.OpenCalls() == 0 && len(r.w.jails) == 0 })
	r.settled("no session", func() bool {
		n := 0
		for _, task := range r.g.Registry().AllTasks() {
			n += r.g.Sessions(task.ID)
		}
		return n == 0
	})
	// One loss is not a storm: the next connection has a bridge at once. Another soon after is held back.
	next, ns := r.session(path, shop)
	if next == b {
		t.Fatal("the dead bridge")
	}
	if tools := next.view(ns); len(tools) != 2 {
		t.Fatal(tools)
	}
	r.kill(next.jail, order.Exited{OOM: true})
	r.settled("it is gone", func() bool { return len(r.w.sets) == 0 })
	if _, _, line := r.bind(path, aliceUID, bindPlain); refusalIn(line) != refusal.LimitStarts {
		t.Fatalf("%q", line)
	}
}

func TestC133_AServerThatEndsIsStartedAgain(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	r.kill(inst, order.Exited{Status: 3})
	r.await("the bridge hears of it", func() bool {
		return len(b.exits) == 1 && b.exits[0].Instance == inst && b.exits[0].Connection == r.conn[shop]
	})
	r.record(c, store.Admitted) // how it ended is the bridge's to say
	b.send(wire.Ended{Call: c, Outcome: wire.Unknown, Code: refusal.ServerExited})
	r.record(c, store.Unknown)
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.ServerUnavailable {
		t.Fatalf("the former instance: %q", string(code))
	}
	next, code := b.start(s, r.conn[shop], "read_rows")
	if code != "" || next == inst {
		t.Fatalf("%q", string(code))
	}
	if _, code := b.admit(s, r.conn[shop], next, "read_rows"); code != "" {
		t.Fatalf("%q", string(code))
	}
}

// The bridge sees the pipes close before posternd has reaped the server, and asks.
func TestAServerLostBeforeItsEndIsToldIsStartedAgain(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	r.event(func() { delete(b.instances, r.conn[shop]); r.unkillable[inst] = true })
	got := make(chan ids.Jail, 1)
	go func() {
		next, code := b.start(s, r.conn[shop], "read_rows")
		if code != "" {
			t.Errorf("%q", string(code))
		}
		got <- next
	}()
	r.await("the former is told to end", func() bool { return len(only[order.Stop](r)) == 1 && only[order.Stop](r)[0].Jail == inst })
	r.mu.Lock()
	if n := len(only[order.LaunchServer](r)); n != 1 {
		t.Errorf("%d were started while the former lives", n)
	}
	r.mu.Unlock()
	r.kill(inst, order.Exited{Status: 1})
	next := <-got
	if next == inst || next == "" {
		t.Fatal(next)
	}
	if _, code := b.admit(s, r.conn[shop], next, "read_rows"); code != "" {
		t.Fatalf("%q", string(code))
	}
	// A bridge that asks for what it has again and again is held back.
	r.event(func() { delete(b.instances, r.conn[shop]) })
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.LimitStarts {
		t.Fatalf("%q", string(code))
	}
}

func TestARevocationOfAConnectionStopsItsServer(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	n := r.narrow(shop, func(reg *registry.Registry) (registry.Change, error) { return reg.Enable(r.conn[shop], false, 0) })
	if n.Fenced != 1 {
		t.Fatalf("%+v", n)
	}
	r.await("its end", func() bool { return r.jails[inst].gone && len(b.exits) == 1 })
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != refusal.ConnectionDisabled {
		t.Fatalf("%q", string(code))
	}
	r.change(func(reg *registry.Registry) (registry.Change, error) { return reg.Enable(r.conn[shop], true, 0) })
	if _, code := b.start(s, r.conn[shop], "read_rows"); code != "" {
		t.Fatalf("enabled again: %q", string(code))
	}
	// While it starts, too.
	r.event(func() { r.onServer = func(order.LaunchServer) refusal.Code { return held } })
	o, os_ := r.session(r.socket(blog), blog)
	code := make(chan refusal.Code, 1)
	go func() { _, c := o.start(os_, r.conn[blog], "read_rows"); code <- c }()
	r.await("the order", func() bool { return len(only[order.LaunchServer](r)) == 3 })
	r.narrow(blog, func(reg *registry.Registry) (registry.Change, error) { return reg.Enable(r.conn[blog], false, 0) })
	r.launchServer(only[order.LaunchServer](r)[2])
	if got := <-code; got != refusal.ConnectionDisabled {
		t.Fatalf("%q", string(got))
	}
	r.mu.Lock()
	last := r.servers[len(r.servers)-1].jail
	r.mu.Unlock()
	r.await("its end", func() bool { return r.jails[last].gone })
}

func TestACatalogueThatDiffersTakesTheToolAway(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.autoList = "" } })
	b, s := r.session(path, shop)
	inst, code := b.start(s, r.conn[shop], "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.ServerUnavailable {
		t.Fatalf("before it listed anything: %q", string(code))
	}
	other := strings.Replace(catalogueText, `"read_rows","inputSchema":{`, `"read_rows","inputSchema":{"x":1,`, 1)
	half := len(other) / 2
	b.send(wire.Catalogue{Connection: r.conn[shop], Instance: inst, Part: 0, Data: []byte(other[:half])})
	b.send(wire.Catalogue{Connection: r.conn[shop], Instance: inst, Part: 1, Data: []byte(other[half:]), Last: true})
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.ToolChanged {
		t.Fatalf("%q", string(code))
	}
	if _, code := b.admit(s, r.conn[shop], inst, "list_dir"); code != "" {
		t.Fatalf("its sibling: %q", string(code))
	}
	r.await("the view may have changed", func() bool { return b.changed > 0 })
	if tools := b.view(s); tools[0].Callable || !tools[1].Callable {
		t.Fatalf("%+v", tools)
	}
	r.kill(inst, order.Exited{})
	r.await("the next may list what was pinned", func() bool { return b.changed > 1 && len(b.exits) == 1 })
	if tools := b.view(s); !tools[0].Callable {
		t.Fatalf("%+v", tools)
	}
	// One that lists nothing at all, or no list, is ended.
	for _, m := range []wire.Catalogue{{Error: "the server said nothing", Last: true}, {Data: []byte("{}"), Last: true}} {
		r.settled("the pause is over", func() bool {
			return !time.Now().Before(r.w.sets[b.key].insts[gate.Place{Conn: r.conn[shop]}].back.until)
		})
		next, code := b.start(s, r.conn[shop], "list_dir")
		if code != "" {
			t.Fatal(string(code))
		}
		m.Connection, m.Instance = r.conn[shop], next
		b.send(m)
		r.await("its end", func() bool { return r.jails[next].gone })
		r.settled("its end is noted", func() bool { return r.w.sets[b.key].insts[gate.Place{Conn: r.conn[shop]}].state == instIdle })
	}
}

// That a server's list has changed is told to those whose calls reach it when it has been
// read, also where nothing of the change is granted.
func TestWorkers5_C032_AListThatWasReadAgainIsTold(t *testing.T) {
	r := newRig(t)
	b, _, inst := r.ready(r.socket(shop))
	conn := r.conn[shop]
	more := strings.Replace(catalogueText, "[", `[{"name":"one_more","inputSchema":{"type":"object"}},`, 1)
	r.mu.Lock()
	before := b.changed
	r.mu.Unlock()
	lists := []string{more, more, catalogueText}
	for _, list := range lists {
		b.send(wire.Catalogue{Connection: conn, Instance: inst, Data: []byte(list), Last: true})
	}
	r.await("what came of it", func() bool { return len(b.relisted) == len(lists) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.changed-before != len(lists) || b.relisted[0].Connection != conn {
		t.Errorf("%d changes were told, %+v", b.changed-before, b.relisted)
	}
}

// A server that says that its tools changed and cannot list them goes on with what it
// works at. It is not called, because nothing can be compared, until a list comes.
func TestWorkers5_C033_AServerThatCannotListAfterAChangeIsKept(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	conn := r.conn[shop]
	open, code := b.admit(s, conn, inst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	down := func() (why string) {
		if err := r.w.Do(t.Context(), func() { why = r.w.Down(id[ids.Project](shop), conn) }); err != nil {
			t.Fatal(err)
		}
		return why
	}
	broken := wire.Catalogue{Connection: conn, Instance: inst, Error: "no list today", Last: true}
	b.send(broken)
	if _, code := b.admit(s, conn, inst, "read_rows"); code != refusal.ServerUnavailable {
		t.Errorf("a call that nothing vouches for: %q", string(code))
	}
	if why := down(); !strings.Contains(why, "no list today") {
		t.Errorf("it is shown as %q", why)
	}
	b.send(wire.Ended{Call: open, Outcome: wire.Completed, Returned: true})
	r.record(open, store.Completed)
	if r.jails[inst].gone {
		t.Fatal("it was ended")
	}
	b.send(wire.Catalogue{Connection: conn, Instance: inst, Data: []byte(catalogueText), Last: true})
	if _, code := b.admit(s, conn, inst, "read_rows"); code != "" {
		t.Errorf("when it lists again: %q", string(code))
	}
	if why := down(); why != "" {
		t.Errorf("it is still shown as %q", why)
	}
	// One that never lists again makes room for another.
	b.send(broken)
	r.settled("it is noted", func() bool {
		in := r.w.sets[b.key].insts[gate.Place{Conn: conn}]
		if in.unlisted.IsZero() {
			return false
		}
		in.unlisted = in.unlisted.Add(-UnlistedMost)
		return true
	})
	b.send(broken)
	r.await("its end", func() bool { return r.jails[inst].gone })
	b.alive("the bridge is not to blame")
}

// A view whose names are longer as JSON than as bytes.
func TestAViewOfLongNamesGoesByFile(t *testing.T) {
	r := newRig(t)
	b, s := r.session(r.socket(shop), shop)
	r.change(func(reg *registry.Registry) (registry.Change, error) {
		pins := []registry.Pin{}
		for n := range 60 {
			pins = append(pins, registry.Pin{Tool: fmt.Sprint(n) + strings.Repeat("\x01", 250), Quarantine: "its name", Raw: []byte("null")})
		}
		old := reg.Catalogue(id[ids.Revision](files))
		for _, p := range old.Order {
			pins = append(pins, *old.Tools[p])
		}
		return reg.PutCatalogue(id[ids.Revision](files), time.Now(), "", "", pins)
	})
	tools := b.view(s)
	callable := 0
	for _, x := range tools {
		if x.Callable {
			callable++
		}
	}
	if len(tools) != 62 || callable != 2 {
		t.Fatalf("%d tools, %d callable", len(tools), callable)
	}
	b.alive("a view with bad names")
}

func TestWorkers5_CallsPastTheirLimitAreCancelledThenGivenUp(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	less := facts()
	less.Servers[id[ids.Server](files)].Revisions[id[ids.Revision](files)].Call = 300 * time.Millisecond
	v := r.setFacts(less)
	r.await("facts", func() bool { return r.acked(v) })
	kept, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	lost, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	r.await("both are cancelled", func() bool { return len(b.cancels) == 2 && b.cancels[0].Code == refusal.CallTimeout })
	b.send(wire.Ended{Call: kept, Outcome: wire.Cancelled, Code: refusal.CallTimeout})
	r.record(kept, store.Cancelled)
	if x := r.record(lost, store.Unknown); x.Code != refusal.CallTimeout {
		t.Fatalf("%+v", x)
	}
	r.await("the server that hangs is ended", func() bool { return r.jails[inst].gone })
	b.alive("the bridge is not to blame")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(b.cancels) != 2 {
		t.Errorf("%d cancels", len(b.cancels))
	}
}

func TestPsShowsWhatLives(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	rows, err := r.w.Ps(context.Background())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, row := range rows {
		switch row.Jail {
		case b.jail:
			if row.State != "ready" || row.Sessions != 1 || row.Project != id[ids.Project](shop) {
				t.Errorf("%+v", row)
			}
		case inst:
			if row.State != "ready" || row.Calls != 1 || row.Open != 1 || row.Connection != r.conn[shop] {
				t.Errorf("%+v", row)
			}
		default:
			t.Errorf("%+v", row)
		}
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Completed})
	b.view(s) // answered after what was sent before
	if rows, err := r.w.Ps(t.Context()); err != nil || slices.ContainsFunc(rows, func(x Row) bool { return x.Open != 0 }) {
		t.Errorf("after the call: %+v, %v", rows, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.w.Ps(ctx); err == nil {
		t.Error("nobody waits, and it returned")
	}
	_ = s
}
