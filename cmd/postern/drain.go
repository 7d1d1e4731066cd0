package main

import (
	"time"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
)

func (a *app) drainCommand() *cobra.Command {
	var p api.DrainParams
	var most time.Duration
	cmd := &cobra.Command{Use: "drain", Short: "take no new work, let open calls end, then end every session and jail (root)", Args: exactly(),
		Long: `Refuses new sessions and calls with the code draining, and gives open calls the time
until --timeout. What is open then is ended: its outcome is unknown, and its runtime is
told. Sessions and jails end last. Lists and records are served all the while, and nothing
new is taken, until Postern is started again or the drain is taken back by --cancel.
Tasks and tokens outlive it. Ending this command does not end the drain.`,
		Example: `  postern drain --dry-run        # what is live now
  postern drain --timeout 2m
  postern drain --now            # open calls become unknown at once
  postern drain --cancel`}
	cmd.Flags().DurationVar(&most, "timeout", 30*time.Second, "how long open calls may go on, at most 1h")
	cmd.Flags().BoolVar(&p.Now, "now", false, "do not wait for open calls")
	cmd.Flags().BoolVar(&p.Cancel, "cancel", false, "take new sessions and calls again")
	cmd.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "show what is live, change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case p.Now && p.Cancel, (p.Now || p.Cancel) && cmd.Flags().Changed("timeout"):
			return usagef("takes one of --timeout, --now and --cancel")
		case most <= 0:
			return usagef("--timeout is above 0; --now gives open calls no time")
		case !p.Now && !p.Cancel:
			p.TimeoutMs = most.Milliseconds()
		}
		r, err := askFor[api.DrainResult](cmd.Context(), a, max(callTimeout, 2*most), api.Drain, p, a.opts)
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			if a.opts.DryRun { // what it would do stands on standard error already
				r.Note = ""
				t.line(a.would()+"the sessions of %d tasks end, and what is still open of %d calls", len(r.Tasks), len(r.Calls))
			}
			drainTable(t, r)
		})
	}
	return cmd
}

func drainTable(t *table, r api.DrainResult) {
	if len(r.Tasks) > 0 {
		t.row("TASK", "PROJECT", "SESSIONS", "OPEN CALLS")
		for _, x := range r.Tasks {
			t.row(x.Task, x.Project, x.Sessions, x.Calls)
		}
	}
	ended := map[string]bool{}
	for _, c := range r.Ended {
		ended[c.Call] = true
	}
	if len(r.Calls) > 0 {
		t.line("")
		t.row("CALL", "TOOL", "TASK", "AGE", "OUTCOME")
		for _, c := range r.Calls {
			outcome := "ended by itself"
			switch {
			case ended[c.Call]:
				outcome = "unknown"
			case r.State == "serving":
				outcome = "open"
			}
			t.row(c.Call, c.Tool, c.Task, (time.Duration(c.AgeMs) * time.Millisecond).Round(time.Millisecond), outcome)
		}
	}
	if r.State == "drained" {
		t.line("drained: %d sessions closed, %d of %d open calls ended as unknown", r.Sessions, len(r.Ended), len(r.Calls))
	}
	if r.Note != "" {
		t.line("%s", r.Note)
	}
}
