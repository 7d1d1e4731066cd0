package integration

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"postern/refusal"
)

// page reads a document of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// pages lists every document, by its path in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(os.DirFS(".."), "*.md")
	if err != nil {
		t.Fatal(err)
	}
	below, err := fs.Glob(os.DirFS(".."), "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 2 || len(below) < 8 {
		t.Fatalf("the documents are %q and %q", names, below)
	}
	return append(names, below...)
}

// section returns what stands between a heading and the next of its level.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	level := heading[:strings.IndexByte(heading, ' ')+1]
	_, rest, ok := strings.Cut(doc, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n"+level)
	return body
}

// blocks returns the fenced blocks of a document.
func blocks(doc string) []string {
	var out []string
	for i, part := range strings.Split("\n"+doc, "\n```") {
		if i%2 == 1 {
			_, body, _ := strings.Cut(part, "\n")
			out = append(out, body)
		}
	}
	return out
}

// column returns the first cell of each row of every table in a text, without the
// head and without backquotes.
func column(text string) []string {
	var out []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || cells[0] != "" || strings.HasPrefix(line, "|--") || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--") {
			continue
		}
		out = append(out, strings.Trim(cells[1], " `"))
	}
	return out
}

// missing reports what is in want and not in have.
func missing(t *testing.T, what string, want, have []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(have, w) {
			t.Errorf("%s: %q is missing", what, w)
		}
	}
}

// packages lists the folders with Go files. What lies below integration is nobody's
// to import, and the documents speak of it as one.
func packages(t *testing.T) []string {
	var out []string
	for _, s := range sources(t) {
		pkg := s.pkg
		if strings.Contains(pkg, "/testdata") {
			continue
		}
		if strings.HasPrefix(pkg, "integration/") {
			pkg = "integration"
		}
		if !slices.Contains(out, pkg) {
			out = append(out, pkg)
		}
	}
	return out
}

func TestTheMapIsTheTree(t *testing.T) {
	var named []string
	for line := range strings.Lines(blocks(section(t, page(t, "README.md"), "## The map"))[0]) {
		path, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		dir, isDir := strings.CutSuffix(path, "/")
		if info, err := os.Stat(filepath.Join("..", dir)); !isDir || err != nil || !info.IsDir() || strings.TrimSpace(why) == "" {
			t.Errorf("%q is not a folder with its purpose", line)
		}
		named = append(named, dir)
	}
	missing(t, "the map in the README", packages(t), named)

	text := section(t, page(t, "docs/architecture.md"), "## Packages")
	missing(t, "the packages in docs/architecture.md", packages(t), column(text))
	missing(t, "the tree", column(text), packages(t))
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		pkg := strings.Trim(cells[1], " `")
		if says := strings.TrimSpace(cells[3]) == "yes"; says != slices.Contains(pure, pkg) && pkg != "package" && !strings.HasPrefix(pkg, "-") {
			t.Errorf("docs/architecture.md says of %s that it is pure: %v", pkg, says)
		}
	}
}

// TestC11_TheHookOfTheDocumentIsOne: the example is a settings file, its hook is asked
// about every tool, and its command is one that answers as a hook.
func TestC11_TheHookOfTheDocumentIsOne(t *testing.T) {
	var settings struct {
		Hooks map[string][]struct {
			Matcher string
			Hooks   []struct {
				Type, Command string
				Timeout       int
			}
		}
	}
	found := false
	for _, b := range blocks(page(t, "docs/runtime-authors.md")) {
		if !strings.Contains(b, "PreToolUse") {
			continue
		}
		found = true
		if err := json.Unmarshal([]byte(b), &settings); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
	}
	pre := settings.Hooks["PreToolUse"]
	if !found || len(pre) != 1 || pre[0].Matcher != "*" || len(pre[0].Hooks) != 1 || pre[0].Hooks[0].Type != "command" || pre[0].Hooks[0].Timeout < 20 {
		t.Fatalf("no hook that is asked about every tool: %+v", settings)
	}
	if got := pre[0].Hooks[0].Command; !strings.HasPrefix(got, "postern check --hook claude --project ") {
		t.Errorf("the hook runs %q", got)
	}
}

