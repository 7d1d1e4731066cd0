package wire

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

func TestDescribeCutsAServersWords(t *testing.T) {
	title, text := Describe([]byte(`{"name":"a","title":"T","description":"` + strings.Repeat("d", MaxDescription+1) + `","annotations":{"title":"other"}}`))
	if title != "T" || len(text) != MaxDescription {
		t.Errorf("%q, %d bytes", title, len(text))
	}
	for _, odd := range []string{``, `[]`, `{"title":7,"description":{}}`, `{"title":"a`} {
		if title, text := Describe([]byte(odd)); title != "" || text != "" {
			t.Errorf("%s: %q %q", odd, title, text)
		}
	}
}

// An end that falls into a character leaves no half of it: a server's description of
// accents alone would make every list that it stands in unwritable.
func TestDescribeLeavesNoHalfOfACharacter(t *testing.T) {
	for _, ahead := range []string{"", "x", "xx", "xxx"} {
		for _, c := range []string{"é", "€", "🚪"} {
			raw, err := json.Marshal(map[string]string{"title": ahead + strings.Repeat(c, MaxTitle), "description": ahead + strings.Repeat(c, MaxDescription)})
			if err != nil {
				t.Fatal(err)
			}
			title, description := Describe(raw)
			if _, err := json.Marshal([]string{title, description}); err != nil {
				t.Errorf("%q: %v", ahead+c, err)
			}
			if len(title) <= MaxTitle-len(c) || len(title) > MaxTitle || len(description) <= MaxDescription-len(c) || len(description) > MaxDescription || !strings.HasPrefix(title, ahead+c) {
				t.Errorf("%q: %d and %d bytes", ahead+c, len(title), len(description))
			}
		}
	}
}
