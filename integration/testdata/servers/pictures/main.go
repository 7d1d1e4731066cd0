// Command pictures is a fixture tool server whose results carry bytes, or name files.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"postern/integration/testdata/servers/rpc"
)

const tools = `[
{"name":"draw","description":"Answers with n images of bytes bytes each, or with audio or a resource.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
{"name":"make","description":"Makes a file, a link, a second name or a directory.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
{"name":"links","description":"Answers with n links to one file.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
{"name":"say","description":"Answers with the content it is given.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}
]`

const png = "\x89PNG\r\n\x1a\n"

type arguments struct {
	N       int             `json:"n"`
	Bytes   int             `json:"bytes"`
	Fill    string          `json:"fill"` // one letter; images of one letter and size are the same
	Kind    string          `json:"kind"` // image (default), audio, resource
	Content json.RawMessage `json:"content"`
	Path    string          `json:"path"` // of make and links
	To      string          `json:"to"`   // of make: what a link leads to
}

// make makes what the arguments say, and tells what became of it.
func (a arguments) make() string {
	var err error
	switch a.Kind {
	case "link":
		err = os.Symlink(a.To, a.Path)
	case "name":
		err = os.Link(a.To, a.Path)
	case "directory":
		err = os.Mkdir(a.Path, 0o755)
	default:
		err = os.WriteFile(a.Path, []byte((png + strings.Repeat("x", max(0, a.Bytes-len(png))))[:a.Bytes]), 0o600)
	}
	if err != nil {
		return err.Error()
	}
	return "made"
}

func main() {
	s := &rpc.Server{Name: "pictures", Tools: strings.ReplaceAll(tools, "\n", "")}
	s.Call = func(_ context.Context, m *rpc.Message) {
		var a arguments
		_ = json.Unmarshal(m.Params.Arguments, &a)
		switch m.Params.Name {
		case "say":
			s.Result(m, `"content":`+string(a.Content))
			return
		case "make":
			s.Result(m, fmt.Sprintf(`"content":[{"type":"text","text":%q},{"type":"resource_link","name":"it","uri":"file://%s","mimeType":"image/png"}]`, a.make(), a.Path))
			return
		case "links":
			link := fmt.Sprintf(`,{"type":"resource_link","name":"it","uri":"file://%s"}`, a.Path)
			s.Result(m, `"content":[{"type":"text","text":"named"}`+strings.Repeat(link, a.N)+"]")
			return
		}
		if a.Fill == "" {
			a.Fill = "x"
		}
		raw := []byte(png + strings.Repeat(a.Fill, max(0, a.Bytes-len(png))))
		data := base64.StdEncoding.EncodeToString(raw[:a.Bytes])
		var out bytes.Buffer
		out.WriteString(`"content":[{"type":"text","text":"drawn"}`)
		for range a.N {
			switch a.Kind {
			case "audio":
				fmt.Fprintf(&out, `,{"type":"audio","mimeType":"audio/wav","data":"%s"}`, data)
			case "resource":
				fmt.Fprintf(&out, `,{"type":"resource","resource":{"uri":"file:///workspace/a.png","mimeType":"image/png","blob":"%s"}}`, data)
			default:
				fmt.Fprintf(&out, `,{"type":"image","mimeType":"image/png","data":"%s"}`, data)
			}
		}
		out.WriteString("]")
		s.Result(m, out.String())
	}
	s.Run()
}
