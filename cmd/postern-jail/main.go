// Command postern-jail builds a jail around itself and becomes the program in
// it. The launcher starts it in fresh namespaces, with one document on
// descriptor 3; it takes no other instruction.
//
// It runs as root for a few milliseconds and is never visible in the jail.
// `postern-jail -steps` prints what it does, and why, in order.
package main

import (
	"fmt"
	"os"

	"postern/jail/stage"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-steps" {
		for i, s := range stage.Steps() {
			fmt.Printf("%2d  %-18s %s\n", i+1, s.Name, s.Why)
		}
		return
	}
	os.Exit(stage.Main())
}
