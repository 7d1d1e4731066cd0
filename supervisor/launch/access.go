package launch

import (
	"postern/policy"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
)

// mutation turns the parameters of an edit into what the policy's own package knows. A
// preset is level and write from here on; its name is kept nowhere.
func mutation(q api.AccessEditParams, f Facts) (access.Mutation, *api.Refusal) {
	m := access.Mutation{Action: access.Action(q.Action), Channel: q.Channel, Target: q.Target, Write: q.Write, On: q.On, Word: q.Word}
	bad := func(format string, args ...any) (access.Mutation, *api.Refusal) {
		return m, api.Refuse(refusal.BadRequest, format, args...)
	}
	if len(q.Target) > access.MaxIdentity || len(q.Channel) > access.MaxChannel {
		return bad("A channel has at most %d characters and a target %d.", access.MaxChannel, access.MaxIdentity)
	}
	switch m.Action {
	case access.SetLevel, access.SetPreset, access.SetDefault, access.SetGroupDefault, access.SetGroup:
		var ok bool
		switch {
		case (q.Level == "") == (q.Preset == ""):
			return bad("Name a level or a preset, and not both.")
		case q.Preset != "" && q.Write:
			return bad("A preset says itself whether there is write.")
		case q.Preset != "":
			if m.Level, m.Write, ok = access.ParsePreset(q.Preset); !ok {
				return bad("%.64q is no preset: want one of %q.", q.Preset, access.Presets())
			}
		default:
			if m.Level, ok = access.ParseLevel(q.Level); !ok {
				return bad("%.64q is no level: want chat, read or full.", q.Level)
			}
		}
	default:
		if q.Level != "" || q.Preset != "" || q.Write {
			return bad("%.64q has no level.", q.Action)
		}
	}
	// People know accounts by their names; the file holds ids, which are never used again.
	if m.Channel == access.Channel && m.Target != "" {
		i, refused := f.findAccount(m.Target)
		if refused != nil {
			return m, refused
		}
		m.Target = string(f.Accounts[i].ID)
	}
	return m, nil
}

// executionProfile is the one a matrix is for; standard where none is named.
func executionProfile(name string) (string, *api.Refusal) {
	if name == "" {
		return policy.ProfileStandard, nil
	}
	if !policy.KnownProfile(name) {
		return "", api.Refuse(refusal.BadRequest, "%.64q is no execution profile.", name)
	}
	return name, nil
}

// rows is the matrix as it is answered.
func rows(p *access.Policy, profile string) []api.AccessRow {
	out := []api.AccessRow{}
	for _, r := range p.Matrix(profile) {
		row := api.AccessRow{Channel: r.Channel, Who: r.Who, Kind: r.Kind.String(), Admitted: r.Admitted, Code: string(r.Code), Ceiling: r.Ceiling, Mode: r.Floor.Mode,
			Classes: append([]string{}, r.Reach.Strings()...), WithoutClass: r.Any, From: r.From.String()}
		if r.Level != access.NoLevel {
			level, preset := r.Level.String(), r.Preset
			row.Level, row.Preset, row.Write = &level, &preset, r.Write
		}
		out = append(out, row)
	}
	return out
}
