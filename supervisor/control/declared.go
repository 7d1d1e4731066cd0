package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"postern/near"
	"postern/policy/class"
	"postern/supervisor/registry"
)

// declaredForNothing names what a registration declares of tools, or calls secret, that
// nothing in the list of its last probe has: a mark of a misspelt tool protects nothing,
// and nobody would hear of it. It is told and not refused, for a server may list a tool
// later that it does not list now.
func declaredForNothing(rev *registry.RootRevision, cat *registry.Catalogue) []string {
	if cat.Error != "" {
		return nil // it lists nothing, or what it listed before
	}
	var out []string
	hint := func(typed string, known []string) string {
		if word := near.Word(typed, known); word != "" {
			return fmt.Sprintf("; did you mean %s?", word)
		}
		return ""
	}
	say := func(what, tool string) {
		if cat.Tools[tool] == nil {
			out = append(out, fmt.Sprintf("the %s of %q: the server lists no such tool%s", what, tool, hint(tool, cat.Order)))
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(rev.Classes)) {
		say("classes", tool)
	}
	for _, tool := range slices.Sorted(maps.Keys(rev.Tiers)) {
		if rev.Tiers[tool] != class.Unmarked {
			say("tier", tool)
		}
	}
	if len(rev.Secret) == 0 {
		return out
	}
	fields := map[string]string{} // by the form in which records compare them
	for _, name := range cat.Order {
		var definition struct {
			Schema any `json:"inputSchema"`
		}
		if json.Unmarshal(cat.Tools[name].Raw, &definition) == nil {
			argumentNames(definition.Schema, fields)
		}
	}
	known := slices.Sorted(maps.Values(fields))
	for _, path := range rev.Secret {
		field := path[strings.LastIndexByte(path, '/')+1:]
		if fields[alike(field)] == "" {
			out = append(out, fmt.Sprintf("the secret field %q: no tool of the server lists an argument of this name%s", path, hint(field, known)))
		}
	}
	return out
}

// argumentNames gathers the names under every "properties" of a schema. Definitions are a
// server's own words, bounded in size and depth when they were pinned.
func argumentNames(v any, to map[string]string) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			argumentNames(x, to)
		}
	case map[string]any:
		for key, x := range v {
			if members, ok := x.(map[string]any); ok && key == "properties" {
				for name := range members {
					to[alike(name)] = name
				}
			}
			argumentNames(x, to)
		}
	}
}

func alike(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}
