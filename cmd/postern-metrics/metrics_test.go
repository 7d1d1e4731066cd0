package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"postern/refusal"
	"postern/supervisor/api"
)

// authority answers on a socket as control.sock does, with what the test puts in.
type authority struct {
	state  atomic.Value // what status says
	refuse atomic.Bool
	silent atomic.Bool
	asked  atomic.Int64
}

func newAuthority(t *testing.T) (*authority, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(api.ControlSocket))
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	a := &authority{}
	a.state.Store("serving")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go a.serve(t, c)
		}
	}()
	return a, path
}

func (a *authority) serve(t *testing.T, c net.Conn) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return
	}
	req, err := api.DecodeRequest(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		t.Error(err)
		return
	}
	a.asked.Add(1)
	if a.silent.Load() {
		io.Copy(io.Discard, c)
		return
	}
	answer := api.Response{ID: req.ID}
	var result any = api.StatusResult{State: a.state.Load().(string)}
	if req.Action == api.Metrics {
		result = api.MetricsResult{Version: "v1.2.3", State: a.state.Load().(string), Access: "mistaken", Started: 1_790_000_000_500, Projects: 2, Sessions: 3, Bridges: 1, Servers: map[string]int{"ready": 4, "ending": 0}, OpenCalls: 5, Admitted: 100,
			Ended: map[string]uint64{"completed": 90, "failed": 3, "cancelled": 1, "unknown": 1}, Refused: map[string]uint64{"tool_not_granted": 7},
			Admission: api.Histogram{BoundsUsec: []int64{500, 1000}, Counts: []uint64{90, 9, 1}, SumUsec: 60_000}, Commit: api.Histogram{BoundsUsec: []int64{500, 1000}, Counts: []uint64{1, 2, 3}, SumUsec: 9000},
			ServerFailures: 2, Fences: 8, PolicyBytes: 4096, ActivityBytes: 8192, FreeBytes: 1 << 30}
	}
	if a.refuse.Load() && req.Action == api.Metrics {
		answer.Refusal = api.Refuse(refusal.NotPermitted, "No.")
	} else if answer.Result, err = api.EncodeValue(result); err != nil {
		t.Error(err)
	}
	out, err := api.Encode(answer)
	if err != nil {
		t.Error(err)
	}
	c.Write(out)
}

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func newServer(t *testing.T) (*authority, http.Handler) {
	a, path := newAuthority(t)
	return a, server(path, hclog.NewNullLogger()).Handler
}

