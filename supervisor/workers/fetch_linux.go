package workers

import (
	"errors"
	"os"

	"postern/bridge/wire"
	"postern/ids"
	"postern/supervisor/artifact"
	"postern/supervisor/gate"
	"postern/supervisor/order"
)

// fetch is a file that a result names. posternd opens it, because neither the authority
// nor a bridge can, and the authority is handed a copy.
type fetch struct {
	project ids.Project
	call    ids.Call
	of      gate.Brought
	path    string
	said    string // the server's word for its type
}

// fetches are the files that are still to be asked for. Of each project one is on its way
// at a time, until its bytes are durable.
type fetches struct {
	waiting map[ids.Project][]fetch
	count   int // of those that wait
	asked   map[ids.Project]bool
}

var errUnanswered = errors.New("nobody could look for it in time")

// fetch has a file asked for, or tells that too many wait already.
func (w *Workers) fetch(f fetch) {
	q := &w.fetches
	if len(q.waiting[f.project]) >= MaxFetches || q.count >= MaxFetchesAll {
		w.gate.Keep(f.of, artifact.Kept{Err: artifact.ErrBusy})
		return
	}
	q.waiting[f.project] = append(q.waiting[f.project], f)
	q.count++
	w.fetchNext()
}

// fetchNext asks for as many files as may be on their way.
func (w *Workers) fetchNext() {
	q := &w.fetches
	for p, all := range q.waiting { // in no order, which is as fair as any
		if len(q.asked) >= MaxFetching {
			return
		}
		if q.asked[p] {
			continue
		}
		if q.waiting[p] = all[1:]; len(all) == 1 {
			delete(q.waiting, p)
		}
		q.count--
		q.asked[p] = true
		f := all[0]
		w.askFor(FetchWait, func(seq uint64) order.Up { return order.Fetch{Seq: seq, Jail: f.of.Jail, Path: f.path} }, func(m order.Down, fds []int) { w.fetched(f, m, fds) })
	}
}

// fetched keeps the bytes of a file, or the reason why there are none.
func (w *Workers) fetched(f fetch, m order.Down, fds []int) {
	r, ok := m.(order.Fetched)
	err := errUnanswered
	switch {
	case !ok:
	case r.Why != "":
		err = errors.New(r.Why)
	case r.Size < 0 || r.Size > wire.MaxArtifact: // of another posternd
		err = artifact.ErrRead
	default:
		f.of.Size = r.Size
		err = w.cfg.Artifacts.Reserve(f.project, r.Size)
	}
	if err != nil {
		closeAll(fds)
		w.gate.Keep(f.of, artifact.Kept{Err: err})
		w.fetchedOne(f.project)
		return
	}
	w.cfg.Artifacts.BringFile(f.project, os.NewFile(uintptr(fds[0]), "fetched"), r.Size, f.said, func(k artifact.Kept) {
		w.notKept(f.project, f.call, k)
		w.Post(func() {
			w.gate.Keep(f.of, k)
			w.fetchedOne(f.project)
		})
	})
}

func (w *Workers) fetchedOne(p ids.Project) {
	delete(w.fetches.asked, p)
	w.fetchNext()
}
