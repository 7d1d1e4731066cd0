package mcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"postern/refusal"
)

// Bounds on what a server may ask the user of a call.
const (
	MaxQuestions = 8        // in one answer
	MaxQuestion  = 16 << 10 // bytes of all of them
	MaxState     = 16 << 10 // bytes of what a server gives to be brought back
	MaxReply     = 1 << 20  // bytes of all that a user answers at once
)

const (
	paramResponses = "inputResponses"
	paramState     = "requestState"
	elicitForms    = `{"elicitation":{"form":{}}}`
)

// Question is one elicitation/create of a server: what it asks the user by a form.
type Question struct {
	Key    string   // by which its answer is told from others
	Params []Member // checked, and without keys that only Postern may write
}

// Forms tells whether a runtime that declares these capabilities can ask its user by a
// form. Where it names no mode, it means forms.
func Forms(capabilities Value) bool {
	all, _ := Members(capabilities)
	modes, ok := Members(Find(all, "elicitation"))
	return ok && (Find(modes, "form").Kind() == '{' || Find(modes, "url") == nil)
}

// MayAsk tells whether the runtime of a modern request can ask its user by a form.
func (m *Message) MayAsk() bool { return Forms(m.MetaValue(MetaCapabilities)) }

// ReadQuestion checks the params of an elicitation/create.
func ReadQuestion(params Value) ([]Member, error) {
	switch {
	case len(params) > MaxQuestion:
		return nil, fmt.Errorf("a question may have %d bytes", MaxQuestion)
	case !params.IsValid(): // strict: a runtime reads what was looked at here
		return nil, errors.New("the question is not strict JSON")
	}
	members, ok := Members(params)
	if !ok {
		return nil, errors.New("the question is not an object")
	}
	if mode := Find(members, "mode"); mode != nil && string(mode) != `"form"` {
		return nil, errors.New("only the mode \"form\" is passed on")
	}
	if Find(members, "message").Kind() != '"' || Find(members, "requestedSchema").Kind() != '{' {
		return nil, errors.New("the question lacks its message or its requestedSchema")
	}
	if Find(members, "task") != nil {
		return nil, errors.New("no task can be made of a question")
	}
	return members, nil
}

// appendQuestion writes params, with the name of the item that asks.
func appendQuestion(j *joiner, members []Member, asks string) {
	j.open()
	meta := Value(nil)
	for _, v := range members {
		if v.Name == "_meta" {
			meta = v.Value
			continue
		}
		j.raw(v.Name, v.Value)
	}
	j.name("_meta")
	j.open()
	if kept, ok := Members(meta); ok {
		for _, v := range kept {
			if v.Name != MetaProgressToken && !strings.HasPrefix(v.Name, metaPrefix) && !own(v.Name) {
				j.raw(v.Name, v.Value)
			}
		}
	}
	j.name(OwnPrefix + "asks")
	j.dst = quote(j.dst, asks)
	j.shut()
	j.shut()
}

// AppendQuestion appends the elicitation/create that goes to a legacy runtime under an
// id of ours; asks names the tool, prompt or resource on whose behalf.
func AppendQuestion(dst []byte, id string, q Question, asks string) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = quote(j.dst, id)
	j.comma = true
	j.raw("method", []byte(`"`+MethodElicit+`"`))
	j.name("params")
	appendQuestion(j, q.Params, asks)
	return append(j.dst, '}', '\n')
}

// InputRequired tells whether an answer asks the user, and what: its questions, and
// what it wants to be brought back. An error means that it asks what may not be asked.
func (a *Answer) InputRequired() (qs []Question, state Value, is bool, err error) {
	if string(Find(a.Members, "resultType")) != `"input_required"` {
		return nil, nil, false, nil
	}
	state = Find(a.Members, paramState)
	if state != nil && (state.Kind() != '"' || len(state) > MaxState) {
		return nil, nil, true, fmt.Errorf("requestState is not a string of at most %d bytes", MaxState)
	}
	raw := Find(a.Members, "inputRequests")
	if raw == nil {
		if state == nil {
			return nil, nil, true, errors.New("the answer asks for nothing")
		}
		return nil, state, true, nil
	}
	all, ok := Members(raw)
	if !ok || len(raw) > MaxQuestion || !raw.IsValid() || len(all) > MaxQuestions || len(all) == 0 && state == nil {
		return nil, nil, true, fmt.Errorf("inputRequests is not an object of at most %d questions", MaxQuestions)
	}
	for _, v := range all {
		parts, _ := Members(v.Value)
		if string(Find(parts, "method")) != `"`+MethodElicit+`"` {
			return nil, nil, true, errors.New("only " + MethodElicit + " is passed on")
		}
		params, err := ReadQuestion(Find(parts, "params"))
		if err != nil {
			return nil, nil, true, err
		}
		qs = append(qs, Question{v.Name, params})
	}
	return qs, state, true, nil
}

