package workers

import (
	"errors"
	"fmt"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/artifact"
)

// PiecesPerTurn bounds the pieces of artifacts that are read from one bridge in a turn:
// each is a hundred times as long as an admission, which waits meanwhile.
const PiecesPerTurn = 4

// PieceWait is how long one artifact may take: what has begun holds room that others need.
const PieceWait = time.Minute

// arriving is the one artifact that a bridge is sending.
type arriving struct {
	first   wire.Piece
	project ids.Project
	data    []byte
	part    int   // the next
	lost    error // why its bytes are passed over
	ignored bool  // it is for a call that owes nothing any more
	since   time.Time
}

// Why what a bridge or a server does not send is not kept.
var whyNot = map[wire.Why]error{
	wire.WhyLarge:   fmt.Errorf("it has more than %d bytes", wire.MaxArtifact),
	wire.WhyMany:    fmt.Errorf("the result has more than %d; this stands for the others", wire.MaxArtifacts),
	wire.WhyBusy:    errors.New("too much was waiting in the bridge"),
	wire.WhyInvalid: errors.New("what the server sent is not base64"),
	wire.WhyURI:     errors.New("what names it is not the path of a file"),
}

// piece takes one part of one artifact. Parts come in their order and one artifact after
// the other; whatever else comes ends the bridge. Bytes for which there is no room are
// passed over, and the record says so.
func (w *Workers) piece(s *set, m wire.Piece) error {
	s.pieces++
	a := s.arriving
	if a == nil {
		if m.Part != 0 {
			return fmt.Errorf("part %d of an artifact comes first", m.Part)
		}
		project, ok, err := w.gate.Brings(s.key, m)
		if err != nil {
			return err
		}
		a = &arriving{first: m, project: project, ignored: !ok, since: time.Now()}
		a.first.Data = nil
		switch {
		case !ok:
		case m.Path != "": // its bytes are not the bridge's to send
		case m.Why != "":
			a.lost = whyNot[m.Why]
		default:
			if a.lost = w.cfg.Artifacts.Reserve(project, m.Size); a.lost == nil {
				a.data = make([]byte, 0, m.Size)
			}
		}
		s.arriving = a
	}
	if m.Call != a.first.Call || m.N != a.first.N || m.Part != a.part {
		return fmt.Errorf("part %d of artifact %d of call %s comes instead of part %d of artifact %d of call %s", m.Part, m.N, m.Call, a.part, a.first.N, a.first.Call)
	}
	a.part++
	holds := a.lost == nil && !a.ignored
	if holds {
		if int64(len(a.data)+len(m.Data)) > a.first.Size || m.Last && int64(len(a.data)+len(m.Data)) != a.first.Size {
			return fmt.Errorf("artifact %d of call %s has not the %d bytes that were announced", m.N, m.Call, a.first.Size)
		}
		a.data = append(a.data, m.Data...)
	}
	if !m.Last {
		return nil
	}
	s.arriving = nil
	if a.ignored {
		return nil
	}
	b := w.gate.Brought(a.first)
	if a.lost != nil {
		w.gate.Keep(b, artifact.Kept{Err: a.lost})
		return nil
	}
	if m.Path != "" {
		w.fetch(fetch{project: a.project, call: m.Call, of: b, path: m.Path, said: m.Type})
		return nil
	}
	w.cfg.Artifacts.Bring(a.project, a.data, a.first.Type, func(k artifact.Kept) {
		w.notKept(a.project, a.first.Call, k)
		w.Post(func() { w.gate.Keep(b, k) })
	})
	return nil
}

// notKept tells the operator of what has a file and could not be kept.
func (w *Workers) notKept(p ids.Project, c ids.Call, k artifact.Kept) {
	if k.Err != nil {
		w.log.Warn("an artifact was not kept", "project", p, "call", c, "reason", k.Err)
	}
}

// dropArriving gives up what a bridge that is gone has begun to send.
func (w *Workers) dropArriving(s *set) {
	if a := s.arriving; a != nil && a.lost == nil && !a.ignored {
		w.cfg.Artifacts.Release(a.project, a.first.Size)
	}
	s.arriving = nil
}
