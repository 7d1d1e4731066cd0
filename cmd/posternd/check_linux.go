package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"postern/profiles"
	"postern/refusal"
	"postern/supervisor/config"
	"postern/supervisor/launch"
)

// checked is what -check tells a program.
type checked struct {
	File     string           `json:"file"`     // postern.yaml
	Found    bool             `json:"found"`    // it is there
	Mistakes []config.Mistake `json:"mistakes"` // of every file; with one nothing is started
	Settings []config.Said    `json:"settings"` // what is set, and where
}

// check tells every mistake that can be told without starting anything, and, where there
// is none, what is set where and when it takes effect.
func check(cfg launch.Config, said []config.Said, mistakes []error, asJSON bool, out, errw io.Writer) int {
	if asJSON {
		doc := checked{File: cfg.File, Found: cfg.FileFound, Mistakes: []config.Mistake{}, Settings: append([]config.Said{}, said...)}
		for _, err := range mistakes {
			doc.Mistakes = append(doc.Mistakes, each(err)...)
		}
		raw, err := json.Marshal(doc)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", raw)
		}
		if err != nil {
			return report(errw, []error{err})
		}
		if len(mistakes) > 0 {
			return refusal.ExitConfig
		}
		return 0
	}
	if len(mistakes) > 0 {
		return report(errw, mistakes)
	}
	for _, s := range said {
		when := "takes effect within seconds"
		if s.Restart {
			when = "takes effect at a restart"
		}
		fmt.Fprintf(out, "%s:%d: %s: %s\n", s.File, s.Line, s.Key, when)
	}
	fmt.Fprintf(out, "%s: no mistakes, %d profiles\n", cfg.File, len(cfg.Profiles))
	return 0
}

// each takes a joined error apart into the mistakes that it is of.
func each(err error) []config.Mistake {
	var own config.Mistake
	var profile profiles.Mistake
	var policy launch.AccessMistake
	var name launch.NameMistake
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []config.Mistake
		for _, e := range many.Unwrap() {
			out = append(out, each(e)...)
		}
		return out
	}
	switch {
	case errors.As(err, &own):
		return []config.Mistake{own}
	case errors.As(err, &profile):
		return []config.Mistake{{File: profile.File, Line: profile.Line, Key: profile.Key, Want: profile.Want}}
	case errors.As(err, &policy):
		return []config.Mistake{{File: policy.File, Line: policy.Line, Key: policy.Key, Want: policy.Want}}
	case errors.As(err, &name):
		return []config.Mistake{{File: name.File, Want: name.Want}}
	}
	return []config.Mistake{{Want: strings.ReplaceAll(err.Error(), "\n", "; ")}}
}
