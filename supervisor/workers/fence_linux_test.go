package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

func TestWorkers3_ARevocationWaitsForTheFence(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.noFence = true } })
	b, s, inst := r.ready(path)
	c, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	done := make(chan Narrowed, 1)
	go func() { done <- r.narrow(shop, revokeRead(r.conn[shop])) }()
	r.await("the fence", func() bool { return len(b.fences) == 1 })
	select {
	case n := <-done:
		t.Fatalf("it returned before the fence was answered: %+v", n)
	default:
	}
	b.send(wire.Fenced{N: 0}) // an older one
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.ToolNotGranted {
		t.Fatalf("after the change: %q", string(code))
	}
	select {
	case n := <-done:
		t.Fatalf("another fence's answer was taken for it: %+v", n)
	default:
	}
	b.send(wire.Fenced{N: b.fences[0]})
	n := <-done
	if n.Fenced != 1 || n.Killed != 0 || n.Sessions != 0 || len(n.Stands) != 1 || n.Stands[0].Call != c || !n.Stands[0].CancelSent || n.Stands[0].Tool != "read_rows" {
		t.Fatalf("%+v", n)
	}
	r.mu.Lock()
	cancels, order := slices.Clone(b.cancels), kinds(b.heard)
	r.mu.Unlock()
	if len(cancels) != 1 || cancels[0].Call != c || cancels[0].Code != refusal.CallRevoked {
		t.Fatalf("%+v", cancels)
	}
	if i, j, k := slices.Index(order, "Admitted"), slices.Index(order, "Cancel"), slices.Index(order, "Fence"); !(0 <= i && i < j && j < k) {
		t.Fatalf("the bridge heard %v", order)
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Cancelled})
	r.record(c, store.Cancelled)
	r.change(func(*registry.Registry) (registry.Change, error) { return r.grantChange(r.conn[shop], "read_rows") })
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != "" {
		t.Fatalf("granted again: %q", string(code))
	}
}

func kinds(ms []wire.Down) (out []string) {
	for _, m := range ms {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%T", m), "wire."))
	}
	return out
}

func TestWorkers3_ASilentBridgeIsKilledAndTheRevocationReturns(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.noFence = true } })
	b, s, inst := r.ready(path)
	other, os_ := r.session(r.socket(blog), blog)
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	begin := time.Now()
	n := r.narrow(shop, revokeRead(r.conn[shop]))
	took := time.Since(begin)
	if n.Killed != 1 || n.Fenced != 0 || took < FenceWait || took > FenceWait+2*time.Second {
		t.Fatalf("%+v after %v", n, took)
	}
	b.isGone("it answered no fence")
	r.mu.Lock()
	gone := r.jails[b.jail].gone
	r.mu.Unlock()
	if !gone {
		t.Fatal("the revocation returned before the jail was ended")
	}
	if x := r.record(c, store.Unknown); x.Code != refusal.ServerExited {
		t.Fatalf("%+v", x)
	}
	other.alive("another project's")
	if len(other.view(os_)) != 2 || len(other.fences) != 0 {
		t.Fatal("another project was fenced")
	}
}

func TestWorkers3_NobodyWaitsLongForAJailThatCannotBeKilled(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() {
		r.setUp = func(b *bridge) { b.noFence = true; r.unkillable[b.jail] = true }
	})
	b, _, _ := r.ready(path)
	begin := time.Now()
	n := r.narrow(shop, revokeRead(r.conn[shop]))
	if took := time.Since(begin); n.Killed != 1 || took < FenceWait+KillWait || took > FenceWait+KillWait+3*time.Second {
		t.Fatalf("%+v after %v", n, took)
	}
	b.isGone("its wire must be closed")
	r.event(func() { r.setUp = nil })
	if next, _ := r.session(path, shop); next == b {
		t.Fatal("the project has the bridge that cannot be killed")
	}
	r.kill(b.jail, order.Exited{Forced: true})
}

// A bridge that was lost just before is waited for too: its process may still write.
func TestWorkers3_ABridgeThatIsDyingIsWaitedFor(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { r.unkillable[b.jail] = true } })
	b, _, _ := r.ready(path)
	b.sendRaw([]byte("garbage"))
	b.isGone("garbage")
	done := make(chan Narrowed, 1)
	go func() { done <- r.narrow(shop, revokeRead(r.conn[shop])) }()
	if err := r.do(func() error { return nil }); err != nil { // the change was made in this turn or will be in the next
		t.Fatal(err)
	}
	select {
	case n := <-done:
		t.Fatalf("it returned while the jail lives: %+v", n)
	case <-time.After(3 * TickEvery):
	}
	r.kill(b.jail, order.Exited{Signal: 9})
	<-done
}

