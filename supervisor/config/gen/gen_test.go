package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"postern/policy/access"
	"postern/profiles"
	"postern/supervisor/config"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestWhatIsWrittenIsWhatTheTablesMake(t *testing.T) {
	files, err := made(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got := read(t, name); got != string(want) {
			t.Errorf("%s is not what the tables make: go generate ./supervisor/config", name)
		}
	}
}

// checker is what an editor says of a file: a shipped schema, in a validator of others.
type checker struct{ schema *jsonschema.Schema }

func schemaOf(t *testing.T, name string) checker {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(read(t, "packaging/schema/"+name)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return checker{s}
}

// says is nil where the file is right. read is false for what is no YAML, of which an
// editor says so without a schema.
func (c checker) says(raw string) (err error, read bool) {
	asJSON, err := yaml.YAMLToJSON([]byte(raw))
	if err != nil {
		return err, false
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err, false
	}
	return c.schema.Validate(doc), true
}

// agree demands that an editor and the decoder say the same of a file.
func (c checker) agree(t *testing.T, raw string, right bool, decoded error) {
	t.Helper()
	if valid, _ := c.says(raw); (valid == nil) != right || (decoded == nil) != right {
		t.Errorf("%s\nright is %v; the schema says %v, the decoder %v", raw, right, valid, decoded)
	}
}

const posternGood = `uid_range: {first: 200000, count: 64}
hosts:
  - {id: runner, uid: 900, accounts: ["*"], projects: [prj_019c8a54-5400-7000-8000-000000000001], channels: [whatsapp]}
activity: {keep_days: 30, keep_mib: 64}
drain_seconds: 0
`

func TestPosternYAML(t *testing.T) {
	c := schemaOf(t, "postern.schema.json")
	for raw, right := range map[string]bool{
		posternGood: true, config.Example(): true, "{}": true, "hosts: []": true, "drain_seconds: 5": true, "uid_range: {first: 70000, count: 1}": true,
		"host: []": false, "drain_seconds: 3601": false, "drain_seconds: -1": false, "drain_seconds: a": false, "activity: 5": false, "activity: {keep: 1}": false, "activity: {keep_mib: 63}": false,
		"uid_range: {first: 70000}": false, "hosts: {}": false, "hosts: [{id: a}]": false, "hosts: [{id: '', uid: 5, accounts: ['*'], projects: ['*']}]": false,
		"hosts: [{id: a, uid: 5, accounts: ['x'], projects: ['*']}]": false, "hosts: [{id: a, uid: 5, accounts: ['*'], projects: ['*'], channels: ['*']}]": false, "- a": false,
	} {
		_, decoded := config.Decode(config.Source{Name: "postern.yaml", Raw: []byte(raw)})
		c.agree(t, raw, right, decoded)
	}
}

func TestEveryBuiltInProfileIsValid(t *testing.T) {
	c := schemaOf(t, "profile.schema.json")
	all, err := profiles.Builtin()
	if err != nil || len(all) < 6 {
		t.Fatal(err, len(all))
	}
	for name := range all {
		raw, _ := profiles.Source(name)
		if err, _ := c.says(string(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every example of the pages is what its schema takes.
func TestEveryExampleIsValid(t *testing.T) {
	found := 0
	for page, name := range map[string]string{"access-policy.md": "access", "configuration.md": "postern", "profiles.md": "profile"} {
		for _, m := range regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "docs/"+page), -1) {
			found++
			if err, _ := schemaOf(t, name+".schema.json").says(m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	pages, _ := filepath.Glob(filepath.Join(root, "docs/*.md"))
	all := 0
	for _, page := range pages {
		all += strings.Count(read(t, "docs/"+filepath.Base(page)), "\n```yaml\n")
	}
	if found != all || found < 2 {
		t.Errorf("%d examples were tried, the pages have %d", found, all)
	}
}

// profileGood has every key that a profile can have.
const profileGood = `name: small
never_register: false
fork: false
workspace: true
workspace_read_only: true
package_exec: false
devices: true
proc: false
loopback: false
binds: [{source: /usr/lib, target: /lib, optional: true, exec: true}]
links: [{path: /lib64, to: usr/lib64}]
env: {A: b}
seccomp:
  groups: [{name: io, reason: reads, calls: [read, write]}]
  rules: [{call: socket, reason: passed, when: [{arg: 0, mask: 4294967295, value: 1}]}]
landlock: {abi: 6}
limits: {memory: 64MiB, pids: 8, cpu_percent: 50, nofile: 64, fsize: 0, tmp: 1MiB, tmp_inodes: 10, shm: 1048576}
idle: 1m
stop_grace: 1.5s
start_timeout: 1h2m
mcp: {call_time: 60s, call_most: 30m, calls: 256, line: 16MiB, depth: 512, blocks: 65536, stderr: 16KiB, pages: 100, session_calls: 64, queue: 20MiB, items: 2000, definition: 256KiB, line_wait: 30s, definitions: 8MiB}
`

// at goes to the mapping in which a path's last name stands.
func at(doc map[string]any, path string) (map[string]any, string) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		plain, isList := strings.CutSuffix(name, "[]")
		next := doc[plain]
		if isList {
			next = next.([]any)[0]
		}
		doc = next.(map[string]any)
	}
	return doc, names[len(names)-1]
}

// C156: every key, as it should be and in each way in which its shape can be wrong: an
// editor and the decoder say the same.
func TestC156_EveryKeyOfAProfile(t *testing.T) {
	c := schemaOf(t, "profile.schema.json")
	check := func(what string, right bool, change func(doc map[string]any)) {
		t.Helper()
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(profileGood), &doc); err != nil {
			t.Fatal(err)
		}
		change(doc)
		raw, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		_, decoded := profiles.Decode("small.yaml", raw)
		if valid, _ := c.says(string(raw)); (valid == nil) != right || (decoded == nil) != right {
			t.Errorf("%s: right is %v; the schema says %v, the decoder %v", what, right, valid, decoded)
		}
	}
	check("as it should be", true, func(map[string]any) {})
	wrong := map[profiles.Kind][]any{
		profiles.Section: {"x", []any{}}, profiles.Sections: {"x", map[string]any{}, []any{"x"}}, profiles.Text: {7, true, []any{}}, profiles.Texts: {"x", []any{7}}, profiles.Named: {"x", map[string]any{"A": 7}, map[string]any{"A=B": "x"}},
		profiles.Truth: {"yes", 1}, profiles.Number: {"x", -1, 1.5, int64(1) << 40}, profiles.Wide: {"x", -1, 1.5}, profiles.Bytes: {"x", "1MB", -1, 1.5, true}, profiles.Duration: {"x", 60, "0s", "-1s", "1", true},
	}
	keys := profiles.Keys()
	for _, k := range keys {
		for _, bad := range wrong[k.Kind] {
			check(fmt.Sprintf("%s: %v", k.Path, bad), false, func(doc map[string]any) {
				in, name := at(doc, k.Path)
				in[name] = bad
			})
		}
		if len(wrong[k.Kind]) == 0 {
			t.Errorf("%s: of kind %q nothing wrong is known", k.Path, k.Kind)
		}
		pair := strings.HasPrefix(k.Path, "limits.tmp") // each needs the other
		check(k.Path+" is missing", !k.Needed && !pair, func(doc map[string]any) {
			in, name := at(doc, k.Path)
			delete(in, name)
		})
		check(k.Path+", misspelt beside", false, func(doc map[string]any) {
			in, name := at(doc, k.Path)
			in[name+"s_"] = in[name]
		})
		bounds, ok := profiles.Bounds()[k.Path]
		if !ok {
			continue
		}
		for value, right := range map[int64]bool{bounds[0]: true, bounds[1]: true, bounds[0] - 1: false, bounds[1] + 1: false} {
			check(fmt.Sprintf("%s: %d", k.Path, value), right, func(doc map[string]any) {
				in, name := at(doc, k.Path)
				in[name] = value
			})
		}
	}
	for path := range profiles.Bounds() {
		if !slices.ContainsFunc(keys, func(k profiles.Key) bool { return k.Path == path }) {
			t.Errorf("%s has bounds and is no key", path)
		}
	}
	set := func(path string, value any) func(map[string]any) {
		return func(doc map[string]any) {
			in, name := at(doc, path)
			in[name] = value
		}
	}
	many := func(n int, one any) []any { return slices.Repeat([]any{one}, n) }
	for what, row := range map[string]struct {
		right  bool
		change func(map[string]any)
	}{
		"a name":                      {false, set("name", "Small")},
		"a long name":                 {false, set("name", strings.Repeat("x", 33))},
		"a path that is not absolute": {false, set("binds[].source", "usr")},
		"a path that goes up":         {false, set("binds[].source", "/usr/../etc")},
		"a path that ends in a slash": {false, set("binds[].source", "/usr/")},
		"a path with points in it":    {true, set("binds[].source", "/usr/lib..x/.y")},
		"the same path":               {true, set("binds[].target", "")},
		"a link to nowhere":           {false, set("links[].to", "")},
		"too many links":              {false, set("links", many(65, map[string]any{"path": "/x", "to": "y"}))},
		"no group of calls":           {false, set("seccomp.groups", []any{})},
		"a group without calls":       {false, set("seccomp.groups[].calls", []any{})},
		"a group without a reason":    {false, set("seccomp.groups[].reason", "")},
		"a rule without conditions":   {false, set("seccomp.rules[].when", []any{})},
		"no rules":                    {true, set("seccomp.rules", []any{})},
		"an empty environment":        {true, set("env", map[string]any{})},
		"a read-only workspace alone": {false, set("workspace", false)},
		"bytes as text":               {true, set("limits.fsize", "1024")},
		"bytes as a number":           {true, set("limits.memory", 64<<20)},
		"a duration of a part":        {true, set("idle", ".5h")},
		"the greatest value": {true, func(doc map[string]any) {
			set("seccomp.rules[].when[].mask", uint64(1)<<63)(doc)
			set("seccomp.rules[].when[].value", uint64(1)<<63)(doc)
		}},
		"a key of another section":     {false, set("memory", "1MiB")},
		"a key in capital letters":     {false, set("Fork", true)},
		"nothing where a section is":   {false, set("limits", nil)},
		"nothing in the place of text": {false, set("name", nil)},
	} {
		check(what, row.right, row.change)
	}
	for _, raw := range []string{"", "# nothing\n", "- a\n", "name\n"} {
		_, decoded := profiles.Decode("small.yaml", []byte(raw))
		c.agree(t, raw, false, decoded)
	}
}

// literals are the texts of the tests of a package that begin as a whole access policy does.
func literals(t *testing.T, dir string) []string {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	var out []string
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if b, ok := n.(*ast.BinaryExpr); ok && b.Op == token.ADD {
				return false // a piece
			}
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil && regexp.MustCompile(`^(channels|modes|chanels): ?[\n{]`).MatchString(s) && !strings.Contains(s, "%") {
					out = append(out, s)
				}
			}
			return true
		})
	}
	return out
}

