package launch

import (
	"testing"
	"time"
)

func TestAChangeIsBelievedWhenItIsQuiet(t *testing.T) {
	start := time.Unix(1_790_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	type look struct {
		ms   int
		seen string
		want bool
	}
	for says, row := range map[string]struct {
		told  bool
		looks []look
	}{
		"left alone":                {true, []look{{0, "a", false}, {30, "a", false}, {50, "a", true}}},
		"written in pieces":         {true, []look{{0, "", false}, {40, "a", false}, {80, "ab", false}, {120, "ab", false}, {130, "ab", true}}},
		"there and back":            {true, []look{{0, "", false}, {49, "a", false}, {98, "", false}, {147, "", false}, {148, "", true}}},
		"written without an end":    {true, []look{{0, "0", false}, {300, "1", false}, {600, "2", false}, {999, "3", false}, {1000, "4", true}}},
		"found by a look":           {false, []look{{0, "a", false}, {50, "a", false}, {499, "a", false}, {500, "a", true}}},
		"found, and written slowly": {false, []look{{0, "", false}, {400, "a", false}, {800, "ab", false}, {1000, "ab", true}}},
	} {
		var s settling
		if s.soon() != nil {
			t.Error("nothing waits, and a look is due")
		}
		if row.told {
			s.begin(at(0))
		}
		for i, l := range row.looks {
			if got := s.quiet(l.seen, at(l.ms), at(l.ms)); got != l.want {
				t.Errorf("%s: look %d: %v", says, i, got)
			}
			if s.soon() == nil {
				t.Errorf("%s: no look follows", says)
			}
		}
		if s.end(); s != (settling{}) {
			t.Errorf("%s: %+v is left", says, s)
		}
	}
	// A look that takes long shortens what was seen to be quiet.
	var s settling
	s.begin(at(0))
	if s.quiet("a", at(0), at(40)) || s.quiet("a", at(60), at(60)) || !s.quiet("a", at(90), at(95)) {
		t.Error("the time that a look takes counts as quiet")
	}
}
