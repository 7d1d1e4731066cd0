// Package config knows postern.yaml: every key with its bounds, its default and whether a
// running posternd takes it, how a file and its drop-ins become one, and what is wrong
// with them.
//
// It is pure and runs in posternd, before anything is started. The files are root's, which
// the caller has checked; they may still be mistyped, cut off or at odds with each other.
//
// Invariants:
//   - config-1: every mistake of every file is told at once, each with file, line, key and what was expected.
//   - config-2: a key that is unknown, in the wrong section or set twice is a mistake, at every level and in whichever files.
//   - config-3: what is checked, the page, the schema and the manual come from the one table of keys.
//
// It reads no file and applies nothing: posternd does.
package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"postern/ids"
	"postern/near"
	"postern/supervisor/order"
)

// File is what postern.yaml and its drop-ins say together.
type File struct {
	UIDs  order.Range
	Hosts []order.Host
	Keep  order.Keep
	// Sessions are bounds of each runtime; 0 is not said.
	Sessions order.Sessions
	Audit    Audit
	Drain    *uint32 // seconds; nil is not said
	// MetricsUID may read counts beside root; 0 is nobody.
	MetricsUID uint32
	// Artifacts says which of them are kept, which is bounded where nothing is said: unlike
	// records, which are small, they are never kept for ever by accident.
	Artifacts order.KeepArtifacts
	Said      []Said // in the order of reading
}

// Defaults are what a file that says nothing says.
func Defaults() File {
	return File{Artifacts: order.KeepArtifacts{Days: 30, MiB: 4096, ProjectMiB: 1024}}
}

// Audit is how much of the logs of changes is kept; 0 is not said.
type Audit struct{ KiB, Files uint32 }

