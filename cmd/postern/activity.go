package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// activityMax is the most rows of a page, and what is given where none are asked for.
const activityMax = 500

var (
	activityHead   = []any{"TIME", "STATE", "TOOL", "TOOK", "CODE", "COUNT", "PRINCIPAL", "CALL", "PROJECT", "REASON"}
	argumentsHead  = append(slices.Clone(activityHead), "ARGUMENTS")
	activityStates = []string{"admitted", "started", "completed", "failed", "cancelled", "denied", "unknown"}
)

// activityLine has the widths of what is of known width: ids, codes, states.
const activityLine = "%-19s  %-9s  %-28s  %-8s  %-25s  %-5s  %-46s  %-40s  %-16s  %s\n"

func lineOf(p api.ActivityParams) string {
	if p.Arguments {
		return strings.TrimSuffix(activityLine, "\n") + "  %s\n"
	}
	return activityLine
}

func (a *app) activityCommand() *cobra.Command {
	var p api.ActivityParams
	var since string
	cmd := &cobra.Command{Use: "activity", Short: "every call, with how it ended", Args: exactly(), SuggestionsMinimumDistance: 2,
		Long: "Shows calls, the newest first. With --follow they come as they happen, with --json one document a line: from now on, or from\n" +
			"--since or --cursor on. A follow that loses its connection makes another and goes on where it was."}
	cmd.AddCommand(a.activityExportCommand(), a.activityShowCommand())
	cmd.Flags().StringVar(&p.Project, "project", "", "only this `project`'s")
	cmd.Flags().StringVar(&since, "since", "", "only from this `time` on: 2006-01-02T15:04:05Z, or as long ago as 10m")
	cmd.Flags().StringVar(&p.State, "state", "", "only this `state`: "+list(activityStates))
	cmd.Flags().StringVar(&p.Cursor, "cursor", "", "go on where a former page ended")
	cmd.Flags().IntVar(&p.Limit, "limit", 0, fmt.Sprintf("rows of a page, at most %d, which is the default too", activityMax))
	argumentsFlag(cmd, &p.Arguments)
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
		if err := sinceParam(&p, since); err != nil {
			return err
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
			t.row(headOf(p)...)
			for _, x := range r.Rows {
				t.row(cellsOf(p, x)...)
			}
		})
		if err == nil && r.More {
			fmt.Fprintf(a.err, "There is more: --cursor %s\n", clean(r.Cursor))
		}
		return err
	}
	return cmd
}

// argumentsFlag asks for what calls were given.
func argumentsFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "arguments", false, "with what calls were given, where the project records it; for its people alone")
}

func headOf(p api.ActivityParams) []any {
	if p.Arguments {
		return argumentsHead
	}
	return activityHead
}

func cellsOf(p api.ActivityParams, x api.ActivityRow) []any {
	if p.Arguments {
		return append(activityCells(x), sentence(argumentsText(x)))
	}
	return activityCells(x)
}

// argumentsText is what a call was given, or why that is not recorded; empty where
// nothing is.
func argumentsText(x api.ActivityRow) string {
	if x.NotRecorded != "" {
		return "not recorded: " + x.NotRecorded
	}
	return string(x.Arguments)
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
	return []any{when(x.Time), x.State, x.Tool, took, x.Code, count, x.Principal, cmp.Or(x.Call, x.Cursor), cmp.Or(x.ProjectLabel, x.Project), sentence(cmp.Or(x.Reason, strings.Join(x.NotKept, "; ")))}
}

// Waits of a stream that lost its connection.
const (
	againFirst = 250 * time.Millisecond // before the first try to connect again
	againMost  = 5 * time.Second        // between two tries
)

