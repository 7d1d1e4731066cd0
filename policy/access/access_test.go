package access

import (
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
)

var (
	mine  = ids.New[ids.Account](time.UnixMilli(1), [10]byte{1})
	other = ids.New[ids.Account](time.UnixMilli(1), [10]byte{2})
)

// read parses a document that has no mistake but those that warned says.
func parsed(t *testing.T, doc string) *Policy {
	t.Helper()
	p, mistakes := Parse([]byte(doc))
	for _, m := range mistakes {
		if !m.Warn {
			t.Fatalf("%v in\n%s", m, doc)
		}
	}
	return p
}

// resolve asks for a principal by its text; one that does not parse is refused.
func resolve(p *Policy, who string, f Facts) Resolved {
	pr, err := ParsePrincipal(who)
	if err != nil {
		return Resolved{Code: refusal.PrincipalRefused, From: Place{Key: err.Error()}}
	}
	if pr.Channel == Channel && f.Account == "" {
		f.Account = ids.Account(pr.ID)
	}
	return p.Resolve(pr, f)
}

// said is a resolved principal in a few words: kind, preset or level, floor.
func said(r Resolved) string {
	if !r.Admitted {
		return string(r.Code)
	}
	out := []string{r.Kind.String()}
	switch {
	case r.Level == NoLevel && r.Ceiling.Unlimited:
		out = append(out, "no ceiling")
	case r.Level != NoLevel:
		out = append(out, r.Ceiling.Name)
	default:
		out = append(out, "NO CEILING AND NO LEVEL")
	}
	out = append(out, r.Floor.Mode)
	if !r.Floor.Execute {
		out = append(out, "without programs")
	}
	return strings.Join(out, ", ")
}

func TestAccess1_WithoutAPolicyOnlyTheProjectsOwnerIsAdmitted(t *testing.T) {
	r := (*Policy)(nil).Resolve(Principal{Channel: Channel, ID: string(mine)}, Facts{Account: mine, Owner: true, Profile: policy.ProfileStandard})
	if said(r) != "owner, no ceiling, code, without programs" {
		t.Errorf("the owner: %s", said(r))
	}
	if r := resolve(nil, Local(mine), Facts{Owner: true, Profile: policy.ProfileIsolatedPod}); said(r) != "owner, no ceiling, code" {
		t.Errorf("the owner of an isolated pod: %s", said(r))
	}
	if r := resolve(nil, Local(mine), Facts{}); r.Admitted || r.Code != refusal.PrincipalRefused {
		t.Errorf("a member: %s", said(r))
	}
	if r := resolve(nil, Local(other), Facts{Account: mine, Owner: true}); r.Admitted {
		t.Errorf("another account: %s", said(r))
	}
	for _, who := range []string{"", "local", "local:", "local:*", "*", "Local:" + string(mine), "local:" + string(mine) + " ", "whatsapp:+5511999998888", string(mine), "local:group/1/" + string(mine)} {
		if r := resolve(nil, who, Facts{Account: mine, Owner: true}); r.Admitted || r.Code != refusal.PrincipalRefused {
			t.Errorf("%q: %s", who, said(r))
		}
	}
	if r := (*Policy)(nil).Resolve(Principal{Channel: Channel}, Facts{Owner: true}); r.Admitted {
		t.Error("no account is a principal")
	}
	if r := resolve(nil, Local(mine), Facts{Account: mine, Owner: true}); r.Code != "" || !r.Ceiling.Unlimited {
		t.Errorf("the owner: %s", said(r))
	}
	if r := resolve(nil, "nobody", Facts{Account: mine, Owner: true}); r.Code != refusal.PrincipalRefused {
		t.Errorf("nobody: %s", said(r))
	}
}

