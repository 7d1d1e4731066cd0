// Package wire knows the messages between one bridge and the authority.
//
// It is pure. A message is the type's name, one space, one JSON object decoded strictly
// (unknown or repeated members, trailing bytes and bad UTF-8 are errors). One
// SOCK_SEQPACKET datagram of at most MaxMessage bytes holds one of them, or up to
// MaxTogether in their order, with the byte 0x1E between two. Both ends treat
// what they decode as hostile: a taken-over bridge may send any of it.
//
//	bridge                                   authority
//	  Hello{version}                 ─────▶
//	                                 ◀─────  Session{session} + the accepted connection
//	                                 ◀─────  SessionEnd{session, code}
//	  SessionEnded{session, reason}  ─────▶
//	  View{session, seq}             ─────▶
//	                                 ◀─────  ViewIs{session, seq, tools | + memfd}
//	  Start{session, seq, conn, tool,─────▶  (the gate is asked what Admit would be asked)
//	        path arguments}
//	                                 ◀─────  Started{conn, instance, revision} + stdin, stdout, stderr
//	                                 ◀─────  NotStarted{conn, session, seq, code}
//	  Catalogue{conn, instance, …}   ─────▶  in parts, once for each Started and each change
//	                                 ◀─────  Retired{conn, instance}: what it runs ends by itself
//	                                 ◀─────  Exited{conn, instance, how}
//	  Admit{seq, session, …,         ─────▶
//	        path arguments, arguments}
//	                                 ◀─────  Admitted{seq, call, deadline} | Refused{seq, code}
//	                                 ◀─────  Cancel{call, code}
//	  Alive{call, waits}             ─────▶  progress, or a wait for the runtime's user: it has longer
//	  Ended{call, outcome, …}        ─────▶  and how many artifacts of it follow
//	  Piece{call, n, part, …}        ─────▶  of one artifact of a call that has ended, or the path of the file
//	                                         that it names; one after the other
//	  Skipped{conn, instance, …}     ─────▶  what the server wrote that was passed over, so far
//	  Denied{session, code, …}       ─────▶  refused by the codec, before any admission
//	                                 ◀─────  Changed{connection}
//	                                 ◀─────  ReadStderr{seq}
//	  Stderr{seq, conn, instance, …} ─────▶  the last that servers wrote to it; then one that is Last
//	                                 ◀─────  Fence{n}
//	  Fenced{n}                      ─────▶  after everything received before it was handled
//	                                 ◀─────  Drain{over}
//
// One connection may have several instances, each for some of the sessions. Which one
// a session's calls go to is the Slot of its view; together with the connection it
// names one instance for the bridge, which knows no more of the reason.
//
// Descriptors travel down only, in the same datagram as the message they belong
// to, which is then alone in it: Session 1, Started 3, ViewIs 0 or 1 (a sealed memfd), all others 0. A probe
// bridge hears Started as its first message and answers with one Catalogue.
//
// Invariants:
//   - wire-1: a message of one direction never decodes as one of the other.
//   - wire-2: Decode accepts what Encode makes, and nothing with an unknown, repeated or missing member of identity.
//   - wire-3: no datagram exceeds MaxMessage; larger contents go in parts (up) or by memfd (down).
//   - wire-4: a datagram is read as exactly the messages that were put into it, in their order.
//
// It is not the transport, and it decides nothing.
package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"postern/ids"
	"postern/refusal"
)

