package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
)

var someArgs = PathArgs{Names: []string{"path", "paths", "filepath", "files", "source", "destination"}}

func TestC13_PathArgumentsAreReadFromWhatIsSent(t *testing.T) {
	for _, row := range []struct {
		says, args string
		want       []string
	}{
		{"one", `{"path":"a/b"}`, []string{"a/b"}},
		{"an escaped name and an escaped value", `{"p\u0061th":"\u002e./x","content":"path"}`, []string{"../x"}},
		{"several", `{"paths":["a","../b"],"head":3}`, []string{"a", "../b"}},
		{"two names", `{"source":"a","destination":"/b"}`, []string{"a", "/b"}},
		{"nested in edits", `{"edits":[{"path":"a","newText":"/etc"},{"path":"b"}]}`, []string{"a", "b"}},
		{"objects under a path's name", `{"files":[{"path":"a","content":"x"},{"path":"b"}]}`, []string{"a", "b"}},
		{"lists of lists", `{"paths":[["a"],["b"]]}`, []string{"a", "b"}},
		{"another spelling", `{"file_path":"a","filePath":"b","FILE-PATH":"c","Path":"d","path\u017f":"e"}`, []string{"a", "b", "c", "d", "e"}},
		{"none", `{"pattern":"*","content":{"x":[1,true,"/etc"]}}`, nil},
		{"null is none", `{"path":null}`, nil},
		{"no object", `[]`, nil},
	} {
		if got := someArgs.Of(jsontext.Value(row.args)); got.Unreadable || !slices.Equal(got.List, row.want) {
			t.Errorf("%s: %+v", row.says, got)
		}
	}
	// Each path's name is told as its place in the table.
	if got := someArgs.Of(jsontext.Value(`{"destination":"b","x":{"PATHS":["c","d"]},"source":"a"}`)); !slices.Equal(got.List, []string{"b", "c", "d", "a"}) || !slices.Equal(got.Under, []byte{5, 1, 1, 4}) {
		t.Errorf("%+v", got)
	}
	for says, p := range map[string]Paths{"more names than paths": {List: []string{"a"}, Under: []byte{1, 2}}, "names without paths": {Under: []byte{1}}} {
		if checkPaths(&p) == nil {
			t.Errorf("%s are accepted", says)
		}
	}
	if checkPaths(&Paths{List: []string{"a", "b"}, Under: []byte{0, 255}}) != nil {
		t.Error("a name for each path is refused")
	}
	if got := someArgs.Of(nil); got.Unreadable || got.List != nil {
		t.Errorf("no arguments: %+v", got)
	}
	long := strings.Repeat("a", MaxPath)
	for says, args := range map[string]string{
		"a number":           `{"path":1}`,
		"a boolean":          `{"path":true}`,
		"a number in a list": `{"paths":["a",1]}`,
		"a zero byte":        `{"path":"a\u0000b"}`,
		"a newline":          `{"path":"a\nb"}`,
		"too long":           `{"path":"` + long + `a"}`,
		"too many":           `{"paths":[` + strings.Repeat(`"a",`, MaxPaths) + `"a"]}`,
		"too much":           `{"paths":["` + strings.Repeat(long+`","`, MaxPathBytes/MaxPath) + `a"]}`,
		"not JSON":           `{"path":`,
		"a name twice":       `{"path":"a","path":"b"}`,
	} {
		if got := someArgs.Of(jsontext.Value(args)); !got.Unreadable || got.List != nil {
			t.Errorf("%s: %+v", says, got)
		}
	}
	if got := someArgs.Of(jsontext.Value(`{"path":"` + long + `"}`)); got.Unreadable || len(got.List) != 1 {
		t.Error("a path as long as it may be was not read")
	}
}

func TestWire3_TheMostPathsFitIntoOneMessage(t *testing.T) {
	var list []string
	var under []byte
	for n := range MaxPaths {
		under = append(under, 0xff)
		list = append(list, fmt.Sprint(n, strings.Repeat(`"\`, (MaxPathBytes/MaxPaths-4)/2)))
	}
	m := Admit{Session: ids.New[ids.Session](now, [10]byte{}), Tool: strings.Repeat("x", MaxName), RequestID: strings.Repeat("\x01", MaxRequestID), Digest: strings.Repeat("ab", 32), Paths: &Paths{List: list, Under: under}}
	b, err := EncodeUp(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeUp(b); err != nil {
		t.Error(err)
	}
	m.Paths.List = append(m.Paths.List, "one more")
	if b, err = EncodeUp(nil, m); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeUp(b); err == nil {
		t.Error("more paths than may be were accepted")
	}
}

func FuzzPathsOf(f *testing.F) {
	for _, s := range []string{`{"path":"a"}`, `{"files":[{"path":"a"}]}`, `{"paths":[1]}`, `{"`, `[[[["a"]]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := checkPaths(someArgs.Of(b)); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
