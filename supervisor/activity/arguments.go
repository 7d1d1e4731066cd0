package activity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"postern/supervisor/store"
)

// MaxArguments bounds the recorded arguments of one call, in bytes, masked and escaped.
const MaxArguments = 4 << 10

// Masked stands in recorded arguments where a secret was.
const Masked = `"[masked]"`

// maskedAnyway are the ends of names whose values are masked in every server's arguments,
// folded: whoever registers a server may not know that it has such a one.
var maskedAnyway = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "authorization", "cookie", "credential",
	"passwords", "secrets", "apikeys", "accesskeys", "privatekeys", "cookies", "credentials"} // and no "tokens": max_tokens is a count

// A Mask says which members of arguments are secret: those of a name, at any depth, or
// those at a path from the top ("/auth/key"), in which arrays are passed through.
type Mask struct {
	names []string
	paths [][]string
}

// MaskOf makes the mask of secret fields, each a name or, with a slash first, a path.
func MaskOf(fields []string) (m Mask) {
	for _, f := range fields {
		path, is := strings.CutPrefix(f, "/")
		if !is {
			m.names = append(m.names, fold(f))
			continue
		}
		parts := strings.Split(path, "/")
		for i, p := range parts {
			parts[i] = fold(strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~"))
		}
		m.paths = append(m.paths, parts)
	}
	return m
}

// hides tells whether the member at a path from the top is secret.
func (m Mask) hides(at []string) bool {
	name := at[len(at)-1]
	return slices.Contains(m.names, name) || slices.ContainsFunc(maskedAnyway, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		slices.ContainsFunc(m.paths, func(p []string) bool { return slices.Equal(p, at) })
}

// fold makes one of the spellings that servers read as the same name.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, name)
}

// Arguments is what is recorded of the arguments of a call: one line of JSON without
// secrets, in which everything that is not shown as itself is escaped. missing says in
// words why there is none; nothing of the arguments is in it.
func Arguments(raw []byte, secret Mask) (value, missing string) {
	d := jsontext.NewDecoder(bytes.NewReader(raw)) // refuses repeated names and bad UTF-8
	w := masking{Mask: secret}
	err := w.value(d, nil)
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF && len(w.out) <= MaxArguments {
			return string(w.out), ""
		}
	}
	if len(w.out) > MaxArguments {
		return "", fmt.Sprintf("they have more than %d bytes", MaxArguments)
	}
	return "", "they are not one JSON value"
}

type masking struct {
	Mask
	out []byte
}

var errLong = errors.New("the arguments are too long")

func (w *masking) value(d *jsontext.Decoder, at []string) error {
	tok, err := d.ReadToken()
	if err == nil && len(w.out) > MaxArguments { // which also bounds the depth
		err = errLong
	}
	if err != nil {
		return err
	}
	switch k := tok.Kind(); k {
	case '"':
		w.text(tok.String())
	case '[', '{':
		end := k + 2 // ']' or '}'
		w.out = append(w.out, byte(k))
		for first := true; d.PeekKind() != end; first = false {
			if !first {
				w.out = append(w.out, ',')
			}
			if err := w.element(d, at, k == '{'); err != nil {
				return err
			}
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		w.out = append(w.out, byte(end))
	default: // null, true, false or a number, as it was written
		w.out = append(w.out, tok.String()...)
	}
	return nil
}

// element is a value of an array or, with its name, a member of an object.
func (w *masking) element(d *jsontext.Decoder, at []string, named bool) error {
	if !named {
		return w.value(d, at)
	}
	name, err := d.ReadToken()
	if err != nil {
		return err
	}
	text := name.String()
	at = append(slices.Clip(at), fold(text))
	w.text(text)
	w.out = append(w.out, ':')
	if w.hides(at) {
		w.out = append(w.out, Masked...)
		return d.SkipValue()
	}
	return w.value(d, at)
}

// text writes a string. Only what is shown as itself stays: no line or direction begins
// in a record.
func (w *masking) text(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.out = append(w.out, '\\', byte(r))
		case shown(r):
			w.out = append(w.out, string(r)...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			w.out = fmt.Appendf(w.out, `\u%04x\u%04x`, high, low)
		default:
			w.out = fmt.Appendf(w.out, `\u%04x`, r)
		}
	}
	w.out = append(w.out, '"')
}

// Recorded is what was recorded of arguments, for one who may see it, or why nothing
// was. A file may have lost since what Arguments made.
func Recorded(a store.Arguments) (value jsontext.Value, missing string) {
	v := jsontext.Value(a.Value)
	switch {
	case a.Missing != "":
		return nil, Shown(a.Missing, MaxReason)
	case a.Value == "":
		return nil, ""
	case len(v) > MaxArguments || !v.IsValid() || strings.ContainsFunc(a.Value, func(r rune) bool { return !shown(r) }):
		return nil, "the record of them is damaged"
	}
	return v, ""
}
