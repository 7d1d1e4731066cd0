package mcp

import (
	"strconv"
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

// capabilities are the same for everyone: a list that would be empty is empty.
const capabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}}`

// Instructions is what a runtime may show its model about Postern itself.
const Instructions = "Tools of this project, each call authorized when it is made. A refused call says why; tools may appear and disappear while the session lives."

// InitializeResult is the answer to initialize.
func (p Peer) InitializeResult(version string) Value {
	j := &joiner{}
	j.open()
	j.name("protocolVersion")
	j.dst = quote(j.dst, version)
	j.raw("capabilities", []byte(capabilities))
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
	j.raw("capabilities", []byte(capabilities))
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

// MaxURIs is how many resources one subscription may name.
const MaxURIs = 64

// Filter is what a subscriptions/listen asks to be told.
type Filter struct {
	Tools, Prompts, Resources bool     // that a list changed
	URIs                      []string // that one of these resources was updated
}

// Listens reads the filter of a subscriptions/listen.
func (m *Message) Listens() (f Filter, err *Fault) {
	filter, ok := Members(m.Param("notifications"))
	if !ok {
		return f, fault(CodeInvalidParams, refusal.BadRequest, "notifications is not an object")
	}
	for name, to := range map[string]*bool{"toolsListChanged": &f.Tools, "promptsListChanged": &f.Prompts, "resourcesListChanged": &f.Resources} {
		v := Find(filter, name)
		if v != nil && v.Kind() != 't' && v.Kind() != 'f' {
			return f, fault(CodeInvalidParams, refusal.BadRequest, "%s is not true or false", name)
		}
		*to = v.Kind() == 't'
	}
	raw := Find(filter, "resourceSubscriptions")
	if raw == nil {
		return f, nil
	}
	var p Parser
	p.reset(raw)
	tok, e := p.dec.ReadToken()
	if e != nil || tok.Kind() != '[' {
		return f, fault(CodeInvalidParams, refusal.BadRequest, "resourceSubscriptions is not a list")
	}
	for p.dec.PeekKind() != ']' {
		v, bad := p.value()
		if bad != nil {
			return f, bad
		}
		uri, bad := text(v, "a resource to listen to")
		if bad != nil {
			return f, bad
		}
		if f.URIs = append(f.URIs, uri); len(f.URIs) > MaxURIs {
			return f, fault(CodeInvalidParams, refusal.TooLarge, "a subscription may name %d resources", MaxURIs)
		}
	}
	return f, nil
}

// Filters are the members of a subscriptions/listen of our own.
func (f Filter) Filters() string {
	j := &joiner{}
	for _, v := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", f.Tools}, {"promptsListChanged", f.Prompts}, {"resourcesListChanged", f.Resources}} {
		if v.on {
			j.raw(v.name, []byte("true"))
		}
	}
	if len(f.URIs) > 0 {
		j.name("resourceSubscriptions")
		j.dst = append(j.dst, '[')
		for i, uri := range f.URIs {
			if i > 0 {
				j.dst = append(j.dst, ',')
			}
			j.dst = quote(j.dst, uri)
		}
		j.dst = append(j.dst, ']')
	}
	return "{" + string(j.dst) + "}"
}

func subscription(id Value) string {
	return `"_meta":{"` + MetaSubscription + `":` + string(id) + `}`
}

// AppendAcknowledged appends the first message of the stream that request id opened:
// what of its filter is honoured.
func AppendAcknowledged(dst []byte, id Value, f Filter) []byte {
	return AppendNote(dst, NoteAcknowledged, subscription(id)+`,"notifications":`+f.Filters())
}

// AppendListenEnd answers the request that opened a stream, which ends it.
func AppendListenEnd(dst []byte, id Value) []byte {
	return AppendResponse(dst, id, Value(`{"resultType":"complete",`+subscription(id)+`}`))
}

// AppendChanged appends the notification that a list changed, for the stream that
// request id opened, or for a legacy session with a nil id.
func AppendChanged(dst []byte, method string, id Value) []byte {
	if id == nil {
		return AppendNote(dst, method, "")
	}
	return AppendNote(dst, method, subscription(id))
}

// Updated returns the URI of a notifications/resources/updated, and its members.
func Updated(params Value) (string, []Member, bool) {
	members, ok := Members(params)
	if !ok {
		return "", nil, false
	}
	uri, f := text(Find(members, "uri"), "uri")
	return uri, members, f == nil
}

// Acknowledged returns which request of ours a server's acknowledgement is about, and
// which resources it names.
func Acknowledged(params Value) (id int64, uris map[string]bool, ok bool) {
	members, _ := Members(params)
	meta, _ := Members(Find(members, "_meta"))
	n, err := strconv.ParseInt(string(Find(meta, MetaSubscription)), 10, 64)
	if err != nil {
		return 0, nil, false
	}
	m := Message{Params: members}
	f, fault := m.Listens()
	uris = map[string]bool{}
	for _, uri := range f.URIs {
		uris[uri] = true
	}
	return n, uris, fault == nil
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

// Names returns what a request is about: the string in params called member. Its
// arguments, where there are any, must be an object.
func (m *Message) Names(member string) (string, *Fault) {
	raw := m.Param(member)
	if raw == nil {
		return "", fault(CodeInvalidParams, refusal.BadRequest, "params lacks the %s", member)
	}
	name, f := text(raw, member)
	if f == nil && name == "" {
		f = fault(CodeInvalidParams, refusal.BadRequest, "the %s is empty", member)
	}
	if a := m.Param("arguments"); f == nil && a != nil && a.Kind() != '{' {
		f = fault(CodeInvalidParams, refusal.BadRequest, "arguments is not an object")
	}
	return name, f
}

// AppendSubscribe appends a request of the bridge's own for a resource's updates.
func AppendSubscribe(dst []byte, uri string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":0,"method":"`+MethodSubscribe+`","params":{`...)
	return append(append(dst, URIParam(uri)...), '}', '}', '\n')
}

// URIParam is the member of params that names a resource.
func URIParam(uri string) string { return `"uri":` + string(quote(nil, uri)) }

// AppendUpdated appends a notification of ours that a resource was updated.
func AppendUpdated(dst []byte, uri string, id Value) []byte {
	params := URIParam(uri)
	if id != nil {
		params = subscription(id) + "," + params
	}
	return AppendNote(dst, NoteUpdated, params)
}

// LevelParam is the member of params that sets a level.
func LevelParam(l Level) string { return `"level":"` + l.String() + `"` }
