package mcp

import (
	"strconv"
	"strings"
	"testing"
)

// Lists and definitions below, at and above their bounds.
func TestMCP6_ListsAndDefinitionsAtTheirBounds(t *testing.T) {
	for n := MaxTools - 1; n <= MaxTools+1; n++ {
		var p Parser
		a, err := p.ReadAnswer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.TrimSuffix(strings.Repeat(`{},`, n), ",") + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		page, err := a.ReadList("tools")
		if fits := n <= MaxTools; (err == nil) != fits || fits && len(page.Items) != n {
			t.Errorf("%d tools: %d, %v", n, len(page.Items), err)
		}
	}
	tool := func(name string, n int) Value {
		head, tail := `{"name":"`+name+`","inputSchema":{"type":"object"},"description":"`, `"}`
		return Value(head + strings.Repeat("x", n-len(head)-len(tail)) + tail)
	}
	for i, n := range []int{MaxToolBytes - 1, MaxToolBytes, MaxToolBytes + 1} {
		kept, out := CheckTools([]Value{tool("sibling", 200), tool("tool"+strconv.Itoa(i), n)}, 0)
		if want := map[bool]int{true: 2, false: 1}[n <= MaxToolBytes]; len(kept) != want || len(out) != 2-want || kept[0].Name != "sibling" {
			t.Errorf("%d bytes: %d kept, %+v", n, len(kept), out)
		}
	}
	for n := MaxToolName - 1; n <= MaxToolName+1; n++ {
		kept, out := CheckTools([]Value{tool(strings.Repeat("a", n), 400)}, 0)
		if fits := n <= MaxToolName; (len(kept) == 1) != fits || (len(out) == 1) == fits {
			t.Errorf("a name of %d bytes: %d kept, %v", n, len(kept), out)
		}
	}
}
