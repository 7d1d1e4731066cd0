package launch

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"postern/ids"
	"postern/jail/spec"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

// Bounds of credentials.
const (
	maxCredentials = 10_000
	// Descriptors that a registration may name for its credential. Below are the standard
	// streams; far above, a jail's own.
	firstCredentialFD = 3
	lastCredentialFD  = 9
	maxCredentialEnv  = 128 // bytes of the name of a variable
)

// The two needs of a registration.
const (
	credentialNone     = "none"
	credentialRequired = "required"
)

// Credential is one secret's place and source; the secret itself is in no fact. One is
// of one project and one server.
type Credential struct {
	order.Credential
	Label   string `json:"label"`
	Created int64  `json:"created"` // milliseconds since the epoch
	Changed int64  `json:"changed"`
	Systemd string `json:"systemd,omitempty"` // what systemd calls it; "" is a file of ours
}

// held is what an instance was handed: which credential, and which of its secrets. The
// zero one is none.
type held struct {
	id         ids.Credential
	generation uint64
}

func (c Credential) held() held { return held{c.ID, c.Generation} }

func (c Credential) source() string {
	if c.Systemd == "" {
		return "file"
	}
	return "systemd " + c.Systemd
}

var (
	credentialEnv = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// systemdName is what systemd takes for the name of a credential, but for one that
	// begins with a dot.
	systemdName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.@:-]{0,254}$`)
)

// checkDelivery says what is wrong with how a registration wants its credential.
func checkDelivery(p api.ServerParams, profile spec.Profile) *api.Refusal {
	refuse := func(format string, args ...any) *api.Refusal {
		return api.Refuse(refusal.RegistrationWrong, format, args...)
	}
	byEnv, byFD := p.CredentialEnv != "", p.CredentialFD != 0
	switch need := orElse(p.Credential, credentialNone); {
	case need != credentialNone && need != credentialRequired:
		return api.Refuse(refusal.BadRequest, "credential is none or required, not %q.", p.Credential)
	case need == credentialNone && (byEnv || byFD):
		return refuse("A server without a credential is handed none; the registration says how.")
	case need == credentialRequired && byEnv == byFD:
		return refuse("A credential is handed over as a variable or as a descriptor: name one of the two.")
	case byEnv && (!credentialEnv.MatchString(p.CredentialEnv) || len(p.CredentialEnv) > maxCredentialEnv):
		return refuse("A credential's variable matches %s and has at most %d bytes, %.64q does not.", credentialEnv, maxCredentialEnv, p.CredentialEnv)
	case byEnv && strings.HasPrefix(p.CredentialEnv, "LD_"):
		return refuse("%q is the dynamic linker's.", p.CredentialEnv)
	case byFD && (p.CredentialFD < firstCredentialFD || p.CredentialFD > lastCredentialFD):
		return refuse("A credential's descriptor is %d to %d, not %d.", firstCredentialFD, lastCredentialFD, p.CredentialFD)
	}
	if _, taken := profile.Env[p.CredentialEnv]; taken {
		return refuse("Profile %q sets %q already.", profile.Name, p.CredentialEnv)
	}
	return nil
}

// delivery says in words how a revision gets its credential.
func (r Revision) delivery() string {
	switch {
	case r.CredentialEnv != "":
		return "variable " + r.CredentialEnv
	case r.CredentialFD != 0:
		return fmt.Sprintf("descriptor %d", r.CredentialFD)
	}
	return "none"
}

// cleanSecret takes one line end off, which editors and echo leave, and refuses what
// cannot be handed over. It never says what it saw.
func cleanSecret(secret []byte, v Revision) ([]byte, error) {
	secret = bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
	switch {
	case len(secret) == 0:
		return nil, fmt.Errorf("it is empty")
	case len(secret) > api.MaxSecret:
		return nil, fmt.Errorf("it has more than %d bytes", api.MaxSecret)
	case v.CredentialEnv != "" && bytes.IndexByte(secret, 0) >= 0:
		return nil, fmt.Errorf("it has a NUL, which no variable can hold")
	}
	return secret, nil
}

// addCredential gives a project one for a server that is registered as needing it.
func (f Facts) addCredential(p api.CredentialParams, now time.Time) (Facts, Credential, *api.Refusal) {
	refuse := func(c refusal.Code, format string, args ...any) (Facts, Credential, *api.Refusal) {
		return Facts{}, Credential{}, api.Refuse(c, format, args...)
	}
	if !serverLabel.MatchString(p.Label) {
		return refuse(refusal.BadRequest, "A credential's name matches %s, %.64q does not.", serverLabel, p.Label)
	}
	i, refused := f.findProject(p.Project)
	if refused != nil {
		return Facts{}, Credential{}, refused
	}
	j, refused := f.findServer(p.Server)
	if refused != nil {
		return Facts{}, Credential{}, refused
	}
	proj, srv := f.Projects[i], f.Servers[j]
	if srv.Current().Credential != credentialRequired {
		return refuse(refusal.RegistrationWrong, "Server %q is registered as needing no credential.", srv.Label)
	}
	if len(f.Credentials) >= maxCredentials {
		return refuse(refusal.Busy, "There are %d credentials already.", maxCredentials)
	}
	for _, c := range f.Credentials {
		switch {
		case c.Label == p.Label:
			return refuse(refusal.AlreadyExists, "Credential %q is %s.", p.Label, c.ID)
		case c.Project == proj.ID && c.Server == srv.ID:
			return refuse(refusal.AlreadyExists, "Project %q has credential %q for %q; rotate that one.", proj.Label, c.Label, srv.Label)
		}
	}
	at := now.UnixMilli()
	c := Credential{Credential: order.Credential{ID: newID[ids.Credential](now), Project: proj.ID, Server: srv.ID, Generation: 1},
		Label: p.Label, Created: at, Changed: at, Systemd: p.Systemd}
	g := f.next()
	g.Credentials = append(g.Credentials, c)
	return g, c, nil
}

// rotateCredential gives one another secret: whatever has the former is outdated.
func (f Facts) rotateCredential(sel, systemd string, now time.Time) (Facts, Credential, *api.Refusal) {
	i, refused := f.findCredential(sel)
	if refused != nil {
		return Facts{}, Credential{}, refused
	}
	g := f.next()
	c := &g.Credentials[i]
	c.Generation++
	c.Changed, c.Systemd = now.UnixMilli(), systemd
	return g, *c, nil
}

// revokeCredential removes one; the audit keeps that it was there.
func (f Facts) revokeCredential(sel string) (Facts, Credential, *api.Refusal) {
	i, refused := f.findCredential(sel)
	if refused != nil {
		return Facts{}, Credential{}, refused
	}
	g := f.next()
	g.Credentials = slices.Delete(g.Credentials, i, i+1)
	return g, f.Credentials[i], nil
}

func (f Facts) findCredential(sel string) (int, *api.Refusal) {
	return find("credential", f.Credentials, sel, refusal.NotFound, refusal.NotFound,
		func(c Credential) (string, string, bool) { return string(c.ID), c.Label, false })
}

// without removes the credentials of what is deleted.
func (f Facts) without(gone func(c Credential) bool) Facts {
	f.Credentials = slices.DeleteFunc(slices.Clone(f.Credentials), gone)
	return f
}

// credentialOf is what a project has for a server.
func (f Facts) credentialOf(p ids.Project, s ids.Server) (Credential, bool) {
	i := slices.IndexFunc(f.Credentials, func(c Credential) bool { return c.Project == p && c.Server == s })
	if i < 0 {
		return Credential{}, false
	}
	return f.Credentials[i], true
}

// holds tells whether what an instance was handed is what is to be handed now.
func (f Facts) holds(h held) bool {
	return slices.ContainsFunc(f.Credentials, func(c Credential) bool { return c.held() == h })
}

// checkCredentials is what decodeFacts demands of them.
func (f Facts) checkCredentials() error {
	type place struct {
		p ids.Project
		s ids.Server
	}
	taken := map[place]ids.Credential{}
	for _, c := range f.Credentials {
		if _, err := ids.Parse[ids.Credential](string(c.ID)); err != nil {
			return err
		}
		at := place{c.Project, c.Server}
		if other, twice := taken[at]; twice {
			return fmt.Errorf("%s and %s are of the same project and server", other, c.ID)
		}
		taken[at] = c.ID
		if c.Generation == 0 || c.Systemd != "" && !systemdName.MatchString(c.Systemd) {
			return fmt.Errorf("credential %s is not whole", c.ID)
		}
	}
	return nil
}
