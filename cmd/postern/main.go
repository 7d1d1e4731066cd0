// Command postern is the person's and the operator's way to a running Postern,
// and, as postern connect, the command in a runtime's MCP configuration.
//
// It runs with the privilege of whoever calls it and holds no authority: who the
// caller is, the sockets learn from the kernel. What it shows was named by
// projects, tool servers and other people, so names are escaped before they
// reach a terminal. A token passes through it from one descriptor to another.
//
// Invariants:
//   - cli-1: with --json, standard output holds one document and nothing else, whatever happens.
//   - cli-2: the exit status of a refusal is the one of the closed table; connect ends with 0 or 1 only.
//   - cli-3: a token is never printed, never an argument, never part of an error.
//   - cli-4: text of others reaches a terminal without control characters.
//   - cli-5: connect sends descriptors only where both are a pipe or a connected stream socket of the right direction.
//
// It is not where anything is decided: it asks supervisor/api's actions over
// supervisor/client and shows the answer.
package main

import (
	"context"
	"io"
	"os"
)

// run is the whole program: arguments in, exit status out.
func run(ctx context.Context, args []string, in *os.File, out, errw io.Writer) int {
	a := &app{in: in, out: out, err: errw}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	a.json = a.json || wantsJSON(args)
	return a.report(cmd, err)
}

// wantsJSON finds --json in arguments that could not be parsed.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}
