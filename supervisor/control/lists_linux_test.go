package control

import (
	"strings"
	"testing"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/registry"
)

// Lists that are longer than an answer come page by page, every row once; whoever may see
// less is given less, and a page of something else is refused.
func TestTaskListComesInPages(t *testing.T) {
	r := newRig(t)
	const tasks = 6000
	r.on(func() {
		c := registry.Change{}
		for i := range tasks {
			c.Put = append(c.Put, registry.Task{ID: id[ids.Task](5000 + i), Account: id[ids.Account](1), Host: "agent", Project: id[ids.Project](shop), Principal: "local:" + strings.Repeat("x", 60), Mode: "code",
				Created: 1, Ended: 2, Reason: strings.Repeat("r", registry.MaxReason)})
		}
		if err := r.g.Apply(c); err != nil {
			t.Error(err)
		}
	})
	seen, after, pages := map[string]bool{}, "", 0
	c := r.as(root)
	for {
		got := must[api.TaskListResult](c, api.TaskList, api.ListParams{Project: "shop", After: after})
		for _, x := range got.Tasks {
			if seen[x.Task] || x.Task <= after {
				t.Fatalf("%s comes twice", x.Task)
			}
			seen[x.Task] = true
		}
		if pages++; got.Next == "" {
			break
		}
		after = got.Next
	}
	if len(seen) != tasks || pages < 3 {
		t.Errorf("%d tasks on %d pages", len(seen), pages)
	}
	// Below the bound there is one page, and it says so.
	if got := must[api.ConnectionListResult](c, api.ConnectionList, api.ListParams{Project: "shop"}); len(got.Connections) == 0 || got.Next != "" {
		t.Errorf("%+v", got)
	}
	if got := must[api.PsResult](c, api.Ps, none{}); got.Rows == nil || got.Next != "" {
		t.Errorf("%+v", got)
	}
	if _, code := c.ask(api.TaskList, map[string]any{"before": "x"}); code != refusal.BadRequest {
		t.Errorf("%q", string(code))
	}
}
