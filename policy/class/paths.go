package class

// Arguments says which arguments of a known filesystem operation are judged as paths
// before a call. Names are folded: lower case, without "_" and "-"; there are more of
// them than PathArgs, so that another spelling is no way past. The zero value is of a
// tool that has none.
type Arguments struct {
	Names []string // a string under one of these names, at any depth, is a path
	Least int      // how many there must be; fewer cannot be judged
}

// None tells whether the tool has no path arguments.
func (a Arguments) None() bool { return a.Names == nil }

// The names under which servers take paths. A server of another kind that has a tool
// of a known name takes its path under one of them, or its calls are refused.
var (
	pathNames = []string{"path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "fullpath", "absolutepath", "relativepath",
		"directory", "directories", "directorypath", "dir", "dirpath", "dirname", "folder", "folderpath", "root", "rootpath", "uri", "targetfile"}
	fromToNames = append([]string{"source", "sources", "sourcepath", "sourcefile", "src", "srcpath", "from", "frompath", "oldpath", "oldname", "destination", "destinationpath",
		"destinationfile", "dest", "destpath", "dst", "dstpath", "to", "topath", "target", "targetpath", "newpath", "newname"}, pathNames...)
)

// What an operation must be called with.
var (
	anyPath  = Arguments{pathNames, 0} // without one: the directory the server stands in
	aPath    = Arguments{pathNames, 1}
	twoPaths = Arguments{fromToNames, 2}
	renamed  = Arguments{fromToNames, 1}
)

// ArgumentsOf returns the path arguments of a known filesystem operation, in any server.
func ArgumentsOf(name string) Arguments { return operations[name].judged }
