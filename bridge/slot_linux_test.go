package bridge

import (
	"strings"
	"sync"
	"testing"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// Sessions of different slots have instances of their own of one connection, whoever
// calls first and however often; sessions of one slot share theirs. The end of one
// slot's instance ends no call of another's.
func TestBridge7_EachSlotHasItsOwnInstance(t *testing.T) {
	a := newAuthority(t)
	conn, _ := a.count("echo", "slow")
	a.slots = map[ids.Session]uint64{}
	one, other, again := a.passed(), a.passed(), a.passed()
	a.set(func() { a.slots[one.id], a.slots[other.id], a.slots[again.id] = 1, 2, 1 })
	var all sync.WaitGroup
	for _, c := range []*client{one, other, again} {
		c.initialize()
		all.Go(func() {
			for range 5 {
				c.call("3", "echo", "{}")
				if got := <-c.lines; !strings.Contains(got, `"structuredContent":{}`) {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	all.Wait()
	if n := count[wire.Start](a); n != 2 {
		t.Errorf("%d starts for two slots", n)
	}
	to := map[ids.Session]map[ids.Jail]bool{one.id: {}, other.id: {}, again.id: {}}
	for _, m := range a.all() {
		if adm, ok := m.(wire.Admit); ok {
			to[adm.Session][adm.Instance] = true
		}
	}
	for s, jails := range to {
		if len(jails) != 1 {
			t.Errorf("session %s was sent to %d instances", s, len(jails))
		}
	}
	of := func(s ids.Session) (j ids.Jail) {
		for j = range to[s] {
		}
		return j
	}
	if of(one.id) != of(again.id) || of(one.id) == of(other.id) {
		t.Errorf("slots 1 1 2 went to %s %s %s", of(one.id), of(again.id), of(other.id))
	}
	// The one started last is killed: only its slot notices.
	var last wire.Start
	for _, m := range a.all() {
		if st, ok := m.(wire.Start); ok {
			last = st
		}
	}
	dies, lives := one, other
	if last.Slot == 2 {
		dies, lives = other, one
	}
	before := count[wire.Admit](a)
	dies.call("7", "slow", `{"ms":700}`)
	lives.call("7", "slow", `{"ms":700}`)
	awaitCount[wire.Admit](a, before+2)
	a.fence(1)
	a.kill(conn)
	dies.wantRefusal("7", refusal.ServerExited)
	lives.wantText("7", "slept")
	// It is started again for whoever calls next.
	dies.call("8", "slow", `{"ms":1}`)
	dies.wantText("8", "slept")
}
