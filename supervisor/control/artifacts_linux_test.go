package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

// shows asks until a condition holds that questions can see; each question is a turn of
// the loop.
func (r *rig) shows(what string, cond func() bool) {
	r.t.Helper()
	for late := time.Now().Add(patience); !cond(); {
		if time.Now().After(late) {
			r.t.Fatalf("%s: not yet\n%s", what, r.log)
		}
	}
}

// brought makes one call of a session end with an artifact, and returns its row's id once
// it is durable.
func (r *rig) brought(b *bridge, s ids.Session, raw []byte) (ids.Call, string) {
	r.t.Helper()
	c, code := b.admit(s, r.conn, "read_rows")
	if code != "" {
		r.t.Fatal(string(code))
	}
	b.send(wire.Ended{Call: c, Outcome: wire.Completed, Artifacts: 1})
	p := wire.Piece{Call: c, Size: int64(len(raw)), Type: "image/png", Name: "file:///\u202e.png"}
	for rest := raw; ; {
		n := min(len(rest), wire.MaxPart)
		p.Data, rest = rest[:n], rest[n:]
		p.Last = len(rest) == 0
		b.send(p)
		if p.Last {
			break
		}
		p = wire.Piece{Call: c, Part: p.Part + 1}
	}
	var found string
	alice := r.as(owner)
	r.shows("the artifact's row", func() bool {
		of := must[api.ArtifactListResult](alice, api.ArtifactList, api.ArtifactListParams{Call: string(c)})
		if len(of.Rows) == 1 {
			found = of.Rows[0].Artifact
		}
		return found != ""
	})
	return c, found
}

