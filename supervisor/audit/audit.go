// Package audit keeps the record of every change: one JSON line each, durable before
// the change is made.
//
// It runs inside posternd, for root's facts and the access policy, and inside the
// authority, for its own. Each has its own file, in a directory that is its own alone.
// Selectors and labels in a record come from clients and are hostile; JSON escapes them.
//
// Invariants:
//   - audit-1: Write returns nil only when the line is on the disk; otherwise the change is refused by whoever asked.
//   - audit-2: a file that another user could have written, or that is a link, is not written to.
//   - audit-3: the files together are bounded: at most Keep old ones, each of about MaxBytes.
//   - audit-4: one record is one line, whatever its texts hold.
//
// It holds no secret and no content, and nothing reads a decision from it.
package audit

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// Name is the file; an older one has a number behind it, the newest 1.
const Name = "audit.log"

// Bounds of a log, and what they are where nothing is configured.
const (
	MinBytes     = 64 << 10
	DefaultBytes = 8 << 20
	MostBytes    = 1 << 30
	DefaultKeep  = 9
	MostKeep     = 99
	maxText      = 2048 // bytes of one text of a record
)

// Retention bounds a log.
type Retention struct {
	MaxBytes int64 // of one file
	Keep     int   // older files
}

// Check refuses what is no bound.
func (r Retention) Check() error {
	if r.MaxBytes < MinBytes || r.MaxBytes > MostBytes {
		return fmt.Errorf("audit.max_bytes: want %d to %d", MinBytes, MostBytes)
	}
	if r.Keep < 0 || r.Keep > MostKeep {
		return fmt.Errorf("audit.keep: want 0 to %d", MostKeep)
	}
	return nil
}

// Default is the retention where nothing is configured.
func Default() Retention { return Retention{MaxBytes: DefaultBytes, Keep: DefaultKeep} }

// Record is one change.
type Record struct {
	At      string `json:"at"`
	Actor   string `json:"actor"`  // who asked: "uid 0", or a part of Postern
	Origin  string `json:"origin"` // by which way: a socket and the process there
	Action  string `json:"action"`
	Target  string `json:"target,omitempty"` // an id, a label, or an identity with its middle left out
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
	Version uint64 `json:"version,omitempty"` // of the root facts that follow
	Request string `json:"request,omitempty"` // the caller's own id for it
	Failed  string `json:"failed,omitempty"`  // second line of a change that was recorded and then not made
}

// line is the record as it is written.
func (r Record) line(now time.Time) ([]byte, error) {
	r.At = now.UTC().Format(time.RFC3339Nano)
	for _, s := range []*string{&r.Actor, &r.Origin, &r.Action, &r.Target, &r.Before, &r.After, &r.Request, &r.Failed} {
		*s = bounded(*s)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(raw, '\n'), nil
}

func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) && len(s) > maxText-utf8.UTFMax {
			s = s[:len(s)-1]
		}
		s += "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
