package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// Bounds of one check.
const (
	maxArguments = 16 << 20         // bytes of the arguments, or of what a hook is told
	maxPaths     = 256              // path arguments
	checkWait    = 20 * time.Second // for the answer; a hook that waits longer is given up by its runtime
)

// exitBlock is how a hook of Claude Code says that the tool must not be used; what
// stands on standard error is told to the model.
const exitBlock = 2

func (a *app) checkCommand() *cobra.Command {
	var p api.CheckParams
	var hook, file string
	var connectors []string
	cmd := &cobra.Command{Use: "check (--task T | --project P) (TOOL [--args-file F] | --hook claude)", Short: "may a runtime use a tool of its own now (for its hooks)",
		Long: `Asks whether a runtime may use a tool of its own, such as bash or write_file, by the rules that Postern's tools are under:
account, host, task, mode, execution profile, access policy, tier, path arguments. The answer is recorded.

With TOOL it ends with 0 where the tool may be used and with 65 where not. Path arguments are read from --args-file, a
JSON object of the tool's arguments ("-": standard input); relative paths begin where the command runs. Every rule that
refuses is shown, the one that decides first; --json has them under "rules".

With --hook claude it is a PreToolUse hook of Claude Code: it reads what the hook is told from standard input, and ends
with 0, or with 2 and the reason on standard error. Whatever goes wrong ends with 2.`}
	cmd.Flags().StringVar(&p.Task, "task", "", "the runtime's `task`")
	cmd.Flags().StringVar(&p.Project, "project", "", "the `project` in which your own task is asked about")
	cmd.Flags().BoolVar(&a.opts.DryRun, "dry-run", false, "ask without a record; no path is looked at")
	cmd.Flags().StringVar(&file, "args-file", "", "the tool's arguments, a JSON object in this `file`")
	cmd.Flags().StringVar(&hook, "hook", "", "answer as a hook of this `runtime`: claude")
	cmd.Flags().StringSliceVar(&connectors, "connector", nil, "let tools of this MCP server pass, which is postern connect under its `name` in the runtime: each call is decided there")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RegisterFlagCompletionFunc("hook", cobra.FixedCompletions([]string{"claude"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if hook != "" {
			return exactly()(cmd, args)
		}
		return exactly("TOOL")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case (p.Task == "") == (p.Project == ""):
			return usagef("needs --task T, or --project P")
		case slices.ContainsFunc(connectors, func(name string) bool { return !connectable(name) }):
			return usagef("--connector names a server that can be told from others: its name is not empty, does not end with _ and holds no %s", between)
		case hook == "" && len(connectors) > 0:
			return usagef("--connector belongs to --hook")
		case hook == "":
			p.Tool = args[0]
			if n, _, _ := class.OfNative(p.Tool); file == "" && len(n.Paths) > 0 {
				return usagef("%s has path arguments, which are judged too: needs --args-file", p.Tool)
			}
			return a.check(cmd.Context(), p, file)
		case hook != "claude":
			return usagef("--hook is claude, not %q", hook)
		case a.opts.DryRun:
			return usagef("--hook decides, and what decides is recorded; leave --dry-run out")
		case file != "" || a.json:
			return usagef("--hook reads standard input and prints no document; leave --args-file and --json out")
		}
		return a.claudeHook(cmd.Context(), p, connectors)
	}
	return cmd
}

// check answers on the command line.
func (a *app) check(ctx context.Context, p api.CheckParams, file string) error {
	if file != "" {
		raw, err := a.arguments(file)
		if err != nil {
			return err
		}
		here, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("the directory that relative paths begin at: %w", err)
		}
		if err := describeArguments(&p, raw, here); err != nil {
			return usagef("--args-file: %v", err)
		}
	}
	r, err := a.asked(ctx, p)
	if err != nil {
		return err
	}
	if err := a.show(r, func(t *table) {
		if r.Allowed {
			t.line("%s may be used", r.Tool)
		} else {
			t.line("%s may not be used: %s", r.Tool, list(append([]string{r.Code}, r.Also...)))
			if len(r.Rules) > 1 {
				t.row("RULE", "CODE", "WHY", "READ", "FROM")
				for _, x := range r.Rules {
					t.row(x.Rule, x.Code, sentence(x.Sentence), sentence(x.Read), sentence(x.From))
				}
			}
		}
	}); err != nil || r.Allowed {
		return err
	}
	return &shown{status: refusal.ExitRefused, text: r.why()}
}