func TestE4_WhoMaySeeWhichArtifact(t *testing.T) {
	r := newRig(t)
	b, s := r.session(owner, "")
	raw := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte("0123456789abcdef"), 50_000)...) // two pieces
	call, alices := r.brought(b, s, raw)
	bb, bs := r.session(member, "")
	_, bobs := r.brought(bb, bs, []byte("bob's"))
	sum := sha256.Sum256(raw)
	unknown := string(fresh[ids.Artifact]())
	for _, row := range []struct {
		who        string
		uid        uint32
		alice, bob refusal.Code
		sees       int
		list       refusal.Code
		stranger   refusal.Code // the answer to an id that there is not
	}{
		{"root", root, refusal.NotPermitted, refusal.NotPermitted, 0, refusal.NotPermitted, refusal.NotPermitted},
		{"the owner", owner, "", "", 2, "", refusal.NotFound},
		{"a member, of its own tasks", member, refusal.NotFound, "", 1, "", refusal.NotFound},
		{"a viewer", viewer, "", "", 2, "", refusal.NotFound},
		{"another account", other, refusal.NotFound, refusal.NotFound, 0, "", refusal.NotFound},
		{"the host that made a task", host, refusal.NotPermitted, refusal.NotPermitted, 0, refusal.NotPermitted, refusal.NotPermitted},
		{"nobody's user", stranger, refusal.NotPermitted, refusal.NotPermitted, 0, refusal.NotPermitted, refusal.NotPermitted},
	} {
		c := r.as(row.uid)
		for art, want := range map[string]refusal.Code{alices: row.alice, bobs: row.bob, unknown: row.stranger} {
			for _, offset := range []int64{0, api.MaxPiece} {
				if _, got := c.ask(api.ArtifactGet, api.ArtifactGetParams{Artifact: art, Offset: offset}); got != want {
					t.Errorf("%s: %s from %d: %q, want %q", row.who, art, offset, string(got), string(want))
				}
			}
		}
		detail := func(art string) string {
			raw, _ := c.ask(api.ArtifactGet, api.ArtifactGetParams{Artifact: art})
			return string(bytes.ReplaceAll(raw, []byte(art), []byte("ID")))
		}
		if row.alice == refusal.NotFound && detail(alices) != detail(unknown) {
			t.Errorf("%s tells a foreign id from one that there is not: %q, %q", row.who, detail(alices), detail(unknown))
		}
		list, code := c.ask(api.ArtifactList, api.ArtifactListParams{})
		if code != row.list {
			t.Errorf("%s: the list: %q", row.who, string(code))
		}
		if code == "" {
			got, err := api.DecodeResult[api.ArtifactListResult](list)
			if err != nil || len(got.Rows) != row.sees {
				t.Errorf("%s sees %d of 2: %v", row.who, len(got.Rows), err)
			}
		}
	}
	// The bytes, piece by piece, and what stands with them.
	var got []byte
	for int64(len(got)) < int64(len(raw)) {
		p := must[api.ArtifactPiece](r.as(viewer), api.ArtifactGet, api.ArtifactGetParams{Artifact: alices, Offset: int64(len(got))})
		if p.Digest != hex.EncodeToString(sum[:]) || p.Size != int64(len(raw)) || p.Type != "image/png" || p.Call != string(call) || p.Name != `file:///\u202e.png` {
			t.Fatalf("%+v", p.ArtifactRow)
		}
		got = append(got, p.Data...)
	}
	if !bytes.Equal(got, raw) {
		t.Errorf("%d of %d bytes", len(got), len(raw))
	}
	// The record names it, for whoever may read the record, root too.
	for _, uid := range []uint32{root, owner} {
		rec := must[api.RecordResult](r.as(uid), api.ActivityShow, api.RecordParams{Record: string(call)})
		if len(rec.Artifacts) != 1 || rec.Artifacts[0] != alices {
			t.Errorf("%d: %+v", uid, rec.Artifacts)
		}
	}
	for _, bad := range []api.ArtifactGetParams{{Artifact: "art_x"}, {Artifact: string(call)}, {Artifact: alices, Offset: -1}, {Artifact: "../../policy.db"}} {
		if _, code := r.as(owner).ask(api.ArtifactGet, bad); code != refusal.BadRequest {
			t.Errorf("%+v: %q", bad, string(code))
		}
	}
	// Each piece asks again: who has left gets no more of what was begun.
	r.on(func() {
		c, err := r.g.Registry().RemoveMember(id[ids.Project](shop), id[ids.Account](vera), time.Now())
		if err == nil {
			err = r.g.Apply(c)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if _, code := r.as(viewer).ask(api.ArtifactGet, api.ArtifactGetParams{Artifact: alices, Offset: api.MaxPiece}); code != refusal.NotFound {
		t.Errorf("the second piece for who has left: %q", string(code))
	}
}

func TestE4_ArtifactsAreDroppedByAgeAndSizeTheOldestFirst(t *testing.T) {
	r := newRig(t)
	b, s := r.session(owner, "")
	_, first := r.brought(b, s, bytes.Repeat([]byte("a"), 1000))
	_, second := r.brought(b, s, bytes.Repeat([]byte("b"), 1000))
	_, third := r.brought(b, s, bytes.Repeat([]byte("a"), 1000)) // the first one's bytes
	alice := r.as(owner)
	listed := func() (all []string) {
		for _, x := range must[api.ArtifactListResult](alice, api.ArtifactList, api.ArtifactListParams{}).Rows {
			all = append(all, x.Artifact)
		}
		return all
	}
	keep := func(k registry.KeepArtifacts) {
		root := *facts()
		root.Version, root.Artifacts = 2, k
		r.on(func() {
			if err := r.g.SetRoot(&root); err != nil {
				t.Error(err)
			}
		})
	}
	if got := listed(); len(got) != 3 {
		t.Fatalf("%v", got)
	}
	// Two bodies of 1,000 bytes: at the limit nothing goes.
	keep(registry.KeepArtifacts{Bytes: 2000})
	r.on(func() {
		if err := r.g.Tend(); err != nil {
			t.Error(err)
		}
	})
	if got := listed(); len(got) != 3 {
		t.Fatalf("at the limit: %v", got)
	}
	// Below it the oldest rows go; the first one's bytes are the third's too, so the second goes as well.
	keep(registry.KeepArtifacts{Bytes: 1999})
	r.shows("the oldest are gone", func() bool { got := listed(); return len(got) == 1 && got[0] == third })
	for _, gone := range []string{first, second} {
		if _, code := r.as(owner).ask(api.ArtifactGet, api.ArtifactGetParams{Artifact: gone}); code != refusal.NotFound {
			t.Errorf("%s: %q", gone, string(code))
		}
	}
	if p := must[api.ArtifactPiece](r.as(owner), api.ArtifactGet, api.ArtifactGetParams{Artifact: third}); len(p.Data) != 1000 {
		t.Errorf("%d bytes of what shares them", len(p.Data))
	}
	keep(registry.KeepArtifacts{Age: 1})
	r.shows("what is too old is gone", func() bool { return len(listed()) == 0 })
}
