package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"postern/ids"
	"postern/policy"
	"postern/supervisor/api"
	"postern/supervisor/config"
	"postern/supervisor/gate"
	"postern/supervisor/registry"
)

// rowOf finds what is used of one bound.
func rowOf(t *testing.T, rows []api.QuotaRow, what, of string) api.QuotaRow {
	t.Helper()
	for _, r := range rows {
		if r.What == what && r.Of == of {
			if r.SetBy == "" || r.Unit != "count" && r.Unit != "bytes" {
				t.Errorf("%+v", r)
			}
			return r
		}
	}
	t.Errorf("no row of %s of %q in %+v", what, of, rows)
	return api.QuotaRow{}
}

// What is told of a bound is what lives: it rises with it, and is at the bound where one
// more is refused.
func TestQuota_WhatIsToldIsWhatLives(t *testing.T) {
	r := newRig(t)
	tok := must[api.TaskResult](r.as(host), api.TaskNew, api.TaskNewParams{Project: "shop", ForUID: owner})
	b, s := r.session(owner, "")
	for range 3 {
		if _, code := b.admit(s, r.conn, "read_rows"); code != "" {
			t.Fatal(string(code))
		}
	}
	shop := func(uid uint32) []api.QuotaRow {
		t.Helper()
		q := must[api.QuotaResult](r.as(uid), api.Quota, api.QuotaParams{Project: "shop"})
		if len(q.Projects) != 1 || q.Projects[0].Label != "shop" || q.Postern != nil {
			t.Fatalf("%+v", q)
		}
		return q.Projects[0].Rows
	}
	rows := shop(owner)
	for _, x := range []struct {
		what, of   string
		used, most int64
	}{
		{"sessions", "", 1, gate.MaxSessions}, {"live tasks", "", 2, registry.MaxLive}, {"granted items", string(r.conn), 1, registry.MaxTools},
		{"calls in flight of its fullest instance", string(r.conn), 3, gate.MaxPerConnection}, {"sessions", tok.Task, 0, gate.MaxSessions},
	} {
		if got := rowOf(t, rows, x.what, x.of); got.Used != x.used || got.Most != x.most {
			t.Errorf("%+v, want %d of %d", got, x.used, x.most)
		}
	}
	open := int64(0)
	for _, row := range rows {
		if row.What == "open calls of its sessions" {
			open += row.Used
		}
	}
	if open != 3 {
		t.Errorf("%d calls are told of tasks", open)
	}
	whole := must[api.QuotaResult](r.as(root), api.Quota, api.QuotaParams{})
	if len(whole.Projects) != 2 || rowOf(t, whole.Postern, "bridges", "").Used != 1 || rowOf(t, whole.Postern, "live tasks", "agent").Used != 1 || rowOf(t, whole.Postern, "jails", "").Most != 64 {
		t.Errorf("%+v", whole)
	}
	// What a bound is set by is a key that postern.yaml has.
	keys, named := map[string]bool{}, 0
	for _, k := range config.Keys() {
		keys[k.Path] = true
	}
	for _, row := range slices.Concat(whole.Postern, whole.Projects[0].Rows) {
		if key, of := strings.CutPrefix(row.SetBy, "postern.yaml "); of {
			if named++; !keys[key] {
				t.Errorf("%s is set by %q, which is no key", row.What, key)
			}
		}
	}
	if named == 0 {
		t.Error("no bound is set by postern.yaml")
	}
	if got := must[api.QuotaResult](r.as(other), api.Quota, api.QuotaParams{}); len(got.Projects) != 0 || got.Postern != nil {
		t.Errorf("a stranger to them is told %+v", got)
	}
	for _, row := range whole.Projects[0].Rows {
		if row.What == "open calls of its sessions" {
			t.Error("tasks are told without being asked for")
		}
	}
}

// Pages hold every project once.
func TestQuota_PagesHoldEveryProjectOnce(t *testing.T) {
	r := newRig(t)
	next := facts()
	for n := range 2*quotaPage + 5 {
		p := id[ids.Project](1000 + n)
		next.Projects[p] = registry.RootProject{ID: p, Label: fmt.Sprintf("p%d", n), Owner: id[ids.Account](alice), ExecutionProfile: policy.ProfileStandard}
	}
	r.on(func() { r.g.Registry().SetRoot(next) })
	seen, pages := map[string]bool{}, 0
	for after := ""; ; pages++ {
		q := must[api.QuotaResult](r.as(root), api.Quota, api.QuotaParams{After: after})
		if (q.Postern != nil) != (after == "") {
			t.Errorf("the whole is told after %q: %v", after, q.Postern != nil)
		}
		for _, p := range q.Projects {
			if seen[p.Project] {
				t.Errorf("%s twice", p.Project)
			}
			seen[p.Project] = true
		}
		if q.Next == "" {
			break
		}
		after = q.Next
	}
	if len(seen) != len(next.Projects) || pages != 2 {
		t.Errorf("%d of %d projects on %d pages", len(seen), len(next.Projects), pages+1)
	}
}
