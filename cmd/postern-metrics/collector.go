package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"postern/refusal"
	"postern/supervisor/api"
)

// metric is one name with its meaning; docs/metrics.md has a row for each.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// The metrics. Labels have values of closed tables: states of the program, codes of
// refusals, files of the store.
var (
	up       = gauge("postern_up", "1 where the authority answered this scrape.")
	build    = gauge("postern_build_info", "1, with the version of the authority.", "version")
	state    = gauge("postern_state", "1 for the state that the authority is in, 0 for the others.", "state")
	started  = gauge("postern_start_time_seconds", "When the authority started; every counter begins there.")
	projects = gauge("postern_projects", "Projects that are not deleted.")
	sessions = gauge("postern_sessions", "Live sessions of runtimes.")
	policy   = gauge("postern_access_policy", "1 for the state the access policy is in.", "state")
	bridges  = gauge("postern_bridges", "Live bridges.")
	servers  = gauge("postern_servers", "Live tool servers by state.", "state")
	open     = gauge("postern_calls_open", "Calls that were admitted and have no outcome yet.")
	admitted = counter("postern_calls_admitted_total", "Calls that were admitted.")
	ended    = counter("postern_calls_ended_total", "Calls that ended, by outcome.", "outcome")
	refused  = counter("postern_refusals_total", "Calls and connections that were refused, by code.", "code")
	failures = counter("postern_failures_total", "Processes that ended without being told to, by kind.", "kind")
	fences   = counter("postern_fences_total", "Changes that bridges had to acknowledge.")
	kills    = counter("postern_fence_kills_total", "Bridges that were ended because they did not acknowledge.")
	audits   = counter("postern_audit_errors_total", "Changes that were refused because their record could not be written.")
	stored   = gauge("postern_store_bytes", "Size of the store's files.", "file")
	free     = gauge("postern_store_free_bytes", "What the store's file system has left for the authority.")

	admission = metric{prometheus.NewDesc("postern_admission_seconds", "From hearing a bridge's question to its durable yes.", nil, nil), prometheus.UntypedValue}
	commit    = metric{prometheus.NewDesc("postern_store_commit_seconds", "Making records durable.", nil, nil), prometheus.UntypedValue}
)

var all = []metric{up, build, state, policy, started, projects, sessions, bridges, servers, open, admitted, ended, refused, failures, fences, kills, audits, stored, free, admission, commit}

// states are those of api.StatusResult.
var states = []string{"serving", "denying", "draining", "drained"}

// policies are those of the access policy there.
var policies = []string{"none", "read", "mistaken", "denying"}

// collector asks the authority at each scrape.
type collector struct {
	socket string
	log    hclog.Logger
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range all {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	say := func(m metric, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWait)
	defer cancel()
	r, err := ask[api.MetricsResult](ctx, c.socket, api.Metrics)
	if err != nil {
		c.log.Warn("the authority was not asked", "error", hint(err))
		say(up, 0)
		return
	}
	say(up, 1)
	say(build, 1, r.Version)
	one := func(m metric, now string, all []string) {
		for _, s := range all {
			is := 0.0
			if s == now {
				is = 1
			}
			say(m, is, s)
		}
	}
	one(state, r.State, states)
	one(policy, r.Access, policies)
	say(started, float64(r.Started)/1000)
	say(projects, float64(r.Projects))
	say(sessions, float64(r.Sessions))
	say(bridges, float64(r.Bridges))
	for s, n := range r.Servers {
		say(servers, float64(n), s)
	}
	say(open, float64(r.OpenCalls))
	say(admitted, float64(r.Admitted))
	for outcome, n := range r.Ended {
		say(ended, float64(n), outcome)
	}
	for code, n := range r.Refused {
		say(refused, float64(n), code)
	}
	say(failures, float64(r.ServerFailures), "server")
	say(failures, float64(r.BridgeFailures), "bridge")
	say(fences, float64(r.Fences))
	say(kills, float64(r.FenceKills))
	say(audits, float64(r.AuditErrors))
	say(stored, float64(r.PolicyBytes), "policy.db")
	say(stored, float64(r.ActivityBytes), "activity.db")
	say(free, float64(r.FreeBytes))
	for m, h := range map[metric]api.Histogram{admission: r.Admission, commit: r.Commit} {
		if len(h.Counts) != len(h.BoundsUsec)+1 {
			continue // not of this version
		}
		buckets, count := map[float64]uint64{}, uint64(0)
		for i, bound := range h.BoundsUsec {
			count += h.Counts[i]
			buckets[(time.Duration(bound) * time.Microsecond).Seconds()] = count
		}
		count += h.Counts[len(h.BoundsUsec)]
		to <- prometheus.MustNewConstHistogram(m.desc, count, float64(h.SumUsec)/1e6, buckets)
	}
}

// hint adds to a refusal who may ask.
func hint(err error) error {
	var r *api.Refusal
	if errors.As(err, &r) && r.Code == refusal.NotPermitted {
		return fmt.Errorf("%w This runs as uid %d", err, os.Geteuid())
	}
	return err
}
