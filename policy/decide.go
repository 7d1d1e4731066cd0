package policy

import (
	"postern/policy/class"
	"postern/refusal"
)

// rule is one question of a decision.
type rule uint8

// The rules, in the order in which Decide and Explain ask them.
const (
	ruleAccount rule = iota
	ruleProject
	ruleTask
	ruleSession
	ruleHost
	ruleMember
	ruleConnection
	ruleRevision
	ruleGrant
	rulePin
	rulePrincipal
	ruleAccess
	ruleMode
	ruleProfile
	ruleApart
	rulePaths
	ruleCredential
	ruleApproval
	ruleLimits
	ruleRecord

	rules
)

var ruleNames = [rules]string{"account", "project", "task", "session", "host", "member", "connection", "revision", "grant", "pin", "principal", "access policy",
	"mode", "execution profile", "shared directory", "path arguments", "credential", "approval", "limits", "record"}

// ask answers with the code that denies, "" where the rule passes, and false where
// there is nothing to ask. It is a switch and no table of functions, through which
// the facts would escape to the heap at each decision.
func (r rule) ask(f *Facts) (refusal.Code, bool) {
	switch r {
	case ruleAccount:
		return account(f), true
	case ruleProject:
		return project(f), true
	case ruleTask:
		return task(f), true
	case ruleSession:
		return unless(f.Session, refusal.SessionEnded), true
	case ruleHost:
		return host(f), true
	case ruleMember:
		return unless(f.Member, refusal.NotMember), true
	case ruleConnection:
		return connection(f), true
	case ruleRevision:
		return unless(f.Accepted != "" && f.Accepted == f.Current && f.Accepted == f.Running, refusal.ServerRevisionChanged), true
	case ruleGrant:
		return unless(f.Granted, refusal.ToolNotGranted), true
	case rulePin:
		return pin(f)
	case rulePrincipal:
		return principal(f), true
	case ruleAccess:
		return unless(f.Ceiling == Allowed, refusal.AccessRefused), true
	case ruleMode:
		return mode(f), true
	case ruleProfile:
		return unless(f.Profile == Allowed, refusal.ProfileRefused), true
	case ruleApart:
		return unless(f.Apart, refusal.WorkspaceShared), true
	case rulePaths:
		return unless(f.Paths == PathsInside, refusal.PathOutside), true
	case ruleCredential:
		return unless(f.Credential, refusal.CredentialMissing), true
	case ruleApproval:
		return unless(f.Tier == class.Observe || f.Tier == class.Reversible || f.Approved, refusal.ApprovalRequired), true
	case ruleLimits:
		return limits(f), true
	case ruleRecord:
		return unless(f.Recordable, refusal.StoreUnavailable), true
	}
	return refusal.Internal, true
}

func unless(holds bool, code refusal.Code) refusal.Code {
	if holds {
		return ""
	}
	return code
}

// Decide returns the verdict on f: the rules are asked in a fixed order, the
// first that denies gives the code and all others are listed. When the tool is
// outside the project's connections the rules about tools are not asked, because
// their answers would tell a foreign tool from one that does not exist.
func Decide(f *Facts) Verdict {
	v := Verdict{Allow: true}
	for r := range rules {
		code, _ := r.ask(f)
		if code == "" {
			continue
		}
		if v.Allow {
			v.Allow, v.Code = false, code
		} else {
			v.Also = append(v.Also, code)
		}
		if code == refusal.ToolUnknown {
			break
		}
	}
	return v
}

// Answered is what one rule said.
type Answered struct {
	Rule  string
	Asked bool         // false where an earlier answer left nothing to ask
	Code  refusal.Code // why it denies; empty where it passes or was not asked
}

// Explain asks what Decide asks and tells every rule's answer, in order.
func Explain(f *Facts) []Answered {
	out := make([]Answered, 0, rules)
	foreign := false
	for r := range rules {
		a := Answered{Rule: ruleNames[r]}
		if !foreign {
			a.Code, a.Asked = r.ask(f)
		}
		foreign = foreign || a.Code == refusal.ToolUnknown
		out = append(out, a)
	}
	return out
}

func account(f *Facts) refusal.Code {
	switch f.Account {
	case AccountActive:
		return ""
	case AccountSuspended:
		return refusal.AccountSuspended
	case AccountDeleted:
		return refusal.AccountDeleted
	}
	return refusal.AccountUnknown
}

func project(f *Facts) refusal.Code {
	switch f.Project {
	case ProjectLive:
		return ""
	case ProjectDeleted:
		return refusal.ProjectDeleted
	case ProjectReplaced:
		return refusal.ProjectReplaced
	}
	return refusal.ProjectUnknown
}

func task(f *Facts) refusal.Code {
	switch {
	case f.Task == TaskLive && f.Bound:
		return ""
	case f.Task == TaskEnded:
		return refusal.TaskEnded
	}
	return refusal.TaskUnknown
}

func host(f *Facts) refusal.Code {
	switch f.Host {
	case HostAssigned:
		return ""
	case HostNotAssigned:
		return refusal.HostNotAssigned
	}
	return refusal.HostUnknown
}

func connection(f *Facts) refusal.Code {
	switch f.Connection {
	case ConnectionEnabled:
		return ""
	case ConnectionDisabled:
		return refusal.ConnectionDisabled
	case ConnectionOrphaned:
		return refusal.ServerDeleted
	}
	return refusal.ToolUnknown
}

func pin(f *Facts) (refusal.Code, bool) {
	switch {
	case f.Pin == PinMatches:
		return "", true
	case f.Pin == PinQuarantined:
		return refusal.ToolQuarantined, true
	case !f.Granted:
		// A tool without a grant has nothing to compare with; its own rule denied.
		return "", false
	}
	return refusal.ToolChanged, true
}

func principal(f *Facts) refusal.Code {
	switch f.Principal {
	case PrincipalAdmitted:
		return ""
	case PrincipalBlocked:
		return refusal.PrincipalBlocked
	case PrincipalUnreadable:
		return refusal.AccessUnavailable
	}
	return refusal.PrincipalRefused
}

func mode(f *Facts) refusal.Code {
	switch f.Mode {
	case Allowed:
		return ""
	case RefusedWider:
		return refusal.ModeFloor
	}
	return refusal.ModeRefused
}

func limits(f *Facts) refusal.Code {
	switch f.Limits {
	case WithinLimits:
		return ""
	case TooManyCalls:
		return refusal.LimitCalls
	case TooManyStarts:
		return refusal.LimitStarts
	case Draining:
		return refusal.Draining
	}
	return refusal.Busy
}
