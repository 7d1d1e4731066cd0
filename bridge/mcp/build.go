package mcp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

func quote(dst []byte, s string) []byte {
	// The only error is invalid UTF-8, which becomes U+FFFD.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// joiner writes the members of one object.
type joiner struct {
	dst   []byte
	comma bool
}

func (j *joiner) name(s string) {
	if j.comma {
		j.dst = append(j.dst, ',')
	}
	j.comma = true
	j.dst = append(quote(j.dst, s), ':')
}

func (j *joiner) raw(name string, v []byte) {
	j.name(name)
	j.dst = append(j.dst, v...)
}

func (j *joiner) open() { j.dst, j.comma = append(j.dst, '{'), false }
func (j *joiner) shut() { j.dst, j.comma = append(j.dst, '}'), true }

// Peer is what one side speaks and how Postern calls itself there.
type Peer struct {
	Modern  bool
	Version string // of Postern
}

func (p Peer) info(j *joiner, key string) {
	j.name(key)
	j.open()
	j.name("name")
	j.dst = quote(j.dst, ServerName)
	j.name("version")
	j.dst = quote(j.dst, p.Version)
	j.shut()
}

// Subject is the member of params that says what a request is about: a name, or a value
// already written.
type Subject struct {
	Member, Name string
	Raw          Value
}

// Extra is what Postern itself adds to a request that it passes on.
type Extra struct {
	Elicit    bool   // tell a modern server that it may ask the user
	Level     string // of the log messages wanted from a modern server; "" for none
	Responses Value  // what the user answered to what the server asked; nil for nothing
	State     Value  // what the server gave for its own use; nil for nothing
}

// AppendCall appends the request that goes to a tool server: the runtime's params
// with the upstream's name of the subject, our id as the progress token where one was
// asked for, and without the members that describe the runtime to its own server or
// answer a question: those are kept by Postern, and come in x.
func (p Peer) AppendCall(dst []byte, id int64, m *Message, method string, about Subject, x Extra) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = strconv.AppendInt(j.dst, id, 10)
	j.comma = true
	j.name("method")
	j.dst = quote(j.dst, method)
	j.name("params")
	j.open()
	meta := false
	for _, v := range m.Params {
		switch v.Name {
		case about.Member:
			if about.Raw != nil {
				j.raw(about.Member, about.Raw)
				continue
			}
			j.name(about.Member)
			j.dst = quote(j.dst, about.Name)
		case "_meta":
			meta = true
			p.appendMeta(j, m.Meta, id, x)
		case paramResponses, paramState:
		default:
			j.raw(v.Name, v.Value)
		}
	}
	if x.Responses != nil {
		j.raw(paramResponses, x.Responses)
	}
	if x.State != nil {
		j.raw(paramState, x.State)
	}
	if !meta && p.Modern {
		p.appendMeta(j, nil, id, x)
	}
	j.shut()
	return append(j.dst, '}', '\n')
}

func (p Peer) appendMeta(j *joiner, meta []Member, id int64, x Extra) {
	kept := 0
	for _, v := range meta {
		if !strings.HasPrefix(v.Name, metaPrefix) {
			kept++
		}
	}
	// An empty _meta passes as it came; one that only described the runtime goes.
	if kept == 0 && len(meta) > 0 && !p.Modern {
		return
	}
	j.name("_meta")
	j.open()
	for _, v := range meta {
		switch {
		case strings.HasPrefix(v.Name, metaPrefix):
		case v.Name == MetaProgressToken:
			j.name(MetaProgressToken)
			j.dst = strconv.AppendInt(j.dst, id, 10)
		default:
			j.raw(v.Name, v.Value)
		}
	}
	if p.Modern {
		p.own(j, x)
	}
	j.shut()
}

func (p Peer) own(j *joiner, x Extra) {
	j.raw(MetaVersion, []byte(`"`+Modern+`"`))
	p.info(j, MetaClientInfo)
	if x.Elicit {
		j.raw(MetaCapabilities, []byte(elicitForms))
	} else {
		j.raw(MetaCapabilities, []byte("{}"))
	}
	if x.Level != "" {
		j.name(MetaLogLevel)
		j.dst = quote(j.dst, x.Level)
	}
}

// AppendRequest appends a request of our own to a tool server. Params are members
// already written, without braces; a modern peer gets our _meta after them.
func (p Peer) AppendRequest(dst []byte, id int64, method, params string) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = strconv.AppendInt(j.dst, id, 10)
	j.comma = true
	j.name("method")
	j.dst = quote(j.dst, method)
	j.name("params")
	j.open()
	j.dst = append(j.dst, params...)
	j.comma = params != ""
	if p.Modern {
		j.name("_meta")
		j.open()
		p.own(j, Extra{})
		j.shut()
	}
	j.shut()
	return append(j.dst, '}', '\n')
}

// InitializeParams are the members of our initialize. A server may ask the user of a
// call by a form, where the call's runtime can; no other capability is declared, so
// that none asks the runtime's model or file roots for anything.
func (p Peer) InitializeParams() string {
	j := &joiner{}
	j.raw("protocolVersion", []byte(`"`+LatestLegacy+`"`))
	j.raw("capabilities", []byte(elicitForms))
	p.info(j, "clientInfo")
	return string(j.dst)
}

