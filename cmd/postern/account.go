package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) accountCommand() *cobra.Command {
	var uids []string
	add := &cobra.Command{Use: "add NAME [--uid UID]…", Short: "register an account (root)", Args: exactly("NAME"),
		Long: "Registers an account. Without --uid it is the operating system's user of that name."}
	add.Flags().StringSliceVar(&uids, "uid", nil, "a user that is this account, by `uid` or name; may be repeated")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		if len(uids) == 0 {
			uids = args
		}
		p := api.AccountAddParams{Name: args[0]}
		for _, s := range uids {
			uid, err := parseUID(s)
			if err != nil && !cmd.Flags().Changed("uid") {
				return usagef("%q is no user of this host; name its users with --uid", s)
			}
			if err != nil {
				return err
			}
			p.UIDs = append(p.UIDs, uid)
		}
		r, err := ask[api.AccountResult](cmd.Context(), a, api.AccountAdd, p, a.opts)
		if err != nil {
			return err
		}
		return a.done(r, "account %s added: %s, uids %s", r.Name, r.Account, join(r.UIDs))
	}
	ls := &cobra.Command{Use: "list", Short: "list accounts", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := a.allAccounts(cmd.Context())
		if err != nil {
			return err
		}
		if len(r.Accounts) == 0 {
			a.hintNoAccount()
		}
		return a.show(r, func(t *table) {
			t.row("NAME", "STATUS", "UIDS", "ACCOUNT")
			for _, x := range r.Accounts {
				t.row(x.Name, x.Status, join(x.UIDs), x.Account)
			}
		})
	}}
	show := &cobra.Command{Use: "show ACCOUNT", Short: "show one account", Args: exactly("ACCOUNT"), ValidArgsFunction: a.completeAccounts,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.AccountResult](cmd.Context(), a, api.AccountShow, api.Selected{Selector: args[0]}, client.Options{})
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) {
				t.row("name", r.Name)
				t.row("account", r.Account)
				t.row("status", r.Status)
				t.row("uids", join(r.UIDs))
			})
		}}
	suspend := &cobra.Command{Use: "suspend ACCOUNT", Short: "refuse everything it owns and end its sessions", Args: exactly("ACCOUNT"), ValidArgsFunction: a.completeAccounts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.AccountSuspend, api.Selected{Selector: args[0]}, "account "+args[0]+" suspended")
		}}
	activate := &cobra.Command{Use: "activate ACCOUNT", Short: "make a suspended account active again", Args: exactly("ACCOUNT"), ValidArgsFunction: a.completeAccounts,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.AccountResult](cmd.Context(), a, api.AccountActivate, api.Selected{Selector: args[0]}, a.opts)
			if err != nil {
				return err
			}
			return a.done(r, "account %s is %s", r.Name, r.Status)
		}}
	del := &cobra.Command{Use: "delete ACCOUNT", Short: "delete an account for ever (root)", Args: exactly("ACCOUNT"), ValidArgsFunction: a.completeAccounts,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.AccountEndResult](cmd.Context(), a, api.AccountDelete, api.Selected{Selector: args[0]}, a.opts)
			if err != nil {
				return err
			}
			return a.doneCut(r, r.Cut, "account %s deleted", args[0])
		}}
	a.changes(add, suspend, activate, del)
	return a.group("account", "people: which users of this host are one account", add, ls, show, suspend, activate, del)
}

// whoIsEmpty says why an answer is empty to a person whom Postern does not know, or
// whose accounts are all suspended.
func (a *app) whoIsEmpty(ctx context.Context, rows int) {
	if rows > 0 || os.Geteuid() == 0 {
		return
	}
	r, err := ask[api.AccountListResult](ctx, a, api.AccountList, struct{}{}, client.Options{})
	switch {
	case err != nil:
	case len(r.Accounts) == 0:
		a.hintNoAccount()
	case !slices.ContainsFunc(r.Accounts, func(x api.AccountResult) bool { return x.Status != "suspended" }):
		fmt.Fprintf(a.err, "account %s is suspended and sees nothing; root makes it active again with: postern account activate %s\n", r.Accounts[0].Name, r.Accounts[0].Name)
	}
}

func (a *app) hintNoAccount() {
	if uid := os.Geteuid(); uid != 0 {
		fmt.Fprintf(a.err, "no account belongs to uid %d; root adds it with: postern account add\n", uid)
	}
}

// parseUID takes a number or the name of a user of this host.
func parseUID(s string) (uint32, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(s)
	if err != nil {
		return 0, usagef("%q is neither a uid nor a user of this host", s)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user %q has uid %q", s, u.Uid)
	}
	return uint32(n), nil
}

func join(uids []uint32) string {
	out := make([]string, len(uids))
	for i, u := range uids {
		out[i] = strconv.FormatUint(uint64(u), 10)
	}
	return strings.Join(out, ", ")
}
