package bridge

import (
	"bytes"
	"errors"

	"postern/bridge/mcp"
	"postern/bridge/wire"
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
		return // nothing is ever asked of a runtime
	}
	if m.IsModern() {
		s.modern(m, line)
		return
	}
	peer := mcp.Peer{Version: s.b.cfg.Version}
	switch m.Method {
	case mcp.MethodInitialize:
		s.initialize(m, peer)
	case mcp.MethodPing, mcp.MethodSetLevel: // log messages of servers are not passed on
		s.send(mcp.AppendResponse(nil, m.ID, peer.EmptyResult()))
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		s.b.mu.Lock()
		ready := s.legacy != ""
		s.b.mu.Unlock()
		if !ready {
			s.sayNo(m.ID, refusal.NotInitialized)
			return
		}
		s.tools(m, line, peer)
	default:
		s.unknown(m)
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
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		s.tools(m, line, peer)
	default: // initialize, ping and setLevel among them: this revision has none
		s.unknown(m)
	}
}

func (s *session) unknown(m *mcp.Message) {
	s.send(mcp.AppendError(nil, m.ID, mcp.CodeMethodNotFound, "Method not found: "+cut(m.Method, 100), nil))
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
		s.legacy = version
	}
	s.b.mu.Unlock()
	if again {
		s.refuse(&mcp.Fault{Code: mcp.CodeInvalidRequest, Refusal: refusal.BadRequest, ID: m.ID, Reason: "the session is initialized already"}, "")
		return
	}
	s.send(mcp.AppendResponse(nil, m.ID, peer.InitializeResult(version)))
}

// listen opens a subscription. The acknowledgement is its first message, so the id is
// entered only after that is on its way.
func (s *session) listen(m *mcp.Message) {
	tools, f := m.WantsToolChanges()
	if f != nil {
		f.ID = m.ID
		s.refuse(f, "")
		return
	}
	id, key := bytes.Clone(m.ID), mcp.IDKey(m.ID)
	s.b.mu.Lock()
	_, open := s.listens[key]
	_, live := s.live[key]
	full := len(s.listens) >= MaxListens
	s.b.mu.Unlock()
	switch {
	case open || live:
		s.sayNo(id, refusal.DuplicateID)
		return
	case full:
		s.sayNo(id, refusal.LimitCalls)
		return
	}
	s.send(mcp.AppendAcknowledged(nil, id, tools))
	s.b.mu.Lock()
	if !tools { // open, and nothing will ever be sent on it
		id = nil
	}
	s.listens[key] = id
	s.b.mu.Unlock()
}

// cancel ends what the runtime no longer waits for; there is no answer, whatever it
// names.
func (s *session) cancel(m *mcp.Message) {
	key, reason, ok := m.Cancels()
	if !ok {
		return
	}
	s.b.mu.Lock()
	delete(s.listens, key)
	l := s.live[key]
	if l != nil {
		delete(s.live, key)
		l.answered.Store(true)
	}
	s.b.mu.Unlock()
	if l != nil && l.call != nil {
		l.call.abandon(reason)
	}
}

// tools enters a list or a call under its id, so that two of the same id can never
// answer each other.
func (s *session) tools(m *mcp.Message, line []byte, peer mcp.Peer) {
	l := &live{}
	key := mcp.IDKey(m.ID)
	s.b.mu.Lock()
	_, twice := s.live[key]
	_, open := s.listens[key]
	full := len(s.live) >= MaxInFlight
	if !twice && !open && !full {
		s.live[key] = l
	}
	draining := s.b.draining
	s.b.mu.Unlock()
	switch {
	case twice || open:
		s.sayNo(m.ID, refusal.DuplicateID)
	case m.Method == mcp.MethodToolsList && full:
		s.sayNo(m.ID, refusal.LimitCalls)
	case m.Method == mcp.MethodToolsList:
		id, cursor := bytes.Clone(m.ID), bytes.Clone(m.Param("cursor"))
		s.b.run.Go(func() { s.list(l, key, id, cursor, peer) })
	default:
		c := &call{s: s, live: l, key: key, id: bytes.Clone(m.ID), peer: peer, token: bytes.Clone(m.ProgressToken())}
		name, f := m.ToolName()
		switch c.name = name; {
		case full:
			c.refuseUnentered(refusal.LimitCalls)
		case f != nil:
			f.ID = c.id
			if c.settle() {
				s.refuse(f, name)
			}
		case len(name) > wire.MaxName:
			c.refuse(refusal.ToolUnknown, true)
		case draining:
			c.refuse(refusal.Draining, true)
		default:
			c.begin(m, line)
		}
	}
}

// list answers tools/list from a view that is asked for now.
func (s *session) list(l *live, key string, id, cursor mcp.Value, peer mcp.Peer) {
	s.b.mu.Lock()
	generation := s.generation
	s.b.mu.Unlock()
	view, err := s.b.view(s.id)
	var result mcp.Value
	if err == nil {
		s.remember(view, generation)
		served := make([]mcp.Served, 0, len(view))
		for _, t := range view {
			if t.Callable {
				served = append(served, mcp.Served{Name: t.Name, Definition: t.Definition})
			}
		}
		result, err = peer.ListResult(served, cursor)
	}
	if !s.finish(l, key) {
		return
	}
	switch {
	case errors.Is(err, mcp.ErrCursor):
		f := mcp.CursorFault()
		f.ID = id
		s.refuse(f, "")
	case err != nil:
		s.sayNo(id, refusal.Busy)
	default:
		if !s.send(mcp.AppendResponse(nil, id, result)) {
			s.sayNo(id, refusal.Busy)
		}
	}
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

// remember keeps where the served names lead, unless the view was overtaken by a
// change. It is only a route: each call is admitted by what it leads to.
func (s *session) remember(view []wire.Tool, generation int) map[string]wire.Tool {
	routes := make(map[string]wire.Tool, len(view))
	for _, t := range view {
		t.Definition = nil
		routes[t.Name] = t
	}
	s.b.mu.Lock()
	if s.generation == generation {
		s.routes = routes
	}
	s.b.mu.Unlock()
	return routes
}
