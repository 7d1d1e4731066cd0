package bridge

import (
	"bytes"
	"crypto/sha256"
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
	hurry chan struct{} // holds one while a call waits for that
	look  chan struct{} // holds one while a runtime's list asks what the server lists now
	era   string        // what its revision spoke before, if that is known

	counting atomic.Bool // Skipped will be told
	modern   bool        // it was started for a modern runtime; set before prepare

	gathered []*session // with answers that were not written yet; the reader's of its output

	told [sha256.Size]byte // what was last reported of its list; of prepare and, after it, relist

	// Guarded by Bridge.mu.
	failed refusal.Code // set before ready is closed
	calls  int          // asked about or running
	last   bool         // it takes no other call, and ends with the last of them
	lists  map[string]*fetched

	// changed counts what the server said of changes, and known is up to which of them
	// its list was read and told, or could not be; fresh is closed when known rises.
	changed, known int
	fresh          chan struct{}
	looked         time.Time // when its list was last read

	level mcp.Level // of log messages that the server was told to write
}

// start is one Start that has no answer. Only one per place is on its way.
type start struct {
	seq    uint64
	m      wire.Start
	modern bool // for a modern runtime
	done   chan struct{}
	code   refusal.Code // set before done is closed; empty when it started
}

// readyLocked tells that a call can be asked about at once: the server runs, and nothing
// has changed since its list was told.
func (in *instance) readyLocked() bool { return in != nil && in.changed == in.known && in.isReady() }

// isReady tells that the handshake is over, and went well.
func (in *instance) isReady() bool {
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
		ready: make(chan struct{}), gone: make(chan struct{}), again: make(chan struct{}, 1), look: make(chan struct{}, 1),
		era: m.Era, lists: map[string]*fetched{}, fresh: make(chan struct{}), hurry: make(chan struct{}, 1),
	}
	in.srv = upstream.New(upstream.Config{
		Stdin: fds[0], Stdout: fds[1], Stderr: fds[2], Version: b.cfg.Version, Lines: b.answers,
		Bounds: upstream.Bounds{Line: int(m.Bounds.Line), Depth: m.Bounds.Depth, Blocks: m.Bounds.Blocks, Stderr: int(m.Bounds.Stderr), Pages: m.Bounds.Pages, Queue: int(m.Bounds.Queue),
			Items: m.Bounds.Items, Definition: int(m.Bounds.Definition), Definitions: int(m.Bounds.Definitions),
			LineWait: time.Duration(m.Bounds.LineWaitMs) * time.Millisecond},
		Changed: func() {
			b.mu.Lock()
			in.changed++
			b.mu.Unlock()
			select {
			case in.again <- struct{}{}:
			default:
			}
		},
		Note:    func(a *mcp.Answer) { b.note(in, a) },
		Asked:   func(a *mcp.Answer) (bool, string) { return b.askedBy(in, a) },
		Ended:   func() { b.forget(in) },
		Quiet:   b.link.flush,
		Handled: in.flush,
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

// flush sends the answers that the server's reader has gathered.
func (in *instance) flush() {
	for _, s := range in.gathered {
		s.took(s.out.Flush(), 0)
	}
	clear(in.gathered)
	in.gathered = in.gathered[:0]
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
		b.keepStderr(in)
		close(in.gone)
		b.lost(in)
	}()
	b.run.Go(func() { b.prepare(in) })
}

// prepare does the handshake, reports the catalogue, and afterwards reads the list
// again whenever the server says that it changed.
func (b *Bridge) prepare(in *instance) {
	list, err := in.srv.Open(time.Now().Add(in.bound), in.era, in.modern)
	b.report(in, list, err)
	b.mu.Lock()
	drain(in.again) // what changed before the first list is in it
	in.known, in.looked = in.changed, time.Now()
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

// relist reads the list again when the server says that it changed, and tells it to the
// authority before any call that comes after the change is asked about. A list that cannot
// be read is tried again: until it is, the authority refuses what it cannot compare.
//
// It is also read for a runtime that lists: the server may have changed it and not said so.
func (b *Bridge) relist(in *instance) {
	failed := 0
	for {
		select {
		case <-in.gone:
			return
		case <-in.look:
			b.lookAgain(in)
			continue
		case <-in.again:
		}
		b.mu.Lock()
		upTo := in.changed
		b.mu.Unlock()
		list, err := in.srv.List(time.Now().Add(in.bound))
		b.report(in, list, err)
		b.mu.Lock()
		in.known, in.looked = upTo, time.Now()
		close(in.fresh)
		in.fresh = make(chan struct{})
		b.mu.Unlock()
		wait, hurry := RelistPause, in.hurry
		if failed++; err == nil {
			failed = 0
		} else {
			wait, hurry = min(RelistPause<<min(failed, 10), RelistMost), nil
			select {
			case in.again <- struct{}{}:
			default:
			}
		}
		pause := time.NewTimer(wait)
		select {
		case <-in.gone:
		case <-hurry: // a call waits
		case <-pause.C:
		}
		pause.Stop()
	}
}

// lookAgain reports a list that is another than the one last reported. One that cannot be
// read says nothing: the server did not say that anything changed.
func (b *Bridge) lookAgain(in *instance) {
	list, err := in.srv.List(time.Now().Add(min(in.bound, LookWait)))
	b.mu.Lock()
	in.looked = time.Now()
	b.mu.Unlock()
	if err == nil && digestOf(list) != in.told {
		b.report(in, list, nil)
	}
}

// lookAt has the servers of a view say what they list now, each that works at nothing and
// was not asked lately. Nobody waits for it: what a runtime is shown was pinned.
func (b *Bridge) lookAt(view []wire.Tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range view {
		in := b.instances[placeOf(t)]
		if in.readyLocked() && in.calls == 0 && time.Since(in.looked) >= LookEvery {
			select {
			case in.look <- struct{}{}:
			default:
			}
		}
	}
}

// digestOf tells lists apart.
func digestOf(list upstream.Listing) [sha256.Size]byte {
	data := appendDefinitions(appendDefinitions(nil, list.Tools), list.Prompts)
	for _, q := range list.Quarantined {
		data = fmt.Appendf(data, "%q %q\n", q.Name, q.Reason)
	}
	return sha256.Sum256(data)
}

// listed waits until the list is told that the server had when the call came. It does not
// wait longer than one list may take.
func (b *Bridge) listed(in *instance) {
	b.mu.Lock()
	upTo, patience := in.changed, time.NewTimer(in.bound+RelistPause)
	b.mu.Unlock()
	defer patience.Stop()
	for {
		b.mu.Lock()
		known, fresh := in.known >= upTo, in.fresh
		b.mu.Unlock()
		if known {
			return
		}
		select {
		case in.hurry <- struct{}{}:
		default:
		}
		select {
		case <-fresh:
		case <-in.gone:
			return
		case <-patience.C:
			return
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
	in.told = digestOf(list)
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
		if tail, _ := in.srv.Stderr(); len(tail) > 0 {
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

// retired has an instance finish what it has, and asks its server to end then. The next
// call asks for another.
func (b *Bridge) retired(m wire.Retired) {
	b.mu.Lock()
	in := b.instances[place{m.Connection, m.Slot}]
	if in == nil || in.id != m.Instance {
		b.mu.Unlock()
		return
	}
	delete(b.instances, in.place)
	in.last = true
	spent := in.spentLocked()
	b.mu.Unlock()
	if spent {
		go in.srv.Close()
	}
}

// spentLocked tells whether a retired instance has nothing left to do.
func (in *instance) spentLocked() bool { return in.last && in.calls == 0 }

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
