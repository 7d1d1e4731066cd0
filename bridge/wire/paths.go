package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the path arguments of one call. Control characters are not among them, so
// that the message has room for every path as JSON.
const (
	MaxPaths     = 256      // paths of one call
	MaxPath      = 4096     // bytes of one path, PATH_MAX
	MaxPathBytes = 16 << 10 // bytes of all of them
)

// PathArgs says which arguments of a tool are paths: every string, at any depth, under
// a name that folds to one of Names.
type PathArgs struct {
	Names []string `json:"names"`
}

// Paths are the path arguments of one call, as they will be sent. Unreadable tells that
// there was a value under a path's name that is no path, or more than the bounds allow;
// then the list says nothing.
type Paths struct {
	List []string `json:"list,omitempty"`
	// Under says of each path which of PathArgs.Names it stood under: a place in a closed
	// table, so that a record can name an argument and holds no word of a runtime's.
	Under      []byte `json:"under,omitempty"`
	Unreadable bool   `json:"unreadable,omitempty"`
}

// Of reads the path arguments out of the arguments of a call: the bytes that are sent
// if the call is admitted.
func (a *PathArgs) Of(arguments jsontext.Value) *Paths {
	w := walk{names: a.Names}
	if arguments == nil {
		return &Paths{}
	}
	d := jsontext.NewDecoder(bytes.NewReader(arguments))
	if err := w.value(d, noPath); err != nil {
		return &Paths{Unreadable: true}
	}
	return &Paths{List: w.found, Under: w.under}
}

type walk struct {
	names []string
	found []string
	under []byte
	bytes int
}

// noPath is the place of a name that is none of a path's.
const noPath = -1

var errNoPath = errors.New("a path argument cannot be read")

// value takes one value, where path is the place of the name that it stands under.
func (w *walk) value(d *jsontext.Decoder, path int) error {
	tok, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch tok.Kind() {
	case '"':
		if path != noPath {
			return w.add(tok.String(), path)
		}
	case 'n': // no value at all
	case '[':
		for d.PeekKind() != ']' {
			if err := w.value(d, path); err != nil {
				return err
			}
		}
		_, err = d.ReadToken()
	case '{':
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return err
			}
			if err := w.value(d, slices.Index(w.names, fold(name.String()))); err != nil {
				return err
			}
		}
		_, err = d.ReadToken()
	default:
		if path != noPath {
			return errNoPath
		}
	}
	return err
}

func (w *walk) add(s string, path int) error {
	w.bytes += len(s)
	if len(w.found) == MaxPaths || checkPath(s) != nil || w.bytes > MaxPathBytes {
		return errNoPath
	}
	w.found, w.under = append(w.found, s), append(w.under, byte(min(path, 0xff)))
	return nil
}

// fold makes one of the spellings that servers read as the same name: file_path,
// filePath, FILE-PATH. A decoder that ignores case also takes the two letters outside
// ASCII that fold to k and s.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, name)
}

func checkPath(s string) error {
	if len(s) > MaxPath {
		return fmt.Errorf("a path has %d bytes: %w", len(s), errField)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return fmt.Errorf("a path has a control character: %w", errField)
		}
	}
	return nil
}

// Judgeable tells whether a list of paths is one that Of could have made: then a
// question about them has room for all.
func Judgeable(list []string) bool { return checkPaths(&Paths{List: list}) == nil }

// FilePath tells whether a path may stand in a Piece: an absolute one, of characters.
func FilePath(path string) bool {
	return strings.HasPrefix(path, "/") && utf8.ValidString(path) && checkPath(path) == nil
}

// checkPaths refuses what Of never makes.
func checkPaths(p *Paths) error {
	if p == nil {
		return nil
	}
	total := 0
	for _, s := range p.List {
		total += len(s)
		if err := checkPath(s); err != nil {
			return err
		}
	}
	if len(p.List) > MaxPaths || total > MaxPathBytes || p.List != nil && (len(p.List) == 0 || p.Unreadable) || p.Under != nil && len(p.Under) != len(p.List) {
		return fmt.Errorf("%d paths of %d bytes: %w", len(p.List), total, errField)
	}
	return nil
}
