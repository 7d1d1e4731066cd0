package near

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var known = Sections{
	"":         {"activity", "hosts", "drain_seconds"},
	"activity": {"keep_days", "keep_mib"},
	"hosts[]":  {"id", "uid", "accounts"},
}

func TestNear1_AHintIsAKnownWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringN(1, 12, 40)).Draw(t, "known")
		typed := rapid.String().Draw(t, "typed")
		if w := Word(typed, words); w != "" && (!slices.Contains(words, w) || w == typed) {
			t.Fatalf("%q for %q", w, typed)
		}
	})
}

func TestAWordIsNearOrNot(t *testing.T) {
	for typed, want := range map[string]string{
		"activty": "activity", "drain-seconds": "drain_seconds", "DRAIN_SECONDS": "drain_seconds", "host": "hosts", "ohsts": "hosts",
		"x": "", "": "", "audit": "", strings.Repeat("hosts", 100): "",
	} {
		if got := Word(typed, known[""]); got != want {
			t.Errorf("%q is near %q, want %q", typed, got, want)
		}
	}
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"a", ""}: 1, {"ab", "ba"}: 1, {"kitten", "sitting"}: 3, {"keep", "keep"}: 0} {
		if got := Edits(pair[0], pair[1]); got != want {
			t.Errorf("%q: %d", pair, got)
		}
	}
}

func TestAKeyIsSaidToBelongSomewhere(t *testing.T) {
	for _, row := range []struct{ section, typed, want string }{
		{"", "activty", "is not a key here; did you mean activity?"},
		{"", "keep_days", "is not a key here; it belongs there: activity.keep_days"},
		{"activity", "uid", "is not a key here; it belongs there: hosts[].uid"},
		{"hosts[]", "keep_dyas", "is not a key here; did you mean activity.keep_days?"},
		{"hosts[]", "acounts", "is not a key here; did you mean accounts?"},
		{"activity", "colour", "is not a key here; want one of keep_days, keep_mib"},
		{"nowhere", "colour", "is not a key here"},
	} {
		if got := known.Key(row.section, row.typed); got != row.want {
			t.Errorf("%s in %q: %q", row.typed, row.section, got)
		}
	}
	if got := Section("hosts[12].accounts[0]"); got != "hosts[].accounts[]" {
		t.Error(got)
	}
}
