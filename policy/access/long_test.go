package access

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"pgregory.net/rapid"
)

// outline writes a tree down: every node with its kind, its text and its place.
func outline(f *ast.File) string {
	var b strings.Builder
	for _, d := range f.Docs {
		b.WriteString("---\n")
		if d.Body == nil {
			continue
		}
		ast.Walk(visit(func(n ast.Node) {
			fmt.Fprintf(&b, "%T", n)
			if t := n.GetToken(); t != nil && t.Type == token.ImplicitNullType {
				fmt.Fprintf(&b, " nothing in line %d", t.Position.Line) // its column depends on whether more follows
			} else if t != nil {
				fmt.Fprintf(&b, " %q %v %d:%d", t.Value, t.Type, t.Position.Line, t.Position.Column)
			}
			if e := flowEnd(n); e != nil {
				fmt.Fprintf(&b, " %v", *e)
			}
			b.WriteString("\n")
		}), d.Body)
	}
	return b.String()
}

// sameAsWhole compares a document that is parsed in parts with the library's reading of the whole.
func sameAsWhole(t interface{ Fatalf(string, ...any) }, doc string, run int) {
	whole, wrong := parser.ParseBytes([]byte(doc), 0, parser.AllowDuplicateMapKey())
	parts, err := parse([]byte(doc), run)
	if (wrong == nil) != (err == nil) {
		t.Fatalf("as a whole: %v, in parts of %d: %v\n%s", wrong, run, err, doc)
	}
	if err == nil && outline(whole) != outline(parts) {
		t.Fatalf("in parts of %d it is\n%s\nas a whole\n%s\nof\n%s", run, outline(parts), outline(whole), doc)
	}
}

var longShapes = []string{
	house, whatsapp, "", "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n", "a:\nb:\nc:\nd:\n", "a:\n- x\n- y\nb:\n- z\nc: 1\nd: 2\ne: 3\n",
	"a:\n  b: 1\n  c: 2\n  d: 3\n  e:\n    f: 1\n    g: 2\n    h: 3\n  i: 1\nj: 2\nk: 3\nl: {m: 1, n: 2,\n o: 3}\np: 1\n",
	"- a: 1\n  b: 2\n  c: 3\n  d: 4\n- e: 1\n", "a: 1\nb: 2\nc: 3\n d: 4\n", "a: 1\nb: 2\nc: 3\nd\n", "a: 1\nb: 2\nc: \"x\n  y\"\nd: 3\ne: 4\n", "a: 1\nb: 2\n? c\n: d\ne: 4\n",
	"a: &x 1\nb: 2\nc: *x\nd: 3\ne: 4\n", "a: 1\nb: 2\nc: |\n  d: 3\n  e: 4\nf: 5\n", "a: 1\nb: 2\nc: 3\nd: {\ne: 4\n", "a: 1\nb: 2\nc: 3\na: 4\na: 5\n", "a: 1\n---\nb: 2\nc: 3\nd: 4\ne: 5\n",
	"a: 1\nb: 2 # x\n# y\nc: 3\n  # z\nd: 4\n# end", "a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\ne: 5\r\n", "a: x\n  y\nb: 2\nc: 3\nd: z\n  w\ne: 1", "  a: 1\n  b: 2\n  c: 3\n  d: 4\n e: 5\n",
	"a: [\nb: 1,\nc: 2]\nd: 1\ne: 2\nf: 3", "a: 1\nb: 2\nc: 3 d: 4\ne: 5\n", "a: 1\nb: 2\n: 3\nd: 4\n", "a: 1\nb: 2\n[x]: 3\nd: 4\ne: 5", "a: 1\nb: 2\n\tc: 3\nd: 4\n",
}

func TestAccess_ALongMappingReadsAsTheWholeOfIt(t *testing.T) {
	for _, doc := range longShapes {
		for _, run := range []int{2, 3, longRun} {
			sameAsWhole(t, doc, run)
		}
	}
	for _, n := range []int{longRun - 1, longRun, longRun + 1, 2 * longRun, 2*longRun + 1, 700} {
		sameAsWhole(t, string(many(n)), longRun)
	}
}

// Whatever lines a document has, in whatever order and depth.
func TestAccess_ADocumentOfAnyLinesReadsAsTheWholeOfIt(t *testing.T) {
	words := []string{"a:", "b: 1", "\"c\": {level: read}", "- d", "- e: 1", "f: [1, 2]", "g: {h: 1,", "i: 2}", "# j", "k", "'l': x # m", "", "n: \"o", "p\"", "+551: 2", "q: 1 r: 2", "]"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(1, 14).Draw(t, "lines") {
			b.WriteString(strings.Repeat(" ", rapid.IntRange(0, 3).Draw(t, "indent")) + rapid.SampledFrom(words).Draw(t, "line") + "\n")
		}
		sameAsWhole(t, b.String(), rapid.IntRange(2, 4).Draw(t, "run"))
	})
}

func FuzzLong(f *testing.F) {
	for _, doc := range longShapes {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		defer func() { _ = recover() }() // where the library gives up, nobody is let in
		if tooNested([]byte(doc)) == 0 {
			sameAsWhole(t, doc, 2)
		}
	})
}
