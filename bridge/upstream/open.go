package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	"postern/bridge/mcp"
)

// Listing is what a server offers.
type Listing struct {
	Tools       []mcp.Definition
	Prompts     []mcp.Definition
	Quarantined []mcp.Quarantined
}

// MaxListBytes bounds all definitions of one of a server's lists together.
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

// Ask makes a request of our own and returns the answer, which is a result.
func (s *Server) Ask(deadline time.Time, method, params string) (*mcp.Answer, error) {
	e, id, err := s.begin(s.peer, method, params)
	if err != nil {
		return nil, err
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
	return e.result(method)
}

func (s *Server) begin(peer mcp.Peer, method, params string) (*exchange, int64, error) {
	e := &exchange{done: make(chan struct{})}
	id := s.NextID()
	if err := s.Call(id, peer.AppendRequest(nil, id, method, params), e); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", method, err)
	}
	return e, id, nil
}

func (e *exchange) result(method string) (*mcp.Answer, error) {
	switch {
	case e.err != nil:
		return nil, fmt.Errorf("%s: %w", method, e.err)
	case e.a.Error != nil:
		return nil, fmt.Errorf("%s: %w: %.200q", method, errServer, e.a.Error)
	}
	return e.a, nil
}

// What a server speaks, as it was found at an earlier start: a hint, and no more.
const (
	EraUnknown = ""
	EraLegacy  = "legacy" // with a handshake
	EraModern  = "modern" // without one
	EraBoth    = "both"   // either, with the same lists; said by Probe alone
)

// BothWait bounds the question whether a server that took the handshake speaks the
// modern revision too. Some say nothing to a method that they do not know.
const BothWait = 2 * time.Second

// Open finds out what the server speaks and reads the first list. Without a hint it
// asks for the legacy handshake first: every server seen in the wild has it, and some
// end at any other first request. One that answers an error, whichever, or says nothing
// for half the time, is asked the modern way; the hint turns that around. Until then
// an answer to the first question still counts. One that speaks both is asked in the
// era that is liked: what it is started for then needs no translation.
//
// Preconditions: Run is running; Open is called once, before any Call.
func (s *Server) Open(deadline time.Time, hint string, modern bool) (Listing, error) {
	return s.open(deadline, hint == EraModern || hint == EraBoth && modern)
}

// Probe is Open for a server that is started for its list alone, and also tries whether
// one that took the handshake speaks both eras. That comes last, since such a server may
// take the whole connection for a modern one from then on, or end.
func (s *Server) Probe(deadline time.Time, hint string) (Listing, error) {
	list, err := s.open(deadline, hint == EraModern)
	if err == nil && !s.peer.Modern {
		s.both = s.speaksBoth(list, deadline)
	}
	return list, err
}

// Era is what was found: the hint for the next start.
func (s *Server) Era() string {
	switch {
	case s.both:
		return EraBoth
	case s.peer.Modern:
		return EraModern
	}
	return EraLegacy
}

// speaksBoth tells whether the server has the same list in the modern era: what is
// pinned is one list.
func (s *Server) speaksBoth(list Listing, deadline time.Time) bool {
	if until := time.Now().Add(BothWait); until.Before(deadline) {
		deadline = until
	}
	s.peer.Modern = true
	defer func() { s.peer.Modern = false }()
	a, err := s.Ask(deadline, mcp.MethodDiscover, "")
	if err != nil || !knowsModern(a) {
		return false
	}
	again, err := s.List(deadline)
	return err == nil && reflect.DeepEqual(list, again)
}

func knowsModern(a *mcp.Answer) bool {
	return bytes.Contains(mcp.Find(a.Members, "supportedVersions"), []byte(`"`+mcp.Modern+`"`))
}

func (s *Server) open(deadline time.Time, modernFirst bool) (Listing, error) {
	first, second := s.hello, s.discover
	if modernFirst {
		first, second = s.discover, s.hello
	}
	half := time.Until(deadline) / 2
	a, err := first()
	if err != nil {
		return Listing{}, err
	}
	timer := time.NewTimer(half)
	defer timer.Stop()
	select {
	case <-a.done:
		if a.err == nil && a.a.Error == nil {
			return s.greeted(a, deadline)
		}
		if a.err != nil && !errors.Is(a.err, ErrAnswer) { // the server is gone
			return Listing{}, fmt.Errorf("%s: %w", a.method, a.err)
		}
	case <-timer.C:
	}
	b, err := second()
	if err != nil {
		return Listing{}, err
	}
	timer.Reset(time.Until(deadline))
	open := a.done
	if isDone(a) {
		open = nil
	}
	for {
		select {
		case <-open:
			if a.err == nil && a.a.Error == nil {
				s.Forget(b.id)
				return s.greeted(a, deadline)
			}
			open = nil
		case <-b.done:
			if b.err == nil && b.a.Error == nil {
				s.Forget(a.id)
				return s.greeted(b, deadline)
			}
			_, erra := a.result(a.method)
			_, errb := b.result(b.method)
			if open == nil {
				return Listing{}, errors.Join(erra, errb)
			}
			s.Forget(a.id)
			return Listing{}, errb
		case <-timer.C:
			s.Forget(a.id)
			s.Forget(b.id)
			return Listing{}, fmt.Errorf("%s: no answer in time", a.method)
		}
	}
}

