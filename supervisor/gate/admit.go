package gate

import (
	"encoding/hex"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/policy"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// Decision answers one Admit. Code "" admits; it may be told after Commit. With Ask
// nothing is decided: the paths must be looked at, and Admit called again.
type Decision struct {
	Call  ids.Call
	Code  refusal.Code
	Limit time.Duration
	Ask   *Ask
}

// question gathers every factor of a call into g.facts. tool is the server's
// name; running is the revision of the instance that would be called, or the
// accepted one where none runs yet.
func (g *Gate) question(s *session, conn ids.Connection, tool string, running ids.Revision) registry.Tool {
	g.facts = policy.Facts{Session: !s.ended, Recordable: true}
	f := &g.facts
	// The task is read anew: what the session holds is where it was when it bound.
	task := g.taskOf(s)
	k, own := g.reg.Facts(f, task, s.set.Project, conn, tool)
	if own && k.Pin == nil && k.Grant == nil {
		// The server of this connection has no such tool: the name does not exist.
		f.Connection = policy.NoConnection
		return k
	}
	if !own || task == nil {
		return k
	}
	at := s.placeIn(conn, k.Revision)
	g.drifted(&k, placeKey{s.set, at}, tool)
	if f.Running = running; running == "" {
		f.Running = k.Connected.Accepted
	}
	g.compose(s, task, &k, tool)
	f.Paths = policy.PathsInside // where the tool has any, paths judges them
	f.Limits = g.bounded(s.open >= MaxPerSession || s.at[at] >= perSessionOf(k.Revision) || g.perPlace[placeKey{s.set, at}] >= callsOf(k.Revision))
	return k
}

// Admit decides one call of a bridge and, where it may be made, adds its record
// to the batch. running is the revision of the ready instance the bridge named,
// "" where there is none; seen is what was found of its paths. What is refused is
// recorded as denied.
func (g *Gate) Admit(set Set, m wire.Admit, running ids.Revision, seen Seen) Decision {
	s := g.session(set, m.Session)
	if s == nil {
		return Decision{Code: refusal.SessionEnded}
	}
	conn, tool := m.Connection, m.Tool
	if conn == "" {
		conn, tool = g.resolve(s, m.Tool)
	}
	if conn == "" {
		g.deny(s, store.Call{Tool: m.Tool, RequestID: m.RequestID, ArgsSize: m.Size, Code: refusal.ToolUnknown})
		return Decision{Code: refusal.ToolUnknown}
	}
	k := g.question(s, conn, tool, running)
	if running == "" && g.facts.Connection == policy.ConnectionEnabled {
		// Nothing runs that the call could go to; the bridge asks for a start first.
		g.facts.Running = ""
	}
	if ask := g.paths(s, &k, tool, m.Paths, seen); ask != nil {
		return Decision{Ask: ask}
	}
	v := g.verdict(seen)
	if v.Allow && m.Connection == "" {
		return Decision{Code: refusal.StaleSelector}
	}
	if !v.Allow {
		code := told(v)
		if code == refusal.ServerRevisionChanged && running == "" && g.facts.Accepted == g.facts.Current {
			switch {
			case len(v.Also) > 0:
				code = v.Also[0]
			case m.Instance == "":
				// Only the instance is missing: the bridge asked by a view from before the
				// tool could be called. It looks again; nothing was refused to the runtime.
				return Decision{Code: refusal.StaleSelector}
			default:
				code = refusal.ServerUnavailable
			}
		}
		rec := g.record(&k, conn, tool, m.RequestID, m.Digest, m.Size, code)
		continues(&rec, m.Continues)
		if code == refusal.PathOutside {
			rec.Reason = pathReason(tool, m.Paths, seen)
		}
		g.arguments(s, &k, tool, m, &rec)
		g.deny(s, rec)
		return Decision{Code: code}
	}
	now := g.now()
	limit := k.Revision.Call
	if limit <= 0 {
		limit = DefaultCall
	}
	c := &call{rec: g.record(&k, conn, tool, m.RequestID, m.Digest, m.Size, ""), session: s, set: set, place: s.placeIn(conn, k.Revision), jail: m.Instance, deadline: now.Add(limit), limit: limit, most: now.Add(mostOf(k.Revision, limit))}
	continues(&c.rec, m.Continues)
	g.arguments(s, &k, tool, m, &c.rec)
	g.sign(s, &c.rec)
	c.rec.ID = ids.New[ids.Call](now, g.rand())
	g.open[c.rec.ID] = c
	s.open++
	s.at[c.place]++
	g.perPlace[placeKey{set, c.place}]++
	g.admitted = append(g.admitted, c)
	g.ledger.Admit(&c.rec)
	g.counts.Admitted++
	return Decision{Call: c.rec.ID, Limit: limit}
}

// mostOf is how long a call may take with all its progress and all its questions.
func mostOf(r *registry.RootRevision, limit time.Duration) time.Duration {
	if r.CallMost > 0 {
		return max(limit, r.CallMost)
	}
	return max(limit, MaxCall)
}

// callsOf is how many calls one instance of a revision may have open.
func callsOf(r *registry.RootRevision) int {
	if r != nil && r.Calls > 0 {
		return min(r.Calls, MaxPerConnection)
	}
	return MaxPerConnection
}

// perSessionOf is how many calls one session may have open at one instance of a revision.
func perSessionOf(r *registry.RootRevision) int {
	if r != nil && r.PerSession > 0 {
		return min(r.PerSession, MaxPerSession)
	}
	return MaxPerSession
}

// Bounds are what the profile of a server's revision sets for its bridge.
func (g *Gate) Bounds(s ids.Server, rev ids.Revision) wire.Bounds {
	r := g.reg.Root().Servers[s].Revisions[rev]
	if r == nil {
		return wire.Bounds{}
	}
	return wire.Bounds{Line: r.Line, Depth: r.Depth, Blocks: r.Blocks, Stderr: r.Stderr, Pages: r.Pages, Queue: r.Queue,
		Items: r.Items, Definition: r.Definition, Definitions: r.Definitions, LineWaitMs: r.LineWait.Milliseconds()}
}

// Era is what the probe of a revision found that it speaks, "" where that is not known.
func (g *Gate) Era(rev ids.Revision) string {
	if cat := g.reg.Catalogue(rev); cat != nil {
		return cat.Era
	}
	return ""
}

// SessionBounds are what the configuration sets for each runtime.
func (g *Gate) SessionBounds() wire.SessionBounds {
	s := g.reg.Root().Sessions
	return wire.SessionBounds{Requests: s.Requests, Line: s.Line, LineWaitMs: s.LineWait.Milliseconds(), Depth: s.Depth, Queue: s.Queue}
}

// Plan is how a tool server is to be started.
type Plan struct {
	Server                  ids.Server
	Revision                ids.Revision
	At                      Place
	StartMs, IdleMs, StopMs int64
}

// MayStart asks what Admit would ask, as if the accepted revision ran, so that a
// refused call starts no server. With an Ask nothing is decided, as in Decision.
func (g *Gate) MayStart(set Set, m wire.Start, seen Seen) (Plan, *Ask, refusal.Code) {
	s := g.session(set, m.Session)
	if s == nil {
		return Plan{}, nil, refusal.SessionEnded
	}
	k := g.question(s, m.Connection, m.Tool, "")
	if ask := g.paths(s, &k, m.Tool, m.Paths, seen); ask != nil {
		return Plan{}, ask, ""
	}
	if v := g.verdict(seen); !v.Allow {
		code := told(v)
		rec := g.record(&k, m.Connection, m.Tool, m.RequestID, "", 0, code)
		if code == refusal.PathOutside {
			rec.Reason = pathReason(m.Tool, m.Paths, seen)
		}
		g.deny(s, rec)
		return Plan{}, nil, code
	}
	r := k.Revision
	return Plan{Server: k.Server.ID, Revision: r.ID, At: s.placeIn(m.Connection, r), StartMs: r.Start.Milliseconds(), IdleMs: r.Idle.Milliseconds(), StopMs: r.Stop.Milliseconds()}, nil, ""
}

func (g *Gate) session(set Set, id ids.Session) *session {
	if s := g.sessions[id]; s != nil && s.set == set {
		return s
	}
	return nil
}

// record fills in what a record says of a call; sign adds whose it is. k may be of a foreign connection,
// and then says nothing.
func (g *Gate) record(k *registry.Tool, conn ids.Connection, tool, requestID, digest string, size int64, code refusal.Code) store.Call {
	c := store.Call{Tool: tool, RequestID: activity.Shown(requestID, activity.MaxRequestID), ArgsSize: size, Code: code}
	hex.Decode(c.ArgsDigest[:], []byte(digest))
	if k.Connected != nil {
		c.Connection, c.Revision, c.Classes = conn, k.Connected.Accepted, uint16(k.Classes)
		c.Policy = "tier=" + k.Tier.String()
		if k.Grant != nil {
			c.Policy += " grant=" + string(k.Grant.ID)
		}
		if code != "" {
			c.Policy += " " + g.denies()
		}
	}
	return c
}

// NotStarted records a call that was refused for want of its server, with the reason.
// The reason may hold a server's own words.
func (g *Gate) NotStarted(set Set, m wire.Start, code refusal.Code, reason string) {
	s := g.session(set, m.Session)
	if s == nil {
		return
	}
	k := g.question(s, m.Connection, m.Tool, "")
	rec := g.record(&k, m.Connection, m.Tool, m.RequestID, "", 0, code)
	rec.Reason = activity.Clean(reason, activity.MaxReason)
	g.deny(s, rec)
}

// continues links a record to the call whose question it answers.
func continues(rec *store.Call, first ids.Call) {
	if first != "" {
		rec.Policy += " " + activity.Continuing(first)
	}
}

// resolve finds the tool that a runtime means by a name its bridge's view does not
// have, among the project's own connections; "" where there is none.
func (g *Gate) resolve(s *session, name string) (ids.Connection, string) {
	v := g.reg.View(s.set.Project)
	if kind, uri := item.Split(name); kind == item.Resource {
		if gr := g.reg.Covering(s.set.Project, uri); gr != nil {
			return gr.Connection, name
		}
		return "", ""
	}
	if gr := v.Served[name]; gr != nil {
		return gr.Connection, gr.Tool
	}
	for _, e := range g.entries(s) {
		if e.name == name {
			return e.conn, e.tool
		}
	}
	return "", ""
}
