package artifact

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Types that an artifact can have. A browser runs none of them: what could hold a script
// is served as bytes, an SVG among it.
const (
	Bytes = "application/octet-stream"
	Text  = "text/plain; charset=utf-8"
)

// kinds are told by how the bytes begin. The list is closed.
var kinds = []struct {
	name   string
	begins string
	at     string // and what stands at the eighth byte
}{
	{"image/png", "\x89PNG\r\n\x1a\n", ""},
	{"image/jpeg", "\xff\xd8\xff", ""},
	{"image/gif", "GIF87a", ""},
	{"image/gif", "GIF89a", ""},
	{"image/webp", "RIFF", "WEBP"},
	{"audio/wav", "RIFF", "WAVE"},
	{"audio/ogg", "OggS", ""},
	{"audio/flac", "fLaC", ""},
	{"audio/mpeg", "ID3", ""},
	{"application/pdf", "%PDF-", ""},
}

// Types lists them all.
func Types() []string {
	out := []string{Bytes, Text}
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}

// riffAt is where a RIFF file says what it is.
const riffAt = 8

// Type names the type of raw. Only between text and bytes does the server's word count,
// for nothing in the bytes tells a text from an accident.
func Type(raw []byte, said string) string {
	for _, k := range kinds {
		if bytes.HasPrefix(raw, []byte(k.begins)) && (k.at == "" || len(raw) >= riffAt && bytes.HasPrefix(raw[riffAt:], []byte(k.at))) {
			return k.name
		}
	}
	said = strings.ToLower(said)
	if (strings.HasPrefix(said, "text/") || strings.HasPrefix(said, "application/json")) && plain(raw) {
		return Text
	}
	return Bytes
}

// plain tells whether raw is text without control characters.
func plain(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	return !bytes.ContainsFunc(raw, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f
	})
}
