package spec

import (
	"testing"
	"time"
)

func TestBoundsOfMessagesHaveALeastAndAMost(t *testing.T) {
	for field, b := range map[string]struct {
		set         func(*MCP, int64)
		least, most int64
	}{
		"mcp.call_time":     {func(m *MCP, n int64) { m.CallTime = time.Duration(n) }, int64(time.Second), int64(time.Hour)},
		"mcp.call_most":     {func(m *MCP, n int64) { m.CallMost = time.Duration(n) }, int64(time.Second), int64(24 * time.Hour)},
		"mcp.calls":         {func(m *MCP, n int64) { m.Calls = int(n) }, 1, 256},
		"mcp.line":          {func(m *MCP, n int64) { m.Line = n }, 4 << 10, 16 << 20},
		"mcp.depth":         {func(m *MCP, n int64) { m.Depth = int(n) }, 8, 512},
		"mcp.blocks":        {func(m *MCP, n int64) { m.Blocks = int(n) }, 1, 65536},
		"mcp.stderr":        {func(m *MCP, n int64) { m.Stderr = n }, 1 << 10, 256 << 10},
		"mcp.session_calls": {func(m *MCP, n int64) { m.SessionCalls = int(n) }, 1, 64},
		"mcp.queue":         {func(m *MCP, n int64) { m.Queue = n }, 64 << 10, 20 << 20},
		"mcp.items":         {func(m *MCP, n int64) { m.Items = int(n) }, 1, 2000},
		"mcp.definition":    {func(m *MCP, n int64) { m.Definition = n }, 1 << 10, 256 << 10},
		"mcp.definitions":   {func(m *MCP, n int64) { m.Definitions = n }, 4 << 10, 8 << 20},
		"mcp.line_wait":     {func(m *MCP, n int64) { m.LineWait = time.Duration(n) }, int64(time.Second), int64(time.Hour)},
		"mcp.pages":         {func(m *MCP, n int64) { m.Pages = int(n) }, 1, 1000},
	} {
		for _, n := range []int64{-1, b.least - 1, b.least, b.most, b.most + 1} {
			p := good()
			b.set(&p.MCP, n)
			bad := false
			for _, m := range p.Validate() {
				bad = bad || m.Field == field
			}
			if want := n != 0 && (n < b.least || n > b.most); bad != want {
				t.Errorf("%s %d: refused %v, want %v", field, n, bad, want)
			}
		}
	}
}
