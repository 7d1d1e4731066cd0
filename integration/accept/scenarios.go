package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"postern/supervisor/api"
)

// scenarios are all that were agreed, in their order.
func scenarios() []scenario {
	return append([]scenario{
		{name: "a grant works", why: "the purpose of it all: a tool is used by a project that may",
			input: "alice's project has a page with two headings and the grant of one reading tool", expected: "the runtime is offered that tool alone, and reads the headings", run: aGrantWorks},
		{name: "a project without a grant", why: "a runtime can call what it is not offered: a filtered list protects nothing",
			input: "a second project is connected to nothing; its runtime lists, then calls by hand", expected: "an empty list, a refusal, and a server that received nothing", run: noGrant},
		{name: "somebody else's identifiers", why: "what a request says of itself is no evidence",
			input:    "a token of one project at the door of another; the user of another account; the other's id in the arguments",
			expected: "not let in, not let in, and the call stays in its own project; the other server receives nothing", run: othersIdentifiers},
		{name: "one tool of many", why: "a server brings tools that nobody meant to allow",
			input: "one tool of eleven is granted; another is called by name", expected: "one listed, the other refused before the server", run: oneOfMany},
		{name: "a revocation in a live session", why: "who takes a permission back must be able to rely on it at once",
			input:    "a long call runs; its tool is revoked; the tool is called again in the same session",
			expected: "the answer names the running call and that a cancel was sent; the next call is refused; granted again, it works; all in one session", run: revocation},
		{name: "a replaced project", why: "what comes under an old name must not inherit trust",
			input: "the project is deleted, its directory removed and made again, and a project of the same name registered", expected: "the new one has no grants; a runtime of the old one is not let in", run: replacedProject},
		{name: "a replaced registration", why: "another program behind a known name is another program",
			input: "the server is deleted and registered again under its label; then the first is updated instead", expected: "the old grant does not reach the new registration; after an update calls wait for acceptance", run: replacedServer},
	}, moreScenarios()...)
}

func aGrantWorks(s *stage) (string, bool, error) {
	p, err := s.granted("alice", "read")
	if err != nil {
		return "", false, err
	}
	page := "<html><body><h1>First heading</h1><p>text</p><h2>Second heading</h2></body></html>"
	if err := os.WriteFile(filepath.Join(p.workspace, "page.html"), []byte(page), 0o644); err != nil {
		return "", false, err
	}
	r, err := s.open(p)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	names, err := r.tools()
	if err != nil {
		return "", false, err
	}
	text, code, err := r.call("read", map[string]any{"path": "/workspace/page.html"})
	return fmt.Sprintf("offered %q; %s%s", names, code, text), slices.Equal(names, []string{"read"}) && strings.Contains(text, "First heading") && strings.Contains(text, "Second heading") && p.received() == 1, err
}

func noGrant(s *stage) (string, bool, error) {
	with, err := s.granted("alice", "echo")
	if err != nil {
		return "", false, err
	}
	without, err := s.project("bob")
	if err != nil {
		return "", false, err
	}
	r, err := s.open(without)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	names, err := r.tools()
	if err != nil {
		return "", false, err
	}
	var said []string
	for _, tool := range []string{"echo", "count.echo"} {
		text, code, err := r.call(tool, nil)
		if said = append(said, refusedOr(code, err)); !unserved(code, err) {
			return fmt.Sprintf("%q %s", said, text), false, nil
		}
	}
	got := with.received() + without.received()
	return fmt.Sprintf("offered %q; %q; %d calls received", names, said, got), len(names) == 0 && got == 0, nil
}

// unserved tells whether a tool was refused because its name is none of the project's,
// or none that is granted there.
func unserved(code string, err error) bool {
	return code == "tool_not_granted" || err != nil && strings.Contains(err.Error(), "Unknown tool")
}

// refusedOr is a refusal's code, or what the client made of a protocol's error.
func refusedOr(code string, err error) string {
	if err != nil {
		return err.Error()
	}
	return code
}

func othersIdentifiers(s *stage) (string, bool, error) {
	a, err := s.granted("alice", "echo")
	if err != nil {
		return "", false, err
	}
	b, err := s.granted("bob", "echo")
	if err != nil {
		return "", false, err
	}
	token, _, err := s.token(a)
	if err != nil {
		return "", false, err
	}
	wrongProject := notLetIn(s.openAs(runtimeUID, b, token))
	wrongPerson := notLetIn(s.openAs(aliceUID, b, ""))
	nobody := notLetIn(s.openAs(runtimeUID, b, ""))
	r, err := s.openAs(runtimeUID, a, token)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	_, code, err := r.call("echo", map[string]any{"project": b.id, "account": "bob", "task": "tsk_00000000-0000-7000-8000-000000000000"})
	rows, recErr := s.records(a)
	own := recErr == nil && len(rows) == 1 && rows[0].Project == a.id
	came := fmt.Sprintf("token of another project: %s; another account's user: %s; a user of no account: %s; ids in the arguments: recorded in its own project %v %s", wrongProject, wrongPerson, nobody, own, code)
	return came, s.says(wrongProject, "token_invalid") && s.says(wrongPerson, "not_member") && s.says(nobody, "account_unknown") && own && code == "" && a.received() == 1 && b.received() == 0, errors.Join(err, recErr)
}

