package registry

import (
	"fmt"
	"strings"
	"testing"

	"postern/ids"
	"postern/item"
	"postern/refusal"
)

// A name that would be too long, or that has a character that no runtime takes, is
// refused when it is granted; it is never cut, and its siblings are granted.
func TestC171_ANameThatCannotBeServedIsRefusedAtTheGrant(t *testing.T) {
	w := newWorld(t)
	const tools = 40
	name := strings.Repeat("n", tools)
	wide := strings.Repeat("w", MaxServed)
	over := wide + "w"
	w.probe(db, fmt.Sprintf(`[{"name":%q,"inputSchema":{}},{"name":%q,"inputSchema":{}},{"name":%q,"inputSchema":{}},{"name":"a/b","inputSchema":{}},{"name":"a.b","inputSchema":{}}]`, name, wide, over))
	root := facts()
	s := root.Servers[id[ids.Server](db)]
	s.Label = strings.Repeat("l", 40) // with the tool's 40 it would be too long
	root.Servers[s.ID] = s
	w.r.SetRoot(root)
	data := w.connect(shop, db)
	for _, bad := range []string{over, "a/b"} {
		if _, err := w.r.Grant(w.granting(data, bad)); err == nil {
			t.Errorf("%q is granted", bad)
		}
	}
	for _, good := range []string{name, wide, "a.b"} {
		w.do(w.r.Grant(w.granting(data, good)))
		if k, _ := w.r.Tool(id[ids.Project](shop), data, good); k.Grant == nil || k.Grant.Served != good {
			t.Errorf("%q: %+v", good, k.Grant)
		}
	}
}

// Two servers with the same name of 64 characters: the first to be granted has it, the
// other is refused, and so it stays however often all of it is read again.
func TestC173_TwoLongNamesHaveOneOutcome(t *testing.T) {
	long := strings.Repeat("x", MaxServed)
	for _, order := range [][2]int{{fs, db}, {db, fs}} {
		w := newWorld(t)
		for _, server := range order {
			w.probe(server, `[{"name":"`+long+`","inputSchema":{}}]`)
		}
		first, second := w.connect(shop, order[0]), w.connect(shop, order[1])
		w.do(w.r.Grant(w.granting(first, long)))
		for range 20 {
			again, err := Load(w.s)
			if err != nil {
				t.Fatal(err)
			}
			again.SetRoot(facts())
			w.r = again
			w.refused(refusal.RegistrationWrong)(w.r.Grant(w.granting(second, long)))
			if gr := w.r.Served(id[ids.Project](shop), long); gr == nil || gr.Connection != first {
				t.Fatalf("%v: served is %+v", order, gr)
			}
		}
	}
	if len(item.Under("data", long)) <= MaxServed {
		t.Error("the longer name would fit")
	}
}