// AppendInputRequired answers a modern runtime's request id with questions. The handle
// is what it brings back.
func (p Peer) AppendInputRequired(dst []byte, id Value, qs []Question, handle, asks string) []byte {
	j := &joiner{dst: append(dst, `{"jsonrpc":"2.0","id":`...)}
	j.dst = append(j.dst, orNull(id)...)
	j.comma = true
	j.name("result")
	j.open()
	j.raw("resultType", []byte(`"input_required"`))
	if len(qs) > 0 {
		j.name("inputRequests")
		j.open()
		for _, q := range qs {
			j.name(q.Key)
			j.open()
			j.raw("method", []byte(`"`+MethodElicit+`"`))
			j.name("params")
			appendQuestion(j, q.Params, asks)
			j.shut()
		}
		j.shut()
	}
	j.name(paramState)
	j.dst = quote(j.dst, handle)
	p.serverMeta(j)
	j.shut()
	return append(j.dst, '}', '\n')
}

// Handle returns the requestState that a retry brings back; "" where there is none.
func (m *Message) Handle() (string, *Fault) {
	raw := m.Param(paramState)
	if raw == nil {
		return "", nil
	}
	s, f := text(raw, paramState)
	if f == nil && s == "" {
		f = BadHandle()
	}
	return s, f
}

// BadHandle is the fault of a requestState that belongs to nothing here.
func BadHandle() *Fault {
	return fault(CodeInvalidParams, refusal.BadRequest, "requestState does not belong to this request, was used already, or is too late")
}

// Reply is a user's answer to a question as it goes to the server: an object with an
// action and perhaps a content. What is none counts as a question that was cancelled.
func Reply(raw Value) Value {
	members, ok := Members(raw)
	if action := string(Find(members, "action")); !ok || (action != `"accept"` && action != `"decline"` && action != `"cancel"`) || len(raw) > MaxReply {
		return Value(`{"action":"cancel"}`)
	}
	if content := Find(members, "content"); content != nil && content.Kind() != '{' && content.Kind() != 'n' {
		return Value(`{"action":"cancel"}`)
	}
	j := &joiner{}
	j.open()
	for _, v := range members {
		if v.Name != "_meta" { // it describes the runtime to Postern, not to a server
			j.raw(v.Name, v.Value)
		}
	}
	j.shut()
	return j.dst
}

// Replies are the answers that a retry brings to the questions; what was not asked is
// left out. missing tells that a question has no answer.
func (m *Message) Replies(qs []Question) (replies map[string]Value, missing bool, f *Fault) {
	raw := m.Param(paramResponses)
	all, ok := Members(raw)
	if raw != nil && (!ok || len(raw) > MaxReply) {
		return nil, false, fault(CodeInvalidParams, refusal.BadRequest, "inputResponses is not an object of at most %d bytes", MaxReply)
	}
	replies = map[string]Value{}
	for _, q := range qs {
		if v := Find(all, q.Key); v != nil {
			replies[q.Key] = Reply(v)
		} else {
			missing = true
		}
	}
	return replies, missing, nil
}

// Unasked are the answers of a request that brings no requestState, as inputResponses:
// nil where there are none. A modern server may read them or ask again, as it would if
// it were asked directly.
func (m *Message) Unasked() (Value, *Fault) {
	raw := m.Param(paramResponses)
	if raw == nil {
		return nil, nil
	}
	all, ok := Members(raw)
	if !ok || len(raw) > MaxReply || len(all) > MaxQuestions {
		return nil, fault(CodeInvalidParams, refusal.BadRequest, "inputResponses is not an object of at most %d answers and %d bytes", MaxQuestions, MaxReply)
	}
	j := &joiner{}
	j.open()
	for _, v := range all {
		j.raw(v.Name, Reply(v.Value))
	}
	j.shut()
	return j.dst, nil
}

// JoinReplies writes replies as inputResponses, in the order of the questions.
func JoinReplies(qs []Question, replies map[string]Value) Value {
	j := &joiner{}
	j.open()
	for _, q := range qs {
		if v := replies[q.Key]; v != nil {
			j.raw(q.Key, v)
		}
	}
	j.shut()
	return j.dst
}

// IDString returns the string that an id of ours is, for finding what it answers.
func IDString(id Value) (string, bool) {
	if id.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, id)
	return string(b), err == nil
}
