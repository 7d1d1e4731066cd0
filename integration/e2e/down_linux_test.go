package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A server that cannot start is said where people look: the call is recorded as
// refused, ps has a row with the reason, the connection is not ready; and it heals by
// itself once the cause is gone.
func TestAServerThatDoesNotStartIsSaidEverywhere(t *testing.T) {
	w := newWorld(t)
	link := filepath.Join(w.a.workspace, ".mcp.json")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("echo", `{}`); got.outcome() != "server_unavailable" {
		t.Fatalf("%s", got.raw)
	}
	if row := w.records(w.a)[0]; row.State != "denied" || row.Code != "server_unavailable" || row.Tool != "echo" || !strings.Contains(row.Reason, ".mcp.json") {
		t.Errorf("the record: %+v", row)
	}
	down := func() (api.PsRow, bool) {
		var ps api.PsResult
		if err := w.Call(api.Ps, api.ProjectParams{Project: "a"}, &ps); err != nil {
			t.Fatal(err)
		}
		for _, row := range ps.Rows {
			if row.Kind == "server" {
				return row, row.State == "down"
			}
		}
		return api.PsRow{}, false
	}
	if row, ok := down(); !ok || row.LastError == "" || row.Label != "count" {
		t.Errorf("ps: %+v", row)
	}
	var con api.ConnectionResult
	if err := w.Call(api.ConnectionShow, api.ConnectionParams{Project: "a", Server: "count"}, &con); err != nil {
		t.Fatal(err)
	}
	if con.Readiness != "unavailable" || con.Reason == "" {
		t.Errorf("the connection: %s, %s", con.Readiness, con.Reason)
	}
	if n := len(w.calls(w.a)); n != 0 {
		t.Errorf("%d calls reached a server that never ran", n)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	until(t, "the server starts again by itself", func() bool { return r.call("echo", `{}`).outcome() == "ok" })
	if row, ok := down(); ok {
		t.Errorf("ps still says down: %+v", row)
	}
}

// A registration that was deleted takes its connections with it by name: what is
// registered anew under the label is another server, and gets nothing of the old one.
func TestADeletedServersLabelMeansTheNewOne(t *testing.T) {
	w := newWorld(t)
	w.must("server", "delete", "count")
	if _, errb, exit := w.CLI(0, "connection", "enable", "a", "count"); exit == 0 {
		t.Errorf("the dead connection is enabled: %s", errb)
	}
	w.must("server", "add", "count", "--profile", "static", "--package", filepath.Join(built.fixtures, "count"), "--", "/package/count")
	w.must("connection", "add", "a", "count")
	tok, _ := w.token(w.a, runtimeUID)
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.tools(); len(got) != 0 {
		t.Errorf("the new connection inherits %v", got)
	}
	w.must("connection", "grant", "a", "count", "echo")
	if got := r.call("count.echo", `{}`); got.outcome() != "ok" {
		t.Errorf("the new server's tool by its own name: %s", got.raw)
	}
}
