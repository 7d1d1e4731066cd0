package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "postern/"

// mayImport names, for each package, the packages of this module it may import
// beside everyones. A package that is missing here fails the test.
var mayImport = map[string][]string{
	"ids":     {},
	"refusal": {},
	"item":    {},
	"near":    {},

	"refusal/gen": {},

	"policy/class":  {},
	"policy":        {"policy/class"},
	"policy/access": {"policy", "policy/class"},
	"profiles":      {"policy", "policy/class", "jail/spec", "supervisor/owned"},

	"jail/spec":     {},
	"jail/cgroup":   {"jail/spec"},
	"jail/rootfs":   {"jail/spec"},
	"jail/seccomp":  {"jail/spec"},
	"jail/landlock": {"jail/spec"},
	"jail/stage":    {"jail/spec", "jail/rootfs", "jail/landlock"},
	"jail":          {"jail/spec", "jail/cgroup", "jail/rootfs", "jail/seccomp"},

	"bridge/wire":     {},
	"bridge/mcp":      {},
	"bridge/pace":     {},
	"bridge/stream":   {"bridge/pace"},
	"bridge/upstream": {"bridge/mcp", "bridge/stream"},
	"bridge":          {"bridge/wire", "bridge/mcp", "bridge/pace", "bridge/stream", "bridge/upstream"},

	"supervisor/order":          {},
	"supervisor/token":          {},
	"supervisor/pairing":        {},
	"supervisor/api":            {},
	"supervisor/peer":           {},
	"supervisor/owned":          {},
	"supervisor/sink":           {},
	"supervisor/store":          {},
	"supervisor/audit":          {},
	"supervisor/artifact":       {},
	"supervisor/client":         {"supervisor/api"},
	"supervisor/api/documented": {},
	"supervisor/config":         {"supervisor/order"},
	"supervisor/config/gen":     {"supervisor/config", "policy", "policy/access", "policy/class", "profiles", "jail/spec"},
	"supervisor/launch":         {"supervisor/order", "supervisor/api", "supervisor/peer", "supervisor/owned", "supervisor/audit", "policy", "policy/access", "jail", "jail/spec", "policy/class", "profiles"},
	"supervisor/activity":       {"supervisor/store", "policy", "policy/class"},
	"supervisor/registry":       {"supervisor/store", "supervisor/order", "supervisor/token", "policy", "policy/access", "policy/class", "profiles"},
	"supervisor/gate":           {"policy", "policy/access", "policy/class", "bridge/wire", "supervisor/activity", "supervisor/artifact", "supervisor/store", "supervisor/peer", "supervisor/registry", "supervisor/token"},
	"supervisor/workers":        {"supervisor/artifact", "supervisor/order", "supervisor/gate", "supervisor/peer", "bridge/pace", "bridge/wire"},
	"supervisor/control":        {"supervisor/artifact", "supervisor/api", "supervisor/order", "supervisor/gate", "supervisor/workers", "supervisor/registry", "supervisor/activity", "supervisor/store", "supervisor/peer", "supervisor/token", "supervisor/pairing", "policy", "policy/access", "policy/class"},

	"cmd/posternd":          {"supervisor/sink", "supervisor/launch", "supervisor/audit", "supervisor/order", "supervisor/api", "supervisor/config", "supervisor/owned", "profiles"},
	"cmd/postern-authority": {"supervisor/artifact", "supervisor/sink", "supervisor/audit", "supervisor/control", "supervisor/gate", "supervisor/workers", "supervisor/registry", "supervisor/activity", "supervisor/store", "supervisor/peer", "supervisor/token", "supervisor/order", "supervisor/api", "policy", "policy/access", "policy/class", "profiles"},
	"cmd/postern-bridge":    {"bridge"},
	"cmd/postern-jail":      {"jail/stage", "jail/spec"},
	"cmd/postern-metrics":   {"supervisor/client", "supervisor/api"},
	"cmd/postern":           {"supervisor/client", "supervisor/api", "supervisor/config", "supervisor/order", "policy/class", "profiles"},
}

