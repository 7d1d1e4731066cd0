package registry

import (
	"strings"
	"testing"

	"postern/ids"
	"postern/supervisor/store"
)

func TestC9_AChangeIsDescribedWithoutSecretsAndIdentities(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	said := func(c Change, err error) (string, string, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w.r.Describe(c)
	}
	check := func(what string, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q holds no %q", what, got, want)
		}
	}
	acc := id[ids.Account](alice)
	target, before, after := said(w.r.Suspend(acc, true, 0))
	if target != string(acc) || before != "none" || after != "suspended" {
		t.Errorf("%q %q %q", target, before, after)
	}
	c := w.connect(shop, fs)
	g, err := w.r.Grant(w.granting(c, "read_file"))
	target, before, after = said(g, err)
	check("grant", target, string(c)+" read_file")
	check("grant", before, "none")
	check("grant", after, `granted as "read_file"`)
	w.do(g, nil)
	target, before, after = said(w.r.Revoke(c, []string{"read_file"}, 0))
	check("revoke", target, "read_file")
	check("revoke", before, `granted as "read_file"`)
	check("revoke", after, "none")

	task := w.task(alice, shop, "agent")
	task.Principal = "whatsapp:+5511999998888"
	target, _, after = w.r.Describe(Change{Put: []store.Row{task}})
	if target != string(task.ID) || strings.Contains(after, "999998888") {
		t.Errorf("%q %q", target, after)
	}
	check("task", after, "whatsapp:+55…88")
	token := store.Token{Digest: store.Digest{1, 2, 3}, Task: task.ID, UID: 1000, Binds: 2}
	_, _, after = w.r.Describe(Change{Put: []store.Row{token}})
	if after != "a token for uid 1000, 2 binds" {
		t.Errorf("%q", after)
	}
	task.Ended, task.Reason = 5, "revoked"
	_, _, after = w.r.Describe(Change{Put: []store.Row{task}})
	check("end", after, "ended: revoked")

	var many []store.Row
	for i := range 2 * maxDescribed {
		many = append(many, store.Account{ID: id[ids.Account](500 + i)})
	}
	target, _, _ = w.r.Describe(Change{Put: many})
	check("many", target, "and 8 more")
}
