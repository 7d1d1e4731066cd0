package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"postern/ids"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

// stanza is how one client wants a command written down.
type stanza struct {
	client, file string
	text         func(command string, args []string) (string, error)
}

// stanzas in the order of the help text.
var stanzas = []stanza{
	{"claude", ".mcp.json in the project, or ~/.claude.json", jsonStanza("mcpServers", true, true)},
	{"codex", "~/.codex/config.toml", tomlStanza},
	{"gemini", "~/.gemini/settings.json, or .gemini/settings.json in the project; either is read in a trusted folder only", jsonStanza("mcpServers", false, false)},
	{"cursor", ".cursor/mcp.json in the project, or ~/.cursor/mcp.json", jsonStanza("mcpServers", false, false)},
	{"vscode", ".vscode/mcp.json in the project", jsonStanza("servers", true, false)},
}

func (a *app) clientConfigCommand() *cobra.Command {
	var project, client string
	var names []string
	for _, s := range stanzas {
		names = append(names, s.client)
	}
	cmd := &cobra.Command{Use: "client-config --project P --for " + strings.Join(names, "|"), Short: "what to write into a runtime's MCP configuration", Args: exactly()}
	cmd.Flags().StringVar(&project, "project", "", "the `project`, by id or label")
	cmd.Flags().StringVar(&client, "for", "", "the `client`: "+list(names))
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if project == "" || client == "" {
			return usagef("needs --project and --for (%s)", list(names))
		}
		for _, s := range stanzas {
			if s.client == client {
				return a.clientConfig(cmd, s, project)
			}
		}
		return usagef("--for is one of %s, not %q", list(names), client)
	}
	return cmd
}

func (a *app) clientConfig(cmd *cobra.Command, s stanza, project string) error {
	id, err := a.resolve(cmd.Context(), project)
	if err != nil {
		return err
	}
	a.noteBind(cmd.Context(), id)
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	args := []string{"connect", "--project", string(id)}
	if a.runDir != defaultRunDir {
		dir, err := filepath.Abs(a.runDir)
		if err != nil {
			return err
		}
		args = append(args, "--run-dir", dir)
	}
	text, err := s.text(program, args)
	if err != nil {
		return err
	}
	if a.json {
		return a.show(clientConfigDocument{Args: args, Command: program, File: s.file, For: s.client, Text: text}, nil)
	}
	fmt.Fprintf(a.err, "For %s:\n", s.file)
	_, err = fmt.Fprint(a.out, text)
	return err
}

// clientConfigDocument is what a runtime's configuration needs.
type clientConfigDocument struct {
	Args    []string `json:"args"`    // of command
	Command string   `json:"command"` // this program, by its path
	File    string   `json:"file"`    // where the runtime reads it
	For     string   `json:"for"`     // claude, codex, gemini, cursor or vscode
	Text    string   `json:"text"`    // what goes into the file
}

// noteBind says beforehand that what is printed cannot work by itself. Where
// nobody serves, or the project is not shown to this person, it says nothing.
func (a *app) noteBind(ctx context.Context, id ids.Project) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	p, err := ask[api.ProjectShowResult](ctx, a, api.ProjectShow, api.Selected{Selector: string(id)}, client.Options{})
	if err == nil && !p.PersonBind {
		fmt.Fprintf(a.err, "person bind is off for this project: a runtime needs a token, or root runs: postern project set %s --person-bind on\n", id)
	}
}

// jsonStanza is the shape of most clients.
func jsonStanza(member string, withType, withEnv bool) func(string, []string) (string, error) {
	return func(command string, args []string) (string, error) {
		server := struct {
			Type    string             `json:"type,omitempty"`
			Command string             `json:"command"`
			Args    []string           `json:"args"`
			Env     *map[string]string `json:"env,omitempty"`
		}{Command: command, Args: args}
		if withType {
			server.Type = "stdio"
		}
		if withEnv {
			server.Env = &map[string]string{}
		}
		raw, err := json.MarshalIndent(map[string]any{member: map[string]any{"postern": server}}, "", "  ")
		return string(raw) + "\n", err
	}
}

func tomlStanza(command string, args []string) (string, error) {
	c, err := tomlValue(command)
	if err != nil {
		return "", err
	}
	list, err := tomlValue(args)
	return fmt.Sprintf("[mcp_servers.postern]\ncommand = %s\nargs = %s\n", c, list), err
}

// tomlValue writes strings. A JSON string is also a TOML basic string, but for DEL, which
// only the latter wants escaped (TOML 1.0.0, "String").
func tomlValue(v any) (string, error) {
	raw, err := json.Marshal(v)
	return strings.ReplaceAll(string(raw), "\x7f", `\u007f`), err
}
