package access

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// step is the indentation of what an edit adds.
const step = 2

// maxSplices bounds the rounds of one edit: each one writes a container of the path as
// a block, and then the last one makes the change.
const maxSplices = 12

// errShape is returned for a document whose shape cannot be edited line by line.
var errShape = errors.New("this part of the file has a form that is not edited here: write it as plain nested keys first")

// text is a document as lines. Edits change lines and leave the others as they are,
// because what prints a tree again moves comments and drops empty lines.
type text struct{ lines []string }

func newText(doc []byte) *text {
	s := strings.TrimSuffix(string(doc), "\n")
	if s == "" {
		return &text{}
	}
	return &text{strings.Split(s, "\n")}
}

func (t *text) bytes() []byte {
	if len(t.lines) == 0 {
		return nil
	}
	return []byte(strings.Join(t.lines, "\n") + "\n")
}

// set writes value, in flow style, at the path. Containers that are missing are added.
func (t *text) set(path []string, value string) error {
	return t.splice(path, func(at *spot) error {
		if at.entry == nil {
			return t.insert(at, value)
		}
		return t.replace(at.entry, value)
	})
}

// remove takes the entry at the path out, if it is there. A container it leaves empty
// stays, as {}.
func (t *text) remove(path []string) error {
	return t.splice(path, func(at *spot) error {
		if at.entry == nil {
			return nil
		}
		first, last := lineOf(at.entry.Key), lastLine(at.entry)
		if at.of == nil || len(at.in) > 1 {
			t.lines = slices.Delete(t.lines, first-1, last)
			return nil
		}
		return t.replace(at.of, "{}")
	})
}

// spot is where a path leads: the entry, or the mapping that lacks it.
type spot struct {
	in      []*ast.MappingValueNode // the entries of the mapping
	of      *ast.MappingValueNode   // the entry whose value the mapping is; nil for the document
	entry   *ast.MappingValueNode   // nil where it is missing
	missing []string                // from the first name that is missing on
	flow    *ast.MappingNode        // the mapping in flow style that the path leads into
}

// splice follows the path, writing every flow mapping on it as a block first, and then
// does the change.
func (t *text) splice(path []string, change func(*spot) error) error {
	for range maxSplices {
		body, wrong := tree(t.bytes())
		if wrong != nil {
			return fmt.Errorf("%v", wrong)
		}
		at, err := follow(body, path)
		switch {
		case err != nil:
			return err
		case at.flow != nil:
			if err := t.expand(at.of, at.flow); err != nil {
				return err
			}
		default:
			return change(at)
		}
	}
	return errShape
}

// follow says where the path leads, or which mapping on it is in flow style.
func follow(body ast.Node, path []string) (*spot, error) {
	at := &spot{}
	var n = body
	for i, name := range path {
		switch m := n.(type) {
		case nil, *ast.NullNode:
			at.in, at.missing, at.entry = nil, path[i:], nil
			return at, nil
		case *ast.MappingNode:
			if m.IsFlowStyle && len(m.Values) > 0 {
				at.flow = m
				return at, nil
			}
			if m.IsFlowStyle {
				return at, emptyFlow(at, path[i:])
			}
			at.in = m.Values
		default:
			return nil, errShape
		}
		k := slices.IndexFunc(at.in, func(e *ast.MappingValueNode) bool { s, ok := scalar(e.Key); return ok && s == name })
		if k < 0 {
			at.entry, at.missing = nil, path[i:]
			return at, nil
		}
		if at.entry = at.in[k]; i < len(path)-1 {
			at.of, n = at.entry, at.entry.Value
		}
	}
	return at, nil
}

// emptyFlow makes {} a mapping that lacks everything.
func emptyFlow(at *spot, missing []string) error {
	at.in, at.entry, at.missing = nil, nil, missing
	if at.of == nil {
		return errShape
	}
	return nil
}

// insert adds what is missing after the last line of the mapping.
func (t *text) insert(at *spot, value string) error {
	indent, after := 0, len(t.lines)
	switch {
	case len(at.in) > 0:
		indent, after = column(at.in[0].Key), lastLine(at.in[len(at.in)-1])
	case at.of != nil:
		if err := t.replace(at.of, ""); err != nil {
			return err
		}
		indent, after = column(at.of.Key)+step, lineOf(at.of.Key)
	}
	var add []string
	for i, name := range at.missing {
		line := strings.Repeat(" ", indent+i*step) + plainKey(name) + ":"
		if i == len(at.missing)-1 {
			line += " " + value
		}
		add = append(add, line)
	}
	t.lines = slices.Insert(t.lines, after, add...)
	return nil
}

