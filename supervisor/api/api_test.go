package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"postern/refusal"
)

func TestAPI1_EveryActionIsServedByOneSocket(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		n += declared(t, f)
	}
	if n != len(Actions()) || n < 30 {
		t.Errorf("%d actions declared, %d served", n, len(Actions()))
	}
}

// declared counts the actions that a file declares.
func declared(t *testing.T, f *ast.File) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		v, ok := node.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Action" {
			return true
		}
		name, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		n++
		if ServedBy(Action(name)) == "" {
			t.Errorf("%s is served by no socket", name)
		}
		return true
	})
	return n
}

func TestAPI2_UnknownAndRepeatedMembersAreRefused(t *testing.T) {
	if r, err := DecodeRequest([]byte(`{"id":1,"action":"ps"}`)); err != nil || r.Action != Ps {
		t.Fatalf("%+v %v", r, err)
	}
	for _, bad := range []string{`{"id":1,"action":"ps","uid":0}`, `{"id":1,"Action":"ps"}`, `{"id":1,"action":"ps","action":"status"}`, `[]`, `{"id":1,"action":"ps"} {}`} {
		if _, err := DecodeRequest([]byte(bad)); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
	if _, err := DecodeParams[Selected]([]byte(`{"selector":"x","account":"acc"}`)); err == nil {
		t.Error("an identity member in the params was ignored")
	}
	if p, err := DecodeParams[ProjectParams](nil); err != nil || p.Project != "" {
		t.Errorf("absent params: %+v %v", p, err)
	}
}

func TestRefusalCarriesTheTable(t *testing.T) {
	r := Refuse(refusal.StaleSelector, "project %q means two", "demo")
	if r.Code != refusal.StaleSelector || r.Help == "" || r.Error() != refusal.Of(refusal.StaleSelector).Sentence+` project "demo" means two` {
		t.Fatalf("%+v", r)
	}
}