// everyones packages are pure tables that any package may import.
var everyones = []string{"ids", "refusal", "item", "near"}

// pure packages decide from their arguments alone.
var pure = []string{"ids", "refusal", "item", "near", "supervisor/config", "policy", "policy/class", "policy/access", "jail/spec", "bridge/wire", "bridge/mcp", "supervisor/order", "supervisor/token", "supervisor/pairing", "supervisor/api"}

// effects are the packages through which a pure package could reach the machine.
var effects = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "syscall", "unsafe", "log", "log/slog", "golang.org/x/sys/unix"}

// outside says where each module of others may be imported; a trailing /* means
// that folder and everything beneath it. Tests may import what go.mod has.
var outside = map[string][]string{
	"github.com/seccomp/libseccomp-golang":   {"jail/seccomp"},
	"github.com/containerd/cgroups/v3":       {"jail/cgroup"},
	"github.com/opencontainers/runc":         {"integration/oracle"},
	"github.com/opencontainers/cgroups":      {"integration/oracle"},
	"github.com/anishathalye/porcupine":      {"integration/linear"},
	"github.com/mark3labs/mcp-go":            {"integration/*"},
	"github.com/modelcontextprotocol/go-sdk": {"integration/*"},
	"github.com/go-json-experiment/json":     {"bridge/mcp", "bridge/wire", "supervisor/order", "supervisor/api", "jail/spec", "supervisor/audit", "supervisor/workers", "supervisor/launch", "supervisor/registry", "supervisor/activity", "supervisor/control", "cmd/postern", "integration/*"}, // strict, wherever a peer's or a file's JSON is read
	"github.com/hashicorp/go-hclog":          {"cmd/*", "supervisor/launch", "supervisor/gate", "supervisor/workers", "supervisor/control"},
	"github.com/ncruces/go-sqlite3":          {"supervisor/store"},
	"github.com/prometheus/client_golang":    {"cmd/postern-metrics"},
	"github.com/spf13/cobra":                 {"cmd/postern"},
	"github.com/spf13/pflag":                 {"cmd/postern"},
	"github.com/goccy/go-yaml":               {"profiles", "policy/access", "supervisor/config"},
	"github.com/coreos/go-systemd":           {"cmd/posternd"},
	"golang.org/x/sync":                      {"bridge/*", "supervisor/*", "jail/*", "cmd/*", "integration/*"},
	"golang.org/x/sys":                       {"bridge/*", "supervisor/*", "jail/*", "profiles", "cmd/*", "integration/*"},
}

// onlyIn restricts a package further, to files of these names.
var onlyIn = map[string]*regexp.Regexp{
	"golang.org/x/sys/unix": regexp.MustCompile(`_linux(_test)?\.go$`),
}

// forbidden calls, each with its reason and the folder that may make it.
var forbidden = map[string]struct{ why, except string }{
	"os.Create":     {"it follows links and truncates what it finds; use os.OpenFile with O_EXCL or O_NOFOLLOW", "integration/*"},
	"os.IsNotExist": {"it does not look into wrapped errors; use errors.Is(err, fs.ErrNotExist)", ""},
	"os.IsExist":    {"it does not look into wrapped errors; use errors.Is(err, fs.ErrExist)", ""},
	"os.Getenv":     {"a package is told by its arguments, only a program reads its environment", "cmd/*"},
	"os.LookupEnv":  {"a package is told by its arguments, only a program reads its environment", "cmd/*"},
	"os.Environ":    {"a child is given the environment it needs and no other", "cmd/*"},
}

// clocks are forbidden to pure packages: whoever calls them brings the time.
var clocks = []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick"}

// source is one parsed Go file of this module.
type source struct {
	path, pkg string
	test      bool
	file      *ast.File
	fset      *token.FileSet
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources parses every Go file of the module. It opens the files itself, so that
// the test cache knows them all and never answers for a tree that has changed.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (p == "bin" || d.Name() == "node_modules" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".go":
			return nil
		}
		raw, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{path: p, pkg: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), file: f, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// within tells whether pkg is one of places.
