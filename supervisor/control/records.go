package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"postern/ids"
	"postern/policy"
	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/store"
)

// Bounds of reading records.
const (
	MaxActivity = 500  // records of one page
	MaxWithArgs = 100  // records of one page with their arguments: an answer is one line
	catchUp     = 4096 // changes that a follow sorts; of more it walks the records first
	emptyPages  = 10   // pages without a record for the reader that one answer passes over
)

// readsActivity says where the peer may read records: whole projects by role, or
// only its own tasks' records where it is a member. Administrators see records,
// which hold no argument.
func (a *actions) readsActivity(w Who, r *store.Call) bool {
	if w.Root {
		return true
	}
	if h, ok := a.reg.Root().HostOf(w.UID); ok && h.ID == r.Host {
		return true
	}
	acc := a.account(w).ID
	switch a.role(w, r.Project) {
	case "owner", "viewer":
		return true
	case "member":
		return r.Account == acc
	}
	return false
}

// readsArguments says who may see what the call of a record was given: whoever sees its
// artifacts, and neither root, as an administrator, nor a host.
func (a *actions) readsArguments(w Who, r *store.Call) bool {
	return a.readsOwn(w, r.Project, r.Account)
}

// reader names the peer in the cursors it is given: a project's members share
// nothing but their role, so that a cursor is one account's, one host's or root's.
func (a *actions) reader(w Who) string {
	who := fmt.Sprintf("uid %d", w.UID)
	if h, ok := a.reg.Root().HostOf(w.UID); ok {
		who = "host " + h.ID
	} else if acc := a.account(w).ID; acc != "" {
		who = "account " + string(acc)
	} else if w.Root {
		who = "root"
	}
	sum := sha256.Sum256([]byte(who))
	return hex.EncodeToString(sum[:6])
}

// sameReader refuses who is no longer the one that a cursor was made for: an account
// that was suspended or deleted, a host that was removed, a uid that is another's now.
// A follow ends with it, although it may have been of no project by name.
func (a *actions) sameReader(w Who, reader string) error {
	if a.reader(w) == reader {
		return nil
	}
	switch a.reg.AccountStanding(a.identity(w).ID) {
	case policy.AccountSuspended:
		return refusal.AccountSuspended
	case policy.AccountUnknown, policy.AccountDeleted: // a uid of a deleted account is nobody's
		return refusal.AccountUnknown
	}
	return api.Refuse(refusal.NotPermitted, "The cursor was made for somebody else.")
}

// place is where an answer begins: at the cursor that was given, or where a follow
// or an export begins without one. A cursor of another reader is refused, and so is
// one of records that are not here, as after a backup was restored.
func (a *actions) place(ctx context.Context, w Who, p api.ActivityParams) (activity.Cursor, error) {
	cur, err := activity.ParseCursor(p.Cursor)
	if err != nil {
		return cur, api.Refuse(refusal.StaleSelector, "The cursor was not made here.")
	}
	var reader string
	if err := a.do(ctx, func() error { reader = a.reader(w); return a.Gate.Flush() }); err != nil {
		return cur, err
	}
	if p.Cursor != "" && cur.Reader != reader {
		return cur, api.Refuse(refusal.StaleSelector, "This cursor was given to another account; ask without it.")
	}
	cur.Reader = reader
	edge, err := a.Store.Latest()
	if err != nil {
		return cur, err
	}
	if max(cur.After, cur.Floor) > edge.Change || cur.Until > edge.Seq {
		return cur, api.Refuse(refusal.StaleSelector, "This cursor is of records that are not here; ask without it.")
	}
	walk := func(at, floor int64) activity.Cursor {
		return activity.Cursor{Walk: true, At: at, Until: edge.Seq, Floor: floor, After: edge.Change, From: edge.OpenFrom, Reader: reader}
	}
	switch {
	case !p.Follow && !p.Export, cur.Walk:
		return cur, nil
	case cur.Follow:
		if edge.Change-cur.After > catchUp {
			return walk(cur.From, cur.After), nil
		}
		return cur, nil
	case cur.Before > 0: // of a page: on from there to what is newer
		return walk(cur.Before+1, 0), nil
	case p.Since > 0 || p.Export:
		at, err := a.Store.FirstSince(p.Since * int64(time.Millisecond))
		return walk(at, 0), err
	}
	return activity.Cursor{Follow: true, After: edge.Change, From: edge.OpenFrom, Reader: reader}, nil
}

