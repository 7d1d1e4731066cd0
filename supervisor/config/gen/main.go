// Command gen writes what the table of postern.yaml's keys makes into the tree whose root
// it is given: the page, the manual and the schema.
//
// It is run by go generate in package config, with the privilege of whoever works on the
// tree, and reads no input. It is not part of a running Postern.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"postern/supervisor/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen ROOT")
		os.Exit(2)
	}
	schema, err := config.Schema()
	for name, text := range map[string][]byte{
		"docs/configuration.md":                []byte(config.Page()),
		"packaging/man/postern.yaml.5.md":      []byte(config.Manual()),
		"packaging/schema/postern.schema.json": schema,
	} {
		path := filepath.Join(os.Args[1], name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
