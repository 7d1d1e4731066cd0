package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

// The longest list that a server may have, in the words that take the most room, fits into
// one answer; one within the bound is told as it is; nothing is cut inside a character.
func TestAListOfManyWordsFitsIntoAnAnswer(t *testing.T) {
	list := func(n int, name func(int) string, word string) []api.ToolResult {
		var out []api.ToolResult
		for i := range n {
			out = append(out, api.ToolResult{Tool: name(i), Kind: "prompt", Served: strings.Repeat("s", registry.MaxServed), Title: strings.Repeat(word, wire.MaxTitle/len(word)),
				Description: strings.Repeat(word, wire.MaxDescription/len(word)), Pin: strings.Repeat("f", 64), Classes: []string{"filesystem.write", "network.read", "mcp.write"},
				ClassSource: "annotations", Tier: "destructive", Granted: true, State: "quarantined", Reason: fmt.Sprintf("the name is not at most %d letters, digits, '_', '-' and '.'", registry.MaxServed)})
		}
		return out
	}
	long := func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("n", registry.MaxServed-4)) }
	for _, word := range []string{"d", "\"", "\x01", "é", "😀"} {
		for what, name := range map[string]func(int) string{"names": long, "hostile names": func(int) string { return strings.Repeat("\x02", 256) }} {
			tools := list(registry.MaxListed, name, word)
			shorten(tools)
			value, err := api.EncodeValue(api.CatalogueResult{Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			if line, err := api.Encode(api.Response{Result: value}); err != nil || len(line) > api.MaxLine {
				t.Errorf("%s, %q: an answer of %d bytes, %v", what, word, len(line), err)
			}
			first := tools[0]
			if first.Description == "" || strings.Trim(first.Title+first.Description, word) != "" {
				t.Errorf("%s, %q: what is left is %q and %q", what, word, first.Title, first.Description)
			}
			if what == "names" && tools[7].Tool != long(7) {
				t.Errorf("a name that can be granted was cut: %q", tools[7].Tool)
			}
		}
	}
	few := list(100, long, "d")
	shorten(few)
	if !slices.EqualFunc(few, list(100, long, "d"), func(a, b api.ToolResult) bool {
		return a.Description == b.Description && a.Title == b.Title && a.Tool == b.Tool
	}) {
		t.Error("a list within the bound was cut")
	}
}