// Said is one setting, and where it stands.
type Said struct {
	Key     string `json:"key"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Restart bool   `json:"needs_restart"` // a running posternd does not take it
}

// Mistake is one thing wrong with a file.
type Mistake struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // from 1; 0 where no line is to blame
	Key  string `json:"key,omitempty"`
	Want string `json:"want"`
}

func (m Mistake) Error() string {
	out := m.File
	if m.Line > 0 {
		out += ":" + strconv.Itoa(m.Line)
	}
	if m.Key != "" {
		out += ": " + m.Key
	}
	return out + ": " + m.Want
}

// Source is the content of one file.
type Source struct {
	Name string
	Raw  []byte
}

// Decode reads the files in their order, the drop-ins after the main one. The error joins
// every Mistake of all of them.
func Decode(files ...Source) (File, error) {
	d := decoder{file: Defaults(), set: map[string]Said{}, hosts: map[string]Said{}}
	for _, f := range files {
		d.path, d.told = f.Name, 0
		d.one(f.Raw)
	}
	return d.file, errors.Join(d.mistakes...)
}

// decoder walks the trees by hand, because a library's strict mode ends at the first
// unknown key.
type decoder struct {
	path     string
	file     File
	set      map[string]Said // keys of all files, for those that are set twice
	hosts    map[string]Said // by id, without case
	told     int             // mistakes of this file
	mistakes []error
}

func (d *decoder) one(raw []byte) {
	defer func() { // the library's own mistake about a half-written file is one of the file
		if r := recover(); r != nil {
			d.bad(nil, "", "it cannot be parsed")
		}
	}()
	if len(raw) > MaxFile {
		d.bad(nil, "", "want at most %d bytes", MaxFile)
		return
	}
	if mark := near.Mark(raw); mark != "" {
		d.tell(1, "", mark)
		return
	}
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			d.tell(at.GetToken().Position.Line, "", at.GetMessage())
			return
		}
		d.bad(nil, "", "%.200s", err)
		return
	}
	switch {
	case len(file.Docs) > 1:
		d.bad(nil, "", "want one document")
	case len(file.Docs) == 0 || file.Docs[0].Body == nil: // nothing is said
	default:
		d.section(file.Docs[0].Body, "")
	}
}

func (d *decoder) tell(line int, key, want string) {
	if d.told++; d.told > maxMistakes {
		return
	}
	d.mistakes = append(d.mistakes, Mistake{d.path, line, key, want})
}

func (d *decoder) bad(n ast.Node, key, format string, args ...any) {
	if key == "" && n != nil {
		key = "the file"
	}
	d.tell(lineOf(n), key, fmt.Sprintf(format, args...))
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// section takes a mapping by the keys of the table.
func (d *decoder) section(n ast.Node, path string) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.bad(n, path, "want a mapping of keys")
		return
	}
	in := generic(path)
	here := map[string]bool{}
	for _, v := range values {
		name := v.Key.String()
		full := under(path, name)
		key := byPath[generic(full)]
		switch {
		case key == nil:
			d.bad(v.Key, full, "%s", sections.Key(in, name))
		case here[name]:
			d.bad(v.Key, full, "is given twice")
		default:
			d.value(key, v, full)
		}
		here[name] = true
	}
	for _, name := range sections[in] {
		if key := byPath[under(in, name)]; key.Needed && !here[name] {
			d.bad(n, under(path, name), "is missing; want %s", key.wants())
		}
	}
}

// value takes what stands at a key. A section may be continued in another file, its keys
// may not.
func (d *decoder) value(key *Key, v *ast.MappingValueNode, full string) {
	said := Said{full, d.path, lineOf(v.Key), key.Restart}
	single := key.Type != Section && key.Type != Sections && !strings.Contains(full, "[")
	if before, twice := d.set[full]; single && twice {
		d.bad(v.Key, full, "is set at %s:%d already", before.File, before.Line)
		return
	}
	if single {
		d.set[full] = said
		d.file.Said = append(d.file.Said, said)
	}
	switch key.Type {
	case Section:
		d.section(v.Value, full)
	case Sections:
		d.list(v.Value, full, key.Most-uint32(len(d.file.Hosts)), func(n ast.Node, at string) { d.host(n, at) })
	case Number:
		d.number(v.Value, full, key)
	case Text:
		if s, ok := d.text(v.Value, full, key.wants()); ok {
			*key.to(&d.file).(*string) = s
		}
	case Accounts:
		d.ids(v.Value, full, key, func(s string) error { _, err := ids.Parse[ids.Account](s); return err })
	case Projects:
		d.ids(v.Value, full, key, func(s string) error { _, err := ids.Parse[ids.Project](s); return err })
	case Names:
		d.ids(v.Value, full, key, nil)
	}
}

// host takes one entry of hosts. Of two with one name, which is meant cannot be told.
func (d *decoder) host(n ast.Node, at string) {
	d.file.Hosts = append(d.file.Hosts, order.Host{})
	d.section(n, at)
	h := lastHost(&d.file)
	if h.ID == "" {
		return // told already
	}
	said := Said{"hosts." + h.ID, d.path, lineOf(n), false}
	if before, twice := d.hosts[strings.ToLower(h.ID)]; twice {
		d.bad(n, at+".id", "%q is the id of the host at %s:%d already; ids that differ in case alone are the same", h.ID, before.File, before.Line)
		return
	}
	d.hosts[strings.ToLower(h.ID)] = said
	d.file.Said = append(d.file.Said, said)
}

func (d *decoder) list(n ast.Node, key string, most uint32, take func(ast.Node, string)) {
	s, ok := n.(*ast.SequenceNode)
	if _, mapping := n.(*ast.MappingNode); mapping {
		d.bad(n, key, "want a list, of which each entry begins with a hyphen (- id: …), and not a mapping")
		return
	}
	if !ok || uint64(len(s.Values)) > uint64(most) {
		d.bad(n, key, "want a list of at most %d", most)
		return
	}
	for i, v := range s.Values {
		take(v, fmt.Sprintf("%s[%d]", key, i))
	}
}

func (d *decoder) number(n ast.Node, full string, key *Key) {
	if i, ok := n.(*ast.IntegerNode); ok {
		if v, err := strconv.ParseUint(i.GetToken().Value, 10, 32); err == nil && uint32(v) >= key.Least && uint32(v) <= key.Most {
			*key.to(&d.file).(*uint32) = uint32(v)
			return
		}
	}
	d.bad(n, full, "want %s", key.wants())
}

func (d *decoder) text(n ast.Node, key, want string) (string, bool) {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Value == "" || len(s.Value) > maxText {
		d.bad(n, key, "want %s", want)
		return "", false
	}
	return s.Value, true
}

// ids reads a list of ids, or of "*" alone. Without check it is a list of names, where
// "*" is none.
func (d *decoder) ids(n ast.Node, full string, key *Key, check func(string) error) {
	to := key.to(&d.file).(*[]string)
	if _, list := n.(*ast.SequenceNode); !list {
		d.bad(n, full, "want %s", key.wants())
		return
	}
	d.list(n, full, key.Most, func(n ast.Node, at string) {
		s, ok := d.text(n, at, byPath["hosts[].id"].wants())
		switch {
		case !ok:
		case s == "*" && check == nil:
			d.bad(n, at, "\"*\" is no name")
		case s != "*" && check != nil && check(s) != nil:
			d.bad(n, at, "want an id or \"*\": %v", check(s))
		default:
			*to = append(*to, s)
		}
	})
	if len(*to) > 1 && (*to)[0] == "*" {
		d.bad(n, full, "\"*\" stands alone")
	}
}

// wants is what a value has to be, in words.
func (k Key) wants() string {
	switch k.Type {
	case Section:
		return "a mapping of keys"
	case Number:
		return fmt.Sprintf("a number from %d to %d", k.Least, k.Most)
	case Text:
		return fmt.Sprintf("text of 1 to %d bytes", maxText)
	case Accounts:
		return `a list of ids of accounts, or ["*"]`
	case Projects:
		return `a list of ids of projects, or ["*"]`
	}
	return "a list"
}

func under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
