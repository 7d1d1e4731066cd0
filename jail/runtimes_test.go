package jail

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// systemProgram is a launch of a program of the system; it must be there where
// everything is checked.
func systemProgram(t *testing.T, profile string, argv ...string) Request {
	t.Helper()
	if _, err := os.Stat(argv[0]); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: make deps installs it", err)
		}
		t.Skip(err)
	}
	r := request(t, profile)
	r.Program, r.Argv = nil, argv
	return r
}

// Python: the standard library with its compiled modules, an event loop, threads,
// a package; no child, no host, no network.
func TestPythonRuns(t *testing.T) {
	l := launcher(t)
	r := systemProgram(t, "python", "/usr/bin/python3", "-c", `
import asyncio, concurrent.futures, ctypes, hashlib, json, os, socket, sqlite3, ssl, subprocess, sys, tempfile, threading, zlib
print('package', __import__('mine').word)
open('/workspace/f', 'w').write('x'); os.rename('/workspace/f', '/workspace/g'); os.makedirs('/workspace/a/b')
print('files', ','.join(sorted(n for n in os.listdir('/workspace') if n[0] != '.')))
with tempfile.TemporaryFile() as f: f.write(b'x')
print('zlib', zlib.decompress(zlib.compress(b'abc')).decode(), )
print('sqlite', sqlite3.connect('/workspace/db').execute('select 6*7').fetchone()[0])
async def main():
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return sum(await asyncio.gather(*(loop.run_in_executor(pool, hashlib.sha256(b'x').digest().__getitem__, i) for i in range(4))))
print('asyncio', asyncio.run(main()))
def refused(name, f):
    try: f(); print(name, 'OPEN')
    except Exception as e: print(name, 'CLOSED')
refused('child', lambda: subprocess.run(['/usr/bin/python3', '-V']))
refused('fork', os.fork)
refused('passwd', lambda: open('/etc/passwd'))
refused('net', lambda: socket.create_connection(('127.0.0.1', 1)))
refused('setid', lambda: os.chmod('/workspace/g', 0o4755))
`)
	pkg := t.TempDir()
	if err := os.WriteFile(filepath.Join(pkg, "mine.py"), []byte("word = 'found'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.Package = openFile(t, pkg)
	expect(t, answers(t, l, r), map[string]string{"package": "found", "files": "a,g", "zlib": "abc", "sqlite": "42", "asyncio": "246",
		"child": "CLOSED", "fork": "CLOSED", "passwd": "CLOSED", "net": "CLOSED", "setid": "CLOSED"})
}

// A server that starts programs: each runs under the same filter, what the
// workspace holds is data, and git, npm and a shell work.
func TestNodeSpawnRuns(t *testing.T) {
	l := launcher(t)
	r := systemProgram(t, "node-spawn", "/usr/bin/node", "-e", `
		const {execFileSync, spawnSync, spawn} = require('child_process'), fs = require('fs')
		const run = (name, ...argv) => { try { console.log(name + ' ' + execFileSync(argv[0], argv.slice(1), {stdio: ['ignore', 'pipe', 'pipe']}).toString().trim().split('\n').pop()) }
			catch (e) { console.log(name + ' CLOSED ' + (e.code || e.status || e.signal)) } }
		run('sh', 'sh', '-c', 'echo $((6*7)) | cat')
		run('node', 'node', '-p', '6*7')
		run('npm', 'npm', '--version')
		for (const a of [['init', '-q', 'r'], ['-C', 'r', 'config', 'user.name', 'x'], ['-C', 'r', 'config', 'user.email', 'x@x'],
			['-C', 'r', 'commit', '-q', '--allow-empty', '-m', 'first'], ['-C', 'r', 'worktree', 'add', '-q', '../w']]) run('git-' + a[a[0] == '-C' ? 2 : 0], 'git', ...a)
		run('log', 'git', '-C', 'w', 'log', '--format=%s')
		fs.writeFileSync('/workspace/s', '#!/bin/sh\necho x', {mode: 0o755}); run('script', '/workspace/s')
		run('su', 'su', '-c', 'id'); run('unshare', 'unshare', '-Ur', 'true'); run('passwd', 'cat', '/etc/passwd'); run('seccomp', 'grep', '^Seccomp:', '/proc/self/status')
		run('pids', 'sh', '-c', 'ls /proc | grep -c "^[0-9]"')
		console.log('piped ' + spawnSync('cat', {input: 'through'}).stdout)
	`)
	said := answers(t, l, r)
	expect(t, said, map[string]string{"sh": "42", "node": "42", "git-init": "", "git-commit": "", "git-worktree": "", "log": "first", "piped": "through", "script": "CLOSED EACCES", "seccomp": "Seccomp:\t2"})
	for _, name := range []string{"su", "unshare", "passwd"} {
		if !strings.HasPrefix(said[name], "CLOSED") {
			t.Errorf("%s: %s", name, said[name])
		}
	}
	if said["npm"] == "" || strings.HasPrefix(said["npm"], "CLOSED") {
		t.Errorf("npm: %s", said["npm"])
	}
}

// A wrapper dies while its child loops on a broken pipe: the child does not live
// on, and until then it uses no more than its share.
func TestC116_TheChildOfADeadWrapperEndsWithIt(t *testing.T) {
	l := launcher(t)
	const loop = `process.on('uncaughtException', () => {}); process.stdout.on('error', () => {}); require('fs').writeSync(2, 'child ready\n');
		setInterval(() => { for (let i = 0; i < 1000; i++) process.stdout.write('x') }, 0)`
	r := systemProgram(t, "node-spawn", "/usr/bin/sh", "-c", `node -e "$0" & echo $! ; read line; kill -9 $$`, loop)
	p := start(t, l, r)
	p.line(t) // the child's number
	p.stdout.Close()
	select { // until the child has met its broken pipe for a while
	case <-p.Done():
		t.Fatalf("ended early: %+v %s", p.Exit(), p.stderr)
	case <-time.After(time.Second):
	}
	before, err := p.Stats()
	if err != nil || before.Pids < 5 {
		t.Fatalf("the child does not run: %+v, %v", before, err)
	}
	begin := time.Now()
	select {
	case <-p.Done():
		t.Fatal("ended early")
	case <-time.After(time.Second):
	}
	after, err := p.Stats()
	if most := time.Duration(r.Profile.Limits.CPUPercent) * time.Since(begin) / 100; err != nil || time.Duration(after.CPUUsec-before.CPUUsec)*time.Microsecond > most+most/2 {
		t.Errorf("used %d µs of %v, %v", after.CPUUsec-before.CPUUsec, most, err)
	}
	io.WriteString(p.stdin, "go\n")
	gone(t, p.Process)
	if e := p.Exit(); e.Code != 128+9 || e.Forced {
		t.Errorf("exit %+v, want 137: the wrapper was killed", e)
	}
}

// Two hundred short children whose parent is gone become process 1's, which waits
// for each; the wait for the program itself is not taken by one of them.
func TestC119_ShortChildrenLeaveNoZombie(t *testing.T) {
	l := launcher(t)
	r := systemProgram(t, "node-spawn", "/usr/bin/sh", "-c", `
		i=0; while [ $i -lt 200 ]; do (true & true &) ; i=$((i+1)); done; echo started; read line
		t=0; n=1; while [ $n -gt 0 ] && [ $t -lt 2000 ]; do # those that have just ended are reaped in a moment
			n=0; for f in /proc/[0-9]*/stat; do read -r a b c rest < $f && [ "$c" = Z ] && n=$((n+1)); done; t=$((t+1))
		done; echo zombies $n; exit 5`)
	p := start(t, l, r)
	if got := p.line(t); got != "started" {
		t.Fatalf("said %q", got)
	}
	// What is left must be the shell and the reaper; it may take the kernel a moment.
	for end := time.Now().Add(2 * time.Second); ; {
		s, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Pids < 20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d processes are left after 2 s", s.Pids)
		}
	}
	io.WriteString(p.stdin, "go\n")
	if got := p.line(t); got != "zombies 0" {
		t.Errorf("said %q", got)
	}
	gone(t, p.Process)
	if e := p.Exit(); e != (Exit{Code: 5}) {
		t.Errorf("exit %+v", e)
	}
}

// Chromium, headless, with no network: it runs a page's script, draws it, and
// prints it; the jail's walls stand around all of its processes.
func TestBrowserRuns(t *testing.T) {
	l := launcher(t)
	r := systemProgram(t, "browser", "/usr/lib/chromium/chromium", "--headless=new", "--no-sandbox", "--no-zygote", "--disable-gpu", "--user-data-dir=/tmp/p",
		"--screenshot=/workspace/shot.png", "--virtual-time-budget=2000",
		"data:text/html,<title>t</title><body><script>document.body.textContent = 'answer ' + 6 * 7</script>")
	dir := r.Workspace.Dir.Name()
	p := start(t, l, r)
	p.stdin.Close()
	raw, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	gone(t, p.Process)
	<-p.read
	if e := p.Exit(); e != (Exit{}) {
		t.Fatalf("ended with %+v, said %q; stderr %q", e, raw, p.stderr)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "shot.png"), &st); err != nil || st.Size < 1000 || st.Uid != ownerUID {
		t.Errorf("the picture on disk: %d bytes of %d's, %v", st.Size, st.Uid, err)
	}
}
