package launch

import (
	"fmt"
	"slices"
	"strings"

	"postern/jail/spec"
)

// needed is a directory, and what it is to posternd.
type needed struct{ what, path string }

// written are the directories that posternd writes.
func (c Config) written() []needed {
	return []needed{{"root-dir", c.RootDir}, {"state-dir", c.StateDir}, {"run-dir", c.RunDir}, {"lock-dir", c.LockDir}}
}

// workspacesOf are the directories that jails write.
func workspacesOf(f Facts) (out []needed) {
	for _, p := range f.Projects {
		if !p.Deleted {
			out = append(out, needed{"the workspace of " + p.Label, p.Workspace})
		}
	}
	return out
}

// mounted is one line of a mountinfo.
type mounted struct{ root, point, options, kind, super string }

// covering is the mount that a path lies on; the zero mounted where the text has none.
func covering(mountinfo, path string) (found mounted) {
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		m := mounted{unescape(l[3]), unescape(l[4]), "," + l[5] + ",", r[0], "," + r[2] + ","}
		// Of two at one place the last is what is seen.
		if (m.point == "/" || spec.Inside(path, m.point)) && len(m.point) >= len(found.point) {
			found = m
		}
	}
	return found
}

// shutOff tells which directories are not here as they are on the host: a unit can hide a
// directory, put an empty one in its place, or make it read-only, for posternd and for
// every jail. An empty root-dir would be served as one that holds nothing. What the host
// itself has mounted so is not told.
func (s surroundings) shutOff(dirs []needed) (out []error) {
	bad := func(dir needed, how string, help string, names ...string) {
		out = append(out, fmt.Errorf("%s: %q %s: take out of the unit %s%s", dir.what, dir.path, how, orElse(where(slices.DeleteFunc(inEffect(s.unit, names...), ofOthers)), strings.Join(names, "= or ")+"="), help))
	}
	for _, dir := range dirs {
		here, host := covering(s.mounts, dir.path), covering(s.host, dir.path)
		if s.host == "" || here == host {
			continue
		}
		switch {
		case strings.HasPrefix(here.root, "/systemd/inaccessible/"):
			bad(dir, "is made inaccessible", "", "InaccessiblePaths", "ProtectHome")
		case here.kind == "tmpfs" && host.kind != "tmpfs":
			bad(dir, "is on an empty file system of the unit's own", "", "TemporaryFileSystem", "ProtectHome", "PrivateTmp")
		case strings.Contains(here.root, "/systemd-private-") && !strings.Contains(host.root, "/systemd-private-"):
			bad(dir, "is on a directory of the unit's own", "", "PrivateTmp")
		case strings.Contains(here.options, ",ro,") && !strings.Contains(host.options, ",ro,"):
			bad(dir, "is read-only", ", or add ReadWritePaths="+dir.path, "ProtectSystem", "ReadOnlyPaths", "ProtectHome")
		}
	}
	return out
}

// ofOthers tells of a line that closes what the system is made of, and none of the
// directories that posternd or a jail writes: the shipped unit has it.
func ofOthers(d directive) bool { return d.name == "ProtectSystem" && d.value != "strict" }

// changedBy adds to an error about a directory the directives of these names that the unit
// has: systemd gives a directory another owner and mode by one, and other mounts.
func (s surroundings) changedBy(err error, names ...string) error {
	if text := where(inEffect(s.unit, names...)); text != "" {
		return fmt.Errorf("%w; the unit makes it so: take out of it %s", err, text)
	}
	return err
}
