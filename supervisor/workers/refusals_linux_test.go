package workers

import (
	"encoding/json"
	"testing"

	"postern/refusal"
)

// TestA4_EveryCodeBeforeASession: a connection that is not bound hears each code of
// the table as a JSON-RPC error with code and help.
func TestA4_EveryCodeBeforeASession(t *testing.T) {
	for _, row := range refusal.Table() {
		line := bindError(row.Code, "why")
		var got struct {
			JSONRPC string
			ID      *int
			Error   struct {
				Code    int
				Message string
				Data    struct{ Code, Help, Detail string }
			}
		}
		if err := json.Unmarshal(line, &got); err != nil || line[len(line)-1] != '\n' {
			t.Fatalf("%s: %v in %q", string(row.Code), err, line)
		}
		e := got.Error
		if got.JSONRPC != "2.0" || got.ID != nil || e.Code != -32000 || e.Message != row.Sentence || e.Data.Code != string(row.Code) || e.Data.Help != row.Code.Help() || e.Data.Detail != "why" {
			t.Errorf("%s: %s", string(row.Code), line)
		}
	}
}
