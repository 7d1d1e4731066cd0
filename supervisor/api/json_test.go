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

// Packages whose types are printed: how others name each, and where it is.
var packages = map[string]string{"activity": "../activity", "api": ".", "config": "../config", "postern": "../../cmd/postern", "posternd": "../../cmd/posternd"}

// reader reads the members of types from their source.
type reader map[string]*ast.StructType // by package and name

func newReader(t *testing.T) reader {
	t.Helper()
	r := reader{}
	for pkg, dir := range packages {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatal(dir, err)
		}
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
					if body, ok := s.Type.(*ast.StructType); ok {
						r[pkg+"."+s.Name.Name] = body
					}
				}
				return true
			})
		}
	}
	return r
}

// full is the name of a type that stands in a package.
func full(pkg, name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return pkg + "." + name
}

// shown is how the page names a type: a document without its package, which begins with a
// capital letter.
func (r reader) shown(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return "*" + r.shown(pkg, e.X)
	case *ast.ArrayType:
		return "[]" + r.shown(pkg, e.Elt)
	case *ast.MapType:
		return "map[" + r.shown(pkg, e.Key) + "]" + r.shown(pkg, e.Value)
	}
	var text strings.Builder
	format.Node(&text, token.NewFileSet(), e)
	if r[full(pkg, text.String())] == nil {
		return text.String()
	}
	return title(text.String())
}

func title(name string) string {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.ToUpper(name[:1]) + name[1:]
}

// members are those of a type and of the types that it embeds. What a pointer embeds may be
// absent, all of it.
func (r reader) members(name string) (out []member) {
	pkg, _, _ := strings.Cut(name, ".")
	for _, f := range r[name].Fields.List {
		if f.Tag == nil {
			var inner strings.Builder
			format.Node(&inner, token.NewFileSet(), f.Type)
			embedded, pointer := strings.CutPrefix(inner.String(), "*")
			if r[full(pkg, embedded)] == nil || len(f.Names) > 0 {
				continue
			}
			for _, m := range r.members(full(pkg, embedded)) {
				if pointer && !strings.HasSuffix(m.kind, absent) {
					m.kind += absent
				}
				out = append(out, m)
			}
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		key, more, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		what := r.shown(pkg, f.Type)
		if strings.Contains(more, "omit") {
			what += absent
		}
		if key != "" && key != "-" {
			out = append(out, member{key, what, strings.ReplaceAll(strings.TrimSpace(f.Comment.Text()), "\n", " ")})
		}
	}
	return out
}

const absent = ", may be absent"

// documents are the members of every type of this package, and of those that are reached
// from others, by the names of the page.
func (r reader) documents(t *testing.T, others []string) map[string][]member {
	t.Helper()
	out, from := map[string][]member{}, map[string]string{}
	var add func(name string)
	add = func(name string) {
		pkg, _, _ := strings.Cut(name, ".")
		if from[title(name)] == name {
			return
		}
		if from[title(name)] != "" {
			t.Fatalf("%s and %s have one name on the page", name, from[title(name)])
		}
		from[title(name)] = name
		if out[title(name)] = r.members(name); len(out[title(name)]) == 0 {
			delete(out, title(name))
		}
		ast.Inspect(r[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if r[full(pkg, n.Name)] != nil {
					add(full(pkg, n.Name))
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && r[x.Name+"."+n.Sel.Name] != nil {
					add(x.Name + "." + n.Sel.Name)
				}
				return false
			}
			return true
		})
	}
	for name := range r {
		if short, ok := strings.CutPrefix(name, "api."); ok && ast.IsExported(short) {
			add(name)
		}
	}
	for _, name := range others {
		if r[name] == nil {
			t.Fatalf("%s is no type", name)
		}
		add(name)
	}
	return out
}

// commands reads the table of what commands print, and gives it as rows of the page and
// the types that it names.
func (r reader) commands(t *testing.T) (rows string, types []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../cmd/postern/printed_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var table *ast.CompositeLit
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "printed" {
			table = v.Values[0].(*ast.CompositeLit)
		}
		return true
	})
	var all []string
	for _, e := range table.Elts {
		command, _ := strconv.Unquote(e.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
		said := map[string]string{}
		for _, e := range e.(*ast.KeyValueExpr).Value.(*ast.CompositeLit).Elts {
			field := e.(*ast.KeyValueExpr)
			key := field.Key.(*ast.Ident).Name
			if text, ok := field.Value.(*ast.BasicLit); ok {
				said[key], _ = strconv.Unquote(text.Value)
				continue
			}
			var names []string
			for _, e := range field.Value.(*ast.CompositeLit).Elts {
				var name strings.Builder
				format.Node(&name, token.NewFileSet(), e.(*ast.CompositeLit).Type)
				types = append(types, full("postern", name.String()))
				names = append(names, "`"+title(name.String())+"`")
			}
			said[key] = strings.Join(names, ", or ")
		}
		text := said["one"]
		switch {
		case said["none"] != "":
			text = "nothing: " + said["none"]
		case text == "":
			text = said["lines"] + ", one a line"
		case said["flag"] == "--once":
			text = said["lines"] + ", one a line; with `--once` one"
		case said["lines"] != "":
			text += "; with `" + said["flag"] + "` " + said["lines"] + ", one a line"
		}
		all = append(all, fmt.Sprintf("| `%s` | %s |\n", command, text))
	}
	all = append(all, "| `posternd -check` | `Checked` |\n")
	slices.Sort(all)
	return strings.Join(all, ""), append(types, "posternd.checked")
}

// What --json prints is documented, and stays: a member that was shipped is neither
// renamed nor removed, and keeps its kind.
func TestWhatIsPrintedIsDocumentedAndStays(t *testing.T) {
	r := newReader(t)
	commands, types := r.commands(t)
	docs := r.documents(t, types)
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
		"passes over members that it does not know. Times are milliseconds since 1970; in an export they are text. posternd's flag is\n`-json`.\n\n" +
		"A kind is written as in Go: `[]X` is a list of X, `map[string]X` an object whose names are data, `*X` is X or null, `[]byte`\n" +
		"text in base64, `jsontext.Value` any value. What begins with a capital letter is a document of this page.\n\n" +
		"## Commands\n\nBeside its document each command may print the refusal.\n\n| command | prints |\n|---|---|\n" + commands +
		"\n## Actions\n\nWhat the sockets answer. A command prints the answer as it is, or a document that it makes of one or several.\n\n| action | result |\n|---|---|\n")
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
