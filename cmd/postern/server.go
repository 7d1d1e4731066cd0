package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// What may be declared of a tool.
var (
	classNames = []string{"filesystem.read", "filesystem.write", "process.execute", "network.read", "message.send", "device.read",
		"device.execute", "memory.read", "memory.write", "runtime.inspect", "scheduling", "mcp.read", "mcp.write"}
	tierNames = []string{"observe", "reversible", "destructive"}
)

// serverDocument is a registration with what its probe found. Registering and
// probing are two requests to two sockets; a failed probe leaves a registration
// that is true, so both outcomes are shown.
type serverDocument struct {
	api.ServerResult
	*api.Cut
	Catalogue    *api.CatalogueResult `json:"catalogue,omitempty"`     // what its probe found
	ProbeRefusal *api.Refusal         `json:"probe_refusal,omitempty"` // of a probe that was refused; the registration holds
}

// serverSeen is what of a server whoever is not root may see.
type serverSeen struct {
	Catalogue api.CatalogueResult `json:"catalogue"`
}

func (a *app) serverCommand() *cobra.Command {
	add := a.registerCommand("add", "register a tool server and probe it (root)", api.ServerAdd)
	update := a.registerCommand("update", "give a server a new revision and probe it (root)", api.ServerUpdate)
	update.ValidArgsFunction = a.completeServers
	ls := &cobra.Command{Use: "list", Short: "list registrations (root)", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := a.allServers(cmd.Context())
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			t.row("LABEL", "SERVER", "PROFILE", "SCOPE", "CREDENTIAL", "REVISION")
			for _, s := range r.Servers {
				t.row(s.Label, s.Server, s.Profile, s.Scope, s.Credential, s.Revision)
			}
		})
	}}
	show := &cobra.Command{Use: "show SERVER", Short: "show a registration (root) and its catalogue", Args: exactly("SERVER"), ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error { return a.showServer(cmd, args[0]) }}
	var project string
	probe := &cobra.Command{Use: "probe SERVER [--project PROJECT]", Short: "start a server in its jail and pin its tools", Args: exactly("SERVER"), ValidArgsFunction: a.completeServers,
		Long: "Starts a server in its jail, with an empty workspace, and pins the tools that it lists.\n" +
			"A server that needs a credential is given that of --project; what it lists is pinned for all projects.",
		Example: "  postern server probe files\n  postern server probe tickets --project shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.CatalogueResult](cmd.Context(), a, api.ServerProbe, api.ServerProbeParams{Selector: args[0], Project: project}, a.opts)
			if err != nil {
				return err
			}
			if err := a.show(r, func(t *table) { catalogueTable(t, r) }); err != nil {
				return err
			}
			a.warn(r.Unmatched)
			return nil
		}}
	probe.Flags().StringVar(&project, "project", "", "the `project` whose credential the server is given")
	probe.RegisterFlagCompletionFunc("project", ofFlag(a.completeProjects))
	del := &cobra.Command{Use: "delete SERVER", Short: "delete a registration for ever (root)", Args: exactly("SERVER"), ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.ServerChangeResult](cmd.Context(), a, api.ServerDelete, api.Selected{Selector: args[0]}, a.opts)
			if err != nil {
				return err
			}
			return a.doneCut(r, r.Cut, "server %s deleted", args[0])
		}}
	diff, gc := a.serverDiffCommand(), a.serverGCCommand()
	a.changes(add, update, probe, del)
	return a.group("server", "tool servers: what may run, in which jail", add, ls, show, diff, probe, update, del, gc)
}

