package documented

import (
	"strings"
	"testing"
)

const small = "## Commands\n\n| command | prints |\n|---|---|\n| `postern thing show` | `Thing` |\n| `postern thing list` | `Things`; with `--follow` `Thing`, one a line |\n| `postern connect` | nothing |\n\n" +
	"## Documents\n\n### Refusal\n\n| member | kind | what |\n|---|---|---|\n| `code` | refusal.Code |  |\n| `sentence` | string |  |\n\n" +
	"### Thing\n\n| member | kind | what |\n|---|---|---|\n| `name` | string |  |\n| `size` | uint64, may be absent | of it |\n| `rate` | float64, may be absent |  |\n| `on` | bool, may be absent |  |\n" +
	"| `level` | *string, may be absent |  |\n| `names` | []string, may be absent |  |\n| `more` | map[string]Other, may be absent |  |\n| `raw` | jsontext.Value, may be absent |  |\n\n" +
	"### Other\n\n| member | kind | what |\n|---|---|---|\n| `a` | int |  |\n\n### Things\n\n| member | kind | what |\n|---|---|---|\n| `things` | []Thing |  |\n"

func TestDocumented1_WhatIsNotOnThePageIsTold(t *testing.T) {
	p, err := Parse(small)
	if err != nil {
		t.Fatal(err)
	}
	for printed, want := range map[string]string{
		`{"name":"a"}`: "", `{"name":"a","size":3,"rate":1.5,"on":true,"level":null,"names":["x"],"more":{"k":{"a":-1}},"raw":[1]}`: "", `{"name":"a","level":"x"}`: "", "": "",
		`{"refusal":{"code":"x","sentence":"y"}}`: "", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n": "",
		`{"name":"a","sise":3}`: "sise is not documented", `{"size":3}`: "name is missing", `{"name":3}`: "name: want text", `{"name":"a","size":-3}`: "size: want a whole number",
		`{"name":"a","size":1.5}`: "size: want a whole number", `{"name":"a","rate":"x"}`: "rate: want a number", `{"name":"a","on":1}`: "on: want true", `{"name":"a","level":1}`: "level: want text",
		`{"name":"a","names":[1]}`: "names[0]: want text", `{"name":"a","names":null}`: "names: want a list", `{"name":"a","more":{"k":{}}}`: "more.k.a is missing", `{"name":"a","more":[]}`: "more: want names",
		`{"name":"a"} {}`: "more than one document", `[]`: "no document", `nothing`: "no document", `{"refusal":{"code":"x"}}`: "refusal.sentence is missing", `{"refusal":{},"name":"a"}`: "refusal is not documented",
		"{\"name\":\"a\"}\n{\"x\":1}\n": "x is not documented",
	} {
		_, err := p.Check("postern thing show", []byte(printed))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", printed, err, want)
		}
	}
	for printed, doc := range map[string]string{`{"name":"a"}`: "Thing", `{"things":[{"name":"a"}]}`: "Things"} {
		if got, err := p.Check("postern thing list", []byte(printed)); got != doc || err != nil {
			t.Errorf("%s: %s, %v", printed, got, err)
		}
	}
	if _, err := p.Check("postern connect", []byte(`{}`)); err == nil {
		t.Error("a command that prints nothing printed something")
	}
	if _, err := p.Check("postern other", nil); err == nil {
		t.Error("a command that is not on the page passes")
	}
}

func TestACommandIsFoundAmongItsFlags(t *testing.T) {
	p, err := Parse(small)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"thing show x --json": "postern thing show", "--json thing --run-dir /x list": "postern thing list", "--run-dir thing thing list": "postern thing list", "thing": "", "--json": "", "connect -- thing list": "postern connect",
	} {
		if got := p.Command("postern", strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for _, page := range []string{"", strings.Replace(small, "### Thing\n", "### Thong\n", 1)} {
		if _, err := Parse(page); err == nil {
			t.Errorf("a page without what it names passes: %.40q", page)
		}
	}
}
