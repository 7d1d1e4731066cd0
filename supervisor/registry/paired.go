package registry

import (
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/store"
)

// MaxPaired bounds the people who are paired, of all channels together.
const MaxPaired = 4096

// person is an identity of a channel in its one spelling.
type person struct{ channel, identity string }

// Paired tells whether a person used a pairing code and was not unpaired since. What
// that is worth is the access policy's to say. In a group nobody is.
func (r *Registry) Paired(who access.Principal) bool {
	if who.Group != "" {
		return false
	}
	_, ok := r.paired[person{who.Channel, who.ID}]
	return ok
}

// PairedRow returns what is kept of a paired person.
func (r *Registry) PairedRow(who access.Principal) (Paired, bool) {
	row, ok := r.paired[person{who.Channel, who.ID}]
	return row, ok && who.Group == ""
}

// AllPaired returns everybody who is paired, by channel and identity.
func (r *Registry) AllPaired() []Paired {
	out := make([]Paired, 0, len(r.paired))
	for _, row := range r.paired {
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Paired) int {
		return strings.Compare(a.Channel+":"+a.Identity, b.Channel+":"+b.Identity)
	})
	return out
}

// Pair makes a person paired who used a code through a host. Whether the code was good,
// and what the policy says of the person, is the caller's to ask.
func (r *Registry) Pair(who access.Principal, host string, now time.Time) (Change, error) {
	switch {
	case who.Group != "" || who.Channel == access.Channel:
		return Change{}, refuse(refusal.BadRequest, "people of a channel are paired; no groups, and nobody of channel %s", access.Channel)
	case r.Paired(who):
		return Change{}, refuse(refusal.AlreadyExists, "the identity is paired already")
	case len(r.paired) >= MaxPaired:
		return Change{}, refuse(refusal.Busy, "at most %d people are paired at a time", MaxPaired)
	}
	return Change{Put: []store.Row{Paired{Channel: who.Channel, Identity: who.ID, Host: host, At: now.UnixMilli()}}}, nil
}

// Unpair takes that back.
func (r *Registry) Unpair(who access.Principal) (Change, error) {
	row, ok := r.PairedRow(who)
	if !ok {
		return Change{}, refuse(refusal.NotFound, "the identity is not paired")
	}
	return Change{Delete: []store.Row{row}}, nil
}

// ProjectsFor lists the projects in which somebody has a live task.
func (r *Registry) ProjectsFor(who access.Principal) []ids.Project {
	var out []ids.Project
	name := who.String()
	for p, tasks := range r.live {
		for _, t := range tasks {
			if t.Principal == name {
				out = append(out, p)
				break
			}
		}
	}
	return out
}
