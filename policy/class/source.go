package class

// Source says who gave a tool its classes.
type Source uint8

// The sources, in the order in which they are asked.
const (
	NoSource    Source = iota // nobody: the tool has no class
	Operator                  // the administrator's declaration
	NativeTable               // the table of runtimes' own tools
	KnownName                 // the table of known filesystem operations
	Annotations               // the server's pinned claim
)

// String is how a person reads the source.
func (s Source) String() string {
	switch s {
	case Operator:
		return "operator"
	case NativeTable:
		return "native tool"
	case KnownName:
		return "known operation"
	case Annotations:
		return "server's claim"
	}
	return "none"
}

// Claim is one boolean annotation as a server sent it. What is not a JSON
// boolean was not said.
type Claim uint8

// The values of a claim.
const (
	Unsaid Claim = iota
	No
	Yes
)

// Hints are the annotations of a pinned definition that bear on classes and tier.
type Hints struct {
	ReadOnly    Claim
	Destructive Claim
}

// contradictReading tells whether the hints speak against a tool that reads only.
func (h Hints) contradictReading() bool { return h.ReadOnly == No || h.Destructive == Yes }

// Of returns the classes of a server's tool and their source: the operator's
// declaration, else the known operation of that name, else the pinned hints,
// else nothing. Names and hints never take a write class away; a hint that
// contradicts reading replaces the read class by mcp.write.
func Of(declared Set, name string, h Hints) (Set, Source) {
	if d := declared & all; d != 0 {
		return d, Operator
	}
	if s := operations[name].classes; s != 0 {
		if s&^read == 0 && h.contradictReading() {
			return 1 << MCPWrite, KnownName
		}
		if h.ReadOnly == Yes && h.Destructive == Yes {
			s |= 1 << MCPWrite
		}
		return s, KnownName
	}
	var s Set
	if h.ReadOnly == Yes {
		s |= 1 << MCPRead
	}
	if h.contradictReading() {
		s |= 1 << MCPWrite
	}
	if s == 0 {
		return 0, NoSource
	}
	return s, Annotations
}
