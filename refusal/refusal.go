// Package refusal is the closed table of everything Postern says no with.
//
// It is pure and anyone may import it. Clients reuse the codes; only the table
// maps a code to an HTTP status, an exit status, a JSON-RPC form and the sentence
// a person reads, so that no surface words a refusal of its own.
//
// Invariants:
//   - refusal-1: every code has exactly one row, and every row is complete.
//   - refusal-2: a code the table does not know is answered as Internal, never as allowed.
//
// It decides nothing: verdicts are policy's.
package refusal

// Code names one reason for a no. The zero value is not a code.
type Code string

// Form says how a runtime that speaks JSON-RPC receives the refusal.
type Form int

const (
	// Result is a tools/call result with isError true: the tool is one of the project's own.
	Result Form = iota
	// InvalidParams is the error -32602: what lies outside the project looks like an unknown name.
	InvalidParams
	// InvalidRequest is the error -32600: the message itself was not acceptable.
	InvalidRequest
	// ServerError is the error -32000: the session could not be bound or was ended.
	ServerError
)

// JSONRPC returns the error code of f, 0 for Result.
func (f Form) JSONRPC() int {
	switch f {
	case InvalidParams:
		return -32602
	case InvalidRequest:
		return -32600
	case ServerError:
		return -32000
	}
	return 0
}

// Exit statuses of the command line (after sysexits.h).
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRefused     = 65
	ExitUnreachable = 69
	ExitTryAgain    = 75
	ExitNotAllowed  = 77
	ExitConfig      = 78
)

// Row is what the table says of one code.
type Row struct {
	Code     Code
	HTTP     int
	Exit     int
	Form     Form
	Sentence string // for a person; names no secret and no other project
}

// Help is the reference page's anchor for c.
func (c Code) Help() string { return "refusals#" + string(c) }

// Of returns the row of c; a code that is not in the table gets Internal's row.
func Of(c Code) Row {
	if r, ok := index[c]; ok {
		return r
	}
	return index[Internal]
}

// Known tells whether c is in the table.
func Known(c Code) bool { _, ok := index[c]; return ok }

// Error lets a Code travel as an error where a caller branches on it.
func (c Code) Error() string { return Of(c).Sentence }
