package class

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The operations known by name and those whose paths are judged are the same, but for
// the one that takes no path. A new operation without its row here fails.
func TestC13_EveryKnownOperationHasItsPathArguments(t *testing.T) {
	rows := map[string]bool{"list_allowed_directories": true}
	folded := regexp.MustCompile(`^[a-z]+$`)
	for _, row := range []struct {
		tool  string
		least int
		pair  bool
	}{
		{"read_file", 1, false}, {"read_text_file", 1, false}, {"read_media_file", 1, false}, {"read_multiple_files", 1, false}, {"get_file_info", 1, false},
		{"list_directory", 0, false}, {"list_directory_with_sizes", 0, false}, {"directory_tree", 0, false}, {"search_files", 0, false}, {"list_files", 0, false},
		{"write_file", 1, false}, {"create_file", 1, false}, {"create_directory", 1, false}, {"delete_file", 1, false}, {"delete_directory", 1, false},
		{"remove_file", 1, false}, {"edit_file", 1, false}, {"append_file", 1, false},
		{"move_file", 2, true}, {"copy_file", 2, true}, {"rename_file", 1, true},
	} {
		p := ArgumentsOf(row.tool)
		rows[row.tool] = true
		named, known := Paths(row.tool)
		if !known {
			t.Errorf("%s is no known operation", row.tool)
		}
		for _, a := range named {
			if !slices.Contains(p.Names, strings.ReplaceAll(a.Name, "_", "")) {
				t.Errorf("%s: %s is a path and not judged", row.tool, a.Name)
			}
		}
		if p.None() || p.Least != row.least || slices.Contains(p.Names, "destination") != row.pair || !slices.Contains(p.Names, "path") {
			t.Errorf("%s: %+v", row.tool, p)
		}
		for _, n := range p.Names {
			if !folded.MatchString(n) {
				t.Errorf("%s: %q is not folded", row.tool, n)
			}
		}
	}
	for name := range operations {
		if !rows[name] {
			t.Errorf("%s has no row", name)
		}
	}
	for _, other := range []string{"", "Read_File", "query", "list_allowed_directories"} {
		if !ArgumentsOf(other).None() {
			t.Errorf("%q has path arguments", other)
		}
	}
}
