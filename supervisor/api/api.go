// Package api knows the requests and answers of control.sock and root.sock.
//
// It is pure. Both are stream sockets with one JSON document a line of at most
// MaxLine bytes, strictly decoded by whoever serves; identity is the peer's uid
// and nothing in the request. A request names things by selector: an id, or a
// label that must then mean exactly one thing.
//
//	client                                              server
//	  {"id","action","params","at"?,"dry_run"?,"request_id"?}  ─▶
//	                                ◀─ {"id","event"}             any number, only for follows and long work
//	                                ◀─ {"id","result"} or {"id","refusal"}
//
// Invariants:
//   - api-1: every action is served by exactly one of the two sockets.
//   - api-2: a request with an unknown or repeated member is refused, not ignored.
//
// It is neither server (control, launch) nor dialler (client).
package api

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/refusal"
)

// Bounds of the sockets.
const (
	MaxLine     = 1 << 20 // bytes of a line
	MaxSelector = 256     // bytes of an id or label
)

// Request is one line of a client.
type Request struct {
	ID        uint64         `json:"id"`
	Action    Action         `json:"action"`
	Params    jsontext.Value `json:"params,omitzero"`
	At        uint64         `json:"at,omitzero"` // the version the change was read at; 0: not named
	DryRun    bool           `json:"dry_run,omitzero"`
	RequestID string         `json:"request_id,omitzero"`
}

// Response is one line of a server; exactly one of Event, Result, Refusal is set.
type Response struct {
	ID      uint64         `json:"id"`
	Event   jsontext.Value `json:"event,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Refusal *Refusal       `json:"refusal,omitzero"`
}

// Refusal says no in the words of the closed table, with the particulars.
type Refusal struct {
	Code     refusal.Code `json:"code"`
	Sentence string       `json:"sentence"`
	Detail   string       `json:"detail,omitempty"` // what, where, what to do
	Help     string       `json:"help"`
}

// Error makes a Refusal usable as an error.
func (r *Refusal) Error() string {
	if r.Detail == "" {
		return r.Sentence
	}
	return r.Sentence + " " + r.Detail
}

// Refuse builds a Refusal of the table with particulars.
func Refuse(c refusal.Code, format string, args ...any) *Refusal {
	row := refusal.Of(c)
	return &Refusal{Code: row.Code, Sentence: row.Sentence, Detail: fmt.Sprintf(format, args...), Help: row.Code.Help()}
}

// Missing refuses a name that means nothing the asker may see: what does not exist
// and what is not theirs are answered alike.
func Missing(c refusal.Code, what, selector string) *Refusal {
	return Refuse(c, "No %s that you may see is called %.*q.", what, MaxSelector, selector)
}

// Action names what is asked.
type Action string

// Socket is the one that serves an action.
type Socket string

// The two sockets.
const (
	RootSocket    Socket = "root.sock"
	ControlSocket Socket = "control.sock"
)

// ServedBy tells which socket serves a; "" if there is no such action.
func ServedBy(a Action) Socket { return served[a] }

// Actions lists every action.
func Actions() []Action {
	out := make([]Action, 0, len(served))
	for a := range served {
		out = append(out, a)
	}
	return out
}

// DecodeRequest reads one line (without its newline).
func DecodeRequest(line []byte) (Request, error) {
	var r Request
	if len(line) > MaxLine {
		return r, fmt.Errorf("request of %d bytes, limit %d", len(line), MaxLine)
	}
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("request: %w", err)
	}
	return r, nil
}

// DecodeParams reads the parameters of a request strictly; absent ones decode as {}.
func DecodeParams[P any](raw jsontext.Value) (P, error) {
	var p P
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = jsontext.Value("{}")
	}
	if err := json.Unmarshal(raw, &p, json.RejectUnknownMembers(true)); err != nil {
		return p, fmt.Errorf("params: %w", err)
	}
	return p, nil
}

// Encode returns v as one line with its newline.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// EncodeValue returns v as the value of a result or an event.
func EncodeValue(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true))
}

// DecodeResponse reads one line of a server.
func DecodeResponse(line []byte) (Response, error) {
	var r Response
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("answer: %w", err)
	}
	return r, nil
}

// DecodeResult reads a result or an event. Members it does not know are let
// pass: a client that is one release older must still be able to show the rest.
func DecodeResult[R any](raw jsontext.Value) (R, error) {
	var r R
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("result: %w", err)
	}
	return r, nil
}
