package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"postern/near"
)

// Mistake is one thing wrong with the document, or one thing in it that does not mean
// what it seems to.
type Mistake struct {
	Line int // from 1; 0 where no line is to blame
	Key  string
	Want string
	Warn bool // nobody is denied for it
}

// String is how a person reads the mistake; whoever knows the file's name puts it before.
func (m Mistake) String() string {
	out := m.Want
	if m.Key != "" {
		out = m.Key + ": " + out
	}
	if m.Line > 0 {
		out = strconv.Itoa(m.Line) + ": " + out
	}
	return out
}

// Bounds of the document.
const (
	MaxDocument = 512 << 10 // bytes; the writer reads it between two admissions
	MaxChannels = 64
	MaxEntries  = 5000 // identities of one list of a channel
	maxMistakes = 100  // that are told
	maxShown    = 120  // bytes of the document in one of them
	maxNested   = 256  // lists and mappings within each other, on one line or open over many
)

// reader walks the tree by hand, because a library's strict mode ends at the first
// unknown key, and here each mistake has its own consequence.
type reader struct {
	mistakes []Mistake
	denials  []Denial
}

func (r *reader) bad(n ast.Node, key, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{Line: lineOf(n), Key: shown(key), Want: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(n ast.Node, key, format string, args ...any) {
	r.bad(n, key, format, args...)
	r.mistakes[len(r.mistakes)-1].Warn = true
}

// told sorts the mistakes by line and bounds them.
func (r *reader) told() []Mistake {
	slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	if more := len(r.mistakes) - maxMistakes; more > 0 {
		denies := slices.ContainsFunc(r.mistakes[maxMistakes:], func(m Mistake) bool { return !m.Warn })
		return append(r.mistakes[:maxMistakes:maxMistakes], Mistake{Want: fmt.Sprintf("and %d more", more), Warn: !denies})
	}
	return r.mistakes
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// shown keeps what the document says printable and short.
func shown(s string) string {
	q := strconv.QuoteToASCII(s[:min(len(s), maxShown)])
	return q[1 : len(q)-1]
}

// tree parses one document. Nothing said is the nil node.
func tree(doc []byte) (ast.Node, *Mistake) {
	if len(doc) > MaxDocument {
		return nil, &Mistake{Want: fmt.Sprintf("at most %d bytes", MaxDocument)}
	}
	if mark := near.Mark(doc); mark != "" {
		return nil, &Mistake{Line: 1, Want: mark}
	}
	if line := tooNested(doc); line > 0 {
		return nil, &Mistake{Line: line, Want: fmt.Sprintf("nested deeper than %d", maxNested)}
	}
	file, err := careful(errUnparsed, func() (*ast.File, error) { return parse(doc, longRun) })
	if err != nil {
		return nil, mistakeOf(err)
	}
	if len(file.Docs) != 1 {
		return nil, &Mistake{Want: "want one document"}
	}
	return file.Docs[0].Body, nil
}

var errUnparsed = errors.New("it cannot be parsed")

// careful does what may panic, and returns gave where it does: a document that is half
// written must not end the authority, whatever a library makes of it.
func careful[T any](gave error, do func() (T, error)) (out T, err error) {
	defer func() {
		if recover() != nil {
			var none T
			out, err = none, gave
		}
	}()
	return do()
}

func mistakeOf(err error) *Mistake {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return &Mistake{Line: at.GetToken().Position.Line, Want: shown(at.GetMessage())}
	}
	return &Mistake{Want: shown(err.Error())}
}

// tooNested names the line where a document is nested without end, 0 where it is not. The
// library takes a time that grows with the square of the depth, and stack. It is counted
// as if there were no texts and comments: brackets that are open, and what begins an
// entry on one line.
func tooNested(doc []byte) int {
	line, open, begun := 1, 0, 0
	for i, c := range doc {
		switch c {
		case '\n', '\r':
			begun = 0
			if c == '\n' {
				line++
			}
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?':
			if i+1 < len(doc) && (doc[i+1] == ' ' || doc[i+1] == '\t') {
				begun++
			}
		}
		if open > maxNested || begun > maxNested {
			return line
		}
	}
	return 0
}

// pair is one key of a mapping.
type pair struct {
	key   string // as it is written, without quotes
	at    ast.Node
	value ast.Node
}

// entries lists the keys of n, those that stand twice too, and says whether n is a
// mapping. A key that is not plain text is told and left out.
func (r *reader) entries(n ast.Node, key string) (out []pair, ok bool) {
	switch n.(type) {
	case *ast.MappingNode:
	case *ast.NullNode: // a key under which everything is commented out
	default:
		r.bad(n, key, "want a mapping")
		return nil, false
	}
	values := valuesOf(n)
	out = make([]pair, 0, len(values))
	for _, v := range values {
		if name, plain := scalar(v.Key); plain {
			out = append(out, pair{name, v.Key, v.Value})
		} else {
			r.bad(v.Key, key, "want a plain name as key")
		}
	}
	return out, true
}

// valuesOf lists the entries of a mapping, and none of anything else.
func valuesOf(n ast.Node) []*ast.MappingValueNode {
	if m, ok := n.(*ast.MappingNode); ok {
		return m.Values
	}
	return nil
}

// mapping lists the keys of n. It says false, and what is wrong, where n is no mapping
// or has a key twice or one that is not plain text: which one was meant is not known.
func (r *reader) mapping(n ast.Node, key string) ([]pair, bool) {
	before := len(r.mistakes)
	list, _ := r.entries(n, key)
	seen := make(map[string]bool, len(list))
	for _, p := range list {
		if seen[p.key] {
			r.bad(p.at, under(key, p.key), "is given twice")
		}
		seen[p.key] = true
	}
	return list, len(r.mistakes) == before
}

func under(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// scalar is the text of a key or an identity. A number is taken as it is written:
// +5511999998888 is no sum.
func scalar(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.IntegerNode:
		return s.GetToken().Value, true
	}
	return "", false
}

func (r *reader) truth(n ast.Node, key string) (is, ok bool) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.bad(n, key, "want true or false")
		return false, false
	}
	return b.Value, true
}

func (r *reader) word(n ast.Node, key string) (string, bool) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		r.bad(n, key, "want a word")
		return "", false
	}
	return s.Value, true
}

// list gives each item to take and says whether n is a list.
func (r *reader) list(n ast.Node, key string, most int, take func(n ast.Node, key string)) bool {
	s, ok := n.(*ast.SequenceNode)
	if !ok || len(s.Values) > most {
		r.bad(n, key, "want a list of at most %d", most)
		return false
	}
	for i, v := range s.Values {
		take(v, fmt.Sprintf("%s[%d]", key, i))
	}
	return true
}
