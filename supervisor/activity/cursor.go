package activity

import (
	"errors"
	"strconv"
	"strings"

	"postern/supervisor/store"
)

// Cursor is a place among the records: before a number (a page of older ones), after
// a change (what is new), or on the way from older records to what is new. It
// carries no authority; each use of it asks again who reads, and for which project.
type Cursor struct {
	Before int64

	// Follow: what changed after After, of records numbered From or above.
	Follow      bool
	After, From int64

	// Walk: records numbered At to Until that changed after Floor, the oldest first;
	// then as Follow.
	Walk             bool
	At, Until, Floor int64

	// Reader names whom the cursor was made for, by a word without "-". It proves
	// nothing: who reads is asked each time, and must be the same.
	Reader string
}

// String returns the cursor's text.
func (c Cursor) String() string {
	text := "p" + numbers(c.Before)
	switch {
	case c.Walk:
		text = "w" + numbers(c.At, c.Until, c.Floor, c.After, c.From)
	case c.Follow:
		text = "f" + numbers(c.After, c.From)
	}
	if c.Reader != "" {
		text += "-" + c.Reader
	}
	return text
}

func numbers(ns ...int64) string {
	var parts []string
	for _, n := range ns {
		parts = append(parts, strconv.FormatInt(n, 36))
	}
	return strings.Join(parts, ".")
}

// maxCursor bounds a cursor's text.
const maxCursor = 128

var errCursor = errors.New("not a cursor of an activity answer")

// ParseCursor reads what String wrote and nothing else. The empty text is the
// newest page.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	if len(text) > maxCursor {
		return Cursor{}, errCursor
	}
	var c Cursor
	place, reader, _ := strings.Cut(text, "-")
	c.Reader = reader
	var to []*int64
	switch text[0] {
	case 'p':
		to = []*int64{&c.Before}
	case 'f':
		c.Follow, to = true, []*int64{&c.After, &c.From}
	case 'w':
		c.Walk, to = true, []*int64{&c.At, &c.Until, &c.Floor, &c.After, &c.From}
	default:
		return Cursor{}, errCursor
	}
	parts := strings.Split(place[1:], ".")
	if len(parts) != len(to) {
		return Cursor{}, errCursor
	}
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 36, 64)
		if err != nil || n < 0 {
			return Cursor{}, errCursor
		}
		*to[i] = n
	}
	if c.String() != text {
		return Cursor{}, errCursor
	}
	return c, nil
}

// Apply points a query at the cursor.
func (c Cursor) Apply(q *store.Query) {
	q.Before, q.Changes, q.After, q.From = c.Before, c.Follow, c.After, c.From
	if q.Walk = c.Walk; c.Walk {
		q.From, q.Until, q.After = c.At, c.Until, c.Floor
	}
}

// Next is the cursor that goes on after a page that c asked for.
func (c Cursor) Next(p store.Page) Cursor {
	next := Cursor{Before: p.Next, Reader: c.Reader}
	switch {
	case c.Walk && p.More:
		next = c
		next.At = p.Next
	case c.Walk:
		next = Cursor{Follow: true, After: c.After, From: c.From, Reader: c.Reader}
	case c.Follow:
		next = Cursor{Follow: true, After: p.Next, From: p.OpenFrom, Reader: c.Reader}
	}
	return next
}

// Behind is the cursor that goes on behind one record of a page that c asked for, so
// that whoever read half a page loses and repeats nothing.
func (c Cursor) Behind(r *Record) Cursor {
	next := c
	switch {
	case c.Walk:
		next.At = r.Seq + 1
	case c.Follow:
		next.After = r.Change
	default:
		next.Before = r.Seq
	}
	return next
}
