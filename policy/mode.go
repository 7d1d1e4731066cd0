package policy

import "postern/policy/class"

// The mode and the execution profile that exist until others are declared.
const (
	ModeCode        = "code"
	ProfileStandard = "standard"
)

// KnownMode tells whether a task may be made with the mode.
func KnownMode(mode string) bool { return mode == ModeCode }

// KnownProfile tells whether a project may be given the execution profile.
func KnownProfile(profile string) bool { return profile == ProfileStandard }

// ModeAnswer says whether a mode includes a tool. An unknown mode is undecided.
func ModeAnswer(mode string) Answer {
	if mode == ModeCode {
		return Allowed
	}
	return Undecided
}

// ProfileAnswer says whether an execution profile lets a tool run. In standard a
// tool that executes processes is kept out where its jail forbids spawning, for
// it could only fail there. An unknown profile is undecided.
func ProfileAnswer(profile string, classes class.Set, jailMaySpawn bool) Answer {
	if profile != ProfileStandard {
		return Undecided
	}
	if classes.Has(class.ProcessExecute) && !jailMaySpawn {
		return Refused
	}
	return Allowed
}
