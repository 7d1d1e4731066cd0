package api

import (
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"
)

// Actions of root.sock on credentials.
const (
	CredentialAdd    Action = "credential.add"    // CredentialParams → CredentialResult
	CredentialRotate Action = "credential.rotate" // CredentialParams → CredentialEndResult
	CredentialRevoke Action = "credential.revoke" // Selected → CredentialEndResult
	CredentialList   Action = "credential.list"   // PageParams → CredentialListResult
)

// MaxSecret bounds a credential's secret in bytes.
const MaxSecret = 64 << 10

// Secret is what a credential is. It crosses root.sock once, towards posternd, and no
// verb of fmt shows it.
type Secret struct{ value []byte }

// SecretOf wraps bytes, which the caller no longer uses.
func SecretOf(b []byte) Secret { return Secret{b} }

// Bytes is the secret itself.
func (s Secret) Bytes() []byte { return s.value }

// Clear forgets it.
func (s Secret) Clear() { clear(s.value) }

// Format writes that it is not shown, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[secret]") }

// MarshalJSON is the form of the wire.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.value) }

// UnmarshalJSON reads it; its errors do not show what was there.
func (s *Secret) UnmarshalJSON(raw []byte) error {
	if len(raw) > base64.StdEncoding.EncodedLen(MaxSecret+1)+2 {
		return fmt.Errorf("a secret has at most %d bytes", MaxSecret)
	}
	var value []byte
	if json.Unmarshal(raw, &value) != nil {
		return fmt.Errorf("a secret is base64")
	}
	s.value = value
	return nil
}

// Parameters and results of credential actions.
type (
	// CredentialParams adds a credential, or rotates one, which Selector names. Exactly one
	// of Secret and Systemd is given.
	CredentialParams struct {
		Selector string `json:"selector,omitempty"` // of rotate
		Label    string `json:"label,omitempty"`    // of add, like what follows
		Project  string `json:"project,omitempty"`
		Server   string `json:"server,omitempty"`
		Secret   Secret `json:"secret,omitzero"`
		Systemd  string `json:"systemd,omitempty"` // name of a credential that systemd gives posternd
	}
	// CredentialResult is everything about a credential but what it is.
	CredentialResult struct {
		Credential   string `json:"credential"`
		Label        string `json:"label"`
		Project      string `json:"project"`
		ProjectLabel string `json:"project_label"`
		Server       string `json:"server"`
		ServerLabel  string `json:"server_label"`
		Delivery     string `json:"delivery"` // how the server gets it, in words
		Source       string `json:"source"`   // a file, or which credential of systemd
		Generation   uint64 `json:"generation"`
		Created      int64  `json:"created"` // milliseconds since the epoch
		Changed      int64  `json:"changed"`
		State        string `json:"state"` // ok, or unreadable and why
	}
	// CredentialListResult lists what root may see.
	CredentialListResult struct {
		Credentials []CredentialResult `json:"credentials"`
		Next        string             `json:"next,omitempty"` // there is more, after this one
	}
	// CredentialEndResult is what rotating or revoking ended.
	CredentialEndResult struct {
		CredentialResult
		Ended int `json:"instances_ended"`
		Cut
	}
)
