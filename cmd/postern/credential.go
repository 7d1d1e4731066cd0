package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
)

// secretSources says where a secret comes from, in the help of add and rotate.
const secretSources = `The secret is read from standard input, or from --from-file FILE: a plain file of
root's with mode 0600, under one name. It is never an argument. At most 64 KiB; one
line end at its end is not part of it. With --systemd NAME nothing is read: the
secret is the one that systemd gives posternd under that name (LoadCredential= or
LoadCredentialEncrypted= of its unit), and is looked up at each start of the server.`

func (a *app) credentialCommand() *cobra.Command {
	var p api.CredentialParams
	var file string
	sources := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&file, "from-file", "", "read the secret from `FILE`")
		cmd.Flags().StringVar(&p.Systemd, "systemd", "", "use what systemd gives posternd as `NAME`")
	}
	read := func() (err error) {
		if p.Systemd != "" && file != "" {
			return usagef("--from-file and --systemd: a secret has one source")
		}
		if p.Systemd == "" {
			p.Secret, err = a.readSecret(file)
		}
		return err
	}
	add := &cobra.Command{Use: "add NAME --project PROJECT --server SERVER [--from-file FILE | --systemd NAME]", Short: "give a project a credential for a server (root)", Args: exactly("NAME"),
		Long:    "Gives a project a credential for a server that is registered with --credential required.\n\n" + secretSources,
		Example: "  postern credential add shop-tickets --project shop --server tickets --from-file /root/tickets.token\n  pass show tickets | postern credential add shop-tickets --project shop --server tickets"}
	add.Flags().StringVar(&p.Project, "project", "", "the `project` that has it")
	add.Flags().StringVar(&p.Server, "server", "", "the `server` that it is for")
	add.RegisterFlagCompletionFunc("project", ofFlag(a.completeProjects))
	add.RegisterFlagCompletionFunc("server", ofFlag(a.completeServers))
	sources(add)
	add.RunE = func(cmd *cobra.Command, args []string) error {
		if p.Project == "" || p.Server == "" {
			return usagef("needs --project PROJECT and --server SERVER")
		}
		p.Label = args[0]
		if err := read(); err != nil {
			return err
		}
		defer p.Secret.Clear()
		r, err := ask[api.CredentialResult](cmd.Context(), a, api.CredentialAdd, p, a.opts)
		if err != nil {
			return err
		}
		return a.done(r, "credential %s added: %s, of project %s for %s, handed over as %s", r.Label, r.Credential, r.ProjectLabel, r.ServerLabel, r.Delivery)
	}
	rotate := &cobra.Command{Use: "rotate CREDENTIAL [--from-file FILE | --systemd NAME]", Short: "give a credential another secret (root)", Args: exactly("CREDENTIAL"), ValidArgsFunction: a.completeCredentials,
		Long: "Gives a credential another secret. Whatever runs with the former one is ended before this\n" +
			"returns, and calls that are open there end as unknown; the next call starts it anew.\n\n" + secretSources,
		Example: "  postern credential rotate shop-tickets --from-file /root/tickets.token"}
	sources(rotate)
	rotate.RunE = func(cmd *cobra.Command, args []string) error {
		p.Selector = args[0]
		if err := read(); err != nil {
			return err
		}
		defer p.Secret.Clear()
		r, err := ask[api.CredentialEndResult](cmd.Context(), a, api.CredentialRotate, p, a.opts)
		if err != nil {
			return err
		}
		return a.showEnded(r, fmt.Sprintf("rotated, generation %d", r.Generation))
	}
	revoke := &cobra.Command{Use: "revoke CREDENTIAL", Short: "take a credential away and remove its secret (root)", Args: exactly("CREDENTIAL"), ValidArgsFunction: a.completeCredentials,
		Long: "Takes a credential away for ever. When this returns, the next call is refused (credential_missing),\n" +
			"whatever ran with the secret has ended, and the file with it is gone.",
		Example: "  postern credential revoke shop-tickets"}
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := ask[api.CredentialEndResult](cmd.Context(), a, api.CredentialRevoke, api.Selected{Selector: args[0]}, a.opts)
		if err != nil {
			return err
		}
		return a.showEnded(r, "revoked")
	}
	ls := &cobra.Command{Use: "list", Short: "list credentials, without what they are (root)", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := a.allCredentials(cmd.Context())
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			t.row("NAME", "PROJECT", "SERVER", "HANDED OVER AS", "SOURCE", "GENERATION", "CREATED", "CHANGED", "CREDENTIAL", "STATE")
			for _, c := range r.Credentials {
				t.row(c.Label, c.ProjectLabel, c.ServerLabel, c.Delivery, c.Source, c.Generation, when(c.Created), when(c.Changed), c.Credential, sentence(c.State))
			}
		})
	}}
	a.changes(add, rotate, revoke)
	return a.group("credential", "credentials: what a tool server needs and nobody else is told", add, ls, rotate, revoke)
}

// showEnded shows what a change of a credential ended.
func (a *app) showEnded(r api.CredentialEndResult, what string) error {
	return a.show(r, func(t *table) {
		t.line(a.would()+"credential %s %s; instances ended: %d", r.Label, what, r.Ended)
		if !a.opts.DryRun || len(r.Stands) > 0 {
			cutTable(t, r.Cut)
		}
	})
}

func (a *app) completeCredentials(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.CredentialListResult](cmd, a, api.CredentialList, struct{}{})
	return names(r.Credentials, func(c api.CredentialResult) string { return c.Label })
}
