package control

import (
	"slices"
	"testing"

	"postern/policy/class"
	"postern/supervisor/registry"
)

func TestA7_AMarkOfAMisspeltToolIsTold(t *testing.T) {
	pin := func(raw string) *registry.Pin { return &registry.Pin{Raw: []byte(raw)} }
	cat := &registry.Catalogue{Order: []string{"write_file", "log_in"}, Tools: map[string]*registry.Pin{
		"write_file": pin(`{"name":"write_file","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}`),
		"log_in":     pin(`{"name":"log_in","inputSchema":{"type":"object","properties":{"user":{"anyOf":[{"type":"object","properties":{"pass_key":{}}}]}}}}`),
	}}
	classes := class.SetOf(class.FilesystemWrite)
	for says, row := range map[string]struct {
		rev  registry.RootRevision
		want []string
	}{
		"good names": {registry.RootRevision{Classes: map[string]class.Set{"write_file": classes}, Tiers: map[string]class.Tier{"log_in": class.Destructive}, Secret: []string{"/user/pass-Key", "path", "passkey"}}, nil},
		"misspelt": {registry.RootRevision{Classes: map[string]class.Set{"wriet_file": classes}, Tiers: map[string]class.Tier{"log_im": class.Destructive, "everything": class.Observe}, Secret: []string{"/user/pas_key", "colour"}}, []string{
			`the classes of "wriet_file": the server lists no such tool; did you mean write_file?`,
			`the tier of "everything": the server lists no such tool`,
			`the tier of "log_im": the server lists no such tool; did you mean log_in?`,
			`the secret field "/user/pas_key": no tool of the server lists an argument of this name; did you mean pass_key?`,
			`the secret field "colour": no tool of the server lists an argument of this name`}},
		"nothing declared": {registry.RootRevision{}, nil},
	} {
		if got := declaredForNothing(&row.rev, cat); !slices.Equal(got, row.want) {
			t.Errorf("%s:\n%q\nwant\n%q", says, got, row.want)
		}
		failed := *cat
		if failed.Error = "it ended"; declaredForNothing(&row.rev, &failed) != nil {
			t.Errorf("%s: a list that could not be had says something", says)
		}
	}
	cat.Tools["log_in"].Raw = []byte(`{"inputSchema":`)
	if got := declaredForNothing(&registry.RootRevision{Secret: []string{"path"}}, cat); got != nil {
		t.Errorf("beside a definition that is no JSON: %q", got)
	}
}
