package class

// PathArg is an argument that names a file or a directory, or a list of them.
type PathArg struct {
	Name    string
	List    bool // a list of paths
	Written bool // what it names is made, changed or removed
}

func one(name string) PathArg     { return PathArg{Name: name} }
func many(name string) PathArg    { return PathArg{Name: name, List: true} }
func written(name string) PathArg { return PathArg{Name: name, Written: true} }

// operation is what is known of a filesystem operation by its name, in any server.
type operation struct {
	classes Set
	paths   []PathArg
}

// The arguments that servers use for the same thing: a call may have any of them, and
// each one it has is a path.
var (
	readPath    = []PathArg{one("path"), one("file_path"), one("filename"), one("directory")}
	readPaths   = []PathArg{many("paths"), many("files"), one("path")}
	writtenPath = []PathArg{written("path"), written("file_path"), written("filename"), written("directory")}
	moved       = []PathArg{written("source"), written("destination"), written("old_path"), written("new_path"), written("from"), written("to"), written("path")}
	copied      = []PathArg{one("source"), written("destination"), one("from"), written("to"), one("path")}
)

// operations is the closed table of filesystem operations known by name in any server.
var operations = map[string]operation{
	"read_file":                 {fsr, readPath},
	"read_text_file":            {fsr, readPath},
	"read_media_file":           {fsr, readPath},
	"read_multiple_files":       {fsr, readPaths},
	"list_directory":            {fsr, readPath},
	"list_directory_with_sizes": {fsr, readPath},
	"directory_tree":            {fsr, readPath},
	"search_files":              {fsr, readPath},
	"get_file_info":             {fsr, readPath},
	"list_files":                {fsr, readPath},
	"list_allowed_directories":  {fsr, nil},

	"write_file":       {fsw, writtenPath},
	"create_file":      {fsw, writtenPath},
	"create_directory": {fsw, writtenPath},
	"delete_file":      {fsw, writtenPath},
	"delete_directory": {fsw, writtenPath},
	"remove_file":      {fsw, writtenPath},

	"edit_file":   {fsr | fsw, writtenPath},
	"append_file": {fsr | fsw, writtenPath},
	"move_file":   {fsr | fsw, moved},
	"rename_file": {fsr | fsw, moved},
	"copy_file":   {fsr | fsw, copied},
}

// Paths returns the arguments of a known filesystem operation that are paths, and
// whether name is one. The list is not to be changed.
func Paths(name string) ([]PathArg, bool) {
	op, ok := operations[name]
	return op.paths, ok
}