type checked struct{ api.CheckResult }

// why is the refusal as a person or a model reads it.
func (r checked) why() string {
	if r.Refusal == nil {
		return "refused without a reason"
	}
	return withCode(r.Refusal)
}

// withCode is an error with the code and the help of its refusal.
func withCode(err error) string {
	var r *api.Refusal
	if !errors.As(err, &r) {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s, help: %s)", r.Error(), string(r.Code), r.Help)
}

// asked asks within checkWait. An answer that is neither yes nor a reason is no.
func (a *app) asked(ctx context.Context, p api.CheckParams) (checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	r, err := ask[api.CheckResult](ctx, a, api.Check, p, client.Options{DryRun: a.opts.DryRun})
	return checked{r}, err
}

func (a *app) arguments(file string) ([]byte, error) {
	var in io.Reader = a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("--args-file: %v", err)
		}
		defer f.Close()
		in = f
	}
	return readAtMost(in, maxArguments)
}

func readAtMost(in io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	if int64(len(raw)) > most {
		return nil, api.Refuse(refusal.TooLarge, "The arguments are longer than %d bytes.", most)
	}
	return raw, nil
}

// toldByClaude is what a PreToolUse hook of Claude Code is told. Other members may be
// there and are not looked at.
type toldByClaude struct {
	Event string         `json:"hook_event_name"`
	Cwd   string         `json:"cwd"`
	Tool  string         `json:"tool_name"`
	Input jsontext.Value `json:"tool_input"`
	Use   string         `json:"tool_use_id"`
}

// How Claude Code names a tool of an MCP server: mcp__SERVER__TOOL.
const (
	ofServer = "mcp__"
	between  = "__"
)

// certain tells whether the end of such a name is a tool's whole name, and no part of it
// the end of a longer server's name.
func certain(tool string) bool {
	return tool != "" && tool[0] != '_' && !strings.Contains(tool, between)
}

// connectable tells whether a server's name can be told from others in such a name.
func connectable(name string) bool {
	return name != "" && !strings.HasSuffix(name, "_") && !strings.Contains(name, between)
}

// claudeHook answers as a PreToolUse hook. It blocks whenever it is not told that the
// tool may be used.
func (a *app) claudeHook(ctx context.Context, p api.CheckParams, connectors []string) error {
	block := func(format string, args ...any) error {
		return &shown{status: exitBlock, text: "blocked by Postern: " + fmt.Sprintf(format, args...)}
	}
	raw, err := readAtMost(a.in, maxArguments)
	if err != nil {
		return block("%v", err)
	}
	var told toldByClaude
	if err := json.Unmarshal(raw, &told); err != nil {
		return block("what the hook was told cannot be read: %v", err)
	}
	switch {
	case told.Event != "PreToolUse":
		return block("this hook answers PreToolUse, not %q", told.Event)
	case told.Tool == "":
		return block("the hook was told no tool_name")
	case told.Cwd == "" || told.Cwd[0] != '/':
		return block("the hook was told no absolute cwd")
	}
	if named, of := strings.CutPrefix(told.Tool, ofServer); of {
		name, tool, ok := strings.Cut(named, between)
		switch ours := ok && slices.Contains(connectors, name); {
		case ours && certain(tool):
			return nil // the bridge asks about each call of it
		case ours:
			return block("%s may be a tool of %s, or of another server whose name begins so: a tool's name cannot begin with _ or hold %s here", told.Tool, name, between)
		}
		return block("%s is a tool of an MCP server that does not run under Postern", told.Tool)
	}
	p.Tool, p.RequestID = told.Tool, told.Use
	if err := describeArguments(&p, told.Input, told.Cwd); err != nil {
		return block("the arguments cannot be read: %v", err)
	}
	r, err := a.asked(ctx, p)
	switch {
	case err != nil:
		return block("%s", withCode(err))
	case !r.Allowed:
		return block("%s", r.why())
	}
	return nil
}