// Bounds of the wire.
const (
	MaxMessage     = 64 << 10 // bytes of one datagram
	MaxPart        = 32 << 10 // bytes of one Catalogue part before base64
	MaxCatalogue   = 8 << 20  // bytes of one whole catalogue
	MaxInline      = 16 << 10 // bytes of tools carried inside ViewIs; more go by memfd
	MaxView        = 64 << 20 // bytes of a view in a memfd
	MaxName        = 256      // bytes of the name of a tool or prompt
	MaxRequestID   = 128      // bytes of an escaped request id
	MaxText        = 1024     // bytes of a reason
	MaxStderr      = 16 << 20 // bytes of stderr that one bridge tells for one question
	MaxQuarantined = 64       // quarantined tools named in one catalogue

	MaxArtifact  = 8 << 20 // bytes of one artifact
	MaxArtifacts = 16      // of one call
	MaxType      = 128     // bytes of a media type, as a server says it

	// MaxArgs bounds the arguments that go along with an Admit: with base64, and with
	// the paths of the same call at their most, they fit into one message.
	MaxArgs = 8 << 10

	// MaxAsked bounds the questions (View, Start, Admit) of one bridge that are
	// unanswered at a time. A socket's default buffer holds 167 small messages, and
	// the authority never waits for a bridge that does not read.
	MaxAsked = 64
	// MaxViews of them may be Views: each answer can be as large as MaxInline, and 64
	// of those do not fit into that buffer.
	MaxViews = 2
)

// Outcome is how an admitted call ended.
type Outcome string

// The outcomes. Whatever is not certain is Unknown.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Unknown   Outcome = "unknown"
)

// Why says why a bridge does not send the bytes of an artifact.
type Why string

// The reasons.
const (
	WhyLarge   Why = "large"   // more than MaxArtifact
	WhyMany    Why = "many"    // one more than MaxArtifacts; it stands for all that are beyond
	WhyBusy    Why = "busy"    // too much is waiting to be sent
	WhyInvalid Why = "invalid" // what the server wrote is not base64
	WhyURI     Why = "uri"     // what names a file is no path
)

