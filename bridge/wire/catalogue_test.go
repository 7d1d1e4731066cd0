package wire

import (
	"strings"
	"testing"
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
