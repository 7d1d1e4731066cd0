package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"postern/bridge/mcp"
	"postern/bridge/upstream"
	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
)

// place is where a session's calls of a connection go: the authority gives one
// instance to each.
type place struct {
	conn ids.Connection
	slot uint64
}

func placeOf(t wire.Tool) place { return place{t.Connection, t.Slot} }

// LastWords bounds the wait for the stderr of a server that has closed its stdout.
const LastWords = 200 * time.Millisecond

// maxStderrShown bounds the end of a server's stderr in a catalogue that failed; the
// whole reason has wire.MaxText.
const maxStderrShown = 800

// instance is one tool server that the authority handed over.
type instance struct {
	place
	id    ids.Jail
	srv   *upstream.Server
	bound time.Duration // of the handshake and of each list
	ready chan struct{} // closed when the handshake is over, well or not
	gone  chan struct{} // closed when the server is
	again chan struct{} // holds one while the server's list should be read again
	era   string        // what its revision spoke before, if that is known

	counting atomic.Bool // Skipped will be told
	modern   bool        // it was started for a modern runtime; set before prepare

	// Guarded by Bridge.mu.
	failed refusal.Code // set before ready is closed
	calls  int          // asked about or running
	lists  map[string]*fetched
	level  mcp.Level // of log messages that the server was told to write
}

// start is one Start that has no answer. Only one per place is on its way.
type start struct {
	seq    uint64
	m      wire.Start
	modern bool // for a modern runtime
	done   chan struct{}
	code   refusal.Code // set before done is closed; empty when it started
}

func (in *instance) isReady() bool {
	if in == nil {
		return false
	}
	select {
	case <-in.ready:
		return in.failed == "" // written before ready was closed
	default:
		return false
	}
}

// instanceFor returns the running server of t's place, started for c if need be.
// Recorded tells that the refusal came from the authority.
func (b *Bridge) instanceFor(c *call, t wire.Tool) (in *instance, code refusal.Code, recorded bool) {
	timer := time.NewTimer(StartWait)
	defer timer.Stop()
	for {
		b.mu.Lock()
		if c.gone || b.over {
			b.mu.Unlock()
			return nil, refusal.CallCancelled, true
		}
		if in := b.instances[placeOf(t)]; in != nil {
			b.mu.Unlock()
			select {
			case <-in.ready:
				return in, in.failed, false
			case <-timer.C:
				return nil, refusal.ServerUnavailable, false
			}
		}
		if len(b.instances)+len(b.starts) >= MaxInstances && b.starts[placeOf(t)] == nil {
			b.mu.Unlock()
			return nil, refusal.LimitStarts, false
		}
		st, own := b.starts[placeOf(t)], false
		if st == nil {
			st, own = &start{seq: b.nextSeqLocked(), done: make(chan struct{}), modern: c.peer.Modern || c.done != nil}, true // only modern runtimes have streams
			st.m = wire.Start{Seq: st.seq, Session: c.s.id, Connection: t.Connection, Slot: t.Slot, Tool: t.Tool, RequestID: requestID(c.id), Paths: c.paths}
			b.starts[placeOf(t)] = st
		}
		b.mu.Unlock()
		if own {
			b.ask(question{m: st.m})
		}
		select {
		case <-st.done:
			// A no to another call says nothing about this one, which asks for itself.
			if own && st.code != "" {
				return nil, st.code, true
			}
		case <-timer.C:
			return nil, refusal.ServerUnavailable, false
		}
	}
}

func (b *Bridge) notStarted(m wire.NotStarted) {
	b.mu.Lock()
	var next wire.Up
	// One that was asked again, because the server ended meanwhile, may be answered twice.
	at := place{m.Connection, m.Slot}
	if st := b.starts[at]; st != nil && st.seq == m.Seq {
		next = b.answeredLocked(false)
		delete(b.starts, at)
		if st.code = m.Code; st.code == "" {
			st.code = refusal.Internal
		}
		close(st.done)
	}
	b.mu.Unlock()
	b.tellNext(next)
}

