package token

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postern/ids"
	"postern/refusal"
)

func TestToken1_ParseAcceptsWhatNewMakesAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r [32]byte
		copy(r[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "random"))
		tok := New(r)
		text := tok.Secret()
		got, err := Parse(text)
		if err != nil || got != tok || !got.Digest().Equal(tok.Digest()) || len(text) != Len {
			t.Fatalf("%v, %v", got, err)
		}
		b := []byte(text)
		i := rapid.IntRange(0, Len-1).Draw(t, "position")
		b[i] = rapid.Byte().Draw(t, "byte")
		if other, err := Parse(string(b)); err == nil && string(b) != text && (other == tok || other.Secret() != string(b)) {
			t.Fatalf("two texts for one token: %q", b)
		}
	})
	good := New([32]byte{1}).Secret()
	for _, text := range []string{"", "ptk_", good[4:], good + "=", good[:Len-1], " " + good, "PTK_" + good[4:], good[:Len-1] + "\n", good[:Len-1] + "B", strings.Repeat("p", 1<<20)} {
		if _, err := Parse(text); err == nil {
			t.Errorf("accepted %.60q", text)
		} else if text != "" && len(text) < 100 && strings.Contains(err.Error(), text) {
			t.Errorf("the error repeats %q", text)
		}
	}
}

func TestToken2_NeverPrinted(t *testing.T) {
	tok := New([32]byte{1, 2, 3})
	secret := tok.Secret()
	raw, err := json.Marshal(map[string]any{"token": tok, "pointer": &tok})
	if err != nil {
		t.Fatal(err)
	}
	shown := string(raw) + tok.String() + fmt.Sprint(tok, &tok, []Token{tok}, struct{ T Token }{tok})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown += fmt.Sprintf(verb, tok) + fmt.Sprintf(verb, &tok)
	}
	for _, part := range []string{secret, secret[4:], "010203", "1 2 3", "[1, 2"} {
		if strings.Contains(shown, part) {
			t.Errorf("%q is shown in %s", part, shown)
		}
	}
}

func TestToken3_ATokenWorksForWhatItWasMintedForAlone(t *testing.T) {
	task, project, other := ids.New[ids.Task](time.UnixMilli(1), [10]byte{}), ids.New[ids.Project](time.UnixMilli(1), [10]byte{1}), ids.New[ids.Project](time.UnixMilli(1), [10]byte{2})
	wall := time.UnixMilli(1_790_000_000_000)
	minted := Instant{Wall: wall, Boot: time.Hour, ID: "this boot"}
	later := func(d time.Duration) Instant { return Instant{wall.Add(d), time.Hour + d, "this boot"} }
	binding := func(change func(*Binding)) *Binding {
		b := Binding{Task: task, Project: project, UID: 1000, Binds: 1, Minted: minted, TTL: DefaultTTL}
		if change != nil {
			change(&b)
		}
		return &b
	}
	for _, row := range []struct {
		says    string
		b       *Binding
		uid     uint32
		project ids.Project
		now     Instant
		want    refusal.Code
	}{
		{"at once", binding(nil), 1000, project, minted, ""},
		{"in the last moment", binding(nil), 1000, project, later(DefaultTTL - time.Nanosecond), ""},
		{"the second of two binds", binding(func(b *Binding) { b.Binds, b.Used = 2, 1 }), 1000, project, later(1), ""},
		{"an unknown token", nil, 1000, project, minted, refusal.TokenInvalid},
		{"another user", binding(nil), 1001, project, minted, refusal.TokenWrongUID},
		{"root", binding(nil), 0, project, minted, refusal.TokenWrongUID},
		{"another project", binding(nil), 1000, other, minted, refusal.TokenInvalid},
		{"no project", binding(func(b *Binding) { b.Project = "" }), 1000, "", minted, refusal.TokenInvalid},
		{"one second late", binding(nil), 1000, project, later(DefaultTTL + time.Second), refusal.TokenExpired},
		{"on the dot", binding(nil), 1000, project, later(DefaultTTL), refusal.TokenExpired},
		{"late by the boot clock, with the wall clock set back", binding(nil), 1000, project, Instant{wall, time.Hour + DefaultTTL, "this boot"}, refusal.TokenExpired},
		{"late by the wall clock alone", binding(nil), 1000, project, Instant{wall.Add(DefaultTTL), time.Hour, "this boot"}, refusal.TokenExpired},
		{"after a reboot", binding(nil), 1000, project, Instant{wall.Add(time.Second), time.Minute, "next boot"}, refusal.TokenExpired},
		{"before it was minted", binding(nil), 1000, project, Instant{wall, time.Minute, "this boot"}, refusal.TokenExpired},
		{"at an unknown time", binding(nil), 1000, project, Instant{}, refusal.TokenExpired},
		{"one use too many", binding(func(b *Binding) { b.Used = 1 }), 1000, project, minted, refusal.TokenUsed},
		{"good for no bind", binding(func(b *Binding) { b.Binds = 0 }), 1000, project, minted, refusal.TokenUsed},
		{"without a time", binding(func(b *Binding) { b.TTL = 0 }), 1000, project, minted, refusal.TokenExpired},
		{"of an ended task", binding(func(b *Binding) { b.Ended = true }), 1000, project, minted, refusal.TaskEnded},
		{"the zero binding", &Binding{}, 0, "", Instant{}, refusal.TokenInvalid},
	} {
		if got := Check(row.b, row.uid, row.project, row.now); got != row.want {
			t.Errorf("%s: %q, want %q", row.says, got, row.want)
		}
	}
}

func TestToken4_WhatIsKeptMakesNoToken(t *testing.T) {
	tok := New([32]byte{7})
	if tok.Digest() == Digest(tok.secret) || tok.Digest().Equal(New([32]byte{8}).Digest()) || len(tok.Digest().String()) != 64 {
		t.Error("the digest is not one")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(New([32]byte{1}).Secret())
	f.Add("ptk_")
	f.Fuzz(func(t *testing.T, text string) {
		if tok, err := Parse(text); err == nil && tok.Secret() != text {
			t.Fatalf("%q and %q are one token", text, tok.Secret())
		}
	})
}
