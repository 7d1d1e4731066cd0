package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// statusShown is what status prints as JSON: everybody's part, and root's.
type statusShown struct {
	api.StatusResult
	Metrics *api.MetricsResult `json:"metrics,omitempty"` // for root alone
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{Use: "status", Short: "whether the supervisor serves calls, and for root how much it does", Args: exactly(),
		Long: "Says in which state the authority is: serving, denying (calls cannot be recorded), draining or drained. For root it adds why,\n" +
			"what lives, and sums since the authority started; postern-metrics shows the same to Prometheus.",
		Example: "  postern status\n  postern status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := ask[api.StatusResult](cmd.Context(), a, api.Status, struct{}{}, client.Options{})
			if err != nil {
				return err
			}
			out := statusShown{StatusResult: st}
			if os.Geteuid() == 0 {
				m, err := ask[api.MetricsResult](cmd.Context(), a, api.Metrics, struct{}{}, client.Options{})
				if err != nil {
					return err
				}
				out.Metrics = &m
			}
			return a.show(out, func(t *table) { out.print(t) })
		}}
}

func (s statusShown) print(t *table) {
	t.row("state", s.State)
	t.row("version", s.Version)
	t.row("access policy", policyWord(s.Access))
	if s.ReadOnly != 0 {
		t.row("read-only since", when(s.ReadOnly))
	}
	if c := s.StatusCounts; c != nil {
		if c.Reason != "" {
			t.row("calls are denied", sentence(c.Reason))
		}
		if c.AccessError != "" {
			t.whole(policyTrouble(s.Access), c.AccessError)
		}
	}
	m := s.Metrics
	if m == nil {
		return
	}
	up := time.Since(time.UnixMilli(m.Started)).Round(time.Second)
	t.row("authority since", fmt.Sprintf("%s (%v)", when(m.Started), up))
	t.row("projects", m.Projects)
	t.row("sessions", m.Sessions)
	t.row("bridges", m.Bridges)
	running := 0
	for _, n := range m.Servers {
		running += n
	}
	t.row("tool servers", running)
	t.row("calls open", m.OpenCalls)
	t.row("calls admitted", m.Admitted)
	t.row("calls ended", fmt.Sprintf("%d completed, %d failed, %d cancelled, %d unknown", m.Ended["completed"], m.Ended["failed"], m.Ended["cancelled"], m.Ended["unknown"]))
	var refused uint64
	for _, n := range m.Refused {
		refused += n
	}
	t.row("refused", refused)
	t.row("ended by themselves", fmt.Sprintf("%d tool servers, %d bridges", m.ServerFailures, m.BridgeFailures))
	t.row("bridges that missed a fence", fmt.Sprintf("%d of %d fences", m.FenceKills, m.Fences))
	t.row("changes that could not be recorded", m.AuditErrors)
	t.row("store", fmt.Sprintf("policy.db %s, activity.db %s, %s free", size(m.PolicyBytes), size(m.ActivityBytes), size(m.FreeBytes)))
}

// policyWord says what a state of the access policy means for those it governs.
func policyWord(state string) string {
	switch state {
	case "mistaken":
		return "read, with a mistake: whom it is about is denied"
	case "denying":
		return "denying everyone: it cannot be read"
	}
	return state
}

// policyTrouble heads what is wrong with it.
func policyTrouble(state string) string {
	if state == "mistaken" {
		return "access policy has a mistake"
	}
	return "access policy cannot be used"
}
