package access

import (
	"slices"
	"strings"
	"testing"
)

// C156: what is misspelt, or lies in the wrong section, at every level; and each denies
// whom it is about.
func TestAccess3_C156_UnknownKeysAtEveryLevel(t *testing.T) {
	p, mistakes := Parse([]byte(`chanels: {}
default_mode: code
modes:
  m: {alowed: [x], level: read}
channels:
  w:
    read_only: true
    alow: [x]
    users: {}
    access:
      admision: open
      allow: [y]
      users: {x: {levle: read}}
      default: {wirte: true}
      groups: {enabeld: true, '1': {role: owner}}
`))
	var told []string
	for _, m := range mistakes {
		told = append(told, m.String())
	}
	for _, want := range []string{
		"1: chanels: is not a key here; did you mean channels?", "2: default_mode: is not a key here; it belongs there: channels.*.access.groups.default_mode, channels.*.default_mode",
		"4: modes.m.alowed: is not a key here; did you mean allowed?", "4: modes.m.level: is not a key here; it belongs there: channels.*.access.default.level",
		"7: channels.w.read_only: is not a key here; want one of enabled, type", "8: channels.w.alow: is not a key here; did you mean allow?; until then nobody of the channel is admitted",
		"9: channels.w.users: is not a key here; it belongs there: channels.*.access.users", "11: channels.w.access.admision: is not a key here; did you mean admission?",
		"12: channels.w.access.allow: is not a key here; it belongs there: channels.*.allow", "13: channels.w.access.users.x.levle: is not a key here; did you mean level?",
		"14: channels.w.access.default.wirte: is not a key here; did you mean write?", "15: channels.w.access.groups.enabeld: is",
		"15: channels.w.access.groups.1.role: is not a key here; it belongs there: channels.*.access.users.*.role",
	} {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no %q in\n%s", want, strings.Join(told, "\n"))
		}
	}
	if r := resolve(p, "w:x", Facts{}); r.Admitted {
		t.Error("somebody is admitted by a document with misspelt keys")
	}
	// The hints know what is read, and only that.
	for section, keys := range sections {
		for _, k := range keys {
			doc := "x: {}"
			value := map[string]string{"modes": "{}", "channels": "{}", "enabled": "true", "type": "x", "default_mode": "code", "allow": "[]", "owners": "[]", "reply_in_groups": "true", "access": "{}",
				"admission": "open", "default": "{}", "users": "{}", "groups": "{}", "level": "read", "write": "true", "role": "owner", "blocked": "true",
				"allowed": "[a]", "denied": "[a]", "allowed_capabilities": "[]", "denied_capabilities": "[]", "no_tools": "true", "whitelist_mode": "true"}[k]
			doc = "{" + k + ": " + value + "}"
			for _, part := range reversed(strings.Split(section, ".")) {
				if part != "" {
					doc = "{" + strings.Replace(part, "*", "a1", 1) + ": " + doc + "}"
				}
			}
			if _, mistakes := Parse([]byte(doc)); slices.ContainsFunc(mistakes, func(m Mistake) bool { return strings.Contains(m.Want, "is not a key here") }) {
				t.Errorf("%s: %v", doc, mistakes)
			}
		}
	}
}

func reversed(s []string) []string { slices.Reverse(s); return s }

// A byte order mark would make another key of the first one: it is told by its name, it
// denies everyone, and nothing is edited behind it.
func TestAccess3_AByteOrderMarkDeniesByName(t *testing.T) {
	const doc = "channels:\n  w: {allow: [x]}\n"
	for mark, want := range map[string]string{"": "", "\ufeff": "of UTF-8", "\xff\xfe": "of UTF-16"} {
		p, mistakes := Parse([]byte(mark + doc))
		why, broken := p.Broken()
		if broken != (want != "") || !strings.Contains(why, want) || broken && (len(mistakes) != 1 || mistakes[0].Line != 1) {
			t.Errorf("%q: %v, %q, %v", mark, broken, why, mistakes)
		}
	}
}

// Whoever describes the document is given every section, and a table of their own.
func TestKeysAreACopy(t *testing.T) {
	keys := Keys()
	if len(keys) != len(sections) || !slices.Contains(keys["channels.*"], "access") {
		t.Fatal(keys)
	}
	delete(keys, "channels.*")
	if len(Keys()) != len(sections) || sections["channels.*"] == nil {
		t.Error("what is given is what is decoded by")
	}
}