func TestAccess2_TheZeroValuesReachNothing(t *testing.T) {
	if (Ceiling{}).Answer("fs", "x", class.Read()) == policy.Allowed {
		t.Fatal("the zero ceiling reaches a tool")
	}
	if r := (Resolved{}); r.Admitted || r.Kind != Stranger || r.Ceiling.Answer("fs", "x", class.Read()) == policy.Allowed || (policy.Modes{}).Within(policy.ModeSearch, r.Floor) {
		t.Fatal("the zero answer admits")
	}
	if r := (&Policy{}).Resolve(Principal{Channel: "sms", ID: "+5511999998888"}, Facts{}); r.Admitted {
		t.Fatal("the zero policy admits")
	}
	if CeilingOf(NoLevel, true) != (Ceiling{}) || CeilingOf(9, true) != (Ceiling{}) || !(Ceiling{Unlimited: true}).Unlimited {
		t.Fatal("no level has a ceiling that reaches something")
	}
	if Kind(99).String() != "stranger" || Level(99).String() != "" {
		t.Error("what is none has a name")
	}
}

const whatsapp = `
channels:
  whatsapp:
    allow: ["+5511999998888", "+5511966665555"]
    owners: ["+5511977776666"]
    reply_in_groups: true
    access:
      admission: open
      default: {level: chat}
      users:
        "+5511966665555": {level: read, write: true}
        "+5511955554444": {blocked: true}
        +5511944443333: {role: owner}
        "alice@example.org": {level: full}
      groups:
        enabled: true
        default: {level: chat}
        "120363@g.us": {level: full, write: true}
  sms:
    default_mode: code
    access: {users: {"+5511999998888": {level: full, write: true}}}
  local:
    default_mode: search
    access:
      users:
        ` + "%mine%" + `: {level: read}
`

func TestC7_Principals(t *testing.T) {
	p := parsed(t, strings.ReplaceAll(whatsapp, "%mine%", string(mine)))
	for _, row := range []struct{ says, who, want string }{
		{"legacy allow has no ceiling", "whatsapp:+5511999998888", "user, no ceiling, search"},
		{"a number in another writing is the same person", "whatsapp:+55 (11) 99999-8888", "user, no ceiling, search"},
		{"and without the plus", "whatsapp:5511999998888", "user, no ceiling, search"},
		{"and as the protocol names it", "whatsapp:5511999998888@s.whatsapp.net", "user, no ceiling, search"},
		{"access.users wins over allow", "whatsapp:+5511966665555", "user, read with write, search"},
		{"a legacy owner", "whatsapp:+5511977776666", "owner, no ceiling, code, without programs"},
		{"an owner by role, its number not quoted", "whatsapp:+5511944443333", "owner, no ceiling, code, without programs"},
		{"blocked beats an open channel", "whatsapp:+5511955554444", "principal_blocked"},
		{"in every writing", "whatsapp:55 11 95555.4444", "principal_blocked"},
		{"whom nobody knows", "whatsapp:+5511900001111", "unknown, chat, search"},
		{"an identity that is no number", "whatsapp:alice@example.org", "user, full without write, search"},
		{"with another case it is another", "whatsapp:Alice@example.org", "unknown, chat, search"},
		{"a declared group", "whatsapp:group/120363@g.us/+5511900001111", "group, full, search"},
		{"an owner gets the group's reach there", "whatsapp:group/120363@G.US/+5511977776666", "group, full, search"},
		{"another group", "whatsapp:group/120364@g.us/+5511977776666", "group, chat, search"},
		{"somebody blocked in a group", "whatsapp:group/120363@g.us/+5511955554444", "principal_blocked"},
		{"a user of a restricted channel", "sms:+5511999998888", "user, full, code"},
		{"a stranger", "sms:+5511977776666", "principal_refused"},
		{"a group where groups are off", "sms:group/1@g/+5511999998888", "principal_refused"},
		{"a channel that is not declared", "telegram:12345678", "principal_refused"},
		{"a declared local channel", Local(mine), "user, read, search"},
		{"an account it does not name", Local(other), "principal_refused"},
	} {
		if got := said(resolve(p, row.who, Facts{Owner: true, Profile: policy.ProfileStandard})); got != row.want {
			t.Errorf("%s: %s is %s, want %s", row.says, row.who, got, row.want)
		}
	}
	if got := said(resolve(p, "whatsapp:+5511977776666", Facts{Profile: policy.ProfileIsolatedPod})); got != "owner, no ceiling, code" {
		t.Errorf("an owner in an isolated pod: %s", got)
	}
	for who, want := range map[string]string{"sms:+5511977776666": "paired, read, code", "sms:+5511999998888": "user, full, code", "whatsapp:+5511955554444": "principal_blocked"} {
		if got := said(resolve(p, who, Facts{Paired: true})); got != want {
			t.Errorf("%s with a code: %s, want %s", who, got, want)
		}
	}
}

