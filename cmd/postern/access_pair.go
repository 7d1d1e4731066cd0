package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// maxCodeLine bounds what is read of standard input for a code.
const maxCodeLine = 256

func (a *app) accessPairCommand() *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{Use: "pair CHANNEL", Short: "make a code that pairs whoever writes it in a channel", Args: exactly("CHANNEL"), ValidArgsFunction: a.completeChannels,
		Long: `Makes a code and prints it, once. Tell it to the person; they write it in the channel, and the host that reads the
channel hands it in (postern access redeem). From then on that identity is paired: it reads, and never more. A code
works once, for minutes, and is gone when Postern starts again; five wrong ones end all codes of the channel.`,
		Example: "  postern access pair whatsapp --ttl 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < 0 {
				return usagef("--ttl is not negative")
			}
			r, err := ask[api.PairResult](cmd.Context(), a, api.AccessPair, api.PairParams{Channel: args[0], TTLMs: ttl.Milliseconds()}, a.opts)
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) {
				if a.opts.DryRun {
					t.line("%sa code of %s", a.would(), r.Channel)
					return
				}
				t.row("code", r.Code)
				t.row("channel", r.Channel)
				t.row("until", when(r.Expires))
				t.row("usable codes", r.Usable)
			})
		}}
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long the code can be used, 1m to 30m (0: the default, 10m)")
	c.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "check and show the outcome, make no code")
	return c
}

func (a *app) accessRedeemCommand() *cobra.Command {
	c := &cobra.Command{Use: "redeem CHANNEL:ID CODE", Short: "pair whoever wrote a code (for hosts of the channel)", Args: exactly("CHANNEL:ID", "CODE"),
		Long: `Hands in the code that somebody of a channel wrote, as the user of a host that has the channel in postern.yaml. With -
as CODE it is read from standard input, where no other user of the machine sees it.

--dry-run looks at everything but the code.`,
		Example: "  postern access redeem whatsapp:+5511999998888 - < message",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.RedeemParams{Principal: args[0], Code: args[1]}
			if p.Code == "-" {
				raw, err := readAtMost(a.in, maxCodeLine)
				if err != nil {
					return err
				}
				p.Code = strings.TrimSpace(string(raw))
			}
			r, err := ask[api.PairedRow](cmd.Context(), a, api.AccessRedeem, p, a.opts)
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) { t.line(a.would()+"%s is paired, level %s", r.Principal, pairedLevel(r)) })
		}}
	c.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "check and show the outcome, change nothing")
	return c
}

func (a *app) accessUnpairCommand() *cobra.Command {
	c := &cobra.Command{Use: "unpair CHANNEL:ID", Short: "take a pairing back", Args: exactly("CHANNEL:ID"), ValidArgsFunction: a.completePaired,
		Long: "Takes a pairing back: at the next call the identity is what the access policy says, a stranger where it says nothing.\n" +
			"What it has open and is no longer allowed is cancelled.",
		Example: "  postern access unpair whatsapp:+5511999998888 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.narrow(cmd.Context(), api.AccessUnpair, api.UnpairParams{Principal: args[0]}, args[0]+" is not paired any more")
		}}
	c.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "check and show the outcome, change nothing")
	return c
}

// shownAccess is the policy as posternd read it beside who is paired, which the authority
// keeps.
type shownAccess struct {
	api.AccessShowResult
	*api.PairedResult
	PairedError string `json:"paired_error,omitempty"` // why it is not known who is paired
}

// withPaired asks for who is paired. Without an answer the policy is shown alone.
func (a *app) withPaired(cmd *cobra.Command, r api.AccessShowResult) shownAccess {
	out := shownAccess{AccessShowResult: r}
	p, err := ask[api.PairedResult](cmd.Context(), a, api.AccessPaired, struct{}{}, client.Options{})
	if err != nil {
		out.PairedError = withCode(err)
		var refused *api.Refusal
		if !errors.As(err, &refused) || refused.Code != refusal.Unreachable {
			out.PairedError = fmt.Sprintf("the authority did not tell: %s", out.PairedError)
		}
		return out
	}
	out.PairedResult = &p
	return out
}

func (r shownAccess) table(t *table) {
	if r.PairedError != "" {
		t.line("")
		t.line("Who is paired is not known: %s", r.PairedError)
		return
	}
	if len(r.Paired) > 0 {
		t.line("")
		t.row("PAIRED", "HOST", "SINCE", "NOW", "LEVEL")
		for _, p := range r.Paired {
			t.row(p.Principal, p.Host, when(p.At), p.Kind, pairedLevel(p))
		}
		t.flush()
	}
	for _, name := range slices.Sorted(maps.Keys(r.Usable)) {
		t.line("pairing codes of %s that can be used: %d", name, r.Usable[name])
	}
}

func pairedLevel(p api.PairedRow) string {
	switch {
	case !p.Admitted:
		return "refused: " + p.Code
	case p.Level == nil:
		return "no ceiling"
	}
	return *p.Level
}

// completeChannels offers the channels that the policy declares.
func (a *app) completeChannels(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.AccessShowResult](cmd, a, api.AccessShow, struct{}{})
	seen := map[string]int{}
	for _, x := range r.Rows {
		if x.Channel != "local" {
			seen[x.Channel]++
		}
	}
	return names(slices.Sorted(maps.Keys(seen)), func(s string) string { return s })
}

func (a *app) completePaired(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.PairedResult](cmd, a, api.AccessPaired, struct{}{})
	return names(r.Paired, func(p api.PairedRow) string { return p.Principal })
}
