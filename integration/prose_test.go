package integration

import (
	"go/ast"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"postern/policy/access"
	"postern/policy/class"
	"postern/profiles"
	"postern/supervisor/api"
	"postern/supervisor/config"
)

// spans are what a document has in backquotes outside of blocks, each on one line.
func spans(doc string) []string {
	var out []string
	for i, part := range strings.Split("\n"+doc, "\n```") {
		if i%2 == 1 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1) {
			out = append(out, strings.Join(strings.Fields(m[1]), " "))
		}
	}
	return out
}

// groups are commands that hold others and are named as a whole.
var groups = []string{"access", "artifact"}

// others are flags of other people's programs.
var others = map[string]string{"--headless": "chromium", "--no-sandbox": "chromium", "--no-zygote": "chromium", "--disable-gpu": "chromium", "-m": "python3",
	"--system": "useradd", "--no-create-home": "useradd", "--shell": "useradd"}

// programFlags are those of every program: of postern from its help, of the others from
// where they are declared.
func programFlags(t *testing.T, bin string) (out []string) {
	t.Helper()
	help := func(words ...string) string {
		raw, err := exec.Command(bin, append(words, "--help")...).Output()
		if err != nil {
			t.Fatalf("the help of %q: %v", words, err)
		}
		return string(raw)
	}
	texts := []string{help()}
	for _, m := range regexp.MustCompile("(?m)^\\| `postern ([^`]+)` \\|").FindAllStringSubmatch(page(t, "docs/json.md"), -1) {
		texts = append(texts, help(strings.Fields(m[1])...))
	}
	for _, text := range texts {
		for _, m := range regexp.MustCompile(`(?m)^ +(?:(-[a-z]), )?(--[a-z][a-z-]*)`).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1], m[2])
		}
	}
	for _, name := range []string{"cmd/posternd/main_linux.go", "cmd/postern-metrics/main.go", "integration/bench/main.go"} {
		for _, m := range regexp.MustCompile(`flags?\.[A-Z][A-Za-z]*\((?:&[\w.]+, )?"([a-z-]+)",`).FindAllStringSubmatch(page(t, name), -1) {
			out = append(out, "-"+m[1])
		}
	}
	return append(out, "-steps") // of postern-jail, which reads no other
}

// programs is the source of everything that is shipped.
func programs(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	for _, s := range sources(t) {
		if !s.test && !strings.HasPrefix(s.pkg, "integration") {
			code.WriteString(page(t, s.path))
		}
	}
	return code.String()
}

// What a page names in its sentences, and a program in its own, is there: flags, commands, units, and files that the
// packages install or Postern makes.
func TestWhatSentencesNameExists(t *testing.T) {
	bin := postern(t)
	flags := programFlags(t, bin)
	if len(flags) < 100 {
		t.Fatalf("the programs have the flags %q", flags)
	}
	var installed []string
	for _, m := range regexp.MustCompile(`(?m)^\s+"(/[^"]+)":\s+"[-d]rw`).FindAllStringSubmatch(page(t, "integration/packages/packages_test.go"), -1) {
		installed = append(installed, m[1])
	}
	if len(installed) < 20 {
		t.Fatalf("the packages hold %q", installed)
	}
	code := programs(t)
	check := func(span string) string { return wrongIn(span, bin, flags, installed, code) }
	said := 0
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "integration") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			for _, m := range regexp.MustCompile(`(?:^["`+"`"+`]| |\()(--[a-z][a-z-]+)`).FindAllStringSubmatch(l.Value, -1) {
				if said++; !slices.Contains(flags, m[1]) && others[m[1]] == "" {
					t.Errorf("%s: no program has the flag %s", s.at(n), m[1])
				}
			}
			return true
		})
	}
	if said < 100 {
		t.Errorf("%d flags were found in sentences of programs", said)
	}
	seen := 0
	for _, name := range pages(t) {
		if name == "CHANGELOG.md" { // which names what is gone
			continue
		}
		for _, span := range spans(page(t, name)) {
			seen++
			if wrong := check(span); wrong != "" {
				t.Errorf("%s: `%s`: %s", name, span, wrong)
			}
		}
	}
	if seen < 1000 {
		t.Errorf("%d names were found", seen)
	}
	for _, bad := range []string{"--nosuch", "--json --colour", "-chekc", "postern conection list", "postern ps --colour", "postern-nosuch.service", "/usr/libexec/postern/nosuch", "/usr/share/postern/nosuch.py",
		"/usr/lib/systemd/system/postern-nosuch.service", "/etc/postern/nosuch.yaml", "/run/postern/nosuch.sock", "/var/lib/postern-nosuch"} {
		if check(bad) == "" {
			t.Errorf("`%s` passes", bad)
		}
	}
}

// placeholder is a part of a name that stands for another.
var placeholder = regexp.MustCompile(`[<>*…]|^[A-Z-]+$`)

