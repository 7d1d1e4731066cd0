package workers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/order"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// ready binds alice in shop and starts the server of its connection.
func (r *rig) ready(path string) (*bridge, ids.Session, ids.Jail) {
	r.t.Helper()
	b, s := r.session(path, shop)
	inst, code := b.start(s, r.conn[shop], "read_rows")
	if code != "" {
		r.t.Fatalf("start: %q\n%s", string(code), r.log)
	}
	return b, s, inst
}

func TestWorkers1_A5_AdmittedIsSentOnlyWhenItsRecordIsDurable(t *testing.T) {
	r := newRig(t)
	path := r.socket(shop)
	b, s, inst := r.ready(path)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				c, code := b.admit(s, r.conn[shop], inst, "read_rows")
				if code != "" {
					t.Errorf("refused: %q", string(code))
					return
				}
				// Another connection to the file, at the moment of the answer.
				p, err := r.s.Calls(store.Query{})
				if err != nil || !slices.ContainsFunc(p.Calls, func(x store.Call) bool { return x.ID == c && x.State == store.Admitted }) {
					t.Errorf("%s was told and is not in the file: %v", c, err)
				}
				b.send(wire.Ended{Call: c, Outcome: wire.Completed})
			}
		})
	}
	all.Wait()
	r.await("all ended", func() bool { return true })
	if n := r.open(); n != 0 {
		t.Errorf("%d calls are open", n)
	}
}

// open counts the calls that are open once everything sent so far was heard.
func (r *rig) open() (n int) {
	if err := r.do(func() error { return nil }); err != nil {
		r.t.Fatal(err)
	}
	late := time.Now().Add(patience)
	for {
		if err := r.do(func() error { n = r.g.OpenCalls(); return nil }); err != nil || n == 0 || time.Now().After(late) {
			return n
		}
	}
}

func TestWorkers1_ALockedStoreRefusesAndHealsInPlace(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	other, err := sqlite3.Open("file:" + filepath.Join(r.dir, "state", store.ActivityFile))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.StoreUnavailable {
		t.Fatalf("%q", string(code))
	}
	denied := "calls are denied, for they cannot be recorded"
	r.await("a line about it", func() bool { return strings.Contains(r.log.String(), denied) })
	if _, code := b.admit(s, r.conn[shop], inst, "read_rows"); code != refusal.StoreUnavailable {
		t.Fatalf("%q", string(code))
	}
	if err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	c, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatalf("%q", string(code))
	}
	r.record(c, store.Admitted)
	b.send(wire.Ended{Call: c, Outcome: wire.Completed})
	r.record(c, store.Completed)
	if n := r.open(); n != 0 {
		t.Fatalf("%d open", n)
	}
	r.await("a line that it is over", func() bool { return strings.Contains(r.log.String(), "calls can be recorded again") })
	if n := strings.Count(r.log.String(), denied); n != 1 {
		t.Errorf("%d lines about one trouble\n%s", n, r.log)
	}
}

