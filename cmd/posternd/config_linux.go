package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"postern/near"
	"postern/supervisor/config"
	"postern/supervisor/owned"
)

// readConfig reads postern.yaml and its drop-ins. The error joins every mistake of all of
// them; found tells whether postern.yaml is there.
func readConfig(path string) (file config.File, found bool, err error) {
	var files []config.Source
	var mistakes []error
	raw, err := owned.Read(path, config.MaxFile)
	switch found = !errors.Is(err, os.ErrNotExist); {
	case err == nil:
		files = append(files, config.Source{Name: path, Raw: raw})
	case found:
		mistakes = append(mistakes, err)
	}
	names, err := dropIns(path + dropInSuffix)
	if err != nil {
		mistakes = append(mistakes, err)
	}
	for _, name := range names {
		raw, err := owned.Read(name, config.MaxFile)
		if err != nil { // one that is gone since it was listed is a mistake too: the next look tells
			mistakes = append(mistakes, err)
			continue
		}
		files = append(files, config.Source{Name: name, Raw: raw})
	}
	file, err = config.Decode(files...)
	return file, found, errors.Join(append(mistakes, err)...)
}

// dropIns lists the files of a directory that count, in the order of their names. A file
// that only looks as if it counted is a mistake, for nobody else would tell.
func dropIns(dir string) ([]string, error) {
	parent, err := owned.Dir(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	f, err := owned.Dir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var names []string
	var mistakes []error
	for _, e := range entries {
		full := filepath.Join(dir, e.Name())
		read, wrong := near.Listed(e.Name())
		switch {
		case read:
			names = append(names, full)
		case wrong != "":
			mistakes = append(mistakes, config.Mistake{File: full, Want: wrong})
		}
	}
	if len(names) > config.MaxFiles {
		mistakes = append(mistakes, config.Mistake{File: dir, Want: fmt.Sprintf("want at most %d files", config.MaxFiles)})
		names = nil
	}
	return names, errors.Join(mistakes...)
}
