// Package documented holds what a program printed with --json against docs/json.md: whether
// every member that is there is documented, with its kind, and every member that must be
// there is.
//
// It is part of no program: tests of commands and of whole Posterns ask it. Its inputs are
// the repository's own page and what its own programs printed.
//
// Invariants:
//   - documented-1: a member that the page does not have, of another kind, or that is missing is told with its path.
//
// It does not know Go's types: whoever reads the page does not either.
package documented

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Page is what docs/json.md says.
type Page struct {
	commands  map[string][]string // names of documents, by command
	documents map[string]document
}

type document map[string]member

type member struct {
	kind   string
	absent bool // it may be
}

// refused is what every command prints in the place of its document.
const refused = "Refusal"

// words are kinds that the page writes by a name that is not a document's.
var words = map[string]string{"refusal.Code": "string", "[]byte": "string"}

var (
	row  = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\| (.+?) \\| .*\\|$")
	call = regexp.MustCompile("^\\| `(postern[a-z]* [^`]+)` \\| (.+?) \\|$")
	name = regexp.MustCompile("`([A-Z][A-Za-z0-9]*)`")
)

// Parse reads the page.
func Parse(page string) (*Page, error) {
	p := &Page{commands: map[string][]string{}, documents: map[string]document{}}
	var in document
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			in = document{}
			p.documents[title] = in
		} else if m := call.FindStringSubmatch(line); m != nil {
			docs := []string{} // none is an entry too
			for _, d := range name.FindAllStringSubmatch(m[2], -1) {
				docs = append(docs, d[1])
			}
			p.commands[m[1]] = docs
		} else if m := row.FindStringSubmatch(line); m != nil && in != nil {
			kind, absent := strings.CutSuffix(m[2], ", may be absent")
			in[m[1]] = member{strings.ReplaceAll(kind, `\|`, "|"), absent}
		}
	}
	if len(p.commands) == 0 || p.documents[refused] == nil {
		return nil, errors.New("the page names no commands, or no refusal")
	}
	for command, docs := range p.commands {
		for _, d := range docs {
			if p.documents[d] == nil {
				return nil, fmt.Errorf("%s prints %s, which the page does not have", command, d)
			}
		}
	}
	return p, nil
}

// Commands lists the commands of the page, sorted.
func (p *Page) Commands() []string { return slices.Sorted(maps.Keys(p.commands)) }

// Documents are the names of those that a command prints.
func (p *Page) Documents(command string) []string { return slices.Clone(p.commands[command]) }

// Command finds which command of the page an argument list calls, "" for none. Flags may
// stand between the words of its name.
func (p *Page) Command(program string, args []string) string {
	found, at := "", []string{program}
	value := false
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if strings.HasPrefix(arg, "-") || value {
			value = arg == "--run-dir" // the one flag before a command's name that has a value
			continue
		}
		at = append(at, arg)
		if _, ok := p.commands[strings.Join(at, " ")]; ok {
			found = strings.Join(at, " ")
		}
	}
	return found
}

// Check holds what a command printed against the page: documents, one a line. Without any
// line there is nothing to say.
func (p *Page) Check(command string, printed []byte) (document string, err error) {
	names, ok := p.commands[command]
	if !ok {
		return "", fmt.Errorf("%q is not on the page", command)
	}
	for line := range bytes.Lines(printed) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			return "", fmt.Errorf("%s printed no document: %w", command, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s printed more than one document in a line", command)
		}
		if r, ok := v["refusal"]; ok && len(v) == 1 {
			document, err = refused, errors.Join(p.value("refusal", refused, r)...)
		} else {
			document, err = p.fits(command, names, v)
		}
		if err != nil {
			return document, fmt.Errorf("%s: %w", command, err)
		}
	}
	return document, nil
}

// fits finds the document that v is, or says what keeps it from being the likeliest.
func (p *Page) fits(command string, names []string, v map[string]any) (string, error) {
	best, least := "", []error{fmt.Errorf("it prints no document by the page")}
	for _, n := range names {
		wrong := p.value("", n, v)
		if len(wrong) == 0 {
			return n, nil
		}
		if best == "" || len(wrong) < len(least) {
			best, least = n, wrong
		}
	}
	return best, fmt.Errorf("it is no %s: %w", best, errors.Join(least...))
}

// value lists what is wrong with a value of a kind.
func (p *Page) value(path, kind string, v any) []error {
	bad := func(want string) []error { return []error{fmt.Errorf("%s: want %s, not %.80v", path, want, v)} }
	if w, ok := words[kind]; ok {
		kind = w
	}
	switch rest := kind; {
	case strings.HasPrefix(kind, "*"):
		if v == nil {
			return nil
		}
		return p.value(path, rest[1:], v)
	case strings.HasPrefix(kind, "[]"):
		list, ok := v.([]any)
		if !ok {
			return bad("a list")
		}
		var wrong []error
		for i, x := range list {
			wrong = append(wrong, p.value(fmt.Sprintf("%s[%d]", path, i), rest[2:], x)...)
		}
		return wrong
	case strings.HasPrefix(kind, "map[string]"):
		all, ok := v.(map[string]any)
		if !ok {
			return bad("names with values")
		}
		var wrong []error
		for _, key := range slices.Sorted(maps.Keys(all)) {
			wrong = append(wrong, p.value(path+"."+key, strings.TrimPrefix(rest, "map[string]"), all[key])...)
		}
		return wrong
	}
	number, isNumber := v.(json.Number)
	switch kind {
	case "string":
		if _, ok := v.(string); !ok {
			return bad("text")
		}
		return nil
	case "bool":
		if _, ok := v.(bool); !ok {
			return bad("true or false")
		}
		return nil
	case "int", "int64", "uint32", "uint64":
		if !isNumber || strings.ContainsAny(number.String(), ".eE") || kind[0] == 'u' && number.String()[0] == '-' {
			return bad("a whole number")
		}
		return nil
	case "float64":
		if !isNumber {
			return bad("a number")
		}
		return nil
	case "jsontext.Value", "any":
		return nil
	}
	doc, ok := p.documents[kind]
	if !ok {
		return []error{fmt.Errorf("%s: the page has no kind %q", path, kind)}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return bad("a " + kind)
	}
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(object)) {
		m, ok := doc[key]
		at := strings.TrimPrefix(path+"."+key, ".")
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s is not documented", at))
			continue
		}
		wrong = append(wrong, p.value(at, m.kind, object[key])...)
	}
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if _, there := object[key]; !there && !doc[key].absent {
			wrong = append(wrong, fmt.Errorf("%s is missing", strings.TrimPrefix(path+"."+key, ".")))
		}
	}
	return wrong
}
