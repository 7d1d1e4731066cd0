package integration

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"postern/refusal"
)

// TestA4_NoSurfaceWordsARefusalOfItsOwn: a sentence of the table stands in the table
// alone, so that no surface can come to say something else with the same code. "Unknown
// tool." is MCP's own and short enough to be said elsewhere.
func TestA4_NoSurfaceWordsARefusalOfItsOwn(t *testing.T) {
	sentences := map[string]refusal.Code{}
	for _, row := range refusal.Table() {
		if row.Form != refusal.InvalidParams {
			sentences[strings.TrimSuffix(row.Sentence, ".")] = row.Code
		}
	}
	seen := 0
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.path, "refusal/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			seen++
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			for sentence, code := range sentences {
				if strings.Contains(text, sentence) {
					t.Errorf("%s: %q is the sentence of %s", s.at(n), text, string(code))
				}
			}
			return true
		})
	}
	if seen < 5000 {
		t.Fatalf("only %d texts were looked at", seen)
	}
}
