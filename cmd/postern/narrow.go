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
		if note := strings.TrimSpace(strings.TrimPrefix(r.Note, api.Effects)); note != "" && !a.opts.DryRun {
			t.line("%s", note)
		}
		if !a.opts.DryRun {
			cutTable(t, api.Cut{Stands: r.Stands, More: r.More})
		}
	})
}

// doneCut shows a change of root's, and the calls that were admitted before it.
func (a *app) doneCut(v any, c api.Cut, format string, args ...any) error {
	return a.show(v, func(t *table) {
		t.line(a.would()+format, args...)
		if !a.opts.DryRun || len(c.Stands) > 0 {
			cutTable(t, c)
		}
	})
}

// cutTable shows the calls that were admitted before a change, and a note where there
// is more to say than that their effects stand.
func cutTable(t *table, c api.Cut) {
	if len(c.Stands) == 0 {
		if c.Note != "" {
			t.line("%s", c.Note)
			return
		}
		t.line("No call was open.")
		return
	}
	t.line("Admitted before, their effects stand:")
	t.row("CALL", "TOOL", "AGE", "CANCEL SENT", "STATE")
	for _, o := range c.Stands {
		t.row(o.Call, o.Tool, time.Duration(o.AgeMs)*time.Millisecond, yesNo(o.CancelSent), o.State)
	}
	if c.More > 0 {
		t.line("and %d more", c.More)
	}
	if more := strings.TrimSpace(strings.TrimPrefix(c.Note, api.Effects)); more != "" {
		t.line("%s", more)
	}
}
