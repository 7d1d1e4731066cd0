package hostile

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A call that dies because its server makes a system call that no jail allows says so
// in activity: the code, the call by its name, the jail. So do ps and the calls that
// were in flight beside it. The same kernel function by the allowed way is answered.
func TestJ3_AForbiddenSystemCallIsInActivity(t *testing.T) {
	w, r := hostileWorld(t, "sys", "echo")
	if got := r.sys(`{"op":"getpid"}`); got != "returned 1" {
		t.Fatalf("the allowed way: %s", got)
	}
	died := w.jail(w.a, "server")
	if died.Jail == "" {
		t.Fatal("no server runs")
	}
	if got := r.sys(`{"op":"int80"}`); got != "server_exited" {
		t.Fatalf("the forbidden way: %s", got)
	}
	var rec row
	until(t, "the record has its outcome", func() bool {
		rows := w.records(w.a)
		i := slices.IndexFunc(rows, func(x row) bool { return x.Tool == "sys" })
		rec = rows[i]
		return rec.State != "admitted"
	})
	if rec.State != "unknown" || rec.Code != "server_forbidden_call" {
		t.Errorf("the record: %+v", rec)
	}
	// Where an audit daemon takes the kernel's records the call stays unnamed; here none does.
	if want := regexp.MustCompile(`^its system call filter ended it: 32-bit call 20 \(getpid\) \(jal_[0-9a-f-]+\)$`); !want.MatchString(rec.Reason) {
		t.Errorf("the reason: %q", rec.Reason)
	}
	out := w.must("activity", "--project", "a", "--limit", "1")
	if !strings.Contains(out, "server_forbidden_call") || !strings.Contains(out, rec.Reason) {
		t.Errorf("activity shows\n%s", out)
	}
	var page api.ActivityResult
	if err := json.Unmarshal([]byte(w.must("activity", "--project", "a", "--limit", "1", "--json")), &page); err != nil || page.Rows[0].Reason != rec.Reason {
		t.Errorf("activity --json: %v %+v", err, page)
	}
	if m := r.call("echo", `{}`); m.outcome() != "ok" {
		t.Errorf("the other server afterwards: %s", m.raw)
	}
	w.works(w.a)
	ok := w.records(w.a)
	if i := slices.IndexFunc(ok, func(x row) bool { return x.State == "completed" }); i < 0 || ok[i].Code != "" || ok[i].Reason != "" {
		t.Errorf("a call that ended well: %+v", ok[0])
	}
}