// The golden list is compared with the table in package stage.
func TestTheStepListIsTheTable(t *testing.T) {
	golden := page(t, "jail/stage/testdata/steps.txt")
	for _, b := range blocks(page(t, "README.md")) {
		if strings.TrimSpace(b) == strings.TrimSpace(golden) {
			return
		}
	}
	t.Error("no block of the README is what postern-jail -steps prints")
}

// The page is the table's; what links to it names its sections.
func TestEveryRefusalHasItsSection(t *testing.T) {
	doc := page(t, "docs/refusals.md")
	if doc != refusal.Page() {
		t.Error("docs/refusals.md is not what package refusal writes: go generate ./refusal")
	}
	for _, row := range refusal.Table() {
		if _, anchor, ok := strings.Cut(row.Code.Help(), "#"); !ok || len(strings.Fields(section(t, doc, "## "+anchor))) < 15 {
			t.Errorf("the help of %s is %q, where nothing stands", string(row.Code), row.Code.Help())
		}
	}
}

func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	var have []string
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				have = append(have, f.Name.Name)
			}
		}
	}
	doc := page(t, "docs/threat-model.md")
	var named []string
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*)`").FindAllStringSubmatch(doc, -1) {
		named = append(named, m[1])
	}
	if len(named) < 40 {
		t.Errorf("docs/threat-model.md names %d tests", len(named))
	}
	missing(t, "the tests that docs/threat-model.md names", named, have)
	var upgrade []string
	for _, m := range regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)`").FindAllStringSubmatch(page(t, "docs/upgrade.md"), -1) {
		upgrade = append(upgrade, m[1])
	}
	if len(upgrade) < 5 {
		t.Errorf("docs/upgrade.md names %q", upgrade)
	}
	missing(t, "the tests that docs/upgrade.md names", upgrade, have)
	for _, heading := range []string{"Identity and binding:", "The decision:", "The call:", "The root side:", "The jail:"} {
		_, table, _ := strings.Cut(doc, "\n"+heading+"\n")
		table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
		for i, row := range strings.Split(table, "\n") {
			if i > 1 && !strings.Contains(row, "`Test") {
				t.Errorf("docs/threat-model.md promises without a test: %s", row)
			}
		}
	}
}

// requirement is one line of a require block of go.mod.
var requirement = regexp.MustCompile(`(?m)^\s+([a-z][^\s]*/[^\s]*|[a-z][^\s]*) v[0-9][^\s]*( // indirect)?$`)

func TestEveryDependencyHasItsRow(t *testing.T) {
	doc := page(t, "docs/dependencies.md")
	inPrograms := column(section(t, doc, "## Go modules in the programs"))
	inTests := column(section(t, doc, "## Go modules in tests only"))

	var modules, used, shipped []string
	for _, m := range requirement.FindAllStringSubmatch(page(t, "go.mod"), -1) {
		modules = append(modules, m[1])
	}
	if len(modules) < 10 {
		t.Fatalf("go.mod requires %q", modules)
	}
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			imp := strings.Trim(spec.Path.Value, `"`)
			for _, m := range modules {
				if imp != m && !strings.HasPrefix(imp, m+"/") {
					continue
				}
				used = append(used, m)
				if !s.test && !strings.HasPrefix(s.pkg, "integration/") {
					shipped = append(shipped, m)
				}
			}
		}
	}
	missing(t, "docs/dependencies.md", used, slices.Concat(inPrograms, inTests))
	missing(t, "the source, of what docs/dependencies.md names", slices.Concat(inPrograms, inTests), used)
	missing(t, "docs/dependencies.md, modules in the programs", shipped, inPrograms)
	missing(t, "the programs, of what docs/dependencies.md says is in them", inPrograms, shipped)

	var debian, npm []string
	for _, m := range regexp.MustCompile(`(?m)^need (\S+) `).FindAllStringSubmatch(page(t, "scripts/deps"), -1) {
		debian = append(debian, m[1])
	}
	rows := column(section(t, doc, "## Debian packages"))
	missing(t, "docs/dependencies.md, Debian packages", debian, rows)
	missing(t, "scripts/deps", rows, debian)
	for _, set := range []string{"npm", "clients"} {
		for _, m := range regexp.MustCompile(`(?m)^    "([^"]+)": "[0-9]`).FindAllStringSubmatch(page(t, "integration/testdata/"+set+"/package.json"), -1) {
			npm = append(npm, m[1])
		}
	}
	rows = column(section(t, doc, "## npm packages"))
	missing(t, "docs/dependencies.md, npm packages", npm, rows)
	missing(t, "package.json", rows, npm)
}