// activity answers one page, follows, or exports: every page is authorized anew, so
// that a removed member's stream ends with what it may no longer see.
func (a *actions) activity(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.ActivityParams](c)
	if err != nil {
		return nil, err
	}
	q := store.Query{Since: p.Since * int64(time.Millisecond), Limit: p.Limit}
	most := MaxActivity
	if p.Arguments {
		most = MaxWithArgs
		if err := a.do(ctx, func() error { return a.onlyPeople(c.Who, "Arguments") }); err != nil {
			return nil, err
		}
	}
	if q.Limit <= 0 || q.Limit > most {
		q.Limit = most
	}
	if p.State != "" {
		st, ok := store.ParseState(p.State)
		if !ok {
			return nil, api.Refuse(refusal.BadRequest, "%q is not a state of a call.", p.State)
		}
		q.State = st
	}
	cur, err := a.place(ctx, c.Who, p)
	if err != nil {
		return nil, err
	}
	for {
		next := a.Bell.Next()
		page, after, err := a.page(ctx, c.Who, p, q, cur)
		out := api.ActivityResult{Rows: []api.ActivityRow{}, Cursor: after.String(), More: page.more, Follow: page.follow}
		if err != nil || !p.Follow && !p.Export {
			for i, r := range page.records {
				out.Rows = append(out.Rows, whyNone(row(r, cur.Behind(r).String(), page.labels[i], page.brought[r.Seq], page.argsOf(r)), page.off[r.Seq]))
			}
			return out, err
		}
		for i, r := range page.records {
			var event any
			if place := cur.Behind(r).String(); p.Export {
				event, err = activity.Export(r, place, page.brought[r.Seq], page.argsOf(r))
			} else {
				event = whyNone(row(r, place, page.labels[i], page.brought[r.Seq], page.argsOf(r)), page.off[r.Seq])
			}
			if err != nil {
				return out, err
			}
			if err := c.Event(event); err != nil {
				return out, nil
			}
		}
		walked := cur.Walk && !after.Walk
		cur = after
		if p.Export && !p.Follow && walked {
			return out, nil
		}
		if page.more || walked {
			continue
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-next:
		case <-time.After(followSilent):
			if !c.Who.peer.Alive() {
				return out, refusal.PeerGone
			}
		}
	}
}

// pageOf is what one page shows to its reader.
type pageOf struct {
	records []*store.Call
	labels  []string // of their projects
	brought map[int64][]store.Artifact
	args    map[int64]store.Arguments // of those that the reader may see, where they were asked for
	off     map[int64]bool            // asked for, and of a project that records none
	more    bool
	follow  string // the cursor from which a follow goes on at this moment
}

// argsOf are the arguments of a record that are shown, nil for none.
func (p *pageOf) argsOf(r *store.Call) *store.Arguments {
	if a, ok := p.args[r.Seq]; ok {
		return &a
	}
	return nil
}

