package near

import (
	"fmt"
	"slices"
	"strings"
)

// ending is that of the files which are read.
const ending = ".yaml"

var (
	// misread are endings under which people write what they mean to be read.
	misread = []string{ending, ".yml", ".json", ".conf"}
	// leftovers are endings of what editors, people and package managers keep beside a file.
	leftovers = []string{"~", "#", ".swp", ".swo", ".bak", ".old", ".orig", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".dpkg-tmp", ".dpkg-bak", ".dpkg-remove",
		".ucf-old", ".ucf-new", ".ucf-dist", ".rpmnew", ".rpmsave", ".rpmorig"}
	// marks are what an editor may put before the first byte of a text, each with what
	// the file is then written in.
	marks = []struct{ bytes, in string }{{"\xef\xbb\xbf", "UTF-8"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"}}
)

// readme explains a directory to people, as in other directories of /etc.
const readme = "README"

// Leftovers lists the endings of files that are passed over, for pages.
func Leftovers() []string { return slices.Clone(leftovers) }

// Listed tells of a file in a directory of YAML files whether it is read, or what is wrong
// with its name: a file that is neither read nor known to be left over says something
// that nobody would hear. Both are zero for one that is left over, hidden, or a README.
func Listed(name string) (read bool, wrong string) {
	switch {
	case strings.HasPrefix(name, "."), name == readme, leftOver(name):
		return false, ""
	case strings.HasSuffix(name, ending):
		return true, ""
	}
	return false, "is not read: a name here ends in " + ending + "; rename it, or move it to another directory"
}

func leftOver(name string) bool {
	return slices.ContainsFunc(leftovers, func(end string) bool { return strings.HasSuffix(name, end) })
}

// File returns the known name under which a file or directory was probably to be read: one
// that differs in case, in the ending, in what stands before a directory's ".d", or in a
// letter or two. It is "" where none is, and for a known one. A name with a digit is taken
// for one of several that somebody keeps.
func File(typed string, known []string) string {
	stem, dir, ok := plainFile(typed)
	if !ok || slices.Contains(known, typed) {
		return ""
	}
	names, stems := map[string]string{}, []string{}
	for _, k := range known {
		if s, d, _ := plainFile(k); d == dir {
			if s == stem {
				return k
			}
			names[s], stems = k, append(stems, s)
		}
	}
	if strings.ContainsAny(stem, "0123456789") {
		return ""
	}
	return names[Word(stem, stems)]
}

// plainFile takes the endings off a name, which ok says it has.
func plainFile(name string) (stem string, dir, ok bool) {
	stem, dir = strings.CutSuffix(strings.ToLower(name), ".d")
	ok = dir
	for _, end := range misread {
		if s, cut := strings.CutSuffix(stem, end); cut {
			stem, ok = s, true
			break
		}
	}
	return stem, dir, ok
}

// Mark tells in words that the bytes of a file begin with a byte order mark, "" where they
// do not. The mark is invisible, and what is read behind it is another key.
func Mark(raw []byte) string {
	for _, m := range marks {
		if strings.HasPrefix(string(raw[:min(len(raw), len(m.bytes))]), m.bytes) {
			return fmt.Sprintf("begins with a byte order mark of %s; save it as UTF-8 without one", m.in)
		}
	}
	return ""
}
