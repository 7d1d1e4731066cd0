package main

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"

	"postern/jail/spec"
	"postern/near"
	"postern/profiles"
)

// object is a mapping that takes these keys alone.
func object(keys map[string]any, needed []string) map[string]any {
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": keys}
	if len(needed) > 0 {
		out["required"] = needed
	}
	return out
}

// text is a string of a pattern, at most so many characters long; 0 is without end.
func text(pattern string, most int) map[string]any {
	out := map[string]any{"type": "string", "pattern": pattern}
	if most > 0 {
		out["maxLength"] = most
	}
	return out
}

// path is what spec.CleanPath takes.
func path() map[string]any {
	out := text(`^(/[^/\x00]+)+$`, spec.MaxPath)
	out["not"] = map[string]any{"pattern": `/\.\.?(/|$)`}
	return out
}

// filled is a string that is not empty.
func filled() map[string]any { return map[string]any{"type": "string", "minLength": 1} }

// special are the values of which more can be said than their kind.
var special = map[string]map[string]any{
	"name":                    text(`^[a-z][a-z0-9-]{0,31}$`, 0),
	"binds[].source":          path(),
	"binds[].target":          {"anyOf": []any{path(), map[string]any{"const": ""}}},
	"links[].path":            path(),
	"links[].to":              {"type": "string", "minLength": 1, "maxLength": spec.MaxPath},
	"seccomp.groups[].name":   filled(),
	"seccomp.groups[].reason": filled(),
	"seccomp.rules[].call":    filled(),
	"seccomp.rules[].reason":  filled(),
	"env":                     {"type": "object", "maxProperties": spec.MaxEnv, "propertyNames": text(`^[^=\x00]+$`, 256), "additionalProperties": text(`^[^\x00]*$`, 0)},
	"seccomp.groups[].calls":  {"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}},
}

// items are the bounds of lists: least and most, 0 for none.
var items = map[string][2]int{"binds": {0, spec.MaxBinds}, "links": {0, spec.MaxLinks}, "seccomp.groups": {1, 0}, "seccomp.rules[].when": {1, 0}}

// profileSchema is the JSON schema of a profile: its keys, kinds and bounds are the
// decoder's, and what each key is the page says, docs/profiles.md.
func profileSchema(page string) (map[string]any, error) {
	what := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| (?:yes|no) \\| (.*) \\|$").FindAllStringSubmatch(page, -1) {
		what[row[1]] = plain(row[2])
	}
	in := map[string][]profiles.Key{}
	for _, k := range profiles.Keys() {
		in[sectionOf(k.Path)] = append(in[sectionOf(k.Path)], k)
	}
	var section func(path string) map[string]any
	section = func(path string) map[string]any {
		keys, needed := map[string]any{}, []string{}
		for _, k := range in[path] {
			value := profileValue(k, section)
			if what[k.Path] != "" {
				value["description"] = what[k.Path]
			}
			name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
			if keys[name] = value; k.Needed {
				needed = append(needed, name)
			}
		}
		return object(keys, needed)
	}
	root := section("")
	limits := root["properties"].(map[string]any)["limits"].(map[string]any)
	limits["dependentRequired"] = map[string]any{"tmp": []string{"tmp_inodes"}, "tmp_inodes": []string{"tmp"}}
	on := func(key string) map[string]any {
		return map[string]any{"properties": map[string]any{key: map[string]any{"const": true}}, "required": []string{key}}
	}
	root["if"], root["then"] = on("workspace_read_only"), on("workspace")
	if len(what) < len(in) {
		return nil, fmt.Errorf("docs/profiles.md says what %d keys are", len(what))
	}
	return root, nil
}

func sectionOf(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return near.Section(path[:i])
	}
	return ""
}

// plain takes the marks of a page out of a sentence.
func plain(s string) string {
	s = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(s, "$1")
	return strings.ReplaceAll(s, "`", "")
}

func profileValue(k profiles.Key, section func(string) map[string]any) map[string]any {
	if value, ok := special[k.Path]; ok {
		return maps.Clone(value)
	}
	switch k.Kind {
	case profiles.Section:
		return section(k.Path)
	case profiles.Sections:
		out := map[string]any{"type": "array", "items": section(k.Path + "[]")}
		if b := items[k.Path]; b[0] > 0 {
			out["minItems"] = b[0]
		} else if b[1] > 0 {
			out["maxItems"] = b[1]
		}
		return out
	case profiles.Truth:
		return map[string]any{"type": "boolean"}
	case profiles.Number:
		bounds, ok := profiles.Bounds()[k.Path]
		if !ok {
			bounds = [2]int64{0, math.MaxInt32}
		}
		return map[string]any{"type": "integer", "minimum": bounds[0], "maximum": bounds[1]}
	case profiles.Wide:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64)}
	case profiles.Bytes:
		return map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": 0}, text(`^\+?[0-9]+([KMG]iB)?$`, 0)}}
	case profiles.Duration:
		out := text(`^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`, 0)
		out["not"] = map[string]any{"pattern": `^[^1-9]*$`} // none at all
		return out
	case profiles.Texts:
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	}
	return map[string]any{"type": "string"}
}