// page reads one page of what the peer may see. Where a page holds nothing for it
// the next ones are read too, some of them.
func (a *actions) page(ctx context.Context, w Who, p api.ActivityParams, q store.Query, cur activity.Cursor) (out pageOf, after activity.Cursor, err error) {
	after, out.off = cur, map[int64]bool{}
	for range emptyPages {
		if err := a.do(ctx, func() error {
			err := a.sameReader(w, cur.Reader)
			if err != nil {
				return err
			}
			if q.Project, err = a.onlyProject(w, p.Project); err != nil {
				return err
			}
			q.Projects = a.readable(w)
			// Outcomes that still wait for a commit's company are part of what is asked for.
			return a.Gate.Flush()
		}); err != nil {
			return out, cur, err
		}
		edge, err := a.Store.Latest()
		if err != nil {
			return out, cur, err
		}
		out.follow = activity.Cursor{Follow: true, After: edge.Change, From: edge.OpenFrom, Reader: cur.Reader}.String()
		after.Apply(&q)
		page, err := a.Store.Calls(q)
		if err != nil {
			return out, cur, err
		}
		if out.brought, err = a.Store.ArtifactsOf(page.Calls); err != nil {
			return out, cur, err
		}
		if p.Arguments {
			if out.args, err = a.Store.ArgumentsOf(page.Calls); err != nil {
				return out, cur, err
			}
		}
		walked := after.Walk && !page.More
		after, out.more = after.Next(page), page.More
		if err := a.do(ctx, func() error {
			for i := range page.Calls {
				r := &page.Calls[i]
				if !a.readsArguments(w, r) {
					delete(out.args, r.Seq)
				}
				if p.Arguments && a.readsArguments(w, r) && !a.reg.Root().Projects[r.Project].RecordArguments {
					out.off[r.Seq] = true
				}
				if a.readsActivity(w, r) {
					out.records = append(out.records, r)
					out.labels = append(out.labels, a.reg.Root().Projects[r.Project].Label)
				}
			}
			return nil
		}); err != nil {
			return out, cur, err
		}
		if len(out.records) > 0 || !page.More || walked {
			break
		}
	}
	return out, after, nil
}

// readable lists the projects whose records the peer may see at all; nil is every
// project, where it reads as root or as a host.
func (a *actions) readable(w Who) []ids.Project {
	if _, host := a.reg.Root().HostOf(w.UID); host || w.Root {
		return nil
	}
	// One that does not exist stands for none, since an empty list filters nothing.
	out := []ids.Project{"none"}
	if acc := a.account(w).ID; acc != "" {
		out = append(out, a.projectsOf(acc)...)
	}
	return out
}

// recordsNone is why a record has no arguments, where that is what its project says.
const recordsNone = "the project records none (project set --record-arguments)"

// whyNone tells why arguments that were asked for are not there, where that is known.
func whyNone(r api.ActivityRow, off bool) api.ActivityRow {
	if off && len(r.Arguments) == 0 && r.NotRecorded == "" {
		r.NotRecorded = recordsNone
	}
	return r
}

func row(c *store.Call, cursor, label string, brought []store.Artifact, args *store.Arguments) api.ActivityRow {
	r := api.ActivityRow{ProjectLabel: label, Call: string(c.ID), Time: c.At / int64(time.Millisecond), Account: string(c.Account), Host: c.Host, Project: string(c.Project), Task: string(c.Task),
		Principal: c.Principal, Mode: c.Mode, Session: string(c.Session), Continues: activity.Continues(c.Policy), Connection: string(c.Connection), Revision: string(c.Revision),
		Tool: activity.Item(c.Tool), Classes: class.Set(c.Classes).Strings(), RequestID: activity.Shown(c.RequestID, activity.MaxRequestID),
		ArgsSize: c.ArgsSize, State: c.State.String(), Ended: c.Ended / int64(time.Millisecond), Size: c.Size, Code: string(c.Code), Reason: activity.Shown(c.Reason, activity.MaxReason), Cursor: cursor}
	r.Artifacts, r.NotKept = activity.Artifacts(brought)
	if args != nil {
		r.Arguments, r.NotRecorded = activity.Recorded(*args)
	}
	if c.ArgsDigest != (store.Digest{}) {
		r.ArgsDigest = hex.EncodeToString(c.ArgsDigest[:])
	}
	if c.Count > 1 {
		r.Count = int(c.Count)
	}
	return r
}
