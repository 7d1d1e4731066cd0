package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) psCommand() *cobra.Command {
	var project string
	cmd := &cobra.Command{Use: "ps", Short: "bridges and tool servers that run now", Args: exactly()}
	cmd.Flags().StringVar(&project, "project", "", "only this `project`'s")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := a.allJails(cmd.Context(), project)
		if err != nil {
			return err
		}
		a.whoIsEmpty(cmd.Context(), len(r.Rows))
		return a.show(r, func(t *table) {
			t.row("KIND", "SERVER", "PROFILE", "UID", "PID", "STATE", "MEMORY", "CPU", "PIDS", "CALLS", "SESSIONS", "RESTARTS", "SKIPPED", "STARTED", "PROJECT", "TASK", "LAST ERROR")
			for _, p := range r.Rows {
				t.row(p.Kind, p.Label, p.Profile, p.UID, p.PID, p.State, size(p.Memory), (time.Duration(p.CPUUsec) * time.Microsecond).Round(time.Millisecond),
					p.Pids, p.Calls, p.Sessions, p.Restarts, p.Skipped+p.TooLong+p.Unmatched, when(p.Started), cmp.Or(p.ProjectLabel, p.Project), p.Task, p.LastError)
			}
		})
	}
	return cmd
}
