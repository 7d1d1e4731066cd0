package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// The words of the access policy's commands.
var (
	levelNames  = []string{"chat", "read", "full"}
	presetNames = []string{"chat_only", "read", "developer", "full_pod"}
)

const accessLong = `The access policy says who may do what through which channel. It is a file of root's, access.yaml; these commands
change the lines of what they name and leave the others, and posternd reads the file again whenever it changes.

A level is chat (no tools), read (what only reads) or full; --write lets files and servers' data be written too. It
takes away, and grants nothing: a tool must be granted as well.`

func (a *app) accessCommand() *cobra.Command {
	g := a.group("access", "who may do what: the access policy (root)", a.accessShowCommand(), a.accessSetCommand(), a.accessPresetCommand(), a.accessDefaultCommand(),
		a.accessGroupsCommand(), a.accessGroupCommand(), a.accessMatrixCommand(),
		a.accessPairCommand(), a.accessRedeemCommand(), a.accessUnpairCommand())
	g.Long = accessLong
	return g
}

// accessMistake is where and what; a file that cannot be read at all has no line or key.
func accessMistake(file string, m api.AccessMistake) string {
	if m.Line > 0 {
		file += ":" + strconv.Itoa(m.Line)
	}
	if m.Key != "" {
		file += ": " + m.Key
	}
	return file + ": " + m.Text
}

func (a *app) accessShowCommand() *cobra.Command {
	return &cobra.Command{Use: "show", Short: "the policy as it decides now, and what is wrong with the file", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.AccessShowResult](cmd.Context(), a, api.AccessShow, struct{}{}, client.Options{})
			if err != nil {
				return err
			}
			all := a.withPaired(cmd, r)
			err = a.show(all, func(t *table) {
				t.whole("file", r.File)
				t.row("state", sentence(accessState(r.AccessState)))
				if r.Error != "" {
					t.whole("error", r.Error)
				}
				t.row("read", when(r.At))
				t.row("digest", r.Digest)
				t.row("modes", list(r.Modes))
				for _, m := range r.Mistakes {
					word := "mistake"
					if m.Warning {
						word = "warning"
					}
					t.line("%s: %s", word, accessMistake(r.File, m))
				}
				t.flush() // the table has columns of its own
				t.line("")
				t.row("CHANNEL", "WHO", "KIND", "LEVEL", "PRESET", "WIDEST MODE", "FROM")
				for _, x := range r.Rows {
					t.row(x.Channel, who(x), x.Kind, levelText(x), preset(x), orDash(x.Mode), sentence(x.From))
				}
				t.flush()
				all.table(t)
			})
			switch {
			case err != nil:
				return err
			case r.State == "denying":
				return &shown{status: refusal.ExitConfig, text: "the access policy cannot be read, and whom it governs is denied: " + r.Error}
			case r.State == "mistaken":
				return &shown{status: refusal.ExitConfig, text: "the access policy has a mistake, and whom it is about is denied: " + r.Error}
			}
			return nil
		}}
}

func (a *app) accessMatrixCommand() *cobra.Command {
	var profile string
	c := &cobra.Command{Use: "matrix", Short: "which classes of tools each principal may reach", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.AccessShowResult](cmd.Context(), a, api.AccessMatrix, api.AccessMatrixParams{ExecutionProfile: profile}, client.Options{})
			if err != nil {
				return err
			}
			return a.show(r, func(t *table) {
				if r.State == "denying" {
					t.line("The policy cannot be read, and everyone is denied: %s", r.Error)
				}
				matrix(t, r.Rows)
			})
		}}
	c.Flags().StringVar(&profile, "execution-profile", "", "in a project of this `profile`: standard or isolated-pod")
	return c
}

func matrix(t *table, rows []api.AccessRow) {
	t.row("CHANNEL", "WHO", "KIND", "PRESET", "WIDEST MODE", "CLASSES")
	for _, x := range rows {
		t.row(x.Channel, who(x), x.Kind, preset(x), orDash(x.Mode), sentence(classesText(x)))
	}
}

// editFlags are those that name a reach.
type editFlags struct {
	write  bool
	preset string
}

