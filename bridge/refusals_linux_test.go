package bridge

import (
	"encoding/json"
	"testing"

	"postern/bridge/mcp"
	"postern/refusal"
)

// TestA4_EveryCodeToARuntime: a refused call is answered as its row says, in both
// eras: a result for a tool of the project's own, -32602 for what lies outside, an
// error for a message that was not acceptable.
func TestA4_EveryCodeToARuntime(t *testing.T) {
	for _, row := range refusal.Table() {
		for _, modern := range []bool{false, true} {
			c := &call{id: mcp.Value(`"7"`), name: "files.x", peer: mcp.Peer{Modern: modern, Version: "test"}}
			line := c.refusal(row.Code)
			var got struct {
				ID     string
				Result *struct {
					Content    []struct{ Type, Text string }
					IsError    bool
					ResultType string
					Meta       map[string]json.RawMessage `json:"_meta"`
				}
				Error *struct {
					Code    int
					Message string
					Data    *struct{ Code, Help string }
				}
			}
			if err := json.Unmarshal(line, &got); err != nil || got.ID != "7" || (got.Result == nil) == (got.Error == nil) {
				t.Fatalf("%s: %v in %q", string(row.Code), err, line)
			}
			switch n := row.Form.JSONRPC(); {
			case n == 0:
				r := got.Result
				if r == nil || !r.IsError || len(r.Content) != 1 || r.Content[0].Type != "text" || r.Content[0].Text != row.Sentence || modern && r.ResultType != "complete" {
					t.Errorf("%s: %s", string(row.Code), line)
					continue
				}
				var said struct{ Code, Help string }
				if err := json.Unmarshal(r.Meta["postern/refusal"], &said); err != nil || said.Code != string(row.Code) || said.Help != row.Code.Help() {
					t.Errorf("%s: %s", string(row.Code), line)
				}
			case n == mcp.CodeInvalidParams:
				// What lies outside the project tells nothing but that it is not there.
				if e := got.Error; e == nil || e.Code != n || e.Data != nil || e.Message != "Unknown tool: files.x" {
					t.Errorf("%s: %s", string(row.Code), line)
				}
			default:
				if e := got.Error; e == nil || e.Code != n || e.Message != row.Sentence || e.Data == nil || e.Data.Code != string(row.Code) || e.Data.Help != row.Code.Help() {
					t.Errorf("%s: %s", string(row.Code), line)
				}
			}
		}
	}
}
