package launch

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/supervisor/api"
)

// Bounds of what is shown of a difference.
const (
	maxLinesShown = 32  // of one member, before and after
	maxNamesShown = 32  // of the files of a package, of each kind
	maxLineShown  = 256 // bytes of a line
	maxNameShown  = 256 // bytes of a file's name, its end
	maxFormDepth  = 8   // of a profile's content, below which values are compared whole
)

// notCompared are the members of a revision that say which one it is, or that are
// compared by what they stand for.
var notCompared = []string{"id", "digest", "created", "recorded", "profile_digest", "package"}

// revisionDiff tells what differs between two revisions, member by member as they are
// stored, so that one that is added is compared without a word here.
func revisionDiff(was, is Revision) ([]api.RevisionMember, error) {
	before, err := membersOf(was)
	if err != nil {
		return nil, err
	}
	after, err := membersOf(is)
	if err != nil {
		return nil, err
	}
	var out []api.RevisionMember
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains(notCompared, name) || bytes.Equal(before[name], after[name]) {
			continue
		}
		a, b := linesOf(before[name]), linesOf(after[name])
		if before[name].Kind() == '{' || after[name].Kind() == '{' {
			a, b = apart(a, b)
		}
		out = append(out, member(name, a, b))
	}
	return out, nil
}

func membersOf(r Revision) (map[string]jsontext.Value, error) {
	raw, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	var out map[string]jsontext.Value
	return out, json.Unmarshal(raw, &out)
}

// linesOf is a value as lines: the words of a command one by one, the entries of a
// table as "key: value".
func linesOf(v jsontext.Value) (lines []string) {
	switch v.Kind() {
	case '[':
		var all []jsontext.Value
		if json.Unmarshal(v, &all) == nil {
			for _, x := range all {
				lines = append(lines, textOf(x))
			}
		}
	case '{':
		var all map[string]jsontext.Value
		if json.Unmarshal(v, &all) == nil {
			for _, k := range slices.Sorted(maps.Keys(all)) {
				lines = append(lines, k+": "+strings.Join(linesOf(all[k]), ", "))
			}
		}
	case 0:
	default:
		lines = []string{textOf(v)}
	}
	return lines
}

func textOf(v jsontext.Value) string {
	var s string
	if v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// apart leaves of each what the other has not.
func apart(a, b []string) ([]string, []string) {
	only := func(x, y []string) (out []string) {
		other := map[string]bool{}
		for _, l := range y {
			other[l] = true
		}
		for _, l := range x {
			if !other[l] {
				out = append(out, l)
			}
		}
		return out
	}
	return only(a, b), only(b, a)
}

func member(name string, was, is []string) api.RevisionMember {
	m := api.RevisionMember{Member: name}
	if max(len(was), len(is)) > maxLinesShown { // what is equal is not what hides the rest
		n := 0
		for n < min(len(was), len(is)) && was[n] == is[n] {
			n++
		}
		was, is, m.More = was[n:], is[n:], n
	}
	more := 0
	m.Was, more = shownLines(was)
	m.More += more
	m.Is, more = shownLines(is)
	m.More += more
	return m
}

func shownLines(all []string) (out []string, more int) {
	for _, l := range all[:min(len(all), maxLinesShown)] {
		if len(l) > maxLineShown { // two that differ further on do not read the same
			sum := sha256.Sum256([]byte(l))
			l = fmt.Sprintf("%s… (%d bytes, sha256 %x)", l[:maxLineShown], len(l), sum[:8])
		}
		out = append(out, strings.ToValidUTF8(l, "?"))
	}
	return out, len(all) - len(out)
}

// formDiff tells what differs in the content of two profiles. Of the environment it
// says names alone.
func formDiff(was, is []byte) api.RevisionMember {
	a, b := apart(formLines(nil, "", was, 0), formLines(nil, "", is, 0))
	return member("profile content", a, b)
}

func formLines(out []string, at string, v jsontext.Value, depth int) []string {
	switch {
	case v.Kind() == '{' && depth < maxFormDepth:
		var all map[string]jsontext.Value
		if json.Unmarshal(v, &all) != nil {
			return append(out, at+" "+string(v))
		}
		for _, k := range slices.Sorted(maps.Keys(all)) {
			if at == "env" {
				out = append(out, fmt.Sprintf("env %s (value of %d bytes)", k, len(textOf(all[k]))))
				continue
			}
			out = formLines(out, strings.TrimPrefix(at+"."+k, "."), all[k], depth+1)
		}
		return out
	case v.Kind() == '[' && depth < maxFormDepth:
		var all []jsontext.Value
		if json.Unmarshal(v, &all) != nil {
			return append(out, at+" "+string(v))
		}
		for _, x := range all {
			out = append(out, at+" "+textOf(x))
		}
		return out
	}
	return append(out, at+" "+textOf(v))
}

// packageDiff compares two lists of files.
func packageDiff(was, is []byte) *api.FileChanges {
	a, b := filesOf(was), filesOf(is)
	out := &api.FileChanges{}
	name := func(list *[]string, n int, file string) {
		if n > maxNamesShown {
			return
		}
		if over := len(file) - maxNameShown; over > 0 {
			file = "…" + file[over:]
		}
		*list = append(*list, strings.ToValidUTF8(file, "?"))
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		before, had := a[file]
		after, has := b[file]
		switch {
		case !had:
			out.Added++
			name(&out.NamesAdded, out.Added, file)
		case !has:
			out.Removed++
			name(&out.NamesRemoved, out.Removed, file)
		case before != after:
			out.Changed++
			name(&out.NamesChanged, out.Changed, file)
		}
	}
	return out
}

// filesOf reads the list of a package: what is at each path, directories left out, for
// they are there by what is in them.
func filesOf(list []byte) map[string]string {
	out := map[string]string{}
	fields := strings.Split(string(list), "\x00")
	for ; len(fields) >= 3; fields = fields[3:] {
		if kind, at, what := fields[0], fields[1], fields[2]; kind != "d" {
			out[path.Clean(at)] = kind + what
		}
	}
	return out
}