// Messages from the bridge to the authority.
type (
	// Hello is the bridge's first message: it is ready.
	Hello struct {
		Version string `json:"version"`
	}
	// View asks which tools the session may call now.
	View struct {
		Session ids.Session `json:"session"`
		Seq     uint64      `json:"seq"`
	}
	// Start asks for the tool server of a connection, on behalf of one call.
	Start struct {
		Seq        uint64         `json:"seq"`
		Session    ids.Session    `json:"session"`
		Connection ids.Connection `json:"connection"`
		Slot       uint64         `json:"slot,omitempty"` // as the view said
		Tool       string         `json:"tool"`           // the item's key, by the upstream's name
		RequestID  string         `json:"request_id"`
		Paths      *Paths         `json:"paths,omitempty"` // where the view says that the tool has path arguments
	}
	// Catalogue is one part of what an instance listed. Data of all parts together is a JSON array of raw tool
	// definitions and, where the server has prompts, one of theirs behind it.
	Catalogue struct {
		Connection ids.Connection `json:"connection"`
		Instance   ids.Jail       `json:"instance"`
		Part       int            `json:"part"`
		Last       bool           `json:"last"`
		Data       []byte         `json:"data,omitempty"`
		Error      string         `json:"error,omitempty"` // why there is none; with Last
		Server     string         `json:"server,omitempty"`
		Era        string         `json:"era,omitempty"`
		// Quarantined are the tools that Data leaves out because their definitions are malformed; with Last.
		Quarantined []Quarantined `json:"quarantined,omitempty"`
	}
	// Quarantined is one tool that a server listed and that is kept out.
	Quarantined struct {
		Tool   string `json:"tool"` // empty where the definition has no usable name
		Reason string `json:"reason"`
	}
	// Admit asks whether this call may be made now.
	Admit struct {
		Seq        uint64         `json:"seq"`
		Session    ids.Session    `json:"session"`
		Connection ids.Connection `json:"connection,omitempty"` // empty when the served name is unknown to the bridge
		Instance   ids.Jail       `json:"instance,omitempty"`
		Tool       string         `json:"tool"`   // the item's key, by the upstream's name; by the served one while Connection is empty
		Digest     string         `json:"digest"` // hex SHA-256 of the arguments as they would be sent; behind a newline, of what the user answered
		Size       int64          `json:"size"`   // bytes of both
		RequestID  string         `json:"request_id"`
		Paths      *Paths         `json:"paths,omitempty"`     // where the view says that the tool has path arguments
		Args       []byte         `json:"args,omitempty"`      // the arguments of Digest, where the view says that they are recorded; at most MaxArgs, else none
		Continues  ids.Call       `json:"continues,omitempty"` // the call whose server asked the user, and to which this brings the answer
	}
	// Alive gives an admitted call its limit once more, or, where its server waits for the runtime's user, as
	// long as a user may take; never more than the authority's most.
	Alive struct {
		Call  ids.Call `json:"call"`
		Waits bool     `json:"waits,omitempty"`
	}
	// Ended tells how an admitted call ended.
	Ended struct {
		Call     ids.Call     `json:"call"`
		Outcome  Outcome      `json:"outcome"`
		Code     refusal.Code `json:"code,omitempty"`
		IsError  bool         `json:"is_error,omitempty"` // the server's own isError
		Size     int64        `json:"size"`               // bytes of the answer
		Micros   int64        `json:"micros"`
		Returned bool         `json:"returned"` // the answer reached the runtime
		// Artifacts is how many of them follow, each in pieces, or with one piece that says why not.
		Artifacts int `json:"artifacts,omitzero"`
	}
	// Piece is one part of one artifact of a call that has ended. The first part names it and has its size; the
	// parts of one come in their order, and nothing of another between them.
	Piece struct {
		Call ids.Call `json:"call"`
		N    int      `json:"n"` // which of the call's artifacts, from 0
		Part int      `json:"part"`
		Last bool     `json:"last"`
		Size int64    `json:"size,omitzero"` // bytes of the whole
		Type string   `json:"type,omitempty"`
		Name string   `json:"name,omitempty"`
		Data []byte   `json:"data,omitempty"`
		// Path stands instead of Data: the result names a file by it, as its server sees it.
		Path string `json:"path,omitempty"`
		// Why stands instead of either: the bytes are not sent.
		Why Why `json:"why,omitempty"`
	}
	// Skipped counts what an instance has written so far and nobody could use.
	Skipped struct {
		Connection ids.Connection `json:"connection"`
		Instance   ids.Jail       `json:"instance"`
		Lines      int64          `json:"lines"`     // that are no messages
		Long       int64          `json:"long"`      // over their bound
		Unmatched  int64          `json:"unmatched"` // answers and progress to nothing that was asked
	}
	// Stderr is a piece of the last bytes that one instance wrote to its stderr. Pieces of one
	// instance come one after the other. The one that is Last names none and has no data.
	Stderr struct {
		Seq        uint64         `json:"seq"`
		Last       bool           `json:"last,omitempty"`
		Connection ids.Connection `json:"connection,omitempty"`
		Slot       uint64         `json:"slot,omitempty"`
		Instance   ids.Jail       `json:"instance,omitempty"`
		Ended      bool           `json:"ended,omitempty"` // it no longer runs
		At         uint64         `json:"at"`              // how many bytes it had written before Data
		Data       []byte         `json:"data,omitempty"`
	}
	// SessionEnded tells that a session is over and its descriptors are closed.
	SessionEnded struct {
		Session ids.Session `json:"session"`
		Reason  string      `json:"reason"`
	}
	// Denied reports a message that was refused before it could be asked about.
	Denied struct {
		Session   ids.Session  `json:"session"`
		Code      refusal.Code `json:"code"`
		Tool      string       `json:"tool,omitempty"`
		RequestID string       `json:"request_id,omitempty"`
	}
	// Fenced answers Fence.
	Fenced struct {
		N uint64 `json:"n"`
	}
)

