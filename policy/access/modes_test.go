package access

import (
	"fmt"
	"strings"
	"testing"

	"postern/policy"
	"postern/policy/class"
)

func TestC3_CustomModesAreReadStrictly(t *testing.T) {
	wide := policy.Floor{Mode: policy.ModeCode, Execute: true}
	ask := func(doc, server, tool string, has class.Set) policy.Answer {
		p, _ := Parse([]byte("modes: {m: " + doc + "}"))
		return p.Modes().Answer("m", wide, server, tool, has)
	}
	read, write := class.SetOf(class.FilesystemRead), class.SetOf(class.FilesystemWrite)
	for _, row := range []struct {
		says, doc, tool string
		has             class.Set
		want            policy.Answer
	}{
		{"by name", "{whitelist_mode: true, allowed: [get_a]}", "get_a", 0, policy.Allowed},
		{"its twin", "{whitelist_mode: true, allowed: [get_a]}", "get_b", 0, policy.Refused},
		{"C083 names with their case", "{whitelist_mode: true, allowed: [get_a]}", "GET_A", 0, policy.Refused},
		{"by server", "{whitelist_mode: true, allowed: [db/*]}", "x", 0, policy.Allowed},
		{"by operation", "{whitelist_mode: true, allowed: ['*/x']}", "x", 0, policy.Allowed},
		{"by class", "{whitelist_mode: true, allowed_capabilities: [filesystem.read]}", "x", read, policy.Allowed},
		{"all classes", "{whitelist_mode: true, allowed_capabilities: [filesystem.read]}", "x", read | write, policy.Refused},
		{"no class", "{whitelist_mode: true, allowed_capabilities: [filesystem.read]}", "x", 0, policy.RefusedNoClass},
		{"no class beside a denied one", "{denied_capabilities: [mcp.write]}", "x", 0, policy.RefusedNoClass},
		{"a denied class", "{denied_capabilities: [filesystem.write]}", "x", write, policy.Refused},
		{"C082 a denial wins over an allowance", "{whitelist_mode: true, allowed: [db/*], denied: [db/x]}", "x", 0, policy.Refused},
		{"its sibling", "{whitelist_mode: true, allowed: [db/*], denied: [db/x]}", "y", 0, policy.Allowed},
		{"no_tools", "{no_tools: true, allowed: [x]}", "x", read, policy.Refused},
		{"C079 an empty list", "{allowed: []}", "x", read, policy.Refused},
		{"C079 an empty list of classes", "{allowed_capabilities: []}", "x", read, policy.Refused},
		// Whatever is wrong makes no mode at all.
		{"C079 a list that is null", "{allowed: null}", "x", read, policy.Undecided},
		{"C079 an empty name", "{allowed: ['']}", "x", read, policy.Undecided},
		{"C079 a blank name", "{allowed: [' ']}", "x", read, policy.Undecided},
		{"C083 a star", "{allowed: ['*']}", "x", read, policy.Undecided},
		{"C083 a part of a name", "{allowed: ['get_*']}", "x", read, policy.Undecided},
		{"C085 a look-alike", "{allowed: ['re\u0430d']}", "x", read, policy.Undecided},
		{"an unknown class", "{allowed_capabilities: [everything]}", "x", read, policy.Undecided},
		{"a class that is a number", "{denied_capabilities: [1]}", "x", read, policy.Undecided},
		{"classes that are a word", "{allowed_capabilities: filesystem.read}", "x", read, policy.Undecided},
		{"an unknown key", "{whitelist_mode: true, allow: [x]}", "x", read, policy.Undecided},
		{"whitelist_mode that is a word", "{whitelist_mode: 'yes', allowed: [x]}", "x", read, policy.Undecided},
		{"a whitelist without lists", "{whitelist_mode: true}", "x", read, policy.Undecided},
		{"nothing", "{}", "x", read, policy.Undecided},
		{"null", "null", "x", read, policy.Undecided},
	} {
		if got := ask(row.doc, "db", row.tool, row.has); got != row.want {
			t.Errorf("%s: %v, want %v", row.says, got, row.want)
		}
	}
	_, mistakes := Parse([]byte("modes:\n  m:\n    allowed: []\n"))
	if len(mistakes) != 1 || !mistakes[0].Warn || mistakes[0].Line == 0 || !strings.Contains(mistakes[0].String(), "modes.m.allowed: is empty") {
		t.Errorf("an empty list is told with its line: %v", mistakes)
	}
}

func TestC1_EveryClassCanBeNamedAndNoOther(t *testing.T) {
	names := class.All().Strings()
	p := parsed(t, "modes: {m: {whitelist_mode: true, allowed_capabilities: ["+strings.Join(names, ", ")+"]}}")
	if got := p.Modes().Policy("m").AllowedClasses; *got != class.All() || len(names) != 13 || class.Count != 13 {
		t.Errorf("%v", got)
	}
	if _, mistakes := Parse([]byte("modes: {m: {allowed_capabilities: [Filesystem.read]}}")); len(mistakes) != 1 {
		t.Errorf("%v", mistakes)
	}
}