func (e *editFlags) on(c *cobra.Command, withPreset bool) {
	c.Flags().BoolVar(&e.write, "write", false, "with the level: files and servers' data may be written too")
	if withPreset {
		c.Flags().StringVar(&e.preset, "preset", "", "in place of a level, one of "+list(presetNames))
	}
}

// reach takes the level, which may be the last argument, or the preset: exactly one.
func (e *editFlags) reach(p *api.AccessEditParams, rest []string) error {
	switch {
	case len(rest) > 1:
		return usagef("unexpected argument %q", rest[1])
	case (len(rest) == 1) == (e.preset != ""):
		return usagef("name a level (%s) or --preset, and not both", list(levelNames))
	case e.preset != "":
		if e.write {
			return usagef("a preset says itself whether there is write; leave --write out")
		}
		p.Preset = e.preset
		return oneOf("--preset", e.preset, presetNames)
	}
	p.Level, p.Write = rest[0], e.write
	return oneOf("a level", rest[0], levelNames)
}

func (a *app) accessSetCommand() *cobra.Command {
	var e editFlags
	var owner, blocked, remove, enable, disable bool
	var admission, mode string
	c := &cobra.Command{Use: "set CHANNEL [IDENTITY [LEVEL]]", Short: "one person's level, role or block; or a channel's own settings", Args: cobra.ArbitraryArgs,
		Long: "Sets what one identity of a channel may do: a level (chat, read or full), --owner, --blocked, or --remove to take its entry away.\n" +
			"Without an identity it sets the channel itself: --admission, --default-mode, --enable, --disable.\nIn channel local an identity is an account, by id or name."}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("needs CHANNEL")
		}
		p := api.AccessEditParams{Channel: args[0]}
		var actions []string
		for action, is := range map[string]bool{"role": owner, "block": blocked, "remove": remove, "admission": admission != "", "default-mode": mode != ""} {
			if is {
				actions = append(actions, action)
			}
		}
		if enable || disable {
			actions = append(actions, "enabled")
		}
		if len(args) > 2 {
			actions = append(actions, "level")
		}
		if len(actions) != 1 || enable && disable {
			return usagef("name exactly one thing to set: a level, --owner, --blocked or --remove of an identity, or a setting of the channel")
		}
		p.Action, p.On, p.Word = actions[0], enable, admission+mode
		channel := p.Action == "admission" || p.Action == "default-mode" || p.Action == "enabled"
		switch {
		case channel && len(args) > 1:
			return usagef("unexpected argument %q: this is a setting of the channel", args[1])
		case !channel && len(args) < 2:
			return usagef("needs IDENTITY")
		case !channel:
			p.Target = args[1]
		}
		if p.Action == "level" {
			if err := e.reach(&p, args[2:]); err != nil {
				return err
			}
		} else if e.write {
			return usagef("--write goes with a level")
		}
		return a.accessEdit(cmd, p)
	}
	e.on(c, false)
	c.Flags().BoolVar(&owner, "owner", false, "the identity is an owner: no ceiling, and mode code")
	c.Flags().BoolVar(&blocked, "blocked", false, "the identity is refused, whatever else the file says of it")
	c.Flags().BoolVar(&remove, "remove", false, "take the identity's entry away")
	c.Flags().StringVar(&admission, "admission", "", "of the channel: restricted, or open to people nobody knows")
	c.Flags().StringVar(&mode, "default-mode", "", "of the channel: the widest `mode` of its people, search where it is not set")
	c.Flags().BoolVar(&enable, "enable", false, "switch the channel on")
	c.Flags().BoolVar(&disable, "disable", false, "switch the channel off")
	a.changes(c)
	return c
}

func (a *app) accessPresetCommand() *cobra.Command {
	c := &cobra.Command{Use: "preset CHANNEL IDENTITY PRESET", Short: "one person's level and write, by a name for both", Args: exactly("CHANNEL", "IDENTITY", "PRESET"),
		Long: "Sets level and write of one identity together: chat_only (chat), read, developer and full_pod (both: full with write). The name is kept nowhere.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("a preset", args[2], presetNames); err != nil {
				return err
			}
			return a.accessEdit(cmd, api.AccessEditParams{Action: "preset", Channel: args[0], Target: args[1], Preset: args[2]})
		}}
	a.changes(c)
	return c
}

