package mcp

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"postern/refusal"
)

// IsModern tells whether a request speaks the stateless revision: it says so itself.
func (m *Message) IsModern() bool {
	return m.MetaValue(MetaVersion) != nil || m.Method == MethodDiscover || m.Method == MethodListen
}

// CheckModern refuses a modern request that lacks what each one must carry. The
// data, where not nil, belongs into the error.
func (m *Message) CheckModern() (f *Fault, data Value) {
	raw := m.MetaValue(MetaVersion)
	if raw == nil {
		return fault(CodeInvalidParams, refusal.BadRequest, "_meta lacks %q", MetaVersion), nil
	}
	version, f := text(raw, MetaVersion)
	if f != nil {
		return f, nil
	}
	if version != Modern {
		f := fault(CodeUnsupportedVersion, refusal.BadRequest, "unsupported protocol version %.20q", version)
		data = []byte(`{"supported":["` + strings.Join(Versions(), `","`) + `"],"requested":`)
		return f, append(append(data, raw...), '}')
	}
	if m.MetaValue(MetaCapabilities).Kind() != '{' {
		return fault(CodeInvalidParams, refusal.BadRequest, "_meta lacks %q", MetaCapabilities), nil
	}
	return nil, nil
}

// Negotiate returns the revision that answers an initialize: the one asked for where
// it is known, otherwise the latest that has a handshake.
func (m *Message) Negotiate() (string, *Fault) {
	raw := m.Param("protocolVersion")
	if raw == nil {
		return LatestLegacy, nil
	}
	v, f := text(raw, "protocolVersion")
	if f != nil {
		return "", f
	}
	if !Legacy(v) {
		v = LatestLegacy
	}
	return v, nil
}

// Instructions is what a runtime may show its model about Postern itself.
const Instructions = "Tools of this project, each call authorized when it is made. A refused call says why; tools may appear and disappear while the session lives."

// InitializeResult is the answer to initialize.
func (p Peer) InitializeResult(version string) Value {
	j := &joiner{}
	j.open()
	j.name("protocolVersion")
	j.dst = quote(j.dst, version)
	j.raw("capabilities", []byte(`{"tools":{"listChanged":true}}`))
	p.info(j, "serverInfo")
	j.name("instructions")
	j.dst = quote(j.dst, Instructions)
	j.shut()
	return j.dst
}

// DiscoverResult is the answer to server/discover. It may not be shared, and not be
// kept: what a project may do can change at any moment.
func (p Peer) DiscoverResult() Value {
	j := &joiner{}
	j.open()
	j.raw("resultType", []byte(`"complete"`))
	j.raw("supportedVersions", []byte(`["`+strings.Join(Versions(), `","`)+`"]`))
	j.raw("capabilities", []byte(`{"tools":{"listChanged":true}}`))
	j.name("instructions")
	j.dst = quote(j.dst, Instructions)
	p.cache(j)
	p.serverMeta(j)
	j.shut()
	return j.dst
}

func (p Peer) cache(j *joiner) {
	j.raw("ttlMs", []byte("0"))
	j.raw("cacheScope", []byte(`"private"`))
}

func (p Peer) serverMeta(j *joiner) {
	j.name("_meta")
	j.open()
	p.info(j, MetaServerInfo)
	j.shut()
}

// EmptyResult answers what needs no more than an answer.
func (p Peer) EmptyResult() Value {
	j := &joiner{}
	j.open()
	if p.Modern {
		j.raw("resultType", []byte(`"complete"`))
		p.serverMeta(j)
	}
	j.shut()
	return j.dst
}

// WantsToolChanges reads the filter of a subscriptions/listen.
func (m *Message) WantsToolChanges() (bool, *Fault) {
	filter, ok := Members(m.Param("notifications"))
	if !ok {
		return false, fault(CodeInvalidParams, refusal.BadRequest, "notifications is not an object")
	}
	v := Find(filter, "toolsListChanged")
	if v != nil && v.Kind() != 't' && v.Kind() != 'f' {
		return false, fault(CodeInvalidParams, refusal.BadRequest, "toolsListChanged is not true or false")
	}
	return v.Kind() == 't', nil
}

func subscription(id Value) string {
	return `"_meta":{"` + MetaSubscription + `":` + string(id) + `}`
}

// AppendAcknowledged appends the first message of the stream that request id opened.
func AppendAcknowledged(dst []byte, id Value, tools bool) []byte {
	agreed := "{}"
	if tools {
		agreed = `{"toolsListChanged":true}`
	}
	return AppendNote(dst, NoteAcknowledged, subscription(id)+`,"notifications":`+agreed)
}

// AppendToolsChanged appends the notification that the tools changed, for the stream
// that request id opened, or for a legacy session with a nil id.
func AppendToolsChanged(dst []byte, id Value) []byte {
	if id == nil {
		return AppendNote(dst, NoteToolsChanged, "")
	}
	return AppendNote(dst, NoteToolsChanged, subscription(id))
}

// Cancels returns the key of the request that a notifications/cancelled names, and
// its reason, cut to a bound.
func (m *Message) Cancels() (key, reason string, ok bool) {
	id := m.Param("requestId")
	if !validID(id) {
		return "", "", false
	}
	reason, _ = text(m.Param("reason"), "reason")
	if len(reason) > 200 {
		reason = strings.ToValidUTF8(reason[:200], "")
	}
	return IDKey(id), reason, true
}

// IDKey returns what makes two ids of one session equal: for strings their value,
// however it was escaped; for numbers how they are written.
func IDKey(id Value) string {
	if id.Kind() == '"' {
		if b, err := jsontext.AppendUnquote(nil, id); err == nil {
			return `"` + string(b)
		}
	}
	return string(id)
}

// ProgressToken returns the token under which the runtime asked for progress.
func (m *Message) ProgressToken() Value {
	if t := m.MetaValue(MetaProgressToken); validID(t) {
		return t
	}
	return nil
}

// ToolName returns the name that a tools/call asks for.
func (m *Message) ToolName() (string, *Fault) {
	raw := m.Param("name")
	if raw == nil {
		return "", fault(CodeInvalidParams, refusal.BadRequest, "params lacks the tool's name")
	}
	name, f := text(raw, "name")
	if f == nil && name == "" {
		f = fault(CodeInvalidParams, refusal.BadRequest, "the tool's name is empty")
	}
	if a := m.Param("arguments"); f == nil && a != nil && a.Kind() != '{' {
		f = fault(CodeInvalidParams, refusal.BadRequest, "arguments is not an object")
	}
	return name, f
}