func TestScrapeIsGoodPrometheusText(t *testing.T) {
	_, h := newServer(t)
	code, text := get(t, h, "GET", "/metrics")
	if code != 200 {
		t.Fatal(code, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, line := range []string{
		`postern_up 1`, `postern_build_info{version="v1.2.3"} 1`, `postern_state{state="serving"} 1`, `postern_state{state="denying"} 0`, `postern_access_policy{state="mistaken"} 1`, `postern_access_policy{state="read"} 0`, `postern_start_time_seconds 1.7900000005e+09`,
		`postern_servers{state="ready"} 4`, `postern_calls_open 5`, `postern_calls_ended_total{outcome="completed"} 90`, `postern_refusals_total{code="tool_not_granted"} 7`,
		`postern_admission_seconds_bucket{le="0.0005"} 90`, `postern_admission_seconds_bucket{le="0.001"} 99`, `postern_admission_seconds_bucket{le="+Inf"} 100`, `postern_admission_seconds_sum 0.06`,
		`postern_store_commit_seconds_count 6`, `postern_store_bytes{file="activity.db"} 8192`, `postern_failures_total{kind="server"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
}

var typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)

func exported(t *testing.T) map[string]string {
	t.Helper()
	_, h := newServer(t)
	_, text := get(t, h, "GET", "/metrics")
	out := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// The page of metrics has a row for each, and no other.
func TestThePageOfMetricsIsWhatIsExported(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(postern_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		written[m[1]] = m[2]
	}
	out := exported(t)
	if len(out) != len(all) {
		t.Errorf("%d metrics are exported, %d are described", len(out), len(all))
	}
	if len(out) != len(written) {
		t.Errorf("%d metrics are exported, %d are on the page", len(out), len(written))
	}
	for name, kind := range out {
		if written[name] != kind {
			t.Errorf("%s is a %s, the page says %q", name, kind, written[name])
		}
	}
}

// The dashboard and the alerts name no metric that there is not.
func TestDashboardAndAlertsNameWhatIsExported(t *testing.T) {
	out := exported(t)
	for file, decode := range map[string]func([]byte, any) error{
		"../../packaging/grafana/postern.json":         json.Unmarshal,
		"../../packaging/prometheus/postern.rules.yml": func(raw []byte, to any) error { return yaml.Unmarshal(raw, to) },
	} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var whole map[string]any
		if err := decode(raw, &whole); err != nil || len(whole) == 0 {
			t.Errorf("%s: %v", file, err)
		}
		names := regexp.MustCompile(`postern_[a-z_]+`).FindAllString(string(raw), -1)
		if len(names) < 8 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			if out[strings.TrimSuffix(name, "_bucket")] == "" {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
		// A state that no metric is ever in would be an alert that never fires.
		for _, m := range regexp.MustCompile(`postern_(state|access_policy)\{state=~?"([a-z|]+)"\}`).FindAllStringSubmatch(string(raw), -1) {
			known := map[string][]string{"state": states, "access_policy": policies}[m[1]]
			for word := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(known, word) {
					t.Errorf("%s: %s is no state of postern_%s", file, word, m[1])
				}
			}
		}
	}
}

// Labels are of closed tables: states, outcomes, codes, kinds and files.
func TestMetrics1_NoLabelIsChosenByOthers(t *testing.T) {
	_, h := newServer(t)
	_, text := get(t, h, "GET", "/metrics")
	permitted := []string{"version", "state", "outcome", "code", "kind", "file", "le"}
	for _, m := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(permitted, m[1]) {
			t.Errorf("a label is called %q", m[1])
		}
	}
}

func TestMetrics2_NoAnswerIsNoNumber(t *testing.T) {
	a, h := newServer(t)
	if _, text := get(t, h, "GET", "/metrics"); !strings.Contains(text, "postern_calls_open 5\n") {
		t.Fatal(text)
	}
	a.refuse.Store(true)
	code, text := get(t, h, "GET", "/metrics")
	if code != 200 || !strings.Contains(text, "postern_up 0\n") || strings.Contains(text, "postern_calls") {
		t.Errorf("%d: %s", code, text)
	}
	gone := server(filepath.Join(t.TempDir(), "none"), hclog.NewNullLogger()).Handler
	if code, text := get(t, gone, "GET", "/metrics"); code != 200 || !strings.Contains(text, "postern_up 0\n") {
		t.Errorf("%d: %s", code, text)
	}
}

func TestMetrics3_ReadyMeansThatCallsAreTakenNow(t *testing.T) {
	a, h := newServer(t)
	if code, text := get(t, h, "GET", "/readyz"); code != 200 || text != "serving\n" {
		t.Errorf("%d %q", code, text)
	}
	for _, state := range []string{"denying", "draining", "drained"} {
		a.state.Store(state)
		if code, text := get(t, h, "GET", "/readyz"); code != 503 || text != state+"\n" {
			t.Errorf("%d %q", code, text)
		}
	}
	a.silent.Store(true)
	began := time.Now()
	if code, text := get(t, h, "GET", "/readyz"); code != 503 || text != "unreachable\n" || time.Since(began) > askWait {
		t.Errorf("silent: %d %q after %v", code, text, time.Since(began))
	}
	if code, _ := get(t, h, "GET", "/healthz"); code != 200 {
		t.Errorf("it lives: %d", code)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	_, h := newServer(t)
	for _, row := range []struct {
		method, path string
		want         int
	}{{"POST", "/metrics", 405}, {"GET", "/", 404}, {"GET", "/debug/pprof/", 404}, {"HEAD", "/healthz", 200}} {
		if code, _ := get(t, h, row.method, row.path); code != row.want {
			t.Errorf("%s %s: %d", row.method, row.path, code)
		}
	}
}

// Over a real port: it serves, bounds its connections, and ends when it is told to.
func TestRunServesAndEnds(t *testing.T) {
	_, path := newAuthority(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	where, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, "127.0.0.1:0", path, hclog.NewNullLogger(), func(a net.Addr) { where <- a })
	}()
	addr := <-where
	var held []net.Conn
	for range maxConns {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	late, err := net.Dial("tcp", addr.String()) // the kernel takes it, the program does not yet
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	fmt.Fprint(late, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	for _, c := range held {
		c.Close()
	}
	late.SetReadDeadline(time.Now().Add(30 * time.Second))
	if raw, err := io.ReadAll(late); err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 200") {
		t.Errorf("%q, %v", raw, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it did not end")
	}
}