// The keys of a profile are those its decoder knows.
func TestEveryProfileKeyHasItsRow(t *testing.T) {
	var rows, keys []string
	for _, row := range column(section(t, page(t, "docs/profiles.md"), "## A profile of your own")) {
		last := row[strings.LastIndexByte(row, '.')+1:]
		rows = append(rows, last)
		if parent, _, ok := strings.Cut(row, "."); ok {
			rows = append(rows, strings.TrimSuffix(parent, "[]"))
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+"([a-z_]+)":\s+\{d\.`).FindAllStringSubmatch(page(t, "profiles/decode.go"), -1) {
		keys = append(keys, m[1])
	}
	if len(keys) < 30 {
		t.Fatalf("the decoder knows %q", keys)
	}
	missing(t, "docs/profiles.md", keys, rows)
	missing(t, "the decoder of profiles", rows, keys)
}

func TestMakeTargetsAreNamed(t *testing.T) {
	var targets, named []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(page(t, "Makefile"), -1) {
		if m[1] != "help" {
			targets = append(targets, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+) `).FindAllStringSubmatch(section(t, page(t, "HACKING.md"), "## Make"), -1) {
		named = append(named, m[1])
	}
	missing(t, "HACKING.md", targets, named)
	missing(t, "the Makefile", named, targets)
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, name := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(page(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(name), file)
			if file == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			} else if hasAnchor && !slices.Contains(anchors(page(t, target)), anchor) {
				t.Errorf("%s: %s has no such heading", name, m[1])
			}
		}
	}
}

// anchors are the names by which a document's headings are reached.
func anchors(doc string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(doc, -1) {
		a := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		out = append(out, regexp.MustCompile(`[^a-z0-9_-]`).ReplaceAllString(a, ""))
	}
	return out
}

// postern builds the program.
func postern(t *testing.T) string {
	t.Helper()
	sources(t) // makes the test cache know what is built below
	bin := filepath.Join(t.TempDir(), "postern")
	build := exec.Command("go", "build", "-o", bin, "./cmd/postern")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	return bin
}

// Every command line in a block is one that the program understands: the words lead
// to a command, and that command has the flags.
func TestCommandsInDocumentsParse(t *testing.T) {
	bin := postern(t)
	count := 0
	for _, name := range pages(t) {
		for _, b := range blocks(page(t, name)) {
			for line := range strings.Lines(b) {
				words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "sudo "))
				if len(words) == 0 || words[0] != "postern" {
					continue
				}
				count++
				if err := understood(bin, words[1:]); err != nil {
					t.Errorf("%s: %s: %v", name, strings.TrimSpace(line), err)
				}
			}
		}
	}
	if count < 40 {
		t.Errorf("only %d commands were found", count)
	}
	for _, wrong := range []string{"frob", "connection frob", "task new --project P --colour", "ps --nosuch", "activity frob", "activity export --follow"} {
		if understood(bin, strings.Fields(wrong)) == nil {
			t.Errorf("%q is understood", wrong)
		}
	}
}

