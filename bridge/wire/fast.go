package wire

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
	"postern/refusal"
)

// Three messages pass for every call, in the time that its caller waits. They are
// written and read here without reflection. What is written is what the general
// encoder would write. What is read here is only that very form: members in their
// order, plain characters, numbers as they are written here. Anything else is left to
// the general decoder, which alone decides what else is acceptable.

// fastUp appends m's object, if it is one of the messages of every call.
func fastUp(b []byte, m Up) ([]byte, bool) {
	ok := true
	switch m := m.(type) {
	case Admit:
		if m.Paths != nil || m.Continues != "" || len(m.Args) > 0 { // of a few calls, and of any characters
			return b, false
		}
		b = strconv.AppendUint(append(b, `{"seq":`...), m.Seq, 10)
		b = text(b, `,"session":`, string(m.Session), &ok)
		if m.Connection != "" {
			b = text(b, `,"connection":`, string(m.Connection), &ok)
		}
		if m.Instance != "" {
			b = text(b, `,"instance":`, string(m.Instance), &ok)
		}
		b = text(b, `,"tool":`, m.Tool, &ok)
		b = text(b, `,"digest":`, m.Digest, &ok)
		b = strconv.AppendInt(append(b, `,"size":`...), m.Size, 10)
		b = text(b, `,"request_id":`, m.RequestID, &ok)
	case Ended:
		b = text(b, `{"call":`, string(m.Call), &ok)
		b = text(b, `,"outcome":`, string(m.Outcome), &ok)
		if m.Code != "" {
			b = text(b, `,"code":`, string(m.Code), &ok)
		}
		b = strconv.AppendBool(append(b, `,"is_error":`...), m.IsError)
		b = strconv.AppendInt(append(b, `,"size":`...), m.Size, 10)
		b = strconv.AppendInt(append(b, `,"micros":`...), m.Micros, 10)
		b = strconv.AppendBool(append(b, `,"returned":`...), m.Returned)
		if m.Artifacts != 0 {
			b = strconv.AppendInt(append(b, `,"artifacts":`...), int64(m.Artifacts), 10)
		}
	default:
		return b, false
	}
	return append(b, '}'), ok
}

// fastDown is fastUp for the other direction.
func fastDown(b []byte, m Down) ([]byte, bool) {
	a, ok := m.(Admitted)
	if !ok {
		return b, false
	}
	b = strconv.AppendUint(append(b, `{"seq":`...), a.Seq, 10)
	b = text(b, `,"call":`, string(a.Call), &ok)
	b = strconv.AppendInt(append(b, `,"deadline_ms":`...), a.DeadlineMs, 10)
	return append(b, '}'), ok
}

func text(b []byte, name, s string, ok *bool) []byte {
	b, err := jsontext.AppendQuote(append(b, name...), s)
	*ok = *ok && err == nil
	return b
}

// scan reads the form that is written above. After a step that did not fit, it reads
// nothing more.
type scan struct {
	rest []byte
	bad  bool
}

// is tells whether s comes next, and passes it.
func (r *scan) is(s string) bool {
	if r.bad || len(r.rest) < len(s) || string(r.rest[:len(s)]) != s {
		return false
	}
	r.rest = r.rest[len(s):]
	return true
}

func (r *scan) must(s string) { r.bad = !r.is(s) || r.bad }

// text reads a string of printable ASCII without escapes.
func (r *scan) text(name string) string {
	r.must(name)
	r.must(`"`)
	for i, c := range r.rest {
		if c == '"' && !r.bad {
			s := string(r.rest[:i])
			r.rest = r.rest[i+1:]
			return s
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	r.bad = true
	return ""
}

// number reads a number of at most 18 digits, which fits every type.
func (r *scan) number(name string) uint64 {
	r.must(name)
	n, digits := uint64(0), 0
	for digits < len(r.rest) && r.rest[digits] >= '0' && r.rest[digits] <= '9' {
		n = n*10 + uint64(r.rest[digits]-'0')
		if digits++; digits > 18 {
			break
		}
	}
	if r.bad || digits == 0 || digits > 18 || (digits > 1 && r.rest[0] == '0') {
		r.bad = true
		return 0
	}
	r.rest = r.rest[digits:]
	return n
}

func (r *scan) boolean(name string) bool {
	r.must(name)
	if r.is("true") {
		return true
	}
	r.must("false")
	return false
}

// end tells whether the whole object was of the form.
func (r *scan) end() bool {
	r.must("}")
	return !r.bad && len(r.rest) == 0
}

func scanAdmit(raw []byte) (m Admit, ok bool) {
	r := scan{rest: raw}
	m.Seq = r.number(`{"seq":`)
	m.Session = ids.Session(r.text(`,"session":`))
	if r.is(`,"connection":`) {
		m.Connection = ids.Connection(r.text(""))
	}
	if r.is(`,"instance":`) {
		m.Instance = ids.Jail(r.text(""))
	}
	m.Tool = r.text(`,"tool":`)
	m.Digest = r.text(`,"digest":`)
	m.Size = int64(r.number(`,"size":`))
	m.RequestID = r.text(`,"request_id":`)
	return m, r.end()
}

func scanEnded(raw []byte) (m Ended, ok bool) {
	r := scan{rest: raw}
	m.Call = ids.Call(r.text(`{"call":`))
	m.Outcome = Outcome(r.text(`,"outcome":`))
	if r.is(`,"code":`) {
		m.Code = refusal.Code(r.text(""))
	}
	m.IsError = r.boolean(`,"is_error":`)
	m.Size = int64(r.number(`,"size":`))
	m.Micros = int64(r.number(`,"micros":`))
	m.Returned = r.boolean(`,"returned":`)
	if r.is(`,"artifacts":`) {
		m.Artifacts = int(r.number(""))
	}
	return m, r.end()
}

func scanAdmitted(raw []byte) (m Admitted, ok bool) {
	r := scan{rest: raw}
	m.Seq = r.number(`{"seq":`)
	m.Call = ids.Call(r.text(`,"call":`))
	m.DeadlineMs = int64(r.number(`,"deadline_ms":`))
	return m, r.end()
}
