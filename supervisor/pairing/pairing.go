// Package pairing knows the codes by which people of a channel are paired.
//
// It is pure: random bits and the time are brought by the caller, and the caller keeps
// a Book to one goroutine. The text of a code comes from whoever wrote to a channel and
// is hostile.
//
// Invariants:
//   - pairing-1: a code works once, in its channel, until its time is over, and in no other process than the one that made it.
//   - pairing-2: MaxWrong wrong codes end every code of the channel, and for a pause nobody can try or make one there.
//   - pairing-3: a code never appears in formatted output; only Secret gives it out.
//   - pairing-4: what is kept is a digest, compared in constant time with all of the channel's.
//   - pairing-5: what is kept is bounded.
//
// It decides nothing about a person: who may make a code and who may use one is
// control's, what being paired is worth is policy/access's.
package pairing

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Bounds of a code.
const (
	Len        = 10               // characters, of 5 bits each
	RandomLen  = 7                // bytes that a code is made of; 50 of their bits are used
	DefaultTTL = 10 * time.Minute // to use it
	MinTTL     = time.Minute      // to use it
	MaxTTL     = 30 * time.Minute // to use it
	MaxCodes   = 16               // that can be used in one channel
	MaxWrong   = 5                // wrong codes that end a channel's codes
	Pause      = time.Minute      // after that, before another one is made
	maxText    = 32               // bytes of a code as somebody wrote it
	half       = Len / 2          // characters before the hyphen
)

// alphabet has no letter that is taken for another character.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Why a code is not made.
var (
	ErrMany   = errors.New("the channel has as many codes as it may")
	ErrPaused = errors.New("too many wrong codes were tried in the channel")
)

// Digest is what is kept of a code.
type Digest [sha256.Size]byte

// Code is one secret. The zero value pairs nobody.
type Code struct{ text string }

// New makes a code of 50 random bits.
func New(random [RandomLen]byte) Code {
	var n uint64
	for _, b := range random {
		n = n<<8 | uint64(b)
	}
	var text [Len]byte
	for i := range text {
		text[i], n = alphabet[n%uint64(len(alphabet))], n/uint64(len(alphabet))
	}
	return Code{string(text[:])}
}

var errShape = errors.New("not a pairing code")

// Parse reads a code as people write it: in any case, with or without the hyphen, with
// O for 0 and I or L for 1. Its error never repeats the text.
func Parse(text string) (Code, error) {
	if len(text) > maxText {
		return Code{}, errShape
	}
	var b strings.Builder
	for _, c := range strings.ToUpper(strings.TrimSpace(text)) {
		switch c {
		case '-', ' ':
			continue
		case 'O':
			c = '0'
		case 'I', 'L':
			c = '1'
		}
		if c > 127 || strings.IndexByte(alphabet, byte(c)) < 0 {
			return Code{}, errShape
		}
		b.WriteByte(byte(c))
	}
	if b.Len() != Len {
		return Code{}, errShape
	}
	return Code{b.String()}, nil
}

// Secret returns the code's text. It is the only way to the secret.
func (c Code) Secret() string {
	if c.text == "" {
		return ""
	}
	return c.text[:half] + "-" + c.text[half:]
}

// Digest returns what is kept of the code.
func (c Code) Digest() Digest { return sha256.Sum256([]byte(c.text)) }

// Format keeps the code out of every formatted output.
func (c Code) Format(s fmt.State, _ rune) { io.WriteString(s, "a pairing code") }

// Book holds the codes that can be used. The zero Book holds none.
type Book struct{ channels map[string]*channel }

type channel struct {
	codes  map[Digest]time.Duration // until when, since the host was booted
	wrong  int                      // codes tried since the first of these was made
	paused time.Duration            // until when
}

// at returns a channel without what is over at now; nil where nothing is left of it.
func (b *Book) at(name string, now time.Duration) *channel {
	c := b.channels[name]
	if c == nil {
		return nil
	}
	for d, until := range c.codes {
		if now >= until {
			delete(c.codes, d)
		}
	}
	if len(c.codes) == 0 {
		c.wrong = 0 // there is nothing left that what was tried could be
		if now >= c.paused {
			delete(b.channels, name)
			return nil
		}
	}
	return c
}

// Free tells whether a code can be made in a channel now: ErrMany or ErrPaused if not.
// Times are since the host was booted, so that no clock that is set lengthens a code.
func (b *Book) Free(name string, now time.Duration) error {
	switch c := b.at(name, now); {
	case c == nil:
		return nil
	case now < c.paused:
		return ErrPaused
	case len(c.codes) >= MaxCodes:
		return ErrMany
	}
	return nil
}

// Add keeps a code of a channel until ttl is over.
func (b *Book) Add(name string, c Code, ttl, now time.Duration) error {
	if err := b.Free(name, now); err != nil {
		return err
	}
	if b.channels == nil {
		b.channels = map[string]*channel{}
	}
	if b.channels[name] == nil {
		b.channels[name] = &channel{codes: map[Digest]time.Duration{}}
	}
	b.channels[name].codes[c.Digest()] = now + ttl
	return nil
}

// Count tells how many codes of a channel can be used.
func (b *Book) Count(name string, now time.Duration) int {
	if c := b.at(name, now); c != nil {
		return len(c.codes)
	}
	return 0
}

// Channels lists those that have codes which can be used.
func (b *Book) Channels(now time.Duration) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(b.channels)) {
		if b.Count(name, now) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// Tried is what became of a code that somebody wrote. The zero value: it is none.
type Tried struct {
	Good  bool
	Wrong int // of codes tried in this channel, this one with them; 0 where there was none to find
	Ended int // codes that end with it
}

// Look tells what trying a code would come to; it changes nothing. A channel without
// codes counts nothing, for there is nothing to guess.
func (b *Book) Look(name, text string, now time.Duration) Tried {
	c := b.at(name, now)
	if c == nil || len(c.codes) == 0 {
		return Tried{}
	}
	code, err := Parse(text)
	d, found := code.Digest(), 0
	for kept := range c.codes {
		found |= subtle.ConstantTimeCompare(kept[:], d[:])
	}
	if err == nil && found == 1 {
		return Tried{Good: true}
	}
	t := Tried{Wrong: c.wrong + 1}
	if t.Wrong >= MaxWrong {
		t.Ended = len(c.codes)
	}
	return t
}

// Take does what Look told: it uses the code up, or counts it as wrong.
func (b *Book) Take(name, text string, now time.Duration) Tried {
	t := b.Look(name, text, now)
	c := b.channels[name]
	switch {
	case t.Good:
		code, _ := Parse(text)
		delete(c.codes, code.Digest())
	case t.Ended > 0:
		clear(c.codes)
		c.wrong, c.paused = 0, now+Pause
	case t.Wrong > 0:
		c.wrong = t.Wrong
	}
	return t
}
