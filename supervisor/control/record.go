package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/activity"
	"postern/supervisor/api"
	"postern/supervisor/store"
)

// Bounds of looking for a call by its id.
const (
	pages      = store.MaxScan / store.MaxPage // how many are looked at
	clockSlack = time.Minute                   // between an id's moment and its record's
)

// activityShow explains one record with the table's words and with what was recorded
// at that moment, which may no longer be so.
func (a *actions) activityShow(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.RecordParams](c)
	if err != nil {
		return nil, err
	}
	if p.Record == "" || len(p.Record) > api.MaxSelector {
		return nil, api.Refuse(refusal.BadRequest, "Name one record: a call's id, or the cursor that stands at the record.")
	}
	var reader string
	if err := a.do(ctx, func() error {
		if p.Arguments {
			if err := a.onlyPeople(c.Who, "Arguments"); err != nil {
				return err
			}
		}
		reader = a.reader(c.Who)
		return a.Gate.Flush()
	}); err != nil {
		return nil, err
	}
	r, err := a.record(p.Record, reader)
	if err != nil {
		return nil, err
	}
	var brought map[int64][]store.Artifact
	var given map[int64]store.Arguments
	if r != nil {
		if brought, err = a.Store.ArtifactsOf([]store.Call{*r}); err != nil {
			return nil, err
		}
		if p.Arguments {
			if given, err = a.Store.ArgumentsOf([]store.Call{*r}); err != nil {
				return nil, err
			}
		}
	}
	var out api.RecordResult
	err = a.do(ctx, func() error {
		if r == nil || !a.readsActivity(c.Who, r) {
			return api.Missing(refusal.NotFound, "record", p.Record)
		}
		place := activity.Cursor{Before: r.Seq, Reader: reader}
		var args *store.Arguments
		if x, ok := given[r.Seq]; ok && a.readsArguments(c.Who, r) {
			args = &x
		}
		out.ActivityRow = row(r, place.String(), a.reg.Root().Projects[r.Project].Label, brought[r.Seq], args)
		if p.Arguments && a.readsArguments(c.Who, r) {
			out.ActivityRow = whyNone(out.ActivityRow, !a.reg.Root().Projects[r.Project].RecordArguments)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Policy = activity.Shown(r.Policy, 4*activity.MaxTool)
	if r.Code != "" {
		_, out.Sentence, out.Advice, out.Help = tableWords(r.Code)
	}
	out.Denies = denied(r.Policy)
	return out, nil
}

// record finds a record by a call's id, or by the reader's own cursor that stands at
// it; nil where there is none.
func (a *actions) record(name, reader string) (*store.Call, error) {
	if id, err := ids.Parse[ids.Call](name); err == nil {
		return a.recordOf(id)
	}
	cur, err := activity.ParseCursor(name)
	if err != nil || cur.Reader != reader {
		return nil, nil
	}
	// A row's cursor lies behind its record: what is read next is told by the cursor.
	q := store.Query{Before: cur.Before + 1, Limit: 1}
	switch {
	case cur.Walk:
		q.Before = cur.At
	case cur.Follow:
		q = store.Query{Changes: true, After: cur.After - 1, Limit: 1}
	}
	page, err := a.Store.Calls(q)
	if err != nil || len(page.Calls) == 0 {
		return nil, err
	}
	if r := &page.Calls[0]; !cur.Follow && r.Seq == q.Before-1 || cur.Follow && r.Change == cur.After {
		return r, nil
	}
	return nil, nil
}

// recordOf finds a call by its id, which tells from when on it can have a record.
func (a *actions) recordOf(id ids.Call) (*store.Call, error) {
	q := store.Query{Since: ids.Time(id).Add(-clockSlack).UnixNano(), Limit: store.MaxPage}
	for range pages {
		page, err := a.Store.Calls(q)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(page.Calls, func(c store.Call) bool { return c.ID == id }); i >= 0 {
			return &page.Calls[i], nil
		}
		if !page.More {
			break
		}
		q.Before = page.Next
	}
	return nil, nil
}

// denied reads the rules that denied out of what was recorded of the policy.
func denied(policy string) []api.RuleResult {
	var out []api.RuleResult
	for word := range strings.FieldsSeq(policy) {
		codes, ok := strings.CutPrefix(word, "denies=")
		if !ok {
			continue
		}
		for code := range strings.SplitSeq(codes, ",") {
			if c := refusal.Code(code); refusal.Known(c) {
				row := api.RuleResult{Answer: "denied"}
				row.Code, row.Sentence, _, _ = tableWords(c)
				out = append(out, row)
			}
		}
	}
	return out
}
