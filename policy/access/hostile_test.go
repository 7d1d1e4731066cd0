package access

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A carriage return is a line's end to what parses the file and none to who edits it:
// an edit of one channel then changed another, or ended posternd.
func TestAccess7_AFileWithCarriageReturnsIsNotEdited(t *testing.T) {
	const doc = "# top\nchannels:\n  w:\n    access:\n      users:\n        'alice': {level: read}\n        'bob': {blocked: true}\n  v:\n    enabled: true\n    access:\n      users:\n        eve: {blocked: true}\n"
	edits := []Mutation{
		{Action: RemoveUser, Channel: "w", Target: "alice"},
		{Action: SetBlocked, Channel: "w", Target: "alice"},
		{Action: SetEnabled, Channel: "w", On: false},
		{Action: SetGroup, Channel: "u", Target: "g1", Level: Full},
		{Action: SetAdmission, Channel: "v", Word: "open"},
	}
	for _, m := range edits {
		if out, _, err := Edit([]byte(doc), m); err != nil || len(out) == 0 {
			t.Errorf("%s with line feeds: %v", m.Action, err)
		}
		for says, end := range map[string]string{"CRLF": "\r\n", "CR": "\r", "one CR more": "\r\n\r"} {
			out, _, err := Edit([]byte(strings.ReplaceAll(doc, "\n", end)), m)
			if err == nil || !strings.Contains(err.Error(), "carriage return") || out != nil {
				t.Errorf("%s with %s: %v\n%q", m.Action, says, err, out)
			}
		}
		mixed := strings.Replace(doc, "'alice'", "'alice'  ", 1) + "# end\r"
		if _, _, err := Edit([]byte(mixed), m); err == nil {
			t.Errorf("%s with a single one was made", m.Action)
		}
	}
	// It is read all the same.
	p, mistakes := Parse([]byte(strings.ReplaceAll(doc, "\n", "\r\n")))
	if r := p.Resolve(Principal{Channel: "w", ID: "alice"}, Facts{}); len(mistakes) > 0 || !r.Admitted {
		t.Errorf("%v, %+v", mistakes, r)
	}
}

// Whatever an edit does to the lines, what it does to anybody else is seen.
func TestAccess7_AnEditThatWouldChangeAnybodyElseIsSeen(t *testing.T) {
	const doc = `modes: {mine: {allowed: [filesystem.read]}}
channels:
  w:
    default_mode: mine
    access:
      admission: open
      default: {level: chat}
      users: {alice: {level: read}, bob: {blocked: true}}
      groups: {enabled: true, default: {level: read}, g1: {level: read}}
  v:
    access: {users: {eve: {blocked: true}}}
`
	before, mistakes := Parse([]byte(doc))
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for _, row := range []struct {
		old, new string
		m        Mutation
		alike    bool
	}{
		{"alice: {level: read}", "alice: {level: full}", Mutation{Action: SetLevel, Target: "alice"}, true},
		{"alice: {level: read}", "alice: {level: full}", Mutation{Action: SetLevel, Target: "bob"}, false},
		{", bob: {blocked: true}", "", Mutation{Action: RemoveUser, Target: "bob"}, true},
		{", bob: {blocked: true}", "", Mutation{Action: RemoveUser, Target: "alice"}, false},
		{"eve: {blocked: true}", "eve: {level: read}", Mutation{Action: SetLevel, Target: "eve"}, false},
		{"admission: open", "admission: restricted", Mutation{Action: SetAdmission}, true},
		{"admission: open", "admission: restricted", Mutation{Action: SetEnabled}, false},
		{"default: {level: chat}", "default: {level: read}", Mutation{Action: SetDefault}, true},
		{"default: {level: chat}", "default: {level: read}", Mutation{Action: SetGroupDefault}, false},
		{"true, default: {level: read}", "true, default: {level: full}", Mutation{Action: SetGroupDefault}, true},
		{"true, default: {level: read}", "true, default: {level: full}", Mutation{Action: SetGroup, Target: "g1"}, false},
		{"g1: {level: read}", "g1: {level: full}", Mutation{Action: SetGroup, Target: "g1"}, true},
		{"g1: {level: read}", "g1: {level: full}", Mutation{Action: SetGroup, Target: "g2"}, false},
		{"default_mode: mine", "default_mode: search", Mutation{Action: SetMode}, true},
		{"default_mode: mine", "default_mode: search", Mutation{Action: SetGroups}, false},
		{"enabled: true", "enabled: false", Mutation{Action: SetGroups}, true},
		{"enabled: true", "enabled: false", Mutation{Action: SetEnabled}, false},
		{"allowed: [filesystem.read]", "allowed: [process.execute]", Mutation{Action: SetMode}, false},
		{"  v:\n", "  u:\n", Mutation{Action: SetEnabled}, false},
	} {
		row.m.Channel = "w"
		after, _ := Parse([]byte(strings.Replace(doc, row.old, row.new, 1)))
		if got := alike(before, after, row.m, row.m.Target); got != row.alike {
			t.Errorf("%s %s, %q became %q: alike %v", row.m.Action, row.m.Target, row.old, row.new, got)
		}
	}
}