// wrongIn says what of a name in backquotes is not there.
func wrongIn(span, bin string, flags, installed []string, code string) string {
	words := strings.Fields(span)
	switch first, _, _ := strings.Cut(strings.TrimPrefix(span, "sudo "), " "); {
	case strings.HasPrefix(span, "-") && regexp.MustCompile(`^--?[a-z]`).MatchString(span):
		for _, w := range words {
			flag, _, _ := strings.Cut(w, "=")
			if strings.HasPrefix(flag, "-") && flag != "-" && !slices.Contains(flags, flag) && others[flag] == "" {
				return "no program has the flag " + flag
			}
		}
	case first == "postern" && len(words) > 1 && !placeholder.MatchString(words[1]):
		words := strings.Fields(strings.TrimPrefix(span, "sudo "))[1:]
		if slices.Contains(groups, strings.Join(words, " ")) {
			return "" // a page may speak of all of its commands
		}
		if err := understood(bin, words); err != nil {
			return err.Error()
		}
	case regexp.MustCompile(`^postern[a-z-]*\.(service|socket|timer|path|slice)$`).MatchString(span):
		if !slices.ContainsFunc(installed, func(p string) bool { return filepath.Base(p) == span }) {
			return "the packages have no such unit"
		}
	case strings.HasPrefix(first, "/usr/") && strings.Contains(first, "postern"):
		if !slices.ContainsFunc(installed, func(p string) bool { return p == first || strings.HasPrefix(p, strings.TrimSuffix(first, "/")+"/") }) {
			return "the packages do not install it"
		}
	case regexp.MustCompile(`^/(etc|run|run/lock|var/lib)/postern`).MatchString(first):
		for part := range strings.SplitSeq(strings.Trim(first, "/"), "/") {
			if !placeholder.MatchString(part) && !regexp.MustCompile(`["/]`+regexp.QuoteMeta(part)+`["/]`).MatchString(code) {
				return "Postern makes and reads nothing called " + part
			}
		}
	}
	return ""
}

// dottedNames are the names with points in them that pages and sentences may have: keys of
// the three files, classes of tools, and actions of the sockets.
func dottedNames() map[string]bool {
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Path] = true
	}
	for _, k := range profiles.Keys() {
		known[k.Path] = true
	}
	for section, keys := range access.Keys() {
		for _, key := range keys {
			path := strings.Trim(section+"."+key, ".")
			for known[path] = true; strings.Contains(path, "."); known[path] = true { // by their ends too, as access.users
				_, path, _ = strings.Cut(path, ".")
			}
		}
	}
	for _, c := range class.All().Strings() {
		known[c] = true
	}
	for _, a := range api.Actions() {
		known[string(a)] = true
	}
	return known
}

// A key that a page or a program's sentence names is one, and so is an action and a class.
func TestDottedNamesExist(t *testing.T) {
	known := dottedNames()
	dotted := regexp.MustCompile(`^[a-z_]+(\[\])?(\.[a-z_]+(\[\])?)+$`)
	file := regexp.MustCompile(`\.(yaml|yml|d|json|db|sock|log|conf|service|go|mod|lock)$`)
	seen := 0
	for _, name := range pages(t) {
		for _, span := range spans(page(t, name)) {
			if !dotted.MatchString(span) || file.MatchString(span) {
				continue
			}
			if seen++; !known[span] {
				t.Errorf("%s: nothing is called `%s`", name, span)
			}
		}
	}
	said := 0
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "integration") {
			continue
		}
		for _, m := range regexp.MustCompile(`postern\.yaml ([a-z_]+\.[a-z_]+)`).FindAllStringSubmatch(page(t, s.path), -1) {
			if said++; !known[m[1]] {
				t.Errorf("%s: postern.yaml has no key %s", s.path, m[1])
			}
		}
	}
	if seen < 150 || said < 4 {
		t.Errorf("%d names of pages and %d of programs were found", seen, said)
	}
	for _, bad := range []string{"activity.mib", "limits.memry", "access.user", "filesystem.reed", "account.frob"} {
		if known[bad] {
			t.Errorf("%s passes", bad)
		}
	}
}

// named are words with an underscore that are other people's.
var named = map[string]string{"mount_setattr": "a system call", "pidfd_send_signal": "a system call", "pivot_root": "a system call", "exit_group": "a system call", "node_modules": "npm's directory"}

// A word with an underscore is a code, a key, a member of a document or of the log, a
// metric, a preset or a tool's name, and stands in the programs as a text: what was
// renamed there is found here.
func TestWordsWithUnderscoresExist(t *testing.T) {
	code := programs(t)
	for _, raw := range []string{"profiles/builtin/python.yaml", "packaging/examples/files/files.py"} {
		code += page(t, raw)
	}
	word := regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)+$`)
	known := map[string]bool{}
	for _, at := range regexp.MustCompile(`[a-z]+(_[a-z0-9]+)+`).FindAllStringIndex(code, -1) {
		if at[0] > 0 && strings.ContainsRune("\"`.", rune(code[at[0]-1])) && strings.ContainsRune("\"`,:", rune(code[at[1]])) {
			known[code[at[0]:at[1]]] = true
		}
	}
	stands := func(span string) bool { return named[span] != "" || known[span] }
	seen := 0
	for _, name := range pages(t) {
		if name == "CHANGELOG.md" {
			continue
		}
		for _, span := range spans(page(t, name)) {
			if !word.MatchString(span) {
				continue
			}
			if seen++; !stands(span) {
				t.Errorf("%s: nothing is called `%s`", name, span)
			}
		}
	}
	if seen < 400 {
		t.Errorf("%d words were found", seen)
	}
	if stands("server_revision_chnaged") || stands("keep_dayz") {
		t.Error("a word that nothing is called by passes")
	}
}
