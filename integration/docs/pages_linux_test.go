package docs

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// elsewhere are the programs whose lines are not run here, and why.
var elsewhere = map[string]string{
	"make":       "it changes the machine; make check-vm installs what it builds",
	"apt":        "it changes the machine",
	"dpkg":       "it changes the machine",
	"systemctl":  "make check-vm starts, restarts and stops the unit",
	"journalctl": "make check-vm reads the journal",
	"claude":     "integration/suites runs it on what client-config prints",
	"codex":      "integration/suites runs it on what client-config prints",
	"gemini":     "integration/suites runs it on what client-config prints",
	"npm":        "the pinned packages of make deps stand for what it fetches",
}

// shop makes what a reader has at the beginning of every page but the operator's.
func shop(w *world) {
	w.run("postern account add ana --uid 61001")
	w.run("postern account add ben --uid 61002")
	w.run("postern project add shop --workspace " + filepath.Join(w.dir, "srv/shop") + " --owner ana")
	w.run("postern project set shop --person-bind on")
	files(w)
	w.run("postern project member add shop ben")
	w.run("postern connection add shop files")
	w.run("postern connection grant shop files read_text_file list_directory write_file")
}

// files registers the published server, of whatever revision.
func files(w *world) {
	w.run("postern server add files --profile node --package " + built.modules +
		" --tier write_file=reversible -- /usr/bin/node /package/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js /workspace")
}

// connected makes ana's own task, as her first runtime does.
func connected(w *world) {
	w.write("home/hello", anaUID, 0o644, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"reader","version":"1"}}}`+"\n")
	if out, err := w.shell(anaUID, "postern connect --project shop <hello"); err != nil {
		w.t.Fatalf("connect: %v\n%s", err, out)
	}
}

// task makes one as the host of the pages.
func task(w *world) {
	w.hosts("postern task new --project shop --for-uid 1500 --token-fd 3 3>token")
}

// hosts runs a line as the host of the pages.
func (w *world) hosts(line string) {
	if out, err := w.shell(hostUID, line); err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// tickets makes what the page supposes of a server that needs a secret.
func tickets(w *world) {
	w.run("postern project delete shop") // it was moved
	w.run("postern project add shop --workspace " + filepath.Join(w.dir, "srv/shop") + " --owner ana")
	w.run("postern project set shop --person-bind on")
	w.run("mkdir ../srv/tickets && cp " + filepath.Join(built.dir, "secret/secret") + " ../srv/tickets/tickets")
	w.write("root/tickets.token", 0, 0o600, "a secret of the pages\n")
}

// offers connects a server that has prompts and resources.
func offers(w *world) {
	w.run("postern server add offers --profile static --package " + filepath.Join(built.dir, "offers") + " -- /package/offers")
	w.run("postern connection add shop offers")
}

// newer is a package with the server at another place, as the page has it.
func newer(t *testing.T) string {
	t.Helper()
	if built.newer != "" {
		return built.newer
	}
	at := filepath.Join(built.dir, "mcp-new")
	out, err := exec.Command("cp", "-a", built.modules, at).CombinedOutput()
	for name, text := range map[string]string{
		"package.json": `{"type":"module"}`,
		"index.js":     "process.argv.push('/workspace');\nawait import('./node_modules/@modelcontextprotocol/server-filesystem/dist/index.js');\n",
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(at, name), []byte(text), 0o644)
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built.newer = at
	return at
}

// updated gives the server another revision.
func updated(w *world) {
	w.run("postern server update files --profile node --package " + newer(w.t) + " -- /usr/bin/node /package/index.js")
}

// policy writes the page's, and waits until it decides.
func policy(w *world) {
	shop(w)
	if err := os.WriteFile(filepath.Join(w.Dir, "access.yaml"), []byte(accessPolicy), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for end := time.Now().Add(lineWait); !strings.Contains(w.run("postern access show"), "whatsapp"); {
		if time.Now().After(end) {
			w.t.Fatal("the policy does not decide")
		}
	}
}

const accessPolicy = `channels:
  whatsapp:
    access:
      admission: restricted
      default: {level: chat}
      users:
        "+5511977776666": {role: owner}
