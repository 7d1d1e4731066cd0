package workers

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/artifact"
	"postern/supervisor/store"
)

// owes makes an admitted call end with so many artifacts to come.
func (b *bridge) owes(s ids.Session, inst ids.Jail, n int) ids.Call {
	b.r.t.Helper()
	c, code := b.admit(s, b.r.conn[shop], inst, "read_rows")
	if code != "" {
		b.r.t.Fatal(string(code))
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Completed, Artifacts: n})
	return c
}

// brings sends one artifact whole, in parts of at most so many bytes.
func (b *bridge) brings(c ids.Call, n int, raw []byte, said, name string) {
	p := wire.Piece{Call: c, N: n, Size: int64(len(raw)), Type: said, Name: name}
	for {
		k := min(len(raw), wire.MaxPart)
		p.Data, raw = raw[:k], raw[k:]
		p.Last = len(raw) == 0
		b.send(p)
		if p.Last {
			return
		}
		p = wire.Piece{Call: c, N: n, Part: p.Part + 1}
	}
}

// artifacts waits until so many rows of a call are durable.
func (r *rig) artifacts(c ids.Call, n int) []store.Artifact {
	r.t.Helper()
	late := time.After(patience)
	for {
		next := r.g.Bell().Next()
		rows, _, _, err := r.s.Artifacts(store.ArtifactQuery{Projects: []ids.Project{id[ids.Project](shop), id[ids.Project](blog)}, Call: c})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(rows) >= n {
			return rows
		}
		select {
		case <-next:
		case <-late:
			r.t.Fatalf("%d of %d artifacts of %s\n%s", len(rows), n, c, r.log)
		}
	}
}

func TestWorkers9_E4_ArtifactsAreKeptWithTheirCallsOwner(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	png := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{7}, 100_000)...)
	c := b.owes(s, inst, 3)
	b.brings(c, 0, png, "image/png", "")
	b.send(wire.Piece{Call: c, N: 1, Last: true, Why: wire.WhyLarge})
	b.brings(c, 2, png, "text/html", "file:///a\u2028\x1b[31m")
	rows := r.artifacts(c, 3)
	rec := r.record(c, store.Completed)
	for _, x := range rows {
		if x.Project != id[ids.Project](shop) || x.Account != rec.Account || x.Task != rec.Task || x.Call != c || x.Seq != rec.Seq || x.At == 0 {
			t.Errorf("%+v of %+v", x, rec)
		}
	}
	byMissing := map[string]int{}
	for _, x := range rows {
		byMissing[x.Missing]++
		if x.Missing == "" && (x.Digest != sha256.Sum256(png) || x.Size != int64(len(png)) || x.Type != "image/png") {
			t.Errorf("%+v", x)
		}
		if strings.ContainsAny(x.Name, "\u2028\x1b") {
			t.Errorf("%q", x.Name)
		}
	}
	if byMissing[""] != 2 || byMissing["artifact not kept: it has more than 8388608 bytes"] != 1 {
		t.Errorf("%v", byMissing)
	}
	if got, err := r.keeper.Read(sha256.Sum256(png), 0, 2*len(png)); err != nil || !bytes.Equal(got, png) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Whoever follows the records sees the call once more, with its artifacts.
	if of, err := r.s.ArtifactsOf([]store.Call{rec}); err != nil || len(of[rec.Seq]) != 3 {
		t.Errorf("%v %v", of, err)
	}
	// After the last one the call owes none: more of it is passed over, not kept.
	b.brings(c, 3, []byte("more"), "", "")
	b.view(s)
	if got := r.artifacts(c, 3); len(got) != 3 {
		t.Errorf("%d rows", len(got))
	}
	b.alive("after one artifact too many")
}

