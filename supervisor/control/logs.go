package control

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

// Bounds of what servers wrote to stderr.
const (
	MaxLogLines = 10_000
	maxLogText  = 96 << 10 // bytes of all texts of one answer: six for each at most, where it has to be escaped
)

// logs tells what the servers of a project wrote to stderr. That is the server's own
// text and may say what calls were about, so it is for those who see artifacts. Everybody
// else who may read the project hears what runs and how it ended.
func (a *actions) logs(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.LogsParams](c)
	if err != nil {
		return nil, err
	}
	if p.Lines < 0 || p.Lines > MaxLogLines {
		return nil, api.Refuse(refusal.BadRequest, "At most %d lines.", MaxLogLines)
	}
	var project ids.Project
	var only *registry.Connected
	if err := a.do(ctx, func() error {
		proj, err := a.pickProject(c.Who, p.Project)
		if project = proj.ID; err == nil && p.Server != "" {
			_, only, err = a.pickConnection(c.Who, api.ConnectionParams{Project: string(proj.ID), Server: p.Server})
		}
		return err
	}); err != nil {
		return nil, err
	}
	all, err := a.Workers.Stderr(ctx, project)
	if err != nil {
		return nil, err
	}
	out := api.LogsResult{Rows: []api.LogRow{}}
	var texts [][]byte // by row
	err = a.do(ctx, func() error {
		// Whoever may read was looked up before the bridges were asked; it may be otherwise now.
		if _, err := a.pickProject(c.Who, string(project)); err != nil {
			return err
		}
		labels := map[ids.Connection]string{}
		for _, con := range a.reg.View(project).Connections {
			labels[con.ID] = a.reg.Root().Servers[con.Server].Label
		}
		for _, w := range all {
			if only != nil && w.Connection != only.ID && w.Unanswered == "" {
				continue
			}
			row := api.LogRow{Connection: string(w.Connection), Label: labels[w.Connection], Task: string(w.Task), Instance: string(w.Instance), Ended: w.Ended, Reason: w.Reason, Missing: w.Unanswered,
				Next: w.At + uint64(len(w.Data))}
			if row.Missing == "" && !a.readsLogs(c.Who, project, w.Task) {
				row.Missing = "it may tell what calls were about: owners and viewers of the project read it, members that of their own tasks"
				row.Next = 0
			}
			var text []byte
			if row.Missing == "" {
				text, row.Lost = since(w.Data, w.At, p.From[row.Instance])
			}
			out.Rows, texts = append(out.Rows, row), append(texts, text)
		}
		return nil
	})
	lines := cmp.Or(p.Lines, MaxLogLines)
	for i, most := range shares(texts, lines, maxLogText) {
		row, kept := &out.Rows[i], lastLines(texts[i], lines, most)
		if row.Lost += uint64(len(texts[i]) - len(kept)); p.Lines > 0 {
			row.Lost = 0 // fewer were asked for
		}
		row.Text = strings.ToValidUTF8(string(kept), "\uFFFD")
	}
	slices.SortStableFunc(out.Rows, func(x, y api.LogRow) int {
		return cmp.Or(strings.Compare(x.Label, y.Label), strings.Compare(x.Task, y.Task), strings.Compare(x.Instance, y.Instance))
	})
	return out, err
}

// readsLogs tells whether the peer may read what a server wrote: an owner and a viewer of
// its project, and a member where it serves a task of the member's own alone. Root, as
// an administrator, sees no arguments, and here they may stand; how a server ended it
// is told all the same.
func (a *actions) readsLogs(w Who, p ids.Project, task ids.Task) bool {
	var of ids.Account // nobody, where every task is served
	if t := a.reg.Task(task); t != nil {
		of = t.Account
	}
	return a.readsOwn(w, p, of)
}

// shares divides the room of one answer: whoever wants less than an equal part leaves the
// rest to the others, so that a server that writes much takes no room from one that does not.
func shares(texts [][]byte, lines, room int) []int {
	most, order := make([]int, len(texts)), make([]int, len(texts))
	for i, text := range texts {
		most[i], order[i] = len(lastLines(text, lines, room)), i
	}
	slices.SortStableFunc(order, func(i, j int) int { return most[i] - most[j] })
	for n, i := range order {
		most[i] = min(most[i], room/(len(order)-n))
		room -= most[i]
	}
	return most
}

// since cuts data, which begins behind at bytes, to what was written behind from; lost is
// what is no longer there of it.
func since(data []byte, at, from uint64) (text []byte, lost uint64) {
	switch {
	case from <= at:
		return data, at - from
	case from >= at+uint64(len(data)):
		return nil, 0
	}
	return data[from-at:], 0
}

// lastLines is the end of text: at most so many lines and bytes.
func lastLines(text []byte, lines, most int) []byte {
	if len(text) > most {
		text = text[len(text)-most:]
	}
	end := len(bytes.TrimSuffix(text, []byte("\n")))
	for i := end; i > 0; {
		i = bytes.LastIndexByte(text[:i], '\n')
		if lines--; lines == 0 {
			return text[i+1:]
		}
	}
	return text
}
