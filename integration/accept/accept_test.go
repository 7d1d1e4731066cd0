package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// All that was agreed is as agreed; and what differs, or cannot be tried, is not
// counted as passed.
func TestX1_EveryScenarioIsAsAgreed(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("the scenarios need root")
		}
		t.Skip("the scenarios need root")
	}
	all := append(scenarios(),
		scenario{name: "lie", run: func(*stage) (string, bool, error) { return "something else", false, nil }},
		scenario{name: "nothing", notRun: "nowhere"})
	var out bytes.Buffer
	different, err := accept("", all, &out)
	if err != nil {
		t.Fatal(err)
	}
	if different != len(clients) || strings.Count(out.String(), "DIFFERENT\n") != len(clients) {
		t.Errorf("%d differ, and what lies does so %d times\n%s", different, len(clients), out.String())
	}
	passed, notRun := strings.Count(out.String(), ": passed\n"), strings.Count(out.String(), ": not run\n")
	for _, s := range all {
		if s.run != nil && s.name != "lie" {
			passed -= len(clients)
		}
		if s.notRun != "" {
			notRun--
		}
	}
	if passed != 0 || notRun != 0 {
		t.Errorf("%d too many passed, %d too many not run\n%s", passed, notRun, out.String())
	}
}
