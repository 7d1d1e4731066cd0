package upstream

import (
	"fmt"

	"postern/bridge/mcp"
	"postern/bridge/stream"
)

func (s *Server) read() error {
	p := mcp.Parser{Depth: s.cfg.Bounds.Depth}
	blocks := or(s.cfg.Bounds.Blocks, mcp.MaxBlocks)
	for {
		if s.cfg.Handled != nil && !s.in.Ready() {
			s.cfg.Handled()
		}
		line, err := s.in.Next()
		if err == stream.ErrSlow {
			s.skipped(&s.counts.tooLong)
			head, _ := s.in.Edges()
			s.fail(mcp.Answer{ID: mcp.OversizeID(head, nil)}, int(s.in.Skipped()), ErrAnswer)
			continue
		}
		if err == stream.ErrTooLong || err == stream.ErrCrowded {
			s.skipped(&s.counts.tooLong)
			head, tail := s.in.Edges()
			s.fail(mcp.Answer{ID: mcp.OversizeID(head, tail)}, mcp.MaxLine, ErrTooLong)
			continue
		}
		if err != nil {
			return fmt.Errorf("read the server's output: %w", err)
		}
		a, err := p.ReadAnswer(line)
		switch {
		case err == mcp.ErrNoise:
			s.skipped(&s.counts.noise)
		case err != nil:
			s.fail(*a, len(line), ErrAnswer)
		case a.Kind == mcp.Response && a.Blocks() > blocks:
			s.fail(*a, len(line), ErrTooLong)
		case a.Kind == mcp.Response:
			s.answer(a, len(line))
		case a.Kind == mcp.Notification:
			s.note(a)
		default:
			s.asked(a)
		}
	}
}

func (s *Server) answer(a *mcp.Answer, size int) {
	if n, ok := a.Number(); ok {
		if c, ok := s.take(n); ok {
			c.Answer(a, size, nil)
			return
		}
		s.mu.Lock()
		delete(s.lost, n)
		s.mu.Unlock()
	}
	s.skipped(&s.counts.unmatched)
}

// fail ends the call that a bad line belongs to. Where the line names none and only
// one call is in flight, it was that one's.
func (s *Server) fail(a mcp.Answer, size int, why error) {
	n, ok := a.Number()
	if !ok {
		s.mu.Lock()
		if len(s.pending) == 1 && a.ID == nil {
			for n = range s.pending {
				ok = true
			}
		}
		s.mu.Unlock()
	}
	if ok {
		if c, ok := s.take(n); ok {
			c.Answer(nil, size, why)
			return
		}
	}
	s.skipped(&s.counts.unmatched)
}

func (s *Server) note(a *mcp.Answer) {
	switch a.Method {
	case mcp.NoteProgress:
		token, members, ok := mcp.Progress(a.Params)
		if !ok {
			return
		}
		s.mu.Lock()
		f, ok := s.pending[token]
		s.mu.Unlock()
		if ok {
			f.call.Progress(members)
			return
		}
		s.skipped(&s.counts.unmatched)
	case mcp.NoteToolsChanged, mcp.NotePrompts:
		if s.cfg.Changed != nil {
			s.cfg.Changed()
		}
	case mcp.NoteAcknowledged:
		n, uris, ok := mcp.Acknowledged(a.Params)
		s.mu.Lock()
		l, is := s.pending[n].call.(Listener)
		if ok && is {
			delete(s.pending, n)
		}
		s.mu.Unlock()
		if ok && is {
			l.Acknowledged(uris)
		}
	case mcp.NoteResources, mcp.NoteUpdated, mcp.NoteMessage:
		if s.cfg.Note != nil {
			s.cfg.Note(a)
		}
	}
}

// asked answers a request of the server. A server that floods requests and reads no
// answers only loses answers.
func (s *Server) asked(a *mcp.Answer) {
	s.counts.requests.Add(1)
	if !s.out.Idle() || len(a.ID) > mcp.MaxID {
		return
	}
	line := mcp.AppendResponse(nil, a.ID, []byte("{}"))
	switch {
	case a.Method == mcp.MethodElicit && s.cfg.Asked != nil:
		taken, why := s.cfg.Asked(a)
		if taken {
			return
		}
		line = mcp.AppendError(nil, a.ID, mcp.CodeMethodNotFound, why, nil)
	case a.Method != mcp.MethodPing:
		line = mcp.AppendError(nil, a.ID, mcp.CodeMethodNotFound, "not offered to tool servers", nil)
	}
	_ = s.out.Send(line, nil) // a failing output is seen by the next call
}
