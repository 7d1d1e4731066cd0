package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"postern/near"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) connectionCommand() *cobra.Command {
	both := exactly("PROJECT", "SERVER")
	var prompts, prefixes []string
	items := func(c *cobra.Command) {
		c.Flags().StringArrayVar(&prompts, "prompt", nil, "a `prompt` by its exact name; may be given again")
		c.Flags().StringArrayVar(&prefixes, "resource-prefix", nil, "the resources at a `URI` and beneath it, by whole segments; may be given again")
	}
	named := func(args []string) api.ConnectionParams {
		return api.ConnectionParams{Project: args[0], Server: args[1], Tools: args[2:], Prompts: prompts, Resources: prefixes}
	}
	// widen is a change that ends with the connection as it then stands.
	widen := func(use, short string, action api.Action, what string) *cobra.Command {
		return &cobra.Command{Use: use + " PROJECT SERVER", Short: short, Args: both, ValidArgsFunction: a.completeConnections,
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.widenConnection(cmd.Context(), action, named(args), what)
			}}
	}
	add := widen("add", "let a project use a server, with nothing granted yet (root)", api.ConnectionAdd, "added")
	var yes bool
	accept := &cobra.Command{Use: "accept PROJECT SERVER [TOOL…]", Short: "accept the server's current revision, and changed tools (root)", ValidArgsFunction: a.completeConnections,
		Example: "  postern connection accept shop files --dry-run\n  postern connection accept shop files read_file",
		Long: "Accepts the server's current revision, and of the granted tools and prompts those that are named, as that revision defines them.\n" +
			"What has changed is shown first: of the registration what runs, of the tools word by word; at a terminal it asks.\n" +
			"What is accepted is the revision that was shown: where the server has changed again meanwhile, nothing is."}
	items(accept)
	accept.Flags().BoolVar(&yes, "yes", false, "do not ask")
	accept.Args = func(cmd *cobra.Command, args []string) error { return both(cmd, args[:min(2, len(args))]) }
	accept.RunE = func(cmd *cobra.Command, args []string) error {
		return a.acceptConnection(cmd.Context(), named(args), yes)
	}
	enable := widen("enable", "enable a disabled connection (root)", api.ConnectionEnable, "enabled")

	var tier string
	grant := &cobra.Command{Use: "grant PROJECT SERVER [TOOL…]", Short: "grant exact tools, prompts and resources (root)", ValidArgsFunction: a.completeConnections,
		Long: "Grants exact tools and prompts, each with any argument, and resources by a prefix of their URI. The jail bounds what they reach,\nand of known filesystem operations the paths are judged at each call."}
	items(grant)
	grant.Flags().StringVar(&tier, "tier", "", "raise the `tier` of these tools: observe, reversible or destructive")
	grant.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < 2:
			return usagef("needs %s", strings.Join([]string{"PROJECT", "SERVER"}[len(args):], " "))
		case len(args) == 2 && len(prompts) == 0 && len(prefixes) == 0:
			return usagef("needs TOOL…, --prompt or --resource-prefix")
		}
		return nil
	}
	grant.RunE = func(cmd *cobra.Command, args []string) error {
		p := named(args)
		if p.Tier = tier; tier != "" {
			if err := oneOf("--tier", tier, tierNames); err != nil {
				return err
			}
		}
		err := a.widenConnection(cmd.Context(), api.ConnectionGrant, p, "granted "+list(p.Items()))
		return a.nearestTool(cmd.Context(), p, err)
	}
	revoke := &cobra.Command{Use: "revoke PROJECT SERVER [TOOL…]", Short: "revoke tools, prompts and resources, or all of the connection's", ValidArgsFunction: a.completeConnections}
	items(revoke)
	revoke.Args = func(cmd *cobra.Command, args []string) error { return both(cmd, args[:min(2, len(args))]) }
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		p := named(args)
		what := "every tool"
		if all := p.Items(); len(all) > 0 {
			what = list(all)
		}
		return a.narrow(cmd.Context(), api.ConnectionRevoke, p, "revoked "+what+" of "+args[1]+" from project "+args[0])
	}
	disable := &cobra.Command{Use: "disable PROJECT SERVER", Short: "refuse every call until it is enabled again", Args: both, ValidArgsFunction: a.completeConnections,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.ConnectionDisable, named(args), "connection of project "+args[0]+" to "+args[1]+" disabled")
		}}

	var project string
	ls := &cobra.Command{Use: "list PROJECT", Short: "list a project's connections", ValidArgsFunction: a.completeProjects}
	ls.Flags().StringVar(&project, "project", "", "the `project`, in place of the argument")
	ls.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && project == "" {
			project, args = args[0], nil
		}
		if project == "" {
			return usagef("needs PROJECT")
		}
		return exactly()(cmd, args)
	}
	ls.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := a.allConnections(cmd.Context(), project)
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) { connectionRows(t, r.Connections) })
	}
	show := &cobra.Command{Use: "show PROJECT SERVER", Short: "show one connection and its tools", Args: both, ValidArgsFunction: a.completeConnections,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.ConnectionResult](cmd.Context(), a, api.ConnectionShow, named(args), client.Options{})
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) { connectionTable(t, r) })
		}}
	a.changes(add, accept, enable, grant, revoke, disable)
	return a.group("connection", "a project's use of a server, and the tools granted", add, ls, show, grant, revoke, accept, enable, disable)
}

