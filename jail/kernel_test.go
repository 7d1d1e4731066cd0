package jail

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"postern/jail/spec"
)

// Calls with pointers to nowhere: one that reached the kernel would say EFAULT,
// EBADF or EINVAL (for a filter in between, see bubblewrap's try-syscall).
func TestDangerousCallsDoNotReachTheKernel(t *testing.T) {
	l := launcher(t)
	calls := map[string]int{
		"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "fsopen": 430, "open_tree": 428, "move_mount": 429,
		"mount_setattr": 442, "io_uring_setup": 425, "io_uring_register": 427, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
		"keyctl": 250, "add_key": 248, "request_key": 249, "ptrace": 101, "process_vm_readv": 310, "pidfd_getfd": 438, "kcmp": 312,
		"memfd_create": 319, "execveat": 322, "open_by_handle_at": 304, "name_to_handle_at": 303, "kexec_load": 246, "init_module": 175, "reboot": 169,
		"swapon": 167, "settimeofday": 164, "sethostname": 170, "syslog": 103, "modify_ldt": 154, "personality": 135,
		"fanotify_init": 300, "memfd_secret": 447, "seccomp": 317, "capset": 126, "quotactl": 179, "acct": 163, "iopl": 172,
	}
	var probes []string
	for name, nr := range calls {
		probes = append(probes, fmt.Sprintf("sys=%d:%s", nr, name))
	}
	for _, profile := range []string{"static", "node", "bridge"} {
		said := answers(t, l, request(t, profile, probes...))
		for name := range calls {
			if said[name] != "CLOSED EPERM" {
				t.Errorf("%s: %s: %s", profile, name, said[name])
			}
		}
		// Unknown to any list: what a kernel without the call would say.
		said = answers(t, l, request(t, profile, "sys=463:setxattrat", "sys=470:listns", "sys=999:nothing", "sys=425:io_uring_setup", "clone3", "sys=437:openat2"))
		expect(t, said, map[string]string{"setxattrat": "CLOSED ENOSYS", "listns": "CLOSED ENOSYS", "nothing": "CLOSED ENOSYS", "clone3": "CLOSED ENOSYS", "openat2": "CLOSED ENOSYS"})
	}
	// The twins: outside a jail these reach the kernel.
	for name, answer := range outside(t, "sys=425:io_uring_setup", "sys=321:bpf", "sys=250:keyctl", "sys=165:mount", "sys=428:open_tree", "sys=319:memfd_create", "clone3") {
		if answer == "CLOSED EPERM" || answer == "CLOSED ENOSYS" {
			t.Errorf("outside: %s: %s: the probe proves nothing", name, answer)
		}
	}
}

func TestNoNamespaceAndNoForkInAJail(t *testing.T) {
	l := launcher(t)
	probes := []string{"unshare=0x10000000", "unshare=0x110000000", "clone-newuser", "fork", "tiocsti", "tiocsti=0x100000000"}
	want := map[string]string{"unshare": "CLOSED EPERM", "clone-newuser": "CLOSED EPERM", "fork": "CLOSED EPERM", "tiocsti": "CLOSED EPERM"}
	for _, profile := range []string{"static", "node", "bridge"} {
		expect(t, answers(t, l, request(t, profile, probes...)), want)
	}
	expect(t, outside(t, "clone-newuser", "fork"), map[string]string{"clone-newuser": "OPEN", "fork": "OPEN"})
}

func TestSeccomp1_ForeignArchitecturesEndTheProcess(t *testing.T) {
	l := launcher(t)
	for probe, call := range map[string]string{"int80": "32-bit call 20 (getpid)", "x32": "x32 call 39 (getpid)"} {
		p := start(t, l, request(t, "static", probe))
		p.stdin.Close()
		gone(t, p.Process)
		if e := p.Exit(); e != (Exit{Code: -1, Signal: int(syscall.SIGSYS), Filtered: true, Call: call}) {
			t.Errorf("%s: %+v, want SIGSYS for %s", probe, e, call)
		}
		// The twin that lives: the same question by the door of this architecture.
		expect(t, answers(t, l, request(t, "static", "sys=39:getpid")), map[string]string{"getpid": "OPEN"})
	}
	// Under a reaper the program's own end is told by it.
	r := request(t, "node-spawn", "int80")
	p := start(t, l, r)
	gone(t, p.Process)
	if e := p.Exit(); e != (Exit{Code: 128 + int(syscall.SIGSYS), Filtered: true, Call: "32-bit call 20 (getpid)"}) {
		t.Errorf("under a reaper: %+v", e)
	}
	// Outside, the 32-bit door is open; it prints a process number.
	if twin := outside(t, "int80")["int80"]; twin == "" || strings.HasPrefix(twin, "CLOSED") {
		t.Errorf("outside: int80 says %q", twin)
	}
}

