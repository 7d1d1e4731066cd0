package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) psCommand() *cobra.Command {
	var project string
	cmd := &cobra.Command{Use: "ps", Short: "bridges and tool servers that run now", Args: exactly()}
	cmd.Flags().StringVar(&project, "project", "", "only this `project`'s")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := ask[api.PsResult](cmd.Context(), a, api.Ps, api.ProjectParams{Project: project}, client.Options{})
		if err != nil {
			return err
		}
		a.whoIsEmpty(cmd.Context(), len(r.Rows))
		return a.show(r, func(t *table) {
			t.row("KIND", "SERVER", "PROFILE", "UID", "PID", "STATE", "MEMORY", "CPU", "PIDS", "CALLS", "SESSIONS", "RESTARTS", "STARTED", "PROJECT", "LAST ERROR")
			for _, p := range r.Rows {
				t.row(p.Kind, p.Label, p.Profile, p.UID, p.PID, p.State, size(p.Memory), (time.Duration(p.CPUUsec) * time.Microsecond).Round(time.Millisecond),
					p.Pids, p.Calls, p.Sessions, p.Restarts, when(p.Started), cmp.Or(p.ProjectLabel, p.Project), p.LastError)
			}
		})
	}
	return cmd
}

// activityMax is the most rows of a page, and what is given where none are asked for.
const activityMax = 500

var (
	activityHead   = []any{"TIME", "STATE", "TOOL", "TOOK", "CODE", "COUNT", "PRINCIPAL", "CALL", "PROJECT", "REASON"}
	activityStates = []string{"admitted", "started", "completed", "failed", "cancelled", "denied", "unknown"}
)

// activityLine has the widths of what is of known width: ids, codes, states.
const activityLine = "%-19s  %-9s  %-28s  %-8s  %-25s  %-5s  %-46s  %-40s  %-16s  %s\n"

func (a *app) activityCommand() *cobra.Command {
	var p api.ActivityParams
	var since string
	cmd := &cobra.Command{Use: "activity", Short: "every call, with how it ended", Args: exactly(),
		Long: "Shows calls, the newest first. With --follow they come as they happen, with --json one document a line."}
	cmd.Flags().StringVar(&p.Project, "project", "", "only this `project`'s")
	cmd.Flags().StringVar(&since, "since", "", "only from this `time` on: 2006-01-02T15:04:05Z, or as long ago as 10m")
	cmd.Flags().StringVar(&p.State, "state", "", "only this `state`: "+list(activityStates))
	cmd.Flags().StringVar(&p.Cursor, "cursor", "", "go on where a former page ended")
	cmd.Flags().IntVar(&p.Limit, "limit", 0, fmt.Sprintf("rows of a page, at most %d, which is the default too", activityMax))
	cmd.Flags().BoolVarP(&p.Follow, "follow", "f", false, "go on as calls happen, until interrupted")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.State != "" {
			if err := oneOf("--state", p.State, activityStates); err != nil {
				return err
			}
		}
		if p.Limit < 0 || p.Limit > activityMax {
			return usagef("--limit is at most %d and not negative, not %d", activityMax, p.Limit)
		}
		if since != "" {
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			p.Since = from.UnixMilli()
		}
		if p.Follow {
			return a.follow(cmd.Context(), p)
		}
		r, err := ask[api.ActivityResult](cmd.Context(), a, api.Activity, p, client.Options{})
		if err != nil {
			return err
		}
		a.whoIsEmpty(cmd.Context(), len(r.Rows))
		err = a.show(r, func(t *table) {
			t.row(activityHead...)
			for _, x := range r.Rows {
				t.row(activityCells(x)...)
			}
		})
		if err == nil && r.More {
			fmt.Fprintf(a.err, "There is more: --cursor %s\n", clean(r.Cursor))
		}
		return err
	}
	return cmd
}

func activityCells(x api.ActivityRow) []any {
	took := ""
	if x.Ended != 0 && x.Call != "" {
		took = (time.Duration(x.Ended-x.Time) * time.Millisecond).String()
	}
	count := ""
	if x.Count > 1 {
		count = fmt.Sprint(x.Count)
	}
	return []any{when(x.Time), x.State, x.Tool, took, x.Code, count, x.Principal, x.Call, cmp.Or(x.ProjectLabel, x.Project), sentence(x.Reason)}
}

// follow prints rows as they come: columns of fixed width, for no one knows the
// widest one to come. An interrupt is its ordinary end.
func (a *app) follow(ctx context.Context, p api.ActivityParams) error {
	begun := false
	_, err := a.call(ctx, api.Activity, p, client.Options{}, func(raw []byte) error {
		if a.json {
			_, err := a.out.Write(append(append([]byte(nil), raw...), '\n'))
			return err
		}
		x, err := api.DecodeResult[api.ActivityRow](raw)
		if err != nil {
			return err
		}
		cells := activityCells(x)
		for i := range cells {
			cells[i] = cell(cells[i])
		}
		if !begun { // a refused follow leaves the output empty
			begun = true
			if _, err := fmt.Fprintf(a.out, activityLine, activityHead...); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(a.out, activityLine, cells...)
		return err
	})
	var r *api.Refusal
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &r) && r.Code == refusal.Unreachable && a.json:
		// One document a line was promised: the reason goes to stderr only.
		return &shown{status: refusal.ExitUnreachable, text: r.Error()}
	}
	return err
}

// parseSince takes a moment, or how long ago it was.
func parseSince(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--since is a time like 2006-01-02T15:04:05Z or a span like 10m, not %q", s)
}
