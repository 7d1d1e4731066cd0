package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) projectCommand() *cobra.Command {
	var workspace, owner string
	add := &cobra.Command{Use: "add NAME --workspace DIR --owner ACCOUNT", Short: "register a project (root)", Args: exactly("NAME")}
	add.Flags().StringVar(&workspace, "workspace", "", "the project's `directory`")
	add.Flags().StringVar(&owner, "owner", "", "the `account` that owns it")
	add.RegisterFlagCompletionFunc("owner", a.completeAccounts)
	add.MarkFlagDirname("workspace")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		if workspace == "" || owner == "" {
			return usagef("needs --workspace DIR and --owner ACCOUNT")
		}
		dir, err := filepath.Abs(workspace)
		if err != nil {
			return err
		}
		r, err := ask[api.ProjectResult](cmd.Context(), a, api.ProjectAdd, api.ProjectAddParams{Label: args[0], Workspace: dir, Owner: owner}, a.opts)
		if err != nil {
			return err
		}
		return a.doneProject(r, "project %s added: %s, workspace %s", r.Label, r.Project, r.Workspace)
	}
	ls := &cobra.Command{Use: "list", Short: "list projects", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := a.allProjects(cmd.Context(), "")
		if err != nil {
			return err
		}
		a.whoIsEmpty(cmd.Context(), len(r.Projects))
		return a.show(r, func(t *table) {
			t.row("LABEL", "PROJECT", "OWNER", "PERSON BIND", "PROFILE", "WORKSPACE")
			for _, p := range r.Projects {
				t.row(p.Label, p.Project, cmp.Or(p.OwnerName, p.Owner), onOff(p.PersonBind), p.ExecutionProfile, p.Workspace)
			}
		})
	}}
	show := &cobra.Command{Use: "show PROJECT", Short: "show one project, its members and connections", Args: exactly("PROJECT"), ValidArgsFunction: a.completeProjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.ProjectShowResult](cmd.Context(), a, api.ProjectShow, api.Selected{Selector: args[0]}, client.Options{})
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) { projectTable(t, r) })
		}}
	del := &cobra.Command{Use: "delete PROJECT", Short: "revoke everything and delete the project for ever", Args: exactly("PROJECT"), ValidArgsFunction: a.completeProjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.ProjectDelete, api.Selected{Selector: args[0]}, "project "+args[0]+" deleted")
		}}
	set, move := a.projectSetCommand(), a.projectMoveCommand()
	a.changes(add, del, set, move)
	return a.group("project", "projects: a workspace, its owner and its members", add, ls, show, set, move, a.memberCommand(), del)
}

func (a *app) projectMoveCommand() *cobra.Command {
	var now bool
	move := &cobra.Command{Use: "move PROJECT DIR", Short: "give a project another directory (root)", Args: exactly("PROJECT", "DIR"),
		Long: "Gives a project another directory, or the same path anew where another directory lies there now (project_replaced). The\n" +
			"directory is checked as at project add. The project's id, members, connections, grants and records stay; its live tasks and\n" +
			"tokens end, because they were made for the former directory, and its servers are ended. Nothing is copied: move the files\n" +
			"first. While calls are open it is refused, unless with --now, which ends them.",
		Example: "  sudo postern project move shop /srv/new/shop --dry-run\n  sudo postern project move shop /srv/new/shop"}
	move.Flags().BoolVar(&now, "now", false, "end calls that are open")
	move.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := filepath.Abs(args[1])
		if err != nil {
			return err
		}
		if !now && !a.opts.DryRun {
			// One that begins after this look is cut, and named in the answer.
			ps, err := a.allJails(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			open := 0
			for _, row := range ps.Rows {
				open += row.InFlight
			}
			if open > 0 {
				return api.Refuse(refusal.Busy, "%d calls of %q are open; wait for them, or end them with --now.", open, args[0])
			}
		}
		r, err := ask[api.ProjectSetResult](cmd.Context(), a, api.ProjectMove, api.ProjectMoveParams{Project: args[0], Workspace: dir}, a.opts)
		if err != nil {
			return err
		}
		if err := a.doneCut(r, r.Cut, "project %s has the directory %s; its former tasks have ended", r.Label, r.Workspace); err != nil {
			return err
		}
		a.warn(r.Warnings)
		return nil
	}
	return move
}

