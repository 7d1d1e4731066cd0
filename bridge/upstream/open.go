package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"postern/bridge/mcp"
)

// Listing is what a server offers.
type Listing struct {
	Tools       []mcp.Definition
	Quarantined []mcp.Quarantined
}

// MaxListBytes bounds all definitions of one server together.
const MaxListBytes = 8 << 20

// exchange is one request of ours; its answer outlives the reader's buffer.
type exchange struct {
	done chan struct{}
	a    *mcp.Answer
	err  error
}

func (e *exchange) Progress([]mcp.Member) {}

func (e *exchange) Answer(a *mcp.Answer, _ int, err error) {
	if a != nil {
		c := &mcp.Answer{Kind: a.Kind, Result: bytes.Clone(a.Result), Error: bytes.Clone(a.Error)}
		for _, m := range a.Members {
			c.Members = append(c.Members, mcp.Member{Name: m.Name, Value: bytes.Clone(m.Value)})
		}
		e.a = c
	}
	e.err = err
	close(e.done)
}

// errServer is wrapped by what a server answered with an error of its own.
var errServer = errors.New("the server answered an error")

func (s *Server) ask(deadline time.Time, method, params string) (*mcp.Answer, error) {
	e := &exchange{done: make(chan struct{})}
	id := s.NextID()
	if err := s.Call(id, s.peer.AppendRequest(nil, id, method, params), e); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-e.done:
	case <-timer.C:
		if s.Forget(id) {
			return nil, fmt.Errorf("%s: no answer in time", method)
		}
		<-e.done
	}
	switch {
	case e.err != nil:
		return nil, fmt.Errorf("%s: %w", method, e.err)
	case e.a.Error != nil:
		return nil, fmt.Errorf("%s: %w: %.200q", method, errServer, e.a.Error)
	}
	return e.a, nil
}

// Open does the handshake and reads the first list. It asks for the legacy handshake
// first: every server seen in the wild has it, and some end at any other first
// request. A server that answers it with an error is asked the modern way.
//
// Preconditions: Run is running; Open is called once, before any Call.
func (s *Server) Open(deadline time.Time) (Listing, error) {
	a, err := s.ask(deadline, mcp.MethodInitialize, s.peer.InitializeParams())
	switch {
	case err == nil:
		version, ok := mcp.String(mcp.Find(a.Members, "protocolVersion"))
		if !ok || !mcp.Legacy(version) {
			return Listing{}, fmt.Errorf("initialize: the server answered version %.20q", version)
		}
		if err := s.out.Send(mcp.AppendNote(nil, mcp.NoteInitialized, ""), nil); err != nil {
			return Listing{}, fmt.Errorf("initialize: %w", ErrExited)
		}
	case errors.Is(err, errServer):
		s.peer.Modern = true
		d, derr := s.ask(deadline, mcp.MethodDiscover, "")
		if derr != nil {
			return Listing{}, errors.Join(err, derr)
		}
		if !bytes.Contains(mcp.Find(d.Members, "supportedVersions"), []byte(`"`+mcp.Modern+`"`)) {
			return Listing{}, fmt.Errorf("server/discover: %s is not among the server's versions", mcp.Modern)
		}
		s.listen()
	default:
		return Listing{}, err
	}
	return s.List(deadline)
}

// listen asks a modern server to tell when its tools change. The request stays open;
// that the server ends it means only that no more is told.
func (s *Server) listen() {
	id := s.NextID()
	_ = s.out.Send(s.peer.AppendRequest(nil, id, mcp.MethodListen, `"notifications":{"toolsListChanged":true}`), nil)
}

// List reads the server's whole list, page by page, within bounds. A cursor that comes
// twice is an error: the list would never end.
func (s *Server) List(deadline time.Time) (Listing, error) {
	var all []mcp.Value
	seen := map[string]bool{}
	size, cursor := 0, ""
	for range mcp.MaxPages {
		a, err := s.ask(deadline, mcp.MethodToolsList, mcp.Cursor(cursor))
		if err != nil {
			return Listing{}, err
		}
		page, err := a.ReadList()
		if err != nil {
			return Listing{}, fmt.Errorf("tools/list: %w", err)
		}
		for _, t := range page.Tools {
			size += len(t)
		}
		all = append(all, page.Tools...)
		if len(all) > mcp.MaxTools || size > MaxListBytes {
			return Listing{}, fmt.Errorf("tools/list: more than %d tools or %d bytes", mcp.MaxTools, MaxListBytes)
		}
		if page.Next == "" {
			good, bad := mcp.CheckTools(all)
			return Listing{good, bad}, nil
		}
		if seen[page.Next] {
			return Listing{}, fmt.Errorf("tools/list: the cursor %.40q came twice", page.Next)
		}
		seen[page.Next], cursor = true, page.Next
	}
	return Listing{}, fmt.Errorf("tools/list: more than %d pages", mcp.MaxPages)
}
