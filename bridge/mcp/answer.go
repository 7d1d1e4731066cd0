package mcp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Answer is one line of a tool server. Its values alias the line.
type Answer struct {
	Kind    Kind
	ID      Value // as written; of a request or response
	Method  string
	Params  Value
	Result  Value // a response has this or Error; {} stands for an object
	Error   Value
	Members []Member // of Result, as written
	IsError bool     // the result's own isError
}

// Number returns the id as the integer of ours that it must be.
func (a *Answer) Number() (int64, bool) {
	n, err := strconv.ParseInt(string(a.ID), 10, 64)
	return n, err == nil
}

// Errors of ReadAnswer.
var (
	// ErrNoise is returned for a line that is no JSON object, or one without any member
	// of a message: servers print banners, and logs in JSON.
	ErrNoise = errors.New("nothing of the protocol")
	// ErrAnswer is returned for an object that is no message; its Answer may have an id.
	ErrAnswer = errors.New("not a message of the protocol")
)

// ReadAnswer reads one line of a tool server, without its newline. It is lenient
// where leniency loses nothing: repeated names inside values and lone surrogate
// escapes pass, as JavaScript servers emit them. With ErrAnswer the answer's ID,
// where one was found, tells which call it would have ended.
func (p *Parser) ReadAnswer(line []byte) (*Answer, error) {
	spaces(line)
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return nil, ErrNoise
	}
	a := &Answer{}
	if depth(line, p.most()) != nil || !utf8.Valid(line) {
		a.ID = Value(idAtEdge(line, line))
		return a, ErrAnswer
	}
	p.reset(line, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	bad := false
	f := p.object(func(name string) *Fault {
		var f *Fault
		once := func(v *Value) {
			bad = bad || *v != nil
			*v, f = p.value()
		}
		switch name {
		case "id":
			once(&a.ID)
		case "method":
			var raw Value
			once(&raw)
			var bt *Fault
			if f == nil {
				bad = bad || a.Method != ""
				a.Method, bt = text(raw, "method")
				bad = bad || bt != nil
			}
		case "params":
			once(&a.Params)
		case "error":
			once(&a.Error)
		case "result":
			bad = bad || a.Result != nil
			f = p.result(a)
		default: // jsonrpc too: what a server writes there changes nothing
			_, f = p.value()
		}
		return f
	})
	if f != nil {
		return a, ErrNoise
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return a, ErrAnswer
	}
	switch {
	case bad:
		return a, ErrAnswer
	case a.ID == nil && a.Method == "" && a.Result == nil && a.Error == nil:
		return a, ErrNoise
	case a.Method != "" && a.Result == nil && a.Error == nil && a.ID != nil:
		a.Kind = Request
	case a.Method != "" && a.Result == nil && a.Error == nil:
		a.Kind = Notification
	case a.Method == "" && a.Result != nil && a.Error == nil && a.Result.Kind() == '{':
		a.Kind = Response
	case a.Method == "" && a.Error != nil && a.Result == nil && validError(a.Error):
		a.Kind = Response
	default:
		return a, ErrAnswer
	}
	return a, nil
}

func (p *Parser) most() int {
	if p.Depth > 0 && p.Depth < MaxDepth {
		return p.Depth
	}
	return MaxDepth
}

// Blocks counts the blocks of a result's content.
func (a *Answer) Blocks() int {
	raw := Find(a.Members, "content")
	if raw.Kind() != '[' {
		return 0
	}
	n, _ := opened(raw, 2, len(raw))
	return n
}

// result reads the result's members in passing, so that a large one is scanned once.
func (p *Parser) result(a *Answer) (f *Fault) {
	if p.dec.PeekKind() != '{' {
		a.Result, f = p.value()
		return f
	}
	f = p.object(func(name string) *Fault {
		v, f := p.value()
		a.Members = append(a.Members, Member{name, v})
		if name == "isError" && string(v) == "true" {
			a.IsError = true
		}
		return f
	})
	// The members are what is passed on; this only says that there was an object.
	a.Result = Value("{}")
	return f
}

// validError tells whether a runtime can read raw as an error.
func validError(raw Value) bool {
	members, ok := Members(raw)
	if !ok {
		return false
	}
	code, message := Find(members, "code"), Find(members, "message")
	_, err := strconv.ParseInt(string(code), 10, 64)
	return err == nil && message.Kind() == '"'
}

// Members splits an object into its members; what lies deeper stays unread.
func Members(raw Value) ([]Member, bool) {
	if raw.Kind() != '{' {
		return nil, false
	}
	var p Parser
	p.reset(raw, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var members []Member
	f := p.object(func(name string) *Fault {
		v, f := p.value()
		members = append(members, Member{name, v})
		return f
	})
	return members, f == nil
}

// OversizeID finds the id in the first and last bytes of a response too long to be
// kept: at the head, where most servers put it, or at the very end, where those
// built on the TypeScript library do. It returns nil when there is none to be sure of.
func OversizeID(head, tail []byte) Value {
	return Value(idAtEdge(head, tail))
}

func idAtEdge(head, tail []byte) []byte {
	var p Parser
	p.reset(head, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := p.dec.ReadToken(); err == nil && tok.Kind() == '{' {
		for {
			name, err := p.dec.ReadToken()
			if err != nil || name.Kind() != '"' {
				break
			}
			is := name.String() == "id"
			v, err := p.dec.ReadValue()
			if err != nil {
				break
			}
			if is {
				return v
			}
		}
	}
	// `"id":7}` and nothing after: a nested object would be closed by one more brace,
	// and inside a string the quotes would be escaped.
	tail = bytes.TrimRight(tail, " \t\r\n")
	if len(tail) == 0 || tail[len(tail)-1] != '}' {
		return nil
	}
	tail = bytes.TrimRight(tail[:len(tail)-1], " \t")
	end := len(tail)
	for end > 0 && tail[end-1] >= '0' && tail[end-1] <= '9' {
		end--
	}
	number := tail[end:]
	before := bytes.TrimRight(tail[:end], " \t")
	if len(number) == 0 || !bytes.HasSuffix(before, []byte(":")) {
		return nil
	}
	before = bytes.TrimRight(before[:len(before)-1], " \t")
	if !bytes.HasSuffix(before, []byte(`"id"`)) {
		return nil
	}
	return number
}