func isDone(g *greeting) bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// greeting is one of the two first requests.
type greeting struct {
	*exchange
	id     int64
	method string
	modern bool
}

func (s *Server) hello() (*greeting, error) {
	p := mcp.Peer{Version: s.cfg.Version}
	e, id, err := s.begin(p, mcp.MethodInitialize, p.InitializeParams())
	return &greeting{e, id, mcp.MethodInitialize, false}, err
}

func (s *Server) discover() (*greeting, error) {
	e, id, err := s.begin(mcp.Peer{Modern: true, Version: s.cfg.Version}, mcp.MethodDiscover, "")
	return &greeting{e, id, mcp.MethodDiscover, true}, err
}

// greeted takes the answer that decided what is spoken.
func (s *Server) greeted(g *greeting, deadline time.Time) (Listing, error) {
	s.offers = mcp.ReadOffers(mcp.Find(g.a.Members, "capabilities"))
	if s.peer.Modern = g.modern; g.modern {
		if !knowsModern(g.a) {
			return Listing{}, fmt.Errorf("server/discover: %s is not among the server's versions", mcp.Modern)
		}
		s.listen()
	} else {
		version, ok := mcp.String(mcp.Find(g.a.Members, "protocolVersion"))
		if !ok || !mcp.Legacy(version) {
			return Listing{}, fmt.Errorf("initialize: the server answered version %.20q", version)
		}
		if err := s.out.Send(mcp.AppendNote(nil, mcp.NoteInitialized, ""), nil); err != nil {
			return Listing{}, fmt.Errorf("initialize: %w", ErrExited)
		}
	}
	return s.List(deadline)
}

// Offers is what the server says that it has. It is fixed once Open returned.
func (s *Server) Offers() mcp.Offers { return s.offers }

// listen asks a modern server to tell when its lists change. The request stays open;
// that the server ends it means only that no more is told.
func (s *Server) listen() {
	id := s.NextID()
	f := mcp.Filter{Tools: true, Prompts: s.offers.Prompts, Resources: s.offers.Resources}
	_ = s.out.Send(s.peer.AppendRequest(nil, id, mcp.MethodListen, `"notifications":`+f.Filters()), nil)
}

// List reads the definitions that are pinned: the server's tools and, where it has
// them, its prompts. A list of prompts that cannot be read takes no tool away.
func (s *Server) List(deadline time.Time) (Listing, error) {
	tools, err := s.Elements(deadline, mcp.Tools)
	if err != nil {
		return Listing{}, err
	}
	var out Listing
	out.Tools, out.Quarantined = mcp.CheckTools(tools, s.cfg.Bounds.Definition)
	if !s.offers.Prompts {
		return out, nil
	}
	prompts, err := s.Elements(deadline, mcp.Prompts)
	if err != nil {
		out.Quarantined = append(out.Quarantined, mcp.Quarantined{Name: "(prompts)", Reason: err.Error()})
		return out, nil
	}
	var bad []mcp.Quarantined
	out.Prompts, bad = mcp.CheckPrompts(prompts, s.cfg.Bounds.Definition)
	out.Quarantined = append(out.Quarantined, bad...)
	return out, nil
}

// Elements reads one whole list, page by page, within bounds. A cursor that comes twice
// is an error: the list would never end.
func (s *Server) Elements(deadline time.Time, l mcp.List) ([]mcp.Value, error) {
	var all []mcp.Value
	seen := map[string]bool{}
	size, cursor := 0, ""
	pages := or(s.cfg.Bounds.Pages, mcp.MaxPages)
	items, most := min(or(s.cfg.Bounds.Items, mcp.MaxTools), mcp.MaxTools), min(or(s.cfg.Bounds.Definitions, MaxListBytes), MaxListBytes)
	for range pages {
		a, err := s.Ask(deadline, l.Method, mcp.Cursor(cursor))
		if err != nil {
			return nil, err
		}
		page, err := a.ReadList(l.Member)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Method, err)
		}
		for _, t := range page.Items {
			size += len(t)
		}
		all = append(all, page.Items...)
		if len(all) > items || size > most {
			return nil, fmt.Errorf("%s: more than %d %s or %d bytes", l.Method, items, l.Member, most)
		}
		if page.Next == "" {
			return all, nil
		}
		if seen[page.Next] {
			return nil, fmt.Errorf("%s: the cursor %.40q came twice", l.Method, page.Next)
		}
		seen[page.Next], cursor = true, page.Next
	}
	return nil, fmt.Errorf("%s: more than %d pages", l.Method, pages)
}