func (a *app) projectSetCommand() *cobra.Command {
	var bind, profile, record string
	var open, closed []string
	set := &cobra.Command{Use: "set PROJECT [--person-bind on|off] [--execution-profile NAME] [--record-arguments on|off] [--open-name NAME | --close-name NAME]...", Short: "change a root fact of a project (root)",
		Long: "Changes a root fact of a project. --open-name lets its servers write one of the names that programs outside their jails obey, such as .git/hooks;\n" +
			"--close-name takes that away. Servers of the project that ran with other names are ended; the next call starts them anew.\n" +
			"--record-arguments on has what its calls are given kept with their records, without the fields that are secret, for the project's people\n" +
			"to see with postern activity --arguments. What was recorded stays when it is switched off, as long as the records do.",
		Example: "  postern project set shop --record-arguments on\n  postern project set shop --open-name .git/hooks", ValidArgsFunction: a.completeProjects}
	set.Flags().StringVar(&bind, "person-bind", "", "`on|off`: may its people connect without a token")
	set.Flags().Lookup("person-bind").NoOptDefVal = "on"
	set.Flags().StringVar(&profile, "execution-profile", "", "the execution `profile`: standard, or isolated-pod, in which its owner may run programs")
	set.Flags().StringVar(&record, "record-arguments", "", "`on|off`: keep what calls are given with their records")
	set.RegisterFlagCompletionFunc("record-arguments", cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp))
	set.Flags().StringArrayVar(&open, "open-name", nil, "a protected `name` of the workspace that its servers may write; again for more")
	set.Flags().StringArrayVar(&closed, "close-name", nil, "a `name` that is open and is to be protected again; again for more")
	set.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 && cmd.Flags().Changed("person-bind") && bind == "on" { // --person-bind off, without the equals sign
			bind, args = args[1], args[:1]
		}
		return exactly("PROJECT")(cmd, args)
	}
	set.RunE = func(cmd *cobra.Command, args []string) error {
		p := api.ProjectSetParams{Project: args[0], OpenNames: open, CloseNames: closed}
		if cmd.Flags().Changed("person-bind") {
			on := slices.Contains([]string{"on", "true", "yes"}, bind)
			if !on && !slices.Contains([]string{"off", "false", "no"}, bind) {
				return usagef("--person-bind is on or off, not %q", bind)
			}
			p.PersonBind = &on
		}
		if cmd.Flags().Changed("execution-profile") {
			p.ExecutionProfile = &profile
		}
		if cmd.Flags().Changed("record-arguments") {
			if err := oneOf("--record-arguments", record, []string{"on", "off"}); err != nil {
				return err
			}
			on := record == "on"
			p.RecordArguments = &on
		}
		names := len(open)+len(closed) > 0
		if p.PersonBind == nil && p.ExecutionProfile == nil && p.RecordArguments == nil && !names {
			return usagef("nothing to set; name --person-bind, --execution-profile, --record-arguments, --open-name or --close-name")
		}
		r, err := ask[api.ProjectSetResult](cmd.Context(), a, api.ProjectSet, p, a.opts)
		if err != nil {
			return err
		}
		if err := a.doneCut(r, r.Cut, "project %s: person bind %s, execution profile %s, record arguments %s, open names %s", r.Label, onOff(r.PersonBind), r.ExecutionProfile, onOff(r.RecordArguments), nameList(r.OpenNames)); err != nil {
			return err
		}
		a.warn(r.Warnings)
		if !names || a.opts.DryRun {
			return nil
		}
		fmt.Fprintln(a.err, "Servers of the project that ran with other names were ended; the next call starts them with these.")
		return nil
	}
	return set
}

func (a *app) memberCommand() *cobra.Command {
	var role string
	add := &cobra.Command{Use: "add PROJECT ACCOUNT", Short: "let an account belong to a project (root)", Args: exactly("PROJECT", "ACCOUNT"), ValidArgsFunction: a.completeProjects}
	add.Flags().StringVar(&role, "role", "member", "owner, member or viewer")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("--role", role, []string{"owner", "member", "viewer"}); err != nil {
			return err
		}
		r, err := ask[api.MemberResult](cmd.Context(), a, api.MemberAdd, api.MemberParams{Project: args[0], Account: args[1], Role: role}, a.opts)
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			t.line(a.would()+"%s is %s of project %s", args[1], role, args[0])
			if r.Note != "" {
				t.line("%s", r.Note)
			}
		})
	}
	remove := &cobra.Command{Use: "remove PROJECT ACCOUNT", Short: "remove an account and end its tasks there", Args: exactly("PROJECT", "ACCOUNT"), ValidArgsFunction: a.completeProjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.MemberRemove, api.MemberParams{Project: args[0], Account: args[1]}, args[1]+" removed from project "+args[0])
		}}
	a.changes(add, remove)
	return a.group("member", "accounts that belong to a project", add, remove)
}

func (a *app) doneProject(r api.ProjectResult, format string, args ...any) error {
	if err := a.done(r, format, args...); err != nil {
		return err
	}
	a.warn(r.Warnings)
	return nil
}

func projectTable(t *table, r api.ProjectShowResult) {
	t.row("label", r.Label)
	t.row("project", r.Project)
	t.row("owner", strings.TrimSpace(r.OwnerName+" "+r.Owner))
	t.row("workspace", r.Workspace)
	t.row("person bind", onOff(r.PersonBind))
	t.row("execution profile", r.ExecutionProfile)
	t.row("record arguments", onOff(r.RecordArguments))
	t.whole("open names", nameList(r.OpenNames))
	if len(r.Members) > 0 {
		t.line("\nMembers:")
		t.row("NAME", "ROLE", "ACCOUNT")
		for _, m := range r.Members {
			t.row(m.Name, m.Role, m.Account)
		}
	}
	if len(r.Connections) > 0 {
		t.line("\nConnections:")
		connectionRows(t, r.Connections)
	}
}

func nameList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
