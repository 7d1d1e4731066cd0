package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"postern/refusal"
	"postern/supervisor/api"
)

// leaves gives f every command that does something, with its path without "postern".
func leaves(t *testing.T, f func(cmd *cobra.Command, path string)) {
	t.Helper()
	root := (&app{in: os.Stdin, out: os.Stdout, err: os.Stderr}).root()
	n := 0
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		if path == "completion" || path == "help" { // the library's own
			return
		}
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		if path != "" && (!cmd.HasSubCommands() || cmd.LocalNonPersistentFlags().HasFlags()) {
			n++
			f(cmd, path)
		}
	}
	walk(root, "")
	if n < 55 {
		t.Errorf("only %d commands were found", n)
	}
}

// Every command says what it does, who may run it, what it changes, and shows an example
// that its own flags and arguments understand.
func TestEveryCommandHasItsHelp(t *testing.T) {
	seen := map[string]bool{}
	leaves(t, func(cmd *cobra.Command, path string) {
		seen[path] = true
		if _, ok := helps[path]; !ok {
			t.Errorf("%s: has no row in helps", path)
			return
		}
		for _, want := range []string{"Who may: ", "Changes: "} {
			if !strings.Contains(cmd.Long, want) {
				t.Errorf("%s: its help does not say %q", path, want)
			}
		}
		if cmd.Example == "" {
			t.Errorf("%s: has no example", path)
		}
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "sudo "))
			if i := slices.IndexFunc(words, func(w string) bool { return w == "|" || w == ">" || w == "<" || strings.HasPrefix(w, "3>") || w == "#" }); i >= 0 {
				words = words[:i]
			}
			if i := slices.Index(words, "postern"); i > 0 && strings.Contains(strings.Join(words[:i], " "), "=") {
				words = words[i:]
			}
			if len(words) == 0 || words[0] != "postern" {
				continue
			}
			root := (&app{in: os.Stdin, out: &bytes.Buffer{}, err: &bytes.Buffer{}}).root()
			got, rest, err := root.Find(words[1:])
			if err != nil || strings.TrimPrefix(got.CommandPath(), "postern ") != path {
				t.Errorf("%s: its example %q is of another command", path, line)
				continue
			}
			if err := got.ParseFlags(rest); err != nil {
				t.Errorf("%s: its example %q: %v", path, line, err)
			} else if err := got.ValidateArgs(got.Flags().Args()); err != nil {
				t.Errorf("%s: its example %q: %v", path, line, err)
			}
		}
	})
	for path := range helps {
		if !seen[path] {
			t.Errorf("helps speaks of %q, which is no command", path)
		}
	}
}

// What a person can type, a shell can complete: every argument, and every flag that takes
// a value. A value that nobody can know offers nothing, and no file names either.
func TestEveryArgumentAndFlagIsCompleted(t *testing.T) {
	leaves(t, func(cmd *cobra.Command, path string) {
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			t.Errorf("%s: its arguments have no completion", path)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.Name != "run-dir" && f.Annotations[cobra.BashCompSubdirsInDir] == nil {
				t.Errorf("%s --%s: has no completion", path, f.Name)
			}
		})
	})
}

// A closed set of values that a flag's help names is offered whole.
func TestClosedSetsAreOffered(t *testing.T) {
	for line, want := range map[string][]string{
		"activity --state":                   activityStates,
		"connection grant demo fs x --tier":  tierNames,
		"server add x --scope":               {"project", "task"},
		"server add x --credential":          {"none", "required"},
		"server add x --profile":             {"node", "static"},
		"access set w --admission":           {"open", "restricted"},
		"access default w --preset":          presetNames,
		"access groups w":                    {"on", "off", "default"},
		"access set w x":                     levelNames,
		"project set x --execution-profile":  {"standard", "isolated-pod"},
		"project set x --person-bind":        {"on", "off"},
		"project member add demo ana --role": {"owner", "member", "viewer"},
		"task new --mode":                    {"search", "code", "auto"},
		"client-config --for":                {"claude", "codex", "gemini", "cursor", "vscode"},
		"access matrix --execution-profile":  {"standard", "isolated-pod"},
		"profile show":                       {"node", "static"},
		"top --sort":                         {"memory", "cpu"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"__complete", "--run-dir", t.TempDir()}, append(strings.Fields(line), "")...)
		run(context.Background(), args, os.Stdin, &out, &errs)
		got := strings.Fields(out.String())
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %q is not among %q", line, w, got)
			}
		}
	}
}

