package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"postern/refusal"
)

// Value is one JSON value as it was written.
type Value = jsontext.Value

// Kind is what a message is for.
type Kind int

// The kinds of messages.
const (
	Request Kind = iota + 1
	Notification
	Response
)

// Member is one name and its value, the value as it was written.
type Member struct {
	Name  string
	Value Value
}

// Message is one parsed line of a runtime. Its values alias the line.
type Message struct {
	Kind   Kind
	ID     Value // verbatim; nil in a notification
	Method string
	Params []Member // in their order; _meta is among them
	Meta   []Member // the members of params._meta
	Result Value    // of a response; nil where it is an error
}

// Param returns the member of params called name, nil if there is none.
func (m *Message) Param(name string) Value { return Find(m.Params, name) }

// MetaValue returns the member of params._meta called name, nil if there is none.
func (m *Message) MetaValue(name string) Value { return Find(m.Meta, name) }

// Find returns the first member called name, nil if there is none.
func Find(members []Member, name string) Value {
	for i := range members {
		if members[i].Name == name {
			return members[i].Value
		}
	}
	return nil
}

// Fault says why a line was refused and how that is answered.
type Fault struct {
	Code     int          // JSON-RPC
	Refusal  refusal.Code // for the record
	ID       Value
	Reason   string // our words; what came from outside is quoted
	Handover bool   // the line speaks to Postern itself, which it may only once
}

func (f *Fault) Error() string { return f.Reason }

// Text is the message of the JSON-RPC error.
func (f *Fault) Text() string {
	return strings.TrimSuffix(refusal.Of(f.Refusal).Sentence, ".") + ": " + f.Reason
}

func fault(code int, why refusal.Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Refusal: why, Reason: fmt.Sprintf(format, args...)}
}

// TooLong is the fault of a line longer than most bytes, which is never kept.
func TooLong(most int) *Fault {
	return fault(CodeInvalidRequest, refusal.TooLarge, "a line may have %d bytes", most)
}

// Parser parses the lines of one runtime. The zero value is ready.
type Parser struct {
	Depth int // of nested values, where it is less than MaxDepth; 0 for none

	dec jsontext.Decoder
	buf bytes.Buffer
}

// Parse reads one line, without its newline. It may overwrite carriage returns in
// line, and the message aliases it.
func (p *Parser) Parse(line []byte) (*Message, *Fault) {
	if len(line) > MaxLine {
		return nil, TooLong(MaxLine)
	}
	// Inside a JSON string a raw carriage return is an error, so each one left
	// after this loop would have been white space: mcp-2.
	spaces(line)
	if f := depth(line, p.most()); f != nil {
		return nil, f
	}
	m, f := p.parse(line)
	if f != nil && f.ID == nil && f.Refusal != refusal.TooLarge {
		f.ID = p.idOf(line)
	}
	if f != nil && len(f.ID) == 0 {
		f.ID = nil
	}
	return m, f
}

// spaces turns carriage returns into spaces.
func spaces(line []byte) {
	for {
		i := bytes.IndexByte(line, '\r')
		if i < 0 {
			return
		}
		line[i] = ' '
		line = line[i+1:]
	}
}

// depth refuses nesting before any recursive parser sees it. On text that is not
// JSON its count means nothing, and the parser refuses that text anyway.
func depth(line []byte, most int) *Fault {
	if _, within := opened(line, 0, most); !within {
		return fault(CodeInvalidRequest, refusal.TooLarge, "values may be nested %d deep", most)
	}
	return nil
}

// opened counts the objects and arrays that open at a level of nesting, where 1 is the
// outermost, and says false where any lies deeper than most. Brackets in strings are text.
func opened(text []byte, level, most int) (count int, within bool) {
	deep := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = closing(text, i+1)
		case '{', '[':
			if deep++; deep > most {
				return count, false
			}
			if deep == level {
				count++
			}
		case '}', ']':
			deep--
		}
	}
	return count, true
}

// closing returns where the string ends whose text begins at i, len(text) where it does
// not. Most of a large message is text, so it is not looked at byte by byte. Each quote
// is looked for once: a text of nothing but escapes costs no more than another.
func closing(text []byte, i int) int {
	for quote := -1; i < len(text); {
		if quote < i {
			n := bytes.IndexByte(text[i:], '"')
			if n < 0 {
				return len(text)
			}
			quote = i + n
		}
		n := bytes.IndexByte(text[i:quote], '\\')
		if n < 0 {
			return quote
		}
		i += n + 2
	}
	return len(text)
}

