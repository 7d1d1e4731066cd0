package access

import (
	"testing"

	"postern/policy"
	"postern/refusal"
)

// Being paired gives read and nothing else gives less or more of it; whatever the
// document says of somebody wins.
func TestC7_PairedIsReadAlwaysAndLast(t *testing.T) {
	for doc, want := range map[string]string{
		"{}":                   "paired, read, search",
		"{default_mode: code}": "paired, read, code",
		"{access: {admission: open, default: {level: chat}}}":              "paired, read, search",
		"{access: {admission: open, default: {level: read, write: true}}}": "paired, read, search",
		"{access: {users: {x: {level: chat}}}}":                            "user, chat, search",
		"{access: {users: {x: {level: full, write: true}}}}":               "user, full, search",
		"{allow: [x]}": "user, no ceiling, search",
		"{access: {users: {X: {blocked: true}}}}":   string(refusal.PrincipalBlocked),
		"{enabled: false}":                          string(refusal.PrincipalRefused),
		"{enabled: no idea}":                        string(refusal.AccessUnavailable),
		"{default_mode: nonsense}":                  string(refusal.AccessUnavailable),
		"{access: {users: {x: {level: nonsense}}}}": string(refusal.AccessUnavailable),
	} {
		p, _ := Parse([]byte("channels: {w: " + doc + "}"))
		if got := said(p.Resolve(Principal{Channel: "w", ID: "x"}, Facts{Paired: true})); got != want {
			t.Errorf("%s: %s, want %s", doc, got, want)
		}
		if got := said(p.Pairs(Principal{Channel: "w", ID: "x"})); got != want {
			t.Errorf("%s: a code would give %s, want %s", doc, got, want)
		}
	}
	p, _ := Parse([]byte("channels: {w: {}}"))
	if got := p.Pairs(Principal{Channel: "w"}); !got.Admitted || got.Kind != Paired || got.Floor.Mode != policy.ModeSearch {
		t.Errorf("whom nobody names: %+v", got)
	}
	for _, none := range []*Policy{p, nil} {
		if got := none.Pairs(Principal{Channel: "v"}); got.Admitted || got.Code != refusal.PrincipalRefused {
			t.Errorf("a channel that is not declared: %+v", got)
		}
	}
}

// Whom an unreadable block was to keep out is not known, so it may be the paired one.
func TestAccess3_AnUnreadableBlockKeepsThePairedOutToo(t *testing.T) {
	p, mistakes := Parse([]byte("channels: {w: {access: {users: {\"Ann\u200b\": {blocked: true}, ben: {level: read}}}}}"))
	if len(mistakes) == 0 {
		t.Fatal("no mistake")
	}
	if got := p.Pairs(Principal{Channel: "w", ID: "ann"}); got.Code != refusal.AccessUnavailable {
		t.Errorf("%+v", got)
	}
	if got := p.Resolve(Principal{Channel: "w", ID: "ben"}, Facts{Paired: true}); !got.Admitted {
		t.Errorf("whom the document names: %+v", got)
	}
}

// A denial is listed with its place, for whoever knows which tools there are.
func TestDenialsAreListedWithTheirPlace(t *testing.T) {
	p, _ := Parse([]byte("modes:\n  quiet:\n    whitelist_mode: true\n    allowed: [a]\n    denied: [purge_all, db/*]\nchannels: {}\n"))
	got := p.Denials()
	if len(got) != 2 || got[0] != (Denial{Place{5, "modes.quiet.denied[0]"}, "purge_all"}) || got[1].Pattern != "db/*" {
		t.Errorf("%+v", got)
	}
	if (*Policy)(nil).Denials() != nil {
		t.Error("without a document something is denied by name")
	}
}
