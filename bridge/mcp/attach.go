package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Attachment is a part of a result that carries bytes (an image, audio, or the blob of a
// resource), or names a file that has them. It aliases the answer. Type and Name are the
// server's words.
type Attachment struct {
	Type string // the media type, as the server says
	Name string // the URI of a resource, else nothing
	Data Value  // a JSON string, base64; nil where Name is the URI of a file
}

// Names that the revisions give to what carries bytes. An answer in which neither is
// written has none: the look costs a search, and most answers end there.
var (
	nameData = []byte(`"data"`)
	nameBlob = []byte(`"blob"`)
	nameURI  = []byte(`"uri"`)
)

// Attachments lists what carries bytes in the result of a tool, a prompt or a resource,
// and the files that a tool or a prompt names, in its order, at most most of it; more
// tells how many there are beyond.
func (a *Answer) Attachments(most int) (list []Attachment, more int) {
	add := func(x Attachment, ok bool) {
		switch {
		case !ok:
		case len(list) == most:
			more++
		default:
			list = append(list, x)
		}
	}
	for _, m := range a.Members {
		if !bytes.Contains(m.Value, nameData) && !bytes.Contains(m.Value, nameBlob) && !bytes.Contains(m.Value, nameURI) {
			continue
		}
		switch m.Name {
		case "content": // of a tool
			elements(m.Value, func(v Value) { add(block(v)) })
		case "contents": // of a resource
			elements(m.Value, func(v Value) {
				x, ok := resource(v)
				add(x, ok && x.Data != nil) // a text is the file itself, as it was read
			})
		case "messages": // of a prompt
			elements(m.Value, func(v Value) {
				message, _ := Members(v)
				content := Find(message, "content")
				if content.Kind() == '{' {
					add(block(content))
				}
				elements(content, func(v Value) { add(block(v)) })
			})
		}
	}
	return list, more
}

// block reads one block of content.
func block(raw Value) (Attachment, bool) {
	members, _ := Members(raw)
	switch word(Find(members, "type")) {
	case "image", "audio":
		data := Find(members, "data")
		return Attachment{Type: word(Find(members, "mimeType")), Data: data}, data.Kind() == '"'
	case "resource":
		return resource(Find(members, "resource"))
	case "resource_link":
		return resource(raw)
	}
	return Attachment{}, false
}

func resource(raw Value) (Attachment, bool) {
	members, _ := Members(raw)
	x := Attachment{Type: word(Find(members, "mimeType")), Name: word(Find(members, "uri"))}
	if blob := Find(members, "blob"); blob.Kind() == '"' {
		x.Data = blob
	}
	return x, x.Data != nil || ofFile(x.Name)
}

const fileScheme = "file:"

// ofFile tells whether a URI names a file.
func ofFile(uri string) bool {
	return len(uri) >= len(fileScheme) && strings.EqualFold(uri[:len(fileScheme)], fileScheme)
}

// FilePath is the absolute path that a file's URI names. It tells false for one of
// another host, and for what readers of URIs do not agree on: a query, a fragment, or a
// percent sign that begins no character.
func FilePath(uri string) (path string, ok bool) {
	if !ofFile(uri) || strings.ContainsAny(uri, "?#") {
		return "", false
	}
	rest := uri[len(fileScheme):]
	if host, named := strings.CutPrefix(rest, "//"); named {
		at := strings.IndexByte(host, '/')
		if at < 0 || at > 0 && !strings.EqualFold(host[:at], "localhost") {
			return "", false
		}
		rest = host[at:]
	}
	path, err := url.PathUnescape(rest)
	return path, err == nil && strings.HasPrefix(path, "/")
}

// word is the text of a JSON string, "" of anything else.
func word(raw Value) string {
	if raw.Kind() != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(s)
}

// elements calls f for each element of an array.
func elements(raw Value, f func(Value)) {
	if raw.Kind() != '[' {
		return
	}
	var p Parser
	p.reset(raw, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := p.dec.ReadToken(); err != nil {
		return
	}
	for p.dec.PeekKind() != ']' {
		v, fault := p.value()
		if fault != nil {
			return
		}
		f(v)
	}
}

// ErrTooMany is returned by Bytes where there are more than may be.
var ErrTooMany = errors.New("more bytes than may be")

// Bytes decodes what the attachment carries, at most so many bytes. Padding that is left
// out is forgiven, as browsers do.
func (x Attachment) Bytes(most int) ([]byte, error) {
	text, err := jsontext.AppendUnquote(nil, x.Data)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimRight(text, "=")
	if base64.RawStdEncoding.DecodedLen(len(text)) > most {
		return nil, ErrTooMany
	}
	n, err := base64.RawStdEncoding.Decode(text, text) // reads before it writes, and never less far
	return text[:n], err
}
