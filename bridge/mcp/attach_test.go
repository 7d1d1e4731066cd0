package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func attached(t *testing.T, result string, most int) ([]Attachment, int) {
	t.Helper()
	var p Parser
	a, err := p.ReadAnswer([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
	if err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	return a.Attachments(most)
}

func TestAttachmentsOfEveryKindOfResult(t *testing.T) {
	for says, row := range map[string]struct {
		result string
		want   []string // type, name, bytes
	}{
		"an image":              {`{"content":[{"type":"text","text":"x"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}`, []string{"image/png||hi"}},
		"audio":                 {`{"content":[{"type":"audio","data":"aGk","mimeType":"audio/wav"}]}`, []string{"audio/wav||hi"}},
		"an embedded resource":  {`{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"x/y","blob":"aGk="}}]}`, []string{"x/y|file:///a|hi"}},
		"its text is none":      {`{"content":[{"type":"resource","resource":{"uri":"u:a","text":"\"blob\" \"data\""}}]}`, nil},
		"a file that is named":  {`{"content":[{"type":"resource_link","uri":"file:///a","name":"a","mimeType":"x/y"},{"type":"image","data":"aGk="}]}`, []string{"x/y|file:///a|(file)", "||hi"}},
		"a file and its text":   {`{"content":[{"type":"resource","resource":{"uri":"FILE:/a","text":"t"}}]}`, []string{"|FILE:/a|(file)"}},
		"a link to elsewhere":   {`{"content":[{"type":"resource_link","uri":"https://host/a","name":"a"},{"type":"resource_link","uri":7},{"type":"resource_link"},{"type":"text","uri":"file:///a"}]}`, nil},
		"a file that is read":   {`{"contents":[{"uri":"file:///a","text":"t"}]}`, nil},
		"a file of a prompt":    {`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"file:///a","name":"a"}}]}`, []string{"|file:///a|(file)"}},
		"a text about \"data\"": {`{"content":[{"type":"text","text":"t","data":"aGk="}]}`, nil},
		"a resource that is read": {`{"contents":[{"uri":"u:1","blob":"aGk="},{"uri":"u:2","text":"t"},{"uri":"u:3","blob":"aG8="}]}`,
			[]string{"|u:1|hi", "|u:3|ho"}},
		"a prompt":               {`{"messages":[{"role":"user","content":{"type":"image","data":"aGk=","mimeType":"image/gif"}}]}`, []string{"image/gif||hi"}},
		"a prompt with a list":   {`{"messages":[{"role":"user","content":[{"type":"image","data":"aGk="},{"type":"image","data":"aG8="}]}]}`, []string{"||hi", "||ho"}},
		"data that is no string": {`{"content":[{"type":"image","data":7},{"type":"image","data":null},7,null,[]]}`, nil},
		"structured content":     {`{"content":[],"structuredContent":{"type":"image","data":"aGk="}}`, nil},
		"escaped":                {`{"content":[{"type":"image","data":"aG\u006b\u003d"}]}`, []string{"||hi"}},
	} {
		list, more := attached(t, row.result, 16)
		var got []string
		for _, x := range list {
			raw, err := []byte("(file)"), error(nil)
			if x.Data != nil {
				raw, err = x.Bytes(100)
			}
			if err != nil {
				t.Errorf("%s: %v", says, err)
			}
			got = append(got, x.Type+"|"+x.Name+"|"+string(raw))
		}
		if strings.Join(got, " ") != strings.Join(row.want, " ") || more != 0 {
			t.Errorf("%s: %q and %d more, want %q", says, got, more, row.want)
		}
	}
}

func TestAttachmentsAreBounded(t *testing.T) {
	one := `{"type":"image","data":"aGk="}`
	list, more := attached(t, `{"content":[`+strings.Repeat(one+",", 19)+one+`]}`, 16)
	if len(list) != 16 || more != 4 {
		t.Errorf("%d and %d more", len(list), more)
	}
	raw := bytes.Repeat([]byte{0xfe, 1, 2}, 1000)
	x := Attachment{Data: Value(`"` + base64.StdEncoding.EncodeToString(raw) + `"`)}
	for most, want := range map[int]error{len(raw) - 1: ErrTooMany, len(raw): nil, len(raw) + 1: nil} {
		got, err := x.Bytes(most)
		if !errors.Is(err, want) || err == nil && !bytes.Equal(got, raw) {
			t.Errorf("%d: %d bytes, %v", most, len(got), err)
		}
	}
	for _, bad := range []string{`"a"`, `"*"`, `"aGk=\n!"`, `"\ud800"`} {
		if got, err := (Attachment{Data: Value(bad)}).Bytes(100); err == nil {
			t.Errorf("%s is %q", bad, got)
		}
	}
}

func TestThePathOfAFilesURI(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///workspace/a.png": "/workspace/a.png", "file:/workspace/a": "/workspace/a", "FILE://LocalHost/a": "/a", "file:///a%20b%2Fc": "/a b/c", "file:///a b": "/a b",
		"file:///%2e%2e/a": "/../a", "file:////a": "//a", "file:///a%00": "/a\x00", "file:///%ff": "/\xff", // whoever uses it looks at what it says
		"file:///ä": "/ä",
	} {
		if got, ok := FilePath(uri); !ok || got != want {
			t.Errorf("%q: %q, %v", uri, got, ok)
		}
	}
	for _, uri := range []string{"", "file:", "file:a", "file:../a", "file://", "file://host", "file://host/a", "file://local/a", "file://127.0.0.1/a", "file:///a?b", "file:///a#b", "file:///a%", "file:///a%zz", "files:///a",
		"http:///a", "/a", "a", "file:%2fa/../b?"} {
		if got, ok := FilePath(uri); ok {
			t.Errorf("%q is read as %q", uri, got)
		}
	}
}
