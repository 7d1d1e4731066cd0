package item

import (
	"strings"
	"testing"
)

func TestItem1_KeysDoNotMix(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range []Kind{Tool, Prompt, Resource} {
		for _, name := range []string{"a", "a.b", "file:///a"} {
			if k == Tool && Reserved(name) {
				continue
			}
			key := k.Key(name)
			if seen[key] {
				t.Errorf("%q names two items", key)
			}
			seen[key] = true
			if gk, gn := Split(key); gk != k || gn != name {
				t.Errorf("%q reads as the %v %q", key, gk, gn)
			}
		}
	}
	for _, name := range []string{"prompt:a", "resource:file:///a", "a:b"} {
		if !Reserved(name) {
			t.Errorf("%q could be a tool's name", name)
		}
	}
	if Reserved("read_file.v2-x") {
		t.Error("an ordinary name is reserved")
	}
	if got := Under("files", "prompt:review"); got != "prompt:files.review" {
		t.Error(got)
	}
	if got := Under("files", "read"); got != "files.read" {
		t.Error(got)
	}
}

func TestItem2_APrefixCoversWholeSegments(t *testing.T) {
	for _, c := range []struct {
		prefix, uri string
		want        bool
	}{
		{"file:///a", "file:///a", true},
		{"file:///a", "file:///a/b", true},
		{"file:///a", "file:///a/", true},
		{"file:///a/", "file:///a/b", true},
		{"file:///a/", "file:///a", false},
		{"file:///a", "file:///ab", false},
		{"file:///a/b", "file:///a", false},
		{"file:///", "file:///etc/x", true},
		{"db:", "db:x", false},
		{"db:x", "db:x/y", true},
		{"db:x", "db:xy", false},
		{"db://t", "db://t?q=1", false},
		{"db://t/", "db://t/a?q=1", false},
		{"db://t?", "db://t?q=1/../2", true},
		{"db://t?q", "db://t?q=1", false},
		{"db://t?q=1", "db://t?q=1", true},
		{"", "file:///a", false},
	} {
		if got := Covers(c.prefix, c.uri); got != c.want {
			t.Errorf("Covers(%q, %q) = %v", c.prefix, c.uri, got)
		}
	}
	if !Overlap("file:///a", "file:///a/b") || !Overlap("file:///a/b", "file:///a") || Overlap("file:///a", "file:///b") {
		t.Error("Overlap")
	}
}

func TestItem3_ASecondSpellingIsRefused(t *testing.T) {
	for _, uri := range []string{
		"file:///a/b.txt", "file:///a/", "file:///", "memo://insights", "test://static/1", "urn:isbn:1", "ui://x/y",
		"db://host:5432/t?q=a%26b", "file:///caf%C3%A9", "file:///a%20b", "x://u@h/a...b/..c", "demo://resource/dynamic/text/1",
	} {
		if err := CheckURI(uri); err != nil {
			t.Errorf("%q: %v", uri, err)
		}
	}
	for _, uri := range []string{
		"", "a", "a/b", "/a", ":x", "1a:x", "FILE:///a", "file:", "file:///a/../b", "file:///a/..", "file:///.", "file:///a/./b", "file:///a//b", "file:////a",
		"file:///a/%2e%2e/b", "file:///a/%2E%2E/b", "file:///a%2Fb", "file:///a%2fb", "file:///a%5Cb", `file:///a\b`, "file:///%61", "file:///a%00", "file:///a%0A",
		"file:///a%", "file:///a%2", "file:///a%zz", "file:///caf%c3%a9", "file:///a%252e", "file:///a b", "file:///a\tb", "file:///a\nb", "file:///é", "file:///a\u200bb",
		"file:///a#b", "file:///{path}", "file:///a/..;x/b", "file:///a/.;/b", "x:..", "x:a/..", "x:/..", "x://h/..", "file:///" + strings.Repeat("a", MaxURI),
	} {
		if CheckURI(uri) == nil {
			t.Errorf("%q was accepted", uri)
		}
	}
	if err := CheckURI("file:///" + strings.Repeat("a", MaxURI-len("file:///"))); err != nil {
		t.Errorf("a URI of the most bytes: %v", err)
	}
}

// FuzzCovers: whatever lies beneath a prefix, with both in order, stays beneath it when
// a file system resolves it.
func FuzzCovers(f *testing.F) {
	f.Add("file:///a", "file:///a/../b")
	f.Add("file:///a/", "file:///a/b%2F..")
	f.Fuzz(func(t *testing.T, prefix, uri string) {
		if CheckURI(prefix) != nil || CheckURI(uri) != nil || !Covers(prefix, uri) {
			return
		}
		path, _, _ := strings.Cut(uri, "?")
		if strings.Contains(path, "/../") || strings.HasSuffix(path, "/..") {
			t.Errorf("%q covers %q", prefix, uri)
		}
		if !strings.HasPrefix(uri, prefix) {
			t.Errorf("%q covers %q", prefix, uri)
		}
	})
}
