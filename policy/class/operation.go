package class

// PathArg is an argument that names a file or a directory, or a list of them.
type PathArg struct {
	Name    string
	List    bool // a list of paths
	Written bool // what it names is made, changed or removed
	Pattern bool // with wildcards, beneath the path that stands before it in the table
	Patch   bool // a text that names the files which it makes, changes and removes
}

func one(name string) PathArg     { return PathArg{Name: name} }
func many(name string) PathArg    { return PathArg{Name: name, List: true} }
func glob(name string) PathArg    { return PathArg{Name: name, List: true, Pattern: true} }
func written(name string) PathArg { return PathArg{Name: name, Written: true} }
func patch(name string) PathArg   { return PathArg{Name: name, Written: true, Patch: true} }

// operation is what is known of a filesystem operation by its name, in any server.
type operation struct {
	classes Set
	paths   []PathArg
	judged  Arguments
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
	"read_file":                 {fsr, readPath, aPath},
	"read_text_file":            {fsr, readPath, aPath},
	"read_media_file":           {fsr, readPath, aPath},
	"read_multiple_files":       {fsr, readPaths, aPath},
	"list_directory":            {fsr, readPath, anyPath},
	"list_directory_with_sizes": {fsr, readPath, anyPath},
	"directory_tree":            {fsr, readPath, anyPath},
	"search_files":              {fsr, readPath, anyPath},
	"get_file_info":             {fsr, readPath, aPath},
	"list_files":                {fsr, readPath, anyPath},
	"list_allowed_directories":  {fsr, nil, Arguments{}},

	"write_file":       {fsw, writtenPath, aPath},
	"create_file":      {fsw, writtenPath, aPath},
	"create_directory": {fsw, writtenPath, aPath},
	"delete_file":      {fsw, writtenPath, aPath},
	"delete_directory": {fsw, writtenPath, aPath},
	"remove_file":      {fsw, writtenPath, aPath},

	"edit_file":   {fsr | fsw, writtenPath, aPath},
	"append_file": {fsr | fsw, writtenPath, aPath},
	"move_file":   {fsr | fsw, moved, twoPaths},
	"rename_file": {fsr | fsw, moved, renamed},
	"copy_file":   {fsr | fsw, copied, twoPaths},
}

// Paths returns the arguments of a known filesystem operation that are paths, and
// whether name is one. The list is not to be changed.
func Paths(name string) ([]PathArg, bool) {
	op, ok := operations[name]
	return op.paths, ok
}
