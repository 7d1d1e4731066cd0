//go:build man

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra/doc"
)

// main writes the manual pages of every command: `man DIR UNIX-TIME`. It is another program
// by a tag, so that the one that is installed does not carry what writes them.
func main() {
	if err := manPages(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func manPages(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: man DIR UNIX-TIME")
	}
	seconds, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	date := time.Unix(seconds, 0).UTC()
	root := (&app{in: os.Stdin, out: os.Stdout, err: os.Stderr}).root()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Postern", Manual: "Postern", Date: &date}, args[0])
}
