package main

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// Names are completed by asking: whoever may not see a thing is not offered it.
// Only what can be typed back is offered, so a label with anything but printable
// characters is left out.

func (a *app) completeProjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.ProjectListResult](cmd, a, api.ProjectList, struct{}{})
	return names(r.Projects, func(p api.ProjectResult) string { return p.Label })
}

func (a *app) completeAccounts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.AccountListResult](cmd, a, api.AccountList, struct{}{})
	return names(r.Accounts, func(x api.AccountResult) string { return x.Name })
}

func (a *app) completeTasks(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.TaskListResult](cmd, a, api.TaskList, api.ProjectParams{})
	return names(r.Tasks, func(x api.TaskResult) string { return x.Task })
}

func (a *app) completeServers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.serverNames(cmd, "")
}

// completeConnections offers the project, then the server, then the tools.
func (a *app) completeConnections(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeProjects(cmd, args, typed)
	case 1:
		return a.serverNames(cmd, args[0])
	}
	r, _ := complete[api.ConnectionResult](cmd, a, api.ConnectionShow, api.ConnectionParams{Project: args[0], Server: args[1]})
	return names(r.Tools, func(x api.ToolResult) string { return x.Tool })
}

// serverNames are all registrations for root, else those a project uses.
func (a *app) serverNames(cmd *cobra.Command, project string) ([]string, cobra.ShellCompDirective) {
	if os.Geteuid() == 0 {
		r, err := complete[api.ServerListResult](cmd, a, api.ServerList, struct{}{})
		if err == nil {
			return names(r.Servers, func(s api.ServerResult) string { return s.Label })
		}
	}
	r, _ := complete[api.ConnectionListResult](cmd, a, api.ConnectionList, api.ProjectParams{Project: project})
	return names(r.Connections, func(c api.ConnectionResult) string { return c.Label })
}

func complete[R any](cmd *cobra.Command, a *app, action api.Action, params any) (R, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(contextOf(cmd)), completeTimeout)
	defer cancel()
	return ask[R](ctx, a, action, params, client.Options{})
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

func names[T any](rows []T, name func(T) string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, row := range rows {
		if n := name(row); n != "" && clean(n) == n {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// ofFlag completes a flag's value, whatever arguments stand before it.
func ofFlag(of cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return of(cmd, nil, typed)
	}
}