// noID marks a fault whose message has no id that could be trusted.
var noID = Value("")

func (p *Parser) reset(line []byte, opts ...jsontext.Options) {
	p.buf = *bytes.NewBuffer(line)
	p.dec.Reset(&p.buf, opts...)
}

func (p *Parser) parse(line []byte) (*Message, *Fault) {
	p.reset(line)
	switch p.dec.PeekKind() {
	case '{':
	case '[':
		f := fault(CodeInvalidRequest, refusal.BadRequest, "a message is one object; arrays are not accepted")
		f.ID = noID
		return nil, f
	case jsontext.KindInvalid:
		return nil, p.syntax(nil)
	default:
		f := fault(CodeInvalidRequest, refusal.BadRequest, "a message is one object")
		f.ID = noID
		return nil, f
	}
	var m Message
	var version, result, failure Value
	var unknown *Fault
	var names []string
	err := p.object(func(name string) *Fault {
		if f := admitName(&names, name, envelopeNames, "the message"); f != nil {
			return f
		}
		var f *Fault
		switch name {
		case "jsonrpc":
			version, f = p.value()
		case "id":
			m.ID, f = p.value()
		case "method":
			var raw Value
			if raw, f = p.value(); f == nil {
				if m.Method, f = text(raw, "method"); f != nil || m.Method == "" {
					f = fault(CodeInvalidRequest, refusal.BadRequest, "method is not a name")
				}
			}
		case "params":
			f = p.params(&m)
		case "result":
			result, f = p.value()
		case "error":
			failure, f = p.value()
		default:
			// The rest is still read, so that a line which is not JSON is called that.
			if unknown == nil {
				unknown = fault(CodeInvalidRequest, refusal.BadRequest, "the member %.40q is not known beside params", name)
				unknown.Handover = name == "postern"
				if identity(name) {
					unknown.Refusal = refusal.IdentityInRequest
				}
			}
			_, f = p.value()
		}
		return f
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		f := fault(CodeParse, refusal.BadRequest, "a line holds one message")
		f.ID = noID
		return nil, f
	}
	if unknown != nil {
		return nil, unknown
	}
	if string(version) != `"2.0"` {
		f := fault(CodeInvalidRequest, refusal.BadRequest, "jsonrpc is not \"2.0\"")
		f.ID = noID
		return nil, f
	}
	if m.ID != nil && !validID(m.ID) {
		f := fault(CodeInvalidRequest, refusal.BadRequest, "an id is a string or a number of at most %d bytes", MaxID)
		f.ID = noID
		return nil, f
	}
	switch {
	case m.Method != "" && result == nil && failure == nil && m.ID != nil:
		m.Kind = Request
	case m.Method != "" && result == nil && failure == nil:
		m.Kind = Notification
	case m.Method == "" && m.Params == nil && m.ID != nil && (result == nil) != (failure == nil):
		m.Kind, m.Result = Response, result
	default:
		return nil, fault(CodeInvalidRequest, refusal.BadRequest, "the message is no request, notification or response")
	}
	return &m, nil
}

// object reads an object member by member; each is to read its own value.
func (p *Parser) object(member func(name string) *Fault) *Fault {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	for p.dec.PeekKind() != '}' {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return p.syntax(err)
		}
		if tok.Kind() != '"' {
			return p.syntax(nil)
		}
		if f := member(tok.String()); f != nil {
			return f
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	return nil
}

func (p *Parser) value() (Value, *Fault) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, p.syntax(err)
	}
	return v[:len(v):len(v)], nil
}

func (p *Parser) params(m *Message) *Fault {
	switch p.dec.PeekKind() {
	case '{':
	case 'n': // some clients write null for none
		_, f := p.value()
		return f
	default:
		if _, f := p.value(); f != nil {
			return f
		}
		return fault(CodeInvalidParams, refusal.BadRequest, "params is not an object")
	}
	m.Params = make([]Member, 0, 4)
	var names []string
	return p.object(func(name string) *Fault {
		if identity(name) {
			return fault(CodeInvalidRequest, refusal.IdentityInRequest, "params has the member %.40q", name)
		}
		if f := admitName(&names, name, paramNames, "params"); f != nil {
			return f
		}
		if name == "_meta" && p.dec.PeekKind() == '{' {
			if f := p.meta(m); f != nil {
				return f
			}
			m.Params = append(m.Params, Member{name, Value("{}")})
			return nil
		}
		v, f := p.value()
		if f == nil && name == "_meta" {
			return fault(CodeInvalidParams, refusal.BadRequest, "_meta is not an object")
		}
		m.Params = append(m.Params, Member{name, v})
		return f
	})
}