// A word that was nearly right is answered with the right one, of commands and of flags,
// at every level.
func TestWhatIsNearlyRightIsAnswered(t *testing.T) {
	for line, want := range map[string]string{
		"projct list": `did you mean project\?`, "project lsit": `did you mean list\?`, "project member ad x y": `did you mean add\?`, "activty": `did you mean activity\?`,
		"task new --projct x": `did you mean --project\?`, "ps --jsn": `did you mean --json\?`, "activity exprt": `did you mean export\?`,
		"activity --state denid": `one of admitted, .*denied`, "server add x --scop task": `did you mean --scope\?`,
	} {
		r := postern(t, strings.Fields(line)...)
		if r.status != 2 || r.stdout != "" || !regexp.MustCompile(want).MatchString(r.err) {
			t.Errorf("%s: status %d, %q%q", line, r.status, r.stdout, r.err)
		}
	}
}

// Each command is the subject of a script.
func TestEveryCommandHasAScript(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	var all []string
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(raw), "\n-- ")
		for line := range strings.Lines(script) {
			if strings.Contains(line, "postern") && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
	}
	leaves(t, func(_ *cobra.Command, path string) {
		// Flags of the program may stand before the command.
		says := regexp.MustCompile(`postern( --\S+( run| none)?)* ` + strings.ReplaceAll(regexp.QuoteMeta(path), " ", `( --\S+( run| none)?)* `) + `(\s|$)`)
		if !slices.ContainsFunc(all, says.MatchString) {
			t.Errorf("no script runs %q", path)
		}
	})
}

// Not one byte of an escape is written to a pipe, of whatever others have named.
func TestNoEscapesInAPipe(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("COLORTERM", "truecolor")
	t.Setenv("FORCE_COLOR", "1")
	dir := t.TempDir()
	answers := hostileAnswers()
	_, stop, err := serveFake(dir, answers)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for action, args := range commands {
		if slices.Contains(args, newDirectory) || answers[action] == nil {
			continue
		}
		for _, more := range [][]string{nil, {"--json"}} {
			r := postern(t, append(append([]string{"--run-dir", dir}, args...), more...)...)
			if strings.ContainsAny(r.stdout+r.err, "\x1b\x07\x08\u009b") {
				t.Errorf("%q %q writes a control character: %q%q", args, more, r.stdout, r.err)
			}
		}
	}
	leaves(t, func(_ *cobra.Command, path string) {
		if r := postern(t, append(strings.Fields(path), "--help")...); r.status != 0 || strings.Contains(r.stdout+r.err, "\x1b") {
			t.Errorf("%s --help: status %d, %q", path, r.status, r.err)
		}
	})
}

// hostileAnswers name things as somebody would who wants to be obeyed by a terminal.
func hostileAnswers() map[api.Action][]string {
	const evil = `ev\u001b[31mil\u0007\u009b2J`
	out := map[api.Action][]string{}
	for action, result := range map[api.Action]string{
		api.ProjectList: `{"projects":[{"label":"` + evil + `","project":"` + evil + `"}]}`, api.AccountList: `{"accounts":[{"name":"` + evil + `"}]}`,
		api.ProjectShow: `{"label":"` + evil + `","workspace":"` + evil + `"}`, api.ServerList: `{"servers":[{"label":"` + evil + `"}]}`,
		api.ConnectionList: `{"connections":[{"label":"` + evil + `"}]}`, api.ConnectionShow: `{"label":"` + evil + `","tools":[{"tool":"` + evil + `","description":"` + evil + `"}]}`,
		api.TaskList: `{"tasks":[{"task":"` + evil + `","principal":"` + evil + `"}]}`, api.Activity: `{"rows":[{"tool":"` + evil + `","reason":"` + evil + `"}]}`,
	} {
		out[action] = []string{`{"event":{"text":"` + evil + `"}}`, `{"result":` + result + `}`}
	}
	refused, _ := api.Encode(api.Refuse(refusal.NotPermitted, "ev\x1b[31mil"))
	out[api.ConnectionGrant] = []string{`{"refusal":` + strings.TrimSpace(string(refused)) + `}`}
	return out
}
