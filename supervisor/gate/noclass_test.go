package gate

import (
	"slices"
	"strings"
	"testing"

	"postern/policy/class"
	"postern/refusal"
	"postern/supervisor/registry"
	"postern/supervisor/store"
)

// A tool without class is refused wherever a list of classes is held against tools, of
// allowed or of denied ones, and the explanation and the record both say that as reason.
func TestC2_NoClassIsTheReasonOfARefusal(t *testing.T) {
	for entry, mode := range map[string]string{"{level: full}": "code", "{level: read}": "code", "{level: full, write: true}": "search"} {
		w := newWorld(t)
		w.apart()
		w.editServer(func(s *registry.RootServer) { delete(s.Revisions[s.Current].Classes, "run_it") })
		w.grant(w.conn, class.Reversible, "run_it")
		w.write(whatsapp(entry, mode))
		b := w.session(w.taskFor(contact, mode))
		n := Named{Connection: w.conn, Tool: "run_it"}
		want := refusal.AccessRefused
		if mode == "search" {
			want = refusal.ModeRefused
		}
		if got := w.says(b, "run_it"); got != want {
			t.Fatalf("%s in %s: %q, want %q", entry, mode, string(got), string(want))
		}
		task := w.g.sessions[b.ses].task
		e := w.g.Explain(task, n, Health{})
		if !slices.ContainsFunc(e.Reasons, func(r Reason) bool { return r.Code == want && strings.Contains(r.Read, "no_class: ") }) {
			t.Errorf("%s in %s: %+v", entry, mode, e.Reasons)
		}
		if got := w.records(); !slices.ContainsFunc(got, func(c store.Call) bool { return strings.Contains(c.Policy, " reason=no_class") }) {
			t.Errorf("%s in %s: %+v", entry, mode, got)
		}
		// Its twin: where no list of classes is held, the same tool passes.
		w.write(whatsapp("{level: full, write: true}", "code"))
		if got := w.says(w.session(w.taskFor(contact, "code")), "run_it"); got != "" {
			t.Errorf("without class lists: %q", string(got))
		}
	}
}
