package gate

import (
	"slices"
	"strings"
	"testing"

	"postern/bridge/wire"
	"postern/policy/class"
	"postern/refusal"
)

// The record of a call that was refused for a path says which argument, and holds none of
// their values.
func TestC13_TheRecordNamesTheArgumentThatLiesOutside(t *testing.T) {
	names := class.ArgumentsOf("move_file").Names
	at := func(name string) byte { return byte(slices.Index(names, name)) }
	outside := Seen{Asked: true, Which: 1, Why: "it leads out of the directory"}
	two := &wire.Paths{List: []string{"a/secret", "../b"}, Under: []byte{at("source"), at("destination")}}
	for says, row := range map[string]struct {
		tool string
		p    *wire.Paths
		seen Seen
		want string
	}{
		"the second":                {"move_file", two, outside, "path argument 2 of 2 (destination): it leads out of the directory"},
		"without a name":            {"move_file", &wire.Paths{List: two.List}, outside, "path argument 2 of 2: it leads out of the directory"},
		"a name that is none":       {"move_file", &wire.Paths{List: two.List, Under: []byte{0, 255}}, outside, "path argument 2 of 2: it leads out of the directory"},
		"without a word":            {"move_file", two, Seen{Asked: true}, "path argument 1 of 2 (source): it lies outside"},
		"a place that is none":      {"move_file", two, Seen{Asked: true, Which: 2}, ""},
		"a place below all":         {"move_file", two, Seen{Asked: true, Which: -1}, ""},
		"one is missing":            {"move_file", &wire.Paths{List: []string{"a"}}, Seen{}, "1 path arguments, and the tool needs 2: it is missing"},
		"all are":                   {"read_file", &wire.Paths{}, Seen{}, "0 path arguments, and the tool needs 1: it is missing"},
		"what is no path":           {"read_file", &wire.Paths{Unreadable: true}, Seen{}, "a path argument is no path, or there are more or longer ones than may be"},
		"what the bridge left out":  {"read_file", nil, Seen{}, "its path arguments were not told"},
		"words that are no text":    {"read_file", &wire.Paths{List: []string{"a"}}, Seen{Asked: true, Why: "out\x1b[2J"}, `path argument 1 of 1: out\x1b[2J`},
		"what nobody was asked for": {"read_file", &wire.Paths{List: []string{"a"}}, Seen{}, ""},
	} {
		got := pathReason(row.tool, row.p, row.seen)
		if got != row.want || strings.Contains(got, "secret") || strings.Contains(got, "..") {
			t.Errorf("%s: %q", says, got)
		}
	}
	w := newWorld(t)
	w.probe(files, strings.TrimSuffix(catalogue, "]")+`,{"name":"move_file","inputSchema":{"type":"object"}}]`)
	w.grant(w.conn, class.Reversible, "move_file")
	m := wire.Admit{Session: w.ses, Connection: w.conn, Tool: "move_file", RequestID: "1", Paths: two}
	if d := w.g.Admit(shopSet, m, w.running(w.conn), outside); d.Code != refusal.PathOutside {
		t.Fatalf("%+v", d)
	}
	w.commit()
	records := w.records()
	if got := records[len(records)-1]; got.Code != refusal.PathOutside || got.Reason != "path argument 2 of 2 (destination): it leads out of the directory" {
		t.Errorf("%+v", got)
	}
	inside := Seen{Asked: true, Inside: true}
	if d := w.g.Admit(shopSet, m, w.running(w.conn), inside); d.Code != "" {
		t.Errorf("inside: %+v", d)
	}
}