func (b *Bridge) newInstance(m wire.Started, fds []int) *instance {
	in := &instance{
		place: place{m.Connection, m.Slot}, id: m.Instance,
		bound: max(time.Duration(m.StartMs)*time.Millisecond, handshakeLeast),
		ready: make(chan struct{}), gone: make(chan struct{}), again: make(chan struct{}, 1),
		era: m.Era, lists: map[string]*fetched{},
	}
	in.srv = upstream.New(upstream.Config{
		Stdin: fds[0], Stdout: fds[1], Stderr: fds[2], Version: b.cfg.Version, Lines: b.answers,
		Bounds: upstream.Bounds{Line: int(m.Bounds.Line), Depth: m.Bounds.Depth, Blocks: m.Bounds.Blocks, Stderr: int(m.Bounds.Stderr), Pages: m.Bounds.Pages, Queue: int(m.Bounds.Queue)},
		Changed: func() {
			select {
			case in.again <- struct{}{}:
			default:
			}
		},
		Note:  func(a *mcp.Answer) { b.note(in, a) },
		Asked: func(a *mcp.Answer) (bool, string) { return b.askedBy(in, a) },
		Ended: func() { b.forget(in) },
		Skipped: func() {
			if in.counting.CompareAndSwap(false, true) {
				time.AfterFunc(SkippedEvery, func() {
					in.counting.Store(false) // first: what is counted from here on is told later
					b.tellSkipped(in)
				})
			}
		},
	})
	return in
}

// tellSkipped reports what was passed over of the server's output.
func (b *Bridge) tellSkipped(in *instance) {
	n := in.srv.Counts()
	_ = b.link.tell(wire.Skipped{Connection: in.conn, Instance: in.id, Lines: n.Noise, Long: n.TooLong, Unmatched: n.Unmatched})
}

func (b *Bridge) started(m wire.Started, fds []int) {
	in := b.newInstance(m, fds)
	b.mu.Lock()
	b.instances[in.place] = in
	var next wire.Up
	if st := b.starts[in.place]; st != nil {
		delete(b.starts, in.place)
		in.modern = st.modern
		close(st.done)
		next = b.answeredLocked(false)
	}
	b.mu.Unlock()
	b.tellNext(next)
	go func() {
		_ = in.srv.Run() // how it ended is the authority's to know: Exited
		b.dropped(in)
		close(in.gone)
		b.lost(in)
	}()
	b.run.Go(func() { b.prepare(in) })
}

// prepare does the handshake, reports the catalogue, and afterwards reads the list
// again whenever the server says that it changed.
func (b *Bridge) prepare(in *instance) {
	list, err := in.srv.Open(time.Now().Add(in.bound), in.era, in.modern)
	drain(in.again) // what changed before the first list is in it
	b.report(in, list, err)
	b.mu.Lock()
	if err != nil {
		in.failed = refusal.ServerUnavailable
	}
	b.mu.Unlock()
	if err != nil {
		b.dropped(in)
	}
	close(in.ready)
	if err != nil {
		return
	}
	b.curious(in)
	go b.relist(in)
}