// beyond are the mistakes that no schema can tell: of two keys, of two spellings, or of
// what another part of the document says.
var beyond = regexp.MustCompile(`is given twice|another entry too|is no mode with a list|is built in|want one document`)

// What the tests of the policy hold to be right, the schema takes; what they hold to be
// wrong it refuses, but for what it cannot tell.
func TestEveryPolicyOfTheTests(t *testing.T) {
	c := schemaOf(t, "access.schema.json")
	docs := literals(t, "policy/access")
	var right, wrong int
	for _, doc := range docs {
		_, mistakes := access.Parse([]byte(doc))
		mistakes = slices.DeleteFunc(mistakes, func(m access.Mistake) bool { return m.Warn })
		valid, isYAML := c.says(doc)
		switch {
		case len(mistakes) == 0:
			if right++; valid != nil {
				t.Errorf("the decoder takes it, the schema says %v:\n%s", valid, doc)
			}
		case !isYAML || valid != nil:
			wrong++
		case strings.Contains(doc, "&"): // an anchor is gone before an editor holds the file against the schema
		case !slices.ContainsFunc(mistakes, func(m access.Mistake) bool { return beyond.MatchString(m.Want) }):
			t.Errorf("the schema takes it, the decoder says %v:\n%s", mistakes, doc)
		}
	}
	if right < 40 || wrong < 10 {
		t.Errorf("%d right and %d wrong ones of %d were found", right, wrong, len(docs))
	}
}

