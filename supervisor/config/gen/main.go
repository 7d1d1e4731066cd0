// Command gen writes what the tables of keys make into the tree whose root it is given: of
// postern.yaml the page, the manual and the schema, and the schemas of a profile and of the
// access policy.
//
// It is run by go generate in package config, with the privilege of whoever works on the
// tree, and reads of it docs/profiles.md, which says what each key of a profile is. It is
// not part of a running Postern.
package main

import (
	"encoding/json"
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
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := made(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// made gives every file by its name below root.
func made(root string) (map[string][]byte, error) {
	own, err := config.Schema()
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/profiles.md"))
	if err != nil {
		return nil, err
	}
	profile, err := profileSchema(string(page))
	if err != nil {
		return nil, err
	}
	policy, err := accessSchema()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"docs/configuration.md":                []byte(config.Page()),
		"packaging/man/postern.yaml.5.md":      []byte(config.Manual()),
		"packaging/schema/postern.schema.json": own,
	}
	for name, schema := range map[string]map[string]any{"profile": profile, "access": policy} {
		schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		schema["title"] = "Postern: " + map[string]string{"profile": "a profile of profiles.d", "access": "access.yaml"}[name]
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return nil, err
		}
		files["packaging/schema/"+name+".schema.json"] = append(text, '\n')
	}
	return files, nil
}
