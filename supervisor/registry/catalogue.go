package registry

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/item"
	"postern/policy/class"
)

// Bounds of a catalogue.
const (
	MaxCatalogue  = 8 << 20   // bytes of the whole list
	MaxListed     = 1024      // tools of one list
	MaxDefinition = 256 << 10 // bytes of one tool's definition
)

// ReadCatalogue makes pins of what a server lists: a JSON array of the raw
// definitions of its tools and, where it has prompts, a second one of theirs. A
// definition that is malformed is quarantined alone, with its reason; only a list
// that is no array, or over its bounds, is refused whole.
func ReadCatalogue(raw []byte) ([]Pin, error) {
	if len(raw) > MaxCatalogue {
		return nil, fmt.Errorf("the list of tools has %d bytes, limit %d", len(raw), MaxCatalogue)
	}
	// Lenient here, so that one bad definition does not hide its siblings; each
	// definition is then held to the strict rules by itself.
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var pins []Pin
	at := map[string]int{}
	for _, kind := range []item.Kind{item.Tool, item.Prompt} {
		if kind != item.Tool && d.PeekKind() != '[' {
			break
		}
		if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
			return nil, fmt.Errorf("the list of tools is not an array")
		}
		for d.PeekKind() != ']' {
			v, err := d.ReadValue()
			if err != nil {
				return nil, fmt.Errorf("the list is not JSON after %d definitions", len(pins))
			}
			if len(pins) == MaxListed {
				return nil, fmt.Errorf("the list has more than %d tools and prompts", MaxListed)
			}
			p := readDefinition(kind, v)
			if p.Tool == "" {
				p.Tool = fmt.Sprintf("(%d)", len(pins)+1) // not a name that can be granted
			}
			if first, twice := at[p.Tool]; twice {
				pins[first].Quarantine = fmt.Sprintf("the server lists two %ss of this name", kind)
				continue
			}
			at[p.Tool] = len(pins)
			pins = append(pins, p)
		}
		if _, err := d.ReadToken(); err != nil {
			return nil, fmt.Errorf("the list ends after %d definitions", len(pins))
		}
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("something follows the list")
	}
	return pins, nil
}

func readDefinition(kind item.Kind, v jsontext.Value) Pin {
	p := Pin{Raw: bytes.Clone(v), Digest: sha256.Sum256(v)}
	bad := func(why string) Pin { p.Quarantine = why; return p }
	var t struct {
		Name        jsontext.Value `json:"name"`
		InputSchema jsontext.Value `json:"inputSchema"`
		Annotations jsontext.Value `json:"annotations"`
		Arguments   jsontext.Value `json:"arguments"`
	}
	if len(v) > MaxDefinition {
		p.Raw = []byte("null")
		return bad(fmt.Sprintf("the definition has %d bytes, limit %d", len(v), MaxDefinition))
	}
	if v.Kind() != '{' {
		return bad("the definition is not an object")
	}
	if err := json.Unmarshal(v, &t); err != nil {
		return bad("the definition repeats a member or is not valid UTF-8")
	}
	name := ""
	if t.Name.Kind() != '"' || json.Unmarshal(t.Name, &name) != nil || name == "" {
		return bad("the definition has no name")
	}
	p.Tool = kind.Key(name)
	if !Servable(name) {
		// Shown by something that is no other item's key.
		p.Tool = kind.Key(strings.ReplaceAll(strings.ToValidUTF8(name[:min(len(name), 4*MaxServed)], "?"), ":", "?"))
		return bad(fmt.Sprintf("the name is not at most %d letters, digits, '_', '-' and '.'", MaxServed))
	}
	if kind == item.Prompt {
		if t.Arguments != nil && t.Arguments.Kind() != '[' {
			return bad("the arguments are not a list")
		}
		return p
	}
	if t.InputSchema.Kind() != '{' {
		return bad("the input schema is not an object")
	}
	if t.Annotations != nil && t.Annotations.Kind() == '{' {
		var a struct {
			ReadOnly    jsontext.Value `json:"readOnlyHint"`
			Destructive jsontext.Value `json:"destructiveHint"`
		}
		if json.Unmarshal(t.Annotations, &a) == nil {
			p.ReadOnly, p.Destructive = uint8(claim(a.ReadOnly)), uint8(claim(a.Destructive))
		}
	}
	return p
}

// claim reads one annotation. Only a JSON boolean says anything.
func claim(v jsontext.Value) class.Claim {
	switch v.Kind() {
	case 't':
		return class.Yes
	case 'f':
		return class.No
	}
	return class.Unsaid
}
