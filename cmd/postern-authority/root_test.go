package main

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/order"
	"postern/supervisor/registry"
)

func id[T ids.ID](n byte) T { return ids.New[T](time.UnixMilli(1_790_000_000_000), [10]byte{9: n}) }

// document is what posternd pushes, with everything in it.
func document() order.Root {
	return order.Root{Version: 7, Keep: order.Keep{Days: 2, MiB: 64}, Sessions: order.Sessions{Requests: 3, LineKiB: 4, LineWaitSeconds: 5, Depth: 9, QueueKiB: 64}, UIDs: order.Range{First: 1000000, Count: 64},
		Accounts: []order.Account{{ID: id[ids.Account](1), Name: "alice", UIDs: []uint32{1001}}, {ID: id[ids.Account](2), Name: "bob", Deleted: true}},
		Projects: []order.Project{{ID: id[ids.Project](1), Label: "shop", Owner: id[ids.Account](1), Workspace: "/srv/shop", PersonBind: true, ExecutionProfile: "standard", Created: 5}},
		Servers: []order.Server{{ID: id[ids.Server](1), Label: "files", Revisions: []order.Revision{
			{ID: id[ids.Revision](1), Credential: "none", Scope: "project"},
			{ID: id[ids.Revision](2), Digest: "d", Profile: "node", Fork: true, Credential: "required", Scope: "task", CallMs: 1, StartMs: 2, IdleMs: 3, StopMs: 4,
				CallMostMs: 5, Calls: 6, Line: 7, Depth: 8, Blocks: 9, Stderr: 10, Pages: 11, Queue: 12, PerSession: 13, Items: 14, Definition: 15, Listing: 16, LineWaitMs: 17,
				Classes: map[string][]string{"run": {"process.execute", "filesystem.read"}}, Tiers: map[string]string{"run": "reversible"}}}}},
		Credentials: []order.Credential{{ID: id[ids.Credential](1), Project: id[ids.Project](1), Server: id[ids.Server](1), Generation: 3}},
		Hosts:       []order.Host{{ID: "agent", UID: 2000, Accounts: []string{"*"}, Projects: []string{string(id[ids.Project](1))}}, {ID: "narrow", UID: 2001, Accounts: []string{string(id[ids.Account](1))}, Projects: []string{"*"}}}}
}

