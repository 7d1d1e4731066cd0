package launch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// directive is one line of a unit, and where it stands.
type directive struct {
	name, value string
	place       string // FILE:LINE
}

// filtering are the directives of a unit that install a system call filter, or the ones
// that do so beside what they are named for. Source: systemd.exec(5).
var filtering = []string{"SystemCallFilter", "SystemCallArchitectures", "SystemCallLog", "RestrictNamespaces", "RestrictAddressFamilies", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality",
	denying, "ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "PrivateDevices"}

// denying denies memory that is written and then executed, by a filter or by PR_SET_MDWE.
const denying = "MemoryDenyWriteExecute"

// directives reads the section [Service] of one file of a unit. The values are kept as
// they stand: nothing is decided by them, they only help to say where to look.
func directives(path, text string) (out []directive) {
	section, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if ok && section == "[Service]" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			out = append(out, directive{strings.TrimSpace(name), strings.TrimSpace(value), fmt.Sprintf("%s:%d", path, n)})
		}
	}
	return out
}

// inEffect picks the directives of these names that a later line did not take back, the
// last line of each.
func inEffect(unit []directive, names ...string) (out []directive) {
	for _, name := range names {
		var last *directive
		for i, d := range unit {
			if d.name != name {
				continue
			}
			switch strings.ToLower(d.value) {
			case "", "no", "n", "false", "f", "off", "0":
				last = nil
			default:
				last = &unit[i]
			}
		}
		if last != nil {
			out = append(out, *last)
		}
	}
	return out
}

// where names the places of directives, for the end of a sentence; "" for none.
func where(found []directive) string {
	var texts []string
	for _, d := range found {
		texts = append(texts, fmt.Sprintf("%s= (%s)", d.name, d.place))
	}
	return strings.Join(texts, ", ")
}

// maxAdded bounds how many lines addedTo names.
const maxAdded = 32

// addedTo names what drop-ins say of a unit, the last line of each name, for the end of a
// sentence about something that only one of them can have done. A limit of 0 and a "no"
// are among them; a line that is empty takes back. It is "" where drop-ins say nothing.
func addedTo(unit []directive) string {
	var found []directive
	for i, d := range unit {
		later := slices.ContainsFunc(unit[i+1:], func(o directive) bool { return o.name == d.name })
		if strings.HasSuffix(path.Dir(d.place), ".d") && !later && d.value != "" && len(found) < maxAdded {
			found = append(found, d)
		}
	}
	if text := where(found); text != "" {
		return "; what drop-ins of the unit say, one of which may be why: " + text
	}
	return ""
}
