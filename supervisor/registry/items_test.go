package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

const withPrompts = `[{"name":"query","inputSchema":{"type":"object"}},{"name":"prompt:review","inputSchema":{"type":"object"}}]
[{"name":"review","description":"reviews","arguments":[{"name":"language"}]},{"name":"bad name"},{"name":"args","arguments":{}},{"name":"twice"},{"name":"twice"},{"title":"none"}]`

func TestRegistry2_PromptsAreGrantedByNameAndPinned(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, withPrompts)
	w.probe(db, withPrompts)
	c, other := w.connect(shop, fs), w.connect(shop, db)
	p := id[ids.Project](shop)
	cat := w.r.Catalogue(id[ids.Revision](fs))
	if want := []string{"query", "prompt?review", "prompt:review", "prompt:bad name", "prompt:args", "prompt:twice", "(7)"}; !slices.Equal(cat.Order, want) {
		t.Fatalf("order %q, want %q", cat.Order, want)
	}
	for _, bad := range []string{"prompt?review", "prompt:bad name", "prompt:args", "prompt:twice", "(7)"} {
		if cat.Tools[bad].Quarantine == "" {
			t.Errorf("%q is not quarantined", bad)
		}
		w.refused(refusal.ToolQuarantined)(w.r.Grant(w.granting(c, bad)))
	}
	w.do(w.r.Grant(w.granting(c, "prompt:review", "query")))
	w.do(w.r.Grant(w.granting(other, "prompt:review")))
	k, _ := w.r.Tool(p, c, "prompt:review")
	if k.Grant == nil || k.Grant.Served != "prompt:review" || k.Standing() != policy.PinMatches || k.Tier != class.Observe || k.Classes != class.SetOf(class.MCPRead) {
		t.Errorf("%+v", k)
	}
	if k, _ := w.r.Tool(p, other, "prompt:review"); k.Grant.Served != "prompt:data.review" {
		t.Errorf("the second is served as %q", k.Grant.Served)
	}
	if k, _ := w.r.Tool(p, c, "review"); k.Grant != nil || k.Pin != nil {
		t.Error("a prompt is a tool too")
	}
	w.probe(fs, strings.Replace(withPrompts, `"reviews"`, `"reviews, and sends it away"`, 1))
	if k, _ := w.r.Tool(p, c, "prompt:review"); k.Standing() != policy.PinChanged {
		t.Error("a changed prompt still matches")
	}
	if old := w.r.Definition(k.Grant.Pin); !strings.Contains(string(old), `"reviews"`) {
		t.Errorf("the definition that was granted is %s", old)
	}
	w.do(w.r.Accept(c, id[ids.Revision](fs), []string{"prompt:review"}, "uid 0", 0, now))
	if k, _ := w.r.Tool(p, c, "prompt:review"); k.Standing() != policy.PinMatches {
		t.Error("acceptance did not help")
	}
	w.refused(refusal.NotFound)(w.r.Grant(w.granting(c, "prompt:*")))
}

func TestRegistry2_ResourcesAreGrantedByPrefix(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	w.probe(db, catalogue)
	c, other := w.connect(shop, fs), w.connect(shop, db)
	p := id[ids.Project](shop)
	w.do(w.r.Grant(w.granting(c, "resource:file:///docs", "resource:memo://notes/")))
	covered := func(con ids.Connection, uri string) bool {
		k, ok := w.r.Tool(p, con, "resource:"+uri)
		if (k.Grant != nil) != (k.Standing() == policy.PinMatches) {
			t.Errorf("%s: %v", uri, k.Standing())
		}
		return ok && k.Grant != nil
	}
	for uri, want := range map[string]bool{
		"file:///docs": true, "file:///docs/a/b": true, "file:///docsx": false, "file:///docs/../etc": false, "file:///docs/%2e%2e/etc": false,
		"file:///docs/a?x": false, "memo://notes/1": true, "memo://notes": false, "FILE:///docs": false, "file:///etc": false, "": false,
	} {
		if covered(c, uri) != want {
			t.Errorf("%q is covered: %v", uri, !want)
		}
		if covered(other, uri) {
			t.Errorf("%q is covered by the other connection", uri)
		}
		if g := w.r.Covering(p, uri); (g != nil) != want {
			t.Errorf("%q in the project: %+v", uri, g)
		}
		if g := w.r.Covering(id[ids.Project](blog), uri); g != nil {
			t.Errorf("%q in another project", uri)
		}
	}
	// One URI leads to one connection.
	for _, meets := range []string{"file:///docs", "file:///docs/a", "file:///", "memo://"} {
		w.refused(refusal.AlreadyExists)(w.r.Grant(w.granting(other, "resource:"+meets)))
	}
	w.do(w.r.Grant(w.granting(other, "resource:file:///other")))
	for _, bad := range []string{"", "docs", "file:///docs/../", "file:///a//b", "FILE:///x", "file:///{path}"} {
		w.refused(refusal.BadRequest)(w.r.Grant(w.granting(c, "resource:"+bad)))
	}
	w.do(w.r.Grant(w.granting(c, "resource:file:///docs"))) // again
	if n := len(w.r.Connection(c).Prefixes); n != 2 {
		t.Errorf("%d prefixes after granting one again", n)
	}
	w.do(w.r.Revoke(c, []string{"resource:file:///docs"}, 0))
	if covered(c, "file:///docs/a") || !covered(c, "memo://notes/1") {
		t.Error("revoking one prefix")
	}
	// What was revoked is free for another connection.
	w.do(w.r.Grant(w.granting(other, "resource:file:///docs")))
	var many []string
	for i := range MaxPrefix - 1 {
		many = append(many, fmt.Sprintf("resource:x:%d", i))
	}
	w.do(w.r.Grant(w.granting(c, many...)))
	w.refused(refusal.BadRequest)(w.r.Grant(w.granting(c, "resource:one:more")))
	w.do(w.r.Grant(w.granting(c, many[0])))
}

func TestRegistry6_LookingUpAResourceAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	w.probe(fs, catalogue)
	c := w.connect(shop, fs)
	w.do(w.r.Grant(w.granting(c, "resource:file:///docs")))
	p := id[ids.Project](shop)
	if n := testing.AllocsPerRun(100, func() {
		if k, _ := w.r.Tool(p, c, "resource:file:///docs/a/b"); k.Grant == nil {
			t.Fatal("not covered")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
