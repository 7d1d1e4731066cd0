package registry

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/policy/class"
)

func TestOneBadToolHidesNoOther(t *testing.T) {
	pins, err := ReadCatalogue([]byte(`[
		{"name":"good","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":false,"category":"x"}},
		{"name":"schema","inputSchema":"object"},
		{"name":7,"inputSchema":{}},
		{"inputSchema":{}},
		"text",
		{"name":"twice","name":"good2","inputSchema":{}},
		{"name":"re` + "\u0430" + `d_file","inputSchema":{}},
		{"name":"zero` + "\u200b" + `","inputSchema":{}},
		{"name":"a/b","inputSchema":{}},
		{"name":"same","inputSchema":{}},
		{"name":"same","inputSchema":{"x":1}},
		{"name":"deep","inputSchema":{"a":{"b":1,"b":2}}},
		{"name":"bad` + "\xff" + `","inputSchema":{}},
		{"name":"big","inputSchema":{"x":"` + strings.Repeat("x", MaxDefinition) + `"}},
		{"name":"claims","inputSchema":{},"annotations":{"readOnlyHint":"true","read_only_hint":true,"ReadOnlyHint":true,"destructiveHint":null}},
		{"name":"odd","inputSchema":{},"annotations":[true]},
		{"Name":"case","inputSchema":{}},
		{"name":"last","inputSchema":{},"annotations":{"readOnlyHint":false,"destructiveHint":true}}
	]`))
	if err != nil {
		t.Fatal(err)
	}
	var fine []string
	bad := 0
	for _, p := range pins {
		if p.Quarantine == "" {
			fine = append(fine, p.Tool)
		} else {
			bad++
		}
		if p.Quarantine == "" && !Servable(p.Tool) {
			t.Errorf("%q can be granted", p.Tool)
		}
	}
	if got := strings.Join(fine, " "); got != "good claims odd last" || bad != 13 {
		t.Fatalf("fine: %s; %d quarantined of %d", got, bad, len(pins))
	}
	for _, p := range pins {
		h := [2]class.Claim{class.Claim(p.ReadOnly), class.Claim(p.Destructive)}
		want := map[string][2]class.Claim{"good": {class.Yes, class.No}, "last": {class.No, class.Yes}}[p.Tool]
		if p.Quarantine == "" && h != want {
			t.Errorf("%s: %v, want %v", p.Tool, h, want)
		}
	}
}

func TestAListThatIsNoListIsRefused(t *testing.T) {
	for _, raw := range []string{"", "{}", "null", `[{"name":"x"`, `[{"name":"x"},]`, "[" + strings.Repeat("{},", MaxListed) + "{}]", strings.Repeat(" ", MaxCatalogue+1)} {
		if pins, err := ReadCatalogue([]byte(raw)); err == nil {
			t.Errorf("%.30q: %d pins", raw, len(pins))
		}
	}
	if pins, err := ReadCatalogue([]byte("[]")); err != nil || len(pins) != 0 {
		t.Errorf("an empty list: %v", err)
	}
}

// A property and not a fuzz target: instrumenting the store below this package
// would take minutes.
func TestAnyListMakesPinsThatCanBeTold(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"[", "]", "{", "}", ",", ":", `"name"`, `"x"`, `"y"`, `"inputSchema":{}`, `{"name":"x","inputSchema":{}}`, `{"name":"x"}`,
		`"annotations":{"readOnlyHint":true}`, "null", "true", "1e999", `"\u0000"`, `"\ud800"`, "\xff", " ", `{"name":"(2)","inputSchema":{}}`, "{}"})
	rapid.Check(t, func(t *rapid.T) {
		raw := strings.Join(rapid.SliceOfN(pieces, 0, 30).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "list") {
			raw = "[" + strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "items"), ",") + "]"
		}
		pins, err := ReadCatalogue([]byte(raw))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, p := range pins {
			if seen[p.Tool] || p.Tool == "" || p.Quarantine == "" && !Servable(p.Tool) {
				t.Fatalf("%q: %+v", raw, p)
			}
			seen[p.Tool] = true
		}
	})
}
