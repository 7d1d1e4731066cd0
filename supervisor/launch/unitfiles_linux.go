package launch

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unitDirs is where systemd finds the files of a unit, the first that has one first.
// Source: systemd.unit(5), and `systemd-analyze unit-paths`.
var unitDirs = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
	"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached", "/run/systemd/generator",
	"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator.late",
}

// Bounds of what is read of a unit.
const (
	maxUnitFile  = 64 << 10 // bytes
	maxUnitFiles = 256      // drop-ins
)

// unitOf reads the unit that posternd was started by out of its control group: whatever
// systemd started inherits what its unit says. "" where there is none.
func unitOf(cgroup string) string {
	for part := range strings.SplitSeq(strings.TrimSpace(cgroup), "/") {
		if strings.HasSuffix(part, ".service") {
			return part
		}
	}
	return ""
}

// readUnit reads a unit as systemd does: its file, and then its drop-ins and those of all
// services, by their names, of which the first directory has the say. What cannot be read
// is left out, as the kernel has already said that something is in the way.
func readUnit(dirs []string, unit string) (out []directive) {
	if unit == "" {
		return nil
	}
	for _, dir := range dirs {
		if text, ok := readSome(filepath.Join(dir, unit)); ok {
			out = directives(filepath.Join(dir, unit), text)
			break
		}
	}
	dropIns := map[string]string{}
	for _, of := range []string{unit, "service"} {
		for _, dir := range dirs {
			found, _ := filepath.Glob(filepath.Join(dir, of+".d", "*.conf"))
			for _, path := range found {
				if name := filepath.Base(path); dropIns[name] == "" && len(dropIns) < maxUnitFiles {
					dropIns[name] = path
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		if text, ok := readSome(dropIns[name]); ok {
			out = append(out, directives(dropIns[name], text)...)
		}
	}
	return out
}

// readSome reads the beginning of a file. One that is masked is a link to /dev/null, and
// read as empty.
func readSome(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxUnitFile))
	return string(raw), err == nil
}
