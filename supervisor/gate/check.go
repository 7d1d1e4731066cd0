package gate

import (
	"encoding/hex"
	"fmt"
	"slices"

	"postern/bridge/wire"
	"postern/ids"
	"postern/policy"
	"postern/policy/access"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// Native is a question about a tool that a runtime has by itself. It runs where the
// runtime runs, so nothing but the runtime's own hook holds it back.
type Native struct {
	Tool      string
	Paths     []string // the path arguments, as the runtime reads them: the host's, or relative to the workspace
	Unjudged  bool     // they could not be read out of the arguments
	RequestID string
	Digest    string // of the arguments, in hex
	Size      int64
}

// Checked answers a Native. With Ask nothing is decided: the paths must be looked at,
// and Check called again.
type Checked struct {
	Verdict policy.Verdict
	Reasons []Reason // of what is not allowed, every rule that was asked and why
	Ask     *Ask
}

// checkedNote stands in the record of what was allowed: the call is the runtime's.
const checkedNote = "allowed to the runtime, which makes the call itself; what became of it is not known here"

// native gathers every factor of a runtime's own tool into g.facts. There is no
// connection, and so no revision, no grant, no pin and no credential to ask about.
func (g *Gate) native(t *registry.Task, name string) registry.Tool {
	g.facts = policy.Facts{Session: true, Recordable: true}
	f := &g.facts
	g.reg.Facts(f, t, t.Project, "", "")
	n, source, known := class.OfNative(name)
	if !known {
		return registry.Tool{}
	}
	k := registry.Tool{Classes: n.Classes, Source: source, Tier: class.TierOf(g.modeMark(t, name), class.Unmarked, n.Classes, class.Hints{})}
	f.Connection, f.Granted, f.Pin, f.Credential, f.Limits = policy.ConnectionEnabled, true, policy.PinMatches, true, policy.WithinLimits
	f.Accepted, f.Current, f.Running = "-", "-", "-"
	f.Paths, f.Tier = policy.PathsInside, k.Tier
	// The runtime's own tools write where other people's tasks of the project do.
	f.Apart = t.Principal == access.Local(t.Account) || !n.Classes.Has(class.FilesystemWrite) && !n.Classes.Has(class.ProcessExecute)
	f.Profile = policy.ProfileAnswer(g.reg.Root().Projects[t.Project].ExecutionProfile, n.Classes, true) // the runtime may spawn
	g.reach(g.Resolved(t), t.Mode, "", name, n.Classes)
	return k
}

// modeMark is what the operator says of a native tool's tier: a mode of their own that
// names it takes it for reversible. The built-in modes mark nothing.
func (g *Gate) modeMark(t *registry.Task, name string) class.Tier {
	if policy.BuiltinMode(t.Mode) {
		return class.Unmarked
	}
	if p := g.modes().Policy(t.Mode); p != nil && slices.Contains(p.Allowed, name) {
		return class.Reversible
	}
	return class.Unmarked
}

// notNative are the rules that there is nothing to ask of a native tool.
var notNative = []string{"session", "connection", "revision", "grant", "pin", "credential", "limits"}

// ExplainNative is Explain for a runtime's own tool.
func (g *Gate) ExplainNative(t *registry.Task, name string) Explained {
	k := g.native(t, name)
	g.facts.Recordable = g.trouble == ""
	return Explained{Tool: name, Verdict: policy.Decide(&g.facts), Known: k, Reasons: g.reasonsNative(t, name, &k)}
}

// reasonsNative is what every rule says by g.facts of a native tool.
func (g *Gate) reasonsNative(t *registry.Task, name string, k *registry.Tool) (out []Reason) {
	s := &session{task: t, set: Set{t.Project, onlySet}}
	for _, a := range policy.Explain(&g.facts) {
		r := Reason{Answered: a}
		for _, no := range notNative {
			if a.Rule == no && a.Code == "" {
				r.Asked = false
			}
		}
		if r.Asked {
			r.Read, r.From = g.readNative(r, s, t, name, k)
		}
		out = append(out, r)
	}
	return out
}

func (g *Gate) readNative(r Reason, s *session, t *registry.Task, name string, k *registry.Tool) (read, from string) {
	const table = "the table of runtimes' own tools"
	switch r.Rule {
	case "connection":
		return "no runtime's own tool has this name", table
	case "execution profile":
		p := g.reg.Root().Projects[t.Project]
		return p.ExecutionProfile + "; " + classText(k), "project " + p.Label + "; " + table
	case "approval":
		if k.Tier == class.Reversible && g.modeMark(t, name) == class.Reversible {
			return "tier reversible", "mode " + t.Mode + " names it"
		}
		return "tier " + k.Tier.String() + "; " + classText(k), table
	case "shared directory":
		return "tasks of channels may not write where other people's tasks do; " + classText(k), table
	case "path arguments":
		if n, _, _ := class.OfNative(name); len(n.Paths) == 0 {
			return "the tool has no path arguments", table
		}
		return "the path arguments of each call must lie beneath the workspace", "the call"
	}
	return g.read(r.Rule, s, t, Named{Tool: name}, k)
}

// Check decides whether a runtime may use a tool of its own, by the rules of a call.
// It is recorded like one: denied, or completed at once, for no end of it will be
// told. What is allowed is durable before it is answered.
func (g *Gate) Check(t *registry.Task, q Native, seen Seen) Checked {
	k := g.native(t, q.Tool)
	if ask := g.nativePaths(t, q, seen); ask != nil {
		return Checked{Ask: ask}
	}
	v := g.verdict(seen)
	rec := store.Call{ID: ids.New[ids.Call](g.now(), g.rand()), At: g.now().UnixNano(), Account: t.Account, Host: t.Host, Project: t.Project, Task: t.ID, Principal: t.Principal, Mode: t.Mode,
		Tool: activity.Item(q.Tool), Classes: uint16(k.Classes), RequestID: activity.Shown(q.RequestID, activity.MaxRequestID), ArgsSize: q.Size,
		Policy: "native tier=" + k.Tier.String()}
	hex.Decode(rec.ArgsDigest[:], []byte(q.Digest))
	if !v.Allow {
		v.Code = told(v)
		rec.ID, rec.Code = "", v.Code
		rec.Policy += " " + g.denies()
		g.folder.DenyAs(string(t.ID), g.ledger, &rec)
		out := Checked{Verdict: v, Reasons: g.reasonsNative(t, q.Tool, &k)}
		for i, r := range out.Reasons {
			if r.Code == refusal.PathOutside {
				out.Reasons[i].Read = pathsText(q, seen)
			}
		}
		return out
	}
	rec.Reason = checkedNote
	g.ledger.Admit(&rec)
	g.ledger.End(rec.Seq, store.Outcome{State: store.Completed, At: rec.At, Reason: checkedNote})
	if err := g.flush(); err != nil {
		return Checked{Verdict: policy.Verdict{Code: refusal.StoreUnavailable}}
	}
	return Checked{Verdict: v}
}

// pathsText names the paths of a question, escaped and bounded, for whoever may have the
// task explained. No record holds them.
func pathsText(q Native, seen Seen) string {
	if q.Unjudged || len(q.Paths) == 0 {
		return "no path could be read out of the arguments"
	}
	if seen.Asked && seen.Which >= 0 && seen.Which < len(q.Paths) && seen.Why != "" {
		return activity.Shown(fmt.Sprintf("path %d of %d, \"%s\": %s", seen.Which+1, len(q.Paths), q.Paths[seen.Which], seen.Why), activity.MaxReason)
	}
	text := fmt.Sprintf("%d paths, of which one or more lie outside:", len(q.Paths))
	for _, p := range q.Paths {
		text += ` "` + p + `"` // Shown escapes it
		if len(text) > activity.MaxReason {
			break
		}
	}
	return activity.Shown(text, activity.MaxReason)
}

// nativePaths judges the path arguments of a native tool as paths judges those of a
// server's: asked for only where every other rule allows. A tool that has path
// arguments is refused where none of them is told.
func (g *Gate) nativePaths(t *registry.Task, q Native, seen Seen) *Ask {
	native, _, _ := class.OfNative(q.Tool)
	switch {
	case len(native.Paths) == 0 && len(q.Paths) == 0:
		return nil
	case q.Unjudged || len(q.Paths) == 0 || !wire.Judgeable(q.Paths):
		g.facts.Paths = policy.PathsOutside
		return nil
	}
	return g.look(seen, func() *Ask { return &Ask{Project: t.Project, Paths: q.Paths, OfHost: true} })
}

// MaxNativePaths bounds the path arguments of one check. What they may have in bytes
// is bounded as for a call of a server.
const MaxNativePaths = wire.MaxPaths