// AppendNote appends a notification; params are members already written.
func AppendNote(dst []byte, method, params string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = quote(dst, method)
	if params != "" {
		dst = append(dst, `,"params":{`...)
		dst = append(dst, params...)
		dst = append(dst, '}')
	}
	return append(dst, '}', '\n')
}

// AppendCancel appends the cancellation of one of our requests.
func AppendCancel(dst []byte, id int64, reason string) []byte {
	params := `"requestId":` + strconv.FormatInt(id, 10)
	if reason != "" {
		params += `,"reason":` + string(quote(nil, reason))
	}
	return AppendNote(dst, NoteCancelled, params)
}

// AppendResponse appends a response with a result that is already written.
func AppendResponse(dst []byte, id, result Value) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, orNull(id)...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}', '\n')
}

// AppendError appends an error; id nil becomes null, data nil is left out.
func AppendError(dst []byte, id Value, code int, message string, data Value) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, orNull(id)...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = quote(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, '}', '}', '\n')
}

// AppendEnded appends the last line of a lifeline: why the session ended.
func AppendEnded(dst []byte, reason string) []byte {
	dst = append(dst, `{"postern":{"ended":`...)
	dst = quote(dst, reason)
	return append(dst, '}', '}', '\n')
}

func orNull(id Value) []byte {
	if id == nil {
		return []byte("null")
	}
	return id
}

// AppendAnswer appends a tool server's answer for the runtime's id. To a legacy
// runtime the members pass as they are; a modern one also gets the resultType it
// requires and our name. Keys that only Postern may write are dropped.
func (p Peer) AppendAnswer(dst []byte, id Value, a *Answer) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = append(j.dst, orNull(id)...)
	j.comma = true
	if a.Error != nil {
		j.raw("error", a.Error)
		return append(j.dst, '}', '\n')
	}
	j.name("result")
	j.open()
	meta, kind := false, false
	for _, v := range a.Members {
		switch v.Name {
		case "_meta":
			meta = true
			p.appendResultMeta(j, v.Value)
		case "resultType":
			kind = true
			j.raw(v.Name, v.Value)
		default:
			j.raw(v.Name, v.Value)
		}
	}
	if p.Modern && !kind {
		j.raw("resultType", []byte(`"complete"`))
	}
	if p.Modern && !meta {
		p.appendResultMeta(j, Value("{}"))
	}
	j.shut()
	return append(j.dst, '}', '\n')
}

func (p Peer) appendResultMeta(j *joiner, raw Value) {
	// Only a quoted name could hold the prefix, or an escape in it.
	suspect := bytes.Contains(raw, []byte(OwnPrefix)) || bytes.IndexByte(raw, '\\') >= 0
	members, ok := []Member(nil), true
	if suspect || p.Modern {
		members, ok = Members(raw)
	}
	if !ok || (!suspect && !p.Modern) {
		j.raw("_meta", raw)
		return
	}
	j.name("_meta")
	j.open()
	for _, v := range members {
		if strings.HasPrefix(v.Name, OwnPrefix) || (p.Modern && v.Name == MetaServerInfo) {
			continue
		}
		j.raw(v.Name, v.Value)
	}
	if p.Modern {
		p.info(j, MetaServerInfo)
	}
	j.shut()
}

// Promises tells whether a result is not the end of the call: it asks the user, or
// stands for a task. What is not known to Postern is not passed to a runtime that
// would act on it.
func (a *Answer) Promises() bool {
	for _, v := range a.Members {
		if v.Name == "resultType" && string(v.Value) != `"complete"` {
			return true
		}
	}
	return false
}

// AppendRefusal appends a tools/call result that says no: one text block and, for
// programs, the code and its help page.
func (p Peer) AppendRefusal(dst []byte, id Value, code, help, sentence string) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = append(j.dst, orNull(id)...)
	j.dst = append(j.dst, `,"result":{"content":[{"type":"text","text":`...)
	j.dst = quote(j.dst, sentence)
	j.dst = append(j.dst, `}],"isError":true`...)
	j.comma = true
	if p.Modern {
		j.raw("resultType", []byte(`"complete"`))
	}
	j.name("_meta")
	j.open()
	j.name(OwnPrefix + "refusal")
	j.open()
	j.name("code")
	j.dst = quote(j.dst, code)
	j.name("help")
	j.dst = quote(j.dst, help)
	j.shut()
	if p.Modern {
		p.info(j, MetaServerInfo)
	}
	j.shut()
	return append(j.dst, '}', '}', '\n')
}

// Progress splits the params of a notifications/progress into the token, which must
// be an integer of ours, and the members that follow the runtime's own token.
func Progress(params Value) (token int64, members []Member, ok bool) {
	members, ok = Members(params)
	if !ok {
		return 0, nil, false
	}
	n, err := strconv.ParseInt(string(Find(members, MetaProgressToken)), 10, 64)
	return n, members, err == nil
}

// AppendProgress appends a progress notification under the runtime's own token.
func (p Peer) AppendProgress(dst []byte, token Value, members []Member) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","method":"notifications/progress","params":`...)}
	j.open()
	for _, v := range members {
		switch v.Name {
		case MetaProgressToken:
			j.raw(v.Name, token)
		case "_meta":
			Peer{}.appendResultMeta(j, v.Value)
		default:
			j.raw(v.Name, v.Value)
		}
	}
	j.shut()
	return append(j.dst, '}', '\n')
}
