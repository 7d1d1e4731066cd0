package gate

import (
	"postern/policy"
	"postern/refusal"
)

// State is where a capability stands for somebody, as every surface tells it.
type State string

// The states. Nothing that is known disappears: what cannot be used says why.
const (
	Registered    State = "registered"     // it exists, and nobody granted it
	Visible       State = "visible"        // it may be called now
	DeniedPolicy  State = "denied(policy)" // a rule about whoever asks refuses it
	Unavailable   State = "unavailable"    // what it needs is not there at the moment
	Unhealthy     State = "unhealthy"      // its server failed, or says something else than was accepted
	NotConfigured State = "not_configured" // somebody has yet to set it up
)

// Health is what is known of a connection's server beside the rules.
type Health struct {
	Down   string // why it does not run, "" where it runs or was not needed
	Held   bool   // it is kept from starting for a while
	Probed bool
	Failed string // why the last probe failed
	// Replaced says that the project's directory is not the registered one, where
	// posternd was asked.
	Replaced bool
}

// Standing is a state with its reason.
type Standing struct {
	State  State
	Code   refusal.Code // empty where it is visible
	Reason string       // for people; empty where the code's sentence says it all
}

// StandingOf is the one function from which every surface tells the state of a
// capability: the verdict on it, and the health of what serves it.
func StandingOf(e *Explained, h Health) Standing {
	v := e.Verdict
	switch {
	case v.Allow && h.Down != "":
		return Standing{Unhealthy, refusal.ServerUnavailable, "the server cannot be called: " + h.Down}
	case v.Allow:
		return Standing{State: Visible}
	}
	if v.Code == refusal.ToolNotGranted && e.Known.Standing() == policy.PinQuarantined {
		v.Code = refusal.ToolQuarantined // nobody could grant it
	}
	s := Standing{State: DeniedPolicy, Code: v.Code}
	for _, r := range e.Reasons {
		if r.Code == v.Code {
			s.Reason = r.Read
		}
	}
	switch v.Code {
	case refusal.ToolNotGranted:
		s.State = Registered
	case refusal.CredentialMissing:
		s.State = NotConfigured
	case refusal.ToolQuarantined:
		s.State = Unhealthy
	case refusal.ToolChanged:
		s.State = Unavailable
		if e.Known.Standing() == policy.PinMatches { // it is the running server that differs
			s.State = Unhealthy
		}
	case refusal.LimitStarts:
		s.State, s.Reason = Unhealthy, h.Down
	case refusal.ConnectionDisabled, refusal.ServerDeleted, refusal.ServerRevisionChanged, refusal.LimitCalls, refusal.Draining, refusal.Busy, refusal.StoreUnavailable:
		s.State = Unavailable
	}
	return s
}

// BareStanding is the state of a connection of whose server no tool is known.
func BareStanding(h Health) Standing {
	switch {
	case !h.Probed:
		return Standing{NotConfigured, "", "the server has not been probed yet"}
	case h.Failed != "":
		return Standing{Unhealthy, refusal.ServerUnavailable, "the last probe failed: " + h.Failed}
	}
	return Standing{NotConfigured, "", "the server offers no tool"}
}
