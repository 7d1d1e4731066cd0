package bridge

import (
	"postern/bridge/wire"
	"postern/item"
)

// routes are where the names of one session lead, as of one view. It is only a route:
// each call is admitted by what it leads to.
type routes struct {
	byName   map[string]wire.Tool // by the key that a runtime means
	prefixes []wire.Tool          // of resources
}

func newRoutes(view []wire.Tool) *routes {
	r := &routes{byName: make(map[string]wire.Tool, len(view))}
	for _, t := range view {
		t.Definition = nil
		if kind, _ := item.Split(t.Name); kind == item.Resource {
			r.prefixes = append(r.prefixes, t)
		} else {
			r.byName[t.Name] = t
		}
	}
	return r
}

// reach tells whether any name leads to the place.
func (r *routes) reach(at place) bool {
	if r == nil {
		return false
	}
	for _, t := range r.byName {
		if placeOf(t) == at {
			return true
		}
	}
	for _, t := range r.prefixes {
		if placeOf(t) == at {
			return true
		}
	}
	return false
}

// find returns what a key leads to: of a resource, the connection whose longest prefix
// covers it. Nil routes know nothing.
func (r *routes) find(key string) (wire.Tool, bool) {
	if r == nil {
		return wire.Tool{}, false
	}
	kind, uri := item.Split(key)
	if kind != item.Resource {
		t, ok := r.byName[key]
		return t, ok
	}
	if item.CheckURI(uri) != nil {
		return wire.Tool{}, false
	}
	var best wire.Tool
	found := false
	for _, t := range r.prefixes {
		if _, prefix := item.Split(t.Tool); item.Covers(prefix, uri) && (!found || len(t.Tool) > len(best.Tool)) {
			best, found = t, true
		}
	}
	best.Tool, best.Name = key, key
	return best, found
}