// acceptedDocument is an accepted connection with what differed in its registration.
type acceptedDocument struct {
	api.ConnectionResult
	Registration *api.ServerDiffResult `json:"registration,omitempty"` // how it differed from what was accepted before; for root alone
}

// acceptConnection shows what differs before it accepts, and accepts no other
// definition and no other revision than it showed.
func (a *app) acceptConnection(ctx context.Context, p api.ConnectionParams, yes bool) error {
	shown, err := ask[api.ConnectionResult](ctx, a, api.ConnectionShow, api.ConnectionParams{Project: p.Project, Server: p.Server}, client.Options{})
	if err != nil {
		return err
	}
	p.Revision = shown.Current
	for _, c := range shown.Changes {
		if c.Ungranted {
			continue
		}
		if p.Seen == nil {
			p.Seen = map[string]string{}
		}
		p.Seen[c.Tool] = c.Pin
	}
	diff, err := a.registrationDiff(ctx, shown)
	if err != nil {
		return err
	}
	if !a.json && (len(shown.Changes) > 0 || diff != nil) {
		t := newTable(a.out)
		if diff != nil {
			diffLines(t, *diff)
		}
		changeLines(t, shown.Changes)
		if err := t.flush(); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
	}
	if !yes && !a.json && !a.opts.DryRun && a.asks() {
		question := "Accept the revision, and no changed tool?"
		if all := p.Items(); len(all) > 0 {
			question = "Accept the revision, and " + clean(list(all)) + " as shown?"
		}
		if !a.agreed(question) {
			return errors.New("not accepted; nothing was changed")
		}
	}
	r, err := ask[api.ConnectionResult](ctx, a, api.ConnectionAccept, p, a.opts)
	if err != nil {
		return err
	}
	return a.show(acceptedDocument{r, diff}, func(t *table) {
		a.widened(t, p, r, "accepted")
		if left := stillChanged(r); len(left) > 0 && !a.opts.DryRun {
			t.line("Refused until they are accepted by name: postern connection accept %s %s %s", p.Project, p.Server, strings.Join(left, " "))
		}
	})
}

// stillChanged are the tools whose new definitions nobody accepted.
func stillChanged(r api.ConnectionResult) (left []string) {
	for _, x := range r.Tools {
		if x.Granted && x.Kind == "" && x.Reason == string(refusal.ToolChanged) {
			left = append(left, x.Tool)
		}
	}
	return left
}

// registrationDiff asks what root alone may know: how the registration differs from the
// one that was accepted. Nil where it does not differ, or whoever asks is not root and
// will be refused by the authority.
func (a *app) registrationDiff(ctx context.Context, c api.ConnectionResult) (*api.ServerDiffResult, error) {
	if c.Accepted == c.Current || c.Accepted == "" {
		return nil, nil
	}
	diff, err := ask[api.ServerDiffResult](ctx, a, api.ServerDiff, api.ServerDiffParams{Server: c.Server, From: c.Accepted, To: c.Current}, client.Options{})
	var r *api.Refusal
	switch {
	case err == nil:
		return &diff, nil
	case errors.As(err, &r) && r.Code == refusal.NotPermitted:
		return nil, nil
	case errors.As(err, &r) && r.Code == refusal.NotFound:
		return &api.ServerDiffResult{Server: c.Server, Label: c.Label, From: c.Accepted, To: c.Current,
			Notes: []string{"What was accepted is so old that it is not remembered: look at all of it with postern server show."}}, nil
	}
	return nil, err
}

