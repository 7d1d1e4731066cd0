package control

import (
	"strings"
	"unicode/utf8"

	"postern/supervisor/api"
)

// Bounds of what a server's own words take in one answer, as JSON: an answer that is
// longer than a line may be is none.
const (
	MaxDescribed = 256 << 10 // bytes of all titles, descriptions and names that are not servable
	maxNamed     = 100       // bytes of such a name in a list that is shortened; others have less
)

// shorten cuts titles and descriptions of a list that has too much of them, each to the
// same length.
func shorten(tools []api.ToolResult) {
	size := 0
	for _, t := range tools {
		size += jsonLen(t.Title) + jsonLen(t.Description) + jsonLen(t.Tool)
	}
	if size <= MaxDescribed {
		return
	}
	for i, most := 0, MaxDescribed/len(tools); i < len(tools); i++ {
		t := &tools[i]
		t.Tool = cutJSON(t.Tool, maxNamed)
		t.Title = cutJSON(t.Title, most/4)
		t.Description = cutJSON(t.Description, most-jsonLen(t.Title)-jsonLen(t.Tool))
	}
}

// jsonLen is how many bytes a text takes between its quotes.
func jsonLen(s string) (n int) {
	for _, c := range []byte(s) {
		switch {
		case c < ' ':
			n += len(`\u0000`)
		case c == '"', c == '\\':
			n += len(`\"`)
		default:
			n++
		}
	}
	return n
}

// cutJSON shortens a text to so many bytes of JSON, by whole characters.
func cutJSON(s string, most int) string {
	for n := 0; n < len(s); {
		_, size := utf8.DecodeRuneInString(s[n:])
		if most -= jsonLen(s[n : n+size]); most < 0 {
			return strings.Clone(s[:n])
		}
		n += size
	}
	return s
}