// stream runs a follow or an export to its end. Where the connection is lost it makes
// another, and goes on behind the last record that it had: each carries its place, and
// a follow asks for its first one before it begins. Nothing is asked for twice that
// was seen, and no question changes anything. A refusal ends it; so does, where
// nothing ever came, that nobody serves the socket.
func (a *app) stream(ctx context.Context, p api.ActivityParams, onEvent func([]byte) error) (raw []byte, err error) {
	if p.Follow && p.Cursor == "" && p.Since == 0 {
		first, err := ask[api.ActivityResult](ctx, a, api.Activity, api.ActivityParams{Project: p.Project, Limit: 1}, client.Options{})
		if err != nil {
			return nil, err
		}
		p.Cursor = first.Follow
	}
	wait := againFirst
	for {
		raw, err := a.call(ctx, api.Activity, p, client.Options{}, func(raw []byte) error {
			place, err := api.DecodeResult[struct {
				Cursor string `json:"cursor"`
			}](raw)
			if err == nil {
				err = onEvent(raw)
			}
			if err == nil {
				p.Cursor, wait = place.Cursor, againFirst
			}
			return err
		})
		var r *api.Refusal
		if !errors.As(err, &r) || r.Code != refusal.Unreachable && r.Code != refusal.Draining || p.Cursor == "" {
			return raw, err
		}
		fmt.Fprintf(a.err, "The connection is lost; it is made again and goes on where it was.\n")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, againMost)
		}
	}
}

// follow prints rows as they come: columns of fixed width, for no one knows the
// widest one to come. An interrupt is its ordinary end.
func (a *app) follow(ctx context.Context, p api.ActivityParams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	begun := false
	_, err := a.stream(ctx, p, func(raw []byte) error {
		if a.json {
			_, err := a.out.Write(append(printable(raw), '\n'))
			return err
		}
		x, err := api.DecodeResult[api.ActivityRow](raw)
		if err != nil {
			return err
		}
		cells := cellsOf(p, x)
		for i := range cells {
			cells[i] = cell(cells[i])
		}
		if !begun { // a refused follow leaves the output empty
			begun = true
			if _, err := fmt.Fprintf(a.out, lineOf(p), headOf(p)...); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(a.out, lineOf(p), cells...)
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

func (a *app) activityExportCommand() *cobra.Command {
	p := api.ActivityParams{Export: true}
	var since, out string
	cmd := &cobra.Command{Use: "export", Short: "records as JSON lines, the oldest first", Args: exactly(),
		Long: "Writes every record that you may read as one JSON object a line, the oldest first, to standard output or into a new file.\n" +
			"The cursor in the last line is where the next export goes on."}
	cmd.Flags().StringVar(&p.Project, "project", "", "only this `project`'s")
	cmd.Flags().StringVar(&since, "since", "", "only from this `time` on: 2006-01-02T15:04:05Z, or as long ago as 10m")
	cmd.Flags().StringVar(&p.State, "state", "", "only this `state`: "+list(activityStates))
	cmd.Flags().StringVar(&p.Cursor, "cursor", "", "go on behind the line that has this `cursor`")
	argumentsFlag(cmd, &p.Arguments)
	cmd.Flags().StringVar(&out, "out", "", "write into this `file`, which must not exist yet; its mode is 0600")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.State != "" {
			if err := oneOf("--state", p.State, activityStates); err != nil {
				return err
			}
		}
		if err := sinceParam(&p, since); err != nil {
			return err
		}
		to, done := a.out, func() error { return nil }
		if out != "" {
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
			if errors.Is(err, os.ErrExist) {
				return fileErrorf(refusal.AlreadyExists, "--out: %q is there already; name a file that is not", out)
			}
			if err != nil {
				return err
			}
			to, done = f, func() error { return errors.Join(f.Sync(), f.Close()) }
		}
		n, buffered := 0, bufio.NewWriterSize(to, 1<<16)
		_, err := a.stream(cmd.Context(), p, func(raw []byte) error {
			n++
			buffered.Write(printable(raw))
			return buffered.WriteByte('\n')
		})
		if err := errors.Join(err, buffered.Flush(), done()); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%d records.\n", n)
		return nil
	}
	return cmd
}

// sinceParam reads --since.
func sinceParam(p *api.ActivityParams, since string) error {
	if since == "" {
		return nil
	}
	from, err := parseSince(since, time.Now())
	p.Since = from.UnixMilli()
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
