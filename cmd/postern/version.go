package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version", Args: exactly(), RunE: func(*cobra.Command, []string) error { return a.version() }}
}

// versionDocument is what this program was built from.
type versionDocument struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the commit
	Modified bool   `json:"modified,omitempty"` // the tree had changes beside it
	Go       string `json:"go"`                 // the toolchain
}

func (a *app) version() error {
	v := versionDocument{Version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Go = info.GoVersion
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return a.show(v, func(t *table) { t.line("postern %s (%s)", v.Version, v.Go) })
}
