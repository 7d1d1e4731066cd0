package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// Bounds of logs.
const (
	logsLines = 100         // of each instance, where none are asked for
	logsMost  = 10_000      // of each instance
	logsEvery = time.Second // between two looks of a follow
)

func (a *app) logsCommand() *cobra.Command {
	p := api.LogsParams{}
	var follow bool
	cmd := &cobra.Command{Use: "logs PROJECT [CONNECTION]", Short: "what tool servers wrote to stderr",
		Long: "Shows the end of what a project's tool servers, or the server of one connection, wrote to stderr: those that run now, and of\n" +
			"each the one before it, with how it ended. It is the server's own text and may say what calls were about: owners and\n" +
			"viewers of the project read all, members what served their own tasks alone; root reads none and sees how servers ended.\n" +
			"Control characters are shown escaped. How much is kept is mcp.stderr of the profile; it goes with the project's bridge.",
		Example: "  postern logs shop\n  postern logs shop files --lines 20\n  postern logs shop files --follow",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("needs PROJECT")
			case len(args) > 2:
				return usagef("unexpected argument %q", args[2])
			}
			return nil
		}}
	cmd.Flags().IntVar(&p.Lines, "lines", logsLines, fmt.Sprintf("the last `lines` of each server, at most %d", logsMost))
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as they write, until interrupted")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeConnections(cmd, args, typed)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p.Lines < 1 || p.Lines > logsMost {
			return usagef("--lines is between 1 and %d, not %d", logsMost, p.Lines)
		}
		if p.Project = args[0]; len(args) == 2 {
			p.Server = args[1]
		}
		if follow {
			return a.followLogs(cmd.Context(), p)
		}
		r, err := ask[api.LogsResult](cmd.Context(), a, api.Logs, p, client.Options{})
		if err != nil {
			return a.serverForProject(cmd.Context(), p, err)
		}
		if a.json {
			return a.show(r, nil)
		}
		if len(r.Rows) == 0 {
			fmt.Fprintln(a.err, "Nothing is kept: no tool server of it runs, and its bridge has seen none.")
		}
		return a.printLogs(r.Rows, func(api.LogRow) bool { return true })
	}
	return cmd
}

// meantProjects bounds the projects that are looked through for a server of a name.
const meantProjects = 50

// serverForProject adds to the refusal of a project that is not there which command was
// meant, where its name is that of a connection: servers come to mind first, and logs
// are a project's.
func (a *app) serverForProject(ctx context.Context, p api.LogsParams, err error) error {
	var r *api.Refusal
	if !errors.As(err, &r) || r.Code != refusal.ProjectUnknown || p.Server != "" {
		return err
	}
	all, failed := a.allProjects(ctx, "")
	if failed != nil {
		return err
	}
	var meant []string
	for _, x := range all.Projects[:min(len(all.Projects), meantProjects)] {
		shown, failed := ask[api.ProjectShowResult](ctx, a, api.ProjectShow, api.Selected{Selector: x.Project}, client.Options{})
		if failed != nil {
			continue
		}
		for _, c := range shown.Connections {
			if c.Label == p.Project {
				meant = append(meant, fmt.Sprintf("postern logs %s %s", x.Label, c.Label))
			}
		}
	}
	if len(meant) == 0 {
		return err
	}
	return api.Refuse(refusal.ProjectUnknown, "%q is a server of a project, and logs wants the project first; did you mean %s?", p.Project, strings.Join(meant, ", or "))
}

// followLogs looks again and again; each look is authorized anew. What was forgotten
// between two looks is counted.
func (a *app) followLogs(ctx context.Context, p api.LogsParams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	heard := map[string]uint64{}
	told := map[string]string{} // what a head last said of an instance
	for {
		r, err := ask[api.LogsResult](ctx, a, api.Logs, p, client.Options{})
		var refused *api.Refusal
		switch {
		case errors.Is(err, context.Canceled): // its ordinary end
			return nil
		case errors.As(err, &refused) && a.json && len(told) > 0: // one document a line was promised
			return &shown{status: refusal.Of(refused.Code).Exit, text: refused.Error()}
		case err != nil:
			return a.serverForProject(ctx, p, err)
		}
		for i, row := range r.Rows {
			if _, known := heard[row.Instance]; known && p.Lines > 0 {
				r.Rows[i].Lost = 0
			}
			if row.Missing == "" {
				heard[row.Instance] = row.Next
			}
		}
		if err := a.printLogs(r.Rows, func(row api.LogRow) bool {
			head := logHead(row)
			changed := told[row.Instance] != head
			told[row.Instance] = head
			return changed
		}); err != nil {
			return err
		}
		p.Lines, p.From = 0, heard
		timer := time.NewTimer(logsEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// printLogs prints rows that have text, or a head that is to be shown.
func (a *app) printLogs(rows []api.LogRow, headOf func(api.LogRow) bool) error {
	var b strings.Builder
	for _, row := range rows {
		head := headOf(row)
		if !head && row.Text == "" {
			continue
		}
		if a.json {
			line, err := api.Encode(row)
			if err != nil {
				return err
			}
			b.Write(line)
			continue
		}
		if head {
			fmt.Fprintf(&b, "== %s\n", logHead(row))
		}
		if row.Lost > 0 {
			fmt.Fprintf(&b, "… %d bytes before this are no longer kept\n", row.Lost)
		}
		for line := range strings.Lines(row.Text) {
			b.WriteString(escape(strings.TrimRight(line, "\r\n")))
			b.WriteByte('\n')
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// logHead says whose words follow, in one line.
func logHead(row api.LogRow) string {
	head := clean(cmp.Or(row.Label, row.Connection, "bridge"))
	if row.Instance != "" {
		head += " " + clean(row.Instance)
	}
	if row.Task != "" {
		head += " of " + clean(row.Task)
	}
	switch {
	case row.Ended && row.Reason != "":
		head += ", ended: " + clean(row.Reason)
	case row.Ended:
		head += ", ended"
	case row.Instance != "":
		head += ", running"
	}
	if row.Missing != "" {
		head += " (not shown: " + clean(row.Missing) + ")"
	}
	return head
}

// escape shows a line of others' with what is not printable escaped where it stands, so
// that what is left stays readable.
func escape(line string) string {
	if clean(line) == line {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
