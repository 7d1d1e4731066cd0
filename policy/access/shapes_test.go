package access

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"postern/policy"
)

// What a line-by-line edit cannot do well is refused, by what it would do or by the form.
func TestAccess7_WhatCannotBeEditedByLinesIsRefused(t *testing.T) {
	const top = "channels:\n  w:\n    access:\n      users:\n"
	level := Mutation{Action: SetLevel, Channel: "w", Target: "alice", Level: Read}
	full := "channels: {w: {allow: [alice]}}\n#"
	for _, row := range []struct {
		says, doc string
		m         Mutation
		want      string
	}{
		{"a text that goes on in the next line", top + "        alice: foo\n          bar\n        bob: {level: read}\n", level, "it would become: "},
		{"a text that hides another entry", top + "        alice: \"x\n        bob: {level: full} #\"\n", level, "it would change more than that"},
		{"an identity that stands twice", top + "        \"+5511999998888\": {level: read}\n        \"+55 11 99999-8888\": {level: read}\n", Mutation{Action: SetLevel, Channel: "w", Target: "+5511999998888", Level: Full}, "an entry with a mistake"},
		{"and goes once", top + "        \"+5511999998888\": {level: read}\n        \"+55 11 99999-8888\": {level: read}\n", Mutation{Action: RemoveUser, Channel: "w", Target: "+5511999998888"}, "the entry would stay"},
		{"access twice", "channels:\n  w:\n    access: {admission: open}\n    access: {users: {alice: {level: read}}}\n", Mutation{Action: RemoveUser, Channel: "w", Target: "alice"}, "the entry would stay"},
		{"users that are a list", "channels:\n  w:\n    access:\n      users: [alice]\n", level, errShape.Error()},
		{"nothing but braces", "{}\n", level, errShape.Error()},
		{"empty braces around a comment", "channels:\n  w:\n    access:\n      users: {\n        # nobody\n      }\n", level, errShape.Error()},
		{"a comment within an entry", top + "        alice: {level: read, # since May\n          write: true}\n", level, errShape.Error()},
		{"a letter before the end", top + "        alice: {level: read, \"é\": 1}\n", level, errShape.Error()},
		{"a level with an anchor", top + "        alice:\n          level: &x read\n          write: true\n", level, errShape.Error()},
		{"a text over many lines", top + "        alice: |\n          read\n", level, errShape.Error()},
		{"a number in braces", "channels: {w: {allow: [1.5]}}\n", level, errShape.Error()},
		{"a number further down", "channels: {w: {access: {default: {level: 1.5}}}}\n", level, errShape.Error()},
		{"a key that is no text", "channels: {w: {access: {true: {}}}}\n", level, errShape.Error()},
		{"braces on the document's own lines, with a comment", "{channels: {w: {}}, # here\n}\n", level, errShape.Error()},
		{"a file that is full", full + strings.Repeat("x", MaxDocument-len(full)), level, "at most"},
	} {
		if p, _ := Parse([]byte(row.doc)); p.broken != nil {
			t.Errorf("%s: it is broken before: %v", row.says, p.broken)
		}
		out, _, err := Edit([]byte(row.doc), row.m)
		if err == nil || out != nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v\n%s", row.says, err, out)
		}
	}
	// The same changes where the lines are plain.
	for _, row := range []struct {
		says, doc string
		m         Mutation
		was, want string
	}{
		{"a block in the place of a level", top + "        alice:\n          blocked: true\n", level, "blocked", top + "        alice: {level: read, write: false}\n"},
		{"the last person", top + "        alice: {level: read}\n", Mutation{Action: RemoveUser, Channel: "w", Target: "alice"}, "level read, write off", "channels:\n  w:\n    access:\n      users: {}\n"},
		{"a mode where none was", "channels:\n  w:\n    enabled: true\n", Mutation{Action: SetMode, Channel: "w", Word: policy.ModeCode}, "default mode not set", "channels:\n  w:\n    enabled: true\n    default_mode: code\n"},
		{"groups where none were", "channels:\n  w:\n    enabled: true\n", Mutation{Action: SetGroupDefault, Channel: "w", Level: Read}, "no level",
			"channels:\n  w:\n    enabled: true\n    access:\n      groups:\n        default: {level: read, write: false}\n"},
		{"braces with braces in them", "channels: {w: {access: {default: {level: read, write: true}, admission: open}, type: ~}}\n", Mutation{Action: SetEnabled, Channel: "w", On: true}, "on",
			"channels:\n  w:\n    access: {default: {level: read, write: true}, admission: open}\n    type: null\n    enabled: true\n"},
	} {
		out, c, err := Edit([]byte(row.doc), row.m)
		if err != nil || c.Before != row.was || string(out) != row.want {
			t.Errorf("%s: %v, it was %q\n%s", row.says, err, c.Before, out)
		}
	}
}

