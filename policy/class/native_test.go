package class

import (
	"slices"
	"testing"
)

// golden is the class of each native tool; what a runtime gains is added to both tables.
var golden = map[string]string{
	"read_file": "filesystem.read", "write_file": "filesystem.write", "edit_file": "filesystem.read,filesystem.write", "list_files": "filesystem.read", "search": "filesystem.read",
	"bash": "process.execute", "web_fetch": "network.read", "web_search": "network.read", "memory_read": "memory.read", "memory_write": "memory.write", "schedule": "scheduling",
	"message_send": "message.send", "device_read": "device.read", "device_run": "device.execute", "status": "runtime.inspect", "tool_program": "",
	"Read": "filesystem.read", "Write": "filesystem.write", "Edit": "filesystem.read,filesystem.write", "MultiEdit": "filesystem.read,filesystem.write",
	"NotebookEdit": "filesystem.read,filesystem.write", "Glob": "filesystem.read", "Grep": "filesystem.read", "LS": "filesystem.read", "Bash": "process.execute",
	"BashOutput": "runtime.inspect", "KillShell": "process.execute", "WebFetch": "network.read", "WebSearch": "network.read", "TodoWrite": "runtime.inspect", "Task": "",
	"shell": "process.execute", "apply_patch": "filesystem.read,filesystem.write", "update_plan": "runtime.inspect", "view_image": "filesystem.read",
	"list_directory": "filesystem.read", "glob": "filesystem.read", "search_file_content": "filesystem.read", "read_many_files": "filesystem.read",
	"replace": "filesystem.read,filesystem.write", "run_shell_command": "process.execute", "google_web_search": "network.read", "save_memory": "memory.write",
}

func TestC11_EveryNativeToolHasItsRow(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range Natives() {
		want, ok := golden[n.Name]
		if !ok || seen[n.Name] {
			t.Errorf("%q has no row here, or two there", n.Name)
		}
		seen[n.Name] = true
		if n.Classes.String() != want || len(n.Runtimes) == 0 {
			t.Errorf("%q is %q by %q, want %q", n.Name, n.Classes, n.Runtimes, want)
		}
		// A tool that writes files by path says which argument that is.
		if n.Classes.Has(FilesystemWrite) && !slices.ContainsFunc(n.Paths, func(a PathArg) bool { return a.Written }) {
			t.Errorf("%q writes and names no path", n.Name)
		}
	}
	for name := range golden {
		if !seen[name] {
			t.Errorf("%q is not in the table", name)
		}
	}
}

func TestC2_ANativeToolHasTheTablesClassAlone(t *testing.T) {
	for _, row := range []struct {
		name string
		want Set
		from Source
		ok   bool
	}{
		{"bash", SetOf(ProcessExecute), NativeTable, true}, {"Bash", SetOf(ProcessExecute), NativeTable, true}, {"BASH", 0, NoSource, false}, {"mcp__db__purge", 0, NoSource, false},
		{"", 0, NoSource, false}, {"tool_program", 0, NoSource, true}, {"Task", 0, NoSource, true}, {"re\u0430d_file", 0, NoSource, false},
	} {
		n, from, ok := OfNative(row.name)
		if n.Classes != row.want || from != row.from || ok != row.ok {
			t.Errorf("%q: %v by %v, %v", row.name, n.Classes, from, ok)
		}
	}
	if NativeTable.String() != "native tool" {
		t.Error("the table has no name")
	}
	readers := NativeReaders()
	if !slices.Contains(readers, "read_file") || !slices.Contains(readers, "status") || slices.Contains(readers, "edit_file") || slices.Contains(readers, "Task") {
		t.Errorf("%q", readers)
	}
}

func TestC13_PathsOfKnownOperations(t *testing.T) {
	for name, op := range operations {
		paths, known := Paths(name)
		if !known || op.classes.Empty() || len(paths) == 0 && name != "list_allowed_directories" {
			t.Errorf("%s: %v %v", name, op.classes, paths)
		}
		for _, a := range paths {
			if a.Written && !op.classes.Has(FilesystemWrite) {
				t.Errorf("%s writes %s and is only read", name, a.Name)
			}
		}
		if op.classes.Has(FilesystemWrite) && !slices.ContainsFunc(paths, func(a PathArg) bool { return a.Written }) {
			t.Errorf("%s writes and names nothing written", name)
		}
	}
	if paths, known := Paths("query"); known || paths != nil {
		t.Errorf("%v", paths)
	}
	for _, row := range []struct {
		op  string
		arg PathArg
	}{
		{"read_file", PathArg{Name: "path"}}, {"read_multiple_files", PathArg{Name: "paths", List: true}}, {"move_file", PathArg{Name: "source", Written: true}},
		{"move_file", PathArg{Name: "destination", Written: true}}, {"copy_file", PathArg{Name: "source"}}, {"edit_file", PathArg{Name: "path", Written: true}},
	} {
		if paths, _ := Paths(row.op); !slices.Contains(paths, row.arg) {
			t.Errorf("%s: no %+v in %+v", row.op, row.arg, paths)
		}
	}
}

// What a server says of its own tool raises its class and never stands for the operator's word.
func TestC2_AClaimNeverLowers(t *testing.T) {
	for _, row := range []struct {
		says     string
		declared Set
		tool     string
		h        Hints
		want     Set
		from     Source
	}{
		{"C099 the operator's declaration stands against a claim to read", SetOf(MCPWrite), "drop_table", Hints{ReadOnly: Yes, Destructive: No}, SetOf(MCPWrite), Operator},
		{"C099 a claim to read is a claim", 0, "drop_table", Hints{ReadOnly: Yes, Destructive: No}, SetOf(MCPRead), Annotations},
		{"C100 no annotation is no class", 0, "drop_table", Hints{}, 0, NoSource},
		{"C100 what is not a boolean was not said", 0, "drop_table", Hints{ReadOnly: Unsaid}, 0, NoSource},
		{"a runtime's own name is none of a server's", 0, "bash", Hints{}, 0, NoSource},
		{"a contradiction is not reading", 0, "read_file", Hints{ReadOnly: No}, SetOf(MCPWrite), KnownName},
	} {
		if got, from := Of(row.declared, row.tool, row.h); got != row.want || from != row.from {
			t.Errorf("%s: %v by %v, want %v by %v", row.says, got, from, row.want, row.from)
		}
	}
	if All() != all || len(All().Strings()) != Count {
		t.Error("all classes are not all")
	}
}
