package access

import (
	"errors"
	"fmt"
	"strings"

	"postern/ids"
)

// Channel is the channel of people who use this machine themselves. Its identities
// are account ids, and it has no groups.
const Channel = "local"

// Bounds of a principal's parts.
const (
	MaxChannel  = 32
	MaxIdentity = 128
	minE164     = 7 // digits of an E.164 number, without the plus
	maxE164     = 15
)

// Principal is whom a task acts for. It is written
//
//	channel:identity               a person
//	channel:group/group/identity   a person who speaks in a group
//
// An identity is a number in E.164 form (+5511999998888) or the channel's own id of
// the person; a local one is an account's id.
type Principal struct {
	Channel string
	Group   string // empty for a person by themselves
	ID      string // the person; in a group it is who spoke, and decides nothing but a block
}

// Local returns the principal of an account's own tasks.
func Local(a ids.Account) string { return Channel + ":" + string(a) }

// String writes the principal in its one spelling.
func (p Principal) String() string {
	if p.Group != "" {
		return p.Channel + ":group/" + p.Group + "/" + p.ID
	}
	return p.Channel + ":" + p.ID
}

// ParsePrincipal reads a principal and brings its parts into their one spelling, so
// that nobody is two people by writing a number in two ways.
func ParsePrincipal(s string) (Principal, error) {
	channel, who, ok := strings.Cut(s, ":")
	if !ok {
		return Principal{}, fmt.Errorf("%.*q is no principal: want CHANNEL:ID or CHANNEL:group/GROUP/ID", MaxIdentity, s)
	}
	if err := CheckChannel(channel); err != nil {
		return Principal{}, err
	}
	p := Principal{Channel: channel}
	if rest, group := strings.CutPrefix(who, "group/"); group {
		g, sender, both := strings.Cut(rest, "/")
		if !both || channel == Channel {
			return Principal{}, fmt.Errorf("%.*q is no principal: want CHANNEL:group/GROUP/ID, and channel %s has no groups", MaxIdentity, s, Channel)
		}
		var err error
		if p.Group, err = NormalGroup(g); err != nil {
			return Principal{}, err
		}
		who = sender
	}
	var err error
	p.ID, err = normalIn(channel, who)
	if err != nil {
		return Principal{}, err
	}
	return p, nil
}

// CheckChannel tells what is wrong with a channel's name.
func CheckChannel(name string) error {
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '_' || c == '-') {
			continue
		}
		return fmt.Errorf("%.*q is no channel: want lower-case letters, digits, _ and -, and a letter first", MaxChannel, name)
	}
	if name == "" || len(name) > MaxChannel {
		return fmt.Errorf("a channel's name has 1 to %d characters", MaxChannel)
	}
	return nil
}

// normalIn brings an identity of a channel into its one spelling.
func normalIn(channel, id string) (string, error) {
	if channel != Channel {
		return NormalID(id)
	}
	if _, err := ids.Parse[ids.Account](id); err != nil {
		return "", fmt.Errorf("%.*q is no identity of channel %s: want an account's id", MaxIdentity, id, Channel)
	}
	return id, nil
}

var errNoIdentity = errors.New("it is no identity")

// NormalID brings a person's identity into its one spelling. What consists of digits
// and the marks people put between them is an E.164 number; anything else must
// consist of ASCII letters, digits and . _ - @ alone. A look-alike of another script, a
// character without width and a mark of direction are therefore refused, and never
// turned into what they look like.
func NormalID(id string) (string, error) {
	if id == "" || len(id) > MaxIdentity {
		return "", fmt.Errorf("an identity has 1 to %d characters: %w", MaxIdentity, errNoIdentity)
	}
	// The name that WhatsApp's own protocol has for a number is that number.
	for _, server := range []string{"@s.whatsapp.net", "@c.us"} {
		if number, ok := strings.CutSuffix(lower(id), server); ok {
			if !digits(number) {
				return "", fmt.Errorf("%q: want digits before %s: %w", id, server, errNoIdentity)
			}
			return e164("+" + number)
		}
	}
	if id[0] == '+' || numeric(id) {
		return e164(id)
	}
	for i := range len(id) {
		if !identityByte(id[i]) {
			return "", fmt.Errorf("%q: want a number such as +5511999998888, or letters, digits and . _ - @ of ASCII: %w", id, errNoIdentity)
		}
	}
	return id, nil
}

// NormalGroup brings a group's id into its one spelling, which is lower case. It has
// a digit, as the ids that channels give have: a key that was misspelt does not pass.
func NormalGroup(id string) (string, error) {
	some := false
	for i := range len(id) {
		some = some || id[i] >= '0' && id[i] <= '9'
		if !identityByte(id[i]) {
			some = false
			break
		}
	}
	if !some || len(id) > MaxIdentity {
		return "", fmt.Errorf("%.*q is no group: want at most %d letters, digits and . _ - @ of ASCII, at least one of them a digit: %w", MaxIdentity, id, MaxIdentity, errNoIdentity)
	}
	return lower(id), nil
}

func identityByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == '@'
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// numeric tells whether an identity can only be meant as a telephone number: digits
// and the marks between them, and enough digits.
func numeric(id string) bool {
	n := 0
	for i := range len(id) {
		switch c := id[i]; {
		case c >= '0' && c <= '9':
			n++
		case c == ' ', c == '-', c == '.', c == '(', c == ')':
		default:
			return false
		}
	}
	return n >= minE164
}

// e164 takes the marks between the digits out. A number without its country is
// refused: it would be another person's somewhere else.
func e164(id string) (string, error) {
	number := strings.TrimPrefix(id, "+")
	if number == "" || !(digits(number[:1]) || number[0] == '(') || !digits(number[len(number)-1:]) {
		return "", fmt.Errorf("%q: want a number that begins and ends with a digit: %w", id, errNoIdentity)
	}
	if !digits(number) {
		number = strings.Map(func(c rune) rune {
			if strings.ContainsRune(" -.()", c) {
				return -1
			}
			return c
		}, number)
	}
	if !digits(number) || len(number) < minE164 || len(number) > maxE164 || number[0] == '0' {
		return "", fmt.Errorf("%q: want + and %d to %d digits, the country's code first: %w", id, minE164, maxE164, errNoIdentity)
	}
	if id[0] == '+' && len(number)+1 == len(id) {
		return id, nil
	}
	return "+" + number, nil
}

// lower folds ASCII without making anything where nothing is to fold.
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return strings.ToLower(s)
		}
	}
	return s
}

// Mask hides the middle of an identity, for records: +55…88.
func Mask(id string) string {
	const first, last = 3, 2
	if len(id) < 2*(first+last) {
		return "…"
	}
	return id[:first] + "…" + id[len(id)-last:]
}
