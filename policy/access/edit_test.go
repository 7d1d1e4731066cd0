package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/policy"
)

const house = `# The house's channels.
modes:   # custom
  docs: {whitelist_mode: true, allowed: [wiki/*]}

channels:
  # The phone.
  whatsapp:
    allow: [ "+5511999998888",
             "+5511988887777" ]   # older list

    access:
      users:
        # Ana, accounting
        "+55 11 96666-5555":
          level: read   # since May
          write: false
        +5511944443333: {role: owner}   # the boss
        'alice': {level: full}

      groups: {enabled: true, "120363@g.us": {level: read}}  # tail
    # nothing below

  sms: {default_mode: docs}
`

func edited(t *testing.T, doc string, m Mutation) (string, Change) {
	t.Helper()
	out, c, err := Edit([]byte(doc), m)
	if err != nil {
		t.Fatalf("%+v: %v", m, err)
	}
	return string(out), c
}

func TestAccess7_AnEditChangesItsLineAndNoOther(t *testing.T) {
	for _, row := range []struct {
		says, before, after string // lines taken out and put in, joined by newlines
		m                   Mutation
		was, is             string
	}{
		{"a level in a block keeps its comments", "          level: read   # since May\n          write: false", "          level: full   # since May\n          write: true",
			Mutation{Action: SetLevel, Channel: "whatsapp", Target: "+5511966665555", Level: Full, Write: true}, "level read, write off", "level full, write on"},
		{"a level in braces", "        'alice': {level: full}", "        'alice': {level: read, write: false}",
			Mutation{Action: SetPreset, Channel: "whatsapp", Target: "alice", Level: Read}, "level full, write off", "level read, write off"},
		{"a block", "        'alice': {level: full}", "        'alice': {blocked: true}", Mutation{Action: SetBlocked, Channel: "whatsapp", Target: "alice"}, "level full, write off", "blocked"},
		{"a new person", "", "        \"+5511900001111\": {level: chat, write: false}",
			Mutation{Action: SetLevel, Channel: "whatsapp", Target: "+55 11 90000-1111", Level: Chat}, "no entry", "level chat, write off"},
		{"one that the older list names", "", "        \"+5511999998888\": {level: read, write: true}",
			Mutation{Action: SetLevel, Channel: "whatsapp", Target: "+5511999998888", Level: Read, Write: true}, "allowed, no level", "level read, write on"},
		{"one that goes", "        'alice': {level: full}", "", Mutation{Action: RemoveUser, Channel: "whatsapp", Target: "alice"}, "level full, write off", "no entry"},
		{"an owner that goes", "        +5511944443333: {role: owner}   # the boss", "", Mutation{Action: RemoveUser, Channel: "whatsapp", Target: "+5511944443333"}, "owner", "no entry"},
		{"a role in the place of a block of lines", "        \"+55 11 96666-5555\":\n          level: read   # since May\n          write: false", "        \"+55 11 96666-5555\": {role: owner}",
			Mutation{Action: SetOwner, Channel: "whatsapp", Target: "+5511966665555"}, "level read, write off", "owner"},
		{"what nobody knows gets", "", "      default: {level: read, write: false}", Mutation{Action: SetDefault, Channel: "whatsapp", Level: Read}, "level chat, write off", "level read, write off"},
		{"admission", "", "      admission: open", Mutation{Action: SetAdmission, Channel: "whatsapp", Word: "open"}, "restricted", "open"},
		{"groups in braces become lines", "      groups: {enabled: true, \"120363@g.us\": {level: read}}  # tail", "      groups:  # tail\n        enabled: false\n        \"120363@g.us\": {level: read}",
			Mutation{Action: SetGroups, Channel: "whatsapp"}, "groups on", "groups off"},
		{"one group", "      groups: {enabled: true, \"120363@g.us\": {level: read}}  # tail", "      groups:  # tail\n        enabled: true\n        \"120363@g.us\": {level: full, write: true}",
			Mutation{Action: SetGroup, Channel: "whatsapp", Target: "120363@G.US", Level: Full, Write: true}, "level read, write off", "level full, write on"},
		{"other groups", "      groups: {enabled: true, \"120363@g.us\": {level: read}}  # tail", "      groups:  # tail\n        enabled: true\n        \"120363@g.us\": {level: read}\n        default: {level: chat, write: false}",
			Mutation{Action: SetGroupDefault, Channel: "whatsapp", Level: Chat}, "level read, write off", "level chat, write off"},
		{"a group that goes", "      groups: {enabled: true, \"120363@g.us\": {level: read}}  # tail", "      groups:  # tail\n        enabled: true",
			Mutation{Action: RemoveGroup, Channel: "whatsapp", Target: "120363@g.us"}, "level read, write off", "no entry"},
		{"a channel in braces", "  sms: {default_mode: docs}", "  sms:\n    default_mode: code", Mutation{Action: SetMode, Channel: "sms", Word: "code"}, "default mode docs", "default mode code"},
		{"a channel that is switched off", "  sms: {default_mode: docs}", "  sms:\n    default_mode: docs\n    enabled: false", Mutation{Action: SetEnabled, Channel: "sms"}, "on", "off"},
		{"a channel that is not there", "", "  telegram:\n    access:\n      users:\n        \"+123456789\": {level: read, write: false}",
			Mutation{Action: SetLevel, Channel: "telegram", Target: "123456789", Level: Read}, "channel not declared", "level read, write off"},
	} {
		got, c := edited(t, house, row.m)
		was, is := gone(house, got), gone(got, house)
		if was != row.before || is != row.after {
			t.Errorf("%s: took out\n%s\nput in\n%s\nwant\n%s\nand\n%s", row.says, was, is, row.before, row.after)
		}
		if c.Before != row.was || c.After != row.is {
			t.Errorf("%s: %+v, want %q, %q", row.says, c, row.was, row.is)
		}
	}
}

