// Command gen writes the reference page of refusals to the file it is given.
//
// It is run by go generate in package refusal, with the privilege of whoever works
// on the tree, and reads no input. It is not part of a running Postern.
package main

import (
	"fmt"
	"os"

	"postern/refusal"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(refusal.Page()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
