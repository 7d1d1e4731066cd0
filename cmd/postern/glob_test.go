package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
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
		{"search_file_content", `{"pattern":"../x","include":"*.{ts,js}"}`, []string{"/w"}},
		{"search_file_content", `{"pattern":"x","dir_path":"sub","include":"lib/*.go"}`, []string{"/w/sub", "/w/sub/lib"}},
		{"search_file_content", `{"pattern":"x","include":"/etc/*"}`, []string{"/etc"}},
		{"search_file_content", `{"pattern":"x","include":"../*"}`, nil},
		{"Glob", `{"pattern":"../*"}`, nil},
		{"Glob", `{"pattern":"*/../../etc/*"}`, nil},
		{"Glob", `{"pattern":"{/etc,src}/*"}`, []string{"/etc", "/w/src"}},
		{"Glob", `{"pattern":"{..,src}/*"}`, nil},
		{"Glob", `{"pattern":"~/*"}`, nil},

		// What braces, escapes and classes of one character spell is a name to a matcher.
		{"Glob", `{"pattern":"{src,lib}/*.{ts,js}"}`, []string{"/w/src", "/w/lib"}},
		{"Glob", `{"pattern":"{.github,.gitlab}/*"}`, []string{"/w/.github", "/w/.gitlab"}},
		{"Glob", `{"pattern":"app/(auth)/[id]/page.tsx"}`, []string{"/w/app/(auth)"}},
		{"Glob", `{"pattern":"app/(a)/(b)/*"}`, []string{"/w/app/(a)/(b)"}},
		{"Glob", `{"pattern":"@(a|b)/+(c)/*"}`, []string{"/w"}},
		{"Glob", `{"pattern":".*/.?*/[!.]*"}`, []string{"/w"}},
		{"Glob", `{"pattern":"{,x}/etc/*"}`, []string{"/etc", "/w/x/etc"}},
		{"Glob", `{"pattern":"{,/}etc/*"}`, []string{"/w/etc", "/etc"}},
		{"Glob", `{"pattern":"{a,{b,/etc}}/*"}`, []string{"/w/a", "/w/b", "/etc"}},
		{"Glob", `{"pattern":"{link,x}/*"}`, []string{"/w/link", "/w/x"}},
		{"Glob", `{"pattern":"[l]in[\\k]/*"}`, []string{"/w/link"}},
		{"Glob", `{"pattern":"\\link/*"}`, []string{"/w/link"}},
		{"Glob", `{"pattern":".{.,x}/*"}`, nil},
		{"Glob", `{"pattern":"{.,a}{.,b}/*"}`, nil},
		{"Glob", `{"pattern":"src/*/.{x,.}/../*"}`, nil},
		{"Glob", `{"pattern":"[.]./*"}`, nil},
		{"Glob", `{"pattern":"[.][\\.]/*"}`, nil},
		{"Glob", `{"pattern":"\\.\\./*"}`, nil},
		{"Glob", `{"pattern":"{\\.\\.,x}/*"}`, nil},
		{"Glob", `{"pattern":"@(.)./*"}`, nil},
		{"Glob", `{"pattern":"@(../x|y)/*"}`, nil},
		{"Glob", `{"pattern":"[~]/*"}`, nil},
		{"Glob", `{"pattern":"${a,b}/*"}`, nil},
		{"Glob", `{"pattern":"{a}/*"}`, nil},
		{"Glob", `{"pattern":"{a,b/*"}`, nil},
		{"Glob", `{"pattern":"a,b}/*"}`, nil},
		{"Glob", `{"pattern":"a\\/*"}`, nil},
		{"Glob", `{"pattern":"` + strings.Repeat("{a,b}", 8) + `/*","path":"/w"}`, nil}, // with its path one too many
		{"Glob", `{"pattern":"` + strings.Repeat("{a,b}", 600) + `"}`, nil},
		{"Glob", `{"pattern":"` + strings.Repeat("{", 2000) + `a,b` + strings.Repeat("}", 2000) + `"}`, nil},
		{"Glob", `{"pattern":"` + strings.Repeat("a", maxPattern+1) + `"}`, nil},
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

// The files of a patch are judged like any other tool's.
func TestC13_APatchIsJudgedByTheFilesThatItNames(t *testing.T) {
	for text, want := range map[string][]string{
		"*** Begin Patch\n*** Add File: a/b.go\n+x\n*** End Patch":                                                       {"/w/a/b.go"},
		"*** Begin Patch\n*** Update File: a.go\n*** Move to: b.go\n@@\n-x\n+*** y\n*** Delete File: c\n*** End Patch\n": {"/w/a.go", "/w/b.go", "/w/c"},
		"*** Begin Patch\r\n*** Update File: /etc/passwd\r\n@@\r\n-x\r\n*** End Patch":                                   {"/etc/passwd"},
		"*** Begin Patch\n  *** Delete File: ../x \n*** End Patch":                                                       {"/w/../x"},
		"*** Begin Patch\n*** Add File:\n*** End Patch":                                                                  nil,
		"*** Begin Patch\n*** Add File: ~/x\n*** End Patch":                                                              nil,
		"*** Begin Patch\n*** End Patch":                                                                                 nil,
		"":                                                                                                               nil,
	} {
		for _, name := range []string{"input", "patch"} {
			args, err := json.Marshal(map[string]string{name: text})
			if err != nil {
				t.Fatal(err)
			}
			p := api.CheckParams{Tool: "apply_patch"}
			if err := describeArguments(&p, args, "/w"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Paths, want) || p.Unjudged != (want == nil) {
				t.Errorf("%q: %q, unjudged %v, want %q", text, p.Paths, p.Unjudged, want)
			}
		}
	}
	for _, args := range []string{`{}`, `{"input":7}`, `{"input":null}`, `{"changes":{"/etc/passwd":{}}}`} {
		p := api.CheckParams{Tool: "apply_patch"}
		if err := describeArguments(&p, jsontext.Value(args), "/w"); err != nil || !p.Unjudged {
			t.Errorf("%s: %+v, %v", args, p, err)
		}
	}
}

// Patterns without end are not read to their end: a hook that takes long decides nothing.
func TestC13_ManyPatternsAreRefusedAtOnce(t *testing.T) {
	for name, patterns := range map[string][]string{
		"as many as may be":       slices.Repeat([]string{"*.go"}, maxPaths),
		"one more":                slices.Repeat([]string{"*.go"}, maxPaths+1),
		"each means as many":      slices.Repeat([]string{strings.Repeat("{a,b}", 8) + "/*"}, maxPaths),
		"without end, and plain":  slices.Repeat([]string{"a"}, 1<<20),
		"without end, and braces": slices.Repeat([]string{strings.Repeat("{*,?}", 8)}, 1<<18),
	} {
		args, err := json.Marshal(map[string]any{"include": patterns})
		if err != nil {
			t.Fatal(err)
		}
		p := api.CheckParams{Tool: "read_many_files"}
		began := time.Now()
		if err := describeArguments(&p, args, "/w"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > checkWait/2 {
			t.Errorf("%s: %v", name, took)
		}
		if judged := strings.HasPrefix(name, "as many") || strings.HasPrefix(name, "each"); p.Unjudged == judged {
			t.Errorf("%s: unjudged %v", name, p.Unjudged)
		}
	}
}