func oneOfMany(s *stage) (string, bool, error) {
	p, r, err := s.opened("alice", "echo")
	if err != nil {
		return "", false, err
	}
	defer r.close()
	names, err := r.tools()
	if err != nil {
		return "", false, err
	}
	_, other, otherErr := r.call("write", map[string]any{"path": "/workspace/new.txt", "text": "x"})
	n := p.received()
	_, code, err := r.call("echo", nil)
	came := fmt.Sprintf("offered %q; write: %s, %d received; echo: %q, %d received", names, refusedOr(other, otherErr), n, code, p.received())
	return came, slices.Equal(names, []string{"echo"}) && other == "tool_not_granted" && n == 0 && code == "" && p.received() == 1, err
}

func revocation(s *stage) (string, bool, error) {
	p, r, err := s.opened("alice", "slow", "echo")
	if err != nil {
		return "", false, err
	}
	defer r.close()
	other, err := s.open(p) // a session of its own: the fixture waits for each answer
	if err != nil {
		return "", false, err
	}
	defer other.close()
	ended := make(chan string, 1)
	go func() {
		_, code, err := other.call("slow", map[string]any{"ms": 20_000})
		ended <- refusedOr(code, err)
	}()
	if err := until("the server has the call", func() bool { return p.received() == 1 }); err != nil {
		return "", false, err
	}
	con := api.ConnectionParams{Project: p.id, Server: "count", Tools: []string{"slow"}}
	var cut api.RevokeResult
	if err := s.Call(api.ConnectionRevoke, con, &cut); err != nil {
		return "", false, err
	}
	_, next, nextErr := r.call("slow", map[string]any{"ms": 1})
	n := p.received()
	was := <-ended
	if err := s.Call(api.ConnectionGrant, con, nil); err != nil {
		return "", false, err
	}
	_, again, err := r.call("slow", map[string]any{"ms": 1})
	named := len(cut.Stands) == 1 && cut.Stands[0].Tool == "slow" && cut.Stands[0].CancelSent && cut.Note != ""
	came := fmt.Sprintf("named with a cancel %v (%q); it ended with %s; next call: %s; granted again: %q", named, cut.Note, was, refusedOr(next, nextErr), again)
	return came, named && strings.Contains(was, "call_revoked") && next == "tool_not_granted" && n == 1 && again == "", errors.Join(nextErr, err)
}

func replacedProject(s *stage) (string, bool, error) {
	old, r, err := s.opened("alice", "echo")
	if err != nil {
		return "", false, err
	}
	defer r.close()
	_, before, err := r.call("echo", nil)
	if err != nil {
		return "", false, err
	}
	if err := errors.Join(s.do("project", "delete", old.id), os.RemoveAll(old.workspace)); err != nil {
		return "", false, err
	}
	_, live, liveErr := r.call("echo", nil)
	next := old
	if err := s.registerProject(&next); err != nil {
		return "", false, err
	}
	oldDoor := notLetIn(s.open(old))
	n, err := s.open(next)
	if err != nil {
		return "", false, err
	}
	defer n.close()
	names, err := n.tools()
	_, code, callErr := n.call("echo", nil)
	dead := refusedOr(live, liveErr)
	came := fmt.Sprintf("before: %q; in the old session: %s; the old project: %s; the new one is offered %q, echo: %s", before, dead, oldDoor, names, refusedOr(code, callErr))
	return came, before == "" && dead != "" && oldDoor != "" && len(names) == 0 && unserved(code, callErr) && next.received() == 0 && next.id != old.id, err
}

func replacedServer(s *stage) (string, bool, error) {
	label := fmt.Sprintf("tools%d", s.made)
	if err := s.register(label); err != nil {
		return "", false, err
	}
	p, err := s.project("alice")
	if err != nil {
		return "", false, err
	}
	if err := errors.Join(s.do("connection", "add", p.id, label), s.do("connection", "grant", p.id, label, "echo")); err != nil {
		return "", false, err
	}
	r, err := s.open(p)
	if err != nil {
		return "", false, err
	}
	defer r.close()
	try := func() string {
		_, code, err := r.call("echo", nil)
		return refusedOr(code, err)
	}
	first := try()
	if err := s.do("server", "update", label, "--profile", "static", "--package", s.pkg, "--", "/package/count", "/workspace/calls.log"); err != nil {
		return "", false, err
	}
	updated := try()
	if err := errors.Join(s.do("server", "probe", label), s.do("connection", "accept", p.id, label)); err != nil {
		return "", false, err
	}
	accepted := try()
	if err := errors.Join(s.do("server", "delete", label), s.register(label)); err != nil {
		return "", false, err
	}
	deleted, received := try(), p.received()
	came := fmt.Sprintf("at first %q; updated: %s; accepted %q; deleted and registered again: %s; %d received", first, updated, accepted, deleted, received)
	return came, first == "" && updated == "server_revision_changed" && accepted == "" && deleted == "server_deleted" && received == 2, nil
}