// The rows of the older file that must go on meaning what they meant.
func TestC7_CompatibilityWithTheOlderKeys(t *testing.T) {
	for _, row := range []struct{ says, doc, who, want, warn string }{
		{"allow", "channels: {w: {allow: [+5511999998888]}}", "w:+5511999998888", "user, no ceiling, search", ""},
		{"allow of another", "channels: {w: {allow: [+5511999998888]}}", "w:+5511999998887", "principal_refused", ""},
		{"owners", "channels: {w: {owners: [+5511999998888]}}", "w:+5511999998888", "owner, no ceiling, code, without programs", ""},
		{"owner and allowed", "channels: {w: {owners: [+5511999998888], allow: [+5511999998888]}}", "w:+5511999998888", "owner, no ceiling, code, without programs", ""},
		{"reply_in_groups", "channels: {w: {reply_in_groups: true}}", "w:group/1/x", "group, no ceiling, search", ""},
		{"reply_in_groups off", "channels: {w: {reply_in_groups: false}}", "w:group/1/x", "principal_refused", ""},
		{"neither", "channels: {w: {}}", "w:group/1/x", "principal_refused", ""},
		{"groups.enabled alone", "channels: {w: {access: {groups: {enabled: true}}}}", "w:group/1/x", "group, read, search", ""},
		{"groups.enabled wins as true", "channels: {w: {reply_in_groups: false, access: {groups: {enabled: true}}}}", "w:group/1/x", "group, read, search", ""},
		{"groups.enabled wins as false", "channels: {w: {reply_in_groups: true, access: {groups: {enabled: false}}}}", "w:group/1/x", "principal_refused", "false here wins"},
		{"groups without enabled leave the older key", "channels: {w: {reply_in_groups: true, access: {groups: {'1': {level: full}}}}}", "w:group/1/x", "group, full without write, search", ""},
		{"and its default", "channels: {w: {reply_in_groups: true, access: {groups: {default: {}}}}}", "w:group/1/x", "group, read, search", ""},
		{"access without groups", "channels: {w: {reply_in_groups: true, access: {admission: restricted}}}", "w:group/1/x", "group, no ceiling, search", ""},
		{"access.users over owners", "channels: {w: {owners: [+5511999998888], access: {users: {+5511999998888: {level: chat}}}}}", "w:+5511999998888", "user, chat, search", ""},
		{"access.users blocks an owner", "channels: {w: {owners: [+5511999998888], access: {users: {+5511999998888: {blocked: true}}}}}", "w:+5511999998888", "principal_blocked", ""},
		{"open is never full", "channels: {w: {access: {admission: open}}}", "w:x", "unknown, chat, search", ""},
		{"the default of a restricted channel", "channels: {w: {access: {default: {level: read}}}}", "w:x", "principal_refused", ""},
		{"chat with write is chat", "channels: {w: {access: {users: {x: {level: chat, write: true}}}}}", "w:x", "user, chat, search", "write means nothing"},
		{"enabled false admits nobody", "channels: {w: {enabled: false, owners: [x], allow: [y], access: {admission: open}}}", "w:x", "principal_refused", ""},
		{"enabled true is the default", "channels: {w: {enabled: true, owners: [x], type: whatsapp_linked}}", "w:x", "owner, no ceiling, code, without programs", ""},
		{"a group's own widest mode", "channels: {w: {default_mode: code, access: {groups: {enabled: true, default_mode: search}}}}", "w:group/1/x", "group, read, search", ""},
		{"which the channel's does not set", "channels: {w: {default_mode: code, access: {groups: {enabled: true}}}}", "w:group/1/x", "group, read, search", ""},
		{"an empty document declares nothing", "", "w:x", "principal_refused", ""},
	} {
		p, mistakes := Parse([]byte(row.doc))
		var warned []string
		for _, m := range mistakes {
			warned = append(warned, m.String())
		}
		if row.warn == "" && len(warned) > 0 || row.warn != "" && (len(warned) != 1 || !strings.Contains(warned[0], row.warn) || !mistakes[0].Warn) {
			t.Errorf("%s: warned %q", row.says, warned)
		}
		if got := said(resolve(p, row.who, Facts{Profile: policy.ProfileStandard})); got != row.want {
			t.Errorf("%s: %s, want %s", row.says, got, row.want)
		}
	}
}

