package main

import (
	"context"
	"strings"
	"time"

	"postern/supervisor/api"
)

// narrow makes a change that takes something away, and shows the calls that were
// admitted before it: their effects stand.
func (a *app) narrow(ctx context.Context, action api.Action, params any, what string) error {
	r, err := ask[api.RevokeResult](ctx, a, action, params, a.opts)
	if err != nil {
		return err
	}
	return a.show(r, func(t *table) {
		t.line(a.would()+"%s; sessions closed: %d, bridges that confirmed: %d, bridges killed: %d", what, r.Sessions, r.Fenced, r.Killed)
		if r.Note != "" {
			t.line("%s", strings.TrimSpace(r.Note))
		}
		if len(r.Stands) == 0 {
			t.line("No call was open.")
			return
		}
		t.line("Admitted before, their effects stand:")
		t.row("CALL", "TOOL", "AGE", "CANCEL SENT", "STATE")
		for _, c := range r.Stands {
			t.row(c.Call, c.Tool, time.Duration(c.AgeMs)*time.Millisecond, yesNo(c.CancelSent), c.State)
		}
	})
}
