package api

// Bounds of a backup.
const (
	BackupPieceBytes = 512 << 10 // of a file, in one event
	BackupFileBytes  = 64 << 30  // of one file
)

// BackupFormat is the number of the layout of a backup.
const BackupFormat = 1

// The files of a backup, and which socket gives which.
var (
	BackupStore = []string{"policy.db", "activity.db"} // control.sock
	BackupRoot  = []string{"facts.json"}               // root.sock
)

// BackupPiece is an event: the next bytes of one file. The files come one after the
// other, in the order of the lists.
type BackupPiece struct {
	File string `json:"file"`
	Data []byte `json:"data"` // base64
}

// BackupFile is one file as a whole.
type BackupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// BackupResult says what was sent.
type BackupResult struct {
	Version string       `json:"version"`
	Files   []BackupFile `json:"files"`
}

// BackupManifest is the file manifest.json of a backup, and what the command prints.
type BackupManifest struct {
	Format  int          `json:"format"`
	Version string       `json:"version"` // of Postern
	Taken   int64        `json:"taken"`   // milliseconds since the epoch
	Files   []BackupFile `json:"files"`
}