func TestRootFactsAreTakenWhole(t *testing.T) {
	r, err := rootOf(document(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != 7 || len(r.Accounts) != 2 || !r.Accounts[id[ids.Account](2)].Deleted || r.Accounts[id[ids.Account](1)].UIDs[0] != 1001 {
		t.Errorf("%+v", r.Accounts)
	}
	if r.KeepAge != 48*time.Hour || r.KeepBytes != 64<<20 {
		t.Errorf("records are kept %v, %d bytes", r.KeepAge, r.KeepBytes)
	}
	if r.Sessions != (registry.SessionBounds{Requests: 3, Line: 4 << 10, LineWait: 5 * time.Second, Depth: 9, Queue: 64 << 10}) {
		t.Errorf("sessions have %+v", r.Sessions)
	}
	if p := r.Projects[id[ids.Project](1)]; p.Owner != id[ids.Account](1) || !p.PersonBind || p.ExecutionProfile != "standard" || p.Workspace != "/srv/shop" || p.Label != "shop" || p.Deleted {
		t.Errorf("%+v", p)
	}
	if c := r.Assigned[registry.Assignment{Project: id[ids.Project](1), Server: id[ids.Server](1)}]; len(r.Assigned) != 1 || c != (registry.Credential{ID: id[ids.Credential](1), Generation: 3}) {
		t.Errorf("%+v", r.Assigned)
	}
	s := r.Servers[id[ids.Server](1)]
	if s.Current != id[ids.Revision](2) || len(s.Revisions) != 2 || s.Label != "files" || s.Deleted {
		t.Errorf("%+v", s)
	}
	v := s.Revisions[s.Current]
	if !v.Required || !v.PerTask || !v.Fork || v.Classes["run"] != class.SetOf(class.ProcessExecute, class.FilesystemRead) || v.Tiers["run"] != class.Reversible ||
		v.Call != time.Millisecond || v.Start != 2*time.Millisecond || v.Idle != 3*time.Millisecond || v.Stop != 4*time.Millisecond {
		t.Errorf("%+v", v)
	}
	if got := []int64{v.CallMost.Milliseconds(), int64(v.Calls), v.Line, int64(v.Depth), int64(v.Blocks), v.Stderr, int64(v.Pages), v.Queue, int64(v.PerSession), int64(v.Items), v.Definition, v.Definitions, v.LineWait.Milliseconds()}; !slices.Equal(got, []int64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}) {
		t.Errorf("the bounds are %v", got)
	}
	if old := s.Revisions[id[ids.Revision](1)]; old.Required || old.PerTask {
		t.Errorf("%+v", old)
	}
	for host, row := range map[string][2]bool{"agent": {true, false}, "narrow": {true, true}} { // of alice in shop, of alice in another project
		h := r.Hosts[host]
		if got := [2]bool{h.Serves(id[ids.Account](1), id[ids.Project](1)), h.Serves(id[ids.Account](1), id[ids.Project](9))}; got != row {
			t.Errorf("%s: %v", host, got)
		}
	}
	if r.Hosts["narrow"].Serves(id[ids.Account](2), id[ids.Project](1)) || r.Hosts["agent"].Serves("*", "*") {
		t.Error("a host serves whom it does not name")
	}
	if !r.Leased(1000000) || !r.Leased(1000063) || r.Leased(1000064) || r.Leased(999999) {
		t.Error("the range of the jails")
	}
}

func TestAWordThisBuildDoesNotKnowDecidesNothing(t *testing.T) {
	for says, change := range map[string]func(*order.Revision){
		"class":       func(v *order.Revision) { v.Classes = map[string][]string{"run": {"process.execute", "teleport"}} },
		"empty class": func(v *order.Revision) { v.Classes = map[string][]string{"run": {""}} },
		"tier":        func(v *order.Revision) { v.Tiers = map[string]string{"run": "harmless"} },
		"empty tier":  func(v *order.Revision) { v.Tiers = map[string]string{"run": ""} },
	} {
		d := document()
		change(&d.Servers[0].Revisions[0]) // not even the current one
		if r, err := rootOf(d, nil); err == nil || r != nil || !strings.Contains(err.Error(), string(d.Servers[0].ID)) || !strings.Contains(err.Error(), "run") {
			t.Errorf("%s: %v, %v", says, r, err)
		}
	}
}

func TestTheAccessPolicyIsReadAsPosterndFoundIt(t *testing.T) {
	const doc = "channels: {w: {allow: [x]}}"
	found := order.Access{Path: "/etc/postern/access.yaml", Present: true, Document: []byte(doc), Digest: digest(doc)}
	code := func(a order.Access, was *registry.Root) (refusal.Code, *registry.Root) {
		d := document()
		d.Access = a
		r, err := rootOf(d, was)
		if err != nil {
			t.Fatal(err)
		}
		return r.Access.Resolve(access.Principal{Channel: "w", ID: "x"}, access.Facts{}).Code, r
	}
	got, first := code(found, nil)
	if got != "" || first.AccessFile.Path != found.Path || first.AccessFile.Digest != found.Digest {
		t.Fatalf("%s, %+v", got, first.AccessFile)
	}
	if got, again := code(found, first); got != "" || again.Access != first.Access {
		t.Errorf("an unchanged document was read again: %s", got)
	}
	if got, r := code(order.Access{Path: found.Path}, first); got != refusal.PrincipalRefused || r.Access != nil {
		t.Errorf("no file: %s", got)
	}
	unreadable := order.Access{Path: found.Path, Present: true, Error: "permission denied"}
	got, r := code(unreadable, first)
	if got != refusal.AccessUnavailable || r.AccessFile.Error == "" {
		t.Errorf("unreadable: %s", got)
	}
	if got, r := code(found, r); got != "" || r.AccessFile.Error != "" {
		t.Errorf("healed: %s", got)
	}
	other := found
	other.Document = []byte("channels: {w: {owners: [x]}}")
	if got, _ := code(other, nil); got != refusal.AccessUnavailable {
		t.Errorf("another document than announced: %s", got)
	}
	broken := order.Access{Present: true, Document: []byte("{"), Digest: digest("{")}
	if got, _ := code(broken, first); got != refusal.AccessUnavailable {
		t.Errorf("a document that cannot be parsed: %s", got)
	}
}

func digest(doc string) string {
	sum := sha256.Sum256([]byte(doc))
	return hex.EncodeToString(sum[:])
}
