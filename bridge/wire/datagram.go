package wire

import (
	"bytes"
	"errors"
)

// MaxTogether is how many messages one datagram may hold.
const MaxTogether = 64

// between stands between two messages of a datagram. No JSON text and no type's name
// has such a byte: it is the record separator of RFC 7464.
const between = 0x1e

// ErrFull is returned where a message does not fit beside those that a datagram has.
var ErrFull = errors.New("no room in this datagram")

// Datagram gathers messages of one direction that are sent at once. Each wakes its
// receiver once, however many it holds. The zero Datagram is empty.
type Datagram struct {
	raw []byte
	n   int
}

// Up adds m, or returns ErrFull and is as before.
func (d *Datagram) Up(m Up) error {
	return d.add(func(b []byte) ([]byte, error) { return EncodeUp(b, m) })
}

// Down is Up for the other direction. Only messages without descriptors have company.
func (d *Datagram) Down(m Down) error {
	return d.add(func(b []byte) ([]byte, error) { return EncodeDown(b, m) })
}

func (d *Datagram) add(encode func([]byte) ([]byte, error)) error {
	if d.n == MaxTogether {
		return ErrFull
	}
	was := len(d.raw)
	if d.n > 0 {
		d.raw = append(d.raw, between)
	}
	raw, err := encode(d.raw)
	if err == nil && d.n > 0 && len(raw) > MaxMessage {
		err = ErrFull
	}
	d.raw = raw
	if err != nil {
		d.raw = raw[:was]
		return err
	}
	d.n++
	return nil
}

// Bytes is what is sent, nil where there is nothing. It is valid until the next change.
func (d *Datagram) Bytes() []byte { return d.raw }

// Clear empties it, and keeps its memory where that is at most keep bytes.
func (d *Datagram) Clear(keep int) {
	d.raw, d.n = d.raw[:0], 0
	if cap(d.raw) > keep {
		d.raw = nil
	}
}

// Cut takes the first message off a datagram. What follows it is nil after the last.
func Cut(b []byte) (first, rest []byte) {
	first, rest, _ = bytes.Cut(b, []byte{between})
	return first, rest
}
