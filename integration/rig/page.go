package rig

import "strings"

// Commands returns the lines of a page that somebody types: all lines of a block marked
// sh, and in other blocks those whose command, after sudo, is one of those meant.
func Commands(page string, meant func(command string) bool) []string {
	var out []string
	for i, part := range strings.Split("\n"+page, "\n```") {
		if i%2 == 0 {
			continue
		}
		lang, body, _ := strings.Cut(part, "\n")
		for l := range strings.Lines(body) {
			l = strings.TrimSpace(l)
			if l == "" || strings.HasPrefix(l, "#") {
				continue
			}
			word, _, _ := strings.Cut(strings.TrimPrefix(l, "sudo "), " ")
			if strings.HasPrefix(lang, "sh") || meant(word) {
				out = append(out, l)
			}
		}
	}
	return out
}
