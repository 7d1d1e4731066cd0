package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of reading one pattern. What is longer or means more is not judged.
const (
	maxPattern = 4096     // bytes
	maxMeant   = maxPaths // patterns that its braces stand for
)

// begins reads a pattern as the runtimes' own matchers do and tells where what it matches
// can begin: for each pattern that its braces stand for the part before its first
// wildcard, "" for one that has none. Escapes, and classes of one character, are that
// character to a matcher, which then walks there without looking for anything. It tells
// false where the pattern can lead elsewhere or is read differently by different matchers.
func begins(pattern string) ([]string, bool) {
	if len(pattern) > maxPattern {
		return nil, false
	}
	meant, ok := braces(pattern)
	if !ok {
		return nil, false
	}
	var out []string
	for _, one := range meant {
		start, ok := begin(one)
		if !ok {
			return nil, false
		}
		if !slices.Contains(out, start) {
			out = append(out, start)
		}
	}
	return out, true
}

// braces is every pattern that the alternatives of one stand for. It tells false where
// they are too many, and for braces that some matchers take for a part of a name.
func braces(pattern string) ([]string, bool) {
	open, end, commas := group(pattern)
	switch {
	case open < 0:
		return []string{pattern}, end < 0
	case end < 0, len(commas) == 0, open > 0 && pattern[open-1] == '$':
		return nil, false
	}
	after, ok := braces(pattern[end+1:])
	if !ok {
		return nil, false
	}
	var out []string
	from := open + 1
	for _, to := range append(commas, end) {
		inner, ok := braces(pattern[from:to])
		if !ok || len(out)+len(inner)*len(after) > maxMeant {
			return nil, false
		}
		for _, i := range inner {
			for _, a := range after {
				out = append(out, pattern[:open]+i+a)
			}
		}
		from = to + 1
	}
	return out, true
}

// group finds the first braces of a pattern, and the commas that are no inner braces'.
// Without an opening one open is negative, and end is where one is closed nevertheless.
func group(pattern string) (open, end int, commas []int) {
	open = -1
	depth := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open = i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth <= 0 {
				return open, i, commas
			}
		}
	}
	return open, -1, nil
}

// begin is begins for a pattern without braces.
func begin(pattern string) (string, bool) {
	if _, inner, of := strings.Cut(pattern, "("); of {
		// Alternatives that hold a path: to some matchers they are paths.
		if last := strings.LastIndexByte(inner, ')'); last >= 0 && ledOut(inner[:last]) {
			return "", false
		}
	}
	var kept []string
	wild := false
	for part := range strings.SplitSeq(pattern, "/") {
		name, plain, ok := component(part)
		if !ok || name == ".." {
			return "", false
		}
		if wild = wild || !plain; !wild {
			kept = append(kept, name)
		}
	}
	out := strings.Join(kept, "/")
	if out == "" && strings.HasPrefix(pattern, "/") {
		out = "/"
	}
	return out, true
}

// ledOut tells whether what stands between the first parenthesis of a pattern and its
// last one holds a path in any of its groups.
func ledOut(text string) bool {
	depth := 1
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth > 0 && (c == '/' || c == '~' || c == '.' && strings.HasPrefix(text[i:], "..")):
			return true
		}
	}
	return false
}

// component reads one component: the name that it is, where it is plain, or the letters
// that it holds where it has wildcards. It tells false where it cannot be read.
func component(part string) (name string, plain, ok bool) {
	var b strings.Builder
	plain = true
	for i := 0; i < len(part); i++ {
		c := part[i]
		switch {
		case c == '\\':
			if i++; i == len(part) {
				return "", false, false
			}
			b.WriteByte(part[i])
		case c == '[':
			end := strings.IndexByte(part[i+1:], ']')
			if end < 0 {
				b.WriteByte(c)
				continue
			}
			class := part[i+1 : i+1+end]
			one := utf8.RuneCountInString(class) == 1 && strings.IndexByte(`!^\`, class[0]) < 0 || utf8.RuneCountInString(class) == 2 && class[0] == '\\'
			plain = plain && one
			b.WriteString(strings.TrimLeft(class, `!^\`))
			i += 1 + end
		case c == '*', c == '?':
			plain = false
		case strings.IndexByte("@+!", c) >= 0 && strings.HasPrefix(part[i+1:], "("):
			plain = false
		default:
			b.WriteByte(c)
		}
	}
	name = b.String()
	if !plain { // whatever is left of alternatives may be all that there is
		name = strings.Map(func(r rune) rune {
			if strings.ContainsRune("()|", r) {
				return -1
			}
			return r
		}, name)
	}
	return name, plain, true
}
