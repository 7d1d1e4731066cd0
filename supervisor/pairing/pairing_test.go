package pairing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const boot = time.Hour // since the host was booted

func code(n byte) Code { return New([RandomLen]byte{n, 1, 2, 3, 4, 5, n}) }

// Every bit of the fifty that are promised tells codes apart, and nothing else is in one.
func TestPairing1_ACodeIsFiftyBitsOfAnAlphabetThatIsReadAloud(t *testing.T) {
	seen := map[string]bool{New([RandomLen]byte{}).Secret(): true}
	for bit := range 50 {
		var random [RandomLen]byte
		random[RandomLen-1-bit/8] = 1 << (bit % 8)
		s := New(random).Secret()
		if seen[s] {
			t.Errorf("bit %d changes nothing: %s", bit, s)
		}
		seen[s] = true
		if len(s) != Len+1 || s[half] != '-' || strings.ContainsAny(s, "ILOUilou") {
			t.Errorf("%q", s)
		}
	}
	want := code(7)
	for _, text := range []string{want.Secret(), strings.ToLower(want.Secret()), " " + strings.ReplaceAll(want.Secret(), "-", "") + "\n", strings.NewReplacer("0", "o", "1", "l").Replace(want.Secret())} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "-", want.Secret()[1:], want.Secret() + "0", "ABCDE-FGHJU", "АBCDE-FGHJK", strings.Repeat("-", 100) + want.Secret(), "ABCDE\x00FGHJK", "ABCDE\u200bFGHJK"} {
		if _, err := Parse(text); err == nil || text != "" && strings.Contains(err.Error(), text) && len(text) > 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPairing1_ACodeWorksOnceInItsChannelInItsTime(t *testing.T) {
	var b Book
	if err := b.Add("sms", code(1), DefaultTTL, boot); err != nil {
		t.Fatal(err)
	}
	if got := b.Take("whatsapp", code(1).Secret(), boot); got != (Tried{}) {
		t.Errorf("another channel: %+v", got)
	}
	if got := b.Look("sms", code(1).Secret(), boot+DefaultTTL-1); !got.Good {
		t.Errorf("in its last moment: %+v", got)
	}
	if got := b.Take("sms", code(1).Secret(), boot); !got.Good {
		t.Errorf("in its time: %+v", got)
	}
	if got := b.Take("sms", code(1).Secret(), boot); got.Good || b.Count("sms", boot) != 0 {
		t.Errorf("again: %+v", got)
	}
	b.Add("sms", code(2), MinTTL, boot)
	if got := b.Take("sms", code(2).Secret(), boot+MinTTL); got.Good {
		t.Errorf("when its time is over: %+v", got)
	}
	var other Book // a process that started again
	b.Add("sms", code(3), MaxTTL, boot)
	if got := other.Take("sms", code(3).Secret(), boot); got.Good {
		t.Errorf("in another process: %+v", got)
	}
}

func TestPairing2_WrongCodesEndAllOfTheChannel(t *testing.T) {
	var b Book
	for n := range byte(3) {
		b.Add("sms", code(n), DefaultTTL, boot)
	}
	b.Add("mail", code(9), DefaultTTL, boot)
	for n := 1; n < MaxWrong; n++ {
		text := code(100).Secret()
		if n%2 == 0 {
			text = "no code at all"
		}
		if got := b.Take("sms", text, boot); got != (Tried{Wrong: n}) {
			t.Fatalf("the %dth: %+v", n, got)
		}
	}
	// Looking counts nothing, and one code that is good forgives none.
	b.Look("sms", "x", boot)
	if got := b.Take("sms", code(0).Secret(), boot); !got.Good {
		t.Fatalf("%+v", got)
	}
	if got := b.Take("sms", "x", boot); got != (Tried{Wrong: MaxWrong, Ended: 2}) {
		t.Fatalf("the last: %+v", got)
	}
	if got := b.Take("sms", code(1).Secret(), boot); got != (Tried{}) {
		t.Errorf("a code that ended: %+v", got)
	}
	if err := b.Add("sms", code(4), DefaultTTL, boot+Pause-1); !errors.Is(err, ErrPaused) {
		t.Errorf("in the pause: %v", err)
	}
	if got := b.Take("mail", code(9).Secret(), boot); !got.Good {
		t.Errorf("the other channel: %+v", got)
	}
	if err := b.Add("sms", code(4), DefaultTTL, boot+Pause); err != nil {
		t.Errorf("after it: %v", err)
	}
	if got := b.Take("sms", code(4).Secret(), boot+Pause); !got.Good {
		t.Errorf("a code after the pause: %+v", got)
	}
}

func TestPairing3_NeverPrinted(t *testing.T) {
	c := code(1)
	plain := strings.ReplaceAll(c.Secret(), "-", "")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, &c, struct{ C Code }{c}, []Code{c}} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, plain) || strings.Contains(out, c.Secret()) {
				t.Errorf("%s of %T: %s", verb, v, out)
			}
		}
	}
	if (Code{}).Secret() != "" {
		t.Error("the zero code has a text")
	}
}

func TestPairing4_WhatIsKeptIsADigest(t *testing.T) {
	var b Book
	c := code(1)
	b.Add("sms", c, DefaultTTL, boot)
	if out := fmt.Sprintf("%s %v %#v", b.channels["sms"].codes, b.channels["sms"].codes, b.channels["sms"]); strings.Contains(out, c.Secret()) || strings.Contains(out, c.text) {
		t.Error("the book holds a code")
	}
	if _, ok := b.channels["sms"].codes[c.Digest()]; !ok {
		t.Error("the book holds no digest")
	}
}

func TestPairing5_Bounded(t *testing.T) {
	var b Book
	for n := range byte(MaxCodes) {
		if err := b.Add("sms", code(n), MaxTTL, boot); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add("sms", code(200), MaxTTL, boot); !errors.Is(err, ErrMany) {
		t.Errorf("one more: %v", err)
	}
	b.Take("sms", code(0).Secret(), boot)
	if err := b.Add("sms", code(200), MaxTTL, boot); err != nil {
		t.Errorf("after one was used: %v", err)
	}
	// What is over is not kept.
	if b.Count("sms", boot+MaxTTL) != 0 || len(b.channels) != 0 {
		t.Errorf("%v", b.channels)
	}
}

// No text is good but a code's own, in the ways it may be written.
func FuzzParse(f *testing.F) {
	f.Add(code(1).Secret())
	f.Add("ilo--")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.Secret())
		if err != nil || again != c {
			t.Errorf("%q: %v", text, err)
		}
	})
}