// changeLines shows differences: words that go as [-words-], words that come as {+words+}.
func changeLines(t *table, changes []api.Change) {
	for i, c := range changes {
		switch {
		case i == 0 && !c.Ungranted:
			t.line("Granted, and listed otherwise by the current revision:")
		case c.Ungranted && (i == 0 || !changes[i-1].Ungranted):
			t.line("Not granted, and listed otherwise than by the revision that was accepted:")
		}
		if c.Reason != "" {
			t.line("%s is %s: %s", c.Tool, c.State, c.Reason)
		} else {
			t.line("%s is %s", c.Tool, c.State)
		}
		for _, m := range c.Members {
			var b strings.Builder
			for _, p := range m.Pieces {
				switch p.Op {
				case "-":
					b.WriteString("[-" + p.Text + "-]")
				case "+":
					b.WriteString("{+" + p.Text + "+}")
				default:
					b.WriteString(p.Text)
				}
			}
			if m.Cut {
				b.WriteString(" (more is different than is shown)")
			}
			t.line("  %s: %s", m.Member, b.String())
		}
	}
}

func (a *app) widenConnection(ctx context.Context, action api.Action, p api.ConnectionParams, what string) error {
	r, err := ask[api.ConnectionResult](ctx, a, action, p, a.opts)
	if err != nil {
		return err
	}
	return a.show(r, func(t *table) { a.widened(t, p, r, what) })
}

// widened tells that it was done, and the connection as it then stands.
func (a *app) widened(t *table, p api.ConnectionParams, r api.ConnectionResult, what string) {
	t.line(a.would()+"%s", what)
	if !a.opts.DryRun { // its answer is the connection as it was
		connectionTable(t, r)
	}
	for _, x := range r.Tools {
		if slices.Contains(p.Tools, x.Tool) && (p.Tier == "destructive" || x.Tier == "destructive") {
			t.line("%s is of tier destructive: it cannot be called until there are approvals (approval_required).", x.Tool)
		}
	}
}

// nearestTool adds to a refusal for a tool that the server does not offer which
// one may have been meant.
func (a *app) nearestTool(ctx context.Context, p api.ConnectionParams, err error) error {
	var r *api.Refusal
	if !errors.As(err, &r) || r.Code != refusal.NotFound {
		return err
	}
	c, failed := ask[api.ConnectionResult](ctx, a, api.ConnectionShow, api.ConnectionParams{Project: p.Project, Server: p.Server}, client.Options{})
	if failed != nil {
		return err // the connection itself may be what is not there
	}
	offered := map[string]bool{}
	for _, x := range c.Tools {
		offered[x.Tool] = true
	}
	more := fmt.Sprintf("See postern connection show %s %s", p.Project, p.Server)
	for _, name := range p.Tools {
		best, distance := "", 4
		for _, x := range c.Tools {
			if d := near.Edits(name, x.Tool); !offered[name] && d < distance {
				best, distance = x.Tool, d
			}
		}
		if best != "" {
			more = fmt.Sprintf("Did you mean %q? %s", best, more)
			break
		}
	}
	told := *r
	told.Detail = strings.TrimSuffix(told.Detail, ".") + ". " + more + "."
	return &told
}

// credentialText is all that is said of a credential to whoever is not root.
func credentialText(c api.ConnectionResult) string {
	if c.CredentialState == "" {
		return c.Credential
	}
	return c.CredentialState
}

func connectionRows(t *table, rows []api.ConnectionResult) {
	t.row("SERVER", "READINESS", "ENABLED", "CREDENTIAL", "VERSION", "PROJECT", "CONNECTION", "REASON")
	for _, c := range rows {
		t.row(c.Label, c.Readiness, yesNo(c.Enabled), credentialText(c), c.Version, c.Project, c.Connection, c.Reason)
	}
}

func connectionTable(t *table, c api.ConnectionResult) {
	t.row("connection", c.Connection)
	t.row("project", c.Project)
	t.row("server", c.Label+" "+c.Server)
	t.row("enabled", yesNo(c.Enabled))
	t.row("credential", credentialText(c))
	t.row("accepted revision", c.Accepted)
	if c.Current != c.Accepted {
		t.row("current revision", c.Current)
	}
	readiness := c.Readiness
	if c.Reason != "" {
		readiness += " (" + c.Reason + ")"
	}
	t.row("readiness", readiness)
	t.row("version", c.Version)
	if c.Notice != "" {
		t.line("%s", c.Notice)
	}
	if len(c.Tools) > 0 {
		t.line("")
		t.row("TOOL", "SERVED AS", "GRANTED", "STATE", "TIER", "CLASSES", "CLASSES FROM", "REASON", "DESCRIPTION")
		for _, x := range c.Tools {
			t.row(x.Tool, x.Served, yesNo(x.Granted), x.State, x.Tier, list(x.Classes), x.ClassSource, x.Reason, firstLine(x.Description))
		}
	}
}