func TestC12_Floors(t *testing.T) {
	for _, row := range []struct{ says, doc, who, profile, want string }{
		{"search for whom the operator sets nothing", "channels: {w: {allow: [x]}}", "w:x", policy.ProfileIsolatedPod, "user, no ceiling, search"},
		{"what the operator sets", "channels: {w: {default_mode: code, allow: [x]}}", "w:x", policy.ProfileStandard, "user, no ceiling, code"},
		{"a custom mode", "modes: {docs: {whitelist_mode: true, allowed: [wiki/*]}}\nchannels: {w: {default_mode: docs, allow: [x]}}", "w:x", policy.ProfileStandard, "user, no ceiling, docs"},
		{"code for an owner", "channels: {w: {owners: [x]}}", "w:x", policy.ProfileStandard, "owner, no ceiling, code, without programs"},
		{"with programs in an isolated pod", "channels: {w: {owners: [x]}}", "w:x", policy.ProfileIsolatedPod, "owner, no ceiling, code"},
		{"or as the operator set", "channels: {w: {default_mode: code, owners: [x]}}", "w:x", policy.ProfileStandard, "owner, no ceiling, code"},
		{"search set does not narrow an owner", "channels: {w: {default_mode: search, owners: [x]}}", "w:x", policy.ProfileStandard, "owner, no ceiling, code, without programs"},
	} {
		if got := said(resolve(parsed(t, row.doc), row.who, Facts{Profile: row.profile})); got != row.want {
			t.Errorf("%s: %s, want %s", row.says, got, row.want)
		}
	}
	p, mistakes := Parse([]byte("modes: {search: {no_tools: true}, docs: {whitelist_mode: true}, both: {allowed: [a, '*'], sorts: 1}, Loud: {}}\nchannels: {w: {default_mode: docs, allow: [x]}, v: {default_mode: auto, allow: [x]}}"))
	// The mode that was meant may have been narrower than search.
	if got := said(resolve(p, "w:x", Facts{})); got != "access_unavailable" || p.Modes().Known("docs") || p.Modes().Known("both") {
		t.Errorf("a mode with a mistake: %s", got)
	}
	if len(mistakes) != 8 {
		t.Errorf("%d mistakes: %v", len(mistakes), mistakes)
	}
}