const policyGood = `modes:
  docs: {allowed: [wiki/*, "*/search", read], denied: [a/b], allowed_capabilities: [filesystem.read], denied_capabilities: [], no_tools: false, whitelist_mode: true}
channels:
  w:
    enabled: true
    type: linked
    default_mode: docs
    allow: ["+5511999998888", +5511999998888, alice@example.org]
    owners: [x]
    reply_in_groups: true
    access:
      admission: open
      default: {level: chat, write: false}
      users: {"+55 11 99999-7777": {level: read, write: true}, bob: {role: owner}, eve: {blocked: true}}
      groups: {enabled: true, default: {level: read, write: true}, default_mode: search, "120363@g.us": {level: full, write: true}}
  local:
    access: {users: {acc_019c8a54-5400-7000-8000-000000000001: {role: owner}}}
`

// C156: every key of the access policy, as it should be and in each way in which its shape
// can be wrong.
func TestC156_EveryKeyOfTheAccessPolicy(t *testing.T) {
	c := schemaOf(t, "access.schema.json")
	decoded := func(doc string) error {
		_, mistakes := access.Parse([]byte(doc))
		for _, m := range mistakes {
			if !m.Warn {
				return fmt.Errorf("%s", m)
			}
		}
		return nil
	}
	c.agree(t, policyGood, true, decoded(policyGood))
	within := map[string]string{ // a document for each section, with a place for its keys
		"": "{KEYS}", "modes.*": "modes: {m: {KEYS}}", "channels.*": "channels: {w: {KEYS}}", "channels.*.access": "channels: {w: {access: {KEYS}}}",
		"channels.*.access.users.*": "channels: {w: {access: {users: {x: {KEYS}}}}}", "channels.*.access.default": "channels: {w: {access: {default: {KEYS}}}}",
		"channels.*.access.groups": "channels: {w: {access: {groups: {KEYS}}}}", "channels.*.access.groups.*": "channels: {w: {access: {groups: {'1': {KEYS}}}}}",
	}
	for section, keys := range access.Keys() {
		doc, ok := within[section]
		if !ok {
			t.Fatalf("section %q is not tried", section)
		}
		for _, key := range keys {
			for _, value := range []string{"[[x]]", "1.5", "{x_: {y_: z}}", "[1.5]", "''"} {
				if key == "type" && value == "''" {
					continue
				}
				raw := strings.Replace(doc, "KEYS", key+": "+value, 1)
				c.agree(t, raw, false, decoded(raw))
			}
			raw := strings.Replace(doc, "KEYS", key+"_: true", 1)
			c.agree(t, raw, false, decoded(raw))
		}
	}
	rows := map[string]bool{
		"channels: {w: {access: {admission: everybody}}}": false, "channels: {w: {access: {default: {level: full}}}}": false, "channels: {w: {access: {default: }}}": true,
		"channels: {w: {access: {users: {x: {level: read, role: owner}}}}}": false, "channels: {w: {access: {users: {x: {blocked: true, level: read, role: owner}}}}}": true,
		"channels: {w: {access: {users: {x: {blocked: false}}}}}": false, "channels: {w: {access: {users: {x: {}}}}}": false, "channels: {w: {access: {users: {x: }}}}": false,
		"channels: {w: {access: {users: {'*': {level: read}}}}}": false, "channels: {w: {access: {users: {'é': {level: read}}}}}": false, "channels: {w: {access: {users: }}}": true,
		"channels: {w: {access: {groups: {enabeld: true}}}}": false, "channels: {w: {access: {groups: {'1': {}}}}}": false, "channels: {w: {access: {groups: {'1': {level: read}}}}}": true,
		"channels: {local: {access: {groups: {enabled: true}}}}": false, "channels: {local: {access: {users: {alice: {level: read}}}}}": false, "channels: {local: }": true,
		"channels: {W: {}}": false, "channels: {w-1_a: {}}": true, "channels: {w: {default_mode: auto}}": false, "channels: {w: {default_mode: code}}": true, "channels: {w: {allow: [1]}}": true, "channels: {w: {allow: [1234567890123456]}}": false,
		"modes: {m: {}}": false, "modes: {m: {whitelist_mode: true}}": false, "modes: {m: {whitelist_mode: true, denied: []}}": true, "modes: {m: {allowed: ['*']}}": false, "modes: {m: {allowed: ['*/*']}}": false,
		"modes: {m: {allowed: [a/b/c]}}": false, "modes: {m: {allowed_capabilities: [Filesystem.read]}}": false, "modes: {m: {no_tools: 'true'}}": false, "modes: ": true, "channels: ": true, "modes: []": false,
	}
	for raw, right := range rows {
		c.agree(t, raw, right, decoded(raw))
	}
}