func (a *app) accessDefaultCommand() *cobra.Command {
	var e editFlags
	c := &cobra.Command{Use: "default CHANNEL [LEVEL]", Short: "what people get whom nobody knows, where the channel is open", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("needs CHANNEL")
			}
			p := api.AccessEditParams{Action: "default", Channel: args[0]}
			if err := e.reach(&p, args[1:]); err != nil {
				return err
			}
			return a.accessEdit(cmd, p)
		}}
	e.on(c, true)
	a.changes(c)
	return c
}

func (a *app) accessGroupsCommand() *cobra.Command {
	var e editFlags
	c := &cobra.Command{Use: "groups CHANNEL on|off|default [LEVEL]", Short: "groups on or off, and what groups get that the file does not name", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("needs CHANNEL and on, off or default")
			}
			p := api.AccessEditParams{Action: "groups", Channel: args[0], On: args[1] == "on"}
			switch {
			case args[1] == "default":
				p.Action = "group-default"
				if err := e.reach(&p, args[2:]); err != nil {
					return err
				}
			case args[1] != "on" && args[1] != "off":
				return usagef("want on, off or default, not %q", args[1])
			case len(args) > 2 || e.write || e.preset != "":
				return usagef("on and off take no level")
			}
			return a.accessEdit(cmd, p)
		}}
	e.on(c, true)
	a.changes(c)
	return c
}

func (a *app) accessGroupCommand() *cobra.Command {
	var e editFlags
	var remove bool
	c := &cobra.Command{Use: "group CHANNEL GROUP [LEVEL]", Short: "what one group gets, whoever speaks in it", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("needs CHANNEL and GROUP")
			}
			p := api.AccessEditParams{Action: "group", Channel: args[0], Target: args[1]}
			if remove {
				if p.Action = "group-remove"; len(args) > 2 || e.write || e.preset != "" {
					return usagef("--remove takes no level")
				}
			} else if err := e.reach(&p, args[2:]); err != nil {
				return err
			}
			return a.accessEdit(cmd, p)
		}}
	e.on(c, true)
	c.Flags().BoolVar(&remove, "remove", false, "take the group's entry away")
	a.changes(c)
	return c
}

// accessEdit makes one change. A trial run shows the matrix before and after it.
func (a *app) accessEdit(cmd *cobra.Command, p api.AccessEditParams) error {
	r, err := ask[api.AccessEditResult](cmd.Context(), a, api.AccessEdit, p, a.opts)
	if err != nil {
		return err
	}
	return a.show(r, func(t *table) {
		what := r.Channel
		if r.Target != "" {
			what += " " + r.Target
		}
		if r.Before == r.After {
			t.line("%s: %s already", what, r.After)
		} else {
			t.line(a.would()+"%s: %s (was: %s)", what, r.After, r.Before)
		}
		for _, w := range r.Warnings {
			t.line("warning: %s", w)
		}
		if r.Written {
			cutTable(t, r.Cut)
		}
		if a.opts.DryRun {
			t.line("Before:")
			matrix(t, r.MatrixBefore)
			t.line("After:")
			matrix(t, r.MatrixAfter)
		}
	})
}

func accessState(s api.AccessState) string {
	out := map[string]string{"none": "there is no file: only projects' owners are admitted", "read": "read", "mistaken": policyWord("mistaken"), "denying": "denying everyone: the file cannot be read"}[s.State]
	if !s.Deciding {
		out += "; the authority does not decide by it yet"
	}
	return out
}

func who(x api.AccessRow) string {
	if x.Who == "" {
		return "everyone else"
	}
	return x.Who
}

func levelText(x api.AccessRow) string {
	switch {
	case !x.Admitted:
		return "refused: " + x.Code
	case x.Level == nil:
		return "no ceiling"
	case x.Write:
		return *x.Level + ", write on"
	}
	return *x.Level
}

func preset(x api.AccessRow) string {
	if x.Preset == nil {
		return "-"
	}
	return *x.Preset
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func classesText(x api.AccessRow) string {
	if !x.Admitted {
		return "none: " + x.Code
	}
	out := strings.Join(x.Classes, " ")
	if x.WithoutClass {
		out += " and tools without class"
	}
	if out == "" {
		return "none"
	}
	return out
}