// The profile with fork: a reaper is process 1, children work, orphans are
// reaped and die with it, and nobody of them has more than the program.
func TestForkProfileHasAReaper(t *testing.T) {
	l := launcher(t)
	forking := func(probes ...string) Request {
		r := request(t, "static", probes...)
		r.Profile.Name, r.Profile.Fork = "forking", true
		r.Profile.Limits.PidsMax = 1024 // each of these programs is five threads
		r.Profile.Seccomp.Groups = append(r.Profile.Seccomp.Groups[:len(r.Profile.Seccomp.Groups):len(r.Profile.Seccomp.Groups)],
			spec.SyscallGroup{Name: "children", Reason: "this test", Calls: []string{"fork", "vfork", "setsid"}})
		return r
	}
	r := forking("fds", "ids", "fork", "clone-newuser", "status", "read=/proc/1/environ", "setuid0")
	said := answers(t, l, r)
	expect(t, said, map[string]string{
		"ids":  fmt.Sprintf("%d %d %d %d [] pid %s", r.UID, r.UID, r.GID, r.GID, said["NSpid"]),
		"fork": "OPEN", "clone-newuser": "CLOSED EPERM", "PPid": "1", "Seccomp": "2", "NoNewPrivs": "1", "CapBnd": "0000000000000000",
		"fds": "[0 1 2]", "setuid0": "CLOSED EPERM", "read=/proc/1/environ": "CLOSED ENOENT",
	})

	p := start(t, l, forking("forks=20", "exit=7"))
	p.stdin.Close()
	if got := p.line(t); got != "forks DATA 20" {
		t.Fatalf("said %q", got)
	}
	gone(t, p.Process)
	if e := p.Exit(); e.Code != 7 {
		t.Errorf("exit %+v, want 7", e)
	}

	// One child that uses up the memory ends the whole jail.
	hungry := forking("forks=5", "child=bomb", "sleep")
	hungry.Limits.MemoryBytes = 96 << 20
	p = start(t, l, hungry)
	gone(t, p.Process)
	if e := p.Exit(); !e.OOM || e.Forced {
		t.Errorf("exit %+v, want OOM", e)
	}

	// A storm that ignores everything is killed as a whole.
	p = start(t, l, forking("forks=40", "spin"))
	if got := p.line(t); got != "forks DATA 40" {
		t.Fatalf("said %q", got)
	}
	if s, err := p.Stats(); err != nil || s.Pids < 40 {
		t.Errorf("stats %+v, %v", s, err)
	}
	p.Kill()
	gone(t, p.Process)
	if e := p.Exit(); !e.Forced || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v, want forced", e)
	}
}

func TestNodeRuns(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("no node on this machine: make deps installs it")
	}
	if err != nil {
		t.Skip("no node on this machine")
	}
	l := launcher(t)
	r := request(t, "node")
	r.Program = nil
	r.Argv = []string{node, "-e", `
		const fs = require('fs'), zlib = require('zlib'), crypto = require('crypto'), {Worker} = require('worker_threads')
		fs.writeFileSync('/workspace/f', 'x'); fs.renameSync('/workspace/f', '/workspace/g'); fs.cpSync('/workspace/g', '/workspace/h')
		fs.mkdirSync('/workspace/a/b', {recursive: true}); fs.rmSync('/workspace/a', {recursive: true})
		console.log('files ' + fs.readdirSync('/workspace').filter(n => n[0] != '.').join(','))
		console.log('zlib ' + zlib.gunzipSync(zlib.gzipSync('abc')).toString())
		crypto.scrypt('a', 'b', 16, () => {
			console.log('crypto done')
			try { require('child_process').execFileSync('/usr/bin/node', ['-v']); console.log('child OPEN') } catch (e) { console.log('child CLOSED ' + e.code) }
			try { fs.readFileSync('/etc/passwd'); console.log('passwd OPEN') } catch (e) { console.log('passwd CLOSED ' + e.code) }
			const s = require('net').connect(1, '127.0.0.1').on('error', e => { console.log('net CLOSED ' + e.code)
				new Worker('require("worker_threads").parentPort.postMessage(6*7)', {eval: true}).on('message', m => console.log('worker ' + m)) })
		})
	`}
	said := answers(t, l, r)
	expect(t, said, map[string]string{"files": "g,h", "zlib": "abc", "crypto": "done", "passwd": "CLOSED ENOENT", "worker": "42"})
	for _, name := range []string{"child", "net"} {
		if !strings.HasPrefix(said[name], "CLOSED") {
			t.Errorf("%s: %s", name, said[name])
		}
	}
}
