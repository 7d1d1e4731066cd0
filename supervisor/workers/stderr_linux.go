package workers

import (
	"context"
	"errors"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// Words is what one instance of a tool server wrote to its stderr last, or why that is
// not known.
type Words struct {
	Connection ids.Connection
	Task       ids.Task // whose alone it is, of a server of scope task
	Instance   ids.Jail
	Ended      bool
	Reason     string // how an ended one ended, where that is known
	At         uint64 // how many bytes it had written before Data
	Data       []byte // as it wrote them: hostile
	Unanswered string // why there is nothing; no other field but the bridge's is set then
}

// reading is one question to one bridge. Others who ask meanwhile get its answer, so that
// a bridge never has more than one of them to read.
type reading struct {
	seq   uint64
	until time.Time
	words []Words
	bytes int
	then  []func([]Words)
}

func (r *reading) done(why string) {
	for _, then := range r.then {
		if why != "" {
			then([]Words{{Unanswered: why}})
		} else {
			then(r.words)
		}
	}
	r.then = nil
}

// tick gives up what was not answered in time; the answer may still come, and is then
// nobody's.
func (r *reading) tick(now time.Time) {
	if r != nil && now.After(r.until) {
		r.done("its bridge does not answer")
	}
}

// Stderr asks the bridges of a project what their servers wrote to stderr. One that does
// not answer in StderrWait is said so.
func (w *Workers) Stderr(ctx context.Context, p ids.Project) ([]Words, error) {
	parts := make(chan []Words, MaxSets)
	asked := 0
	ready := make(chan int, 1)
	if err := w.Do(ctx, func() {
		for _, s := range w.sets {
			if s.key.Project == p && s.ready && !s.ended && s.probe == nil {
				asked++
				w.readStderr(s, func(words []Words) { parts <- words })
			}
		}
		ready <- asked
	}); err != nil {
		return nil, err
	}
	var out []Words
	for n := <-ready; n > 0; n-- {
		select {
		case words := <-parts:
			out = append(out, words...)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.over:
			return nil, refusal.Draining
		}
	}
	return out, nil
}

func (w *Workers) readStderr(s *set, then func([]Words)) {
	if s.reading != nil {
		if s.reading.then == nil { // it was given up, and its answer has not come
			then([]Words{{Unanswered: "its bridge has not answered an earlier question"}})
			return
		}
		s.reading.then = append(s.reading.then, then)
		return
	}
	s.read++
	s.reading = &reading{seq: s.read, until: time.Now().Add(StderrWait), then: []func([]Words){then}}
	w.tell(s, wire.ReadStderr{Seq: s.read})
}

var errStderr = errors.New("stderr that was not asked for, or too much of it")

// stderr takes one piece. What a bridge names has to be its own: the instance of a place
// that runs, or the one before it.
func (w *Workers) stderr(s *set, m wire.Stderr) error {
	r := s.reading
	if r == nil || m.Seq != r.seq {
		return errStderr
	}
	if m.Last {
		s.reading = nil
		r.done("")
		return nil
	}
	if r.bytes += len(m.Data); r.bytes > wire.MaxStderr || len(r.words) > MaxWords {
		return errStderr
	}
	if n := len(r.words); n > 0 && r.words[n-1].Instance == m.Instance && m.At == r.words[n-1].At+uint64(len(r.words[n-1].Data)) {
		r.words[n-1].Data = append(r.words[n-1].Data, m.Data...)
		return nil
	}
	for _, inst := range s.insts {
		if inst.at.Conn != m.Connection || w.gate.Slot(inst.at) != m.Slot {
			continue
		}
		switch m.Instance {
		case inst.jail:
			r.words = append(r.words, Words{Connection: m.Connection, Task: inst.at.Task, Instance: m.Instance, At: m.At, Data: m.Data})
		case inst.was:
			r.words = append(r.words, Words{Connection: m.Connection, Task: inst.at.Task, Instance: m.Instance, Ended: true, Reason: inst.how, At: m.At, Data: m.Data})
		}
	}
	return nil // also of one that has been forgotten meanwhile
}