// A path is never followed without end.
func TestAccess7_APathThroughTooManyBracesIsRefused(t *testing.T) {
	for n, want := range map[int]error{maxSplices - 1: nil, maxSplices: errShape} {
		in := newText([]byte(strings.Repeat("{a: ", n) + "1" + strings.Repeat("}", n)))
		path := strings.Split(strings.Repeat("a", n), "")
		if err := in.set(path, "2"); !errors.Is(err, want) {
			t.Errorf("%d braces: %v", n, err)
		}
	}
}

// An expansion that makes the file too long ends the edit before the next one.
func TestAccess7_AFileThatGrowsPastItsBoundIsRefused(t *testing.T) {
	doc := "channels: {w: {access: {users: {bob: {level: read}}}}}\n#"
	doc += strings.Repeat("x", MaxDocument-len(doc))
	if p, mistakes := Parse([]byte(doc)); p.broken != nil || len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	if out, _, err := Edit([]byte(doc), Mutation{Action: SetBlocked, Channel: "w", Target: "bob"}); err == nil || out != nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
	if _, _, err := Edit([]byte(doc[:len(doc)-200]), Mutation{Action: SetBlocked, Channel: "w", Target: "bob"}); err != nil {
		t.Errorf("with room it is refused: %v", err)
	}
}

