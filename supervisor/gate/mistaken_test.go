package gate

import (
	"strings"
	"testing"

	"postern/refusal"
)

// Whom a mistake of the policy is about is told that there is one, and where; whoever is
// held back by what the policy says is not.
func TestC8_TheExplanationNamesTheMistakeOfTheEntry(t *testing.T) {
	w := newWorld(t)
	w.write(whatsapp("{level: full, write: true}", "code"))
	task := w.taskFor(contact, "code")
	from := func() (code refusal.Code, text string) {
		t.Helper()
		e := w.g.Explain(w.reg().Task(task), w.first(), Health{})
		for _, r := range e.Reasons {
			if r.Rule == "principal" {
				return e.Verdict.Code, r.From
			}
		}
		t.Fatal("the principal was not asked")
		return "", ""
	}
	w.write(whatsapp("{level: most}", "code"))
	if code, text := from(); code != refusal.AccessUnavailable || !strings.Contains(text, "has a mistake in the entry at line 7: want chat, read or full") {
		t.Errorf("%s: %s", code, text)
	}
	for says, entry := range map[string]string{"in order": "{level: full, write: true}", "blocked": "{blocked: true}"} {
		w.write(whatsapp(entry, "code"))
		if code, text := from(); strings.Contains(text, "mistake") || code == refusal.AccessUnavailable {
			t.Errorf("%s: %s: %s", says, code, text)
		}
	}
}