// Messages from the authority to the bridge.
type (
	// Session hands over one bound connection (one descriptor). The bridge writes the bind answer on it.
	Session struct {
		Session ids.Session   `json:"session"`
		Bounds  SessionBounds `json:"bounds,omitzero"`
	}
	// SessionBounds are what is set for each runtime; 0 is the bridge's own bound, and
	// nothing here widens it.
	SessionBounds struct {
		Requests   int   `json:"requests,omitzero"`     // without an answer
		Line       int64 `json:"line,omitzero"`         // bytes of one line
		LineWaitMs int64 `json:"line_wait_ms,omitzero"` // for a long line to come on
		Depth      int   `json:"depth,omitzero"`        // of nested values
		Queue      int64 `json:"queue,omitzero"`        // bytes that wait for it to read
	}
	// SessionEnd ends a session. The bridge answers SessionEnded.
	SessionEnd struct {
		Session ids.Session  `json:"session"`
		Code    refusal.Code `json:"code"`
	}
	// ViewIs answers View: Tools, or a sealed memfd holding the same JSON array.
	ViewIs struct {
		Session ids.Session `json:"session"`
		Seq     uint64      `json:"seq"`
		Memfd   bool        `json:"memfd,omitempty"`
		Tools   []Tool      `json:"tools,omitempty"`
	}
	// Tool is one entry of a view.
	Tool struct {
		Name       string         `json:"name"` // as served
		Connection ids.Connection `json:"connection"`
		// Slot says which instance of the connection serves this session: an opaque number
		// of the authority's, 0 where one serves every session.
		Slot       uint64         `json:"slot,omitempty"`
		Tool       string         `json:"tool"`            // the item's key, as the upstream names it; of resources, by their prefix
		Callable   bool           `json:"callable"`        // false: of this project, listed nowhere, refused by its own code
		Definition jsontext.Value `json:"definition"`      // the pinned raw definition; null when not callable
		Paths      *PathArgs      `json:"paths,omitempty"` // of a callable tool that has path arguments
		Args       bool           `json:"args,omitempty"`  // the arguments of its calls are recorded
	}
	// Started hands over an instance: stdin (write), stdout (read), stderr (read).
	Started struct {
		Connection ids.Connection `json:"connection"`
		Slot       uint64         `json:"slot,omitempty"`
		Instance   ids.Jail       `json:"instance"`
		Revision   ids.Revision   `json:"revision"`
		StartMs    int64          `json:"start_ms"`      // bound of handshake and listing
		Era        string         `json:"era,omitempty"` // what the revision spoke before: legacy, modern; empty where it is not known
		Bounds     Bounds         `json:"bounds,omitzero"`
	}
	// Bounds are what an instance's profile sets; 0 is the bridge's own bound.
	Bounds struct {
		Line   int64 `json:"line,omitzero"`   // bytes of one answer
		Depth  int   `json:"depth,omitzero"`  // of nested values in an answer
		Blocks int   `json:"blocks,omitzero"` // of content in one result
		Stderr int64 `json:"stderr,omitzero"` // bytes that are kept
		Pages  int   `json:"pages,omitzero"`  // of one list
		Queue  int64 `json:"queue,omitzero"`  // bytes that wait for it to read
		Items  int   `json:"items,omitzero"`  // of one list
		// Definition is the size of one item, Definitions that of a whole list.
		Definition  int64 `json:"definition,omitzero"`
		Definitions int64 `json:"definitions,omitzero"`
		LineWaitMs  int64 `json:"line_wait_ms,omitzero"` // for a long line to come on
	}
	// NotStarted answers Start.
	NotStarted struct {
		Seq        uint64         `json:"seq"`
		Session    ids.Session    `json:"session"`
		Connection ids.Connection `json:"connection"`
		Slot       uint64         `json:"slot,omitempty"`
		Code       refusal.Code   `json:"code"`
		Text       string         `json:"text,omitempty"`
	}
	// Retired tells that an instance takes no call any more. Those that it has may finish;
	// with the last of them its server is asked to end.
	Retired struct {
		Connection ids.Connection `json:"connection"`
		Slot       uint64         `json:"slot,omitempty"`
		Instance   ids.Jail       `json:"instance"`
	}
	// Exited tells that an instance's jail is gone.
	Exited struct {
		Connection ids.Connection `json:"connection"`
		Slot       uint64         `json:"slot,omitempty"`
		Instance   ids.Jail       `json:"instance"`
		How        string         `json:"how"`
	}
	// Admitted lets one call through. It is durable. Deadline is the authority's; the bridge only shows it.
	Admitted struct {
		Seq        uint64   `json:"seq"`
		Call       ids.Call `json:"call"`
		DeadlineMs int64    `json:"deadline_ms"`
	}
	// Refused answers Admit with a code of the table. StaleSelector means that the
	// bridge's view is older than a change: it looks again and asks once more.
	Refused struct {
		Seq  uint64       `json:"seq"`
		Code refusal.Code `json:"code"`
	}
	// Cancel ends one admitted call: the bridge cancels it upstream and reports Ended.
	Cancel struct {
		Call ids.Call     `json:"call"`
		Code refusal.Code `json:"code"`
	}
	// Changed tells that the views of the sessions may have changed.
	Changed struct {
		// Where a connection is named, only that server's list has changed, and not
		// what sessions may call.
		Connection ids.Connection `json:"connection,omitzero"`
		Slot       uint64         `json:"slot,omitzero"`
	}
	// ReadStderr asks for what the instances wrote to their stderr: those that run, and of
	// each connection the one that ended last.
	ReadStderr struct {
		Seq uint64 `json:"seq"`
	}
	// Fence asks for Fenced{n}.
	Fence struct {
		N uint64 `json:"n"`
	}
	// Drain asks the bridge to take no new calls, or, with Over, to take them again. The
	// authority admits none meanwhile, whatever the bridge does.
	Drain struct {
		Over bool `json:"over,omitzero"`
	}
)

