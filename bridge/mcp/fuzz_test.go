package mcp

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"
)

// seeds adds the lines of a file of testdata/seeds: shapes that have gone wrong in
// programs of this kind.
func seeds(f *testing.F, name string) {
	f.Helper()
	b, err := os.ReadFile("testdata/seeds/" + name)
	if err != nil {
		f.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		f.Add([]byte(strings.TrimSuffix(line, "\n")))
		n++
	}
	if n < 10 {
		f.Fatalf("%s has %d lines", name, n)
	}
}

// What a server lists is parted into tools that can be told apart by their names, and
// that are the bytes of the server, and the rest.
func FuzzCatalogue(f *testing.F) {
	seeds(f, "catalogue.txt")
	f.Fuzz(func(t *testing.T, line []byte) {
		var p Parser
		a, err := p.ReadAnswer(bytes.Clone(line))
		if err != nil || a.Kind != Response || a.Error != nil {
			return
		}
		page, err := a.ReadList(Tools.Member)
		if err != nil {
			return
		}
		good, bad := CheckTools(page.Items, 0)
		if len(good)+len(bad) != len(page.Items) {
			t.Fatalf("%q: %d good and %d bad of %d", line, len(good), len(bad), len(page.Items))
		}
		names := map[string]bool{}
		for _, d := range good {
			if names[d.Name] || d.Name == "" || len(d.Name) > MaxToolName || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") != "" {
				t.Fatalf("%q: the name %q", line, d.Name)
			}
			names[d.Name] = true
			var other struct{ Name string }
			if !json.Valid(d.Raw) || json.Unmarshal(d.Raw, &other) != nil || !bytes.Contains(line, d.Raw) {
				t.Fatalf("%q: the definition %q", line, d.Raw)
			}
			if other.Name != d.Name { // a parser that folds names sees another tool
				t.Fatalf("%q: %q is %q to another parser", line, d.Name, other.Name)
			}
		}
	})
}

// A path that is read out of a URI is the one that others read there.
func FuzzFilePath(f *testing.F) {
	for _, uri := range []string{"file:///workspace/a%20b", "FILE:/a", "file://localhost/a", "file://host/a", "file:///a?b#c", "file:///%", "file:a", "file:////a"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		path, ok := FilePath(uri)
		if !ok {
			return
		}
		u, err := url.Parse(uri)
		if err != nil {
			return // such as one with a control character, which whoever uses the path refuses
		}
		if !strings.EqualFold(u.Scheme, "file") || u.Host != "" && !strings.EqualFold(u.Host, "localhost") || u.RawQuery != "" || u.Fragment != "" || u.Path != path || path == "" || path[0] != '/' {
			t.Fatalf("%q: %q, and another reads %+v", uri, path, u)
		}
	})
}