// Each key, alone, refuses what it is there to refuse.
func TestC081_EachKeyDeniesByItself(t *testing.T) {
	const open = "channels: {w: {access: {admission: open, default: {level: read}, groups: {enabled: true}}}}"
	for _, who := range []string{"w:x", "w:group/1/x"} {
		if !resolve(parsed(t, open), who, Facts{}).Admitted {
			t.Fatalf("%s is refused without any of them", who)
		}
	}
	for key, row := range map[string][2]string{
		"enabled":        {"channels: {w: {enabled: false, access: {admission: open, groups: {enabled: true}}}}", "w:x"},
		"admission":      {"channels: {w: {access: {admission: restricted}}}", "w:x"},
		"blocked":        {"channels: {w: {access: {admission: open, users: {x: {blocked: true}}}}}", "w:x"},
		"groups.enabled": {"channels: {w: {reply_in_groups: true, access: {groups: {enabled: false}}}}", "w:group/1/x"},
	} {
		if p, _ := Parse([]byte(row[0])); resolve(p, row[1], Facts{}).Admitted {
			t.Errorf("%s does not deny", key)
		}
	}
	for key, doc := range map[string]string{
		"level": "channels: {w: {default_mode: code, access: {users: {x: {level: chat}}}}}", "write": "channels: {w: {default_mode: code, access: {users: {x: {level: full, write: false}}}}}",
		"default_mode": "channels: {w: {default_mode: search, access: {users: {x: {level: full, write: true}}}}}", "default": "channels: {w: {default_mode: code, access: {admission: open, default: {level: read}}}}",
	} {
		p := parsed(t, doc)
		r := resolve(p, "w:x", Facts{})
		if got, any := p.reach(r); !r.Admitted || got.Has(class.FilesystemWrite) || any {
			t.Errorf("%s: %v, %v", key, got, any)
		}
	}
}

func TestMistakesAreBoundedAndShort(t *testing.T) {
	var b strings.Builder
	b.WriteString("channels:\n  w:\n    access:\n      users:\n")
	for i := range 500 {
		fmt.Fprintf(&b, "        \"bad %d %s\": {level: read}\n", i, strings.Repeat("\u202e", 100))
	}
	_, mistakes := Parse([]byte(b.String()))
	if len(mistakes) != maxMistakes+1 || !strings.Contains(mistakes[maxMistakes].String(), "400 more") {
		t.Errorf("%d mistakes, the last %v", len(mistakes), mistakes[len(mistakes)-1])
	}
	for _, m := range mistakes {
		if strings.Contains(m.Key, "\u202e") || len(m.Key) > 2000 {
			t.Errorf("%q", m.Key)
		}
	}
}

// A default_mode that is none denies whom it bounds, and nobody else: falling to search
// would give back what a narrower mode with a mistake in it had taken away.
func TestC8_ABrokenModeDeniesWhomItBounds(t *testing.T) {
	const narrow = "modes: {m: {whitelist_mode: true, allowed: [status]%s}}\nchannels:\n  w:\n    default_mode: m\n    owners: [boss]\n    allow: [x]\n    access: {admission: open, groups: {enabled: true}}\n  v: {allow: [x], reply_in_groups: true, access: {groups: {default_mode: m}}}\n"
	good, broken := parsed(t, fmt.Sprintf(narrow, "")), func() *Policy { p, _ := Parse(fmt.Appendf(nil, narrow, ", sorts: 1")); return p }()
	for who, want := range map[string][2]string{
		"w:x": {"user, no ceiling, m", "access_unavailable"}, "w:y": {"unknown, chat, m", "access_unavailable"}, "w:boss": {"owner, no ceiling, code", "owner, no ceiling, code, without programs"},
		"w:group/1/x": {"group, read, search", "group, read, search"}, "v:x": {"user, no ceiling, search", "user, no ceiling, search"}, "v:group/1/x": {"group, read, m", "access_unavailable"}, "v:y": {"principal_refused", "principal_refused"},
	} {
		if got := said(resolve(good, who, Facts{})); got != want[0] {
			t.Errorf("%s: %s, want %s", who, got, want[0])
		}
		if got := said(resolve(broken, who, Facts{})); got != want[1] {
			t.Errorf("%s with the mistake: %s, want %s", who, got, want[1])
		}
	}
}

// A block whose identity cannot be read keeps out everybody that nobody knows: one of
// them was meant. An entry that gives something gives it to nobody.
func TestAccess3_ABlockThatNamesNobodyLetsNoStrangerIn(t *testing.T) {
	for entry, want := range map[string]string{
		"{blocked: true}": "access_unavailable", "{blocked: perhaps}": "access_unavailable", "no": "access_unavailable", "{level: read}": "unknown, chat, search",
	} {
		p, mistakes := Parse([]byte("channels: {w: {access: {users: {\"+55 11 9999x\": " + entry + ", friend: {level: read}}, admission: open, default: {level: chat}}}}"))
		if got := said(resolve(p, "w:anybody", Facts{})); got != want || len(mistakes) == 0 {
			t.Errorf("%s: %s, want %s; %v", entry, got, want, mistakes)
		}
		if got := said(resolve(p, "w:friend", Facts{})); got != "user, read, search" {
			t.Errorf("%s: a known person: %s", entry, got)
		}
	}
}
