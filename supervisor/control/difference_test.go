package control

import (
	"math/rand/v2"
	"strings"
	"testing"

	"postern/supervisor/api"
)

func shown(ps []api.Piece) string {
	var b strings.Builder
	for _, p := range ps {
		switch p.Op {
		case "-":
			b.WriteString("[-" + p.Text + "-]")
		case "+":
			b.WriteString("{+" + p.Text + "+}")
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func TestADifferenceIsWordByWord(t *testing.T) {
	for _, c := range [][3]string{
		{"Reads a file.", "Reads a file, and mails it.", "Reads a [-file.-]{+file, and mails it.+}"},
		{"one two three", "one three", "one [-two -]three"},
		{"a", "", "[-a-]"},
		{"", "b", "{+b+}"},
		{`{"type":"object"}`, `{"type":"object","properties":{"cc":{}}}`, `{"type":"object"{+,"properties":{"cc":{}}+}}`},
		{"x " + strings.Repeat("word ", 50) + "end", "x " + strings.Repeat("word ", 50) + "END", "…word word word [-end-]{+END+}"},
	} {
		if got := shown(wordDiff(words(c[0]), words(c[1]))); got != c[2] {
			t.Errorf("%.40q → %.40q\n got %s\nwant %s", c[0], c[1], got, c[2])
		}
	}
}

// However two texts differ, what stays and goes is the one, what stays and comes the other.
func TestADifferenceLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(5) {
			b.WriteString([]string{"a", "b ", "c,", "{", "déjà "}[r.IntN(5)])
		}
		return b.String()
	}
	for range 2000 {
		a, b := text(), text()
		var old, now strings.Builder
		for _, p := range wordDiff(words(a), words(b)) {
			if p.Op != "+" {
				old.WriteString(p.Text)
			}
			if p.Op != "-" {
				now.WriteString(p.Text)
			}
		}
		if old.String() != a || now.String() != b {
			t.Fatalf("%q → %q became %q → %q", a, b, old.String(), now.String())
		}
	}
}

func TestADifferenceIsEscapedAndBounded(t *testing.T) {
	ms, _ := differences([]byte(`{"name":"x","description":"plain"}`), []byte(`{"name":"x","description":"plain\u001b[31m\u202e"}`), MaxDifference)
	if len(ms) != 1 || strings.ContainsAny(shown(ms[0].Pieces), "\x1b\u202e") || !strings.Contains(shown(ms[0].Pieces), `\x1b`) {
		t.Errorf("%+v", ms)
	}
	// Definitions as large and as different as they may be cost a bounded answer.
	big := func(word string) []byte {
		return []byte(`{"name":"x","description":"` + strings.Repeat(word+" ", 100<<10/len(word)) + `"}`)
	}
	ms, left := differences(big("aa"), big("bbb"), MaxDifference)
	if len(ms) != 1 || len(ms[0].Pieces) != 3 || len(ms[0].Pieces[0].Text) > MaxPiece || left < 0 {
		t.Errorf("%d members, %d left", len(ms), left)
	}
	ms, left = differences(big("aa"), big("bbb"), 100)
	if len(ms) != 1 || !ms[0].Cut || left != 0 {
		t.Errorf("over the bound: %+v, %d left", ms, left)
	}
	if ms, _ := differences(nil, []byte(`{"name":"x"}`), MaxDifference); len(ms) != 1 || shown(ms[0].Pieces) != "{+x+}" {
		t.Errorf("without the former: %+v", ms)
	}
}
