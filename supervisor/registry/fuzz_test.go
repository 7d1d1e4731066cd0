package registry

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"postern/item"
)

// What a bridge reports, which may be no catalogue at all, becomes pins that can be told
// apart, each of exactly the bytes that were reported, or an error.
func FuzzReadCatalogue(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[][]`, `[{"name":"a","inputSchema":{"type":"object"}}]`, `[{"name":"a","inputSchema":{}}][{"name":"a","arguments":[]}]`,
		`[{"name":"a","inputSchema":{}},{"name":"a","inputSchema":{}}]`, `[{"name":"a","Name":"b","inputSchema":{}}]`, `[{"name":"a","name":"b","inputSchema":{}}]`,
		`[{"name":"prompt:a","inputSchema":{}}][{"name":"a"}]`, `[null,7,"x",{}]`, `[{"name":"a","inputSchema":{}}`, `[] x`, `[{"name":"\ud800"}]`,
		`[{"name":"a","inputSchema":{},"annotations":{"readOnlyHint":"true","destructiveHint":true}}]`, `{"tools":[]}`,
		`[{"name":"re\u0430d_file","inputSchema":{}},{"name":"read_file\u200b","inputSchema":{}},{"name":"a\u0000b","inputSchema":{}},{"name":"` + strings.Repeat("n", 129) + `","inputSchema":{}}]`,
		`[{"name":"a","inputSchema":{"properties":{"cc":{}}},"annotations":{"readOnlyHint":true,"destructiveHint":true},"_meta":{"postern/granted":true},"granted":true}]`,
		`[{"name":"a","inputSchema":{"a":1,"a":2}}]`, `[{"name":"a","description":"\ud800","inputSchema":{}}]`, `[{"name":["a"],"inputSchema":[]}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pins, err := ReadCatalogue(bytes.Clone(data))
		if err != nil {
			return
		}
		if len(pins) > MaxListed {
			t.Fatalf("%d pins", len(pins))
		}
		seen := map[string]bool{}
		for _, p := range pins {
			if seen[p.Tool] || p.Tool == "" {
				t.Fatalf("%q: two pins, or none, are named %q", data, p.Tool)
			}
			seen[p.Tool] = true
			if p.Quarantine != "" {
				continue
			}
			kind, name := item.Split(p.Tool)
			if !Servable(name) || kind == item.Resource {
				t.Fatalf("%q: %q can be granted", data, p.Tool)
			}
			if sha256.Sum256(p.Raw) != p.Digest || !bytes.Contains(data, p.Raw) {
				t.Fatalf("%q: the pin of %q is of other bytes", data, p.Tool)
			}
		}
	})
}
