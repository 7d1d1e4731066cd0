package gate

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"postern/bridge/wire"
	"postern/ids"
	"postern/item"
	"postern/refusal"
	"postern/supervisor/registry"
)

// offer probes the files server anew with prompts, and grants items of it to shop.
func (w *world) offer(items ...string) {
	w.t.Helper()
	w.probe(files, catalogue+`[{"name":"review","description":"reviews"},{"name":"hidden"}]`)
	w.grant(w.conn, 0, items...)
}

func TestPromptsAndResourcesAreAskedAboutLikeCalls(t *testing.T) {
	w := newWorld(t)
	w.offer("prompt:review", "resource:file:///docs")
	seen := map[string]wire.Tool{}
	for _, v := range w.view() {
		seen[v.Name] = v
	}
	if v := seen["prompt:review"]; !v.Callable || !bytes.Contains(v.Definition, []byte(`"reviews"`)) {
		t.Errorf("the prompt is shown as %+v", v)
	}
	if v := seen["prompt:hidden"]; v.Callable || v.Definition != nil || v.Tool != "prompt:hidden" {
		t.Errorf("the prompt without a grant is shown as %+v", v)
	}
	if v := seen["resource:file:///docs"]; !v.Callable || v.Definition != nil {
		t.Errorf("the prefix is shown as %+v", v)
	}
	for key, want := range map[string]refusal.Code{
		"prompt:review": "", "prompt:hidden": refusal.ToolNotGranted, "prompt:none": refusal.ToolUnknown, "review": refusal.ToolUnknown,
		"resource:file:///docs": "", "resource:file:///docs/a/b": "", "resource:file:///docsx": refusal.ToolUnknown,
		"resource:file:///docs/../etc": refusal.ToolUnknown, "resource:": refusal.ToolUnknown,
	} {
		if d := w.ask(w.ses, w.conn, key); d.Code != want {
			t.Errorf("%s: %q, want %q", key, string(d.Code), string(want))
		}
	}
	// A name that the bridge does not know is found among the project's own.
	if d := w.ask(w.ses, "", "resource:file:///docs/a"); d.Code != refusal.StaleSelector {
		t.Errorf("a resource by its URI alone: %q", string(d.Code))
	}
	if d := w.ask(w.ses, "", "resource:file:///other"); d.Code != refusal.ToolUnknown {
		t.Errorf("an unknown resource: %q", string(d.Code))
	}
	w.do(w.reg().Revoke(w.conn, []string{"resource:file:///docs"}, 0))
	if d := w.ask(w.ses, w.conn, "resource:file:///docs/a"); d.Code != refusal.ToolUnknown {
		t.Errorf("after it was revoked: %q", string(d.Code))
	}
	if r := w.g.Reconsider(shopSet.Project); len(r.Calls) != 2 {
		t.Errorf("open reads of what was revoked: %+v", r.Calls)
	}
}

func TestDriftTakesAPromptAway(t *testing.T) {
	w := newWorld(t)
	w.offer("prompt:review")
	if _, err := w.g.Listed(shopSet, Place{Conn: w.conn}, id[ids.Revision](files), []byte(catalogue+`[{"name":"review","description":"something else"}]`)); err != nil {
		t.Fatal(err)
	}
	if d := w.ask(w.ses, w.conn, "prompt:review"); d.Code != refusal.ToolChanged {
		t.Errorf("a prompt that its server lists otherwise: %q", string(d.Code))
	}
	if d := w.ask(w.ses, w.conn, "read_rows"); d.Code != "" {
		t.Errorf("its sibling: %q", string(d.Code))
	}
	if kind, name := item.Split("prompt:review"); kind != item.Prompt || name != "review" {
		t.Error(kind, name)
	}
}

func TestASignOfLifeMovesTheLimitAndNeverBeyondTheMost(t *testing.T) {
	w := newWorld(t)
	d := w.call()
	w.commit()
	late := func() bool { return len(w.g.Late(w.now)) > 0 }
	alive := func(waits bool) {
		t.Helper()
		if err := w.g.Alive(shopSet, wire.Alive{Call: d.Call, Waits: waits}); err != nil {
			t.Fatal(err)
		}
	}
	w.now = w.now.Add(DefaultCall - 1)
	alive(false)
	w.now = w.now.Add(DefaultCall - 1)
	if late() {
		t.Error("progress did not count")
	}
	alive(true)
	w.now = w.now.Add(UserWait - 1)
	if late() {
		t.Error("the user had no time")
	}
	if err := w.g.Alive(Set{shopSet.Project, 9}, wire.Alive{Call: d.Call}); err == nil {
		t.Error("another bridge moved the limit")
	}
	for range 100 {
		alive(false)
		w.now = w.now.Add(DefaultCall / 2)
	}
	if !late() {
		t.Error("a call can live for ever")
	}
	alive(true)
	if !late() {
		t.Error("a call that was told to end lives on")
	}
	// Its twin, silent.
	d = w.call()
	w.commit()
	w.now = w.now.Add(DefaultCall)
	if !late() {
		t.Error("a silent call has no limit")
	}
}