func TestWorkers3_RootFactsAreAnsweredWhenTheFencesAre(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.noFence = true } })
	b, s, inst := r.ready(path)
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	less := facts()
	p := less.Projects[id[ids.Project](shop)]
	p.PersonBind = false
	less.Projects[p.ID] = p
	v := r.setFacts(less)
	r.await("the fence", func() bool { return len(b.fences) == 1 })
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.TaskEnded && code != refusal.SessionEnded {
		t.Fatalf("after new facts: %q", string(code))
	}
	r.await("the end of the session", func() bool { return len(b.ended) == 1 && len(b.cancels) == 1 && b.cancels[0].Call == c })
	r.mu.Lock()
	early := r.acked(v)
	r.mu.Unlock()
	if early {
		t.Fatal("the facts were answered before the fence")
	}
	b.send(wire.Fenced{N: b.fences[0]})
	r.await("the answer", func() bool { return r.acked(v) })
	r.mu.Lock()
	for _, a := range only[order.FactsAck](r) { // A2: it names what the change cut, for whoever made it
		if a.Version == v && (len(a.Stands) != 1 || a.Stands[0].Call != c || a.Stands[0].Tool != "read_rows" || !a.Stands[0].CancelSent || a.More != 0) {
			t.Errorf("%+v", a)
		}
	}
	r.mu.Unlock()
	_, got, line := r.bind(path, aliceUID, bindPlain)
	if got != "" || refusalIn(line) != refusal.PersonBindOff {
		t.Fatalf("%q", line)
	}
	// Without anybody to ask the answer comes at once.
	r.event(func() { r.setUp = nil })
	v = r.setFacts(facts())
	r.await("the fence", func() bool { return len(b.fences) == 2 })
	b.send(wire.Fenced{N: b.fences[1]})
	r.await("the answer", func() bool { return r.acked(v) })
}

func TestWorkers3_ADeletedProjectLosesItsBridgeAndItsSocket(t *testing.T) {
	r := newRig(t)
	path, idle := r.socket(shop), r.socket(blog)
	b, s, inst := r.ready(path)
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	less := facts()
	for n, p := range less.Projects {
		p.Deleted = true
		less.Projects[n] = p
	}
	v := r.setFacts(less)
	r.await("the answer", func() bool { return r.acked(v) && r.jails[b.jail].gone && r.jails[inst].gone })
	b.isGone("its project is deleted")
	r.record(c, store.Unknown)
	for _, p := range []string{path, idle} {
		if f, err := dialAs(p, aliceUID); err == nil {
			f.Close()
			t.Errorf("%s still listens", p)
		}
	}
	_ = s
}

