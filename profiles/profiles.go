// Package profiles knows the execution profiles: the built-in ones and those
// that root put into a directory, decoded strictly.
//
// It runs in the launcher and in the CLI's check. A profile decides what a
// jailed program may do, so a file of it must be root's, and every key must be
// one that means something.
//
// Invariants:
//   - profiles-1: a key that is unknown, repeated or of the wrong kind is a
//     mistake; so is an anchor, an alias, a tag or a second document.
//   - profiles-2: every mistake of a file is reported, each with file, line and key.
//   - profiles-3: a file that anybody but root could have written is not read.
//   - profiles-4: a name is given once: no file replaces a built-in profile.
//   - profiles-5: a file of a directory that is not read is a mistake, unless its name says that it is left over.
//
// It applies nothing: jail does, and makes the filters.
package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"postern/jail/spec"
	"postern/near"
	"postern/supervisor/owned"
)

// Bounds of a directory of profiles.
const (
	MaxFile  = 64 << 10
	MaxFiles = 256
)

//go:embed builtin/*.yaml
var builtin embed.FS

// Builtin returns the profiles that come with Postern, by name.
func Builtin() (map[string]spec.Profile, error) {
	all := map[string]spec.Profile{}
	names, err := fs.Glob(builtin, "builtin/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := builtin.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := add(all, name, raw); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Source is the file of a built-in profile, to start one's own from.
func Source(name string) ([]byte, bool) {
	raw, err := builtin.ReadFile("builtin/" + name + ".yaml")
	return raw, err == nil
}

// Load returns the built-in profiles and those of every *.yaml file in dirs. A
// directory that does not exist holds none. The error joins every mistake of
// every file.
func Load(dirs ...string) (map[string]spec.Profile, error) {
	all, err := Builtin()
	if err != nil {
		return nil, err
	}
	var mistakes []error
	for _, dir := range dirs {
		entries, err := readDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		if len(entries) > MaxFiles {
			mistakes = append(mistakes, fmt.Errorf("%s: more than %d files", dir, MaxFiles))
			continue
		}
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			read, wrong := near.Listed(e.Name())
			if wrong != "" {
				mistakes = append(mistakes, Mistake{File: file, Want: wrong})
			}
			if !read {
				continue
			}
			raw, err := owned.Read(file, MaxFile)
			if err == nil {
				err = add(all, file, raw)
			}
			if err != nil {
				mistakes = append(mistakes, err)
			}
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return all, nil
}

// readDir lists a directory in which only root can put a profile, sorted by name.
func readDir(dir string) ([]fs.DirEntry, error) {
	f, err := owned.Dir(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// Check decodes one file that need not be installed yet, nor root's, and returns
// its mistakes: those of its content, another name than the file's, or a built-in
// one. An error means that it could not be read.
func Check(file string) (spec.Profile, []Mistake, error) {
	f, err := os.Open(file)
	if err != nil {
		return spec.Profile{}, nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return spec.Profile{}, nil, err
	}
	all, err := Builtin()
	if err != nil {
		return spec.Profile{}, nil, err
	}
	before := len(all)
	err = add(all, file, raw)
	if err == nil && len(all) == before+1 {
		return all[strings.TrimSuffix(filepath.Base(file), ".yaml")], nil, nil
	}
	var found []Mistake
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, e := range several.Unwrap() {
			if m, ok := errors.AsType[Mistake](e); ok {
				found = append(found, m)
			}
		}
	} else if m, ok := errors.AsType[Mistake](err); ok {
		found = append(found, m)
	}
	return spec.Profile{}, found, nil
}

// add decodes one file and takes its profile into all.
func add(all map[string]spec.Profile, file string, raw []byte) error {
	p, err := decode(file, strings.TrimSuffix(filepath.Base(file), ".yaml"), raw)
	if err != nil {
		return err
	}
	if _, taken := all[p.Name]; taken {
		return Mistake{File: file, Line: nameLine(raw), Key: "name", Want: fmt.Sprintf("there is a profile %q already", p.Name)}
	}
	all[p.Name] = p
	return nil
}

// nameLine is the line of the name in a file that was decoded.
func nameLine(raw []byte) int {
	d := &decoder{lines: map[string]int{}}
	d.decode(raw)
	return d.lineOf("name")
}

// Names returns the names of all, sorted.
func Names(all map[string]spec.Profile) []string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
