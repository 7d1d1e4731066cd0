package bridge

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/wire"
	"postern/item"
	"postern/refusal"
)

// Bounds of what a session is told without asking each time.
const (
	MaxListens    = 8   // streams of one session
	MaxSubs       = 64  // resources that one session subscribed to, beside its streams
	NotesPerSec   = 200 // updates and log messages of servers for one session
	subscribeWait = StartWait + AskWait
)

// sub is one subscription to a resource, at the server that has it.
type sub struct {
	uri    string
	in     *instance
	number int64 // the request that keeps it open at a modern server
}

// listen is one subscriptions/listen of a modern runtime.
type listen struct {
	id   mcp.Value
	what mcp.Filter
	subs map[string]sub // by URI
}

// listen opens a stream. Each resource that it names is admitted like a read. The
// acknowledgement is the stream's first message, and names what is honoured.
func (s *session) listen(m *mcp.Message) {
	f, bad := m.Listens()
	if bad != nil {
		bad.ID = m.ID
		s.refuse(bad, "")
		return
	}
	id, key := bytes.Clone(m.ID), mcp.IDKey(m.ID)
	entered := &listen{id: id, subs: map[string]sub{}}
	s.b.mu.Lock()
	_, twice := s.listens[key]
	_, live := s.live[key]
	twice = twice || live
	full := len(s.listens) >= MaxListens
	if !twice && !full {
		s.listens[key] = entered // says nothing until it is acknowledged
	}
	s.b.mu.Unlock()
	switch {
	case twice:
		s.sayNo(id, refusal.DuplicateID)
	case full:
		s.sayNo(id, refusal.LimitCalls)
	case len(f.URIs) == 0:
		s.acknowledge(entered, key, f)
	default:
		s.b.run.Go(func() {
			var agreed []string
			for uri, got := range s.subscribeAll(f.URIs, id) {
				if got != (sub{}) {
					agreed = append(agreed, uri)
					s.b.mu.Lock()
					entered.subs[uri] = got
					s.b.mu.Unlock()
				}
			}
			slices.Sort(agreed)
			f.URIs = agreed
			s.acknowledge(entered, key, f)
		})
	}
}

func (s *session) acknowledge(l *listen, key string, f mcp.Filter) {
	s.b.mu.Lock()
	open := s.listens[key] == l
	var subs []sub
	if !open { // cancelled meanwhile
		subs = slices.Collect(maps.Values(l.subs))
		clear(l.subs)
	}
	s.b.mu.Unlock()
	if !open {
		s.b.unsubscribe(subs)
		return
	}
	s.send(mcp.AppendAcknowledged(nil, l.id, f))
	s.b.mu.Lock()
	l.what = f
	s.b.mu.Unlock()
}

// subscribeAll makes the bridge's own calls for resources of a stream, and waits.
func (s *session) subscribeAll(uris []string, id mcp.Value) map[string]sub {
	type result struct {
		uri string
		sub sub
	}
	results := make(chan result, len(uris))
	for _, uri := range uris {
		s.subscribeOne(uri, id, func(got sub) { results <- result{uri, got} })
	}
	out := map[string]sub{}
	late := time.NewTimer(subscribeWait)
	defer late.Stop()
	for range uris {
		select {
		case r := <-results:
			out[r.uri] = r.sub
			continue
		case <-late.C:
		case <-s.gone:
		}
		break
	}
	return out
}

// subscribeOne makes one call of the bridge's own; then hears the subscription, or the
// zero one where there is none. It is called once at most.
func (s *session) subscribeOne(uri string, id mcp.Value, then func(sub)) {
	c := &call{s: s, live: &live{}, id: id, what: requests[mcp.MethodSubscribe], name: uri, peer: mcp.Peer{Version: s.b.cfg.Version}}
	c.done = func(ok bool) {
		if !ok {
			then(sub{})
			return
		}
		then(sub{uri, c.in, c.number})
	}
	s.b.mu.Lock()
	c.key = "\x00" + strconv.FormatUint(s.b.nextSeqLocked(), 10) // no runtime's id
	s.b.mu.Unlock()
	line := mcp.AppendSubscribe(nil, uri)
	var p mcp.Parser
	m, f := p.Parse(bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))))
	s.b.mu.Lock()
	full := len(s.live) >= s.bounds.requests
	if !full {
		s.live[c.key] = c.live
	}
	s.b.mu.Unlock()
	switch {
	case f != nil || len(uri) > item.MaxURI:
		c.refuse(refusal.ToolUnknown, false)
	case full:
		c.refuse(refusal.LimitCalls, true)
	default:
		c.begin(m, line[:len(line)-1])
		s.b.link.flush()
	}
}

// Acknowledged ends a subscription's call at a modern server.
func (c *call) Acknowledged(uris map[string]bool) {
	_, uri := item.Split(c.tool)
	a := &mcp.Answer{Kind: mcp.Response, Result: mcp.Value("{}")}
	if !uris[uri] {
		a = &mcp.Answer{Kind: mcp.Response, Error: mcp.Value(`{"code":-32602,"message":"the server does not tell about this resource"}`)}
	}
	c.Answer(a, 0, nil)
}