func within(pkg string, places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		under, wild := strings.CutSuffix(place, "/*")
		return pkg == under || wild && strings.HasPrefix(pkg, under+"/")
	})
}

// allowedLocal tells what pkg may import of this module, and whether anyone
// thought of pkg at all.
func allowedLocal(pkg, imp string) (allowed, known bool) {
	switch {
	case strings.HasPrefix(pkg, "integration/testdata/"): // fixtures stand for other people's programs
		return strings.HasPrefix(imp, "integration/testdata/"), true
	case strings.Contains(pkg, "/testdata/"): // programs that a test runs, not part of anything
		return false, true
	case pkg == "integration/probe": // runs inside the jail and must depend on nothing it tests
		return false, true
	case pkg == "integration/oracle":
		return imp == "jail/spec" || slices.Contains(everyones, imp), true
	case pkg == "integration" || strings.HasPrefix(pkg, "integration/"):
		return true, true
	}
	row, known := mayImport[pkg]
	return slices.Contains(row, imp) || slices.Contains(everyones, imp) && !slices.Contains(everyones, pkg), known
}

// TestLayout reports each import that the tables above do not allow.
func TestLayout(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.pkg] = true
		if _, known := allowedLocal(s.pkg, ""); !known {
			t.Errorf("%s: package %s is not in the table", s.path, s.pkg)
		}
		for _, spec := range s.file.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if re := onlyIn[imp]; re != nil && !re.MatchString(s.path) {
				t.Errorf("%s: %s may be imported only in files named %s", s.at(spec), imp, re)
			}
			local, isLocal := strings.CutPrefix(imp, module)
			if isLocal && (local == "integration" || strings.HasPrefix(local, "integration/")) && !strings.HasPrefix(s.pkg, "integration") {
				t.Errorf("%s: nobody imports %s", s.at(spec), local)
			}
			if s.test {
				continue
			}
			if isLocal {
				if ok, _ := allowedLocal(s.pkg, local); !ok {
					t.Errorf("%s: %s must not import %s", s.at(spec), s.pkg, local)
				}
			} else if strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				if places := placesOf(imp); !within(s.pkg, places) {
					t.Errorf("%s: %s must not import %s (it may be imported in %q)", s.at(spec), s.pkg, imp, places)
				}
			}
			if slices.Contains(pure, s.pkg) && slices.Contains(effects, imp) {
				t.Errorf("%s: %s is pure and must not import %s", s.at(spec), s.pkg, imp)
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("%s is in the table and not in the tree", pkg)
		}
	}
}

func placesOf(imp string) []string {
	for mod, places := range outside {
		if imp == mod || strings.HasPrefix(imp, mod+"/") {
			return places
		}
	}
	return nil
}

// The table itself must say no: a table that allows everything would pass.
func TestTheTableRefuses(t *testing.T) {
	for _, row := range []struct {
		pkg, imp string
		want     bool
	}{
		{"jail", "jail/spec", true}, {"jail", "policy", false}, {"jail", "jail/stage", false},
		{"jail/stage", "jail/landlock", true}, {"jail/stage", "jail/seccomp", false},
		{"bridge", "bridge/mcp", true}, {"bridge", "policy", false}, {"bridge", "refusal", true},
		{"supervisor/launch", "jail", true}, {"supervisor/launch", "supervisor/store", false}, {"supervisor/launch", "supervisor/gate", false},
		{"supervisor/gate", "policy", true}, {"supervisor/gate", "supervisor/control", false},
		{"cmd/postern-authority", "supervisor/gate", true}, {"cmd/postern-authority", "supervisor/launch", false},
		{"cmd/postern-bridge", "bridge", true}, {"cmd/postern-bridge", "supervisor/gate", false},
		{"ids", "refusal", false}, {"integration/probe", "jail", false}, {"integration/testdata/servers/weird", "bridge/mcp", false},
	} {
		if got, known := allowedLocal(row.pkg, row.imp); got != row.want || !known {
			t.Errorf("%s imports %s: %v (known %v), wanted %v", row.pkg, row.imp, got, known, row.want)
		}
	}
	if _, known := allowedLocal("supervisor/util", "policy"); known {
		t.Error("a package that nobody thought of is known")
	}
	if within("supervisor/gatekeeper", []string{"supervisor/gate"}) || within("cmdline", []string{"cmd/*"}) || !within("cmd/postern", []string{"cmd/*"}) {
		t.Error("places are matched by prefix of a name")
	}
}

