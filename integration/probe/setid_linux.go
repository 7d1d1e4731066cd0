package main

import (
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setIDProbes try every call that takes a file mode, with the bits that let a
// file lend its owner. What a jail "owns" belongs on disk to a person.
func setIDProbes() []probe {
	var all []probe
	for _, m := range []struct {
		label string
		mode  uintptr
	}{{"4755", 0o4755}, {"2755", 0o2755}, {"6755", 0o6755}, {"4755-junk", 0xffff0000 | 0o4755}} {
		for _, way := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "open", "openat", "tmpfile", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "openat2"} {
			all = append(all, probe{"G22-" + way + "-" + m.label, "a file that lends its owner", false, func(a aim) answer { return setID(a["dir"], way, m.mode) }})
		}
	}
	for _, way := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "open", "openat", "creat", "mkdir", "mkdirat", "mknod"} {
		all = append(all, probe{"G22-" + way + "-0755", "the same without the bits: the permitted twin", false, func(a aim) answer {
			if got := setID(a["dir"], way, 0o755); got.verdict == "CLOSED" && got.detail != "" {
				return info("refused %s", got.detail)
			}
			return info("made")
		}})
	}
	return all
}

func setID(dir, way string, mode uintptr) answer {
	at := filepath.Join(dir, fmt.Sprintf("setid-%s-%o", way, mode))
	path, cwd := cstr(at), fdCWD
	defer unix.Rmdir(at)
	defer unix.Unlink(at)
	var fd uintptr
	var e unix.Errno
	if way == "chmod" || way == "fchmod" || way == "fchmodat" || way == "fchmodat2" {
		f, err := unix.Open(at, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o700)
		if err != nil && err != unix.ENOSYS && err != unix.ENOENT && err != unix.EROFS {
			return done(err)
		}
		if err == nil {
			defer unix.Close(f)
		}
		fd = uintptr(f)
	}
	opened := false
	switch way {
	case "chmod":
		e = call(unix.SYS_CHMOD, path, mode)
	case "fchmod":
		e = call(unix.SYS_FCHMOD, fd, mode)
	case "fchmodat":
		e = call(unix.SYS_FCHMODAT, cwd, path, mode)
	case "fchmodat2":
		e = call(unix.SYS_FCHMODAT2, cwd, path, mode, 0)
	case "open":
		fd, e = value(unix.SYS_OPEN, path, unix.O_CREAT|unix.O_WRONLY, mode)
		opened = true
	case "openat":
		fd, e = value(unix.SYS_OPENAT, cwd, path, unix.O_CREAT|unix.O_WRONLY, mode)
		opened = true
	case "tmpfile":
		fd, e = value(unix.SYS_OPENAT, cwd, cstr(dir), unix.O_TMPFILE|unix.O_WRONLY, mode)
		opened = true
	case "creat":
		fd, e = value(unix.SYS_CREAT, path, mode)
		opened = true
	case "openat2":
		how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: uint64(mode & 0xffff)}
		kept = append(kept, &how)
		fd, e = value(unix.SYS_OPENAT2, cwd, path, uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
		opened = true
	case "mkdir":
		e = call(unix.SYS_MKDIR, path, mode)
	case "mkdirat":
		e = call(unix.SYS_MKDIRAT, cwd, path, mode)
	case "mknod":
		e = call(unix.SYS_MKNOD, path, unix.S_IFREG|mode, 0)
	case "mknodat":
		e = call(unix.SYS_MKNODAT, cwd, path, unix.S_IFREG|mode, 0)
	}
	if opened && e == 0 {
		defer unix.Close(int(fd))
	}
	return done(e)
}
