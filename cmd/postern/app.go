package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"postern/near"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

const (
	defaultRunDir   = "/run/postern"
	callTimeout     = 5 * time.Minute        // the longest call is a probe behind an ingest
	socketMax       = 107                    // bytes of a socket's path: sun_path without its zero
	completeTimeout = 500 * time.Millisecond // a shell waits for this
)

// app is what every command shares: the persistent flags and the streams.
type app struct {
	in       *os.File
	out, err io.Writer
	runDir   string
	json     bool
	opts     client.Options // of changing commands
	passed   bool           // connect: the standard streams are the bridge's
}

func (a *app) root() *cobra.Command {
	root := a.group("postern", "sandboxed tool bridges for MCP runtimes",
		a.doctorCommand(), a.accountCommand(), a.projectCommand(), a.serverCommand(), a.profileCommand(), a.connectionCommand(), a.credentialCommand(), a.taskCommand(), a.accessCommand(),
		a.explainCommand(), a.capabilitiesCommand(), a.checkCommand(),
		a.statusCommand(), a.quotaCommand(), a.logsCommand(),
		a.connectCommand(), a.clientConfigCommand(), a.psCommand(), a.topCommand(), a.activityCommand(), a.artifactCommand(), a.drainCommand(), a.readOnlyCommand(), a.backupCommand(), a.restoreCommand(), a.debugCommand(), a.versionCommand())
	root.PersistentFlags().StringVar(&a.runDir, "run-dir", defaultRunDir, "directory of the supervisor's sockets")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON document and nothing else")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	version := root.Flags().Bool("version", false, "print the version")
	group := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version && len(args) == 0 {
			return a.version()
		}
		return group(cmd, args)
	}
	root.RegisterFlagCompletionFunc("run-dir", directories)
	a.describe(root, "")
	a.checkCompletion(root)
	return root
}

// checkCompletion has the library's completion command refuse what it would
// answer with its help and success.
func (a *app) checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil || completion == root {
		return
	}
	completion.Args, completion.RunE, completion.SuggestionsMinimumDistance = cobra.ArbitraryArgs, onlyHolds, 2
	for _, shell := range completion.Commands() {
		shell.Args = exactly()
	}
}

// group is a command that only holds others.
func (a *app) group(use, short string, subs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, SuggestionsMinimumDistance: 2, Args: cobra.ArbitraryArgs, RunE: onlyHolds}
	g.AddCommand(subs...)
	return g
}

// nearest words which subcommand was probably meant, as the end of a sentence.
func nearest(cmd *cobra.Command, typed string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if w := near.Word(typed, names); w != "" {
		return "; did you mean " + w + "?"
	}
	if w := cmd.SuggestionsFor(typed); len(w) > 0 {
		return "; did you mean " + strings.Join(w, " or ") + "?"
	}
	return ""
}

// onlyHolds is what a command does that needs another one after it.
func onlyHolds(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		return usagef("a command is missing; one of: %s", strings.Join(names, ", "))
	}
	return usagef("unknown command %q%s", args[0], nearest(cmd, args[0]))
}

// changes adds the flags of a command that changes something.
func (a *app) changes(cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "check and show the outcome, change nothing")
		cmd.Flags().Uint64Var(&a.opts.At, "at", 0, "refuse unless the object still has this `version`")
	}
}

// exactly demands one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("needs %s", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return usagef("unexpected argument %q%s", args[len(names)], nearest(cmd, args[len(names)]))
		}
		return nil
	}
}

// usageError is a command line that cannot be understood: exit status 2.
type usageError struct{ text string }

func (u *usageError) Error() string { return u.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// oneOf refuses a value that is none of the permitted ones, and names those.
func oneOf(what, value string, permitted []string) error {
	if slices.Contains(permitted, value) {
		return nil
	}
	return usagef("%s is one of %s, not %q", what, list(permitted), value)
}

// flagError says which flag was probably meant, where one is unknown.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usagef("%s", err)
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return usagef("%s%s", err, beforeCommand(cmd))
	}
	best, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := near.Edits(unknown.GetSpecifiedName(), f.Name); d < distance {
			best, distance = f.Name, d
		}
	})
	if best == "" {
		return usagef("%s%s", err, beforeCommand(cmd))
	}
	return usagef("%s; did you mean --%s?", err, best)
}

// beforeCommand is the likely cause where a command line holds another one.
func beforeCommand(cmd *cobra.Command) string {
	if strings.Contains(cmd.Use, " -- COMMAND") {
		return "; put -- before COMMAND"
	}
	return ""
}