func TestWorkers3_AFreshTokenClosesTheFormerSessions(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	task := r.task(shop)
	cl, s, _ := r.bind(path, aliceUID, bindWith(r.mint(task, aliceUID, 2)))
	b := r.bridgeOf(shop)
	inst, code := b.start(s, r.conn[shop], "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	c, _ := b.admit(s, r.conn[shop], inst, "read_rows")
	_, person, _ := r.bind(path, bobUID, bindPlain)
	theirs, code := b.admit(person, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	if err := r.w.CloseTask(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	if x := r.record(c, store.Unknown); x.Code != refusal.SessionEnded {
		t.Fatalf("%+v", x)
	}
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.SessionEnded {
		t.Fatalf("%q", string(code))
	}
	if got := cl.line(); got != "" {
		t.Fatalf("the connection lives: %q", got)
	}
	r.record(theirs, store.Admitted)
	if _, code := b.admit(person, r.conn[shop], inst, "list_dir"); code != "" {
		t.Fatalf("another task's session: %q", string(code))
	}
	if _, next, line := r.bind(path, aliceUID, bindWith(r.mint(task, aliceUID, 1))); next == "" {
		t.Fatalf("the fresh token: %s", line)
	}
}

func TestWorkers5_ABridgeThatNeverReadsIsEndedAndOthersGoOn(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	other, os_ := r.session(r.socket(blog), blog)
	oinst, _ := other.start(os_, r.conn[blog], "read_rows")
	r.event(func() { r.setUp = func(b *bridge) { b.deaf = true } })
	r.dial(path, aliceUID).f.WriteString(bindPlain)
	b := r.bridgeOf(shop)
	// Other projects' calls go on while more and more is told to it.
	for range 600 {
		r.change(func(reg *registry.Registry) (registry.Change, error) { return registry.Change{}, nil })
		if err := r.do(func() error { r.w.Changed(id[ids.Project](shop)); return nil }); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.gone:
		default:
			continue
		}
		break
	}
	b.isGone("it never reads")
	c, code := other.admit(os_, r.conn[blog], oinst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	other.send(wire.Ended{Call: c, Outcome: wire.Completed})
	r.record(c, store.Completed)
}

// A bridge that is ready, reads nothing, and is handed more connections than its
// socket holds: it is ended, and those who waited are told so.
func TestWorkers5_ADeafBridgeWithConnectionsWaitingForIt(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	r.event(func() { r.setUp = func(b *bridge) { b.deaf, b.mute, b.room = true, true, 1 } })
	var clients []*client
	const many = 24
	for n := range many {
		c := r.dial(path, []uint32{aliceUID, bobUID}[n%2])
		c.f.WriteString(bindPlain)
		clients = append(clients, c)
	}
	b := r.bridgeOf(shop)
	r.settled("all wait", func() bool { s := r.w.sets[b.key]; return s != nil && len(s.waiting) == many })
	b.send(wire.Hello{Version: "deaf"})
	b.isGone("it reads nothing")
	told := 0
	for _, c := range clients {
		if refusalIn(c.line()) == refusal.ServerUnavailable {
			told++
		}
	}
	if told == 0 || told == many {
		t.Fatal("the socket held all: this test proves nothing")
	}
	r.settled("no session is left", func() bool { return r.w.Count() == Counts{} })
	r.settled("nor in the gate", func() bool {
		for _, task := range r.g.Registry().AllTasks() {
			if r.g.Sessions(task.ID) != 0 {
				return false
			}
		}
		return true
	})
}

// settled waits for a state of the loop.
func (r *rig) settled(what string, cond func() bool) {
	r.t.Helper()
	late := time.Now().Add(patience)
	for {
		ok := false
		if err := r.do(func() error { ok = cond(); return nil }); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		if time.Now().After(late) {
			r.t.Fatalf("%s: not yet\n%s", what, r.log)
		}
	}
}

type (
	asks  struct{} // for an admission
	gives bool     // the grant, or takes it away
)

// grantModel is one grant: admissions read it, changes write it.
var grantModel = porcupine.Model{
	Init: func() any { return true },
	Step: func(state, input, output any) (bool, any) {
		if g, ok := input.(gives); ok {
			return true, bool(g)
		}
		return state.(bool) == output.(bool), state
	},
}

// TestWorkers3_NoAdmissionAfterARevocationReturned flips a grant under 16 admitters
// and checks the recorded history: between the return of a revocation and the next
// grant nothing was admitted, by the authority's clock and by the bridge's; and
// what was open when a revocation was asked for, and still is when it has returned,
// was named by it.
func TestWorkers3_NoAdmissionAfterARevocationReturned(t *testing.T) {
	const flips, admitters = 200, 16
	r := newRig(t)
	path := r.socket(shop)
	b, first, inst := r.ready(path)
	r.event(func() { b.toldAt = map[ids.Call]time.Time{} })
	sessions := []ids.Session{first}
	for len(sessions) < admitters {
		_, s, line := r.bind(path, []uint32{aliceUID, bobUID}[len(sessions)%2], bindPlain)
		if s == "" {
			t.Fatal(line)
		}
		sessions = append(sessions, s)
	}
	type admission struct {
		call  ids.Call
		ended time.Time
	}
	var mu sync.Mutex
	var history []admission
	var refusals int
	var seen []porcupine.Operation
	epoch := time.Now()
	saw := func(who int, did, what any, began time.Duration) {
		op := porcupine.Operation{ClientId: who, Input: did, Output: what, Call: int64(began), Return: int64(time.Since(epoch))}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, op)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for who, s := range sessions {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Since(epoch)
				c, code := b.admit(s, r.conn[shop], inst, "read_rows")
				saw(who, asks{}, code == "", began)
				switch code {
				case "":
					a := admission{call: c}
					if n%3 == 0 {
						r.do(func() error { return nil }) // stays open for a turn
					}
					a.ended = time.Now()
					b.send(wire.Ended{Call: c, Outcome: wire.Completed})
					mu.Lock()
					history = append(history, a)
					mu.Unlock()
				case refusal.ToolNotGranted:
					mu.Lock()
					refusals++
					mu.Unlock()
				default:
					t.Errorf("%q", string(code))
					return
				}
			}
		})
	}
	type window struct {
		asked, returned, granted time.Time
		named                    []ids.Call
	}
	var windows []window
	for range flips {
		win := window{asked: time.Now()}
		began := time.Since(epoch)
		n := r.narrow(shop, revokeRead(r.conn[shop]))
		win.returned = time.Now()
		saw(admitters, gives(false), true, began)
		for _, st := range n.Stands {
			win.named = append(win.named, st.Call)
		}
		if n.Killed != 0 || n.Fenced != 1 {
			t.Fatalf("%+v", n)
		}
		// Let some be refused.
		if _, code := b.admit(sessions[0], r.conn[shop], inst, "read_rows"); code != refusal.ToolNotGranted {
			t.Fatalf("after a revocation returned: %q", string(code))
		}
		win.granted, began = time.Now(), time.Since(epoch)
		r.change(func(*registry.Registry) (registry.Change, error) { return r.grantChange(r.conn[shop], "read_rows") })
		saw(admitters, gives(true), true, began)
		windows = append(windows, win)
	}
	close(stop)
	all.Wait()
	if n := r.open(); n != 0 {
		t.Errorf("%d calls are open", n)
	}
	at := map[ids.Call]time.Time{}
	for q := (store.Query{}); ; {
		p, err := r.s.Calls(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Calls {
			if c.State != store.Denied {
				at[c.ID] = time.Unix(0, c.At)
			}
		}
		if q.Before = p.Next; !p.More {
			break
		}
	}
	if len(at) != len(history) {
		t.Errorf("%d admissions are recorded, %d were told", len(at), len(history))
	}
	// The bridge's clock is read where its wire is, before the fence is answered.
	within := func(x time.Time, w window) bool { return x.After(w.returned) && x.Before(w.granted) }
	for _, a := range history {
		told := b.toldAt[a.call]
		for _, w := range windows {
			if within(told, w) || within(at[a.call], w) {
				t.Errorf("%s was admitted %v after a revocation returned", a.call, told.Sub(w.returned))
			}
			if told.Before(w.asked) && a.ended.After(w.returned) && !slices.Contains(w.named, a.call) {
				t.Errorf("%s was open throughout a revocation that did not name it", a.call)
			}
		}
	}
	named := 0
	for _, w := range windows {
		named += len(w.named)
	}
	// Every answer, also those near a change, must have an order with the changes.
	if got := porcupine.CheckOperationsTimeout(grantModel, seen, 2*time.Minute); got != porcupine.Ok {
		t.Errorf("is there an order of these %d answers and changes: %s", len(seen), got)
	}
	// The answers around one revocation, and then the same with one admission more, in the
	// middle of the time in which it had returned. To find that there is no order, all are
	// tried, so there must not be many.
	w := windows[flips/2]
	from, middle, to := int64(w.asked.Sub(epoch)), int64(w.returned.Sub(epoch)+w.granted.Sub(epoch))/2, int64(w.granted.Sub(epoch))
	around := slices.DeleteFunc(seen, func(op porcupine.Operation) bool { return op.Call < from || op.Return > to })
	lie := porcupine.Operation{ClientId: admitters + 1, Input: asks{}, Output: true, Call: middle, Return: middle}
	if got := porcupine.CheckOperationsTimeout(grantModel, around, 2*time.Minute); got != porcupine.Ok {
		t.Errorf("around one revocation: %s", got)
	}
	if got := porcupine.CheckOperationsTimeout(grantModel, append(around, lie), 2*time.Minute); got != porcupine.Illegal {
		t.Errorf("with an admission too many: %s", got)
	}
	t.Logf("%d admissions, %d refusals, %d calls named by %d revocations", len(history), refusals, named, flips)
	if len(history) < flips || refusals < flips/2 {
		t.Errorf("%d admissions and %d refusals prove nothing", len(history), refusals)
	}
}
