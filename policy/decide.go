package policy

import (
	"postern/policy/class"
	"postern/refusal"
)

// rule is one question of a decision. It answers with the code that denies, "" where
// it passes, and false where there is nothing to ask.
type rule struct {
	name string
	ask  func(*Facts) (refusal.Code, bool)
}

// rules are asked in this order, which Decide and Explain share. A rule that is not
// in the table does not exist.
var rules = [...]rule{
	{"account", account},
	{"project", project},
	{"task", task},
	{"session", yes(func(f *Facts) bool { return f.Session }, refusal.SessionEnded)},
	{"host", host},
	{"member", yes(func(f *Facts) bool { return f.Member }, refusal.NotMember)},
	{"connection", connection},
	{"revision", yes(sameRevision, refusal.ServerRevisionChanged)},
	{"grant", yes(func(f *Facts) bool { return f.Granted }, refusal.ToolNotGranted)},
	{"pin", pin},
	{"principal", yes(func(f *Facts) bool { return f.Principal }, refusal.PrincipalRefused)},
	{"access policy", yes(func(f *Facts) bool { return f.Ceiling == Allowed }, refusal.AccessRefused)},
	{"mode", yes(func(f *Facts) bool { return f.Mode == Allowed }, refusal.ModeRefused)},
	{"execution profile", yes(func(f *Facts) bool { return f.Profile == Allowed }, refusal.ProfileRefused)},
	{"credential", yes(func(f *Facts) bool { return f.Credential }, refusal.CredentialMissing)},
	{"approval", yes(harmlessOrApproved, refusal.ApprovalRequired)},
	{"limits", limits},
	{"record", yes(func(f *Facts) bool { return f.Recordable }, refusal.StoreUnavailable)},
}

// Decide returns the verdict on f: the rules are asked in a fixed order, the
// first that denies gives the code and all others are listed. When the tool is
// outside the project's connections the rules about tools are not asked, because
// their answers would tell a foreign tool from one that does not exist.
func Decide(f *Facts) Verdict {
	v := Verdict{Allow: true}
	for i := range rules {
		code, _ := rules[i].ask(f)
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
	out := make([]Answered, 0, len(rules))
	foreign := false
	for i := range rules {
		a := Answered{Rule: rules[i].name}
		if !foreign {
			a.Code, a.Asked = rules[i].ask(f)
		}
		foreign = foreign || a.Code == refusal.ToolUnknown
		out = append(out, a)
	}
	return out
}

// yes makes a rule of a factor that either holds or denies with one code.
func yes(holds func(*Facts) bool, code refusal.Code) func(*Facts) (refusal.Code, bool) {
	return func(f *Facts) (refusal.Code, bool) {
		if holds(f) {
			return "", true
		}
		return code, true
	}
}

func account(f *Facts) (refusal.Code, bool) {
	switch f.Account {
	case AccountActive:
		return "", true
	case AccountSuspended:
		return refusal.AccountSuspended, true
	case AccountDeleted:
		return refusal.AccountDeleted, true
	}
	return refusal.AccountUnknown, true
}

func project(f *Facts) (refusal.Code, bool) {
	switch f.Project {
	case ProjectLive:
		return "", true
	case ProjectDeleted:
		return refusal.ProjectDeleted, true
	case ProjectReplaced:
		return refusal.ProjectReplaced, true
	}
	return refusal.ProjectUnknown, true
}

func task(f *Facts) (refusal.Code, bool) {
	switch {
	case f.Task == TaskLive && f.Bound:
		return "", true
	case f.Task == TaskEnded:
		return refusal.TaskEnded, true
	}
	return refusal.TaskUnknown, true
}

func host(f *Facts) (refusal.Code, bool) {
	switch f.Host {
	case HostAssigned:
		return "", true
	case HostNotAssigned:
		return refusal.HostNotAssigned, true
	}
	return refusal.HostUnknown, true
}

func connection(f *Facts) (refusal.Code, bool) {
	switch f.Connection {
	case ConnectionEnabled:
		return "", true
	case ConnectionDisabled:
		return refusal.ConnectionDisabled, true
	}
	return refusal.ToolUnknown, true
}

func sameRevision(f *Facts) bool {
	return f.Accepted != "" && f.Accepted == f.Current && f.Accepted == f.Running
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

func harmlessOrApproved(f *Facts) bool {
	return f.Tier == class.Observe || f.Tier == class.Reversible || f.Approved
}

func limits(f *Facts) (refusal.Code, bool) {
	switch f.Limits {
	case WithinLimits:
		return "", true
	case TooManyCalls:
		return refusal.LimitCalls, true
	case TooManyStarts:
		return refusal.LimitStarts, true
	case Draining:
		return refusal.Draining, true
	}
	return refusal.Busy, true
}