func TestAccess3_OneWrongEntryDeniesThatEntryAlone(t *testing.T) {
	const doc = `channels:
  w:
    allow: ["+5511911112222", "55119 x", "+5511933334444"]
    access:
      admission: open
      default: {level: chat}
      users:
        "+5511955556666": {level: raed}
        "+5511977778888": {level: read}
        "+5511977779999": {level: read, wirte: false}
        "+5511911113333": {role: owner, level: full}
        "+5511911114444": {role: admin}
        "+5511911115555": {}
        "+5511911116666": {level: read}
        "55 11 91111-6666": {level: full}
        "*": {level: full}
        "+5511911117777": full
        "+5511911118888": {blocked: perhaps}
        "+5511933334444": {level: [read]}
      groups:
        enabled: true
        "1@g.us": {level: everything}
        "2@g.us": {level: read}
        "3@g.us": {}
`
	p, mistakes := Parse([]byte(doc))
	if _, broken := p.Broken(); broken {
		t.Fatal("the document is broken")
	}
	for who, want := range map[string]string{
		"w:+5511911112222": "user, no ceiling, search", "w:+5511933334444": "access_unavailable",
		"w:+5511955556666": "access_unavailable", "w:+5511977778888": "user, read, search", "w:+5511977779999": "access_unavailable",
		"w:+5511911113333": "access_unavailable", "w:+5511911114444": "access_unavailable", "w:+5511911115555": "access_unavailable",
		"w:+5511911116666": "access_unavailable", "w:*": "principal_refused", "w:+5511911117777": "access_unavailable", "w:+5511911118888": "principal_blocked",
		"w:+5511900000000": "unknown, chat, search",
		"w:group/1@g.us/x": "access_unavailable", "w:group/2@g.us/x": "group, read, search", "w:group/3@g.us/x": "access_unavailable", "w:group/4@g.us/x": "group, read, search",
	} {
		if got := said(resolve(p, who, Facts{})); got != want {
			t.Errorf("%s: %s, want %s", who, got, want)
		}
	}
	for _, want := range []string{
		`3: channels.w.allow[1]: "55119 x"`, "8: channels.w.access.users.+5511955556666.level: want chat, read or full", "10: channels.w.access.users.+5511977779999.wirte: is not a key here",
		"11: channels.w.access.users.+5511911113333: an owner has no level", "12: channels.w.access.users.+5511911114444.role: want owner",
		"15: channels.w.access.users.55 11 91111-6666: is the identity of another entry too", "16: channels.w.access.users.*: ", "17: channels.w.access.users.+5511911117777: want a mapping",
		"22: channels.w.access.groups.1@g.us.level: want chat",
	} {
		if !strings.Contains(lines(mistakes), want) {
			t.Errorf("no %q in\n%s", want, lines(mistakes))
		}
	}
}

func lines(ms []Mistake) string {
	var out strings.Builder
	for _, m := range ms {
		out.WriteString(m.String() + "\n")
	}
	return out.String()
}