func (p *Parser) meta(m *Message) *Fault {
	var names []string
	return p.object(func(name string) *Fault {
		if own(name) {
			return fault(CodeInvalidRequest, refusal.IdentityInRequest, "_meta has the key %.40q", name)
		}
		if f := admitName(&names, name, metaNames, "_meta"); f != nil {
			return f
		}
		v, f := p.value()
		m.Meta = append(m.Meta, Member{name, v})
		return f
	})
}

// The names that have a meaning, per object. A name that folds to one of them
// without being it is read as that name by some decoders.
var (
	envelopeNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramNames    = []string{"name", "arguments", "_meta", "cursor", "protocolVersion", "capabilities", "clientInfo",
		"requestId", "reason", "level", "notifications", paramResponses, paramState, "progressToken", "uri", "ref", "argument", "context"}
	metaNames = []string{MetaProgressToken, MetaVersion, MetaClientInfo, MetaCapabilities, MetaServerInfo, MetaLogLevel, MetaSubscription}
)

// admitName refuses a name that another parser could take for a different one.
func admitName(seen *[]string, name string, known []string, where string) *Fault {
	for _, k := range known {
		if name != k && strings.EqualFold(name, k) {
			return fault(CodeInvalidRequest, refusal.BadRequest, "%s has the member %.40q, which reads like %q", where, name, k)
		}
	}
	for _, s := range *seen {
		if strings.EqualFold(s, name) {
			return fault(CodeInvalidRequest, refusal.BadRequest, "%s has the members %.40q and %.40q", where, s, name)
		}
	}
	// A name cut at a control character by a parser written in C is another name.
	if strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
		return fault(CodeInvalidRequest, refusal.BadRequest, "%s has a name with control characters", where)
	}
	if len(*seen) >= MaxMembers {
		return fault(CodeInvalidRequest, refusal.TooLarge, "%s may have %d members", where, MaxMembers)
	}
	*seen = append(*seen, name)
	return nil
}

// own tells whether a _meta key reads like one of ours. It counts characters, since
// some that fold to a letter are longer than it.
func own(name string) bool {
	n := 0
	for i := range name {
		if n == len(OwnPrefix) {
			return strings.EqualFold(name[:i], OwnPrefix)
		}
		n++
	}
	return strings.EqualFold(name, OwnPrefix)
}

// identity tells whether a member's name claims who asks.
func identity(name string) bool {
	for _, s := range [...]string{"account", "project", "task", "principal", "mode"} {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

func (p *Parser) syntax(err error) *Fault {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return fault(CodeInvalidRequest, refusal.BadRequest, "a member is repeated")
	}
	return fault(CodeParse, refusal.BadRequest, "the line is not one JSON object in UTF-8")
}

// idOf looks for the id of a refused line, so that its sender does not wait. It
// answers nothing where two readers could find two ids.
func (p *Parser) idOf(line []byte) Value {
	if !utf8.Valid(line) {
		return nil
	}
	p.reset(line, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var id Value
	n := 0
	f := p.object(func(name string) *Fault {
		v, f := p.value()
		if strings.EqualFold(name, "id") {
			id, n = v, n+1
		}
		return f
	})
	if _, err := p.dec.ReadToken(); f != nil || err != io.EOF || n != 1 || !validID(id) {
		return nil
	}
	return id
}

func validID(id Value) bool {
	return len(id) <= MaxID && (id.Kind() == '"' || id.Kind() == '0')
}

// String returns the string that raw is, if it is one.
func String(raw Value) (string, bool) {
	s, f := text(raw, "")
	return s, f == nil
}

// text returns the string that raw is.
func text(raw Value, what string) (string, *Fault) {
	if raw.Kind() != '"' {
		return "", fault(CodeInvalidParams, refusal.BadRequest, "%s is not a string", what)
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", fault(CodeInvalidParams, refusal.BadRequest, "%s is not a string", what)
	}
	return string(b), nil
}