// subscribed notes a subscription that a legacy runtime asked for; a stream's are
// noted by the stream.
func (c *call) subscribed() {
	if c.done != nil {
		return
	}
	s := c.s
	_, uri := item.Split(c.tool)
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if !s.ended && (len(s.subs) < MaxSubs || s.subs[uri] != (sub{})) {
		s.subs[uri] = sub{uri, c.in, c.number}
	}
}

// unsubscribed answers a resources/unsubscribe.
func (s *session) unsubscribed(m *mcp.Message, peer mcp.Peer) {
	uri, f := m.Names("uri")
	if f != nil {
		f.ID = m.ID
		s.refuse(f, "")
		return
	}
	s.b.mu.Lock()
	had, ok := s.subs[uri]
	delete(s.subs, uri)
	s.b.mu.Unlock()
	if ok {
		s.b.unsubscribe([]sub{had})
	}
	s.send(mcp.AppendResponse(nil, m.ID, peer.EmptyResult()))
}

// subsLocked takes every subscription of the session away.
func (s *session) subsLocked() []sub {
	out := slices.Collect(maps.Values(s.subs))
	clear(s.subs)
	for key, l := range s.listens {
		out = slices.AppendSeq(out, maps.Values(l.subs))
		delete(s.listens, key)
	}
	return out
}

// eachSubLocked calls f for every subscription of the session: of a stream, or of none.
func (s *session) eachSubLocked(f func(l *listen, had sub)) {
	for _, had := range s.subs {
		f(nil, had)
	}
	for _, l := range s.listens {
		for _, had := range l.subs {
			f(l, had)
		}
	}
}

// unsubscribe tells the servers about subscriptions that nobody has any more.
func (b *Bridge) unsubscribe(subs []sub) {
	for _, had := range subs {
		if had.in.srv.Peer().Modern {
			had.in.srv.Reply(mcp.AppendCancel(nil, had.number, "")) // that request was this one's alone
			continue
		}
		others := false
		b.mu.Lock()
		for _, s := range b.sessions {
			s.eachSubLocked(func(_ *listen, o sub) { others = others || o.in == had.in && o.uri == had.uri })
		}
		b.mu.Unlock()
		if !others {
			had.in.srv.Tell(mcp.MethodUnsubscribe, mcp.URIParam(had.uri))
		}
	}
}

// note is a notification of a server that may be for somebody: never for anybody who
// did not ask, and never one that cannot be told whose it is.
func (b *Bridge) note(in *instance, a *mcp.Answer) {
	switch a.Method {
	case mcp.NoteResources:
		b.mu.Lock()
		clear(in.lists)
		b.mu.Unlock()
		b.notify(mcp.NoteResources, func(s *session) bool { return s.reachesLocked(in.place) })
	case mcp.NoteUpdated:
		b.updated(in, a)
	case mcp.NoteMessage:
		b.logged(in, a)
	}
}

// reachesLocked tells whether the session may have a resource of the server there.
func (s *session) reachesLocked(at place) bool {
	return s.routes == nil || slices.ContainsFunc(s.routes.prefixes, func(t wire.Tool) bool { return placeOf(t) == at && t.Callable })
}

// outgoing is a line for a session, made under b.mu and sent after it.
type outgoing struct {
	s    *session
	line []byte
}

func deliver(all []outgoing) {
	for _, o := range all {
		o.s.send(o.line)
	}
}

// updated passes on that a resource, or one beneath it, was updated to those who
// subscribed to it there.
func (b *Bridge) updated(in *instance, a *mcp.Answer) {
	uri, members, ok := mcp.Updated(a.Params)
	if !ok || item.CheckURI(uri) != nil {
		return
	}
	var all []outgoing
	b.mu.Lock()
	for _, s := range b.sessions {
		s.eachSubLocked(func(l *listen, had sub) {
			switch {
			case had.in != in || !item.Covers(had.uri, uri):
			case s.unsure:
				if len(s.missed) < MaxSubs {
					s.missed[had.uri] = true
				}
			case !s.mayNoteLocked():
			case l == nil:
				all = append(all, outgoing{s, mcp.AppendNoteWith(nil, mcp.NoteUpdated, members, nil)})
			case slices.Contains(l.what.URIs, had.uri):
				all = append(all, outgoing{s, mcp.AppendNoteWith(nil, mcp.NoteUpdated, members, l.id)})
			}
		})
	}
	b.mu.Unlock()
	deliver(all)
}

// mayNoteLocked cuts a flood of a server's notifications, which must not cost a slow
// runtime its session.
func (s *session) mayNoteLocked() bool {
	if now := time.Now(); now.Sub(s.notesAt) > time.Second {
		s.notes, s.notesAt = 0, now
	}
	s.notes++
	return s.notes <= NotesPerSec
}

