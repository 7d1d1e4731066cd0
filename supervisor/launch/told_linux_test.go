package launch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
)

// Only what is worded for everyone, or is of the project's own directory, is told of a
// launch that failed.
func TestWhyALaunchFailedIsToldWithoutTheRegistration(t *testing.T) {
	const hidden = "/opt/hidden/program"
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("open " + hidden), "its jail was not started"},
		{&jail.StepError{Step: "exec", Why: hidden + ": permission denied"}, "the step exec"},
		{fmt.Errorf("start: %w", &jail.StepError{Step: "binds", Why: hidden}), "the step binds"},
		{&jail.StepError{Step: "protect", Why: `".mcp.json" is a symbolic link`}, ".mcp.json"},
		{api.Refuse(refusal.CredentialMissing, "Root sees which."), "Root sees which"},
	} {
		if got := toldOf(c.err); strings.Contains(got, hidden) || !strings.Contains(got, c.want) {
			t.Errorf("%v is told as %q", c.err, got)
		}
	}
}