// understood asks the program for the help of the command that the words lead to.
func understood(bin string, words []string) error {
	if i := slices.Index(words, "--"); i >= 0 {
		words = words[:i]
	}
	var names, flags []string
	for _, w := range words {
		switch {
		case strings.HasPrefix(w, "--"):
			f, _, _ := strings.Cut(w, "=")
			flags = append(flags, f)
		case len(flags) == 0:
			names = append(names, w)
		}
	}
	out, err := exec.Command(bin, append(names, "--help")...).Output()
	if err != nil {
		return fmt.Errorf("its help: %w", err)
	}
	help := string(out)
	// A command that holds others must not be what is left of a word it lacks. One that
	// does something by itself as well takes no words.
	itself := regexp.MustCompile(`(?m)^Flags:\n( .*\n){2,}`).MatchString(help) && strings.Contains(help, "  postern "+strings.Join(names, " ")+" [flags]\n")
	if strings.Contains(help, "Available Commands:") && !itself {
		return fmt.Errorf("%q is no command", strings.Join(names, " "))
	}
	for _, f := range flags {
		if !regexp.MustCompile(`(^|\s)` + regexp.QuoteMeta(f) + `(\s|$)`).MatchString(help) {
			return fmt.Errorf("there is no flag %s", f)
		}
	}
	return nil
}

// Whoever was refused finds the way: the page names each code once and links to what is
// said of it, and it knows every status and every layer of doctor.
func TestTroubleshootingReachesEveryCode(t *testing.T) {
	doc := page(t, "docs/troubleshooting.md")
	codes := section(t, doc, "## By code")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^\\| \\[`([a-z_]+)`\\]\\(refusals\\.md#([a-z_]+)\\) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(codes, -1) {
		if m[1] != m[2] || slices.Contains(named, m[1]) {
			t.Errorf("%s is named twice, or leads to %s", m[1], m[2])
		}
		named = append(named, m[1])
	}
	var all, statuses []string
	for _, row := range refusal.Table() {
		all = append(all, string(row.Code))
		statuses = append(statuses, fmt.Sprint(row.Exit))
	}
	missing(t, "docs/troubleshooting.md", all, named)
	missing(t, "the table of refusals", named, all)
	missing(t, "docs/troubleshooting.md, statuses", statuses, column(section(t, doc, "## By exit status")))

	layers := section(t, doc, "## By what doctor says")
	var known int
	for _, file := range []string{"doctor.go", "doctor_host_linux.go", "doctor_linux.go"} {
		for _, m := range regexp.MustCompile(`(?:judge\(|const name, meaning = )"([a-z -]+)"`).FindAllStringSubmatch(page(t, "cmd/postern/"+file), -1) {
			known++
			if !strings.Contains(layers, "`"+m[1]+"`") {
				t.Errorf("docs/troubleshooting.md does not say what helps where %q is missing", m[1])
			}
		}
	}
	if known < 15 {
		t.Errorf("doctor knows %d layers", known)
	}
}

// What Postern does not promise is said, and who attacks is counted, as was agreed.
func TestTheThreatModelSaysWhatIsNotPromised(t *testing.T) {
	doc := page(t, "docs/threat-model.md")
	not := section(t, doc, "## What is not promised")
	for _, s := range []string{"- A kernel without holes", "side channels", "- The meaning of arguments", "- Undoing", "- A disk quota on a workspace", "- Truth about a taken-over bridge"} {
		if !strings.Contains(not, s) {
			t.Errorf("it promises, or keeps silent of: %s", s)
		}
	}
	who := column(section(t, doc, "## Who attacks, and what each may do at most"))
	missing(t, "who attacks", []string{"a model and its runtime", "another local user", "a person with `person_bind", "a host", "a tool server, its package, its author",
		"whatever lies in a workspace", "a taken-over bridge", "a taken-over authority"}, who)
}

// The index leads to every page.
func TestTheIndexNamesEveryPage(t *testing.T) {
	index := page(t, "docs/README.md")
	for _, name := range pages(t) {
		if base, ok := strings.CutPrefix(name, "docs/"); ok && base != "README.md" && !strings.Contains(index, "("+base+")") {
			t.Errorf("docs/README.md does not lead to %s", base)
		}
	}
}
