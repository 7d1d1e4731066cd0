package store

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"postern/ids"
)

// promised is what the store has confirmed, over all its lives.
type promised struct {
	admitted map[ids.Call]bool
	ended    map[ids.Call]bool
	sessions int // that used the one token
	members  map[ids.Account]bool
	grants   map[ids.Grant]bool
	maybe    map[any]bool // asked for when the power went: it may be there or not
}

// The power goes at a random write or sync of a life that admits, ends, binds,
// changes the policy, checkpoints and removes what is old. What was confirmed is
// there afterwards, whole; what was not is there whole or not at all; no call is
// open, nothing appears that nobody asked for, and both files are sound.
// POSTERN_POWER_ROUNDS says how often.
func TestStore1_WhatWasConfirmedSurvivesPowerLoss(t *testing.T) {
	rounds := 60
	if text := os.Getenv("POSTERN_POWER_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	dir := stateDir(t)
	p := promised{admitted: map[ids.Call]bool{}, ended: map[ids.Call]bool{}, members: map[ids.Account]bool{}, grants: map[ids.Grant]bool{}, maybe: map[any]bool{}}
	if s := open(t, dir); true {
		if err := s.Apply(record()); err != nil {
			t.Fatal(err)
		}
		p.members[id[ids.Account](2)], p.grants[id[ids.Grant](1)] = true, true
		s.Close()
	}
	lost, incarnation, next := 0, uint64(1), uint32(0)
	for round := range rounds {
		d := newDisk(t, dir, uint64(round))
		// The first lives end at their start, where files are migrated and counted.
		d.cut = 1 + int64(rng.IntN(20<<min(round/4, 6)))
		before := len(p.admitted)
		p.live(t, d, rng, &next)
		if len(p.admitted) > before {
			lost++
		}
		to := stateDir(t)
		d.after(t, to)
		dir = to
		s, err := Open(dir)
		if err != nil {
			t.Fatalf("round %d, after operation %d: %v", round, d.cut, err)
		}
		if s.Incarnation() <= incarnation {
			t.Fatalf("round %d: incarnation %d again", round, s.Incarnation())
		}
		incarnation = s.Incarnation()
		if _, err := s.Recover(moment.UnixNano()); err != nil {
			t.Fatal(err)
		}
		p.check(t, s, round)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d power losses, %d of them in the middle of work; %d calls, %d ends, %d binds, %d members", rounds, lost, len(p.admitted), len(p.ended), p.sessions, len(p.members))
	if lost < rounds/3 || len(p.admitted) < rounds*10 {
		t.Error("hardly any work was under way when the power went")
	}
}

// live works until the power goes.
func (p *promised) live(t *testing.T, d *disk, rng *rand.Rand, next *uint32) {
	s, err := openOver(d.dir, d.name, silent)
	if err != nil {
		return
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if _, err := s.Recover(moment.UnixNano()); err != nil {
		return
	}
	unique := func() (r [10]byte) {
		*next++
		binary.BigEndian.PutUint32(r[6:], *next)
		return r
	}
	b := s.Batch()
	var open []*Call
	for {
		var admitted, ending []*Call
		for range 1 + rng.IntN(5) {
			c := call(1)
			c.ID = ids.New[ids.Call](moment, unique())
			b.Admit(c)
			admitted = append(admitted, c)
		}
		for len(open) > 3 {
			c := open[0]
			open = open[1:]
			b.End(c.Seq, Outcome{State: Completed, At: c.At, Size: int64(c.Seq)})
			ending = append(ending, c)
		}
		binds := rng.IntN(2)
		if binds == 1 {
			ses := ids.New[ids.Session](moment, unique())
			b.OpenSession(Session{ID: ses, Task: id[ids.Task](1), Project: id[ids.Project](1), UID: 1000, Token: Digest{12}, Opened: 1})
			b.EndSession(ses, 2, "done")
		}
		for _, c := range admitted {
			p.maybe[c.ID] = true
		}
		if err := b.Commit(); err != nil {
			p.maybe["bind"] = p.maybe["bind"] || binds == 1
			return
		}
		for _, c := range admitted {
			p.admitted[c.ID] = true
			delete(p.maybe, c.ID)
		}
		for _, c := range ending {
			p.ended[c.ID] = true
		}
		p.sessions += binds
		open = append(open, admitted...)
		if rng.IntN(4) == 0 {
			acc := ids.New[ids.Account](moment, unique())
			p.maybe[acc] = true
			if err := s.Apply(Change{Put: []Row{Member{id[ids.Project](1), acc, "member"}, Account{ID: acc, Version: 1}}}); err != nil {
				return
			}
			delete(p.maybe, acc)
			p.members[acc] = true
		}
		if rng.IntN(8) == 0 && len(p.members) > 2 {
			for acc := range p.members { // taken away for ever
				delete(p.members, acc)
				p.maybe[acc] = true
				if err := s.Apply(Change{Delete: []Row{Member{Project: id[ids.Project](1), Account: acc}}}); err != nil {
					return
				}
				delete(p.maybe, acc)
				break
			}
		}
		if err := s.Tend(moment, Keep{}); err != nil {
			return
		}
		if rng.IntN(50) == 0 {
			time.Sleep(checkpointEvery) // so that the other connection checkpoints
		}
	}
}

// check compares what is there with what was confirmed.
func (p *promised) check(t *testing.T, s *Store, round int) {
	t.Helper()
	if err := s.policy.check(); err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	if err := s.activity.check(); err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	there := map[ids.Call]Call{}
	seqs := map[int64]bool{}
	for q := (Query{Walk: true, Until: 1 << 60}); ; {
		page := page(t, s, q)
		for _, c := range page.Calls {
			if _, twice := there[c.ID]; twice || seqs[c.Seq] {
				t.Errorf("round %d: %s is there twice", round, c.ID)
			}
			there[c.ID], seqs[c.Seq] = c, true
			if c.State.Open() {
				t.Errorf("round %d: %s is open after Recover", round, c.ID)
			}
			if !p.admitted[c.ID] && !p.maybe[c.ID] {
				t.Errorf("round %d: %s was never asked for", round, c.ID)
			}
			if c.Tool != "read_file" || c.ArgsSize != 12 || c.State == Completed && c.Size != c.Seq {
				t.Errorf("round %d: %s is torn: %+v", round, c.ID, c)
			}
		}
		if q.From = page.Next; !page.More {
			break
		}
	}
	for c := range p.admitted {
		if _, ok := there[c]; !ok {
			t.Errorf("round %d: the admission of %s was confirmed and is lost", round, c)
		}
	}
	for c := range p.ended {
		if there[c].State != Completed {
			t.Errorf("round %d: the end of %s was confirmed; it is %s", round, c, there[c].State)
		}
	}
	used, err := s.Binds()
	if n := used[Digest{12}]; err != nil || n != p.sessions && !(p.maybe["bind"] && n == p.sessions+1) {
		t.Errorf("round %d: the token counts %d uses of %d, %v", round, n, p.sessions, err)
	}
	p.sessions = used[Digest{12}]
	pol, err := s.Policy()
	if err != nil {
		t.Fatal(err)
	}
	members := map[ids.Account]bool{}
	for _, m := range pol.Members {
		members[m.Account] = true
		if !p.members[m.Account] && !p.maybe[m.Account] {
			t.Errorf("round %d: the membership of %s appears", round, m.Account)
		}
	}
	for acc := range p.members {
		if !members[acc] {
			t.Errorf("round %d: the membership of %s was confirmed and is lost", round, acc)
		}
	}
	for acc := range p.maybe {
		if acc, ok := acc.(ids.Account); ok && members[acc] {
			p.members[acc] = true
		}
	}
	if len(pol.Grants) != len(p.grants) {
		t.Errorf("round %d: %d grants of %d", round, len(pol.Grants), len(p.grants))
	}
	for id := range there {
		p.admitted[id] = true
	}
	clear(p.maybe)
}

// The disk of these tests does lose what is not synced: one that only claims to sync
// loses confirmed admissions or whole files.
func TestTheDiskLosesWhatIsNotSynced(t *testing.T) {
	for seed := range uint64(20) {
		dir := stateDir(t)
		open(t, dir).Close()
		d := newDisk(t, dir, seed)
		d.lies, d.cut = true, 200
		s, err := openOver(dir, d.name, silent)
		if err != nil {
			t.Fatal(err)
		}
		confirmed := 0
		for b := s.Batch(); err == nil; confirmed++ {
			b.Admit(call(1))
			err = b.Commit()
		}
		s.Close()
		to := stateDir(t)
		d.after(t, to)
		if s, err = Open(to); err != nil {
			return // the file itself is gone or torn
		}
		n := len(page(t, s, Query{}).Calls)
		s.Close()
		if n < confirmed-1 {
			return
		}
	}
	t.Fatal("nothing was ever lost")
}