// registerCommand is add and update: both take the whole registration.
func (a *app) registerCommand(verb, short string, action api.Action) *cobra.Command {
	var p api.ServerParams
	var classes, tiers []string
	cmd := &cobra.Command{Use: verb + " NAME --profile P [flags] -- COMMAND ARGS…", Short: short,
		Long: short + `.

COMMAND is absolute: a path of the system, or one under /package, where the
copy of --package DIR is mounted. ARGS are passed as they stand.

Classes: ` + list(classNames[:5]) + ",\n" + list(classNames[5:10]) + ",\n" + list(classNames[10:]) + "."}
	cmd.Flags().StringVar(&p.Profile, "profile", "", "the jail `profile`")
	cmd.Flags().StringVar(&p.Package, "package", "", "`directory` to copy; the copy is what runs")
	cmd.Flags().StringVar(&p.Scope, "scope", "project", "whose an instance is: project or task")
	cmd.Flags().StringVar(&p.Credential, "credential", "none", "none, or required: then each project needs one of its own")
	cmd.Flags().StringVar(&p.CredentialEnv, "credential-env", "", "the `variable` that a credential is handed over as")
	cmd.Flags().IntVar(&p.CredentialFD, "credential-fd", 0, "the inherited `descriptor` (3 to 9) that a credential is read from")
	cmd.Flags().StringArrayVar(&classes, "class", nil, "`TOOL=CLASS[,CLASS…]`; may be repeated")
	cmd.Flags().StringArrayVar(&p.SecretFields, "secret-field", nil, "a `field` of arguments that no record shows: a name at any depth, or a path like /auth/key; may be repeated")
	cmd.Flags().StringArrayVar(&tiers, "tier", nil, "`TOOL=TIER` ("+list(tierNames)+"); may be repeated")
	cmd.MarkFlagDirname("package")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		var wrong []string
		switch {
		case dash < 0:
			wrong = append(wrong, "needs -- COMMAND ARGS… after the flags")
		case dash != 1:
			wrong = append(wrong, "needs exactly one NAME before --")
		}
		if dash >= 0 && len(args) == dash {
			wrong = append(wrong, "needs a COMMAND after --")
		}
		if p.Profile == "" {
			wrong = append(wrong, "needs --profile")
		}
		if p.CredentialEnv != "" && p.CredentialFD != 0 {
			wrong = append(wrong, "--credential-env and --credential-fd: a credential is handed over in one way")
		}
		wrong = append(wrong, declare(&p, classes, tiers)...)
		for _, row := range []struct {
			flag, value string
			permitted   []string
		}{{"--scope", p.Scope, []string{"project", "task"}}, {"--credential", p.Credential, []string{"none", "required"}}} {
			if err := oneOf(row.flag, row.value, row.permitted); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		if len(wrong) > 0 {
			return usagef("%s", strings.Join(wrong, "; "))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.Label, p.Command = args[0], args[1:]
		if p.Package != "" {
			dir, err := filepath.Abs(p.Package)
			if err != nil {
				return err
			}
			p.Package = dir
		}
		return a.register(cmd, action, p)
	}
	return cmd
}

// declare takes what --class and --tier say of tools, and returns every mistake of them.
func declare(p *api.ServerParams, classes, tiers []string) (wrong []string) {
	bad := func(err error) bool {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		return err != nil
	}
	for _, s := range classes {
		tool, class, err := pair("--class", s)
		if bad(err) {
			continue
		}
		for _, c := range strings.Split(class, ",") {
			bad(oneOf("--class: the class of "+tool, c, classNames))
		}
		if p.Classes == nil {
			p.Classes = map[string][]string{}
		}
		p.Classes[tool] = append(p.Classes[tool], strings.Split(class, ",")...)
	}
	for _, s := range tiers {
		tool, tier, err := pair("--tier", s)
		if bad(err) || bad(oneOf("--tier: the tier of "+tool, tier, tierNames)) {
			continue
		}
		if p.Tiers == nil {
			p.Tiers = map[string]string{}
		}
		if old, twice := p.Tiers[tool]; twice && old != tier {
			bad(usagef("--tier names %q twice, as %s and as %s", tool, old, tier))
		}
		p.Tiers[tool] = tier
	}
	return wrong
}

// pair splits TOOL=VALUE at the last equals sign, for a tool's name may hold one.
func pair(flag, s string) (tool, value string, err error) {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 || i == len(s)-1 {
		return "", "", usagef("%s wants TOOL=VALUE, not %q", flag, s)
	}
	return s[:i], s[i+1:], nil
}

func (a *app) register(cmd *cobra.Command, action api.Action, p api.ServerParams) error {
	reg, err := ask[api.ServerChangeResult](cmd.Context(), a, action, p, a.opts)
	if err != nil {
		return err
	}
	doc := serverDocument{ServerResult: reg.ServerResult}
	if action == api.ServerUpdate && !a.opts.DryRun {
		doc.Cut = &reg.Cut
	}
	if !a.opts.DryRun && reg.Credential != "required" { // with a credential a server is probed for each connection
		a.goesOn("registered " + reg.Server + ", probing it")
		cat, err := ask[api.CatalogueResult](cmd.Context(), a, api.ServerProbe, api.Selected{Selector: reg.Server}, client.Options{})
		switch {
		case errors.As(err, &doc.ProbeRefusal):
		case err != nil:
			return err
		default:
			doc.Catalogue = &cat
		}
	}
	if err := a.show(doc, func(t *table) {
		serverTable(t, doc)
		if doc.Cut != nil {
			cutTable(t, *doc.Cut)
		}
	}); err != nil {
		return err
	}
	a.warn(reg.Warnings)
	if doc.Catalogue != nil {
		a.warn(doc.Catalogue.Unmatched)
	}
	if reg.Credential == "required" && !a.opts.DryRun && !a.json {
		fmt.Fprintf(a.err, "Its tools are not known before it is probed, with the credential of a project: postern server probe %s --project PROJECT\n", clean(p.Label))
	}
	switch {
	case doc.ProbeRefusal != nil:
		return &shown{status: refusal.Of(doc.ProbeRefusal.Code).Exit,
			text: fmt.Sprintf("%s is registered, but its probe was refused (%s). Repair it (postern server update, where the registration is what is wrong), or try again: postern server probe %s", p.Label, string(doc.ProbeRefusal.Code), p.Label)}
	case doc.Catalogue != nil && doc.Catalogue.Error != "":
		return &shown{status: refusal.ExitFailed,
			text: fmt.Sprintf("%s is registered, but its probe failed. Repair it, then: postern server probe %s", p.Label, p.Label)}
	}
	return nil
}

func (a *app) showServer(cmd *cobra.Command, selector string) error {
	var doc serverDocument
	reg, err := ask[api.ServerResult](cmd.Context(), a, api.ServerShow, api.Selected{Selector: selector}, client.Options{})
	var r *api.Refusal
	switch {
	case err == nil:
		doc.ServerResult, selector = reg, reg.Server
	case errors.As(err, &r) && r.Code == refusal.NotPermitted:
		// Not root: the catalogue is what this person may see.
	default:
		return err
	}
	root := err == nil
	cat, err := ask[api.CatalogueResult](cmd.Context(), a, api.ServerCatalogue, api.Selected{Selector: selector}, client.Options{})
	switch {
	case err == nil:
		doc.Catalogue = &cat
	case root && errors.As(err, &doc.ProbeRefusal): // the registration is worth showing by itself
	default:
		return err
	}
	defer a.warn(cat.Unmatched)
	if !root {
		return a.show(serverSeen{cat}, func(t *table) { catalogueTable(t, cat) })
	}
	return a.show(doc, func(t *table) { serverTable(t, doc) })
}

func serverTable(t *table, d serverDocument) {
	t.row("label", d.Label)
	t.row("server", d.Server)
	t.row("revision", d.Revision)
	t.row("digest", d.Digest)
	t.row("profile", d.Profile)
	t.row("scope", d.Scope)
	switch {
	case d.CredentialEnv != "":
		t.row("credential", d.Credential+", handed over as variable "+d.CredentialEnv)
	case d.CredentialFD != 0:
		t.row("credential", fmt.Sprintf("%s, handed over as descriptor %d", d.Credential, d.CredentialFD))
	default:
		t.row("credential", d.Credential)
	}
	for i, arg := range d.Command {
		t.whole([]string{"command", "argument"}[min(i, 1)], arg)
	}
	if d.Package != "" {
		t.row("package", d.Package)
	}
	for tool, classes := range d.Classes {
		t.row("classes of "+tool, list(classes))
	}
	for tool, tier := range d.Tiers {
		t.row("tier of "+tool, tier)
	}
	if len(d.SecretFields) > 0 {
		t.row("secret fields", list(d.SecretFields))
	}
	if d.Catalogue != nil {
		t.line("")
		catalogueTable(t, *d.Catalogue)
	}
	if d.ProbeRefusal != nil {
		t.line("\nNo catalogue: %s", d.ProbeRefusal.Error())
	}
}

func catalogueTable(t *table, c api.CatalogueResult) {
	if c.Error != "" {
		t.line("The last probe failed: %s", c.Error)
	}
	if c.Probed == 0 {
		t.line("Not probed yet.")
		return
	}
	if c.Error != "" && len(c.Tools) == 0 {
		t.line("Probed %s, revision %s.", when(c.Probed), c.Revision)
		return
	}
	t.line("Probed %s, revision %s, %d tools and prompts:", when(c.Probed), c.Revision, len(c.Tools))
	t.row("TOOL", "STATE", "TIER", "CLASSES", "CLASSES FROM", "REASON", "DESCRIPTION")
	for _, x := range c.Tools {
		t.row(x.Tool, x.State, x.Tier, list(x.Classes), x.ClassSource, x.Reason, firstLine(x.Description))
	}
}

// shown is an end that is not success, after the document was already printed.
type shown struct {
	status int
	text   string
}

func (s *shown) Error() string { return s.text }

func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(a.err, "warning: %s\n", clean(w))
	}
}
