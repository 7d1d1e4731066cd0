package access

import (
	"fmt"
	"strings"
	"testing"
)

func TestC8_TheStateOfADocumentAndItsFirstMistake(t *testing.T) {
	for says, row := range map[string]struct{ doc, state, trouble string }{
		"whole":       {"channels: {w: {allow: [x]}}\n", StateRead, ""},
		"empty":       {"", StateRead, ""},
		"a warning":   {"channels:\n  w: {access: {users: {x: {level: chat, write: true}}}}\n", StateRead, ""},
		"one entry":   {"channels:\n  w:\n    access:\n      users:\n        x: {level: raed}\n", StateMistaken, "/e/a.yaml:5: channels.w.access.users.x.level: want chat, read or full"},
		"two entries": {"channels:\n  w:\n    allow: ['*']\n    enabled: 3\n", StateMistaken, "/e/a.yaml:3: channels.w.allow[0]: "},
		"everything":  {"channels: [w]\n", StateDenying, "/e/a.yaml:1: channels: want a mapping"},
		"no yaml":     {"channels:\n  w: [\n", StateDenying, "/e/a.yaml:"},
	} {
		p, _ := Parse([]byte(row.doc))
		got := p.Trouble("/e/a.yaml")
		if p.State() != row.state || !strings.HasPrefix(got, row.trouble) || (got == "") != (row.trouble == "") {
			t.Errorf("%s: %s, %q", says, p.State(), got)
		}
		if (says == "two entries") != strings.HasSuffix(got, "(and 1 more)") {
			t.Errorf("%s: %q", says, got)
		}
	}
	if none := (*Policy)(nil); none.State() != StateNone || none.Trouble("x") != "" {
		t.Error("no document has a mistake")
	}
	if p := Unreadable(Mistake{Want: "permission denied"}); p.Trouble("/e/a.yaml") != "/e/a.yaml: permission denied" || p.State() != StateDenying {
		t.Errorf("%q", p.Trouble("/e/a.yaml"))
	}
}

// Many warnings are still no mistake that denies anybody, also past what is told of them.
func TestC8_WarningsPastTheirBoundAreNoMistake(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("channels:\n  w:\n    access:\n      users:\n")
	for i := range maxMistakes + 1 {
		fmt.Fprintf(&doc, "        user%d: {level: chat, write: true}\n", i)
	}
	if p, m := Parse([]byte(doc.String())); p.State() != StateRead || len(m) != maxMistakes+1 {
		t.Errorf("%s, %d told", p.State(), len(m))
	}
	doc.WriteString("        last: {level: raed}\n")
	if p, _ := Parse([]byte(doc.String())); p.State() != StateMistaken || p.Trouble("f") != "f: and 2 more" {
		t.Errorf("%s, %q", p.State(), p.Trouble("f"))
	}
}

// Whoever is denied for a mistake is told that one, and not another's.
func TestC8_TheMistakeOfAnEntryIsFound(t *testing.T) {
	p, _ := Parse([]byte(`channels:
  w:
    access:
      users:
        x: {level: raed}
        xy: {level: full, wirte: true}
        y: {level: read}
      groups: {enabled: perhaps}
`))
	for who, want := range map[string]string{"w:x": "5: channels.w.access.users.x.level: want chat", "w:xy": "6: channels.w.access.users.xy.wirte: ", "w:group/1@g.us/y": "8: channels.w.access.groups.enabled: want true"} {
		r := resolve(p, who, Facts{})
		if m, found := p.Wrong(r.From); !found || !strings.HasPrefix(m.String(), want) {
			t.Errorf("%s: %q, %v, from %v", who, m.String(), found, r.From)
		}
	}
	if m, found := p.Wrong(resolve(p, "w:y", Facts{}).From); found {
		t.Errorf("an entry in order has mistake %v", m)
	}
	if _, found := p.Wrong(Place{}); found {
		t.Error("no place has a mistake")
	}
}
