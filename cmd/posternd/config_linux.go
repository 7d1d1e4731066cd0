package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		name, full := e.Name(), filepath.Join(dir, e.Name())
		switch ext := strings.ToLower(filepath.Ext(name)); {
		case strings.HasPrefix(name, "."):
		case filepath.Ext(name) == ".yaml":
			names = append(names, full)
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			mistakes = append(mistakes, fmt.Errorf("%s: is not read; the name of a drop-in ends in .yaml", full))
		}
	}
	if len(names) > config.MaxFiles {
		mistakes = append(mistakes, fmt.Errorf("%s: want at most %d files", dir, config.MaxFiles))
		names = nil
	}
	return names, errors.Join(mistakes...)
}
