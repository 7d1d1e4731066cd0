package integration

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// caseRow is the start of a row about a fault of others' programs, by its id.
const caseRow = 'C'

// TestEveryRuleOfThePolicyHasItsTest reads testdata/rules.txt: each rule that the policy
// was asked to keep has tests, which exist. The test of a requirement is named after it,
// and that of a case has the case's id in its name or its rows.
func TestEveryRuleOfThePolicyHasItsTest(t *testing.T) {
	bodies := map[string]string{} // a test may be there twice, in two packages
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			begin := f.Pos()
			if f.Doc != nil {
				begin = f.Doc.Pos()
			}
			bodies[f.Name.Name] += string(raw[s.fset.Position(begin).Offset:s.fset.Position(f.End()).Offset])
		}
	}
	raw, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for n, line := range strings.Split(string(raw), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		rule, tests, ok := strings.Cut(line, " | ")
		named := strings.Fields(tests)
		if !ok || len(named) == 0 || slices.Contains(rules, rule) {
			t.Errorf("rules.txt:%d: want a rule that stands once, and its tests: %q", n+1, line)
			continue
		}
		rules = append(rules, rule)
		for _, name := range named {
			if bodies[name] == "" {
				t.Errorf("rules.txt:%d: there is no test %s", n+1, name)
			}
		}
		words := !strings.Contains(rule, ":")
		isCase := words && rule[0] == caseRow && len(rule) == len("C000")
		if words && !isCase && !slices.ContainsFunc(named, func(name string) bool { return strings.Contains(name, rule+"_") }) {
			t.Errorf("rules.txt:%d: no test is named after %s", n+1, rule)
		}
		for _, name := range named {
			if isCase && bodies[name] != "" && !strings.Contains(bodies[name], rule) {
				t.Errorf("rules.txt:%d: %s does not say that it shows %s", n+1, name, rule)
			}
		}
	}
	for n := 1; n <= 13; n++ {
		if row := fmt.Sprintf("C%d", n); !slices.Contains(rules, row) {
			t.Errorf("%s has no row", row)
		}
	}
	for _, row := range []string{"A1", "A3", "A4", "A6", "A7", "A8", "T6"} {
		if !slices.Contains(rules, row) {
			t.Errorf("%s has no row", row)
		}
	}
	for _, part := range []string{"source 1", "source 2", "source 3", "source 4", "source 4bis", "source 5", "consequences"} {
		if !slices.ContainsFunc(rules, func(r string) bool { return strings.HasPrefix(r, part+":") }) {
			t.Errorf("%s has no row", part)
		}
	}
}
