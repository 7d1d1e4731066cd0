package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// What fits exactly is taken, a byte more is refused by name, and ending still has room
// where nothing else has.
func TestFactsThatCannotBeToldAreRefused(t *testing.T) {
	const most, last = order.MaxRoot - accessRoom - endRoom, order.MaxRoot - accessRoom
	for _, c := range []struct {
		n       int
		action  api.Action
		refused bool
	}{
		{most - 1, api.ProjectAdd, false}, {most, api.ProjectAdd, false}, {most + 1, api.ProjectAdd, true}, {most + 1, api.ServerUpdate, true}, {most + 1, "", true},
		{most + 1, api.ServerDelete, false}, {last, api.AccountDelete, false}, {last + 1, api.AccountDelete, true},
	} {
		if got := checkRoom(c.n, c.action); (got != nil) != c.refused || got != nil && got.Code != refusal.FactsFull {
			t.Errorf("%d bytes for %q: %v", c.n, c.action, got)
		}
	}
	if marks := (maxAccounts + maxProjects + maxServers) * len(`,"deleted":true`); marks > endRoom {
		t.Errorf("%d bytes of marks do not fit", marks)
	}
}

// A posternd whose facts are nearly as long as they may be takes what fits, then refuses
// what adds, also in a dry run, leaves file and record as they were, and still ends things.
func TestFullFactsTakeNothingMoreAndLetGo(t *testing.T) {
	r := start(t, newConfig(t))
	r.project("alice", 1000)
	r.down()
	file, err := openRootDir(r.cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := file.load(time.Now())
	if err == nil {
		raw, _ := order.EncodeRoot(f.root(r.cfg.Hosts, r.cfg.UIDs, r.cfg.Profiles))
		// One that is deleted, so that nothing looks at it, with a name as long as all the others.
		f.Accounts = append(f.Accounts, order.Account{ID: newID[ids.Account](time.Now()), Name: strings.Repeat("x", order.MaxRoot-accessRoom-endRoom-len(raw)-4096), Deleted: true})
		err = file.save(f)
	}
	file.close()
	if err != nil {
		t.Fatal(err)
	}
	r = start(t, r.cfg)
	var uids [64]uint32
	added := 0
	var refused *api.Refusal
	for n := 0; refused == nil && added < 20; n++ {
		for i := range uids {
			uids[i] = uint32(1_000_000_000 + 64*n + i)
		}
		if _, refused = r.ask(api.AccountAdd, api.AccountAddParams{Name: fmt.Sprint("more", n), UIDs: uids[:]}); refused == nil {
			added++
		}
	}
	if refused == nil || refused.Code != refusal.FactsFull || added == 0 {
		t.Fatalf("after %d: %v", added, refused)
	}
	was := r.kept()
	p := api.AccountAddParams{Name: "another", UIDs: uids[:]}
	r.refused(refusal.FactsFull, api.AccountAdd, p)
	r.refused(refusal.FactsFull, api.AccountAdd, p, func(q *api.Request) { q.DryRun = true })
	if r.kept() != was {
		t.Error("a refused change left something")
	}
	r.must(api.AccountDelete, api.Selected{Selector: "alice"})
	if r.kept() == was {
		t.Error("nothing was deleted")
	}
	r.down()
	r = start(t, r.cfg) // what was taken can be told again
	r.refused(refusal.AlreadyExists, api.AccountAdd, api.AccountAddParams{Name: "more0", UIDs: []uint32{77}})
}

// kept is a digest of the facts and of the record.
func (r *rig) kept() string {
	r.t.Helper()
	out := ""
	for _, name := range []string{factsName, "audit.log"} {
		raw, err := os.ReadFile(filepath.Join(r.cfg.RootDir, name))
		if err != nil {
			r.t.Fatal(err)
		}
		out += digestOf(raw)
	}
	return out
}
