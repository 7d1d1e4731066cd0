package launch

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"postern/jail/spec"
)

// Bounds of resolving one path.
const (
	maxPath      = 4096 // bytes, PATH_MAX
	maxPathParts = 1024 // components looked up, those of links included
	maxPathDepth = 128  // directories deep
	maxPathLinks = 40   // links followed, as the kernel's MAXSYMLINKS
)

// spelled splits a path argument into its components beneath the directory, as a
// program reads it that stands there and sees it at the path at. It tells false for
// another absolute path, and for what programs read differently: a home directory, an
// option, a URL, white space or quotes around it.
func spelled(at, path string) (parts []string, ok bool) {
	if path == "" || len(path) > maxPath || !utf8.ValidString(path) || strings.IndexByte(path, 0) >= 0 {
		return nil, false
	}
	first, _ := utf8.DecodeRuneInString(path)
	last, _ := utf8.DecodeLastRuneInString(path)
	if first == '~' || first == '-' || edge(first) || edge(last) || scheme(path) {
		return nil, false
	}
	parts = strings.Split(path, "/")
	if path[0] != '/' {
		return parts, true
	}
	want := strings.Split(strings.Trim(at, "/"), "/")
	for i, p := range parts {
		switch {
		case p == "", p == ".":
		case p != want[0]:
			return nil, false
		default:
			if want = want[1:]; len(want) == 0 {
				return parts[i+1:], true
			}
		}
	}
	return nil, false // the root itself, or what lies above the directory
}

// seenAt is where the asker sees the directory: its path on the host, or that in a jail.
func seenAt(p Project, ofHost bool) string {
	if ofHost {
		return p.Workspace
	}
	return spec.WorkspaceDir
}

// edge tells whether servers are known to cut c off a path's ends.
func edge(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("\"'`\ufeff", c) }

// scheme tells whether a path could be read as a URL.
func scheme(path string) bool {
	name, rest, ok := strings.Cut(path, ":")
	return ok && name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("+-.", c))
	}) && (strings.HasPrefix(rest, "/") || strings.EqualFold(name, "file"))
}

// upwards tells whether a component leads up: then what a server makes of the path
// depends on whether it looks at the text or at the directories.
func upwards(parts []string) bool {
	for _, p := range parts {
		if p == ".." {
			return true
		}
	}
	return false
}

// textual removes what a server removes that looks at the text alone. It tells false
// where the text leads out.
func textual(parts []string) (out []string, ok bool) {
	for _, p := range parts {
		switch p {
		case "", ".":
		case "..":
			if len(out) == 0 {
				return nil, false
			}
			out = out[:len(out)-1]
		default:
			out = append(out, p)
		}
	}
	return out, true
}
