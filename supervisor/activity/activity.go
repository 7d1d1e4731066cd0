// Package activity knows the records of calls as people and programs read them:
// their text form, their pages, the live stream, and how denials are folded.
//
// It runs inside the authority. Tool names, request ids and everything a runtime
// or server wrote is hostile: it is escaped and bounded before it is stored, and
// escaped again when it is shown.
//
// Invariants:
//   - activity-1: no text in a record can begin a second line or a second record.
//   - activity-2: a cursor says where, and grants nothing; one that was not made here, or for another reader, is refused.
//   - activity-3: denials of one session may become a count; admissions never do.
//   - activity-4: an exported line is one JSON object with the same members in the same order.
//
// It neither decides who may read (the caller asks for one project at a time) nor
// writes by itself (records go through the store's batch).
package activity

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
	"postern/policy/class"
	"postern/supervisor/store"
)

// Record is one call.
type Record = store.Call

// Bounds of what a record holds.
const (
	MaxRequestID = 128 // bytes, escaped
	MaxTool      = 256 // bytes, escaped
	MaxReason    = 512 // bytes, escaped
)

// Clean returns text with everything that is not printable ASCII or a plain
// printable letter escaped, at most max bytes long. Cutting is shown by "…".
func Clean(text string, max int) string {
	if plain(text) && len(text) <= max {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		piece := text[:n]
		if r == utf8.RuneError && n == 1 {
			piece = `\x` + hex.EncodeToString([]byte{text[0]})
		} else if r == '\\' || !shown(r) {
			q := strconv.QuoteRuneToASCII(r)
			piece = q[1 : len(q)-1]
			if r == '\\' {
				piece = `\\`
			}
		}
		if b.Len()+len(piece) > max-len("…") && (b.Len()+len(piece) > max || n < len(text)) {
			b.WriteString("…")
			break
		}
		b.WriteString(piece)
		text = text[n:]
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// shown tells whether a rune is visible as itself and in its place: no control,
// no format character (zero width, bidi), no other space than the plain one.
func shown(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Mn, r)
}

// Exported is the form of a record in an export. The order of the members is part of it.
type Exported struct {
	Cursor      string   `json:"cursor"` // where the next export goes on
	Call        string   `json:"call,omitzero"`
	Time        string   `json:"time"` // 2006-01-02T15:04:05.999999999Z
	State       string   `json:"state"`
	Account     string   `json:"account"`
	Host        string   `json:"host"`
	Project     string   `json:"project"`
	Task        string   `json:"task"`
	Principal   string   `json:"principal"`
	Mode        string   `json:"mode"`
	Policy      string   `json:"policy,omitzero"`
	Continues   string   `json:"continues,omitzero"`
	Session     string   `json:"session"`
	Connection  string   `json:"connection,omitzero"`
	Revision    string   `json:"revision,omitzero"`
	Tool        string   `json:"tool"`
	Classes     []string `json:"classes,omitempty"`
	RequestID   string   `json:"request_id,omitzero"`
	ArgsDigest  string   `json:"args_digest,omitzero"`
	ArgsSize    int64    `json:"args_size"`
	Ended       string   `json:"ended,omitzero"`
	Size        int64    `json:"size"`
	Micros      int64    `json:"micros"` // it took
	Code        string   `json:"code,omitzero"`
	Count       int64    `json:"count"`       // of denials that are one record
	Incarnation uint64   `json:"incarnation"` // of the authority
	Reason      string   `json:"reason,omitzero"`
	Artifacts   []string `json:"artifacts,omitempty"`
	NotKept     []string `json:"artifacts_not_kept,omitempty"`

	Arguments   jsontext.Value `json:"arguments,omitempty"`
	NotRecorded string         `json:"arguments_not_recorded,omitzero"`
}

// Export returns one record as one line of an export, without its newline. cursor
// is the place behind it, artifacts are what the call brought back; args are nil where
// nobody asked for them.
func Export(r *Record, cursor string, artifacts []store.Artifact, args *store.Arguments) (jsontext.Value, error) {
	l := Exported{
		Cursor: cursor, Call: string(r.ID), Time: stamp(r.At), State: r.State.String(),
		Account: string(r.Account), Host: Clean(r.Host, MaxTool), Project: string(r.Project), Task: string(r.Task),
		Principal: Clean(r.Principal, MaxTool), Mode: Clean(r.Mode, MaxTool), Policy: Clean(r.Policy, 4*MaxTool), Continues: Continues(r.Policy), Session: string(r.Session),
		Connection: string(r.Connection), Revision: string(r.Revision), Tool: Item(r.Tool), Classes: class.Set(r.Classes).Strings(),
		RequestID: Shown(r.RequestID, MaxRequestID), ArgsSize: r.ArgsSize, Ended: stamp(r.Ended), Size: r.Size, Micros: r.Micros,
		Code: string(r.Code), Count: r.Count, Incarnation: r.Incarnation, Reason: Shown(r.Reason, MaxReason),
	}
	if r.ArgsDigest != (store.Digest{}) {
		l.ArgsDigest = hex.EncodeToString(r.ArgsDigest[:])
	}
	l.Artifacts, l.NotKept = Artifacts(artifacts)
	if args != nil {
		l.Arguments, l.NotRecorded = Recorded(*args)
	}
	return json.Marshal(l, jsontext.PreserveRawStrings(true)) // what is escaped in arguments stays so
}

// Artifacts names those that were kept, and says of the others why not.
func Artifacts(all []store.Artifact) (kept, not []string) {
	for i := range all {
		if all[i].Missing == "" {
			kept = append(kept, string(all[i].ID))
		} else {
			not = append(not, Shown(all[i].Missing, MaxReason))
		}
	}
	return kept, not
}

// Shown escapes text that Clean has escaped already and that a file may have lost
// since: what is clean stays as it is.
func Shown(text string, max int) string {
	if len(text) <= max && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !shown(r) }) {
		return text
	}
	return Clean(text, max)
}

// Item is Shown for the name of a tool, a prompt or a resource. One that is cut says how
// long it is, so that two that begin alike are not taken for one another.
func Item(key string) string {
	if len(Shown(key, len(`\U00000000`)*len(key))) <= MaxTool {
		return Shown(key, MaxTool)
	}
	tail := " (" + strconv.Itoa(len(key)) + " bytes)"
	return Clean(key, MaxTool-len(tail)) + tail
}

// continues is the word of a record's policy that names the call whose server asked the
// user, and which this one goes on with.
const continues = "continues="

// Continuing is that word for a call.
func Continuing(first ids.Call) string { return continues + string(first) }

// Continues reads it; empty where there is none.
func Continues(policy string) string {
	for word := range strings.FieldsSeq(policy) {
		if first, ok := strings.CutPrefix(word, continues); ok {
			if id, err := ids.Parse[ids.Call](first); err == nil {
				return string(id)
			}
		}
	}
	return ""
}

func stamp(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
