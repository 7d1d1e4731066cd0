package control

import (
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"

	"postern/refusal"
	"postern/supervisor/api"
)

// TestA4_EveryCodeThroughTheSocket: each code of the table leaves as its row, with
// its particulars, wrapped or not.
func TestA4_EveryCodeThroughTheSocket(t *testing.T) {
	s := &Server{log: hclog.NewNullLogger()}
	for _, row := range refusal.Table() {
		for _, err := range []error{row.Code, fmt.Errorf("while doing something: %w", row.Code), api.Refuse(row.Code, "Particulars of %q.", "x"), told(fmt.Errorf("project %q: %w", "x", row.Code))} {
			r := s.refuse("status", err)
			if r.Code != row.Code || r.Sentence != row.Sentence || r.Help != row.Code.Help() {
				t.Errorf("%s: %+v", string(row.Code), r)
			}
			line, e := api.Encode(api.Response{ID: 7, Refusal: r})
			if e != nil {
				t.Fatal(e)
			}
			back, e := api.DecodeResponse(line[:len(line)-1])
			if e != nil || back.ID != 7 || back.Refusal == nil || *back.Refusal != *r || back.Result != nil {
				t.Errorf("%s: %s is read as %+v, %v", string(row.Code), line, back, e)
			}
		}
	}
	if r := s.refuse("status", refusal.Code("made_up")); r.Code != refusal.Internal {
		t.Errorf("a code of no table: %+v", r)
	}
}
