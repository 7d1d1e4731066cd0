package activity

import (
	"errors"
	"strconv"
	"strings"

	"postern/supervisor/store"
)

// Cursor is a place among the records: before a number (a page of older ones), or
// after a change (what is new). It carries no authority; each use of it asks
// again who reads, and for which project.
type Cursor struct {
	Before      int64
	After, From int64
	Follow      bool
}

// String returns the cursor's text.
func (c Cursor) String() string {
	if c.Follow {
		return "f" + strconv.FormatInt(c.After, 36) + "." + strconv.FormatInt(c.From, 36)
	}
	return "p" + strconv.FormatInt(c.Before, 36)
}

var errCursor = errors.New("not a cursor of an activity answer")

// ParseCursor reads what String wrote and nothing else. The empty text is the
// newest page.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	var c Cursor
	var err error
	rest := text[1:]
	switch text[0] {
	case 'p':
		c.Before, err = strconv.ParseInt(rest, 36, 64)
	case 'f':
		a, f, ok := strings.Cut(rest, ".")
		if !ok {
			return Cursor{}, errCursor
		}
		var e error
		c.Follow = true
		c.After, err = strconv.ParseInt(a, 36, 64)
		c.From, e = strconv.ParseInt(f, 36, 64)
		err = errors.Join(err, e)
	default:
		return Cursor{}, errCursor
	}
	if err != nil || c.Before < 0 || c.After < 0 || c.From < 0 || c.String() != text {
		return Cursor{}, errCursor
	}
	return c, nil
}

// Apply points a query at the cursor.
func (c Cursor) Apply(q *store.Query) {
	q.Before, q.Changes, q.After, q.From = c.Before, c.Follow, c.After, c.From
}

// Next is the cursor that goes on after a page that c asked for.
func (c Cursor) Next(p store.Page) Cursor {
	if c.Follow {
		return Cursor{Follow: true, After: p.Next, From: p.OpenFrom}
	}
	return Cursor{Before: p.Next}
}
