package wire

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxTools bounds the definitions of one catalogue.
const MaxTools = 4096

// Hint is one boolean annotation of a definition: what is not a JSON boolean was not said.
type Hint uint8

// The values of a hint.
const (
	Unsaid Hint = iota
	No
	Yes
)

// Definition is one tool of a catalogue. Raw is the definition as the server sent it.
type Definition struct {
	Tool        string
	Raw         []byte
	ReadOnly    Hint
	Destructive Hint
}

// Definitions reads the joined data of a catalogue: a JSON array of objects, each
// with its own name. The authority reads it anew because a taken-over bridge may
// have written it.
func Definitions(data []byte) ([]Definition, error) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true))
	tok, err := d.ReadToken()
	if err != nil || tok.Kind() != '[' {
		return nil, fmt.Errorf("a catalogue is not an array: %w", errField)
	}
	var out []Definition
	seen := map[string]bool{}
	for d.PeekKind() != ']' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
		def, err := definition(bytes.Clone(raw))
		if err != nil {
			return nil, err
		}
		if seen[def.Tool] || len(out) == MaxTools {
			return nil, fmt.Errorf("tool %q twice, or more than %d: %w", def.Tool, MaxTools, errField)
		}
		seen[def.Tool] = true
		out = append(out, def)
	}
	return out, nil
}

func definition(raw []byte) (Definition, error) {
	def := Definition{Raw: raw}
	err := members(raw, func(name string, v jsontext.Value) error {
		switch name {
		case "name":
			s, err := jsontext.AppendUnquote(nil, v)
			if err != nil {
				return fmt.Errorf("a tool's name: %w", errField)
			}
			def.Tool = string(s)
			return tool(def.Tool)
		case "annotations":
			if v.Kind() != '{' {
				return nil
			}
			return members(v, func(name string, v jsontext.Value) error {
				switch name {
				case "readOnlyHint":
					def.ReadOnly = hint(v)
				case "destructiveHint":
					def.Destructive = hint(v)
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && def.Tool == "" {
		err = fmt.Errorf("a tool without a name: %w", errField)
	}
	return def, err
}

func hint(v jsontext.Value) Hint {
	switch v.Kind() {
	case 't':
		return Yes
	case 'f':
		return No
	}
	return Unsaid
}

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
			title = string(s[:min(len(s), MaxTitle)])
		case "description":
			description = string(s[:min(len(s), MaxDescription)])
		}
		return nil
	})
	return title, description
}
