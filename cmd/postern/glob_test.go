package main

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"postern/supervisor/api"
)

// What a pattern of a runtime's own tool can match is judged by where it begins; one
// that can lead elsewhere is not judged, and so refused.
func TestC13_PatternsAreJudgedByWhereTheyBegin(t *testing.T) {
	for _, row := range []struct {
		tool, args string
		want       []string // nil: it cannot be judged
	}{
		{"Glob", `{"pattern":"**/*.go"}`, []string{"/w"}},
		{"Glob", `{"pattern":"src/**/*.go"}`, []string{"/w/src"}},
		{"Glob", `{"pattern":"*.{js,ts}"}`, []string{"/w"}},
		{"Glob", `{"pattern":"*.{d.ts,test.ts}"}`, []string{"/w"}},
		{"Glob", `{"pattern":"link/*","path":"/w/sub"}`, []string{"/w/sub", "/w/sub/link"}},
		{"Glob", `{"pattern":"/etc/*"}`, []string{"/etc"}},
		{"Glob", `{"pattern":"/*/passwd"}`, []string{"/"}},
		{"Glob", `{"pattern":"/etc/*","path":"/w"}`, []string{"/w", "/etc"}},
		{"glob", `{"pattern":"/etc/*","dir_path":"sub"}`, []string{"/w/sub", "/etc"}},
		{"read_many_files", `{"include":["a/b.go","/etc/**"]}`, []string{"/w/a/b.go", "/etc"}},
		{"Glob", `{"pattern":"../*"}`, nil},
		{"Glob", `{"pattern":"*/../../etc/*"}`, nil},
		{"Glob", `{"pattern":"{/etc,src}/*"}`, nil},
		{"Glob", `{"pattern":"{..,src}/*"}`, nil},
		{"Glob", `{"pattern":"~/*"}`, nil},
		{"Glob", `{"pattern":7}`, nil},
		{"read_many_files", `{"paths":["a","../b"]}`, nil},
	} {
		p := api.CheckParams{Tool: row.tool}
		if err := describeArguments(&p, jsontext.Value(row.args), "/w"); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Paths, row.want) || p.Unjudged != (row.want == nil) {
			t.Errorf("%s %s: %q, unjudged %v, want %q", row.tool, row.args, p.Paths, p.Unjudged, row.want)
		}
	}
}