func TestWorkers9_WhatBreaksTheOrderEndsTheBridge(t *testing.T) {
	for says, send := range map[string]func(b *bridge, c, foreign ids.Call){
		"a part that is no beginning": func(b *bridge, c, _ ids.Call) { b.send(wire.Piece{Call: c, Part: 1, Data: []byte("x")}) },
		"the second artifact first": func(b *bridge, c, _ ids.Call) {
			b.send(wire.Piece{Call: c, N: 1, Size: 1, Data: []byte("x"), Last: true})
		},
		"another bridge's call":   func(b *bridge, _, f ids.Call) { b.send(wire.Piece{Call: f, Size: 1, Data: []byte("x"), Last: true}) },
		"more than was announced": func(b *bridge, c, _ ids.Call) { b.send(wire.Piece{Call: c, Size: 1, Data: []byte("xy")}) },
		"less than was announced": func(b *bridge, c, _ ids.Call) { b.send(wire.Piece{Call: c, Size: 3, Data: []byte("xy"), Last: true}) },
		"a part left out": func(b *bridge, c, _ ids.Call) {
			b.send(wire.Piece{Call: c, Size: 9, Data: []byte("x")})
			b.send(wire.Piece{Call: c, Part: 2})
		},
		"another artifact in between": func(b *bridge, c, _ ids.Call) {
			b.send(wire.Piece{Call: c, Size: 9, Data: []byte("x")})
			b.send(wire.Piece{Call: c, N: 1, Size: 1})
		},
		"the same one twice": func(b *bridge, c, _ ids.Call) {
			b.brings(c, 0, []byte("x"), "", "")
			b.brings(c, 0, []byte("x"), "", "")
		},
		"parts without an end": func(b *bridge, c, _ ids.Call) {
			b.send(wire.Piece{Call: c})
			b.send(wire.Piece{Call: c, Part: 1, Data: []byte("x")})
		},
		"an artifact of more than the most": func(b *bridge, c, _ ids.Call) { b.send(wire.Piece{Call: c, Size: wire.MaxArtifact + 1}) },
	} {
		t.Run(says, func(t *testing.T) {
			r := newRig(t)
			b, s, inst := r.ready(r.socket(shop))
			other, os_ := r.session(r.socket(blog), blog)
			oinst, code := other.start(os_, r.conn[blog], "read_rows")
			if code != "" {
				t.Fatal(string(code))
			}
			foreign, code := other.admit(os_, r.conn[blog], oinst, "read_rows")
			if code != "" {
				t.Fatal(string(code))
			}
			other.send(wire.Ended{Call: foreign, Outcome: wire.Completed, Artifacts: 1})
			other.view(os_)
			c := b.owes(s, inst, 2)
			send(b, c, foreign)
			b.isGone(says)
			other.brings(foreign, 0, []byte("mine"), "text/plain", "")
			if x := r.artifacts(foreign, 1)[0]; x.Project != id[ids.Project](blog) || x.Size != 4 || x.Type != artifact.Text {
				t.Errorf("%+v", x)
			}
			r.record(c, store.Completed)
			// What it had begun holds no room.
			if err := r.do(func() error { return r.keeper.Reserve(id[ids.Project](shop), artifact.MaxShare) }); err != nil {
				t.Errorf("it still holds room: %v", err)
			}
		})
	}
}

func TestWorkers9_NoRoomIsNoFailure(t *testing.T) {
	r := newRig(t)
	b, s, inst := r.ready(r.socket(shop))
	if err := r.keeper.Reserve(id[ids.Project](shop), artifact.MaxShare-3); err != nil {
		t.Fatal(err)
	}
	c := b.owes(s, inst, 2)
	b.brings(c, 0, []byte("four"), "", "")
	b.brings(c, 1, []byte("one"), "", "")
	rows := r.artifacts(c, 2)
	if rows[1].Missing != "artifact not kept: too much was waiting to be written" || rows[1].Size != 4 || rows[0].Missing != "" {
		t.Errorf("%+v", rows)
	}
	r.record(c, store.Completed)
	b.alive("after what there was no room for")
}
