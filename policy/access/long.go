package access

import (
	"errors"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// longRun is how many entries of one block mapping are parsed at a time. The library
// calls itself for each entry that follows and copies what came back, which takes a time
// and a stack that grow with the square of the entries, on the loop that admits.
const longRun = 64

var errParts = errors.New("its long mappings cannot be told apart")

// parse reads a document as the library does, long block mappings in parts.
func parse(doc []byte, run int) (*ast.File, error) {
	tokens := lexer.Tokenize(string(doc))
	for _, t := range tokens {
		if !ordinary(t) {
			return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
		}
	}
	return parseParts(tokens, run)
}

// ordinary tells whether a token ends where the next one begins. Behind anchors, tags,
// texts over many lines and marks between documents it would have to be known what
// belongs to them.
func ordinary(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.IntegerType, token.FloatType, token.BoolType, token.NullType,
		token.MappingStartType, token.MappingEndType, token.SequenceStartType, token.SequenceEndType, token.CollectEntryType, token.MappingValueType,
		token.SequenceEntryType, token.CommentType:
		return true
	}
	return false
}

// run is one block mapping: the entries that begin lines at one column.
type run struct {
	column  int
	last    *token.Token // the key of the last entry that is parsed with what is around it
	entries int
	parts   []int // the tokens with which its further parts begin
	end     int   // the token behind them
}

// parseParts parses what is around the further parts of long mappings, then those parts,
// and puts their entries where they belong.
func parseParts(tokens token.Tokens, most int) (*ast.File, error) {
	long := runs(tokens, most)
	around, from := make(token.Tokens, 0, len(tokens)), 0
	for _, r := range long {
		around = append(around, tokens[from:r.parts[0]]...)
		from = r.end
	}
	file, err := parser.Parse(append(around, tokens[from:]...), 0, parser.AllowDuplicateMapKey())
	if err != nil || len(long) == 0 {
		return file, err
	}
	at := map[*token.Token]*ast.MappingNode{}
	for _, d := range file.Docs {
		ast.Walk(visit(func(n ast.Node) {
			if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
				at[m.Values[len(m.Values)-1].Key.GetToken()] = m
			}
		}), d)
	}
	for _, r := range long {
		for i, begin := range r.parts {
			end := r.end
			if i+1 < len(r.parts) {
				end = r.parts[i+1]
			}
			part, err := parseParts(tokens[begin:end:end], most)
			if err == nil {
				err = join(at[r.last], part, min(most, r.entries-(i+1)*most))
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return file, nil
}

// join puts so many entries of a part behind those of the mapping that it was cut from.
func join(m *ast.MappingNode, part *ast.File, entries int) error {
	more := valuesOf(part.Docs[0].Body)
	if m == nil || len(more) != entries || len(part.Docs) != 1 {
		return errParts
	}
	m.Values = append(m.Values, more...)
	return nil
}

// runs lists the block mappings with more than so many entries, in the order of the
// document and without those within a further part of another.
func runs(tokens token.Tokens, most int) []*run {
	var open, long []*run
	depth, line := 0, 0
	shut := func(column, end int) { // ends every mapping that is indented deeper
		for len(open) > 0 && open[len(open)-1].column > column {
			r := open[len(open)-1]
			open = open[:len(open)-1]
			if r.end = end; len(r.parts) == 0 {
				continue
			}
			for len(long) > 0 && long[len(long)-1].parts[0] > r.parts[0] {
				long = long[:len(long)-1]
			}
			long = append(long, r)
		}
	}
	for i, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		first := depth == 0 && t.Position.Line > line
		line = t.Position.Line
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if !first {
			continue
		}
		column := t.Position.Column
		shut(column, i)
		if i+1 == len(tokens) || tokens[i+1].Type != token.MappingValueType || tokens[i+1].Position.Line != line {
			continue
		}
		if len(open) == 0 || open[len(open)-1].column < column {
			open = append(open, &run{column: column})
		}
		r := open[len(open)-1]
		if r.entries++; r.entries <= most {
			r.last = t
		} else if r.entries%most == 1 {
			r.parts = append(r.parts, i)
		}
	}
	shut(0, len(tokens))
	return long
}