`

// said is what a reader types for a runtime, of one call.
func said(path string) string {
	return `(echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"hand","version":"1"}}}'; echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'; echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"` + path + `"}}}'; sleep 20) | postern connect --project shop`
}

var quickstart = map[string]line{
	"python3 /usr/share/postern/examples/call.py shop read_text_file path=/workspace/hello.txt": {want: "hello from the workspace"},
	"ls -l /srv/shop/note.txt": {want: " 61001 61001 17 "},
	"python3 /usr/share/postern/examples/call.py shop read_text_file path=/etc/shadow":              {exit: 1, want: "path_outside"},
	"python3 /usr/share/postern/examples/call.py shop search_files path=/workspace 'pattern=*.txt'": {want: "/workspace/hello.txt"},
	"postern server show files":                 {want: "write_file"},
	"postern activity --project shop":           {want: "path_outside"},
	"postern explain --project shop write_file": {exit: 65, want: "tool_not_granted"},
}

var upgrade = map[string]line{
	"sudo postern backup /srv/backup/before-upgrade": {before: func(w *world) { w.run("mkdir -m 700 " + filepath.Join(w.dir, "srv/backup")) }},
	"sudo postern doctor": {before: func(w *world) { // what installing and starting again comes to
		if err := errors.Join(w.Down(), w.Up()); err != nil {
			w.t.Fatal(err)
		}
	}},
	"sudo postern server diff files": {before: updated},
	"sudo postern restore /srv/backup/before-upgrade --enabled": {add: " --root-dir {root} --state-dir {state}", before: func(w *world) {
		if err := w.Down(); err != nil {
			w.t.Fatal(err)
		}
	}},
}

var troubles = map[string]line{
	"postern connect --project shop": {add: " </dev/null"},
}

var operators = map[string]line{
	"sudo postern credential add shop-tickets --project shop --server tickets --systemd shop-tickets": {skip: "its unit is started by systemd with the secret; make check-vm does that"},
	"sudo postern project member add shop bot --role member":                                          {before: func(w *world) { w.run("postern account add bot --uid 1500") }},
	"sudo postern server diff files":                                                                  {before: func(w *world) { files(w); updated(w) }},
	"sudo postern server add tickets --profile static --package /srv/tickets --credential required --credential-env TICKETS_TOKEN -- /package/tickets": {
		before: tickets, put: map[string]string{"-- /package/tickets": "-- /package/tickets TICKETS_TOKEN"}},
	"sudo postern connection grant shop tickets search": {put: map[string]string{"search": "digest"}},
	// The published server has no prompts; one that has them takes its place.
	"sudo postern connection grant shop files --prompt review --resource-prefix file:///workspace/docs":  {before: offers, put: map[string]string{"files": "offers"}},
	"sudo postern connection revoke shop files --prompt review --resource-prefix file:///workspace/docs": {put: map[string]string{"files": "offers"}},
	"postern logs shop files --lines 20 --follow":                                                        {follow: true, before: func(w *world) { w.shell(anaUID, said("/workspace/hello.txt")) }},
	"postern top --sort memory":                                                    {follow: true},
	"postern task list --project shop":                                             {before: connected},
	"postern activity --follow":                                                    {before: connected, follow: true},
	"postern explain --task tsk_01a2… files.write_file":                            {exit: 65},
	"postern explain --project shop --principal local:acc_01a2… write_file --json": {exit: 65},
	"sudo postern project move shop /srv/shop-moved --dry-run": {before: func(w *world) {
		w.run("postern project add shop --workspace " + filepath.Join(w.dir, "srv/shop") + " --owner ana")
		w.run("install -d -o 61001 -g 61001 " + filepath.Join(w.dir, "srv/shop-moved"))
	}},
	"sudo postern restore /srv/backup/monday --facts": {add: " --root-dir {root} --state-dir {state}"},
	"sudo postern debug bundle -o /root/fault.tar.gz": {add: " --root-dir {root} --state-dir {state}", want: "versions.json"},
	"sudo postern backup /srv/backup/monday": {before: func(w *world) {
		if err := os.Mkdir(filepath.Join(w.dir, "srv/backup"), 0o700); err != nil {
			w.t.Fatal(err)
		}
	}},
	"sudo postern restore /srv/backup/monday": {add: " --root-dir {root} --state-dir {state}", before: func(w *world) {
		if err := w.Down(); err != nil {
			w.t.Fatal(err)
		}
	}},
}

