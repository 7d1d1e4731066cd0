package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"postern/near"
)

//go:generate go run ./gen ../..

// generic is a path as the table names it, without the numbers of a list's entries.
func generic(path string) string { return near.Section(path) }

// parent cuts the last name from a path of the table.
func parent(path string) (in, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// Example is a whole file, in which every key that has an example stands.
func Example() string {
	var b strings.Builder
	listed := map[string]bool{}
	for _, k := range keys {
		in, name := parent(k.Path)
		indent := ""
		switch {
		case strings.HasSuffix(in, "[]") && !listed[in]:
			indent, listed[in] = "  - ", true
		case strings.HasSuffix(in, "[]"):
			indent = "    "
		case in != "":
			indent = "  "
		}
		line := strings.TrimRight(fmt.Sprintf("%s%s: %s", indent, name, k.Example), " ")
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

func (k Key) takes() string {
	if k.Restart {
		return "at a restart"
	}
	return "within seconds"
}

func (k Key) otherwise() string {
	if k.Needed {
		in, _ := parent(k.Path)
		return fmt.Sprintf("needed in `%s`", in)
	}
	return k.Default
}

const intro = `postern.yaml is posternd's configuration. It may be absent; then every key has its default.

It and its directory belong to root, and nobody else may write them. Links are not followed. A number is written in
digits alone.
`

const dropIns = "Files that end in `.yaml` in `postern.yaml.d` beside it are read after it, in the order of their names, and are\n" +
	"held to the same: the file, and the directory, are root's and nobody else's to write. What they say is added:\n\n" +
	"- a section may be continued in another file, but for `uid_range`, whose two keys stand together;\n" +
	"- the lists of `hosts` are one list, in which an id stands once, whatever its case;\n" +
	"- any other key is set once. In two files it is a mistake that names both places: no file overrides another.\n\n" +
	"So what holds can be told without knowing the order. A drop-in can be there without `postern.yaml`.\n"

// names says which files are read and which are a mistake for their names.
func names() string {
	return "Of `postern.yaml.d` and `profiles.d` every file is read whose name ends in `.yaml`, in these letters. Any other file or\n" +
		"directory there is a mistake, for nobody would hear what it says. Passed over are hidden ones, `README`, and what is\n" +
		"left over by its name, which ends in one of\n" + listed(near.Leftovers()) + ".\n\n" +
		"Beside them, and beside the access policy, a name is a mistake that is theirs but for capital letters, its ending or a\n" +
		"letter or two: `access.yml`, `acess.yaml`, `postern.conf`, `postern.d`. One with a digit, such as `access2.yaml`, is\n" +
		"left alone. A file that begins with a byte order mark is a mistake too: save it as UTF-8 without the mark.\n"
}

// listed writes endings in lines that are not too long.
func listed(endings []string) string {
	const few = 9 // on a line
	var b strings.Builder
	for i, e := range endings {
		switch {
		case i > 0 && i%few == 0:
			b.WriteString(",\n")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("`" + e + "`")
	}
	return b.String()
}

const mistakes = "Unknown keys, keys in the wrong section, repeated ones, bad values and missing ones are all told at once, each with\n" +
	"file, line, key and what was expected; posternd ends with status 78 and nothing has been started. `posternd -check` does\n" +
	"only that, with `-json` for programs: one document with `mistakes` (`file`, `line`, `key`, `want`), and with `settings`,\n" +
	"where each key is set and whether it `needs_restart`.\n\n" +
	"A running posternd reads the files again when they change, or at once at SIGHUP (`systemctl reload postern`). With one\n" +
	"mistake in any of them nothing is taken and what was there before holds; `postern doctor` and the log say what to mend.\n" +
	"What needs a restart is said there too, and the rest of the same file is taken.\n"

// Page is docs/configuration.md.
func Page() string {
	var b strings.Builder
	b.WriteString("# postern.yaml, key by key\n\n<!-- Written by go generate ./supervisor/config; edit its table. -->\n\n" + intro)
	b.WriteString("\n```yaml\n" + Example() + "```\n\n## Keys\n\n| key | value | without it | takes effect | what |\n|---|---|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Path, k.wants(), k.otherwise(), k.takes(), k.Text)
	}
	b.WriteString("\n## Drop-ins\n\n" + dropIns + "\n## Names of files\n\n" + names() + "\n## Mistakes, and what takes effect when\n\n" + mistakes)
	b.WriteString("\n## Editors\n\nEditors can check the files as they are written, by a JSON schema that yaml-language-server takes from a first line:\n\n" +
		"```\n# yaml-language-server: $schema=/usr/share/postern/postern.schema.json\n```\n\n" +
		"Beside it are `profile.schema.json` for profiles, which are described in [profiles.md](profiles.md), and\n" +
		"`access.schema.json` for `access.yaml`, in [access-policy.md](access-policy.md). What a schema cannot tell, such as an\n" +
		"id that stands twice, `posternd -check` does.\n")
	return b.String()
}

// Manual is the source of postern.yaml(5), for go-md2man.
func Manual() string {
	var b strings.Builder
	b.WriteString("postern.yaml 5 \"\" Postern Postern\n=================================\n\n# NAME\n\npostern.yaml - configuration of posternd\n\n# SYNOPSIS\n\n*/etc/postern/postern.yaml*, */etc/postern/postern.yaml.d/\\*.yaml*\n\n# DESCRIPTION\n\n" + intro + "\n# KEYS\n\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "**%s**\n:   %s %s. ", strings.NewReplacer("[", `\[`, "]", `\]`).Replace(k.Path), k.Text, capital(strings.NewReplacer("*", `\*`, "[", `\[`, "]", `\]`).Replace(k.wants())))
		if k.Needed {
			b.WriteString("Needed. ")
		} else {
			fmt.Fprintf(&b, "Without it: %s. ", k.Default)
		}
		fmt.Fprintf(&b, "Takes effect %s.\n\n", k.takes())
	}
	plain := strings.NewReplacer("`", "*", "*.yaml", "\\*.yaml")
	b.WriteString("# DROP-INS\n\n" + plain.Replace(dropIns) + "\n# NAMES OF FILES\n\n" + plain.Replace(names()) + "\n# MISTAKES\n\n" + plain.Replace(mistakes))
	b.WriteString("\n# EXAMPLE\n\n```\n" + Example() + "```\n\n# SEE ALSO\n\n**posternd**(8), **postern**(1), */usr/share/doc/postern/*\n")
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Schema is the JSON schema of one file, for editors. A drop-in need not be complete, but
// a section of it is.
func Schema() ([]byte, error) {
	root := object("postern.yaml", sections[""], "")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Postern: postern.yaml and its drop-ins"
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

func object(text string, names []string, in string) map[string]any {
	properties, needed := map[string]any{}, []string{}
	for _, name := range names {
		k := byPath[under(in, name)]
		properties[name] = k.schema()
		if k.Needed {
			needed = append(needed, name)
		}
	}
	out := map[string]any{"type": "object", "description": text, "additionalProperties": false, "properties": properties}
	if len(needed) > 0 {
		out["required"] = needed
	}
	return out
}

func (k Key) schema() map[string]any {
	text := map[string]any{"type": "string", "minLength": 1, "maxLength": maxText}
	describe := func(s map[string]any) map[string]any {
		s["description"] = fmt.Sprintf("%s Takes effect %s.", k.Text, k.takes())
		return s
	}
	switch k.Type {
	case Section:
		return describe(object(k.Text, sections[k.Path], k.Path))
	case Sections:
		return describe(map[string]any{"type": "array", "maxItems": k.Most, "items": object(k.Text, sections[k.Path+"[]"], k.Path+"[]")})
	case Number:
		return describe(map[string]any{"type": "integer", "minimum": k.Least, "maximum": k.Most})
	case Text:
		return describe(text)
	case Names:
		text["not"] = map[string]any{"const": "*"}
	case Accounts, Projects:
		prefix := map[Type]string{Accounts: "acc", Projects: "prj"}[k.Type]
		text["pattern"] = fmt.Sprintf(`^(\*|%s_[0-9a-f-]{36})$`, prefix)
	}
	return describe(map[string]any{"type": "array", "maxItems": k.Most, "items": text})
}
