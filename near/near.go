// Package near knows which word was probably meant where one is unknown: the nearest by
// letters, for a key of a file also one that belongs into another section, and for the
// file itself the name under which it would have been read.
//
// It is pure. What it is given was written by people and may be anything; where it names
// what was meant, that is always one of the words that it was given as known.
//
// Invariants:
//   - near-1: it answers with a known word or with nothing, never with what was typed.
//   - near-2: a file of a directory of YAML files is one that is read, one that is known to be left over, or a mistake; there is no fourth.
//
// It refuses nothing and corrects nothing: it words a hint.
package near

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxTyped = 64 // bytes of a word that is compared; a longer one is like nothing
	maxFew   = 8  // names that are listed where none is near
)

// Word returns the known word that typed is most like, or "" where none is near.
func Word(typed string, known []string) string {
	if len(typed) > maxTyped {
		return ""
	}
	best, least := "", 0
	for _, k := range known {
		d := Edits(plain(typed), plain(k))
		// Short words are near each other by chance; one of them in three letters may differ.
		if d > max(1, min(len(k), len(typed))/3) || k == typed {
			continue
		}
		if best == "" || d < least {
			best, least = k, d
		}
	}
	return best
}

// Edits counts the letters to add, drop, change or swap with their neighbour between a
// and b.
func Edits(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// plain makes the usual spellings of one name the same.
func plain(s string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(s))
}

// Sections are the keys of a file: for each section, named by its path, those that it
// takes. The path of the file itself is "", that of the entries of a list ends in [],
// and a name that anybody may choose is *.
type Sections map[string][]string

// Key words what is wrong with a key that the section does not take: which key of it
// was probably meant, or where the key belongs, or what there is.
func (s Sections) Key(section, typed string) string {
	const no = "is not a key here"
	here := s[section]
	if w := Word(typed, here); w != "" {
		return fmt.Sprintf("%s; did you mean %s?", no, w)
	}
	if at := s.elsewhere(section, func(k string) bool { return plain(k) == plain(typed) }); len(at) > 0 {
		return fmt.Sprintf("%s; it belongs there: %s", no, strings.Join(at, ", "))
	}
	if at := s.elsewhere(section, func(k string) bool { return Word(typed, []string{k}) != "" }); len(at) > 0 {
		return fmt.Sprintf("%s; did you mean %s?", no, strings.Join(at, " or "))
	}
	if len(here) == 0 {
		return no
	}
	few := slices.Clone(here)
	more := ""
	if len(few) > maxFew {
		few, more = few[:maxFew], " …"
	}
	return fmt.Sprintf("%s; want one of %s%s", no, strings.Join(few, ", "), more)
}

// elsewhere lists the full paths of the keys of other sections that are meant.
func (s Sections) elsewhere(section string, meant func(string) bool) []string {
	var out []string
	for at, keys := range s {
		if at == section {
			continue
		}
		for _, k := range keys {
			if !meant(k) || k == "*" {
				continue
			}
			if at != "" {
				k = at + "." + k
			}
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxFew)]
}

// Section is the path of the section in which the key lies, as Sections names it: the
// numbers of a list's entries are left out.
func Section(path string) string {
	var b strings.Builder
	in := false
	for _, r := range path {
		switch {
		case r == '[':
			in = true
			b.WriteRune(r)
		case r == ']':
			in = false
			b.WriteRune(r)
		case !in:
			b.WriteRune(r)
		}
	}
	return b.String()
}
