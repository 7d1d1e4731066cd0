package api

// MaxStands bounds the calls that an answer to a narrowing change names.
const MaxStands = 100

// Cut tells which calls were admitted before a change that took something away. Calls
// beyond MaxStands are only counted.
type Cut struct {
	Stands []OpenCall `json:"admitted_before"`
	More   int        `json:"admitted_before_more,omitzero"` // further ones that are not named
	Note   string     `json:"note,omitempty"`
}

// States of a call that is named by a change.
const (
	StateAdmitted = "admitted" // its outcome is not known yet
	StateDraining = "draining" // it may finish at the revision that it was admitted to
)

// Effects is what is true of every call that a change names.
const Effects = "These calls were admitted before; whatever they did stands."

// Answers of root.sock to changes that take something away.
type (
	AccountEndResult struct {
		AccountResult
		Cut
	}
	ProjectSetResult struct {
		ProjectResult
		Cut
	}
	ServerChangeResult struct {
		ServerResult
		Cut
	}
)
