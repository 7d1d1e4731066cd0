// Package ids knows the immutable identifiers of Postern: a kind's prefix, an
// underscore and a UUIDv7 (RFC 9562, section 5.7) in lower case.
//
// It is pure: the caller brings the time and the random bits. Its input is text
// from files, peers and people, all of it hostile until parsed.
//
// Invariants:
//   - ids-1: Parse accepts exactly what New makes; no second spelling of an id exists.
//   - ids-2: an id of one kind is never accepted as another kind.
//
// It is not a source of authority: knowing an id grants nothing.
package ids

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// The kinds of things that have an id. Each is its own type, so that one can
// not be passed for another.
type (
	Account    string // acc_
	Project    string // prj_
	Server     string // srv_
	Revision   string // rev_
	Connection string // con_
	Grant      string // grt_
	Task       string // tsk_
	Session    string // ses_
	Call       string // cal_
	Jail       string // jal_, one launched jail
	Credential string // crd_
	Instance   string // ins_, one installation: a root directory
	Artifact   string // art_, the bytes of one part of one call's result
)

// ID is any of the kinds above.
type ID interface {
	Account | Project | Server | Revision | Connection | Grant | Task | Session | Call | Jail | Credential | Instance | Artifact
}

// Len is the length in bytes of every id.
const Len = 4 + 36

func prefix[T ID]() string {
	switch any(T("")).(type) {
	case Account:
		return "acc_"
	case Project:
		return "prj_"
	case Server:
		return "srv_"
	case Revision:
		return "rev_"
	case Connection:
		return "con_"
	case Grant:
		return "grt_"
	case Task:
		return "tsk_"
	case Session:
		return "ses_"
	case Call:
		return "cal_"
	case Jail:
		return "jal_"
	case Credential:
		return "crd_"
	case Artifact:
		return "art_"
	default:
		return "ins_"
	}
}

// New makes an id from a time (milliseconds are kept) and ten random bytes.
func New[T ID](now time.Time, random [10]byte) T {
	var u [16]byte
	ms := now.UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (8 * (5 - i)))
	}
	copy(u[6:], random[:])
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var b [Len]byte
	copy(b[:4], prefix[T]())
	hex.Encode(b[4:12], u[:4])
	b[12] = '-'
	hex.Encode(b[13:17], u[4:6])
	b[17] = '-'
	hex.Encode(b[18:22], u[6:8])
	b[22] = '-'
	hex.Encode(b[23:27], u[8:10])
	b[27] = '-'
	hex.Encode(b[28:], u[10:])
	return T(b[:])
}

// Parse returns s as an id of kind T. The error names the kind that was expected
// and quotes at most Len bytes of s.
func Parse[T ID](s string) (T, error) {
	p := prefix[T]()
	if len(s) != Len || s[:4] != p {
		return "", fmt.Errorf("not an id of kind %s…: %q", p, s[:min(len(s), Len)])
	}
	for i := 4; i < Len; i++ {
		c := s[i]
		switch {
		case i == 12 || i == 17 || i == 22 || i == 27:
			if c != '-' {
				return "", fmt.Errorf("not an id of kind %s…: %q", p, s)
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
		default:
			return "", fmt.Errorf("not an id of kind %s…: %q", p, s)
		}
	}
	if s[18] != '7' || s[23] < '8' || s[23] > 'b' || (s[23] > '9' && s[23] < 'a') {
		return "", fmt.Errorf("not a version 7 UUID: %q", s)
	}
	return T(s), nil
}

// Time returns the moment an id was made at, to the millisecond; the zero time for
// what Parse would refuse.
func Time[T ID](id T) time.Time {
	if _, err := Parse[T](string(id)); err != nil {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(string(id[4:12])+string(id[13:17]), 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
