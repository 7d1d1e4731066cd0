package main

import (
	"strings"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) serverDiffCommand() *cobra.Command {
	p := api.ServerDiffParams{}
	cmd := &cobra.Command{Use: "diff SERVER", Short: "show what differs between two revisions (root)", Args: exactly("SERVER"), ValidArgsFunction: a.completeServers,
		Example: "  postern server diff files",
		Long: "Shows what differs between two revisions of a server: what runs, with which arguments, in which jail, and which files of its\n" +
			"package. Without --from it is the revision before, without --to the current one."}
	cmd.Flags().StringVar(&p.From, "from", "", "the id of the former `revision`")
	cmd.Flags().StringVar(&p.To, "to", "", "the id of the later `revision`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.Server = args[0]
		r, err := ask[api.ServerDiffResult](cmd.Context(), a, api.ServerDiff, p, client.Options{})
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) { diffLines(t, r) })
	}
	return cmd
}

// diffLines shows what differs in a registration: what goes after "-", what comes after "+".
func diffLines(t *table, d api.ServerDiffResult) {
	if d.From == d.To || len(d.Members) == 0 && len(d.Notes) == 0 {
		t.line("The registration of %s has not changed: revision %s.", d.Label, d.To)
		return
	}
	t.line("The registration of %s has changed since revision %s; it is %s now.", d.Label, d.From, d.To)
	for _, m := range d.Members {
		shown := func(l string) string { return l }
		if m.Member == "command" {
			shown = argument
		}
		t.line("%s:", m.Member)
		for _, l := range m.Was {
			t.line("  - %s", shown(l))
		}
		for _, l := range m.Is {
			t.line("  + %s", shown(l))
		}
		if m.More > 0 {
			t.line("  (%d lines are not shown)", m.More)
		}
	}
	if f := d.Files; f != nil {
		t.line("Of the package's files %d were added, %d removed and %d changed.", f.Added, f.Removed, f.Changed)
		for _, x := range []struct {
			op    string
			count int
			names []string
		}{{"+", f.Added, f.NamesAdded}, {"-", f.Removed, f.NamesRemoved}, {"~", f.Changed, f.NamesChanged}} {
			for _, name := range x.names {
				t.line("  %s %s", x.op, argument(name))
			}
			if more := x.count - len(x.names); more > 0 {
				t.line("  %s … and %d more", x.op, more)
			}
		}
	}
	for _, n := range d.Notes {
		t.line("%s", n)
	}
}

func (a *app) serverGCCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gc", Short: "remove copies of packages that nothing needs (root)", Args: exactly(),
		Example: "  postern server gc --dry-run",
		Long: "Removes the copies of packages that no current revision names and nothing runs from. posternd does this by itself whenever a\n" +
			"server is updated or deleted and when the last instance of a former revision ends; with --dry-run this shows what the copies take."}
	cmd.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "check and show the outcome, change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := ask[api.ServerGCResult](cmd.Context(), a, api.ServerGC, struct{}{}, a.opts)
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			t.line(a.would()+"%d copies removed, %d stay.", len(r.Removed), len(r.Kept))
			if len(r.Removed)+len(r.Kept) == 0 {
				return
			}
			t.row("PACKAGE", "FILES", "SIZE", "CURRENT OF", "IN USE BY", "OUTCOME")
			for _, x := range r.Removed {
				t.row(x.Package, x.Files, size(x.Bytes), strings.Join(x.Servers, ","), x.Running, "removed")
			}
			for _, x := range r.Kept {
				t.row(x.Package, x.Files, size(x.Bytes), strings.Join(x.Servers, ","), x.Running, "stays")
			}
		})
	}
	return cmd
}
