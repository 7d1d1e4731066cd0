package class

// Tier is how much a call may change. The zero value is no mark; where a tier
// is needed it counts as Destructive.
type Tier uint8

// The tiers, in rising order.
const (
	Unmarked Tier = iota
	Observe
	Reversible
	Destructive
)

var tiers = [...]string{"", "observe", "reversible", "destructive"}

// String returns the tier's name, "" for no mark.
func (t Tier) String() string {
	if t > Destructive {
		return "destructive"
	}
	return tiers[t]
}

// ParseTier returns the tier called s.
func ParseTier(s string) (Tier, bool) {
	for t := Observe; t <= Destructive; t++ {
		if tiers[t] == s {
			return t, true
		}
	}
	return Unmarked, false
}

// MayMark tells whether the owner may set mark at a grant: raising the
// operator's mark is allowed, lowering is not.
func MayMark(operator, owner Tier) bool {
	return owner <= Destructive && (owner == Unmarked || owner >= operator)
}

// TierOf returns the tier of a tool's calls. The operator's mark decides, and the
// owner's may raise it. Without an operator's mark the owner's decides. Without
// either the tier follows from the destructive hint and the classes.
func TierOf(operator, owner Tier, classes Set, h Hints) Tier {
	if m := max(operator, owner); m != Unmarked {
		return min(m, Destructive)
	}
	switch {
	case h.Destructive == Yes, classes.Meets(effect):
		return Destructive
	case classes.Within(read):
		return Observe
	}
	return Reversible
}
