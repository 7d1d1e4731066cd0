package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"postern/supervisor/api"
)

// moreScenarios are the rest of them.
func moreScenarios() []scenario {
	return []scenario{
		{name: "a server without a credential", why: "a made-up secret would be a lie, and one that is left out must not pass",
			input:    "a server that needs none is connected; another is registered as needing one, and connected without, then with",
			expected: "the first works with no secret in its environment; the second is refused by name, and works once it has one", run: keyless},
		{name: "who watches goes away", why: "work belongs to the task, not to who looks at it",
			input: "the activity is followed while a call runs; the follower is killed; the activity is read again", expected: "the call completes once, and its record is found again", run: watcherLeaves,
			notRun: "real browser (there is no console yet)"},
		{name: "crashes in the middle of a call", why: "what is not known to have failed must not be done twice",
			input: "the tool server is killed in the middle of a call, then the bridge in the middle of another", expected: "each call ends with an error and is recorded as unknown; each reached the server once; afterwards calls work", run: crashes},
		{name: "two projects at once", why: "neither may see anything of the other",
			input: "two people's runtimes read a file of the same name, look for the other's, and list their activity, at the same time", expected: "each gets its own, none the other's file or records", run: twoAtOnce},
		{name: "every way in decides alike", why: "a second way in with rules of its own is a hole",
			input: "an account is suspended, then deleted; its runtime calls, it connects anew, and its owner asks by the command line", expected: "refused on each of them, and before that allowed on each", run: alike,
			notRun: "HTTP and WebSocket (there is no console yet)"},
		{name: "screenshots of authorized users only", why: "a path in a result must not become anybody's file",
			input: "a tool returns an image, and then the path of one; its owner, another person and root ask for what was kept", expected: "the owner gets the very bytes, the others nothing, and a path alone nobody", run: screenshots,
			notRun: "real browser (there is no console yet)"},
	}
}

func keyless(s *stage) (string, bool, error) {
	p, r, err := s.opened("alice", "env")
	if err != nil {
		return "", false, err
	}
	defer r.close()
	env, code, err := r.call("env", nil)
	if err != nil {
		return "", false, err
	}
	label := fmt.Sprintf("locked%d", s.made)
	if err := s.register(label, "--credential", "required", "--credential-env", "API_TOKEN"); err != nil {
		return "", false, err
	}
	_, errb, exit := s.CLI(0, "connection", "add", p.id, label)
	_, probed, probeExit := s.CLI(0, "server", "probe", label, "--project", p.id)
	var show api.ConnectionResult
	if err := s.Call(api.ConnectionShow, api.ConnectionParams{Project: p.id, Server: "count"}, &show); err != nil {
		return "", false, err
	}

	// With one, the other server is given it, and the first is still not.
	file := filepath.Join(s.Dir, label+".secret")
	if err := errors.Join(os.WriteFile(file, []byte("a secret of "+label), 0o600),
		s.do("credential", "add", label, "--project", p.id, "--server", label, "--from-file", file), os.Remove(file),
		s.do("server", "probe", label, "--project", p.id), s.do("connection", "accept", p.id, label, "--yes"), s.do("connection", "grant", p.id, label, "env")); err != nil {
		return "", false, err
	}
	given, givenCode, err := r.call(label+".env", nil)
	if err != nil {
		return "", false, err
	}
	again, _, err := r.call("env", nil)
	if err != nil {
		return "", false, err
	}
	names := strings.FieldsFunc(env, func(r rune) bool { return r == '\n' })
	secret := slices.ContainsFunc(names, func(v string) bool {
		n, _, _ := strings.Cut(strings.ToLower(v), "=")
		return strings.Contains(n, "key") || strings.Contains(n, "token") || strings.Contains(n, "secret")
	})
	came := fmt.Sprintf("%s connection works %v, its environment %q; the other: exit %d, %s; with a credential it works %v", show.Credential, code == "", names, exit, strings.TrimSpace(errb+probed), givenCode == "")
	return came, code == "" && show.Credential == "keyless" && !secret && (exit != 0 || probeExit != 0) && strings.Contains(errb+probed, "credential") &&
		givenCode == "" && strings.Contains(given, "API_TOKEN") && !strings.Contains(again, "API_TOKEN"), nil
}