// Up is a message to the authority, Down one to the bridge.
type (
	Up   interface{ up() string }
	Down interface{ down() string }
)

func (Hello) up() string        { return "Hello" }
func (View) up() string         { return "View" }
func (Start) up() string        { return "Start" }
func (Catalogue) up() string    { return "Catalogue" }
func (Admit) up() string        { return "Admit" }
func (Alive) up() string        { return "Alive" }
func (Ended) up() string        { return "Ended" }
func (Piece) up() string        { return "Piece" }
func (Skipped) up() string      { return "Skipped" }
func (Stderr) up() string       { return "Stderr" }
func (SessionEnded) up() string { return "SessionEnded" }
func (Denied) up() string       { return "Denied" }
func (Fenced) up() string       { return "Fenced" }

func (Session) down() string    { return "Session" }
func (SessionEnd) down() string { return "SessionEnd" }
func (ViewIs) down() string     { return "ViewIs" }
func (Started) down() string    { return "Started" }
func (NotStarted) down() string { return "NotStarted" }
func (Retired) down() string    { return "Retired" }
func (Exited) down() string     { return "Exited" }
func (Admitted) down() string   { return "Admitted" }
func (Refused) down() string    { return "Refused" }
func (Cancel) down() string     { return "Cancel" }
func (Changed) down() string    { return "Changed" }
func (ReadStderr) down() string { return "ReadStderr" }
func (Fence) down() string      { return "Fence" }
func (Drain) down() string      { return "Drain" }

// ErrTooLong is returned by EncodeUp and EncodeDown for a message over MaxMessage.
var ErrTooLong = errors.New("message exceeds the wire's limit")

// verbatim keeps the strings of a tool's definition as its server wrote them.
var verbatim = jsontext.PreserveRawStrings(true)

// EncodeUp returns m as one datagram, appended to buf.
func EncodeUp(buf []byte, m Up) ([]byte, error) { return encode(buf, m.up(), m, fastUp) }

// EncodeDown returns m as one datagram, appended to buf.
func EncodeDown(buf []byte, m Down) ([]byte, error) { return encode(buf, m.down(), m, fastDown) }

func encode[M any](buf []byte, name string, m M, fast func([]byte, M) ([]byte, bool)) ([]byte, error) {
	start := len(buf)
	buf = append(buf, name...)
	buf = append(buf, ' ')
	if b, ok := fast(buf, m); ok {
		if len(b)-start > MaxMessage {
			return buf[:start], fmt.Errorf("encode %s: %w", name, ErrTooLong)
		}
		return b, nil
	}
	raw, err := json.Marshal(m, verbatim)
	if err != nil {
		return buf[:start], fmt.Errorf("encode %s: %w", name, err)
	}
	if len(name)+1+len(raw) > MaxMessage {
		return buf[:start], fmt.Errorf("encode %s: %w", name, ErrTooLong)
	}
	return append(buf, raw...), nil
}

