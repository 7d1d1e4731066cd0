package launch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"postern/near"
)

// NameMistake is a file or directory whose name keeps it from being read.
type NameMistake struct{ File, Want string }

func (m NameMistake) Error() string { return m.File + ": " + m.Want }

// Misnamed tells of what lies beside postern.yaml, its directories and the access policy
// under a name that was meant to be one of theirs. Nobody reads it: without the policy
// that was written into "access.yml", everyone would be let in whom it was to keep out.
// A directory that cannot be listed is told by whoever reads the files in it.
func (c Config) Misnamed() (out []error) {
	known := map[string][]string{}
	for _, path := range []string{c.File, c.DropInDir, c.ProfileDir, c.Access} {
		if path != "" {
			known[filepath.Dir(path)] = append(known[filepath.Dir(path)], filepath.Base(path))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(known)) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries[:min(len(entries), maxWatched)] {
			if meant := near.File(e.Name(), known[dir]); meant != "" {
				out = append(out, NameMistake{filepath.Join(dir, e.Name()), fmt.Sprintf("is not read; did you mean %s? Rename it, or move it to another directory", meant)})
			}
		}
	}
	return out
}