func watcherLeaves(s *stage) (string, bool, error) {
	p, r, err := s.opened("alice", "slow")
	if err != nil {
		return "", false, err
	}
	defer r.close()
	follower, err := s.follow(p)
	if err != nil {
		return "", false, err
	}
	ended := make(chan string, 1)
	go func() {
		_, code, err := r.call("slow", map[string]any{"ms": 1500})
		ended <- refusedOr(code, err)
	}()
	saw := follower.until("slow")
	follower.kill()
	was := <-ended
	var rows []api.ActivityRow
	err = until("its record has ended", func() bool {
		rows, err = s.records(p)
		return err != nil || len(rows) > 0 && rows[0].State != "admitted"
	})
	once := len(rows) == 1 && rows[0].State == "completed"
	came := fmt.Sprintf("the follower saw it begin: %v; the call ended with %q; found again: %d record(s); received %d", saw, was, len(rows), p.received())
	return came, saw && was == "" && once && p.received() == 1, err
}

func crashes(s *stage) (string, bool, error) {
	p, err := s.granted("alice", "stubborn", "echo")
	if err != nil {
		return "", false, err
	}
	var came []string
	for i, kind := range []string{"server", "bridge"} {
		r, err := s.open(p)
		if err != nil {
			return "", false, err
		}
		ended := make(chan string, 1)
		go func() {
			_, code, err := r.call("stubborn", map[string]any{"ms": 25_000})
			ended <- refusedOr(code, err)
		}()
		if err := until("the server has the call", func() bool { return p.received() == 2*i+1 }); err != nil {
			return "", false, err
		}
		var ps api.PsResult
		if err := s.Call(api.Ps, api.ProjectParams{Project: p.id}, &ps); err != nil {
			return "", false, err
		}
		killed := 0
		for _, row := range ps.Rows {
			if row.Kind == kind {
				killed++
				if err := syscall.Kill(row.PID, syscall.SIGKILL); err != nil {
					return "", false, err
				}
			}
		}
		was := <-ended
		r.close()
		var rows []api.ActivityRow
		err = until("its record is unknown", func() bool {
			rows, err = s.records(p)
			return err == nil && len(rows) == 2*i+1 && rows[0].State == "unknown"
		})
		came = append(came, fmt.Sprintf("%d %s killed: %s, %d records", killed, kind, was, len(rows)))
		if err != nil || killed != 1 || was == "" {
			return strings.Join(came, "; "), false, err
		}
		again, err := s.open(p)
		if err != nil {
			return strings.Join(came, "; "), false, err
		}
		var code string
		err = until("calls work again", func() bool {
			_, code, err = again.call("echo", nil)
			return err == nil && code == ""
		})
		again.close()
		if err != nil {
			return strings.Join(came, "; ") + "; afterwards: " + code, false, err
		}
	}
	n := p.received()
	return strings.Join(came, "; ") + fmt.Sprintf("; %d calls received in all", n), n == 4, nil
}

func twoAtOnce(s *stage) (string, bool, error) {
	var ps [2]project
	for i, owner := range []string{"alice", "bob"} {
		p, err := s.granted(owner, "read", "env")
		if err == nil {
			err = os.WriteFile(filepath.Join(p.workspace, "secret.txt"), []byte("of "+owner), 0o644)
		}
		if err != nil {
			return "", false, err
		}
		ps[i] = p
	}
	var came [2]string
	var ok [2]bool
	var errs [2]error
	var both sync.WaitGroup
	for i, p := range ps {
		both.Go(func() {
			r, err := s.open(p)
			if err != nil {
				errs[i] = err
				return
			}
			defer r.close()
			other := ps[1-i]
			ok[i] = true
			for range 20 {
				own, code, err := r.call("read", map[string]any{"path": "/workspace/secret.txt"})
				ok[i] = ok[i] && err == nil && code == "" && own == "of "+p.owner
				text, code, err := r.call("read", map[string]any{"path": filepath.Join(other.workspace, "secret.txt")})
				ok[i] = ok[i] && (err != nil || code != "") && !strings.Contains(text, "of "+other.owner)
				came[i] = fmt.Sprintf("%s: own %q, the other's %s", p.owner, own, refusedOr(code, err))
			}
		})
	}
	both.Wait()
	for i, p := range ps {
		uid := s.people[p.owner]
		out, _, _ := s.CLI(uid, "activity", "--project", p.id, "--json")
		_, errb, exit := s.CLI(uid, "activity", "--project", ps[1-i].id, "--json")
		ok[i] = ok[i] && exit != 0 && strings.Contains(out, p.id) && !strings.Contains(out, ps[1-i].id)
		came[i] += fmt.Sprintf(", the other's activity: exit %d %s", exit, strings.TrimSpace(errb))
	}
	return came[0] + "; " + came[1], ok[0] && ok[1], errors.Join(errs[:]...)
}

