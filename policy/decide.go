package policy

import (
	"postern/policy/class"
	"postern/refusal"
)

// Decide returns the verdict on f: the rules are asked in a fixed order, the
// first that denies gives the code and all others are listed. When the tool is
// outside the project's connections the rules about tools are not asked, because
// their answers would tell a foreign tool from one that does not exist.
func Decide(f *Facts) Verdict {
	v := Verdict{Allow: true}
	deny := func(c refusal.Code) {
		if v.Allow {
			v.Allow, v.Code = false, c
			return
		}
		v.Also = append(v.Also, c)
	}

	switch f.Account {
	case AccountActive:
	case AccountSuspended:
		deny(refusal.AccountSuspended)
	case AccountDeleted:
		deny(refusal.AccountDeleted)
	default:
		deny(refusal.AccountUnknown)
	}
	switch f.Project {
	case ProjectLive:
	case ProjectDeleted:
		deny(refusal.ProjectDeleted)
	case ProjectReplaced:
		deny(refusal.ProjectReplaced)
	default:
		deny(refusal.ProjectUnknown)
	}
	switch {
	case f.Task == TaskLive && f.Bound:
	case f.Task == TaskEnded:
		deny(refusal.TaskEnded)
	default:
		deny(refusal.TaskUnknown)
	}
	if !f.Session {
		deny(refusal.SessionEnded)
	}
	switch f.Host {
	case HostAssigned:
	case HostNotAssigned:
		deny(refusal.HostNotAssigned)
	default:
		deny(refusal.HostUnknown)
	}
	if !f.Member {
		deny(refusal.NotMember)
	}

	if f.Connection != ConnectionEnabled && f.Connection != ConnectionDisabled {
		deny(refusal.ToolUnknown)
		return v
	}
	if f.Connection == ConnectionDisabled {
		deny(refusal.ConnectionDisabled)
	}
	if f.Accepted == "" || f.Accepted != f.Current || f.Accepted != f.Running {
		deny(refusal.ServerRevisionChanged)
	}
	if !f.Granted {
		deny(refusal.ToolNotGranted)
	}
	switch f.Pin {
	case PinMatches:
	case PinQuarantined:
		deny(refusal.ToolQuarantined)
	default:
		// A tool without a grant has nothing to compare with; its own rule denied.
		if f.Granted {
			deny(refusal.ToolChanged)
		}
	}

	if !f.Principal {
		deny(refusal.PrincipalRefused)
	}
	if f.Ceiling != Allowed {
		deny(refusal.AccessRefused)
	}
	if f.Mode != Allowed {
		deny(refusal.ModeRefused)
	}
	if f.Profile != Allowed {
		deny(refusal.ProfileRefused)
	}
	if !f.Credential {
		deny(refusal.CredentialMissing)
	}
	if f.Tier != class.Observe && f.Tier != class.Reversible && !f.Approved {
		deny(refusal.ApprovalRequired)
	}
	switch f.Limits {
	case WithinLimits:
	case TooManyCalls:
		deny(refusal.LimitCalls)
	case TooManyStarts:
		deny(refusal.LimitStarts)
	case Draining:
		deny(refusal.Draining)
	default:
		deny(refusal.Busy)
	}
	if !f.Recordable {
		deny(refusal.StoreUnavailable)
	}
	return v
}