// An outcome waits through many turns of the loop, and none of them is a commit.
func TestATurnThatWritesNothingIsNoCommit(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	c, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatalf("%q", string(code))
	}
	commits := func() (n uint64) {
		if err := r.do(func() error {
			for _, k := range r.w.Totals().Commit.Buckets {
				n += k
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := commits()
	if before == 0 {
		t.Fatal("the admission's commit is not counted")
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Completed})
	for r.open() != 0 {
	}
	for range 20 {
		commits() // is a turn too
	}
	r.record(c, store.Completed)
	if n := commits() - before; n != 1 {
		t.Fatalf("one outcome was written by %d commits", n)
	}
}

func TestWorkers2_ABridgeNamesOnlyWhatItWasHanded(t *testing.T) {
	r := newRig(t)
	mine, s, inst := r.ready(r.socket(shop))
	other, foreign := r.session(r.socket(blog), blog)
	oinst, code := other.start(foreign, r.conn[blog], "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	for _, row := range []struct {
		says string
		s    ids.Session
		c    ids.Connection
		i    ids.Jail
		want refusal.Code
	}{
		{"its own", s, r.conn[shop], inst, ""},
		{"another bridge's session", foreign, r.conn[shop], inst, refusal.SessionEnded},
		{"another bridge's session and everything of it", foreign, r.conn[blog], oinst, refusal.SessionEnded},
		{"a session that there is not", fresh[ids.Session](), r.conn[shop], inst, refusal.SessionEnded},
		{"another project's connection", s, r.conn[blog], oinst, refusal.ToolUnknown},
		{"a connection that there is not", s, fresh[ids.Connection](), inst, refusal.ToolUnknown},
		{"another bridge's instance", s, r.conn[shop], oinst, refusal.ServerUnavailable},
		{"an instance that there is not", s, r.conn[shop], fresh[ids.Jail](), refusal.ServerUnavailable},
	} {
		c, code := mine.admit(row.s, row.c, row.i, "read_rows")
		if code != row.want {
			t.Errorf("%s: %q, want %q", row.says, string(code), string(row.want))
		}
		if code == "" {
			mine.send(wire.Ended{Call: c, Outcome: wire.Completed})
		}
	}
	if tools := mine.view(foreign); len(tools) != 0 {
		t.Errorf("a foreign session's view: %+v", tools)
	}
	if tools := mine.view(s); len(tools) != 2 || !tools[0].Callable || tools[0].Connection != r.conn[shop] {
		t.Errorf("its own view: %+v", tools)
	}
	if _, code := mine.start(foreign, fresh[ids.Connection](), "read_rows"); code != refusal.SessionEnded {
		t.Errorf("a start for a foreign session: %q", string(code))
	}
	// What it counts of another's is not the other's.
	mine.send(wire.Skipped{Connection: r.conn[shop], Instance: inst, Lines: 3, Unmatched: 1})
	mine.send(wire.Skipped{Connection: r.conn[blog], Instance: oinst, Lines: 9})
	mine.send(wire.Skipped{Connection: r.conn[blog], Instance: inst, Lines: 9})
	mine.view(s) // it was heard before this
	rows, err := r.w.Ps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if want := map[ids.Jail]int64{inst: 3}[row.Jail]; row.Skipped.Lines != want {
			t.Errorf("%s of %s: %+v was skipped", row.Kind, row.Connection, row.Skipped)
		}
	}
	if len(rows) < 2 {
		t.Errorf("%d rows", len(rows))
	}
	// Things that are merely over are let pass: they may have crossed.
	mine.send(wire.SessionEnded{Session: foreign})
	mine.send(wire.Denied{Session: foreign, Code: refusal.BadRequest})
	mine.send(wire.Catalogue{Connection: r.conn[blog], Instance: oinst, Last: true, Data: []byte("[]")})
	mine.send(wire.Catalogue{Connection: r.conn[shop], Instance: oinst, Last: true, Data: []byte("[]")})
	mine.send(wire.Ended{Call: fresh[ids.Call](), Outcome: wire.Completed})
	if tools := other.view(foreign); len(tools) != 2 || !tools[0].Callable {
		t.Errorf("the other bridge's view: %+v", tools)
	}
	mine.alive("after naming what is foreign")
	// Another bridge's call is none of those.
	c, code := other.admit(foreign, r.conn[blog], oinst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	mine.send(wire.Ended{Call: c, Outcome: wire.Completed})
	mine.isGone("it ended another bridge's call")
	r.record(c, store.Admitted)
	other.alive("the other one")
	other.send(wire.Ended{Call: c, Outcome: wire.Failed})
	r.record(c, store.Failed)
}

func TestWorkers2_ABridgeThatBreaksTheProtocolIsEnded(t *testing.T) {
	for says, send := range map[string]func(b *bridge){
		"garbage": func(b *bridge) { b.sendRaw([]byte("\x00\xff{{{")) },
		"no body": func(b *bridge) { b.sendRaw([]byte("View")) },
		"a message of the other way": func(b *bridge) {
			raw, _ := wire.EncodeDown(nil, wire.Admitted{Seq: 1})
			b.sendRaw(raw)
		},
		"an unknown member":  func(b *bridge) { b.sendRaw([]byte(`Fenced {"n":1,"account":"root"}`)) },
		"a repeated member":  func(b *bridge) { b.sendRaw([]byte(`Fenced {"n":1,"n":2}`)) },
		"too long a message": func(b *bridge) { b.sendRaw(append([]byte(`Hello {"version":"`), make([]byte, wire.MaxMessage)...)) },
		"an empty message":   func(b *bridge) { b.sendRaw(nil) },
		"a second hello":     func(b *bridge) { b.send(wire.Hello{}) },
		"too many messages together": func(b *bridge) {
			b.sendRaw([]byte(strings.TrimSuffix(strings.Repeat("Fenced {\"n\":0}\x1e", wire.MaxTogether+1), "\x1e")))
		},
		"nothing behind a message": func(b *bridge) { b.sendRaw([]byte("Fenced {\"n\":0}\x1e")) },
		"half a line":              func(b *bridge) { b.sendRaw([]byte(`Fenced {"n":`)) },
		"an id of another kind": func(b *bridge) {
			b.sendRaw(fmt.Appendf(nil, `View {"session":%q,"seq":1}`, fresh[ids.Call]()))
		},
		"parts out of order": func(b *bridge) {
			b.r.mu.Lock()
			in := b.instances[b.r.conn[shop]]
			b.r.mu.Unlock()
			b.send(wire.Catalogue{Connection: in.Connection, Instance: in.Instance, Part: 3, Data: []byte("x")})
		},
	} {
		t.Run(says, func(t *testing.T) {
			r := newRig(t)
			path := r.socket(shop)
			b, s, inst := r.ready(path)
			other, os_ := r.session(r.socket(blog), blog)
			c, code := b.admit(s, r.conn[shop], inst, "read_rows")
			if code != "" {
				t.Fatal(string(code))
			}
			send(b)
			b.isGone(says)
			if got := r.record(c, store.Unknown); got.Code != refusal.ServerExited {
				t.Errorf("%+v", got)
			}
			r.await("its jail and its server's are ended", func() bool { return r.jails[b.jail].gone && r.jails[inst].gone })
			if len(other.view(os_)) != 2 {
				t.Error("another project's bridge does not go on")
			}
			next, _, _ := r.ready(path)
			if next == b {
				t.Error("the next session has the same bridge")
			}
		})
	}
}

func TestWorkers1_WhatComesTogetherIsDecidedInItsOrderAndAnsweredTogether(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	const calls = wire.MaxTogether / 2
	var d wire.Datagram
	var answers [calls]chan wire.Down
	first, code := b.admit(s, r.conn[shop], inst, "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	if err := d.Up(wire.Ended{Call: first, Outcome: wire.Completed}); err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		answers[i] = make(chan wire.Down, 1)
		seq := b.expects(answers[i], "")
		if err := d.Up(wire.Admit{Seq: seq, Session: s, Connection: r.conn[shop], Instance: inst, Tool: "read_rows", Digest: aDigest, Size: 2, RequestID: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	b.r.mu.Lock()
	woken := b.datagrams
	b.r.mu.Unlock()
	if err := b.sendRaw(d.Bytes()); err != nil {
		t.Fatal(err)
	}
	var last ids.Call
	for i, ch := range answers {
		select {
		case m := <-ch:
			adm, ok := m.(wire.Admitted)
			if !ok {
				t.Fatalf("call %d: %+v", i, m)
			}
			if last != "" && r.record(adm.Call, store.Admitted).Seq < r.record(last, store.Admitted).Seq {
				t.Errorf("call %d was recorded before the one that was asked about before it", i)
			}
			last = adm.Call
		case <-time.After(patience):
			t.Fatalf("call %d has no answer", i)
		}
	}
	b.r.mu.Lock()
	woken = b.datagrams - woken
	b.r.mu.Unlock()
	if woken != 1 {
		t.Errorf("%d calls that came together were answered in %d datagrams", calls, woken)
	}
	r.record(first, store.Completed)
}

func TestWorkers2_AMessageBeforeHelloEndsTheBridge(t *testing.T) {
	r := newRig(t)
	r.event(func() { r.setUp = func(b *bridge) { b.mute = true } })
	path := r.socket(shop)
	c := r.dial(path, aliceUID)
	fmt.Fprint(c.f, bindPlain)
	b := r.bridgeOf(shop)
	b.send(wire.Fenced{N: 1})
	b.isGone("a message before Hello")
	if got := c.line(); refusalIn(got) != refusal.ServerUnavailable {
		t.Fatalf("who waited for it reads %q", got)
	}
}

func TestWorkers2_DescriptorsOfABridgeNeverEnterTheAuthority(t *testing.T) {
	r := newRig(t)
	b, s, _ := r.ready(r.socket(shop))
	// A pipe's reading end that only the message holds: when the kernel drops it, writing fails.
	p, w := pipe(t)
	raw, _ := wire.EncodeUp(nil, wire.View{Session: s, Seq: 4711})
	if err := b.sendRaw(raw, p); err != nil {
		t.Fatal(err)
	}
	closeAll([]int{p})
	if len(b.view(s)) != 2 {
		t.Fatal("the bridge was not answered")
	}
	if !broken(w) {
		t.Fatal("the descriptor is held by somebody")
	}
	closeAll([]int{w})
}

func TestWorkers1_ManyProjectsAndTheTurnsBetweenThem(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	o, os_ := r.session(r.socket(blog), blog)
	oinst, code := o.start(os_, r.conn[blog], "read_rows")
	if code != "" {
		t.Fatal(string(code))
	}
	// One floods with what is refused, the other goes on.
	stop := make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				b.admit(s, r.conn[shop], inst, "no_such_tool")
			}
		}
	})
	for range 200 {
		c, code := o.admit(os_, r.conn[blog], oinst, "read_rows")
		if code != "" {
			t.Fatalf("%q", string(code))
		}
		o.send(wire.Ended{Call: c, Outcome: wire.Completed})
	}
	close(stop)
	flood.Wait()
}

func TestTheLoopEndsWithPosternd(t *testing.T) {
	r := newRig(t)
	b, _, _ := r.ready(r.socket(shop))
	closeSocket(r)
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Fatal("the loop goes on without posternd")
	}
	if r.err == nil {
		t.Fatal("it ended without an error")
	}
	b.isGone("the loop has ended")
	if err := r.w.Do(context.Background(), func() { t.Error("it ran") }); !errors.Is(err, refusal.Draining) {
		t.Fatal(err)
	}
	if _, err := r.w.Narrow(context.Background(), func() ([]ids.Project, error) { return nil, nil }); !errors.Is(err, refusal.Draining) {
		t.Fatal(err)
	}
}

