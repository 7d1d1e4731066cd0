package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"postern/refusal"
	"postern/supervisor/api"
)

// secretMax is how much is read: the longest secret, a line end, and one byte by which
// what is too long is known.
const secretMax = api.MaxSecret + 3

// readSecret reads a secret from a file of root's alone, or with no path from standard
// input. Its errors never hold what was read.
func (a *app) readSecret(path string) (api.Secret, error) {
	var none api.Secret
	if err := undumpable(); err != nil {
		return none, err
	}
	if path != "" {
		f, err := secretFile(path)
		if err != nil {
			return none, err
		}
		defer f.Close()
		return secretFrom(f)
	}
	if a.asks() {
		return none, usagef("no secret is typed at a terminal, which shows it; pipe it in, or name --from-file or --systemd")
	}
	return secretFrom(a.in)
}

// secretFile opens a file that nobody but root can have read or written.
func secretFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fileErrorf(refusal.BadRequest, "%q is a symbolic link, which is not followed; name the file itself", path)
	}
	if err != nil {
		return nil, fmt.Errorf("secret file %q: %w", path, cause(err))
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil {
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = fileErrorf(refusal.BadRequest, "%q is not a regular file", path)
		case st.Uid != 0:
			err = fileErrorf(refusal.PermissionsWrong, "%q belongs to uid %d; a secret's file is root's", path, st.Uid)
		case st.Mode&0o077 != 0:
			err = fileErrorf(refusal.PermissionsWrong, "%q has mode %04o: others may have read it; 0600 is accepted", path, st.Mode&0o7777)
		case st.Nlink != 1:
			err = fileErrorf(refusal.PermissionsWrong, "%q has %d names, one is accepted", path, st.Nlink)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func secretFrom(r io.Reader) (api.Secret, error) {
	raw, err := io.ReadAll(io.LimitReader(r, secretMax))
	switch {
	case err != nil:
		clear(raw)
		return api.Secret{}, fmt.Errorf("read the secret: %w", cause(err))
	case len(raw) == 0:
		return api.Secret{}, usagef("the secret is empty; pipe it in, or name --from-file or --systemd")
	case len(raw) == secretMax:
		clear(raw)
		return api.Secret{}, usagef("the secret has more than %d bytes", api.MaxSecret)
	}
	return api.SecretOf(raw), nil
}
