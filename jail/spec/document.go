package spec

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Descriptors that postern-jail finds open, beside stdin, stdout and stderr of
// the program it is to become.
//
//	launcher                                   postern-jail
//	  │ clone into the fresh groups              │
//	  │                                          │ reads DocumentFD
//	  │ ── document, newline ──────────────────▶ │
//	  │                                          │ the step table
//	  │ ◀─ Failure on FailureFD, then exit 1 ─── │ a step failed
//	  │ ◀─ end of file on FailureFD ──────────── │ the program runs
//	  │ closes DocumentFD                        ╵
//
// A process that is put into its groups gets the document after that, and one that is
// born in them may find it there; so it is also the permission to begin. Because
// nobody but the launcher holds the other end, its hang-up tells that the launcher is
// dead.
const (
	DocumentFD = 3
	FailureFD  = 4
)

// MaxDocument bounds the document, in bytes with its newline. It is less than
// a pipe holds, so that writing it never blocks.
const MaxDocument = 60 << 10

// MaxSecret bounds what SecretFD holds, in bytes. The kernel takes no variable of more
// than 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxSecret = 64 << 10

// MaxFailure bounds the report of a failed step.
const MaxFailure = 4 << 10

// Document tells postern-jail everything. Fields ending in FD are numbers of
// inherited descriptors, 0 where there is none.
type Document struct {
	// Who the program becomes.
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`

	// What it runs.
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	Fork bool     `json:"fork"`

	// What it sees. WorkspaceFD, PackageFD and ProgramFD are detached mounts
	// with their attributes already set; they are only attached here.
	Binds       []Bind   `json:"binds"`
	Links       []Link   `json:"links"`
	Devices     bool     `json:"devices"`
	Proc        bool     `json:"proc"`
	Loopback    bool     `json:"loopback"`
	WorkspaceFD int      `json:"workspace_fd"`
	Protect     []string `json:"protect"`
	PackageFD   int      `json:"package_fd"`
	ProgramFD   int      `json:"program_fd"`

	// What it keeps open beside stdio: these descriptors become 3, 4, …; where one is 0,
	// the program has none of that number.
	ExtraFDs []int `json:"extra_fds"`

	// What SecretFD holds becomes the value of the variable SecretEnv. It is in no
	// document, so that nothing which shows one can show it.
	SecretEnv string `json:"secret_env"`
	SecretFD  int    `json:"secret_fd"`

	// What bounds it.
	Limits  Limits     `json:"limits"`
	ABI     int        `json:"abi"`
	Rules   []PathRule `json:"rules"`
	Filters [][]byte   `json:"filters"`
}

// PathRule is one Landlock rule: what may be done beneath Path.
type PathRule struct {
	Path  string `json:"path"`
	List  bool   `json:"list"` // directories, not what files hold
	Read  bool   `json:"read"`
	Exec  bool   `json:"exec"`
	Write bool   `json:"write"`
	// Optional lets the rule be left out where an optional bind was.
	Optional bool `json:"optional"`
}

// Failure is what postern-jail writes when a step fails.
type Failure struct {
	Step  string `json:"step"`
	Why   string `json:"why"`
	Errno int    `json:"errno"`
}

// strict refuses what the sender cannot have meant.
var strict = json.JoinOptions(
	json.RejectUnknownMembers(true),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
)

// Encode returns d as one line with its newline.
func (d Document) Encode() ([]byte, error) { return encode("document", d, MaxDocument) }

// DecodeDocument reads one line made by Encode.
func DecodeDocument(raw []byte) (Document, error) {
	var d Document
	return d, decode("document", raw, MaxDocument, &d)
}

// Encode returns f as one line with its newline.
func (f Failure) Encode() ([]byte, error) { return encode("failure", f, MaxFailure) }

// DecodeFailure reads one line made by Encode.
func DecodeFailure(raw []byte) (Failure, error) {
	var f Failure
	return f, decode("failure", raw, MaxFailure, &f)
}

func encode(what string, v any, most int) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	if raw = append(raw, '\n'); len(raw) > most {
		return nil, fmt.Errorf("encode %s: %d bytes are more than %d", what, len(raw), most)
	}
	return raw, nil
}

func decode(what string, raw []byte, most int, v any) error {
	if len(raw) > most {
		return fmt.Errorf("decode %s: %d bytes are more than %d", what, len(raw), most)
	}
	if err := json.Unmarshal(raw, v, strict); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}