// gone lists the lines of a that b lacks, as often as it lacks them.
func gone(a, b string) string {
	left := strings.Split(b, "\n")
	var out []string
	for _, line := range strings.Split(a, "\n") {
		if i := slices.Index(left, line); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func TestAccess7_TheFirstEntriesOfAFile(t *testing.T) {
	m := Mutation{Action: SetLevel, Channel: "w", Target: "x", Level: Read}
	for doc, want := range map[string]string{
		"":                       "channels:\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"# nothing\n":            "# nothing\nchannels:\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"channels:\n":            "channels:\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"channels: {}  # none\n": "channels:  # none\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"channels: {w: {}}\n":    "channels:\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"channels:\n  w:\n    access: {users: {}}": "channels:\n  w:\n    access:\n      users:\n        x: {level: read, write: false}\n",
		"{channels: {w: {allow: [y]}}}\n":          "channels:\n  w:\n    allow: [\"y\"]\n    access:\n      users:\n        x: {level: read, write: false}\n",
	} {
		if got, _ := edited(t, doc, m); got != want {
			t.Errorf("%q becomes\n%s", doc, got)
		}
	}
	out, c, err := Edit(nil, m)
	if err != nil || !strings.HasPrefix(string(out), "# ") || !strings.HasSuffix(string(out), "x: {level: read, write: false}\n") || c.Before != "channel not declared" {
		t.Errorf("%s, %+v, %v", out, c, err)
	}
	if _, c := edited(t, "", Mutation{Action: SetOwner, Channel: Channel, Target: string(mine)}); len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "local is declared now") {
		t.Errorf("%+v", c)
	}
	if _, c := edited(t, "", Mutation{Action: SetLevel, Channel: "w", Target: "x", Level: Chat, Write: true}); c.After != "level chat, write off" || len(c.Warnings) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestC6_RefusedEditsWriteNothing(t *testing.T) {
	for _, row := range []struct {
		says string
		doc  string
		m    Mutation
		want string
	}{
		{"full for whom nobody knows", house, Mutation{Action: SetDefault, Channel: "whatsapp", Level: Full}, "full is never given"},
		{"with write, as developer is", house, Mutation{Action: SetDefault, Channel: "whatsapp", Level: Full, Write: true}, "full is never given"},
		{"a level for an owner", house, Mutation{Action: SetLevel, Channel: "whatsapp", Target: "+5511944443333", Level: Read}, "an owner has no level"},
		{"a preset for an owner", house, Mutation{Action: SetPreset, Channel: "whatsapp", Target: "+5511944443333", Level: Full, Write: true}, "an owner has no level"},
		{"and for one of the older list", "channels: {w: {owners: [x]}}", Mutation{Action: SetLevel, Channel: "w", Target: "x", Level: Read}, "an owner has no level"},
		{"nobody's identity", house, Mutation{Action: SetLevel, Channel: "whatsapp", Target: "*", Level: Read}, "no identity"},
		{"a look-alike", house, Mutation{Action: SetLevel, Channel: "whatsapp", Target: "\u0430lice", Level: Read}, "no identity"},
		{"no group", house, Mutation{Action: SetGroup, Channel: "whatsapp", Target: "enabled", Level: Read}, "no group"},
		{"a group of channel local", house, Mutation{Action: SetGroup, Channel: "local", Target: "1", Level: Read}, "has no groups"},
		{"a group that is not there", house, Mutation{Action: RemoveGroup, Channel: "whatsapp", Target: "7"}, "no entry"},
		{"a person that is not there", house, Mutation{Action: RemoveUser, Channel: "whatsapp", Target: "bob"}, "no entry"},
		{"a person of the older list", house, Mutation{Action: RemoveUser, Channel: "whatsapp", Target: "+5511999998888"}, "edited by hand"},
		{"a local name", house, Mutation{Action: SetLevel, Channel: "local", Target: "alice", Level: Read}, "want an account's id"},
		{"no channel", house, Mutation{Action: SetLevel, Channel: "What", Target: "alice", Level: Read}, "is no channel"},
		{"no mode", house, Mutation{Action: SetMode, Channel: "sms", Word: "auto"}, "no mode with a list"},
		{"no admission", house, Mutation{Action: SetAdmission, Channel: "sms", Word: "everybody"}, "want open or restricted"},
		{"no action", house, Mutation{Action: "everything", Channel: "sms"}, "is no action"},
		{"a broken file", "{", Mutation{Action: SetGroups, Channel: "w"}, "to be mended first"},
		{"an anchor on the way", "channels:\n  w: &a {allow: [x]}\n", Mutation{Action: SetLevel, Channel: "w", Target: "x", Level: Read}, "a form that is not edited here"},
		{"braces over lines with comments", "channels: {\n  # here\n  w: {allow: [x]}}\n", Mutation{Action: SetLevel, Channel: "w", Target: "x", Level: Read}, "a form that is not edited here"},
	} {
		if out, _, err := Edit([]byte(row.doc), row.m); err == nil || out != nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v\n%s", row.says, err, out)
		}
	}
	if _, _, err := Edit([]byte(house), Mutation{Action: SetGroupDefault, Channel: "whatsapp", Level: Full, Write: true}); err != nil {
		t.Errorf("groups take full too: %v", err)
	}
}

// Whatever is edited, nobody but the target becomes anything else, and what was read
// before is read the same.
func TestAccess7_NobodyButTheTargetChanges(t *testing.T) {
	people := []string{"ann", "bob", "+5511999998888", "eve"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("channels:\n  w:\n    owners: [ann]\n    access:\n")
		flow := rapid.Bool().Draw(t, "flow")
		var users []string
		for _, id := range people {
			if rapid.Bool().Draw(t, "has "+id) {
				users = append(users, fmt.Sprintf("%q: %s", id, rapid.SampledFrom([]string{"{level: read}", "{level: full, write: true}", "{blocked: true}", "{role: owner}", "{level: chat} # x"}).Draw(t, "entry")))
			}
		}
		switch {
		case len(users) == 0:
		case flow:
			fmt.Fprintf(&b, "      users: {%s}  # all\n", strings.ReplaceAll(strings.Join(users, ", "), " # x", ""))
		default:
			fmt.Fprintf(&b, "      users:\n        %s\n", strings.Join(users, "\n\n        "))
		}
		b.WriteString("      groups:\n        enabled: true\n\n  v:\n    allow: [zed]\n")
		doc := b.String()
		m := Mutation{Action: rapid.SampledFrom([]Action{SetLevel, SetOwner, SetBlocked, RemoveUser, SetGroup, SetGroupDefault, SetGroups, SetAdmission, SetEnabled}).Draw(t, "action"),
			Channel: "w", Target: rapid.SampledFrom(people).Draw(t, "target"), Level: Level(rapid.IntRange(1, 3).Draw(t, "level")), Write: rapid.Bool().Draw(t, "write"), Word: "open", On: rapid.Bool().Draw(t, "on")}
		if m.Action == SetGroup {
			m.Target = "7"
		}
		out, _, err := Edit([]byte(doc), m)
		if err != nil {
			return
		}
		before, _ := Parse([]byte(doc))
		after, mistakes := Parse(out)
		if len(mistakes) > 0 {
			t.Fatalf("%v in\n%s", mistakes, out)
		}
		one := m.Action == SetLevel || m.Action == SetOwner || m.Action == SetBlocked || m.Action == RemoveUser
		for _, who := range append(slices.Clone(people), "zed") {
			for _, channel := range []string{"w", "v"} {
				pr := Principal{Channel: channel, ID: who}
				if channel == "w" && (!one || who == m.Target) {
					continue
				}
				f := Facts{Profile: policy.ProfileStandard}
				if x, y := said(before.Resolve(pr, f)), said(after.Resolve(pr, f)); x != y {
					t.Fatalf("%+v: %s was %s and is %s\n%s\n%s", m, pr, x, y, doc, out)
				}
			}
		}
		for _, line := range strings.Split(doc, "\n") {
			if i := strings.Index(line, "#"); i >= 0 && m.Action != RemoveUser && !strings.Contains(line, m.Target) && !strings.Contains(string(out), line[i:]) {
				t.Fatalf("%+v lost the comment %q\n%s", m, line[i:], out)
			}
		}
	})
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(house), byte(0), "alice")
	f.Add([]byte("channels: {w: {access: {users: {x: {level: read}}}}}"), byte(5), "x")
	f.Add([]byte("{"), byte(1), "y")
	actions := []Action{SetLevel, SetPreset, SetOwner, SetBlocked, RemoveUser, SetDefault, SetAdmission, SetEnabled, SetMode, SetGroups, SetGroupDefault, SetGroup, RemoveGroup}
	f.Fuzz(func(t *testing.T, doc []byte, n byte, target string) {
		p, _ := Parse(doc)
		m := Mutation{Action: actions[int(n)%len(actions)], Channel: "w", Target: target, Level: Read, Word: "open"}
		out, _, err := Edit(doc, m)
		if err != nil {
			return
		}
		if _, broken := p.Broken(); broken {
			t.Fatalf("a broken document was edited:\n%s", doc)
		}
		if after, _ := Parse(out); after == nil || len(after.Mistakes()) > len(p.Mistakes()) {
			t.Fatalf("%v\n%s", after.Mistakes(), out)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(house))
	f.Add([]byte(whatsapp))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, mistakes := Parse(doc)
		_, broken := p.Broken()
		// Whatever the document is, nobody is admitted in a channel it does not declare.
		if r := p.Resolve(Principal{Channel: "nosuchchannel", ID: "x"}, Facts{Owner: true, Paired: true}); r.Admitted {
			t.Fatal("admitted where nothing is declared")
		}
		if broken && len(mistakes) == 0 {
			t.Fatal("broken without a reason")
		}
		for _, r := range p.Matrix(policy.ProfileStandard) {
			if broken && r.Admitted || r.Kind == Unknown && r.Level == Full {
				t.Fatalf("%+v", r)
			}
		}
	})
}
