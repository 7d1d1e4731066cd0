package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"postern/integration/linear"
	"postern/supervisor/api"
)

// What a call of the test needs, each flipped by somebody.
const (
	toolGranted linear.Need = 1 << iota
	connectionOn
	revisionAccepted
	levelHigh
	accountActive
	everything = 1<<iota - 1
)

// checkWait bounds the search for an order of a history; it takes a second.
const checkWait = 2 * time.Minute

// admitted tells by its outcome whether a call was: one that a revocation cancelled was.
// Of the last, neither is known: they say that something ended, not why.
var admitted = map[string]bool{
	"ok": true, "call_revoked": true,
	"tool_not_granted": false, "connection_disabled": false, "server_revision_changed": false, "access_refused": false, "account_suspended": false,
}

var untold = []string{"1", "server_exited", "session_ended", "server_unavailable", "busy", "server_start_failed"}

// Eight runtimes call without a pause while four people take away and give back what
// the calls need: a grant, and a new revision of the server; the connection; the level
// in the access policy; the account. What all of them saw must have happened in some
// order: no call was admitted that began after a change had returned which forbids it,
// and none was refused where everything it needs had been given back.
func TestA2_C8_WhatCallersAndChangesSawHasAnOrder(t *testing.T) {
	const callers, rounds = 8, 8
	w := newWorld(t)
	w.must("project", "set", "a", "--person-bind=true")
	w.must("access", "set", "local", "--default-mode", "code")
	w.must("access", "set", "local", "alice", "full", "--write")
	log := linear.New(everything)
	var stop atomic.Bool
	var answers atomic.Int64
	unclear := make([]map[string]int, callers)
	var calling sync.WaitGroup
	for n := range callers {
		unclear[n] = map[string]int{}
		r := w.connect(w.a, aliceUID, "").initialize()
		calling.Go(func() {
			for !stop.Load() {
				began := log.Now()
				m := r.call("echo", fmt.Sprintf(`{"n":%d}`, n))
				was, known := admitted[m.outcome()]
				answers.Add(1)
				switch {
				case known:
					log.Called(n, everything, was, began)
				case slices.Contains(untold, m.outcome()):
					unclear[n][m.outcome()]++
				default:
					t.Errorf("caller %d: %s", n, m.raw)
					return
				}
				if over(r.ended) { // the account is suspended, or was
					r = w.again(r, &answers, &stop)
				}
			}
		})
	}
	more := func(n int64) {
		from := answers.Load()
		until(t, "callers are answered", func() bool { return stop.Load() || answers.Load() >= from+n })
	}
	ask := func(a api.Action, params any) bool {
		if err := w.Call(a, params, nil); err != nil {
			t.Errorf("%s: %v", a, err)
			return false
		}
		return true
	}
	// flip takes away and gives back; what is between keeps it away for a while.
	flip := func(who int, need linear.Need, off, on, between func() bool) bool {
		began := log.Now()
		if !off() {
			return false
		}
		log.Changed(callers+who, need, false, began)
		if more(callers); !between() {
			return false
		}
		began = log.Now()
		if !on() {
			return false
		}
		log.Changed(callers+who, need, true, began)
		more(4 * callers)
		return true
	}
	nothing := func() bool { return true }
	con := api.ConnectionParams{Project: w.a.id, Server: "count"}
	echo := con
	echo.Tools = []string{"echo"}
	server := api.ServerParams{Label: "count", Profile: "static", Package: filepath.Join(built.fixtures, "count"), Tiers: map[string]string{"write": "reversible"}}
	level := api.AccessEditParams{Action: "level", Channel: "local", Target: "alice", Level: "full", Write: true}
	chat := api.AccessEditParams{Action: "level", Channel: "local", Target: "alice", Level: "chat"}
	people := []func(round int) bool{
		func(round int) bool {
			// These two are one person's: nothing can be granted while a revision waits.
			server.Command = [][]string{{"/package/count", "/workspace/calls.log"}, {"/package/count"}}[round%2]
			return flip(0, toolGranted, func() bool { return ask(api.ConnectionRevoke, echo) }, func() bool { return ask(api.ConnectionGrant, echo) }, nothing) &&
				flip(0, revisionAccepted, func() bool { return ask(api.ServerUpdate, server) }, func() bool { return ask(api.ConnectionAccept, con) },
					func() bool { return ask(api.ServerProbe, api.Selected{Selector: "count"}) })
		},
		func(int) bool {
			return flip(1, connectionOn, func() bool { return ask(api.ConnectionDisable, con) }, func() bool { return ask(api.ConnectionEnable, con) }, nothing)
		},
		func(int) bool {
			return flip(2, levelHigh, func() bool { return ask(api.AccessEdit, chat) }, func() bool { return ask(api.AccessEdit, level) }, nothing)
		},
		func(int) bool {
			return flip(3, accountActive, func() bool { return ask(api.AccountSuspend, api.Selected{Selector: "alice"}) }, func() bool { return ask(api.AccountActivate, api.Selected{Selector: "alice"}) }, nothing)
		},
	}
	var changing sync.WaitGroup
	for _, person := range people {
		changing.Go(func() {
			for round := range rounds {
				if !person(round) {
					stop.Store(true)
				}
				if stop.Load() {
					return
				}
			}
		})
	}
	changing.Wait()
	stop.Store(true)
	calling.Wait()
	all := map[string]int{}
	for _, m := range unclear {
		for what, n := range m {
			all[what] += n
		}
	}
	c := log.Counts()
	t.Logf("%d calls admitted, %d refused, %d changes; not known which: %v", c.Admitted, c.Refused, c.Changes, all)
	if err := log.Check(checkWait); err != nil {
		t.Error(err)
	}
	if c.Admitted < rounds || c.Refused < rounds || c.Changes != 2*rounds*(len(people)+1) {
		t.Errorf("too little happened: %+v, of them unclear %v", c, slices.Collect(maps.Keys(all)))
	}
	if got := len(w.calls(w.a)); got > c.Admitted+all["server_exited"]+all["1"]+all["session_ended"] {
		t.Errorf("the server received %d calls, %d were admitted", got, c.Admitted)
	}
}

// over tells whether a session has ended.
func over(ended chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// again connects until somebody is let in; that one is not is an answer too.
func (w *world) again(r *runtime, answers *atomic.Int64, stop *atomic.Bool) *runtime {
	for {
		r.close()
		r = w.connect(w.a, aliceUID, "")
		m := r.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`)
		if m.Error == nil {
			r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			return r
		}
		answers.Add(1)
		if stop.Load() {
			return r
		}
	}
}
