package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The floor. What is older lacks something that no jail goes without.
const (
	kernelMajor, kernelMinor = 6, 12
	landlockABI              = 6
)

// hostLayers asks this kernel, and each file system that one of dirs lies on, by trying rather than by version where that can
// be done without leaving a trace.
func hostLayers(dirs []string) []layer {
	layers := []layer{kernelLayer(), seccompLayer(), namespacesLayer(), landlockLayer(), lsmLayer(), capabilitiesLayer(), peerLayer(), rightsLayer(), keyringLayer(), yamaLayer(), sysctlsLayer(), killRecordsLayer()}
	layers = append(layers, cgroupLayers()...)
	return append(layers, filesystemLayers(dirs)...)
}

func kernelLayer() layer {
	var u unix.Utsname
	found, good := "unknown", false
	if err := unix.Uname(&u); err == nil {
		found = unix.ByteSliceToString(u.Release[:])
		var major, minor int
		fmt.Sscanf(found, "%d.%d", &major, &minor)
		good = major > kernelMajor || major == kernelMajor && minor >= kernelMinor
	}
	return judge("kernel", good, layerMissing, found, fmt.Sprintf("Linux %d.%d is the oldest with every layer", kernelMajor, kernelMinor),
		"boot a newer kernel (Debian 13, or 12 with the backports kernel)")
}

func seccompLayer() layer {
	kill := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&kill)))
	found := "filters, with kill-process"
	if errno != 0 {
		found = errno.Error()
	}
	return judge("seccomp", errno == 0, layerMissing, found, "the system calls of a jail are a list; all others do not exist there", "boot a kernel with CONFIG_SECCOMP_FILTER")
}

func namespacesLayer() layer {
	var missing []string
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup", "user"} {
		if !exists("/proc/self/ns/" + ns) {
			missing = append(missing, ns)
		}
	}
	found := "mnt, pid, net, ipc, uts, cgroup, user"
	if missing != nil {
		found = "no " + list(missing)
	}
	if n := number("/proc/sys/user/max_user_namespaces"); n == 0 && missing == nil {
		missing, found = []string{"user"}, "user namespaces are limited to 0"
	}
	return judge("namespaces", missing == nil, layerMissing, found, "a jail has its own of each; a user namespace only carries the id mapping of its mount",
		"boot a kernel with these namespaces; sysctl user.max_user_namespaces above 0")
}

func landlockLayer() layer {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	found := fmt.Sprintf("ABI %d", abi)
	if errno != 0 {
		abi, found = 0, errno.Error()
	}
	return judge("landlock", abi >= landlockABI, layerMissing, found, fmt.Sprintf("ABI %d also scopes signals and abstract sockets", landlockABI),
		"boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in the lsm= list")
}

// idmapLayer tries the mount that gives a workspace its owner: a detached clone,
// never attached anywhere, mapped through a user namespace that a waiting child
// holds for as long as it takes.
func idmapLayer(dir string) layer {
	const name, meaning = "id-mapped mounts", "files written in /workspace belong to the project's owner, while the server runs under its own uid"
	if os.Geteuid() != 0 {
		return judge(name, false, layerDegraded, "not tried: needs root", meaning, "run postern doctor as root")
	}
	err := tryIDMap(dir)
	found := "tried on " + dir + " (" + filesystem(dir) + ")"
	if err != nil {
		found += ": " + err.Error()
	}
	return judge(name, err == nil, layerMissing, found, meaning, "put state and workspaces on ext4, xfs, btrfs or tmpfs; overlayfs cannot")
}

func tryIDMap(dir string) error {
	const some = 1 << 20 // an unused id: the mount is never attached
	child := exec.Command("cat")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: some, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: some, Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	child.Env = []string{}
	hold, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("user namespace: %w", cause(err))
	}
	defer child.Wait()
	defer hold.Close()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", child.Process.Pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