// TestForbiddenCalls reports calls whose danger is easy to overlook.
func TestForbiddenCalls(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.Contains(s.pkg, "/testdata/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: func init runs before main can decide anything; construct it where it is used", s.at(n))
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok {
					return true
				}
				call := x.Name + "." + n.Sel.Name
				if ban, ok := forbidden[call]; ok && !within(s.pkg, []string{ban.except, "integration/*"}) {
					t.Errorf("%s: %s: %s", s.at(n), call, ban.why)
				}
				if slices.Contains(pure, s.pkg) && slices.Contains(clocks, call) {
					t.Errorf("%s: %s is pure and must not call %s", s.at(n), s.pkg, call)
				}
			}
			return true
		})
		for _, group := range s.file.Comments {
			for _, word := range []string{"TODO", "FIXME", "XXX"} {
				if strings.Contains(group.Text(), word) {
					t.Errorf("%s: a comment says %s; finish it or file it", s.at(group), word)
				}
			}
		}
	}
}

// TestOnePackageComment reports folders whose purpose nobody, or more than one
// file, states.
func TestOnePackageComment(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if s.test && !(s.pkg == "integration") {
			continue
		}
		docs[s.pkg] = append(docs[s.pkg], "")
		if s.file.Doc != nil {
			docs[s.pkg][len(docs[s.pkg])-1] = s.path
		}
	}
	for pkg, files := range docs {
		files = slices.DeleteFunc(files, func(f string) bool { return f == "" })
		if len(files) != 1 {
			t.Errorf("%s has %d package comments, wanted one: %q", pkg, len(files), files)
		}
	}
}

var invariant = regexp.MustCompile(`(?m)^\s*- ([a-z]+)-([0-9]+):`)

// TestInvariantsAreTested reports each invariant of a package comment (a line
// like "  - peer-1: …") that no test is named after. The test may stand in another
// package: what only a whole jail can show is shown where jails are launched.
func TestInvariantsAreTested(t *testing.T) {
	var tests []string // lower-case names
	all := sources(t)
	for _, s := range all {
		if !s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				tests = append(tests, strings.ToLower(f.Name.Name))
			}
		}
	}
	for _, s := range all {
		if s.file.Doc == nil || s.test {
			continue
		}
		for _, m := range invariant.FindAllStringSubmatch(s.file.Doc.Text(), -1) {
			named := regexp.MustCompile(`^(test|fuzz).*` + m[1] + m[2] + `([^0-9]|$)`)
			if !slices.ContainsFunc(tests, named.MatchString) {
				t.Errorf("%s: invariant %s-%s has no test named after it", s.path, m[1], m[2])
			}
		}
	}
}

// TestNoSkipInCI reports tests that could be skipped where everything must run:
// whoever skips must have looked at CI (or at -short, which CI does not give).
func TestNoSkipInCI(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil || strings.HasPrefix(f.Name.Name, "Benchmark") { // no check runs these
				continue
			}
			var skips []ast.Node
			looked := false
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					looked = looked || n.Value == `"CI"`
				case *ast.SelectorExpr:
					switch n.Sel.Name {
					case "Skip", "Skipf", "SkipNow":
						skips = append(skips, n)
					case "Short":
						looked = true
					}
				}
				return true
			})
			for _, n := range skips {
				if !looked {
					t.Errorf("%s: %s skips without asking whether this is CI", s.at(n), f.Name.Name)
				}
			}
		}
	}
}
