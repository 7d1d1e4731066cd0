package wire

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// members calls f for each member of a JSON object, in order.
func members(raw []byte, f func(name string, v jsontext.Value) error) error {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
	tok, err := d.ReadToken()
	if err != nil || tok.Kind() != '{' {
		return fmt.Errorf("a definition is not an object: %w", errField)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := f(key, v); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of what Describe returns, in bytes.
const (
	MaxTitle       = 256
	MaxDescription = 2048
)

// cut shortens a text and leaves no half of a character: what holds one cannot be
// written as JSON, and takes the whole list with it.
func cut(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }

// Describe reads title and description of a definition, cut to their bounds. They
// are a server's words.
func Describe(raw []byte) (title, description string) {
	members(raw, func(name string, v jsontext.Value) error {
		if v.Kind() != '"' {
			return nil
		}
		s, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return nil
		}
		switch name {
		case "title":
			title = cut(string(s), MaxTitle)
		case "description":
			description = cut(string(s), MaxDescription)
		}
		return nil
	})
	return title, description
}