// call asks the socket that serves action. Its error is an *api.Refusal, a
// *usageError, or that of a cancelled context.
func (a *app) call(ctx context.Context, action api.Action, params any, o client.Options, onEvent func([]byte) error) ([]byte, error) {
	path, err := a.socket(string(api.ServedBy(action)))
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, api.Refuse(refusal.NotPermitted, "%q is not open to you; run this as root.", path)
	case err != nil:
		return nil, api.Refuse(refusal.Unreachable, "Nobody serves %q (%v); start posternd, or name its directory with --run-dir.", path, cause(err))
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	raw, err := c.Call(ctx, action, params, o, onEvent)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, api.Refuse(refusal.Busy, "No answer to %s in time; whether it took effect is unknown, look before you repeat it.", action)
	case errors.Is(err, client.ErrLost):
		return nil, api.Refuse(refusal.Unreachable, "%v; if this was a change, whether it took effect is unknown: look before you repeat it.", err)
	}
	return raw, err
}

// socket returns the path of a socket in the run directory.
func (a *app) socket(elem ...string) (string, error) {
	path := filepath.Join(append([]string{a.runDir}, elem...)...)
	if len(path) > socketMax {
		return "", usagef("--run-dir: %q is longer than the %d bytes that a socket's path may have", path, socketMax)
	}
	return path, nil
}

// cause is the last word of a chain: the kernel's.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// ask calls action and reads its result.
func ask[R any](ctx context.Context, a *app, action api.Action, params any, o client.Options) (R, error) {
	return askFor[R](ctx, a, callTimeout, action, params, o)
}

// askFor is ask with a time of its own.
func askFor[R any](ctx context.Context, a *app, wait time.Duration, action api.Action, params any, o client.Options) (R, error) {
	var r R
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	raw, err := a.call(ctx, action, params, o, a.progress)
	if err != nil {
		return r, err
	}
	if r, err = api.DecodeResult[R](raw); err != nil {
		return r, fmt.Errorf("%s: %w", action, err)
	}
	return r, nil
}

// progress shows the events of long work beside the output, not in it.
func (a *app) progress(raw []byte) error {
	if p, err := api.DecodeResult[api.Progress](raw); err == nil && p.Text != "" {
		a.goesOn(p.Text)
	}
	return nil
}

// goesOn tells whoever waits at a terminal how far it is. A log has no use for it: what
// came of the work is said at its end.
func (a *app) goesOn(text string) {
	if terminal(a.err) {
		fmt.Fprintf(a.err, "… %s\n", clean(text))
	}
}

// show prints v for a program, or calls table for a person.
func (a *app) show(v any, table func(t *table)) error {
	if a.opts.DryRun {
		fmt.Fprintln(a.err, "Nothing was changed: this was a dry run.")
	}
	if a.json {
		line, err := api.Encode(v)
		if err != nil {
			return err
		}
		_, err = a.out.Write(printable(line))
		return err
	}
	t := newTable(a.out)
	table(t)
	if err := t.flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// done prints the outcome of a change, for a person one sentence.
func (a *app) done(v any, format string, args ...any) error {
	return a.show(v, func(t *table) { t.line(a.would()+format, args...) })
}

// would stands before what a dry run did not do.
func (a *app) would() string {
	if a.opts.DryRun {
		return "Without --dry-run: "
	}
	return ""
}

// report says what went wrong, once on each stream that someone reads, and
// returns the exit status.
func (a *app) report(cmd *cobra.Command, err error) int {
	var r *api.Refusal
	var u *usageError
	var s *shown
	switch {
	case errors.As(err, &s):
		fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), clean(s.text))
		return s.status
	case errors.As(err, &r):
		row := refusal.Of(r.Code)
		fmt.Fprintf(a.err, "%s: %s (help: %s)\n", cmd.CommandPath(), clean(r.Error()), clean(r.Help))
		return a.fail(cmd, r, row.Exit)
	case errors.As(err, &u):
		end := "."
		if strings.HasSuffix(u.text, "?") {
			end = ""
		}
		fmt.Fprintf(a.err, "%s: %s%s See %q.\n", cmd.CommandPath(), clean(u.text), end, cmd.CommandPath()+" --help")
		return a.fail(cmd, api.Refuse(refusal.BadRequest, "%s", u.text), refusal.ExitUsage)
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(a.err, "%s: interrupted; if this was a change, look whether it took effect.\n", cmd.CommandPath())
		return a.fail(cmd, api.Refuse(refusal.CallCancelled, "Interrupted."), refusal.ExitFailed)
	}
	fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), clean(err.Error()))
	code := codeOf(err)
	return a.fail(cmd, api.Refuse(code, "%v", err), refusal.Of(code).Exit)
}

// fail tells the reader of standard output, who may be a program, and returns
// the status.
func (a *app) fail(cmd *cobra.Command, r *api.Refusal, status int) int {
	switch {
	case cmd.Name() == "connect":
		a.failRuntime(r)
		return refusal.ExitFailed
	case a.json:
		if line, err := api.Encode(map[string]any{"refusal": r}); err == nil {
			a.out.Write(printable(line))
		}
	}
	return status
}