func TestAccess4_WhatTheLibraryPanicsAtIsAMistake(t *testing.T) {
	out, err := careful(errUnparsed, func() (*ast.File, error) { panic("index out of range") })
	if m := mistakeOf(err); out != nil || !errors.Is(err, errUnparsed) || m.Want != errUnparsed.Error() || m.Line != 0 {
		t.Errorf("%v, %v, %v", out, err, m)
	}
	if n, err := careful(errUnparsed, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if lineOf(nil) != 0 {
		t.Error("nothing stands in a line")
	}
}

// A part that does not have the entries it was cut for is no part: what it held might
// have been somebody's block.
func TestAccess4_PartsThatDoNotFitAreAMistake(t *testing.T) {
	parsed := func(doc string) *ast.File {
		f, err := parser.ParseBytes([]byte(doc), 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	into := func() *ast.MappingNode { return parsed("a: 1\nb: 2").Docs[0].Body.(*ast.MappingNode) }
	for says, err := range map[string]error{
		"nothing to join":    join(nil, parsed("c: 3"), 1),
		"one entry too few":  join(into(), parsed("c: 3"), 2),
		"one entry too many": join(into(), parsed("c: 3\nd: 4"), 1),
		"no mapping":         join(into(), parsed("c"), 1),
		"two documents":      join(into(), parsed("c: 3\n---\nd: 4"), 1),
	} {
		if !errors.Is(err, errParts) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if m := into(); join(m, parsed("c: 3"), 1) != nil || len(m.Values) != 3 {
		t.Error("what fits does not join")
	}
	for _, bad := range []string{"\"+5511\": {level: read", "x: 1: 2", "  y: 1"} {
		doc := string(many(3*longRun)) + "        " + bad + "\n" + strings.Repeat("        z: {level: read}\n", 2*longRun)
		if p, mistakes := Parse([]byte(doc)); p.broken == nil || len(mistakes) != 1 {
			t.Errorf("%q: %v", bad, mistakes)
		}
	}
}

// Every list has a bound, and what is past it denies whom it may be about.
func TestC8_ListsPastTheirBoundDenyWhomTheyGovern(t *testing.T) {
	groups := func(n int) string {
		var b strings.Builder
		b.WriteString("channels:\n  w:\n    allow: [x]\n    access:\n      groups:\n        enabled: true\n")
		for i := range n {
			fmt.Fprintf(&b, "        g%d: {level: read}\n", i)
		}
		return b.String()
	}
	channels := func(n int) string {
		doc := "channels:\n  w: {allow: [x]}\n"
		for i := range n - 1 {
			doc += fmt.Sprintf("  c%d: {}\n", i)
		}
		return doc
	}
	modes := func(n int) string {
		doc := "channels:\n  w: {allow: [x], default_mode: m0}\nmodes:\n"
		for i := range n {
			doc += fmt.Sprintf("  m%d: {allowed: [a/b]}\n", i)
		}
		return doc
	}
	for _, row := range []struct {
		says, at, past, who string
	}{
		{"users", string(many(MaxEntries)), string(many(MaxEntries + 1)), "w:+5511900000000"},
		{"groups", groups(MaxEntries - 1), groups(MaxEntries + 1), "w:group/g1/y"},
		{"channels", channels(MaxChannels), channels(MaxChannels + 1), "w:x"},
		{"modes", modes(policy.MaxModes), modes(policy.MaxModes + 1), "w:x"},
	} {
		p, mistakes := Parse([]byte(row.at))
		if r := resolve(p, row.who, Facts{}); !r.Admitted || len(mistakes) > 0 {
			t.Errorf("%s at the bound: %s, %s", row.says, said(r), lines(mistakes))
		}
		p, mistakes = Parse([]byte(row.past))
		if r := resolve(p, row.who, Facts{}); r.Admitted || len(mistakes) == 0 {
			t.Errorf("%s past it: %s", row.says, said(r))
		}
	}
	p, mistakes := Parse([]byte("channels:\n  w:\n    allow: [x]\n    access:\n      users:\n" + strings.Repeat("        '*': {level: read}\n", maxMistakes+7)))
	if len(mistakes) != maxMistakes+1 || mistakes[maxMistakes].Want != "and 7 more" || !resolve(p, "w:x", Facts{}).Admitted {
		t.Errorf("%d mistakes, the last is %v", len(mistakes), mistakes[len(mistakes)-1])
	}
}

// A key of groups that is like none of theirs is told with what there is, and one that is, with that.
func TestAccess3_AKeyOfGroupsThatIsNoGroupIsTold(t *testing.T) {
	for key, want := range map[string]string{"xylophone": "want enabled, default, default_mode or a group", "enabeld": "did you mean enabled?"} {
		p, mistakes := Parse([]byte("channels: {w: {allow: [x], access: {groups: {enabled: true, " + key + ": {level: read}}}}}"))
		if !strings.Contains(lines(mistakes), want) || resolve(p, "w:group/g1/y", Facts{}).Admitted || !resolve(p, "w:x", Facts{}).Admitted {
			t.Errorf("%s: %s", key, lines(mistakes))
		}
	}
}

func TestAccess3_ValuesOfAnotherKindDenyWhomTheyAreAbout(t *testing.T) {
	for says, row := range map[string]struct{ doc, bad, good string }{
		"an identity that is a list": {"channels: {w: {allow: [[y], x]}}", "w:y", "w:x"},
		"a key of default":           {"channels: {w: {allow: [x], access: {admission: open, default: {levle: read}}}}", "w:y", "w:x"},
		"a group that stands twice":  {"channels: {w: {access: {groups: {enabled: true, G1: {level: read}, g1: {level: full}, g2: {level: read}}}}}", "w:group/g1/x", "w:group/g2/x"},
	} {
		p, mistakes := Parse([]byte(row.doc))
		if bad, good := resolve(p, row.bad, Facts{}), resolve(p, row.good, Facts{}); bad.Admitted || !good.Admitted || len(mistakes) != 1 {
			t.Errorf("%s: %s, %s, %s", says, said(bad), said(good), lines(mistakes))
		}
	}
}
