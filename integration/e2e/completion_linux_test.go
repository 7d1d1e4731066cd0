package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a shell asks is answered by what is there, through the script that the package
// installs, in the shell itself: bash, zsh and fish.
func TestCompletion_ShellsOfferWhatIsThere(t *testing.T) {
	w := newWorld(t)
	_, task := w.token(w.a, runtimeUID)
	dir := t.TempDir()
	scripts := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, _, exit := w.CLI(0, "completion", shell)
		if exit != 0 {
			t.Fatalf("completion %s: exit %d", shell, exit)
		}
		scripts[shell] = filepath.Join(dir, "postern."+shell)
		if err := os.WriteFile(scripts[shell], []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows := []struct {
		says, line   string
		want, absent []string
	}{
		{"commands", "postern conn", []string{"connect", "connection"}, []string{"task"}},
		{"projects", "postern --run-dir %s project show ", []string{"a", "b"}, []string{"count"}},
		{"servers", "postern --run-dir %s server show ", []string{"count"}, []string{"a"}},
		{"servers of a project", "postern --run-dir %s connection show a ", []string{"count"}, nil},
		{"tools", "postern --run-dir %s connection grant a count ec", []string{"echo"}, []string{"slow"}},
		{"tasks", "postern --run-dir %s task revoke ", []string{task}, []string{"a"}},
		{"a flag's values", "postern --run-dir %s connection grant a count echo --tier ", []string{"observe", "reversible", "destructive"}, nil},
		{"profiles", "postern --run-dir %s server add x --profile stat", []string{"static"}, []string{"node"}},
	}
	for shell, ask := range map[string]func(line string) *exec.Cmd{
		// As readline does: the words of the line, which of them, and what then stands in COMPREPLY.
		"bash": func(line string) *exec.Cmd {
			return shellOf("bash", "--norc", "-c", `source /usr/share/bash-completion/bash_completion; source "$1"
COMP_LINE=$2; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; read -ra COMP_WORDS <<<"$2"; [[ $2 != *' ' ]] || COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_postern postern "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}"`, "bash", scripts["bash"], line)
		},
		// The function of the script, with what it would hand to the shell's own lister printed.
		"zsh": func(line string) *exec.Cmd {
			return shellOf("zsh", "-f", "-c", `autoload -Uz compinit; compinit -u -D; source "$1"
_describe() { print -rl -- ${(M)completions:#${words[CURRENT]}*} }
words=(${(z)2}); [[ $2 != *' ' ]] || words+=(''); CURRENT=$#words; _postern`, "zsh", scripts["zsh"], line)
		},
		"fish": func(line string) *exec.Cmd {
			return shellOf("fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, scripts["fish"], line)
		},
	} {
		if _, err := exec.LookPath(shell); err != nil || shell == "bash" && !isFile("/usr/share/bash-completion/bash_completion") {
			if os.Getenv("CI") == "true" {
				t.Errorf("%s, or what its completion stands on, is not here", shell)
			}
			continue
		}
		for _, row := range rows {
			line := row.line
			if strings.Contains(line, "%s") {
				line = fmt.Sprintf(line, w.RunDir)
			}
			cmd := ask(line)
			cmd.Env = []string{"PATH=" + w.Bin + ":/usr/bin:/bin", "HOME=" + dir, "TERM=dumb", "XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir}
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil && shell != "zsh" { // the status of its last function says whether something was added
				t.Errorf("%s, %s: %v\n%s", shell, row.says, err, out)
			}
			var got []string
			for line := range strings.Lines(string(out)) {
				word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				word, _, _ = strings.Cut(word, ":") // what zsh shows beside it
				word, _, _ = strings.Cut(word, " ") // bash too
				got = append(got, word)
			}
			for _, want := range row.want {
				if !slices.Contains(got, want) {
					t.Errorf("%s, %s: %q is not offered for %q\n%s", shell, row.says, want, line, out)
				}
			}
			for _, no := range row.absent {
				if slices.Contains(got, no) {
					t.Errorf("%s, %s: %q is offered for %q", shell, row.says, no, line)
				}
			}
		}
	}
}

// shellOf runs a shell for no longer than an answer may take.
func shellOf(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { cancel(); return cmd.Process.Kill() }
	return cmd
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
