package main

import (
	"github.com/spf13/cobra"

	"postern/supervisor/api"
)

func (a *app) readOnlyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "readonly on|off", Short: "keep everything that people decided as it is, or end that (root)",
		Long: "Read-only mode refuses, with the code read_only, whatever would change who may do what or what runs where: accounts,\n" +
			"projects, members, registrations, probes, connections, grants, credentials, pairing and edits of the access policy, for\n" +
			"root too. Calls, sessions, tasks and tokens go on, and so does what protects: revoking, disabling and suspending, ending a\n" +
			"task, removing a member, unpairing or blocking an identity, revoking a credential. Deleting does not come back, and waits.\n" +
			"The mode outlives a restart; status shows it. Files below /etc/postern are read as ever: they are root's own.",
		Example: "  sudo postern readonly on --dry-run\n  sudo postern readonly on\n  sudo postern readonly off"}
	a.changes(cmd)
	cmd.Args = exactly("on|off")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("the argument", args[0], []string{"on", "off"}); err != nil {
			return err
		}
		r, err := ask[api.ReadOnlyResult](cmd.Context(), a, api.ReadOnlySet, api.ReadOnlyParams{On: args[0] == "on"}, a.opts)
		if err != nil {
			return err
		}
		if r.ReadOnly {
			return a.done(r, "Postern is read-only since %s", when(r.Since))
		}
		return a.done(r, "Postern takes changes")
	}
	return cmd
}