func split(b []byte) (string, []byte, error) {
	if len(b) > MaxMessage {
		return "", nil, ErrTooLong
	}
	name, raw, ok := bytes.Cut(b, []byte{' '})
	if !ok {
		return "", nil, fmt.Errorf("message without a body: %.32q", b)
	}
	return string(name), raw, nil
}

// decodeFast is decode for a message that is nearly always of the form that scan reads.
func decodeFast[M any](raw []byte, scan func([]byte) (M, bool)) (M, error) {
	if m, ok := scan(raw); ok {
		return m, nil
	}
	return decode[M](raw)
}

func decode[M any](raw []byte) (m M, err error) {
	err = json.Unmarshal(raw, &m, json.RejectUnknownMembers(true))
	return m, err
}

// DecodeUp reads one datagram of a bridge and checks its bounds and ids.
func DecodeUp(b []byte) (Up, error) {
	name, raw, err := split(b)
	if err != nil {
		return nil, err
	}
	var m Up
	switch name {
	case "Hello":
		m, err = decode[Hello](raw)
	case "View":
		m, err = decode[View](raw)
	case "Start":
		m, err = decode[Start](raw)
	case "Catalogue":
		m, err = decode[Catalogue](raw)
	case "Admit":
		m, err = decodeFast(raw, scanAdmit)
	case "Alive":
		m, err = decode[Alive](raw)
	case "Ended":
		m, err = decodeFast(raw, scanEnded)
	case "Piece":
		m, err = decode[Piece](raw)
	case "Skipped":
		m, err = decode[Skipped](raw)
	case "Stderr":
		m, err = decode[Stderr](raw)
	case "SessionEnded":
		m, err = decode[SessionEnded](raw)
	case "Denied":
		m, err = decode[Denied](raw)
	case "Fenced":
		m, err = decode[Fenced](raw)
	default:
		return nil, fmt.Errorf("no message to the authority is called %.32q", name)
	}
	if err == nil {
		err = checkUp(m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// DecodeDown reads one datagram of the authority.
func DecodeDown(b []byte) (Down, error) {
	name, raw, err := split(b)
	if err != nil {
		return nil, err
	}
	var m Down
	switch name {
	case "Session":
		m, err = decode[Session](raw)
	case "SessionEnd":
		m, err = decode[SessionEnd](raw)
	case "ViewIs":
		m, err = decode[ViewIs](raw)
	case "Started":
		m, err = decode[Started](raw)
	case "NotStarted":
		m, err = decode[NotStarted](raw)
	case "Retired":
		m, err = decode[Retired](raw)
	case "Exited":
		m, err = decode[Exited](raw)
	case "Admitted":
		m, err = decodeFast(raw, scanAdmitted)
	case "Refused":
		m, err = decode[Refused](raw)
	case "Cancel":
		m, err = decode[Cancel](raw)
	case "Changed":
		m, err = decode[Changed](raw)
	case "ReadStderr":
		m, err = decode[ReadStderr](raw)
	case "Fence":
		m, err = decode[Fence](raw)
	case "Drain":
		m, err = decode[Drain](raw)
	default:
		return nil, fmt.Errorf("no message to a bridge is called %.32q", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// EncodeTools and DecodeTools are the document of ViewIs' memfd.
func EncodeTools(tools []Tool) ([]byte, error) { return json.Marshal(tools, verbatim) }

// DecodeTools reads it strictly.
func DecodeTools(raw []byte) ([]Tool, error) {
	if len(raw) > MaxView {
		return nil, ErrTooLong
	}
	return decode[[]Tool](raw)
}

// Descriptors tells with how many descriptors m may come: least and most.
func Descriptors(m Down) (least, most int) {
	switch m := m.(type) {
	case Session:
		return 1, 1
	case Started:
		return 3, 3
	case ViewIs:
		if m.Memfd {
			return 1, 1
		}
	}
	return 0, 0
}
