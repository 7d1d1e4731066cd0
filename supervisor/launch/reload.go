package launch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"postern/jail/spec"
	"postern/supervisor/audit"
	"postern/supervisor/order"
)

// settings are what may change while posternd runs. They are replaced as a whole.
type settings struct {
	hosts    []order.Host
	keep     order.Keep
	sessions order.Sessions
	artifact order.KeepArtifacts
	audit    audit.Retention
	drain    time.Duration
	metrics  uint32
	profiles map[string]spec.Profile
}

func settingsOf(c Config) settings {
	return settings{c.Hosts, c.Keep, c.Sessions, c.Artifacts, c.Audit, c.Drain, c.MetricsUID, c.Profiles}
}

// with is the configuration that holds once the settings are taken.
func (c Config) with(n settings) Config {
	c.Hosts, c.Keep, c.Sessions, c.Artifacts, c.Audit, c.Drain, c.MetricsUID, c.Profiles = n.hosts, n.keep, n.sessions, n.artifact, n.audit, n.drain, n.metrics, n.profiles
	return c
}

// difference is one key that a new configuration changes.
type difference struct{ key, before, after string }

// differences lists what changes at once, in the words of the log and the audit.
func (o settings) differences(n settings) (out []difference) {
	add := func(key, before, after string) {
		if before != after {
			out = append(out, difference{key, before, after})
		}
	}
	for _, id := range names(o.hosts, n.hosts) {
		add("hosts."+id, hostText(o.hosts, id), hostText(n.hosts, id))
	}
	add("activity", fmt.Sprintf("keep_days %d, keep_mib %d", o.keep.Days, o.keep.MiB), fmt.Sprintf("keep_days %d, keep_mib %d", n.keep.Days, n.keep.MiB))
	add("artifacts", artifactText(o.artifact), artifactText(n.artifact))
	add("audit", fmt.Sprintf("file_kib %d, old_files %d", o.audit.MaxBytes>>10, o.audit.Keep), fmt.Sprintf("file_kib %d, old_files %d", n.audit.MaxBytes>>10, n.audit.Keep))
	add("sessions", sessionsText(o.sessions), sessionsText(n.sessions))
	add("metrics_uid", fmt.Sprint(o.metrics), fmt.Sprint(n.metrics))
	add("drain_seconds", fmt.Sprint(int(o.drain.Seconds())), fmt.Sprint(int(n.drain.Seconds())))
	all := maps.Clone(o.profiles)
	maps.Copy(all, n.profiles)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		add("profiles."+name, profileText(o.profiles, name), profileText(n.profiles, name))
	}
	return out
}

func artifactText(k order.KeepArtifacts) string {
	return fmt.Sprintf("keep_days %d, keep_mib %d, project_mib %d", k.Days, k.MiB, k.ProjectMiB)
}

func names(lists ...[]order.Host) []string {
	ids := map[string]bool{}
	for _, list := range lists {
		for _, h := range list {
			ids[h.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

func sessionsText(s order.Sessions) string {
	return fmt.Sprintf("requests %d, line_kib %d, line_wait_seconds %d, depth %d, queue_kib %d", s.Requests, s.LineKiB, s.LineWaitSeconds, s.Depth, s.QueueKiB)
}

func hostText(hosts []order.Host, id string) string {
	for _, h := range hosts {
		if h.ID == id {
			return fmt.Sprintf("uid %d, accounts %v, projects %v, channels %v", h.UID, h.Accounts, h.Projects, h.Channels)
		}
	}
	return "none"
}

func profileText(profiles map[string]spec.Profile, name string) string {
	if p, ok := profiles[name]; ok {
		return "digest " + p.Digest
	}
	return "none"
}

// needRestart lists the keys in which the files say something else than what runs, and
// which a running posternd does not take.
func needRestart(runs, says Config) []string {
	var out []string
	if runs.UIDs != says.UIDs {
		out = append(out, fmt.Sprintf("uid_range: %s runs, %s is written", rangeText(runs.UIDs), rangeText(says.UIDs)))
	}
	if runs.UID != says.UID || runs.GID != says.GID {
		out = append(out, fmt.Sprintf("authority-user: %d:%d runs, the user is %d:%d now", runs.UID, runs.GID, says.UID, says.GID))
	}
	return out
}

// summary is a reload in one record of the audit: what changed, before and after.
func summary(all []difference) (target, before, after string) {
	var keys, b, a []string
	for _, d := range all {
		keys, b, a = append(keys, d.key), append(b, d.key+": "+d.before), append(a, d.key+": "+d.after)
	}
	return strings.Join(keys, ", "), strings.Join(b, "; "), strings.Join(a, "; ")
}
