package class

import "slices"

// Native is a tool that a runtime has by itself. It runs where the runtime runs, not
// in a jail, so its classes come from this table alone and from nobody's word.
type Native struct {
	Name     string
	Runtimes []string // who calls it so
	Classes  Set      // none for a tool that calls tools: each of those asks for itself
	Paths    []PathArg
}

// The runtimes of the table; generic names are those that hosts agree on.
const (
	generic = "generic"
	claude  = "claude"
	codex   = "codex"
	gemini  = "gemini"
)

const (
	fsr = 1 << FilesystemRead
	fsw = 1 << FilesystemWrite
	run = 1 << ProcessExecute
	net = 1 << NetworkRead
)

// natives is the closed table: a name that is not in it has no class.
var natives = []Native{
	{"read_file", []string{generic, gemini}, fsr, []PathArg{one("path"), one("file_path"), one("absolute_path")}},
	{"write_file", []string{generic, gemini}, fsw, []PathArg{written("path"), written("file_path")}},
	{"edit_file", []string{generic}, fsr | fsw, []PathArg{written("path"), written("file_path")}},
	{"list_files", []string{generic}, fsr, []PathArg{one("path"), one("directory")}},
	{"search", []string{generic}, fsr, []PathArg{one("path"), one("directory")}},
	{"bash", []string{generic}, run, nil},
	{"web_fetch", []string{generic, gemini}, net, nil},
	{"web_search", []string{generic, codex}, net, nil},
	{"memory_read", []string{generic}, 1 << MemoryRead, nil},
	{"memory_write", []string{generic}, 1 << MemoryWrite, nil},
	{"schedule", []string{generic}, 1 << Scheduling, nil},
	{"message_send", []string{generic}, 1 << MessageSend, nil},
	{"device_read", []string{generic}, 1 << DeviceRead, nil},
	{"device_run", []string{generic}, 1 << DeviceExecute, nil},
	{"status", []string{generic}, 1 << RuntimeInspect, nil},
	{"tool_program", []string{generic}, 0, nil},

	{"Read", []string{claude}, fsr, []PathArg{one("file_path")}},
	{"Write", []string{claude}, fsw, []PathArg{written("file_path")}},
	{"Edit", []string{claude}, fsr | fsw, []PathArg{written("file_path")}},
	{"MultiEdit", []string{claude}, fsr | fsw, []PathArg{written("file_path")}},
	{"NotebookEdit", []string{claude}, fsr | fsw, []PathArg{written("notebook_path")}},
	{"Glob", []string{claude}, fsr, []PathArg{one("path"), glob("pattern")}},
	{"Grep", []string{claude}, fsr, []PathArg{one("path")}},
	{"LS", []string{claude}, fsr, []PathArg{one("path")}},
	{"Bash", []string{claude}, run, nil},
	{"BashOutput", []string{claude}, 1 << RuntimeInspect, nil},
	{"KillShell", []string{claude}, run, nil},
	{"WebFetch", []string{claude}, net, nil},
	{"WebSearch", []string{claude}, net, nil},
	{"TodoWrite", []string{claude}, 1 << RuntimeInspect, nil}, // a list in the session, kept nowhere
	{"Task", []string{claude}, 0, nil},

	{"shell", []string{codex}, run, nil},
	{"apply_patch", []string{codex}, fsr | fsw, []PathArg{patch("input"), patch("patch")}},
	{"update_plan", []string{codex}, 1 << RuntimeInspect, nil},
	{"view_image", []string{codex}, fsr, []PathArg{one("path")}},

	{"list_directory", []string{gemini}, fsr, []PathArg{one("path"), one("dir_path")}},
	{"glob", []string{gemini}, fsr, []PathArg{one("path"), one("dir_path"), glob("pattern")}},
	{"search_file_content", []string{gemini}, fsr, []PathArg{one("path"), one("dir_path"), glob("include")}},
	{"read_many_files", []string{gemini}, fsr, []PathArg{glob("paths"), glob("include")}},
	{"replace", []string{gemini}, fsr | fsw, []PathArg{written("file_path")}},
	{"run_shell_command", []string{gemini}, run, nil},
	{"google_web_search", []string{gemini}, net, nil},
	{"save_memory", []string{gemini}, 1 << MemoryWrite, nil},
}

var nativeIndex = func() map[string]*Native {
	m := make(map[string]*Native, len(natives))
	for i := range natives {
		m[natives[i].Name] = &natives[i]
	}
	return m
}()

// Natives lists the table.
func Natives() []Native { return slices.Clone(natives) }

// OfNative returns the row of a runtime's own tool; names are compared with their case.
// What has no row has no class.
func OfNative(name string) (Native, Source, bool) {
	n, ok := nativeIndex[name]
	if !ok {
		return Native{}, NoSource, false
	}
	if n.Classes.Empty() {
		return *n, NoSource, true
	}
	return *n, NativeTable, true
}

// NativeReaders lists the native tools that only read.
func NativeReaders() []string {
	var out []string
	for _, n := range natives {
		if n.Classes.Within(read) {
			out = append(out, n.Name)
		}
	}
	return out
}
