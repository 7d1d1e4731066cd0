package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
)

func (a *app) quotaCommand() *cobra.Command {
	var p api.QuotaParams
	var all bool
	cmd := &cobra.Command{Use: "quota", Short: "the bounds that are met first, and what is used of them now", Args: exactly(),
		Long: "Shows, for each project that one may see, its bounds and what is used of them: sessions, tasks, calls, grants, artifacts, and of\n" +
			"each jail memory and processes. Root sees what all projects share as well. With --project a project's tasks are told too.\n" +
			"What is not used is left out, unless with --all or --json.",
		Example: "  postern quota\n  postern quota --project shop --all\n  postern quota --json"}
	cmd.Flags().StringVar(&p.Project, "project", "", "only this `project`'s, with its tasks")
	cmd.Flags().BoolVar(&all, "all", false, "bounds of which nothing is used too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := a.allQuotas(cmd.Context(), p)
		if err != nil {
			return err
		}
		a.whoIsEmpty(cmd.Context(), len(r.Projects))
		return a.show(r, func(t *table) {
			t.row("PROJECT", "WHAT", "OF", "USED", "MOST", "%", "SET BY")
			quotaRows(t, "", r.Postern, all)
			for _, x := range r.Projects {
				quotaRows(t, x.Label, x.Rows, all)
			}
		})
	}
	return cmd
}

// allQuotas are the bounds that one may see, page after page.
func (a *app) allQuotas(ctx context.Context, p api.QuotaParams) (all api.QuotaResult, err error) {
	all.Projects = []api.QuotaProject{}
	params := func(after string) any {
		p.After = after
		return p
	}
	return all, everyPage(ctx, a, api.Quota, params, func(r api.QuotaResult) string {
		all.Postern, all.Projects = append(all.Postern, r.Postern...), append(all.Projects, r.Projects...)
		return r.Next
	})
}

func quotaRows(t *table, project string, rows []api.QuotaRow, all bool) {
	for _, r := range rows {
		if r.Used == 0 && !all {
			continue
		}
		show := func(n int64) string {
			if r.Unit == "bytes" {
				return size(n)
			}
			return fmt.Sprint(n)
		}
		of, most, share := r.Of, "-", "-"
		if r.Label != "" {
			of = r.Label + " " + r.Of
		}
		if r.Most > 0 {
			most, share = show(r.Most), fmt.Sprintf("%.0f", 100*float64(r.Used)/float64(r.Most))
		}
		t.row(project, r.What, of, show(r.Used), most, share, r.SetBy)
	}
}
