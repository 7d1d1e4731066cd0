package registry

import (
	"encoding/binary"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/store"
	"postern/supervisor/token"
)

// TestTasks_T1_AreBoundedByProjectAndByHost: one host may not fill the authority's
// memory by way of many projects; people and other hosts are not held to its tasks, and
// one that ends makes room.
func TestTasks_T1_AreBoundedByProjectAndByHost(t *testing.T) {
	w := newWorld(t)
	put := func(project, account int, host string) Task {
		row := w.task(account, project, host)
		w.r.Apply(Change{Put: []store.Row{row}}) // in memory alone: the bound is what is looked at
		return row
	}
	for range MaxLive {
		put(shop, alice, LocalHost)
	}
	w.refused(refusal.Busy)(w.r.NewTask(w.task(alice, shop, LocalHost)))

	var last Task
	for i := range MaxOfHost {
		row := w.task(alice, shop, "agent")
		row.Project = id[ids.Project](1000 + i/MaxLive)
		w.r.Apply(Change{Put: []store.Row{row, row}}) // written twice is one
		last = row
	}
	w.refused(refusal.Busy)(w.r.NewTask(w.task(alice, blog, "agent")))
	last.Ended = 1
	w.r.Apply(Change{Put: []store.Row{last, last}})
	c, err := w.r.NewTask(w.task(alice, blog, "agent"))
	if err != nil {
		t.Fatalf("with room: %v", err)
	}
	w.r.Apply(c)
	w.refused(refusal.Busy)(w.r.NewTask(w.task(alice, blog, "agent")))
}

// TestTokens_T2_ThatCouldStillBindAreBounded: of a host's tasks so many may wait for
// their runtime. A token that is used, late or replaced leaves room, and another host
// is not held to it.
func TestTokens_T2_ThatCouldStillBindAreBounded(t *testing.T) {
	w := newWorld(t)
	at := token.Instant{Wall: now, Boot: time.Hour, ID: "boot"}
	made := 0
	digest := func() token.Digest {
		made++
		var secret [32]byte
		binary.BigEndian.PutUint32(secret[:], uint32(made))
		return token.New(secret).Digest()
	}
	with := func(now token.Instant) token.Binding {
		return token.Binding{UID: 1000, Binds: 1, Minted: now, TTL: time.Minute}
	}
	var first Task
	var used token.Digest
	for i := range MaxUnbound {
		row := w.task(alice, shop, "agent")
		row.Project = id[ids.Project](1000 + i/MaxLive)
		b := with(at)
		b.Task, b.Project = row.ID, row.Project
		used = digest()
		w.r.Apply(Change{Put: []store.Row{row, tokenRow(used, &b)}}) // in memory alone: the bound is what is looked at
		if i == 0 {
			first = row
		}
	}
	next := func(now token.Instant) (Change, error) {
		return w.r.NewTaskWithToken(w.task(alice, blog, "agent"), digest(), with(now))
	}
	w.refused(refusal.Busy)(next(at))
	again := with(at)
	again.Task, again.Project = first.ID, first.Project
	if _, err := w.r.MintToken(digest(), again); err != nil {
		t.Errorf("a fresh token in the place of the former: %v", err)
	}
	w.r.Root().Hosts["other"] = RootHost{ID: "other", UID: 2001, AllProjects: true, Accounts: map[ids.Account]bool{id[ids.Account](alice): true}}
	if _, err := w.r.NewTaskWithToken(w.task(alice, shop, "other"), digest(), with(at)); err != nil {
		t.Errorf("another host: %v", err)
	}
	late := at
	late.Wall, late.Boot = at.Wall.Add(time.Minute), at.Boot+time.Minute
	if _, err := next(late); err != nil {
		t.Errorf("when they have expired: %v", err)
	}
	w.r.CountBind(used)
	if _, err := next(at); err != nil {
		t.Errorf("when one was used: %v", err)
	}
}
