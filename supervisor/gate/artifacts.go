package gate

import (
	"fmt"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/activity"
	"postern/supervisor/artifact"
	"postern/supervisor/store"
)

// Bounds of artifacts that calls have ended with and that are still to come.
const (
	OweWait   = time.Minute      // after the outcome, for all of them
	MaxOwing  = 4096             // calls that owe some; what a further one brings is not kept
	dropEvery = 10 * time.Second // between two looks at what is too old
)

// Bounds of what an artifact's row says, in bytes, escaped.
const maxArtifactName = 256

// owing is a call that has ended and whose bridge owes its artifacts.
type owing struct {
	set   Set
	rec   store.Call
	jail  ids.Jail // its server's
	next  int      // the number of the one that comes next
	count int
	until time.Time
}

// owes notes that artifacts of a call will come.
func (g *Gate) owes(c *call, count int) {
	if count > 0 && g.keeper != nil && len(g.owing) < MaxOwing {
		g.owing[c.rec.ID] = &owing{set: c.set, rec: c.rec, jail: c.jail, count: count, until: g.now().Add(OweWait)}
	}
}

// forgive drops what a bridge that is gone will not bring.
func (g *Gate) forgive(set Set) {
	for id, o := range g.owing {
		if o.set == set {
			delete(g.owing, id)
		}
	}
}

// Brings takes the beginning of one artifact of a call. ok is false where the call owes
// none any more, which may be an honest bridge's being late. The next one must be the
// next in number, and the last one comes once: anything else is a broken protocol.
func (g *Gate) Brings(set Set, m wire.Piece) (p ids.Project, ok bool, err error) {
	o := g.owing[m.Call]
	if o == nil {
		return "", false, nil
	}
	if o.set != set {
		return "", false, fmt.Errorf("call %s is another bridge's", m.Call)
	}
	if m.Part != 0 || m.N != o.next {
		return "", false, fmt.Errorf("part %d of artifact %d of call %s comes instead of artifact %d", m.Part, m.N, m.Call, o.next)
	}
	o.next++
	return o.rec.Project, true, nil
}

// Brought says for which call the artifact that was begun last is: what Keep needs when
// its bytes are durable, which may be after the call's last one came.
type Brought struct {
	Jail ids.Jail // of the server whose result it is
	Size int64

	rec  store.Call
	name string
}

// Brought ends the bringing of one artifact; with the last one the call owes no more.
func (g *Gate) Brought(first wire.Piece) Brought {
	o := g.owing[first.Call]
	if o == nil {
		return Brought{}
	}
	if o.next >= o.count {
		delete(g.owing, first.Call)
	}
	return Brought{Jail: o.jail, Size: first.Size, rec: o.rec, name: activity.Clean(first.Name, maxArtifactName)}
}

// Keep writes the row of an artifact: of its durable bytes or, with an error, of why
// there are none.
func (g *Gate) Keep(b Brought, k artifact.Kept) {
	if b.rec.ID == "" || k.Err != nil && !g.keeper.Note(b.rec.Project) {
		return
	}
	now := g.now()
	row := store.Artifact{ID: ids.New[ids.Artifact](now, g.rand()), At: now.UnixNano(), Account: b.rec.Account, Project: b.rec.Project, Task: b.rec.Task,
		Call: b.rec.ID, Seq: b.rec.Seq, Digest: k.Digest, Size: b.Size, Type: k.Type, Name: b.name}
	if k.Err != nil {
		row.Digest = artifact.Digest{}
		row.Missing = activity.Clean("artifact not kept: "+k.Err.Error(), activity.MaxReason)
	}
	g.ledger.Artifact(row)
}

// tendArtifacts removes a piece of the artifacts that are too old or too much.
func (g *Gate) tendArtifacts(now time.Time) error {
	root := g.reg.Root()
	if g.keeper == nil || root == nil {
		return nil
	}
	keep := root.Artifacts
	g.keeper.Limit(artifact.Limits{Project: keep.Project, Total: keep.Bytes})
	tooMuch := g.keeper.Over()
	if !tooMuch && (keep.Age <= 0 || now.Before(g.dropNext) && now.After(g.dropNext.Add(-2*dropEvery))) {
		return nil
	}
	gone, err := g.store.DropArtifacts(now.Add(-keep.Age), tooMuch)
	if err != nil {
		return err
	}
	for _, h := range gone {
		g.keeper.Drop(artifact.Held(h))
	}
	if len(gone) == 0 {
		g.dropNext = now.Add(dropEvery)
	}
	g.behind = g.behind || len(gone) > 0
	return nil
}