func filesystem(dir string) string {
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "nfs"}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err.Error()
	}
	if name := names[int64(st.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("type %#x", st.Type)
}

func handleLayer(dir string) layer {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	found := "none on " + dir
	if err == nil {
		found = fmt.Sprintf("%d bytes on %s", handle.Size(), dir)
	} else {
		found += ": " + err.Error()
	}
	return judge("file handles", err == nil, layerMissing, found, "a project is its directory, not whatever is created later at the same path", "put workspaces on a file system that can be exported")
}

func peerLayer() layer {
	found, err := "SO_PEERPIDFD", tryPeer()
	if err != nil {
		found = err.Error()
	}
	return judge("peer identity", err == nil, layerMissing, found, "who connects is known by uid, and known to be alive", "boot Linux 6.5 or newer")
}

func tryPeer() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	pidfd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return fmt.Errorf("SO_PEERPIDFD: %w", err)
	}
	defer unix.Close(pidfd)
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		return fmt.Errorf("pidfd_send_signal: %w", err)
	}
	return nil
}

func rightsLayer() layer {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, soPassRights, 0)
	}
	found := "SO_PASSRIGHTS"
	if err != nil {
		found = err.Error()
	}
	return judge("descriptor refusal", err == nil, layerDegraded, found, "without it a descriptor that a peer sends is dropped at our side, and a hostile file system can delay that", "boot Linux 6.16 or newer")
}

func keyringLayer() layer {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	good := !errors.Is(err, unix.ENOSYS)
	found := "session keyrings"
	if !good {
		found = err.Error()
	}
	return judge("keyrings", good, layerMissing, found, "each jail gets a fresh session keyring", "boot a kernel with CONFIG_KEYS")
}

// cgroupLayers reads what is mounted: v2 alone, or v1 controllers with or
// without a v2 tree beside them.
func cgroupLayers() []layer {
	const meaning = "memory, processes and cpu of a jail are bounded, and all of it dies at once"
	mounts, err := cgroupMounts()
	if err != nil {
		return []layer{judge("cgroup", false, layerMissing, err.Error(), meaning, "mount /proc and /sys/fs/cgroup")}
	}
	unified, hasV2 := mounts["v2"]
	if hasV2 && len(mounts) == 1 {
		raw, _ := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
		have := strings.Fields(string(raw))
		return []layer{
			judge("cgroup", true, "", "v2 at "+unified, meaning, ""),
			controllersLayer(have, []string{"memory", "pids", "cpu"}),
			judge("cgroup io", slices.Contains(have, "io"), layerDegraded, presence(slices.Contains(have, "io")), "input and output of a jail are bounded", "enable the io controller"),
		}
	}
	mode := "v1"
	if hasV2 {
		mode = "hybrid"
	}
	var have []string
	for name := range mounts {
		have = append(have, name)
	}
	slices.Sort(have)
	return []layer{
		judge("cgroup", false, layerDegraded, mode+": "+list(have), meaning+"; with v1 controllers, by freezing and killing, and without an io bound",
			"boot with systemd.unified_cgroup_hierarchy=1, or without v1 controllers mounted"),
		controllersLayer(have, []string{"memory", "pids", "cpu", "freezer"}),
	}
}

func controllersLayer(have, want []string) layer {
	var missing []string
	for _, c := range want {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	found := list(want)
	if missing != nil {
		found = "no " + list(missing)
	}
	return judge("cgroup controllers", missing == nil, layerMissing, found, "a jail without one of these bounds does not start", "enable them: kernel configuration, cgroup_enable=memory, or the parent's cgroup.subtree_control")
}

// cgroupMounts maps "v2" and the names of v1 controllers to their mount points.
func cgroupMounts() (map[string]string, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		switch r[0] {
		case "cgroup2":
			out["v2"] = l[4]
		case "cgroup":
			for _, option := range strings.Split(r[2], ",") {
				if slices.Contains([]string{"memory", "pids", "cpu", "freezer"}, option) {
					out[option] = l[4]
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroup file system is mounted")
	}
	return out, nil
}

func presence(b bool) string {
	if b {
		return "present"
	}
	return "absent"
}

// number reads a file that holds one; -1 if it does not.
func number(path string) int {
	raw, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return -1
	}
	return n
}
