// Package item knows the names of what a connection can be granted: a tool by the
// server's own name, a prompt as "prompt:NAME", and resources as "resource:URI",
// where a grant's URI is a prefix of whole segments.
//
// It is pure. Names and URIs come from runtimes and tool servers and are hostile.
//
// Invariants:
//   - item-1: no two items have one key; a tool's name never reads as a prompt or a resource.
//   - item-2: a prefix covers only what lies at it or beneath it by whole segments.
//   - item-3: a URI with a second spelling is refused, so that what is compared is what the server reads.
//
// It does not know what is granted, and decides nothing.
package item

import (
	"errors"
	"fmt"
	"strings"
)

// MaxURI is how many bytes a resource's URI may have.
const MaxURI = 1024

// MaxKey is how many bytes a key may have.
const MaxKey = len(resource) + MaxURI

// Kind is what an item is.
type Kind uint8

// The kinds.
const (
	Tool Kind = iota
	Prompt
	Resource
)

const (
	prompt   = "prompt:"
	resource = "resource:"
)

// String is how a person reads the kind.
func (k Kind) String() string {
	switch k {
	case Prompt:
		return "prompt"
	case Resource:
		return "resource"
	}
	return "tool"
}

// Key returns the key of the item of a kind that its server calls name.
func (k Kind) Key(name string) string {
	switch k {
	case Prompt:
		return prompt + name
	case Resource:
		return resource + name
	}
	return name
}

// Split returns the kind of a key and the name that the server knows.
func Split(key string) (Kind, string) {
	if name, ok := strings.CutPrefix(key, prompt); ok {
		return Prompt, name
	}
	if uri, ok := strings.CutPrefix(key, resource); ok {
		return Resource, uri
	}
	return Tool, key
}

// Reserved tells whether a tool's name could be read as another kind's key. No tool
// is served under such a name.
func Reserved(name string) bool { return strings.ContainsRune(name, ':') }

// Under returns a key whose name is preceded by a label: what an item is called where
// its own name is taken.
func Under(label, key string) string {
	k, name := Split(key)
	return k.Key(label + "." + name)
}

// CheckURI refuses a URI that is not in the one spelling which is compared: a lower
// case scheme, visible ASCII, no fragment, no "." or ".." and no empty segment, and
// percent signs only where a byte could not be written otherwise, in upper case. An
// encoded slash, backslash, dot, percent sign or control character is never one of
// those. A last empty segment is a directory's.
func CheckURI(uri string) error {
	if len(uri) > MaxURI {
		return fmt.Errorf("a URI may have %d bytes", MaxURI)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !validScheme(scheme) {
		return errors.New("a URI begins with a scheme in lower case and a colon")
	}
	if rest == "" {
		return errors.New("the URI ends after its scheme")
	}
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c <= ' ' || c >= 0x7f || strings.IndexByte(`\#"<>^{|}`+"`", c) >= 0:
			return errors.New("the URI has a character that a URI cannot have, or a fragment")
		case c == '%':
			if i+2 >= len(rest) || !needed(rest[i+1], rest[i+2]) {
				return errors.New("the URI has a percent sign that hides a character or has another spelling")
			}
			i += 2
		}
	}
	path, _, _ := strings.Cut(rest, "?")
	path, slashes := strings.CutPrefix(path, "//")
	if slashes { // an authority, which may be empty
		if _, path, ok = strings.Cut(path, "/"); !ok {
			return nil
		}
	} else {
		path = strings.TrimPrefix(path, "/")
	}
	for more := true; more; {
		var segment string
		segment, path, more = strings.Cut(path, "/")
		bare, _, _ := strings.Cut(segment, ";") // some servers drop what follows
		switch {
		case bare == "." || bare == "..":
			return errors.New("the URI has a segment \".\" or \"..\"")
		case segment == "" && more:
			return errors.New("the URI has an empty segment")
		}
	}
	return nil
}

func validScheme(s string) bool {
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}

// needed tells whether the byte of two upper case digits can only be written encoded,
// and hides nothing that divides a path.
func needed(hi, lo byte) bool {
	const digits = "0123456789ABCDEF"
	h, l := strings.IndexByte(digits, hi), strings.IndexByte(digits, lo)
	if h < 0 || l < 0 {
		return false
	}
	switch c := byte(h<<4 | l); {
	case c < ' ', c == 0x7f, c == '/', c == '\\', c == '.', c == '%':
		return false
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '~':
		return false
	}
	return true
}

// Covers tells whether a granted prefix is the URI or leads to it by whole segments.
// What follows a question mark is asked for only by a prefix that has one.
func Covers(prefix, uri string) bool {
	beneath, ok := strings.CutPrefix(uri, prefix)
	switch {
	case !ok || prefix == "":
		return false
	case beneath == "":
		return true
	case strings.ContainsRune(prefix, '?'):
		return strings.HasSuffix(prefix, "?")
	case strings.ContainsRune(beneath, '?'):
		return false
	}
	return beneath[0] == '/' || strings.HasSuffix(prefix, "/")
}

// Overlap tells whether one of two prefixes leads to the other.
func Overlap(a, b string) bool { return Covers(a, b) || Covers(b, a) }
