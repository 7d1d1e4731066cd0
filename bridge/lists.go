package bridge

import (
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/wire"
	"postern/item"
	"postern/refusal"
)

// Bounds of lists that servers are asked for.
const (
	ListPatience = time.Second // one list waits so long for all servers together
	ListFresh    = time.Second // so long the same list is not asked for again
	MaxOffered   = 2 << 20     // bytes of one server's resources; of more, none is listed
)

// lists are those that a runtime may ask for.
var lists = map[string]mcp.List{mcp.MethodToolsList: mcp.Tools, mcp.MethodPromptsList: mcp.Prompts, mcp.MethodResources: mcp.Resources, mcp.MethodTemplates: mcp.Templates}

// list answers a list from a view that is asked for now.
func (s *session) list(l *live, what mcp.List, key string, id, cursor mcp.Value, peer mcp.Peer) {
	s.b.mu.Lock()
	s.listed[what.Method] = true
	s.b.mu.Unlock()
	var result mcp.Value
	var bad error
	var beneath []wire.Tool // what of the view is resources
	err := s.b.view(s, func(view []wire.Tool, generation int) {
		beneath = s.remember(view, generation).prefixes
		switch what {
		case mcp.Tools:
			result, bad = peer.ListResult(what, served(view, item.Tool), cursor)
			s.b.lookAt(view)
		case mcp.Prompts:
			result, bad = peer.ListResult(what, served(view, item.Prompt), cursor)
			s.b.lookAt(view)
		}
	})
	if err == nil && (what == mcp.Resources || what == mcp.Templates) {
		result, bad = peer.ListResult(what, s.resources(beneath, what, id, peer), cursor)
	}
	if !s.finish(l, key) {
		return
	}
	switch {
	case errors.Is(bad, mcp.ErrCursor):
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

// served are the items of a kind that may be called now, as they were pinned.
func served(view []wire.Tool, kind item.Kind) []mcp.Served {
	out := make([]mcp.Served, 0, len(view))
	for _, t := range view {
		if k, name := item.Split(t.Name); k == kind && t.Callable {
			out = append(out, mcp.Served{Name: name, Definition: t.Definition})
		}
	}
	return out
}

// resources asks the servers for what they have beneath the granted prefixes, all at
// once. One that is late is left out, and the runtime told that the list changed when
// it has answered.
func (s *session) resources(beneath []wire.Tool, what mcp.List, id mcp.Value, peer mcp.Peer) []mcp.Served {
	prefixes := map[place][]wire.Tool{}
	var order []place
	for _, t := range beneath {
		if !t.Callable {
			continue
		}
		if prefixes[placeOf(t)] == nil {
			order = append(order, placeOf(t))
		}
		prefixes[placeOf(t)] = append(prefixes[placeOf(t)], t)
	}
	got := map[place][]mcp.Value{}
	all, told := make(chan struct{}), false
	for _, at := range order {
		t := prefixes[at][0]
		s.b.run.Go(func() {
			c := &call{s: s, live: &live{}, id: id, what: request{kind: item.Resource}, peer: peer}
			in, code, _ := s.b.instanceFor(c, t)
			var found []mcp.Value
			if code == "" {
				found = s.b.elements(in, what)
			}
			s.b.mu.Lock()
			got[at] = found
			late := told
			if len(got) == len(order) {
				close(all)
			}
			s.b.mu.Unlock()
			if late && len(found) > 0 {
				s.b.notify(mcp.NoteResources, func(o *session) bool { return o == s })
			}
		})
	}
	if len(order) > 0 {
		late := time.NewTimer(ListPatience)
		defer late.Stop()
		select {
		case <-all:
		case <-late.C:
		case <-s.gone:
		}
	}
	s.b.mu.Lock()
	told = true
	got = maps.Clone(got)
	s.b.mu.Unlock()
	var out []mcp.Served
	for _, at := range order {
		for _, raw := range got[at] {
			uri, literal, ok := what.Element(raw)
			if ok && slices.ContainsFunc(prefixes[at], func(t wire.Tool) bool {
				_, prefix := item.Split(t.Tool)
				return item.Covers(prefix, literal)
			}) {
				out = append(out, mcp.Served{Name: uri, Definition: raw})
			}
		}
	}
	return out
}

// fetched is one list of a server: being asked for, or lately answered.
type fetched struct {
	done chan struct{}
	all  []mcp.Value // set before done is closed
	at   time.Time
}

// elements returns one list of a server. Many who ask at once are answered by one.
func (b *Bridge) elements(in *instance, what mcp.List) []mcp.Value {
	if !in.srv.Offers().Resources {
		return nil
	}
	b.mu.Lock()
	f := in.lists[what.Method]
	if f == nil || (!f.at.IsZero() && time.Since(f.at) > ListFresh) {
		f = &fetched{done: make(chan struct{})}
		in.lists[what.Method] = f
		b.run.Go(func() {
			all, _ := in.srv.Elements(time.Now().Add(in.bound), what) // one without the list has an empty one
			size := 0
			for _, v := range all {
				size += len(v)
			}
			if size > MaxOffered {
				all = nil
			}
			b.mu.Lock()
			f.all, f.at = all, time.Now()
			b.mu.Unlock()
			close(f.done)
			time.AfterFunc(ListFresh, func() { // it is not kept longer than it is good for
				b.mu.Lock()
				defer b.mu.Unlock()
				if in.lists[what.Method] == f {
					delete(in.lists, what.Method)
				}
			})
		})
	}
	b.mu.Unlock()
	<-f.done // bounded by in.bound
	return f.all
}

// routesNow returns where the served names lead, asked for anew where that is not known.
func (s *session) routesNow() (*routes, error) {
	release, ok := s.takeTurn()
	if !ok {
		return nil, io.EOF
	}
	defer release()
	s.b.mu.Lock()
	routes, generation := s.routes, s.generation
	s.b.mu.Unlock()
	if routes != nil { // whoever had the turn before has asked
		return routes, nil
	}
	view, err := s.b.askView(s.id)
	if err != nil {
		return nil, err
	}
	return s.remember(view, generation), nil
}

// remember keeps where the served names lead, unless the view was overtaken by a
// change. It is only a route: each call is admitted by what it leads to.
func (s *session) remember(view []wire.Tool, generation int) *routes {
	routes := newRoutes(view)
	s.b.mu.Lock()
	if s.generation == generation {
		s.routes = routes
	}
	s.b.mu.Unlock()
	return routes
}
