package launch

import (
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"golang.org/x/sys/unix"

	"postern/supervisor/api"
)

const auditName = "audit.log"

// audit is the record of every change of the root facts: one JSON line each, durable
// before the change is made. A change that cannot be recorded is not made.
type audit struct {
	mu sync.Mutex
	f  *os.File
}

// entry is one line. Params is what was asked; nothing on root.sock carries a secret.
type entry struct {
	Time    string         `json:"time"`
	UID     uint32         `json:"uid"`
	PID     int            `json:"pid"`
	Action  api.Action     `json:"action"`
	Params  jsontext.Value `json:"params,omitzero"`
	Version uint64         `json:"version"`           // of the facts that follow
	Request string         `json:"request,omitempty"` // the caller's own id for it
	Failed  string         `json:"failed,omitempty"`  // second line of a change that could not be written
}

func openAudit(path string) (*audit, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := checkOwned(f, 0o077); err != nil {
		f.Close()
		return nil, err
	}
	return &audit{f: f}, nil
}

func (a *audit) close() { a.f.Close() }

func (a *audit) write(e entry) error {
	e.Time = time.Now().UTC().Format(time.RFC3339Nano)
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.f.Write(append(raw, '\n')); err != nil {
		return err
	}
	return a.f.Sync()
}
