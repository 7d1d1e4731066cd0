// Package token knows the secret that binds one session to one task.
//
// It is pure: random bits and the time are brought by the caller. A token's text
// comes from a peer and is hostile.
//
// Invariants:
//   - token-1: Parse accepts exactly the text New makes.
//   - token-2: a token never appears in formatted output; only Secret gives it out.
//   - token-3: a token works for its uid, its project, its number of binds and its time, and for nothing else.
//   - token-4: what is kept is a digest, from which no token can be made.
//
// It stores nothing and knows no task: those are the registry's.
package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"postern/ids"
	"postern/refusal"
)

// Bounds of a token.
const (
	Prefix       = "ptk_"
	Len          = len(Prefix) + 43 // bytes of its text
	DefaultTTL   = 5 * time.Minute  // to bind
	MaxTTL       = 24 * time.Hour   // to bind
	DefaultBinds = 1                // sessions it may bind
	MaxBinds     = 64               // sessions it may bind
)

// Digest is what is kept of a token.
type Digest [sha256.Size]byte

// String returns the digest in hex. It is no secret, for nothing can be bound by it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Equal compares in constant time.
func (d Digest) Equal(o Digest) bool { return subtle.ConstantTimeCompare(d[:], o[:]) == 1 }

// Token is one secret. The zero value binds nothing.
type Token struct{ secret [32]byte }

// New makes a token of 256 random bits.
func New(random [32]byte) Token { return Token{random} }

var errShape = errors.New("not a task token")

// Parse reads a token's text. Its error never repeats the text.
func Parse(text string) (Token, error) {
	var t Token
	if len(text) != Len || text[:len(Prefix)] != Prefix {
		return t, errShape
	}
	n, err := base64.RawURLEncoding.Strict().Decode(t.secret[:], []byte(text[len(Prefix):]))
	if err != nil || n != len(t.secret) {
		return Token{}, errShape
	}
	return t, nil
}

// Secret returns the text that binds. Only the channel to the peer may see it.
func (t Token) Secret() string { return Prefix + base64.RawURLEncoding.EncodeToString(t.secret[:]) }

// Digest returns what is kept of t.
func (t Token) Digest() Digest { return sha256.Sum256(t.secret[:]) }

const redacted = Prefix + "[redacted]"

// String hides the secret.
func (t Token) String() string { return redacted }

// Format hides the secret from every verb of fmt.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText hides the secret from every encoder.
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Instant is one moment by the wall clock and by the clock that counts from boot
// (CLOCK_BOOTTIME), with the kernel's boot id. Whichever is earlier ends a token,
// so that setting the wall clock back prolongs nothing.
type Instant struct {
	Wall time.Time
	Boot time.Duration
	ID   string // of the boot; a reboot ends every token
}

// Binding is what a token was minted for, and how often it was used.
type Binding struct {
	Task    ids.Task
	Project ids.Project
	UID     uint32
	Binds   int // permitted
	Used    int
	Minted  Instant
	TTL     time.Duration
	Ended   bool // the token or its task was ended
}

// Check says whether a token with this binding may bind once more: uid and
// project are the peer's and the socket's, now is the moment. It returns the code
// that refuses, empty when it may. The nil binding is an unknown token.
func Check(b *Binding, uid uint32, project ids.Project, now Instant) refusal.Code {
	switch {
	case b == nil:
		return refusal.TokenInvalid
	case b.UID != uid:
		return refusal.TokenWrongUID
	case b.Project == "" || b.Project != project:
		return refusal.TokenInvalid
	case b.Ended:
		return refusal.TaskEnded
	case Expired(b, now):
		return refusal.TokenExpired
	case b.Used >= b.Binds:
		return refusal.TokenUsed
	}
	return ""
}

// Expired tells whether b's time is over. A clock that runs backwards or another
// boot ends it too.
func Expired(b *Binding, now Instant) bool {
	return now.ID == "" || now.ID != b.Minted.ID ||
		now.Boot < b.Minted.Boot || now.Boot-b.Minted.Boot >= b.TTL ||
		now.Wall.Sub(b.Minted.Wall) >= b.TTL
}
