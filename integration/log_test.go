package integration

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every field that a program logs has its row in the operators' page, and every row is a
// field that some program logs.
func TestEveryFieldOfTheLogIsInItsTable(t *testing.T) {
	raw, err := os.ReadFile("../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "### Fields of the log\n")
	if !found {
		t.Fatal("the page has no table of fields")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		told[m[1]] = false
	}
	words := map[string]string{} // of constants, by package and name
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
				for i, name := range v.Names {
					if lit, ok := v.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						words[s.pkg+"."+name.Name], _ = strconv.Unquote(lit.Value)
					}
				}
			}
			return true
		})
	}
	calls := 0
	for _, s := range sources(t) {
		if s.test || !within(s.pkg, []string{"supervisor/*", "cmd/*", "bridge/*", "jail/*"}) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, sel.Sel.Name) {
				return true
			}
			calls++
			for i := 1; i < len(call.Args); i += 2 {
				key := ""
				switch k := call.Args[i].(type) {
				case *ast.BasicLit:
					key, _ = strconv.Unquote(k.Value)
				case *ast.Ident:
					key = words[s.pkg+"."+k.Name]
				}
				if _, known := told[key]; !known {
					t.Errorf("%s: the field %q has no row", s.at(call), key)
				}
				told[key] = true
			}
			return true
		})
	}
	for key, logged := range told {
		if !logged {
			t.Errorf("nothing logs %q", key)
		}
	}
	if calls < 60 {
		t.Errorf("only %d lines with fields were found", calls)
	}
}
