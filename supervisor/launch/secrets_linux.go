package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"postern/jail"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/owned"
)

// secretsDir, in the root directory, holds a file for each credential that is not
// systemd's. A file's name is the credential's id and generation: facts that name one
// find that secret or none, whenever a crash comes.
const secretsDir = "credentials"

// secrets are the files of credentials.
type secrets struct {
	dir     *os.File
	systemd string // the directory that systemd made for posternd; "" for none
}

func secretName(c Credential) string { return fmt.Sprintf("%s.%d", c.ID, c.Generation) }

// write makes a secret durable under a name that no fact has yet.
func (s *secrets) write(c Credential, secret []byte) error {
	dir, name := int(s.dir.Fd()), secretName(c)
	if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT { // of a change that failed
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := f.Write(secret); err != nil {
		return err
	}
	return errors.Join(f.Sync(), s.dir.Sync())
}

// open finds a secret's file and looks who can read it: at each use, for what was
// acceptable yesterday may not be today.
func (s *secrets) open(c Credential) (*os.File, error) {
	dir, name := s.dir, secretName(c)
	if c.Systemd != "" {
		if s.systemd == "" {
			return nil, errors.New("systemd gives posternd no credentials (LoadCredential= of its unit)")
		}
		var err error
		if dir, err = owned.Open(s.systemd, unix.O_DIRECTORY); err != nil {
			return nil, err
		}
		defer dir.Close()
		if err := owned.Check(dir, owned.OthersAny); err != nil {
			return nil, err
		}
		name = c.Systemd
	}
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, owned.NotOpened(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a regular file", path)
	}
	if err == nil {
		err = owned.Check(f, owned.OthersAny)
	}
	if err == nil && (st.Size() == 0 || st.Size() > api.MaxSecret+2) { // and a line end
		err = fmt.Errorf("%q has %d bytes, want 1 to %d", path, st.Size(), api.MaxSecret)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// state says in words whether a secret can be handed over.
func (s *secrets) state(c Credential) string {
	f, err := s.open(c)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	f.Close()
	return "ok"
}

// read returns a secret as it is handed over.
func (s *secrets) read(c Credential, v Revision) ([]byte, error) {
	f, err := s.open(c)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, api.MaxSecret+3))
	if err != nil {
		return nil, err
	}
	secret, err := cleanSecret(raw, v)
	if err != nil {
		clear(raw)
		return nil, fmt.Errorf("%q: %w", f.Name(), err)
	}
	return secret, nil
}

// sweep removes the files that no fact names: of former secrets, and of changes that
// were not made.
func (s *secrets) sweep(f Facts) error {
	dir, err := openAt(int(s.dir.Fd()), ".", unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, c := range f.Credentials {
		if c.Systemd == "" {
			named[secretName(c)] = true
		}
	}
	var out []error
	for _, name := range found {
		if !named[name] && strings.HasPrefix(name, "crd_") {
			if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil {
				out = append(out, &os.PathError{Op: "remove", Path: name, Err: err})
			}
		}
	}
	return errors.Join(append(out, s.dir.Sync())...)
}

// warnings name the credentials that cannot be handed over.
func (s *secrets) warnings(f Facts) (out []string) {
	for _, c := range f.Credentials {
		if state := s.state(c); state != "ok" {
			out = append(out, fmt.Sprintf("credential %q is %s", c.Label, state))
		}
	}
	return out
}

// checkSecrets is the same for posternd -check, which starts nothing. What systemd gives
// is only there in its unit.
func (c Config) checkSecrets(f Facts) (out []error) {
	var ours []Credential
	for _, x := range f.Credentials {
		if x.Systemd == "" || c.Credentials != "" {
			ours = append(ours, x)
		}
	}
	if len(ours) == 0 {
		return nil
	}
	dir, err := owned.Open(filepath.Join(c.RootDir, secretsDir), unix.O_DIRECTORY)
	if err != nil {
		return []error{err}
	}
	defer dir.Close()
	if err := owned.Check(dir, owned.OthersAny); err != nil {
		return []error{err}
	}
	for _, w := range (&secrets{dir: dir, systemd: c.Credentials}).warnings(Facts{Credentials: ours}) {
		out = append(out, errors.New(w))
	}
	return out
}

// handover is a secret on its way to one jail.
type handover struct {
	credential Credential
	secret     []byte
}

// secretFor reads what a revision needs, before anything is made for it. A revision that
// needs none gets none.
//
// What the authority is told names neither the credential nor the file: it passes on to
// runtimes what it hears. The log has both.
func (s *Supervisor) secretFor(holder Project, server Server, v Revision) (handover, error) {
	if v.Credential == credentialNone {
		return handover{}, nil
	}
	missing := api.Refuse(refusal.CredentialMissing, "Root sees which and why with: postern credential list.")
	if v.CredentialEnv == "" && v.CredentialFD == 0 {
		return handover{}, api.Refuse(refusal.CredentialMissing, "The registration does not say how it is handed over; root gives it a new revision with postern server update.")
	}
	var last error
	for range 2 { // a rotation takes the former file away
		f, _ := s.now()
		c, ok := f.credentialOf(holder.ID, server.ID)
		if !ok {
			s.cfg.Log.Warn("no credential is assigned", keyProject, holder.ID, keyServer, server.Label)
			return handover{}, missing
		}
		secret, err := s.secrets.read(c, v)
		if err == nil {
			return handover{c, secret}, nil
		}
		last = fmt.Errorf("credential %q: %w", c.Label, err)
	}
	s.cfg.Log.Error("a credential cannot be handed over, and its server is not started", keyProject, holder.ID, keyServer, server.Label, keyError, last)
	return handover{}, missing
}

// fill puts the secret into a request; done is called when the launch is over.
func (h handover) fill(r *jail.Request, v Revision) (done func(), err error) {
	if h.secret == nil {
		return func() {}, nil
	}
	f, err := sealedForReading("credential", h.secret)
	clear(h.secret)
	if err != nil {
		return func() {}, err
	}
	if v.CredentialEnv != "" {
		r.Secret, r.SecretEnv = f, v.CredentialEnv
	} else {
		r.Extra = make([]*os.File, v.CredentialFD-firstCredentialFD+1)
		r.Extra[len(r.Extra)-1] = f
	}
	return func() { f.Close() }, nil
}

// sealedForReading makes a memory file that nobody can change, and opens it for reading
// alone.
func sealedForReading(name string, content []byte) (*os.File, error) {
	f, err := sealed(name, content)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
