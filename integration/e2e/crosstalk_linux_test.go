package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Two sessions of one project use the same ids and the same progress tokens at the
// same time; each gets its own answers and its own progress.
func TestC010_C030_EqualIdsAndTokensNeverCross(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for n := range 2 {
		tok, _ := w.token(w.a, runtimeUID)
		r := w.connect(w.a, runtimeUID, tok).initialize()
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprint(1000 + i)
				c := r.expect(id)
				r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"echo","arguments":{"from":%d,"round":%d}}}`, id, n, i))
				if m := r.wait(c); !strings.Contains(string(m.Result.Structured), fmt.Sprintf(`"from":%d,"round":%d`, n, i)) {
					t.Errorf("session %d round %d: %s", n, i, m.raw)
				}
			}
			for i := range 20 {
				id := fmt.Sprintf(`"p%d"`, i)
				c := r.expect(id)
				r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"progress","arguments":{"n":%d},"_meta":{"progressToken":1}}}`, id, 3+n))
				r.wait(c)
				seen := 0
				for done := false; !done; {
					select {
					case m := <-r.notes:
						if m.Method == "notifications/progress" {
							seen++
							if !strings.Contains(m.raw, fmt.Sprintf(`"total":%d`, 3+n)) || !strings.Contains(m.raw, `"progressToken":1`) {
								t.Errorf("session %d: progress of another: %s", n, m.raw)
							}
						}
					default:
						done = true
					}
				}
				if seen != 3+n {
					t.Errorf("session %d: %d reports of progress, not %d", n, seen, 3+n)
				}
			}
		})
	}
	wg.Wait()
}

// Two projects run at once with the same ids; neither sees the other's answers.
func TestC010_ProjectsWithEqualIdsNeverCross(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for _, p := range []project{w.a, w.b} {
		tok, _ := w.token(p, runtimeUID)
		r := w.connect(p, runtimeUID, tok).initialize()
		wg.Go(func() {
			for i := range 100 {
				if m := r.call("echo", fmt.Sprintf(`{"project":%q,"i":%d}`, p.label, i)); !strings.Contains(string(m.Result.Structured), fmt.Sprintf(`{"project":%q,"i":%d}`, p.label, i)) {
					t.Errorf("%s: %s", p.label, m.raw)
				}
			}
		})
	}
	wg.Wait()
	if a, b := len(w.calls(w.a)), len(w.calls(w.b)); a != 100 || b != 100 {
		t.Errorf("the servers received %d and %d calls", a, b)
	}
}
