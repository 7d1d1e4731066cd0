package bridge

import (
	"bytes"
	"maps"
	"slices"

	"postern/bridge/mcp"
	"postern/bridge/wire"
	"postern/item"
	"postern/refusal"
)

// front answers one message of a runtime in the era in which it asks. The message
// aliases line, which the next read overwrites.
func (s *session) front(m *mcp.Message, line []byte) {
	switch m.Kind {
	case mcp.Notification:
		if m.Method == mcp.NoteCancelled {
			s.cancel(m)
		}
		return // initialized, and whatever else needs no answer
	case mcp.Response:
		s.answer(m)
		return
	}
	if m.IsModern() {
		s.modern(m, line)
		return
	}
	peer := mcp.Peer{Version: s.b.cfg.Version}
	switch m.Method {
	case mcp.MethodInitialize:
		s.initialize(m, peer)
	case mcp.MethodPing:
		s.send(mcp.AppendResponse(nil, m.ID, peer.EmptyResult()))
	case mcp.MethodSetLevel:
		s.setLevel(m, peer)
	default:
		_, call := requests[m.Method]
		_, list := lists[m.Method]
		if !call && !list && m.Method != mcp.MethodUnsubscribe {
			s.unknown(m)
			return
		}
		s.b.mu.Lock()
		ready := s.legacy != ""
		s.b.mu.Unlock()
		switch {
		case !ready:
			s.sayNo(m.ID, refusal.NotInitialized)
		case m.Method == mcp.MethodUnsubscribe:
			s.unsubscribed(m, peer)
		default:
			s.enter(m, line, peer)
		}
	}
}

func (s *session) modern(m *mcp.Message, line []byte) {
	f, data := m.CheckModern()
	if f != nil {
		s.send(mcp.AppendError(nil, m.ID, f.Code, f.Reason, data))
		return
	}
	peer := mcp.Peer{Modern: true, Version: s.b.cfg.Version}
	switch m.Method {
	case mcp.MethodDiscover:
		s.send(mcp.AppendResponse(nil, m.ID, peer.DiscoverResult()))
	case mcp.MethodListen:
		s.listen(m)
	case mcp.MethodSubscribe: // listen took its place
		s.unknown(m)
	default: // initialize, ping and setLevel are unknown too: this revision has none
		_, call := requests[m.Method]
		_, list := lists[m.Method]
		if !call && !list {
			s.unknown(m)
			return
		}
		s.enter(m, line, peer)
	}
}

// notPassed are methods of the protocol that Postern knows and does not pass on.
var notPassed = map[string]bool{
	"tasks/get": true, "tasks/list": true, "tasks/result": true, "tasks/cancel": true, "tasks/update": true,
	"sampling/createMessage": true, "roots/list": true, "elicitation/create": true,
}

func (s *session) unknown(m *mcp.Message) {
	text := "Method not found: " + cut(m.Method, 100)
	if notPassed[m.Method] {
		text += " (Postern does not pass it on)"
	}
	s.send(mcp.AppendError(nil, m.ID, mcp.CodeMethodNotFound, text, nil))
}

// sayNo answers a request with a refusal of the table, and reports it.
func (s *session) sayNo(id mcp.Value, code refusal.Code) {
	row := refusal.Of(code)
	n := row.Form.JSONRPC()
	if n == 0 { // not a call, so no result could say it
		n = refusal.ServerError.JSONRPC()
	}
	s.send(mcp.AppendError(nil, id, n, row.Sentence, refusalData(row.Code)))
	s.denied(code, "", requestID(id))
}

func (s *session) initialize(m *mcp.Message, peer mcp.Peer) {
	version, f := m.Negotiate()
	if f != nil {
		f.ID = m.ID
		s.refuse(f, "")
		return
	}
	s.b.mu.Lock()
	again := s.legacy != ""
	if !again {
		s.legacy, s.elicits = version, mcp.Forms(m.Param("capabilities"))
	}
	s.b.mu.Unlock()
	if again {
		s.refuse(&mcp.Fault{Code: mcp.CodeInvalidRequest, Refusal: refusal.BadRequest, ID: m.ID, Reason: "the session is initialized already"}, "")
		return
	}
	s.send(mcp.AppendResponse(nil, m.ID, peer.InitializeResult(version)))
}