// replace puts value in the place of an entry's, and keeps a comment behind it.
func (t *text) replace(e *ast.MappingValueNode, value string) error {
	first, last := lineOf(e), lastLine(e)
	colon := column(e) + 1 // in bytes: names of channels, people and groups are ASCII
	line := t.lines[first-1]
	head, tail := line[:colon], comment(line[colon:])
	switch v := e.Value.(type) {
	case *ast.MappingNode, *ast.SequenceNode:
		if end := flowEnd(v); end != nil && end.Line == last {
			rest := t.lines[last-1]
			if !isASCII(rest[:min(end.Column, len(rest))]) || first != last && strings.Contains(strings.Join(t.lines[first-1:last-1], ""), "#") {
				return errShape
			}
			tail = comment(rest[min(end.Column, len(rest)):])
		}
	case *ast.StringNode, *ast.IntegerNode, *ast.BoolNode, *ast.NullNode, *ast.FloatNode:
	default:
		return errShape // anchors, aliases, tags and texts over many lines
	}
	if value != "" {
		value = " " + value
	}
	t.lines = slices.Replace(t.lines, first-1, last, head+value+tail)
	return nil
}

// expand writes a flow mapping as a block: the same keys with the same values, each on
// a line of its own.
func (t *text) expand(of *ast.MappingValueNode, m *ast.MappingNode) error {
	indent := 0
	if of != nil {
		indent = column(of.Key) + step
	}
	var add []string
	for _, e := range m.Values {
		k, ok := scalar(e.Key)
		v, shaped := flowText(e.Value)
		if !ok || !shaped {
			return errShape
		}
		add = append(add, strings.Repeat(" ", indent)+plainKey(k)+": "+v)
	}
	if of == nil {
		if strings.Contains(strings.Join(t.lines[lineOf(m)-1:lastLine(m)], ""), "#") {
			return errShape
		}
		t.lines = slices.Replace(t.lines, lineOf(m)-1, lastLine(m), add...)
		return nil
	}
	if err := t.replace(of, ""); err != nil {
		return err
	}
	t.lines = slices.Insert(t.lines, lineOf(of.Key), add...)
	return nil
}

// flowText writes a value on one line.
func flowText(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return plainKey(v.Value), true
	case *ast.IntegerNode, *ast.BoolNode:
		return v.GetToken().Value, true
	case *ast.NullNode:
		return "null", true
	case *ast.SequenceNode:
		var items []string
		for _, item := range v.Values {
			s, ok := flowText(item)
			if !ok {
				return "", false
			}
			items = append(items, s)
		}
		return "[" + strings.Join(items, ", ") + "]", true
	case *ast.MappingNode:
		var items []string
		for _, e := range v.Values {
			k, ok := scalar(e.Key)
			s, shaped := flowText(e.Value)
			if !ok || !shaped {
				return "", false
			}
			items = append(items, plainKey(k)+": "+s)
		}
		return "{" + strings.Join(items, ", ") + "}", true
	}
	return "", false
}

// word is what YAML reads as text without quotes, whatever its version.
var word = regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`)

var notText = []string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}

func plainKey(s string) string {
	if word.MatchString(s) && !slices.Contains(notText, s) {
		return s
	}
	return strconv.Quote(s)
}

// comment returns the comment behind a value that ends before rest does, with the
// blank before it.
func comment(rest string) string {
	quote := byte(0)
	for i := range len(rest) {
		switch c := rest[i]; {
		case quote != 0:
			if c == quote && (quote == '\'' || rest[i-1] != '\\') {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' && (i == 0 || rest[i-1] == ' ' || rest[i-1] == '\t'):
			return rest[len(strings.TrimRight(rest[:i], " \t")):]
		}
	}
	return ""
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0
}

// column counts from 0.
func column(n ast.Node) int { return n.GetToken().Position.Column - 1 }

// lastLine is the last line that anything of n stands on.
func lastLine(n ast.Node) int {
	last := 0
	ast.Walk(visit(func(n ast.Node) {
		last = max(last, lineOf(n))
		if end := flowEnd(n); end != nil {
			last = max(last, end.Line)
		}
	}), n)
	return last
}

type visit func(ast.Node)

// Visit calls v for n and everything in it.
func (v visit) Visit(n ast.Node) ast.Visitor { v(n); return v }

// end is where the closing bracket of a flow value stands.
type end struct{ Line, Column int }

func flowEnd(n ast.Node) *end {
	switch m := n.(type) {
	case *ast.MappingNode:
		if m.IsFlowStyle && m.End != nil {
			return &end{m.End.Position.Line, m.End.Position.Column}
		}
	case *ast.SequenceNode:
		if m.IsFlowStyle && m.End != nil {
			return &end{m.End.Position.Line, m.End.Position.Column}
		}
	}
	return nil
}
