package bridge

import (
	"postern/bridge/mcp"
)

// wants is the level from which the call's runtime wants log messages; 0 for none.
func (c *call) wants() mcp.Level {
	if c.peer.Modern {
		return c.level
	}
	c.s.b.mu.Lock()
	defer c.s.b.mu.Unlock()
	return c.s.level
}

// setLevel takes the level from which a legacy session wants log messages, and has the
// servers write as much as the most curious session reads.
func (s *session) setLevel(m *mcp.Message, peer mcp.Peer) {
	l, f := m.SetsLevel()
	if f != nil {
		f.ID = m.ID
		s.refuse(f, "")
		return
	}
	s.b.mu.Lock()
	s.level = l
	all := make([]*instance, 0, len(s.b.instances))
	for _, in := range s.b.instances {
		all = append(all, in)
	}
	s.b.mu.Unlock()
	for _, in := range all {
		if in.isReady() {
			s.b.curious(in)
		}
	}
	s.send(mcp.AppendResponse(nil, m.ID, peer.EmptyResult()))
}

// curious tells a legacy server the level that any session wants, once for each more
// urgent to less.
func (b *Bridge) curious(in *instance) {
	if in.srv.Peer().Modern || !in.srv.Offers().Logging {
		return
	}
	b.mu.Lock()
	var most mcp.Level
	for _, s := range b.sessions {
		if s.level != 0 && (most == 0 || s.level < most) {
			most = s.level
		}
	}
	tell := most != 0 && (in.level == 0 || most < in.level)
	if tell {
		in.level = most
	}
	b.mu.Unlock()
	if tell {
		in.srv.Tell(mcp.MethodSetLevel, mcp.LevelParam(most))
	}
}

// logged passes a server's log message on. It does not say for which call it was
// written, so it goes to a session only where every call that it can be about is that
// session's; and to a modern runtime only as part of the one call that asked for it.
func (b *Bridge) logged(in *instance, a *mcp.Answer) {
	level, members, ok := mcp.LogMessage(a.Params)
	if !ok {
		return
	}
	flights, sure := in.srv.Flights()
	if !sure || len(flights) == 0 {
		return
	}
	first := flights[0].(*call)
	s := first.s
	legacy := true
	for _, f := range flights {
		c := f.(*call)
		if c.s != s {
			return
		}
		legacy = legacy && !c.peer.Modern
	}
	b.mu.Lock()
	wanted := s.level
	if !legacy {
		if wanted = 0; len(flights) == 1 {
			wanted = first.level
		}
	}
	send := wanted != 0 && level >= wanted && s.out != nil && s.mayNoteLocked()
	b.mu.Unlock()
	if !send {
		return
	}
	line := mcp.AppendNoteWith(nil, mcp.NoteMessage, members, nil)
	if legacy {
		s.send(line)
		return
	}
	_ = s.out.SendIdly(line, func() bool { return !first.live.answered.Load() })
}