func alike(s *stage) (string, bool, error) {
	uid := 61200 + s.made
	name := fmt.Sprintf("person%d", s.made)
	if err := s.person(name, uid); err != nil {
		return "", false, err
	}
	p, err := s.granted(name, "echo")
	if err != nil {
		return "", false, err
	}
	ask := func(r runtime) string {
		call := "the session ended"
		if r != nil {
			_, code, err := r.call("echo", nil)
			call = orOK(refusedOr(code, err))
		}
		fresh := notLetIn(s.open(p))
		_, _, exit := s.CLI(uid, "project", "show", p.id)
		return fmt.Sprintf("call %s, connect %s, command line exit %d", call, orOK(fresh), exit)
	}
	r, err := s.open(p)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	active := ask(r)
	if err := s.do("account", "suspend", name); err != nil {
		return active, false, err
	}
	suspended, n := ask(r), p.received()
	if err := s.do("account", "delete", name); err != nil {
		return suspended, false, err
	}
	deleted := ask(nil)
	came := fmt.Sprintf("active: %s; suspended: %s; deleted: %s", active, suspended, deleted)
	refusedBoth := !strings.Contains(suspended, "call ok") && !strings.Contains(suspended, "connect ok") && !strings.Contains(deleted, "connect ok") && !strings.Contains(deleted, "exit 0")
	return came, active == "call ok, connect ok, command line exit 0" && refusedBoth && n == 1, nil
}

func orOK(s string) string {
	if s == "" {
		return "ok"
	}
	return s
}

func screenshots(s *stage) (string, bool, error) {
	p, err := s.project("alice")
	if err != nil {
		return "", false, err
	}
	if err := errors.Join(s.do("connection", "add", p.id, "pictures"), s.do("connection", "grant", p.id, "pictures", "draw", "say")); err != nil {
		return "", false, err
	}
	r, err := s.open(p)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	_, code, err := r.call("draw", map[string]any{"n": 1, "bytes": 1000})
	if err != nil {
		return "", false, err
	}
	_, pathCode, err := r.call("say", map[string]any{"content": []any{map[string]any{"type": "text", "text": "/etc/passwd and file:///etc/passwd"}}})
	if err != nil {
		return "", false, err
	}
	var kept api.ArtifactListResult
	listed := func() bool {
		out, _, exit := s.CLI(s.people["alice"], "--json", "artifact", "list", "--project", p.id)
		return exit == 0 && json.Unmarshal([]byte(out), &kept) == nil && len(kept.Rows) > 0
	}
	if err := until("the image is kept", listed); err != nil {
		return "", false, err
	}
	x := kept.Rows[0]
	got := map[string]string{}
	for name, uid := range map[string]int{"owner": s.people["alice"], "another": s.people["bob"], "root": 0} {
		out, _, exit := s.CLI(uid, "artifact", "get", x.Artifact, "--out", "-")
		got[name] = fmt.Sprintf("exit %d, %d bytes", exit, len(out))
	}
	came := fmt.Sprintf("the calls' refusals: %q %q; kept: %d, a %s of %d bytes; owner: %s; another: %s; root: %s", code, pathCode, len(kept.Rows), x.Type, x.Size, got["owner"], got["another"], got["root"])
	return came, code == "" && pathCode == "" && len(kept.Rows) == 1 && x.Type == "image/png" && got["owner"] == "exit 0, 1000 bytes" &&
		strings.HasSuffix(got["another"], ", 0 bytes") && !strings.HasPrefix(got["another"], "exit 0") && strings.HasSuffix(got["root"], ", 0 bytes") && !strings.HasPrefix(got["root"], "exit 0"), nil
}
