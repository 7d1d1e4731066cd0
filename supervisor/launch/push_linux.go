package launch

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// Room in the document that the authority is told, in bytes. What one change may fill
// leaves room for what must not be refused: a mark on everything that there may be,
// because ending is never refused for lack of room, and an access policy as long as it
// may become, because whoever edits the file has nobody to be refused by.
const (
	accessRoom = 1 << 20
	endRoom    = 4 << 20
)

// ends are the actions of root.sock that may use endRoom.
var ends = []api.Action{api.AccountDelete, api.ProjectDelete, api.ServerDelete, api.CredentialRevoke, api.CredentialRotate}

// encoded is what the authority would be told of f, unless that were too long for it. It
// comes before the record and the write: facts that cannot be told must not be durable.
//
// Preconditions: s.change is held.
func (s *Supervisor) encoded(f Facts, action api.Action) ([]byte, *api.Refusal) {
	return s.encodedBy(f, s.settings(), action)
}

// encodedBy is encoded with other settings.
func (s *Supervisor) encodedBy(f Facts, n settings, action api.Action) ([]byte, *api.Refusal) {
	s.mu.Lock()
	root := s.view(f, n)
	s.mu.Unlock()
	raw, err := order.EncodeRoot(root)
	if err != nil {
		return nil, api.Refuse(refusal.Internal, "%v.", err)
	}
	return raw, checkRoom(len(raw)-base64.StdEncoding.EncodedLen(len(root.Access.Document)), action)
}

// checkRoom refuses a change after which n bytes, without the access policy, were told.
func checkRoom(n int, action api.Action) *api.Refusal {
	most := order.MaxRoot - accessRoom
	if !slices.Contains(ends, action) {
		most -= endRoom
	}
	if n <= most {
		return nil
	}
	return api.Refuse(refusal.FactsFull, "The authority would be told %d bytes, at most %d have room.", n, most)
}

// commit makes f the facts: durable first, then memory, then the authority, which must
// say that it decides by them. One that does not is ended: whatever it had decided by
// the old facts ends with it, and its successor starts with the new ones. raw is f as
// encoded returned it. The answer names the calls that the change cut.
//
// Preconditions: s.change is held.
func (s *Supervisor) commit(ctx context.Context, f Facts, raw []byte, wait bool) (api.Cut, error) {
	if err := s.file.save(f); err != nil {
		return api.Cut{}, api.Refuse(refusal.StoreUnavailable, "The root facts could not be written: %v.", err)
	}
	s.mu.Lock()
	was := s.facts
	s.facts = f
	s.mu.Unlock()
	out := s.push(ctx, raw, wait)
	if !slices.Equal(was.Credentials, f.Credentials) {
		if err := s.secrets.sweep(f); err != nil {
			s.cfg.Log.Error("the file of a former secret stays", keyError, err)
		}
	}
	return out, nil
}

// What is said where nobody told which calls were open.
const (
	cutBefore = "The authority was not serving; every call that was open before has ended as unknown."
	cutEnded  = "The authority did not answer and was ended; every call that was open ended with it, as unknown."
)

// push tells the authority what root decides now, and waits until it says that it
// decides by it. Pushes have numbers of their own: the access policy changes without
// the facts.
//
// Preconditions: s.change is held.
func (s *Supervisor) push(ctx context.Context, raw []byte, wait bool) api.Cut {
	l, n := s.next()
	none := api.Cut{Stands: []api.OpenCall{}, Note: cutBefore}
	if l == nil {
		return none
	}
	if err := l.a.sendFacts(raw, n); err != nil {
		return none // it is being replaced; the next one gets these facts first
	}
	if !wait || !l.a.until(ctx, 0, func(a *authority) bool { return a.ready }) {
		return none // before it is ready it decides nothing
	}
	if !l.a.until(ctx, ackWait, func(a *authority) bool { return a.acked >= n }) {
		l.a.kill("it did not take new facts")
		none.Note = cutEnded
		return none
	}
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	return cutOf(l.a.cut)
}

// next is the number of the next push, and to whom it goes.
func (s *Supervisor) next() (*life, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushed++
	return s.life, s.pushed
}

// told is what the authority is told now.
func (s *Supervisor) told() ([]byte, error) {
	s.mu.Lock()
	root := s.view(s.facts, s.live)
	s.mu.Unlock()
	return order.EncodeRoot(root)
}

// view is what the authority is told.
//
// Preconditions: s.mu is held.
func (s *Supervisor) view(f Facts, n settings) order.Root {
	r := f.root(n.hosts, s.cfg.UIDs, n.profiles)
	r.Keep, r.Sessions, r.Artifacts = n.keep, n.sessions, n.artifact
	r.MetricsUID = n.metrics
	r.Access = s.access
	r.Audit = order.Audit{MaxBytes: n.audit.MaxBytes, Keep: n.audit.Keep}
	return r
}

// cutOf is what the authority says that a change cut, which only whoever made the change
// is shown. What it says is checked: it is no program of root's.
func cutOf(a order.FactsAck) api.Cut {
	out := api.Cut{Stands: []api.OpenCall{}, More: max(0, a.More)}
	drains := false
	for _, c := range a.Stands[:min(len(a.Stands), order.MaxStands)] {
		if _, err := ids.Parse[ids.Call](string(c.Call)); err != nil {
			continue
		}
		state := api.StateAdmitted
		if c.Drains {
			state, drains = api.StateDraining, true
		}
		tool := strings.ToValidUTF8(c.Tool[:min(len(c.Tool), order.MaxStandTool)], "")
		out.Stands = append(out.Stands, api.OpenCall{Call: string(c.Call), Tool: tool, AgeMs: c.AgeMs, CancelSent: c.CancelSent, State: state})
	}
	if len(out.Stands) > 0 {
		out.Note = api.Effects
	}
	if drains {
		out.Note += " Those that drain may finish at the former revision, within 30 seconds."
	}
	return out
}

// logCut tells what a change cut that nobody waits for: that of a file.
func (s *Supervisor) logCut(file string, c api.Cut) {
	if len(c.Stands) == 0 {
		return
	}
	names := make([]string, 0, maxLogged)
	for _, o := range c.Stands[:min(len(c.Stands), maxLogged)] {
		names = append(names, o.Call)
	}
	s.cfg.Log.Warn("calls were admitted before a change of a file, and their effects stand", keyFile, file, keyCalls, strings.Join(names, " "), keyMore, len(c.Stands)-len(names)+c.More)
}

// maxLogged bounds the calls that one line of the log names.
const maxLogged = 10