var owners = map[string]line{
	"postern artifact get art_01997d5e-0000-7000-8000-000000000000 --out chart.png": {skip: "the server of the pages answers with text alone; integration/e2e gets artifacts of one that does not"},
	"postern activity --project shop --follow":                                      {follow: true},
	"postern project delete shop":                                                   {before: func(w *world) { w.run("postern account activate ana") }},
}

var authors = map[string]line{
	"postern connect --project shop":                                                 {uid: anaUID, add: " </dev/null"},
	"postern client-config --project shop --for claude":                              {uid: anaUID},
	"postern task new --project shop --for-uid 1500 --token-fd 3":                    {add: " 3>token"},
	"postern task new --project shop --for-uid 1500 --ttl 1m --binds 2 --token-fd 3": {add: " 3>token"},
	"postern task token tsk_01a2… --token-fd 3":                                      {add: " 3>token"},
	"postern connect --project prj_01a2… --token-fd 3":                               {uid: runtimeUID, before: task, add: " 3<{dir}/agents/token </dev/null"},
	"postern connect --project prj_01a2… --token-file /run/postern/t/tsk_01a2…": {uid: runtimeUID, put: map[string]string{"/run/postern/": "{run}/"}, add: " </dev/null",
		before: func(w *world) { w.hosts("postern task new --project shop --for-uid 1500 --token-file") }},
	"postern check --task tsk_01a2… WebFetch": {before: task},
	"postern check --project shop write_file --args-file arguments.json": {uid: anaUID, before: func(w *world) {
		connected(w)
		w.write("home/arguments.json", anaUID, 0o644, `{"path":"`+filepath.Join(w.dir, "srv/shop/new")+`","content":"x"}`)
	}},
}

var access = map[string]line{
	"postern access redeem whatsapp:+5511999998888 -": {uid: hostUID, add: " <code", before: func(w *world) {
		var made struct {
			Code string `json:"code"`
		}
		if err := json.Unmarshal([]byte(w.run("postern --json access pair whatsapp 2>/dev/null")), &made); err != nil {
			w.t.Fatal(err)
		}
		w.write("agents/code", hostUID, 0o600, made.Code+"\n")
	}},
}

// host is where directories of the pages are here.
var host = map[string]string{"/srv/": "{dir}/srv/", "/root/": "{dir}/root/", "/srv/mcp ": "{mcp} ", "/srv/mcp-new ": "{mcp-new} ",
	"/usr/share/postern/examples": "{dir}/examples",
	"account add ana":             "account add ana --uid 61001", "-o ana -g ana": "-o 61001 -g 61001"}

var pages = []page{
	{name: "docs/quickstart.md", uid: anaUID, lines: quickstart, before: func(w *world) { w.run("rmdir " + filepath.Join(w.dir, "srv/shop")) }, put: host},
	{name: "docs/upgrade.md", uid: anaUID, lines: upgrade, put: host, before: shop},
	{name: "docs/troubleshooting.md", uid: anaUID, lines: troubles, before: shop},
	{name: "docs/operators.md", uid: anaUID, lines: operators, put: host},
	{name: "docs/project-owners.md", uid: anaUID, lines: owners, before: func(w *world) { shop(w); connected(w) }},
	{name: "docs/runtime-authors.md", uid: hostUID, lines: authors, before: shop},
	{name: "docs/access-policy.md", lines: access, before: policy},
}