// cancel ends what the runtime no longer waits for; there is no answer, whatever it
// names.
func (s *session) cancel(m *mcp.Message) {
	key, reason, ok := m.Cancels()
	if !ok {
		return
	}
	s.b.mu.Lock()
	var subs []sub
	if open := s.listens[key]; open != nil {
		subs = slices.Collect(maps.Values(open.subs))
		delete(s.listens, key)
	}
	l := s.live[key]
	if l != nil {
		delete(s.live, key)
		l.answered.Store(true)
	}
	s.b.mu.Unlock()
	s.b.unsubscribe(subs)
	if l != nil && l.call != nil {
		l.call.abandon(reason)
	}
}

// enter enters a list or a call under its id, so that two of the same id can never
// answer each other.
func (s *session) enter(m *mcp.Message, line []byte, peer mcp.Peer) {
	l := &live{}
	key := mcp.IDKey(m.ID)
	what, listing := lists[m.Method]
	s.b.mu.Lock()
	_, twice := s.live[key]
	_, open := s.listens[key]
	full := len(s.live) >= s.bounds.requests
	if !twice && !open && !full {
		s.live[key] = l
	}
	draining, elicits := s.b.draining, s.elicits
	s.b.mu.Unlock()
	switch {
	case twice || open:
		s.sayNo(m.ID, refusal.DuplicateID)
	case listing && full:
		s.sayNo(m.ID, refusal.LimitCalls)
	case listing:
		id, cursor := bytes.Clone(m.ID), bytes.Clone(m.Param("cursor"))
		s.b.run.Go(func() { s.list(l, what, key, id, cursor, peer) })
	default:
		c := &call{s: s, live: l, key: key, id: bytes.Clone(m.ID), peer: peer, what: requests[m.Method], token: bytes.Clone(m.ProgressToken()), elicits: elicits}
		name, f := "", (*mcp.Fault)(nil)
		if c.what.method == mcp.MethodComplete {
			c.completes, f = m.Completes()
			c.what.kind, name = c.completes.Kind, c.completes.Name
		} else {
			name, f = m.Names(c.what.member)
		}
		if peer.Modern {
			c.elicits = m.MayAsk()
			if c.level, _ = m.WantsLevel(); f == nil {
				_, f = m.WantsLevel()
			}
		}
		switch c.name = name; {
		case full:
			c.refuseUnentered(refusal.LimitCalls)
		case f != nil:
			f.ID = c.id
			if c.settle() {
				s.refuse(f, name)
			}
		case len(name) > wire.MaxName && c.what.kind != item.Resource || len(name) > item.MaxURI, c.what.kind != item.Resource && item.Reserved(name):
			c.refuse(refusal.ToolUnknown, true)
		case draining:
			c.refuse(refusal.Draining, true)
		case c.what.method == mcp.MethodSubscribe && s.fullOfSubs(name):
			c.refuse(refusal.LimitCalls, true)
		default:
			if peer.Modern {
				if f := c.resume(m); f != nil {
					f.ID = c.id
					if c.settle() {
						s.refuse(f, c.itemKey())
					}
					return
				}
			}
			c.begin(m, line)
		}
	}
}

func (s *session) fullOfSubs(uri string) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return len(s.subs) >= MaxSubs && s.subs[uri] == (sub{})
}

// finish takes the right to answer a request; only the first one has it.
func (s *session) finish(l *live, key string) bool {
	if !l.answered.CompareAndSwap(false, true) {
		return false
	}
	s.b.mu.Lock()
	if s.live[key] == l {
		delete(s.live, key)
	}
	s.b.mu.Unlock()
	return true
}