// notify tells sessions that a list changed, each in the ways that it asked for: a
// legacy one about lists that it has asked for, and each stream that wants it.
func (b *Bridge) notify(method string, which func(*session) bool) {
	var all []outgoing
	b.mu.Lock()
	for _, s := range b.sessions {
		if s.out == nil || !which(s) {
			continue
		}
		if s.legacy != "" && (method == mcp.NoteToolsChanged || method == mcp.NotePrompts && s.listed[mcp.MethodPromptsList] ||
			method == mcp.NoteResources && (s.listed[mcp.MethodResources] || s.listed[mcp.MethodTemplates])) {
			all = append(all, outgoing{s, mcp.AppendChanged(nil, method, nil)})
		}
		for _, l := range s.listens {
			if method == mcp.NoteToolsChanged && l.what.Tools || method == mcp.NotePrompts && l.what.Prompts || method == mcp.NoteResources && l.what.Resources {
				all = append(all, outgoing{s, mcp.AppendChanged(nil, method, l.id)})
			}
		}
	}
	b.mu.Unlock()
	deliver(all)
}

// changed makes each session forget its routes and tells its runtime in the way of
// the runtime's era. No update passes until it is known who may still have it.
func (b *Bridge) changed() {
	b.mu.Lock()
	for _, s := range b.sessions {
		s.routes = nil
		s.generation++
		subscribed := false
		s.eachSubLocked(func(*listen, sub) { subscribed = true })
		if subscribed && !s.unsure {
			s.unsure = true
			b.run.Go(s.reauthorize)
		}
	}
	b.mu.Unlock()
	for _, method := range []string{mcp.NoteToolsChanged, mcp.NotePrompts, mcp.NoteResources} {
		b.notify(method, func(*session) bool { return true })
	}
}

// listChanged tells the sessions whose calls reach the server that its list has changed.
func (b *Bridge) listChanged(at place) {
	for _, method := range []string{mcp.NoteToolsChanged, mcp.NotePrompts} {
		b.notify(method, func(s *session) bool { return s.routes.reach(at) })
	}
}

// reauthorize looks which subscriptions a session may still have. Those it may not end,
// a stream as a whole and with its answer.
func (s *session) reauthorize() {
	b := s.b
	for {
		var now *routes // without a view nothing is allowed
		var generation int
		err := b.view(s, func(view []wire.Tool, asked int) { now, generation = s.remember(view, asked), asked })
		b.mu.Lock()
		if err == nil && s.generation != generation && !s.ended {
			b.mu.Unlock()
			continue // it has changed again
		}
		ended := s.withdrawLocked(func(had sub) bool {
			t, ok := now.find(item.Resource.Key(had.uri))
			return !ok || !t.Callable || placeOf(t) != had.in.place
		})
		s.unsure = false
		var lines [][]byte
		for uri := range s.missed {
			s.eachSubLocked(func(l *listen, had sub) {
				if had.uri == uri {
					var id mcp.Value
					if l != nil {
						id = l.id
					}
					lines = append(lines, mcp.AppendUpdated(nil, uri, id))
				}
			})
		}
		clear(s.missed)
		b.mu.Unlock()
		s.tellEnded(ended)
		for _, line := range lines {
			s.send(line)
		}
		return
	}
}

// withdrawn are subscriptions that were taken away, and the streams that end with them.
type withdrawn struct {
	subs    []sub
	streams []*listen
}

func (s *session) withdrawLocked(gone func(sub) bool) (out withdrawn) {
	for uri, had := range s.subs {
		if gone(had) {
			out.subs = append(out.subs, had)
			delete(s.subs, uri)
		}
	}
	for key, l := range s.listens {
		for _, had := range l.subs {
			if gone(had) {
				out.streams = append(out.streams, l)
				out.subs = slices.AppendSeq(out.subs, maps.Values(l.subs))
				delete(s.listens, key)
				break
			}
		}
	}
	return out
}

func (s *session) tellEnded(w withdrawn) {
	s.b.unsubscribe(w.subs)
	for _, l := range w.streams {
		s.send(mcp.AppendListenEnd(nil, l.id))
	}
}

// lost ends what was subscribed to at a server that is gone: a stream ends, and a
// legacy runtime is told to look again, which is all that its revision has.
func (b *Bridge) lost(in *instance) {
	type to struct {
		s    *session
		gone withdrawn
		out  bool
	}
	var all []to
	b.mu.Lock()
	for _, s := range b.sessions {
		gone := s.withdrawLocked(func(had sub) bool { return had.in == in })
		if len(gone.subs) > 0 {
			all = append(all, to{s, gone, s.out != nil})
		}
	}
	b.mu.Unlock()
	for _, t := range all {
		if !t.out {
			continue
		}
		for _, l := range t.gone.streams {
			t.s.send(mcp.AppendListenEnd(nil, l.id))
			for uri := range l.subs {
				t.gone.subs = slices.DeleteFunc(t.gone.subs, func(had sub) bool { return had.uri == uri && had == l.subs[uri] })
			}
		}
		for _, had := range t.gone.subs {
			t.s.send(mcp.AppendUpdated(nil, had.uri, nil))
		}
	}
}