func TestARetryIsLinkedToTheCallThatAsked(t *testing.T) {
	w := newWorld(t)
	first := w.admitted("the first", w.call())
	conn, ses := w.conn, w.ses
	d := w.g.Admit(shopSet, wire.Admit{Session: ses, Connection: conn, Instance: id[ids.Jail](1), Tool: "read_rows", Digest: strings.Repeat("ab", 32), Continues: first}, w.running(conn), Seen{})
	second := w.admitted("the second", d)
	if r := w.record(second); !strings.Contains(r.Policy, "continues="+string(first)) {
		t.Errorf("the record says %q", r.Policy)
	}
	if r := w.record(first); strings.Contains(r.Policy, "continues=") {
		t.Errorf("the first says %q", r.Policy)
	}
}

func TestAProfileBoundsTheCallsOfOneSessionAtItsServer(t *testing.T) {
	w := newWorld(t)
	w.root(func(r *registry.Root) {
		r.Servers[id[ids.Server](files)].Revisions[id[ids.Revision](files)].PerSession = 2
	})
	first := w.admitted("below the bound", w.call())
	w.admitted("at the bound", w.call())
	if d := w.call(); d.Code != refusal.LimitCalls {
		t.Errorf("above the bound: %q", string(d.Code))
	}
	mine := w.ses
	w.ses = w.bind(w.task)
	w.admitted("another session's", w.call())
	w.ses = mine
	if err := w.g.Ended(shopSet, wire.Ended{Call: first, Outcome: wire.Completed}); err != nil {
		t.Fatal(err)
	}
	w.admitted("when one of them has ended", w.call())
	if d := w.call(); d.Code != refusal.LimitCalls {
		t.Errorf("above the bound again: %q", string(d.Code))
	}
	if b := w.g.Bounds(id[ids.Server](files), id[ids.Revision](files)); b != (wire.Bounds{}) {
		t.Errorf("the bridge is told %+v of what is the gate's", b)
	}
}

func TestTheConfigurationBoundsEachRuntime(t *testing.T) {
	w := newWorld(t)
	if b := w.g.SessionBounds(); b != (wire.SessionBounds{}) {
		t.Errorf("%+v where nothing is set", b)
	}
	w.root(func(r *registry.Root) {
		r.Sessions = registry.SessionBounds{Requests: 3, Line: 5000, LineWait: 2 * time.Second, Depth: 9, Queue: 1 << 20}
	})
	if b := w.g.SessionBounds(); b != (wire.SessionBounds{Requests: 3, Line: 5000, LineWaitMs: 2000, Depth: 9, Queue: 1 << 20}) {
		t.Errorf("%+v", b)
	}
}

func TestAProfileBoundsTheCallsOfItsServer(t *testing.T) {
	w := newWorld(t)
	w.root(func(r *registry.Root) {
		rev := r.Servers[id[ids.Server](files)].Revisions[id[ids.Revision](files)]
		rev.Calls, rev.Call, rev.CallMost, rev.Line, rev.Blocks = 2, 10*time.Second, 20*time.Second, 5000, 3
	})
	first := w.admitted("below the bound", w.call())
	w.admitted("at the bound", w.call())
	if d := w.call(); d.Code != refusal.LimitCalls {
		t.Errorf("above the bound: %q", string(d.Code))
	}
	w.now = w.now.Add(9 * time.Second)
	if err := w.g.Alive(shopSet, wire.Alive{Call: first, Waits: true}); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(11 * time.Second)
	if late := w.g.Late(w.now); len(late) != 2 {
		t.Errorf("%d calls are late at the most", len(late))
	}
	if b := w.g.Bounds(id[ids.Server](files), id[ids.Revision](files)); b.Line != 5000 || b.Blocks != 3 || b.Pages != 0 {
		t.Errorf("%+v", b)
	}
	if b := w.g.Bounds(id[ids.Server](files), "rev_none"); b != (wire.Bounds{}) {
		t.Errorf("an unknown revision: %+v", b)
	}
}
