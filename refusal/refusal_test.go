package refusal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// declared reads the constants of type Code from the source, so that a code
// without a row cannot hide.
func declared(t *testing.T) map[Code]string {
	f, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[Code]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
			return true
		}
		s, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		out[Code(s)] = v.Names[0].Name
		return true
	})
	return out
}

func TestRefusal1_EveryCodeHasOneCompleteRow(t *testing.T) {
	codes := declared(t)
	seen := map[Code]bool{}
	for _, r := range Table() {
		if seen[r.Code] {
			t.Errorf("%s has two rows", r.Code)
		}
		seen[r.Code] = true
		if codes[r.Code] == "" {
			t.Errorf("%s has a row and no constant", r.Code)
		}
		if r.HTTP < 400 || r.Exit < 1 || r.Sentence == "" || r.Code.Help() == "" || len(r.Code.Advice()) < 20 {
			t.Errorf("%s: incomplete row %+v", r.Code, r)
		}
	}
	for c, name := range codes {
		if !seen[c] {
			t.Errorf("%s (%s) has no row", name, c)
		}
	}
	for c := range advice {
		if !seen[c] {
			t.Errorf("%s has advice and no row", string(c))
		}
	}
	if len(codes) < 50 {
		t.Fatalf("only %d codes were found in the source; the test does not see them", len(codes))
	}
}

func TestRefusal2_AnUnknownCodeIsInternal(t *testing.T) {
	if Of("made_up").Code != Internal || Known("made_up") {
		t.Fatal("an unknown code has a row")
	}
	if Of(ToolUnknown).Form.JSONRPC() != -32602 || Of(ToolNotGranted).Form.JSONRPC() != 0 {
		t.Fatal("the forms of unknown and not granted tools are not told apart")
	}
}

// TestA4_TheStatusesOfARowAgree: who may not is 403 everywhere, what is to be tried
// again is so everywhere, and no status is one that nobody reads.
func TestA4_TheStatusesOfARowAgree(t *testing.T) {
	exits := map[int]bool{ExitFailed: true, ExitUsage: true, ExitRefused: true, ExitUnreachable: true, ExitTryAgain: true, ExitNotAllowed: true, ExitConfig: true}
	for _, r := range rows {
		if r.HTTP < 400 || r.HTTP > 599 || !exits[r.Exit] {
			t.Errorf("%s: HTTP %d, exit %d", string(r.Code), r.HTTP, r.Exit)
		}
		if r.Exit == ExitNotAllowed && r.HTTP != 403 || (r.HTTP == 429) != (r.Exit == ExitTryAgain && r.HTTP != 503) || r.Exit == ExitUsage && r.HTTP != 400 {
			t.Errorf("%s: HTTP %d and exit %d do not agree", string(r.Code), r.HTTP, r.Exit)
		}
		if r.Form == InvalidParams && r.HTTP != 404 {
			t.Errorf("%s: an unknown name is HTTP %d", string(r.Code), r.HTTP)
		}
	}
}
