package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"postern/supervisor/api"
)

// A bundle of a Postern that has a secret in every place where one can be, made while it
// runs and while it is down.
func TestABundleHoldsNoSecret(t *testing.T) {
	static, err := os.ReadFile(filepath.Join(built.repo, "profiles", "builtin", "static.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const inEnv, inCommand, inArgs, inTool, inFile = "PLANTED-env-Zk", "PLANTED-command-Zk", "PLANTED-argument-Zk", "PLANTED-tool-Zk", "PLANTED-file-Zk"
	own := strings.NewReplacer("name: static", "name: own", "env:\n", "env:\n  PLANTED: "+inEnv+"\n").Replace(string(static))
	w := newWorldWith(t, map[string]string{"own": own})
	w.must("project", "set", "a", "--record-arguments", "on")
	w.must("server", "add", "planted", "--profile", "own", "--package", filepath.Join(built.fixtures, "noisy"), "--", "/package/noisy", "--key="+inCommand)
	w.must("connection", "add", "a", "planted")
	w.must("connection", "grant", "a", "planted", "echo")
	w.needing("byenv", "API_TOKEN", "--credential-env", "API_TOKEN")
	w.fromFile(theSecret, "credential", "add", "tok", "--project", "a", "--server", "byenv")
	w.must("server", "probe", "byenv", "--project", "a")
	w.must("connection", "accept", "a", "byenv", "--yes")
	w.must("connection", "grant", "a", "byenv", "digest", "die")
	w.must("access", "set", "sms", "--admission", "restricted")
	var made struct{ Code string }
	if err := json.Unmarshal([]byte(w.must("--json", "access", "pair", "sms")), &made); err != nil || made.Code == "" {
		t.Fatal(err)
	}
	tok, task := w.token(w.a, runtimeUID, "--binds", "2")
	r := w.connect(w.a, runtimeUID, tok).initialize()
	if got := r.call("planted.echo", `{"note":"`+inArgs+`"}`); got.outcome() != "ok" || !strings.Contains(got.raw, inArgs) {
		t.Fatal(got.raw)
	}
	if got := r.call("digest", `{}`); got.text() != digestOf(theSecret) {
		t.Fatal(got.raw)
	}
	r.call("die", `{}`) // ps has a last error then
	if got := r.call(inTool, `{}`); got.outcome() == "ok" {
		t.Fatal(got.raw)
	}
	fresh := w.fresh(task)
	if out, _, exit := w.CLI(aliceUID, "activity", "--project", "a", "--arguments"); exit != 0 || !strings.Contains(out, inArgs) || !strings.Contains(out, inTool) {
		t.Errorf("its owner reads\n%s", out)
	}
	// Mistakes of files are told with what is wrong, to root; a bundle tells their lines.
	if err := os.WriteFile(filepath.Join(w.Dir, "postern.yaml.d"), nil, 0o600); err != nil { // no directory: a mistake
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(w.Dir, "postern.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("# " + inFile + "\n" + inFile + ": 1\n")
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the mistake is found", func() bool {
		var st api.RootStatusResult
		return w.Call(api.RootStatus, nil, &st) == nil && strings.Contains(st.Config.Error, inFile)
	})

	secrets := []string{theSecret, digestOf(theSecret), inEnv, inCommand, inArgs, inTool, inFile, made.Code, strings.TrimSpace(tok), strings.TrimSpace(fresh), "banner banner"}
	look := func(name string, want ...string) {
		t.Helper()
		file := filepath.Join(w.Dir, name+".tar.gz")
		said := w.must("--json", "debug", "bundle", "-o", file, "--root-dir", w.RootDir, "--state-dir", w.StateDir, "--config", filepath.Join(w.Dir, "postern.yaml"))
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Fatalf("%v %v", info, err)
		}
		to := filepath.Join(w.Dir, name)
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("tar", "-xzf", file, "-C", to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		all := said
		filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			for _, s := range secrets {
				if strings.Contains(string(raw), s) {
					t.Errorf("%s of %s has %q: %.2000s", filepath.Base(path), name, s, raw)
				}
			}
			all += string(raw)
			return nil
		})
		for _, s := range secrets {
			if strings.Contains(said, s) {
				t.Errorf("the command prints %q", s)
			}
		}
		for _, s := range want {
			if !strings.Contains(all, s) {
				t.Errorf("%s does not hold %s", name, s)
			}
		}
	}
	look("up", `"missing":[]`, `"label":"planted"`, `"command_words":2`, `"tool":"echo"`, `"state":"completed"`, `"args_size":`, `"code":"`, `"generation":1`, `"readiness":"ready"`,
		`"action":"credential.add"`, `"action":"access.pair"`, `"name":"own"`, `"goroutines":`, `"kind":"bridge"`, `"mistakes":[{`, `"policy_schema":`)
	if err := w.Down(); err != nil {
		t.Fatal(err)
	}
	look("down", `"action":"credential.add"`, `"action":"access.pair"`, `"why":"supervisor_unreachable"`, `"name":"own"`)
}
