package launch

import (
	"slices"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// source checks where a new secret comes from: one that was sent, or one of systemd's.
func (s *Supervisor) source(p api.CredentialParams) *api.Refusal {
	sent := p.Secret.Bytes() != nil
	switch {
	case sent == (p.Systemd != ""):
		return api.Refuse(refusal.BadRequest, "A credential is a secret that is sent, or the name of one of systemd's.")
	case p.Systemd != "" && !systemdName.MatchString(p.Systemd):
		return api.Refuse(refusal.BadRequest, "%.64q is not a name that systemd gives a credential.", p.Systemd)
	}
	return nil
}

// keep makes the secret of a changed credential durable, or looks that systemd's is
// there. It comes before the facts name it; a dry run only checks.
func (s *Supervisor) keep(c Credential, v Revision, p api.CredentialParams, dry bool) *api.Refusal {
	if p.Systemd != "" {
		secret, err := s.secrets.read(c, v)
		clear(secret)
		if err != nil {
			return api.Refuse(refusal.CredentialMissing, "%v.", err)
		}
		return nil
	}
	secret, err := cleanSecret(p.Secret.Bytes(), v)
	if err != nil {
		return api.Refuse(refusal.BadRequest, "The secret cannot be handed over: %v.", err)
	}
	if dry {
		return nil
	}
	if err := s.secrets.write(c, secret); err != nil {
		return api.Refuse(refusal.StoreUnavailable, "The secret could not be written: %v.", err)
	}
	return nil
}

func (s *Supervisor) credentialAdd(r request) (any, *api.Refusal) {
	p, refused := params[api.CredentialParams](r)
	defer func() { p.Secret.Clear(); clear(r.Params) }()
	if refused == nil && p.Selector != "" {
		refused = api.Refuse(refusal.BadRequest, "selector is for rotating.")
	}
	if refused == nil {
		refused = s.source(p)
	}
	if refused != nil {
		return nil, refused
	}
	var made Credential
	var now Facts
	refused = s.changing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		if g, made, refused = f.addCredential(p, time.Now()); refused == nil {
			now = g
			refused = s.keep(made, g.revisionFor(made), p, r.DryRun)
		}
		return g, refused
	})
	if refused != nil {
		return nil, refused
	}
	out := s.credentialResult(now, made)
	if r.DryRun {
		out.State = "ok"
	}
	return out, nil
}

func (s *Supervisor) credentialRotate(r request) (any, *api.Refusal) {
	p, refused := params[api.CredentialParams](r)
	defer func() { p.Secret.Clear(); clear(r.Params) }()
	if refused == nil && (p.Label != "" || p.Project != "" || p.Server != "") {
		refused = api.Refuse(refusal.BadRequest, "Rotating changes the secret alone.")
	}
	if refused == nil {
		refused = s.source(p)
	}
	if refused != nil {
		return nil, refused
	}
	return s.ending(r, func(f Facts) (g Facts, made Credential, refused *api.Refusal) {
		if g, made, refused = f.rotateCredential(p.Selector, p.Systemd, time.Now()); refused == nil {
			refused = s.keep(made, g.revisionFor(made), p, r.DryRun)
		}
		return g, made, refused
	})
}

func (s *Supervisor) credentialRevoke(r request) (any, *api.Refusal) {
	p, refused := params[api.Selected](r)
	if refused != nil {
		return nil, refused
	}
	return s.ending(r, func(f Facts) (Facts, Credential, *api.Refusal) { return f.revokeCredential(p.Selector) })
}

// ending makes a change that takes a secret away from whoever has it. When it returns,
// the change is durable, the authority decides by it, and no jail that was handed the
// secret is alive.
func (s *Supervisor) ending(r request, rule func(Facts) (Facts, Credential, *api.Refusal)) (any, *api.Refusal) {
	var made Credential
	var now Facts
	had := 0
	cut, refused := s.narrowing(r, func(f Facts) (g Facts, refused *api.Refusal) {
		g, made, refused = rule(f)
		now, had = g, s.holders(made.ID)
		return g, refused
	})
	if refused != nil {
		return nil, refused
	}
	out := api.CredentialEndResult{CredentialResult: s.credentialResult(now, made), Cut: cut}
	if r.DryRun {
		out.Ended = had
		out.State, out.Note = "ok", "Nothing was changed: this was a dry run."
		return out, nil
	}
	out.Ended = max(had, s.endHolders()) // the authority may have ended some by now
	if r.Action == api.CredentialRevoke {
		out.State = "revoked"
	}
	return out, nil
}

// endHolders ends every jail that holds a secret which the facts no longer name. Those that were being started when the facts changed are among them:
// none is handed a former secret after this returned.
func (s *Supervisor) endHolders() int {
	s.handing.Lock() // whoever starts one now has looked at the facts before they changed
	f, _ := s.now()
	s.handing.Unlock()
	return s.killWhere(func(j *running) bool { return j.held != (held{}) && !f.holds(j.held) })
}

// holders counts the jails that hold any secret of a credential.
func (s *Supervisor) holders(id ids.Credential) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jails {
		if j.held.id == id {
			n++
		}
	}
	return n
}

func (s *Supervisor) credentialList(r request) (any, *api.Refusal) {
	p, refused := params[api.PageParams](r)
	if refused != nil {
		return nil, refused
	}
	f, _ := s.now()
	var rows []api.CredentialResult
	for _, c := range f.Credentials {
		rows = append(rows, s.credentialResult(f, c))
	}
	var out api.CredentialListResult
	var err error
	if out.Credentials, out.Next, err = api.Paged(rows, p.After, func(r api.CredentialResult) string { return r.Credential }); err != nil {
		return nil, api.Refuse(refusal.Internal, "%v.", err)
	}
	return out, nil
}

// revisionFor is the current revision of a credential's server.
func (f Facts) revisionFor(c Credential) Revision {
	i := slices.IndexFunc(f.Servers, func(s Server) bool { return s.ID == c.Server })
	if i < 0 {
		return Revision{}
	}
	return f.Servers[i].Current()
}

func (s *Supervisor) credentialResult(f Facts, c Credential) api.CredentialResult {
	out := api.CredentialResult{Credential: string(c.ID), Label: c.Label, Project: string(c.Project), Server: string(c.Server), Delivery: f.revisionFor(c).delivery(),
		Source: c.source(), Generation: c.Generation, Created: c.Created, Changed: c.Changed, State: s.secrets.state(c)}
	for _, p := range f.Projects {
		if p.ID == c.Project {
			out.ProjectLabel = p.Label
		}
	}
	for _, x := range f.Servers {
		if x.ID == c.Server {
			out.ServerLabel = x.Label
		}
	}
	return out
}
