package bridge

import (
	"bytes"
	"errors"
	"sync"

	"postern/bridge/mcp"
	"postern/bridge/wire"
	"postern/ids"
)

// MaxUpload bounds the text of artifacts, in bytes, that waits to be sent to the
// authority, of all calls together.
const MaxUpload = 24 << 20

// uploads are the artifacts that wait to be sent. The runtime has its result and the
// authority the outcome before any of them is: no call waits for one, and none fails by
// one. They go one after the other, from a goroutine that ends when none is left.
type uploads struct {
	mu      sync.Mutex
	waiting []upload
	bytes   int
	running bool
}

// upload is one artifact: an attachment of its own memory, the path of a file, or the
// reason why it has neither.
type upload struct {
	call ids.Call
	n    int
	of   mcp.Attachment
	path string
	why  wire.Why
}

// attachments are what is kept of an answer: what carries bytes, the files that it names,
// and one more that stands for what is beyond the most. The caller sends them after the
// outcome.
func (b *Bridge) attachments(call ids.Call, a *mcp.Answer) []upload {
	list, more := a.Attachments(wire.MaxArtifacts)
	var all []upload
	for n, x := range list {
		u := upload{call: call, n: n, of: mcp.Attachment{Type: cut(x.Type, wire.MaxType), Name: cut(x.Name, maxArtifactName)}}
		if x.Data == nil {
			var ok bool
			if u.path, ok = mcp.FilePath(x.Name); !ok || !wire.FilePath(u.path) {
				u.path, u.why = "", wire.WhyURI
			}
			all = append(all, u)
			continue
		}
		b.uploads.mu.Lock()
		if b.uploads.bytes+len(x.Data) > MaxUpload {
			u.why = wire.WhyBusy
		} else {
			b.uploads.bytes += len(x.Data)
			u.of.Data = bytes.Clone(x.Data)
		}
		b.uploads.mu.Unlock()
		all = append(all, u)
	}
	if more > 0 {
		all = append(all, upload{call: call, n: wire.MaxArtifacts, why: wire.WhyMany})
	}
	return all
}

// maxArtifactName bounds the name of an artifact, in bytes: a resource's URI.
const maxArtifactName = 1024

// upload has them sent.
func (b *Bridge) upload(all []upload) {
	if len(all) == 0 {
		return
	}
	u := &b.uploads
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting = append(u.waiting, all...)
	if !u.running {
		u.running = true
		b.run.Go(b.sendUploads)
	}
}

func (b *Bridge) sendUploads() {
	u := &b.uploads
	for {
		u.mu.Lock()
		if len(u.waiting) == 0 {
			u.running, u.waiting = false, nil
			u.mu.Unlock()
			return
		}
		next := u.waiting[0]
		u.waiting = u.waiting[1:]
		u.mu.Unlock()
		held := len(next.of.Data)
		b.sendUpload(next)
		u.mu.Lock()
		u.bytes -= held
		u.mu.Unlock()
	}
}

// sendUpload sends one in pieces. That the authority is gone is Run's to see.
func (b *Bridge) sendUpload(u upload) {
	p := wire.Piece{Call: u.call, N: u.n, Type: u.of.Type, Name: u.of.Name, Path: u.path, Why: u.why}
	var raw []byte
	if u.why == "" && u.path == "" {
		var err error
		raw, err = u.of.Bytes(wire.MaxArtifact)
		switch {
		case errors.Is(err, mcp.ErrTooMany):
			p.Why = wire.WhyLarge
		case err != nil:
			p.Why = wire.WhyInvalid
		}
	}
	if p.Why != "" || p.Path != "" {
		p.Last = true
		_ = b.link.tell(p)
		return
	}
	p.Size = int64(len(raw))
	for {
		n := min(len(raw), wire.MaxPart)
		p.Data, raw = raw[:n], raw[n:]
		p.Last = len(raw) == 0
		if b.link.tell(p) != nil || p.Last {
			return
		}
		p = wire.Piece{Call: p.Call, N: p.N, Part: p.Part + 1}
	}
}
