//go:build vm

package vm

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"os/user"
	"strings"
	"testing"
	"time"
)

const metricsURL = "http://127.0.0.1:9469"

// get reads one of the documents; a server that is not there yet has status 0.
func get(t *testing.T, path string) (status int, text string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	r, err := client.Get(metricsURL + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(raw)
}

// value is that of one metric of /metrics, "" where it has none.
func value(t *testing.T, name string) string {
	t.Helper()
	_, text := get(t, "/metrics")
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// The unit of metrics shows what the authority counts, to whom postern.yaml names and not
// before; without an authority it lives and says so.
func metrics(t *testing.T, w shop) {
	reader, err := user.Lookup("postern-metrics")
	if err != nil {
		t.Fatal(err)
	}
	command(t, "go", "build", "-o", libexec+"/postern-metrics", "../../cmd/postern-metrics")
	command(t, "systemctl", "start", "postern-metrics")
	t.Cleanup(func() { exec.Command("systemctl", "stop", "postern-metrics").Run() })
	until(t, "it lives", func() bool { status, _ := get(t, "/healthz"); return status == http.StatusOK })
	if v := value(t, "postern_up"); v != "0" {
		t.Errorf("a user whom nobody named is told: postern_up is %q", v)
	}
	configure(t, fmt.Sprintf("drain_seconds: %d\nmetrics_uid: %s\n", drainFor, reader.Uid))
	until(t, "it is told", func() bool { return value(t, "postern_up") == "1" })
	if status, text := get(t, "/readyz"); status != http.StatusOK || text != "serving\n" {
		t.Errorf("/readyz: %d %q", status, text)
	}
	before := value(t, `postern_calls_ended_total{outcome="completed"}`)
	session(t, w.project)
	after := func() string { return value(t, `postern_calls_ended_total{outcome="completed"}`) }
	until(t, "the call is counted", func() bool { return after() != before })
	if value(t, "postern_sessions") != "1" || value(t, `postern_servers{state="ready"}`) != "1" {
		_, text := get(t, "/metrics")
		t.Errorf("one session and one server are live:\n%s", text)
	}

	command(t, "systemctl", "stop", "postern")
	if status, text := get(t, "/readyz"); status != http.StatusServiceUnavailable || text != "unreachable\n" {
		t.Errorf("/readyz without an authority: %d %q", status, text)
	}
	if status, _ := get(t, "/healthz"); status != http.StatusOK || value(t, "postern_up") != "0" {
		t.Errorf("without an authority: /healthz %d, postern_up %q", status, value(t, "postern_up"))
	}
	again(t)
	until(t, "it is told again", func() bool { return value(t, "postern_up") == "1" })
}