func TestTheLoopEndsOnAWordOfPosterndItDoesNotKnow(t *testing.T) {
	for says, send := range map[string]func(r *rig){
		"garbage":                     func(r *rig) { sendTo(r.fd, []byte("what")) },
		"an order":                    func(r *rig) { raw, _ := order.EncodeUp(order.Ready{}); sendTo(r.fd, raw) },
		"a socket without descriptor": func(r *rig) { r.say(order.ProjectSocket{Project: id[ids.Project](shop)}) },
		"facts of no sense":           func(r *rig) { r.setFacts(facts()); r.roots = nil; r.badFacts() },
	} {
		t.Run(says, func(t *testing.T) {
			r := newRig(t)
			send(r)
			select {
			case <-r.ended:
			case <-time.After(patience):
				t.Fatal("the loop goes on")
			}
			if r.err == nil {
				t.Fatal("without an error")
			}
		})
	}
}

// A burst of orders that posternd has not read yet waits its turn; none is lost.
func TestWorkers5_OrdersWaitForPosternd(t *testing.T) {
	r := newRig(t)
	const many = 2000
	if err := r.do(func() error {
		for range many {
			r.w.stopJail(id[ids.Jail](1), 0)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.await("all of them", func() bool { return len(only[order.Stop](r)) == many })
	if rows, err := r.w.Ps(context.Background()); err != nil || len(rows) != 0 {
		t.Fatal(rows, err)
	}
}

func revokeRead(c ids.Connection) func(*registry.Registry) (registry.Change, error) {
	return func(reg *registry.Registry) (registry.Change, error) { return reg.Revoke(c, []string{"read_rows"}, 0) }
}