// A key that may be a misspelt restriction denies all that it could have restricted.
func TestC8_WhatCannotBeReadDeniesWhomItGoverns(t *testing.T) {
	const rest = "  v: {allow: [y]}\n"
	for says, row := range map[string]struct{ doc, x, y string }{
		"a channel's key":              {"channels:\n  w: {allow: [x], acess: {admission: restricted}}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"a key of access":              {"channels:\n  w: {allow: [x], access: {user: {x: {blocked: true}}}}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"a channel that is no mapping": {"channels:\n  w: yes\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"a key twice":                  {"channels:\n  w: {allow: [x], enabled: true, enabled: false}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"enabled that is no truth":     {"channels:\n  w: {allow: [x], enabled: \"no\"}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"users that are a list":        {"channels:\n  w: {allow: [x], access: {users: [x]}}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"an alias":                     {"channels:\n  w: &w {allow: [x]}\n" + rest, "access_unavailable", "user, no ceiling, search"},
		"a channel twice":              {"channels:\n  w: {allow: [x]}\n  w: {}\n" + rest, "access_unavailable", "access_unavailable"},
		"a channel's bad name":         {"channels:\n  w: {allow: [x]}\n  W!: {}\n" + rest, "access_unavailable", "access_unavailable"},
		"a key of the document":        {"chanels: {}\nchannels:\n  w: {allow: [x]}\n" + rest, "access_unavailable", "access_unavailable"},
		"its twin":                     {"channels:\n  w: {allow: [x]}\n" + rest, "user, no ceiling, search", "user, no ceiling, search"},
	} {
		p, mistakes := Parse([]byte(row.doc))
		if x, y := said(resolve(p, "w:x", Facts{})), said(resolve(p, "v:y", Facts{})); x != row.x || y != row.y || (x == "access_unavailable") != (len(mistakes) > 0) {
			t.Errorf("%s: x %s, y %s, %s", says, x, y, lines(mistakes))
		}
	}
	for says, groups := range map[string]string{
		"a misspelt key of groups": "{enabeld: false}", "groups that are a list": "[1]", "a group that is a word": "{enabled: true, '1': read}", "enabled twice": "{enabled: true, enabled: true}",
		"enabled that is no truth": "{enabled: 1}", "a default that is not known": "{enabled: true, default: {level: all}}",
	} {
		p, _ := Parse([]byte("channels: {w: {reply_in_groups: true, allow: [x], access: {groups: " + groups + "}}}"))
		want := "access_unavailable"
		who := "w:group/1/x"
		if got := said(resolve(p, who, Facts{})); got != want || said(resolve(p, "w:x", Facts{})) != "user, no ceiling, search" {
			t.Errorf("%s: %s", says, got)
		}
	}
	if p, _ := Parse([]byte("channels: {local: {owners: [" + string(mine) + "], access: {groups: {enabled: true}}}}")); !resolve(p, Local(mine), Facts{}).Admitted || len(p.Mistakes()) != 1 {
		t.Errorf("groups of channel local: %v", p.Mistakes())
	}
	if p, _ := Parse([]byte("channels: {w: {access: {admission: open, default: {level: full}}, allow: [x]}}")); resolve(p, "w:y", Facts{}).Code != refusal.AccessUnavailable || !resolve(p, "w:x", Facts{}).Admitted {
		t.Error("full for whom nobody knows")
	}
	if p, _ := Parse([]byte("channels: {w: {access: {admission: everybody}, allow: [x]}}")); resolve(p, "w:y", Facts{}).Admitted || !resolve(p, "w:x", Facts{}).Admitted {
		t.Error("an unknown admission is open")
	}
}

func TestAccess4_ADocumentThatCannotBeReadDeniesEveryone(t *testing.T) {
	if p := parsed(t, "channels: {w: {allow: [x]}}"); !resolve(p, "w:x", Facts{}).Admitted {
		t.Fatal("the document in order admits nobody")
	}
	for says, doc := range map[string]string{
		"C104 a brace": "{", "C104 a list": "- x", "C104 a word": "channels", "C104 channels that are a list": "channels: [w]", "a bad indent": "channels:\n  w:\n allow: [x]\n   y: 1",
		"two documents": "channels: {w: {allow: [x]}}\n---\nchannels: {}\n", "a tag": "!!map {channels: {}}", "an anchor": "&a {channels: {w: {allow: [x]}}}",
		"too long": "channels: {w: {allow: [x]}}\n#" + strings.Repeat("x", MaxDocument), "no text": "\x00\x01\x02", "a tab": "channels:\n\tw: {allow: [x]}",
	} {
		p, mistakes := Parse([]byte(doc))
		why, broken := p.Broken()
		if !broken || why == "" || len(mistakes) == 0 {
			t.Errorf("%s: broken %v, %q, %v", says, broken, why, mistakes)
		}
		for _, who := range []string{"w:x", Local(mine), "w:group/1/x"} {
			if r := resolve(p, who, Facts{Owner: true, Paired: true}); r.Admitted || r.Code != refusal.AccessUnavailable || r.From.String() == "" {
				t.Errorf("%s: %s is %s", says, who, said(r))
			}
		}
	}
	p := Unreadable(Mistake{Want: "permission denied"})
	if r := resolve(p, Local(mine), Facts{Owner: true}); r.Code != refusal.AccessUnavailable || !strings.Contains(r.From.String(), "permission denied") {
		t.Errorf("%+v", r)
	}
	if why, broken := (*Policy)(nil).Broken(); broken || why != "" || (*Policy)(nil).Mistakes() != nil {
		t.Error("no document is a broken one")
	}
	if got := p.Matrix(policy.ProfileStandard); len(got) != 1 || got[0].Admitted || got[0].Code != refusal.AccessUnavailable {
		t.Errorf("%+v", got)
	}
}

func TestAccess5_C085_AnIdentityHasOneSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"+5511999998888": "+5511999998888", "+55 11 99999-8888": "+5511999998888", "(55) 11.99999.8888": "+5511999998888", "5511999998888@s.whatsapp.net": "+5511999998888",
		"5511999998888@c.us": "+5511999998888", "123456": "123456", "1234567": "+1234567", "U012AB3CD": "U012AB3CD", "alice": "alice", "a.b_c-d@e": "a.b_c-d@e", "-": "-",
	} {
		got, err := NormalID(in)
		if err != nil || got != want {
			t.Errorf("%q is %q, %v", in, got, err)
		}
		if again, err := NormalID(got); err != nil || again != got {
			t.Errorf("%q is %q the second time", got, again)
		}
	}
	for _, in := range []string{
		"", "*", "+", "+123", "+0511999998888", "0119999988", "+5511999998888000", "++5511999998888", "+55a1199999", "+5511\u0669999998888", "\uff0b5511999998888", "+5511\u200b999998888", "\u202e+5511999998888",
		"re\u0430d", "alice\u200b", "\ufeffalice", "\u202eecila", "\uff41lice", "alice smith", "alice/bob", "alice:1", "al\x00ice", "x@s.whatsapp.net", "12:3@s.whatsapp.net", "@c.us", strings.Repeat("a", MaxIdentity+1), "a\tb", "a\nb", "é",
	} {
		if got, err := NormalID(in); err == nil {
			t.Errorf("%q passes as %q", in, got)
		}
	}
	for in, want := range map[string]string{"120363@g.us": "120363@g.us", "120363@G.US": "120363@g.us", "-100123": "-100123", "C012AB": "c012ab"} {
		if got, err := NormalGroup(in); err != nil || got != want {
			t.Errorf("group %q is %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "*", "enabeld", "1 2", "1/2", "\u0661", "1\u200b", "g:1", strings.Repeat("1", MaxIdentity+1)} {
		if got, err := NormalGroup(in); err == nil {
			t.Errorf("group %q passes as %q", in, got)
		}
	}
	for _, s := range []string{"whatsapp:+5511999998888", "w:group/120363@g.us/alice", Local(mine)} {
		if p, err := ParsePrincipal(s); err != nil || p.String() != s {
			t.Errorf("%q is %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"whatsapp", ":x", "w:", "w:group/", "w:group/1", "w:group/1/", "w:group//x", "w:group/1/*", "W:x", "w w:x", "1w:x", "whats\u0430pp:x", strings.Repeat("w", MaxChannel+1) + ":x", "local:alice"} {
		if p, err := ParsePrincipal(s); err == nil {
			t.Errorf("%q is %+v", s, p)
		}
	}
	for in, want := range map[string]string{"+5511999998888": "+55…88", "alice": "…", "": "…"} {
		if got := Mask(in); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestAccess6_AdmittingAllocatesNothing(t *testing.T) {
	p := parsed(t, strings.ReplaceAll(whatsapp, "%mine%", string(mine)))
	f := Facts{Account: mine, Owner: true, Profile: policy.ProfileStandard}
	for _, s := range []string{"whatsapp:+5511966665555", "whatsapp:group/120363@g.us/+5511977776666", "whatsapp:+5511977776666", Local(mine)} {
		if n := testing.AllocsPerRun(100, func() {
			who, err := ParsePrincipal(s)
			if r := p.Resolve(who, f); err != nil || !r.Admitted || r.Ceiling.Answer("fs", "read_file", class.SetOf(class.FilesystemRead)) != policy.Allowed {
				t.Fatal("not admitted")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", s, n)
		}
	}
}