// describeArguments puts into p what a decision needs to know of the arguments: their
// size, their digest and the paths among them, relative ones from here on. The
// arguments themselves are sent nowhere.
func describeArguments(p *api.CheckParams, raw jsontext.Value, here string) error {
	var args map[string]jsontext.Value
	if err := json.Unmarshal(raw, &args); err != nil || args == nil {
		return fmt.Errorf("they are no JSON object with each name once")
	}
	sum := sha256.Sum256(raw)
	p.ArgsSize, p.ArgsDigest = int64(len(raw)), hex.EncodeToString(sum[:])
	native, _, _ := class.OfNative(p.Tool)
	base := here
	for _, arg := range native.Paths {
		value, ok := args[arg.Name]
		if !ok || value.Kind() == 'n' {
			continue
		}
		var paths []string
		if arg.List && value.Kind() == '[' {
			p.Unjudged = p.Unjudged || json.Unmarshal(value, &paths) != nil
		} else {
			var one string
			p.Unjudged = p.Unjudged || json.Unmarshal(value, &one) != nil
			if paths = []string{one}; arg.Patch {
				paths = patched(one)
				p.Unjudged = p.Unjudged || len(paths) == 0
			}
		}
		// A hook that takes long is given up by its runtime, which goes on without it.
		p.Unjudged = p.Unjudged || len(paths) > maxPaths
		for _, path := range paths {
			if p.Unjudged || len(p.Paths) > maxPaths {
				break
			}
			if !arg.Pattern {
				full, plain := from(here, path)
				p.Paths, p.Unjudged, base = append(p.Paths, full), p.Unjudged || !plain, full
				continue
			}
			starts, readable := begins(path)
			p.Unjudged = p.Unjudged || !readable
			for _, start := range starts {
				if start == "" {
					continue // beneath where it begins, whatever it matches
				}
				full, plain := from(base, start)
				if p.Unjudged = p.Unjudged || !plain; !slices.Contains(p.Paths, full) {
					p.Paths = append(p.Paths, full)
				}
			}
		}
	}
	if !p.Unjudged && len(p.Paths) == 0 && len(native.Paths) > 0 {
		if native.Paths[0].Patch {
			p.Unjudged = true // there is no place where a patch is made that is not there
		}
		p.Paths = []string{here} // where a tool looks that is told no path
	}
	if p.Unjudged || len(p.Paths) > maxPaths {
		p.Paths, p.Unjudged = nil, true
	}
	return nil
}

// patched are the files that a patch names, as Codex writes it: in lines of their own,
// whatever stands around them. A line of a changed file that looks like one is taken for
// one, because readers differ in how they look at the blanks before it.
func patched(text string) (files []string) {
	for line := range strings.Lines(text) {
		head, name, named := strings.Cut(strings.TrimSpace(line), ":")
		if mark, what, ok := strings.Cut(head, " "); named && ok && mark == "***" && slices.Contains(patchHeads, strings.ToLower(strings.Join(strings.Fields(what), " "))) {
			files = append(files, strings.TrimSpace(name))
		}
	}
	return files
}

var patchHeads = []string{"add file", "update file", "delete file", "move to"}

// from puts a relative path beneath the directory it begins at. It tells false for
// what a runtime may read as something else: a home, a URL, white space or quotes
// that are cut off.
func from(here, path string) (string, bool) {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case path == "":
		return "", false
	case path[0] == '/':
		return path, true
	case path[0] == '~', strings.ContainsRune(first, ':'), path != strings.Trim(path, " \t\r\n\v\f\u0085\u00a0\ufeff\"'`"):
		return "", false
	}
	return here + "/" + path, true
}
