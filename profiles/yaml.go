package profiles

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"postern/near"
)

// decoder walks the tree of one file and gathers mistakes. It walks by hand
// because a library's strict mode ends at the first unknown key.
type decoder struct {
	file     string
	mistakes []Mistake
	lines    map[string]int                     // line of each key seen, by its full name
	unread   bool                               // nothing of the file could be understood
	visit    func(section string, known fields) // where not nil, is told what each section takes
}

// take decodes one node, which was found under the full name key, and says of what kind
// the node has to be.
type take struct {
	kind Kind
	node func(n ast.Node, key string)
}

type field struct {
	take   take
	needed bool
}

type fields map[string]field

func (d *decoder) bad(line int, key, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{d.file, line, key, fmt.Sprintf(format, args...)})
}

// syntax reports what the parser could not read, with its line.
func (d *decoder) syntax(err error) {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		d.bad(at.GetToken().Position.Line, "", "%s", at.GetMessage())
		return
	}
	d.bad(0, "", "%.200s", err)
}

func line(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// lineOf returns the line of the key that name names, or of the nearest key
// above it.
func (d *decoder) lineOf(name string) int {
	for name != "" {
		if l, ok := d.lines[name]; ok {
			return l
		}
		cut := strings.LastIndexAny(name, ".[")
		if cut < 0 {
			return 0
		}
		name = name[:cut]
	}
	return 0
}

// each calls f for every key of the mapping n.
func (d *decoder) each(n ast.Node, key string, f func(name string, value ast.Node, key string)) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.bad(line(n), key, "want a mapping")
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		name, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.bad(line(v.Key), key, "want a plain name as key, not %q", v.Key.String())
			continue
		}
		full := name.Value
		if key != "" {
			full = key + "." + full
		}
		if seen[name.Value] {
			d.bad(line(v.Key), full, "is given twice")
			continue
		}
		seen[name.Value] = true
		d.lines[full] = line(v.Key)
		f(name.Value, v.Value, full)
	}
}

// mapping decodes n by known, and reports unknown and missing keys.
func (d *decoder) mapping(n ast.Node, key string, known fields) {
	if d.visit != nil {
		d.visit(near.Section(key), known)
	}
	seen := map[string]bool{}
	d.each(n, key, func(name string, value ast.Node, full string) {
		f, ok := known[name]
		if !ok {
			d.bad(line(value), full, "%s", sections.Key(near.Section(key), name))
			return
		}
		seen[name] = true
		f.take.node(value, full)
	})
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if known[name].needed && !seen[name] {
			full := name
			if key != "" {
				full = key + "." + name
			}
			d.bad(line(n), full, "is missing")
		}
	}
}

func (d *decoder) within(known fields) take {
	return take{Section, func(n ast.Node, key string) { d.mapping(n, key, known) }}
}

func (d *decoder) list(kind Kind, item func(n ast.Node, key string)) take {
	return take{kind, func(n ast.Node, key string) {
		s, ok := n.(*ast.SequenceNode)
		if !ok {
			d.bad(line(n), key, "want a list")
			return
		}
		for i, v := range s.Values {
			full := fmt.Sprintf("%s[%d]", key, i)
			d.lines[full] = line(v)
			item(v, full)
		}
	}}
}

func (d *decoder) text(to *string) take {
	return take{Text, func(n ast.Node, key string) {
		switch s := n.(type) {
		case *ast.StringNode:
			*to = s.Value
		case *ast.LiteralNode:
			*to = s.Value.Value
		default:
			d.bad(line(n), key, "want text, not %q", source(n))
		}
	}}
}

func (d *decoder) truth(to *bool) take {
	return take{Truth, func(n ast.Node, key string) {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.bad(line(n), key, "want true or false, not %q", source(n))
			return
		}
		*to = b.Value
	}}
}

func (d *decoder) unsigned64(to *uint64) take {
	return take{Wide, func(n ast.Node, key string) {
		if i, ok := n.(*ast.IntegerNode); ok {
			switch v := i.Value.(type) {
			case uint64:
				*to = v
				return
			case int64:
				if v >= 0 {
					*to = uint64(v)
					return
				}
			}
		}
		d.bad(line(n), key, "want a number of at least 0, not %q", source(n))
	}}
}

func (d *decoder) integer(to *int) take {
	return take{Number, func(n ast.Node, key string) {
		var v uint64
		bounds, known := Bounds()[key]
		if !known {
			bounds = [2]int64{0, math.MaxInt32}
		}
		before := len(d.mistakes)
		if d.unsigned64(&v).node(n, key); len(d.mistakes) > before {
			d.mistakes = d.mistakes[:before]
			d.bad(line(n), key, "want a number from %d to %d, not %q", bounds[0], bounds[1], source(n))
			return
		}
		if v > math.MaxInt32 {
			d.bad(line(n), key, "want at most %d", math.MaxInt32)
			return
		}
		*to = int(v)
	}}
}

func (d *decoder) unsigned(to *uint) take {
	return take{Number, func(n ast.Node, key string) {
		var v int
		d.integer(&v).node(n, key)
		*to = uint(v)
	}}
}

// bytes takes a number of bytes, plain or with KiB, MiB or GiB.
func (d *decoder) bytes(to *int64) take {
	return take{Bytes, func(n ast.Node, key string) {
		text, shift := source(n), 0
		for unit, s := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
			if rest, ok := strings.CutSuffix(text, unit); ok {
				text, shift = rest, s
			}
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 || v > math.MaxInt64>>shift {
			d.bad(line(n), key, "want bytes like 512MiB, not %q", source(n))
			return
		}
		*to = v << shift
	}}
}

func (d *decoder) duration(to *time.Duration) take {
	return take{Duration, func(n ast.Node, key string) {
		v, err := time.ParseDuration(source(n))
		if err != nil || v <= 0 {
			d.bad(line(n), key, "want a duration like 30s, not %q", source(n))
			return
		}
		*to = v
	}}
}

// source returns the text of a scalar as it was written.
func source(n ast.Node) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}