// A document that is nothing but nesting is refused at once: what parses it takes
// minutes, in which nobody is answered, or more stack than there is.
func TestAccess_ADocumentThatIsNestedWithoutEndIsRefusedAtOnce(t *testing.T) {
	for says, doc := range map[string]string{
		"lists":           "channels: " + strings.Repeat("[", 250_000),
		"closed lists":    "channels: " + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000),
		"mappings":        "channels: " + strings.Repeat("{a: ", 60_000) + strings.Repeat("}", 60_000),
		"in turn":         "channels: " + strings.Repeat("[{a: ", 60_000),
		"behind a string": "channels: {a: \"}]\", b: " + strings.Repeat("[", 250_000),
		"sequences":       strings.Repeat("- ", 250_000),
		"keys":            strings.Repeat("? ", 250_000),
		"many lines of":   strings.Repeat("a: [\n", 90_000),
	} {
		begun := time.Now()
		p, _ := Parse([]byte(doc))
		if why, broken := p.Broken(); !broken || !strings.Contains(why, "nested") {
			t.Errorf("%s: %v %q", says, broken, why)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s took %v", says, took)
		}
		if _, _, err := Edit([]byte(doc), Mutation{Action: SetEnabled, Channel: "w"}); err == nil {
			t.Errorf("%s was edited", says)
		}
	}
	// Brackets that are closed again and dashes that are text count for nothing.
	doc := "# [[[ {{{ - - - ? ? ?\nchannels:\n  w:\n    access:\n      users:\n"
	for i := range 1000 {
		doc += fmt.Sprintf("        \"+5511%07d\": {level: read} # - [%d]\n", i, i)
	}
	if p, mistakes := Parse([]byte(doc)); len(mistakes) > 0 || !p.Resolve(Principal{Channel: "w", ID: "+55110000007"}, Facts{}).Admitted {
		t.Errorf("an ordinary one: %v", mistakes)
	}
}

// One person has one spelling, also where a number hides behind a server's name in
// other letters, or looks like one and is none.
func TestC7_NoSpellingOfANumberIsAnotherPerson(t *testing.T) {
	const doc = "channels:\n  w:\n    access:\n      admission: open\n      default: {level: read}\n      users: {\"+5511999998888\": {blocked: true}}\n"
	p, mistakes := Parse([]byte(doc))
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for _, id := range []string{"+5511999998888", "5511999998888", "+55 11 99999-8888", "+55 (11) 99999.8888", "5511999998888@s.whatsapp.net", "5511999998888@c.us",
		"5511999998888@S.WhatsApp.NET", "5511999998888@s.whatsapp.Net", "5511999998888@C.US"} {
		who, err := ParsePrincipal("w:" + id)
		if err != nil {
			t.Errorf("%q: %v", id, err)
			continue
		}
		if r := p.Resolve(who, Facts{}); r.Admitted || r.Kind != Blocked {
			t.Errorf("%q: %+v", id, r)
		}
	}
	for _, id := range []string{"-5511999998888", ".5511999998888", "5511999998888-", "+-5511999998888", "+5511999998888.", " +5511999998888", "+5511999998888 ", "+55%2011999998888", "+５５11999998888",
		"5511999998888:2@s.whatsapp.net", "+5511999998888@s.whatsapp.net", "a5511999998888@S.whatsapp.net", "00\u200b5511999998888", "+5511999998888\n", "tel:+5511999998888"} {
		if who, err := ParsePrincipal("w:" + id); !errors.Is(err, errNoIdentity) {
			t.Errorf("%q is %+v, %v", id, who, err)
		}
	}
	// Somebody else is.
	for _, id := range []string{"+5511999998889", "alice", "someone@s.whatsapp.example", "U-55-11"} {
		who, err := ParsePrincipal("w:" + id)
		if r := p.Resolve(who, Facts{}); err != nil || !r.Admitted {
			t.Errorf("%q: %v, %+v", id, err, r)
		}
	}
}