func (b *Bridge) relist(in *instance) {
	for {
		select {
		case <-in.gone:
			return
		case <-in.again:
		}
		list, err := in.srv.List(time.Now().Add(in.bound))
		b.report(in, list, err)
		pause := time.NewTimer(RelistPause)
		select {
		case <-in.gone:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

func drain(ch chan struct{}) {
	select {
	case <-ch:
	default:
	}
}

// quotedEnd returns the end of what a server wrote, quoted, in at most so many bytes: as
// much as there is room for, because what went wrong often stands above a trace. Where a
// line begins in the first quarter of it, it begins there.
func quotedEnd(text []byte, most int) string {
	for n := min(len(text), most); ; {
		end := text[len(text)-n:]
		if i := bytes.IndexByte(end, '\n'); n < len(text) && i >= 0 && i < n/4 {
			end = end[i+1:]
		}
		q := strconv.Quote(string(end))
		if len(q) <= most {
			return q
		}
		n -= max(1, (len(q)-most)/4) // a byte is quoted in at most four
	}
}

// report sends a catalogue in parts: first the definitions as the server wrote them,
// then, with Last, what was kept out and why.
func (b *Bridge) report(in *instance, list upstream.Listing, err error) {
	if errors.Is(err, upstream.ErrExited) { // what it said last may still be on its way
		last := time.NewTimer(LastWords)
		select {
		case <-in.gone:
		case <-last.C:
		}
		last.Stop()
	}
	base := wire.Catalogue{Connection: in.conn, Instance: in.id, Era: in.srv.Era()}
	var data []byte
	if err == nil {
		data = appendDefinitions(nil, list.Tools)
		if len(list.Prompts) > 0 {
			data = appendDefinitions(data, list.Prompts)
		}
		if len(data) > wire.MaxCatalogue {
			err = fmt.Errorf("the definitions have %d bytes, more than %d", len(data), wire.MaxCatalogue)
		}
	}
	if err != nil {
		text := err.Error()
		if tail := in.srv.Stderr(); len(tail) > 0 {
			text += "; stderr ends " + quotedEnd(tail, maxStderrShown)
		}
		base.Last, base.Error = true, cut(text, wire.MaxText)
		_ = b.link.tell(base)
		return
	}
	if n := in.srv.Counts(); n.Noise > 0 {
		list.Quarantined = slices.Insert(list.Quarantined, 0, mcp.Quarantined{Name: "(output)", Reason: fmt.Sprintf("%d lines of its output are no messages, and were skipped", n.Noise)})
	}
	for len(data) > 0 {
		part := base
		n := min(len(data), wire.MaxPart)
		part.Data, data = data[:n], data[n:]
		_ = b.link.tell(part)
		base.Part++
	}
	base.Last = true
	for _, q := range list.Quarantined[:min(len(list.Quarantined), wire.MaxQuarantined)] {
		base.Quarantined = append(base.Quarantined, wire.Quarantined{Tool: q.Name, Reason: cut(q.Reason, 200)})
	}
	_ = b.link.tell(base)
}

func appendDefinitions(data []byte, all []mcp.Definition) []byte {
	data = append(data, '[')
	for i, t := range all {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, t.Raw...)
	}
	return append(data, ']')
}

// forget makes room for a successor.
func (b *Bridge) forget(in *instance) {
	b.mu.Lock()
	if b.instances[in.place] == in {
		delete(b.instances, in.place)
	}
	b.mu.Unlock()
}

// dropped makes room for a successor and asks the server to end.
func (b *Bridge) dropped(in *instance) {
	b.forget(in)
	go in.srv.Close() // may wait for a stuck write
}

// exited is the authority's word that the server's jail is gone. What it wrote last may
// still be in its pipe, whose end is what ends the calls; new ones must not wait for
// that. A Start that reached
// the authority before it knew was taken for one of the old server, so it is repeated.
func (b *Bridge) exited(m wire.Exited) {
	b.mu.Lock()
	at := place{m.Connection, m.Slot}
	in, st := b.instances[at], b.starts[at]
	b.mu.Unlock()
	if st != nil {
		_ = b.link.tell(st.m)
	}
	if in != nil && in.id == m.Instance {
		b.dropped(in)
	}
}

// probe is the life of a bridge that has no session: one server, one catalogue.
func (b *Bridge) probe(m wire.Started, fds []int) error {
	in := b.newInstance(m, fds)
	go func() {
		_ = in.srv.Run()
		close(in.gone)
	}()
	list, err := in.srv.Probe(time.Now().Add(in.bound), in.era)
	b.report(in, list, err)
	in.srv.Close()
	return errProbed
}
