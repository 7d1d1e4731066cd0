package api

import (
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/json.md, and add what is new to testdata/shipped.txt")

// member is one member of a document.
type member struct{ name, kind, text string }

// documents reads the members of every type of this package from its source, those of
// embedded types too.
func documents(t *testing.T) map[string][]member {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found, inner := map[string]*ast.StructType{}, map[string][]member{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok {
				if body, ok := s.Type.(*ast.StructType); ok && s.Name.IsExported() {
					found[s.Name.Name] = body
				}
			}
			return true
		})
	}
	var read func(name string) []member
	read = func(name string) (out []member) {
		for _, f := range found[name].Fields.List {
			var kind strings.Builder
			format.Node(&kind, token.NewFileSet(), f.Type)
			if f.Tag == nil {
				if found[kind.String()] != nil {
					out = append(out, read(kind.String())...)
				}
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value)
			key, more, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			what := kind.String()
			if strings.Contains(more, "omit") {
				what += ", may be absent"
			}
			if key != "" && key != "-" {
				out = append(out, member{key, what, strings.ReplaceAll(strings.TrimSpace(f.Comment.Text()), "\n", " ")})
			}
		}
		return out
	}
	for name := range found {
		if members := read(name); len(members) > 0 {
			inner[name] = members
		}
	}
	return inner
}

// What --json prints is documented, and stays: a member that was shipped is neither
// renamed nor removed, and keeps its kind.
func TestWhatIsPrintedIsDocumentedAndStays(t *testing.T) {
	docs := documents(t)
	var source []byte
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			source = append(source, raw...)
		}
	}
	var page strings.Builder
	page.WriteString("# What `--json` prints\n\n<!-- Written by go test ./supervisor/api -run Documented -update; edit the types. -->\n\n" +
		"With `--json` a command prints one document and nothing else: the result of its action, or\n" +
		"`{\"refusal\":{\"code\",\"sentence\",\"detail\",\"help\"}}` and an exit status of [operators.md](operators.md#exit-statuses). Follows and exports print\n" +
		"one document a line. Members may be added; those that are here are neither renamed nor removed. Whoever reads them\n" +
		"passes over members that it does not know. Times are milliseconds since 1970.\n\n## Actions\n\n| action | result |\n|---|---|\n")
	actions := regexp.MustCompile(`= "([a-z.]+)" +// .* → ([A-Za-z]+)`).FindAllStringSubmatch(string(source), -1)
	if len(actions) != len(Actions()) {
		t.Fatalf("%d actions were found", len(actions))
	}
	for _, a := range actions {
		fmt.Fprintf(&page, "| `%s` | `%s` |\n", a[1], a[2])
	}
	page.WriteString("\n## Documents\n")
	var shipped []string
	names := make([]string, 0, len(docs))
	for name := range docs {
		if !strings.HasSuffix(name, "Params") && name != "Request" && name != "Response" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&page, "\n### %s\n\n| member | kind | what |\n|---|---|---|\n", name)
		for _, m := range docs[name] {
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", m.name, strings.ReplaceAll(m.kind, "|", `\|`), strings.ReplaceAll(m.text, "|", `\|`))
			kind, _, _ := strings.Cut(m.kind, ",")
			shipped = append(shipped, name+"."+m.name+" "+kind)
		}
	}
	const list, doc = "testdata/shipped.txt", "../../docs/json.md"
	before, _ := os.ReadFile(list)
	if *update {
		all := append(strings.Split(strings.TrimSpace(string(before)), "\n"), shipped...)
		slices.Sort(all)
		all = slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{list: strings.Join(all, "\n") + "\n", doc: page.String()} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before = []byte(strings.Join(all, "\n"))
	}
	if got, _ := os.ReadFile(doc); string(got) != page.String() {
		t.Error("docs/json.md is not what the types make: go test ./supervisor/api -run Documented -update")
	}
	lines := strings.Split(strings.TrimSpace(string(before)), "\n")
	for _, line := range lines {
		if !slices.Contains(shipped, line) {
			t.Errorf("%s was shipped, and is gone or another", line)
		}
	}
	for _, line := range shipped {
		if !slices.Contains(lines, line) {
			t.Errorf("%s is new: add it with -update", line)
		}
	}
}
