package bridge

import (
	"postern/bridge/wire"
	"postern/ids"
)

// stderr is what one instance wrote last, and how much it had written before that.
type stderr struct {
	instance ids.Jail
	at       uint64
	data     []byte
}

// keepStderr remembers the words of an instance that has ended: they are looked for when
// it does not come up again. Those of a place with a successor that ended too are
// forgotten, and of more places than there may be instances any one's.
func (b *Bridge) keepStderr(in *instance) {
	data, past := in.srv.Stderr()
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.ended[in.place]; !known && len(b.ended) >= MaxInstances {
		for at := range b.ended {
			delete(b.ended, at)
			break
		}
	}
	b.ended[in.place] = stderr{in.id, past, data}
}

// tellStderr answers one question of the authority, the ended ones first. It waits for
// the wire as everything does; the authority asks again only after the answer.
func (b *Bridge) tellStderr(seq uint64) {
	b.mu.Lock()
	running := make([]*instance, 0, len(b.instances))
	for _, in := range b.instances {
		running = append(running, in)
	}
	ended := make(map[place]stderr, len(b.ended))
	for at, s := range b.ended {
		ended[at] = s
	}
	b.mu.Unlock()
	left := wire.MaxStderr
	tell := func(at place, s stderr, over bool) {
		if len(s.data) > left {
			return
		}
		left -= len(s.data)
		for first := true; first || len(s.data) > 0; first = false {
			n := min(len(s.data), wire.MaxPart)
			_ = b.link.tell(wire.Stderr{Seq: seq, Connection: at.conn, Slot: at.slot, Instance: s.instance, Ended: over, At: s.at, Data: s.data[:n]})
			s.at, s.data = s.at+uint64(n), s.data[n:]
		}
	}
	for at, s := range ended {
		tell(at, s, true)
	}
	for _, in := range running {
		data, past := in.srv.Stderr()
		tell(in.place, stderr{in.id, past, data}, false)
	}
	_ = b.link.tell(wire.Stderr{Seq: seq, Last: true})
}
