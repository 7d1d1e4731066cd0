package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// askerFlags say for whom a question is asked.
func (a *app) askerFlags(cmd *cobra.Command, p *api.AskerParams) {
	cmd.Flags().StringVar(&p.Task, "task", "", "for this `task`")
	cmd.Flags().StringVar(&p.Project, "project", "", "for whoever would act in this `project`")
	cmd.Flags().StringVar(&p.Principal, "principal", "", "for this principal, as `CHANNEL:ID` (default: you, where you connect; else the project's owner)")
	cmd.Flags().StringVar(&p.Mode, "mode", "", "in this `mode`")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
}

// checkAsker refuses what names nobody, or two.
func checkAsker(p api.AskerParams) error {
	switch {
	case p.Task == "" && p.Project == "":
		return usagef("needs --task T, or --project P")
	case p.Task != "" && (p.Project != "" || p.Principal != "" || p.Mode != ""):
		return usagef("--task has its project, principal and mode; leave --project, --principal and --mode out")
	}
	return nil
}

func (a *app) explainCommand() *cobra.Command {
	var p api.ExplainParams
	cmd := &cobra.Command{Use: "explain (--task T | --project P [--principal CHANNEL:ID] [--mode M]) TOOL", Short: "could this tool be called now, and every reason why not", Args: exactly("TOOL"),
		Long: `Asks every rule about one tool, in the order of a decision, and shows what each read and where that is written.
Nothing is called, started or recorded.

TOOL is SERVER.TOOL, the name a runtime sees, or a tool's own name where only one server of the project has it.
Ends with 0 where the call would be allowed, with 65 where not.`}
	a.askerFlags(cmd, &p.AskerParams)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAsker(p.AskerParams); err != nil {
			return err
		}
		p.Tool = args[0]
		r, err := ask[api.ExplainResult](cmd.Context(), a, api.Explain, p, client.Options{})
		if err != nil {
			return err
		}
		if err := a.show(r, func(t *table) { explainTable(t, r) }); err != nil || r.Allowed {
			return err
		}
		return &shown{status: refusal.ExitRefused, text: r.Sentence + " (help: " + r.Help + ")"}
	}
	return cmd
}

func askerRows(t *table, r api.AskerResult) {
	t.row("project", r.ProjectLabel+" "+r.Project)
	t.row("task", cmp.Or(r.Task, "supposed"))
	t.row("acts for", r.Principal+" of account "+r.Account)
	t.row("mode", r.Mode)
	t.row("host", r.Host)
}

func explainTable(t *table, r api.ExplainResult) {
	name := r.Tool
	if r.Server != "" {
		name = r.Server + "." + r.Tool
	}
	if r.Native {
		name += " (a runtime's own tool)"
	}
	t.row("tool", name)
	if r.Served != "" && r.Served != r.Tool {
		t.row("served as", r.Served)
	}
	askerRows(t, r.AskerResult)
	state := r.State
	if r.Reason != "" {
		state += " (" + r.Reason + ")"
	}
	t.row("state", sentence(state))
	if r.Allowed {
		t.row("verdict", "allowed")
	} else {
		t.row("verdict", "denied: "+r.Code)
	}
	t.line("")
	t.row("RULE", "ANSWER", "CODE", "READ", "FROM")
	for _, x := range r.Rules {
		t.row(x.Rule, x.Answer, x.Code, sentence(x.Read), sentence(x.From))
	}
	if !r.Allowed {
		t.line("\n%s %s", r.Sentence, r.Advice)
	}
}

func (a *app) capabilitiesCommand() *cobra.Command {
	var p api.CapabilitiesParams
	cmd := &cobra.Command{Use: "capabilities (--task T | --project P [--principal CHANNEL:ID] [--mode M])", Short: "every tool that is known, with its state and the reason", Args: exactly(),
		Long: `Lists every tool of the project's connections, and what is not set up yet, with its state for a task or a principal:

  visible         it may be called now
  registered      the server offers it, and nobody granted it
  denied(policy)  a rule about whoever asks refuses it
  unavailable     what it needs is not there at the moment
  unhealthy       its server failed, or says something else than was accepted
  not_configured  somebody has yet to set it up

Runtimes' own tools, which ask with postern check, are listed with --native.`}
	a.askerFlags(cmd, &p.AskerParams)
	cmd.Flags().BoolVar(&p.Native, "native", false, "list runtimes' own tools too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkAsker(p.AskerParams); err != nil {
			return err
		}
		r, err := ask[api.CapabilitiesResult](cmd.Context(), a, api.Capabilities, p, client.Options{})
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			askerRows(t, r.AskerResult)
			t.line("")
			t.row("SERVER", "TOOL", "SERVED AS", "STATE", "CODE", "TIER", "CLASSES", "REASON")
			for _, x := range r.Rows {
				t.row(cmp.Or(x.Server, list(x.Runtimes), x.Kind), x.Tool, x.Served, x.State, x.Code, x.Tier, list(x.Classes), sentence(x.Reason))
			}
		})
	}
	return cmd
}

func (a *app) activityShowCommand() *cobra.Command {
	p := api.RecordParams{}
	cmd := &cobra.Command{Use: "show RECORD", Short: "explain one record: what happened, and every rule that denied", Args: exactly("RECORD"),
		Long: `Explains one record of activity. RECORD is what stands under CALL: a call's id or, for what was denied, the place of its
record. What is shown of the rules is what was recorded at that moment; postern explain asks them anew.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Record = args[0]
			r, err := ask[api.RecordResult](cmd.Context(), a, api.ActivityShow, p, client.Options{})
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) { recordTable(t, r) })
		}}
	argumentsFlag(cmd, &p.Arguments)
	return cmd
}

func recordTable(t *table, r api.RecordResult) {
	t.row("record", cmp.Or(r.Call, r.Cursor))
	t.row("time", when(r.Time))
	t.row("state", r.State)
	if r.Count > 1 {
		t.row("stands for", r.Count)
	}
	t.row("tool", r.Tool)
	t.row("project", r.ProjectLabel+" "+r.Project)
	t.row("task", r.Task)
	t.row("acted for", r.Principal+" of account "+r.Account)
	t.row("mode", r.Mode)
	t.row("host", r.Host)
	t.row("session", r.Session)
	if r.Continues != "" {
		t.row("goes on with", r.Continues)
	}
	t.row("connection", r.Connection)
	t.row("revision", r.Revision)
	t.row("classes", list(r.Classes))
	t.row("recorded", sentence(r.Policy))
	if r.Reason != "" {
		t.row("reason", sentence(r.Reason))
	}
	if text := argumentsText(r.ActivityRow); text != "" {
		t.line("\nArguments: %s", text)
	}
	if len(r.Denies) > 0 {
		t.line("\nEvery rule that denied at that moment:")
		for _, d := range r.Denies {
			t.row("", d.Code, sentence(d.Sentence))
		}
	}
	if r.Code != "" {
		t.line("\n%s: %s %s (help: %s)", r.Code, r.Sentence, r.Advice, r.Help)
	}
}
