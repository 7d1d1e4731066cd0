package jail

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/jail/spec"
)

// secretFile is a file that a jail could not open by itself.
func secretFile(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path)
}

// P7: a secret becomes one variable, in jails of one process and of many; the
// descriptor that it came by is not there any more.
func TestASecretBecomesOneVariable(t *testing.T) {
	l := launcher(t)
	for _, profile := range []string{"static", "node"} {
		r := request(t, profile, "env", "fds")
		without := answers(t, l, r)
		r = request(t, profile, "env", "fds")
		r.Secret, r.SecretEnv = secretFile(t, "s3cret =\xff|"), "TOKEN"
		with := answers(t, l, r)
		if with["env"] != without["env"]+"|TOKEN=s3cret =\xff|" { // sorted: it is the last
			t.Errorf("%s: environment %q, without the secret %q", profile, with["env"], without["env"])
		}
		if with["fds"] != without["fds"] {
			t.Errorf("%s: descriptors %s, without the secret %s", profile, with["fds"], without["fds"])
		}
	}
}

// Whatever stops a launch after the secret was read says nothing of it, and neither does
// the document.
func TestNoErrorShowsASecret(t *testing.T) {
	l := launcher(t)
	for name, content := range map[string]string{"empty": "", "a NUL in it": "s3cret\x00s3cret", "too long": strings.Repeat("s3cret", spec.MaxSecret), "a later step": "s3cret"} {
		r := request(t, "static", "env")
		r.Secret, r.SecretEnv = secretFile(t, content), "TOKEN"
		if name == "a later step" {
			r.Dir = "/nowhere"
		}
		if _, err := tryStart(t, l, r); err == nil || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: %v", name, err)
		}
		raw, err := document(r).Encode()
		if err != nil || bytes.Contains(raw, []byte("s3c")) || !bytes.Contains(raw, []byte(`"TOKEN"`)) {
			t.Errorf("%s: the document is %q, %v", name, raw, err)
		}
	}
	for name, r := range map[string]Request{
		"a name without a file": {SecretEnv: "TOKEN"}, "a file without a name": {Secret: secretFile(t, "s3cret")},
		"a name that cannot be": {Secret: secretFile(t, "s3cret"), SecretEnv: "A=B"}, "a name that is taken": {Secret: secretFile(t, "s3cret"), SecretEnv: "TOKEN", Env: []string{"TOKEN=x"}},
	} {
		good := request(t, "static", "env")
		good.Secret, good.SecretEnv, good.Env = r.Secret, r.SecretEnv, r.Env
		if _, err := tryStart(t, l, good); err == nil {
			t.Errorf("%s: launched", name)
		}
	}
}

// A descriptor of a fixed number arrives under it, and what lies between stays closed.
func TestADescriptorOfAFixedNumber(t *testing.T) {
	l := launcher(t)
	for _, profile := range []string{"static", "node"} {
		plain := answers(t, l, request(t, profile, "fds", "fd=3", "fd=7"))
		r := request(t, profile, "fds", "fd=3", "fd=7")
		r.Extra = []*os.File{nil, nil, nil, nil, secretFile(t, "s3cret")}
		said := answers(t, l, r)
		if want := strings.TrimSuffix(plain["fds"], "]") + " 7]"; said["fds"] != want || said["fd=7"] != "s3cret" || said["fd=3"] != plain["fd=3"] {
			t.Errorf("%s: %v; without it %v", profile, said, plain)
		}
	}
	r := request(t, "static", "fds")
	r.Extra = []*os.File{secretFile(t, "s3cret"), nil}
	if _, err := tryStart(t, l, r); err == nil {
		t.Error("a last one that is missing was taken")
	}
}
