package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// networkProbes look for somebody to talk to. None of them sends a packet from
// outside a jail, and inside there is no way out for one.
func networkProbes() []probe {
	var all []probe
	tcp := func(label, what string, to func(aim) unix.Sockaddr) {
		all = append(all, probe{label, what, false, func(a aim) answer {
			sa := to(a)
			if sa == nil {
				return info("the host has none")
			}
			family := unix.AF_INET
			if _, six := sa.(*unix.SockaddrInet6); six {
				family = unix.AF_INET6
			}
			return done(connect(family, unix.SOCK_STREAM, sa))
		}})
	}
	v4 := func(b ...byte) func(aim) unix.Sockaddr {
		return func(a aim) unix.Sockaddr { return &unix.SockaddrInet4{Port: a.number("port"), Addr: [4]byte(b)} }
	}
	tcp("N1-loopback", "a port of the host's loopback", v4(127, 0, 0, 1))
	tcp("N2-any", "the same as 0.0.0.0", v4(0, 0, 0, 0))
	tcp("N2-loopback-high", "the same as 127.9.9.9", v4(127, 9, 9, 9))
	tcp("N2-loopback6", "the same as ::1", func(a aim) unix.Sockaddr {
		return &unix.SockaddrInet6{Port: a.number("port"), Addr: [16]byte{15: 1}}
	})
	tcp("N2-mapped", "the same as ::ffff:127.0.0.1", func(a aim) unix.Sockaddr {
		return &unix.SockaddrInet6{Port: a.number("port"), Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	})
	tcp("N2-own-address", "an address of the host's", func(a aim) unix.Sockaddr {
		if a["address4"] == "" {
			return nil
		}
		sa := &unix.SockaddrInet4{Port: a.number("port")}
		fmt.Sscanf(a["address4"], "%d.%d.%d.%d", &sa.Addr[0], &sa.Addr[1], &sa.Addr[2], &sa.Addr[3])
		return sa
	})
	// These name machines of others: outside a jail they are not tried.
	far := func(label, what string, kind int, sa unix.Sockaddr) {
		all = append(all, probe{label, what, false, func(a aim) answer {
			if a["jailed"] != "yes" {
				return info("not tried outside")
			}
			family := unix.AF_INET
			if _, six := sa.(*unix.SockaddrInet6); six {
				family = unix.AF_INET6
			}
			return done(connect(family, kind|unix.SOCK_NONBLOCK, sa))
		}})
	}
	far("N3-metadata", "the cloud's metadata", unix.SOCK_STREAM, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{169, 254, 169, 254}})
	far("N3-metadata6", "the cloud's metadata", unix.SOCK_STREAM, &unix.SockaddrInet6{Port: 80, Addr: [16]byte{0xfd, 0, 0x0e, 0xc2, 14: 2, 15: 0x54}})
	far("N3-datagram", "a name server (an address for documents)", unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}})

	path := func(label, what string, to func(aim) string) {
		all = append(all, probe{label, what, false, func(a aim) answer {
			return done(connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: to(a)}))
		}})
	}
	path("N4-abstract", "an abstract socket of the host", func(a aim) string { return "@" + a["abstract"] })
	path("C065-N5-path", "another project's socket by its path", func(a aim) string { return a["socket"] })
	path("N5-workspace", "a socket file in the workspace", func(a aim) string { return a["dir"] + "/socket" })

	datagram := func(label, what string, to func(aim) string, send func(fd int, to unix.Sockaddr) error) {
		all = append(all, probe{label, what, false, func(a aim) answer {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			return done(send(fd, &unix.SockaddrUnix{Name: to(a)}))
		}})
	}
	sendto := func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, []byte("x"), unix.MSG_DONTWAIT, to) }
	sendmsg := func(fd int, to unix.Sockaddr) error { return unix.Sendmsg(fd, []byte("x"), nil, to, unix.MSG_DONTWAIT) }
	datagram("N5-workspace-sendto", "a datagram to a socket file in the workspace", func(a aim) string { return a["dir"] + "/datagrams" }, sendto)
	datagram("N5-workspace-sendmsg", "a datagram to a socket file in the workspace", func(a aim) string { return a["dir"] + "/datagrams" }, sendmsg)
	datagram("N4-abstract-sendto", "a datagram to an abstract socket of the host", func(a aim) string { return "@" + a["abstract"] + "-datagrams" }, sendto)
	all = append(all, []probe{
		{"N6-vsock", "the hypervisor", false, func(aim) answer { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
		{"N7-netlink-route", "the kernel's routes", false, func(aim) answer { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) }},
		{"N7-netlink-audit", "the audit", false, func(aim) answer { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT) }},
		{"N7-netlink-netfilter", "the packet filter", false, func(aim) answer { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) }},
		{"N7-netlink-connector", "events of processes", false, func(aim) answer { return socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR) }},
		{"N7-netlink-uevent", "events of devices", false, func(aim) answer { return socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT) }},
		{"C060-N7-netlink-high", "netlink with high bits set", false, func(aim) answer { return socket(1<<32|unix.AF_NETLINK, unix.SOCK_RAW, 0) }},
		{"N7-packet", "packets", false, func(aim) answer { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300) }},
		{"N7-raw", "a raw socket", false, func(aim) answer { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
		{"N7-raw-flags", "a raw socket with flags", false, func(aim) answer {
			return socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
		}},
		{"N7-raw6", "a raw socket", false, func(aim) answer { return socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) }},
		{"N7-ping", "a ping socket", false, func(aim) answer { return socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP) }},
		{"N7-xdp", "packets past the stack", false, func(aim) answer { return socket(unix.AF_XDP, unix.SOCK_RAW, 0) }},
		{"K24-alg", "the kernel's ciphers", false, func(aim) answer { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},
		{"N7-other-families", "any family but local and internet", false, func(aim) answer {
			var open []string
			last := answer{"CLOSED", ""}
			for family := uintptr(0); family < 64; family++ {
				switch family {
				case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
					continue
				}
				for _, kind := range []uintptr{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
					if a := socket(family, kind, 0); a.verdict == "OPEN" {
						open = append(open, fmt.Sprint(family))
						break
					} else {
						last = a
					}
				}
			}
			if len(open) > 0 {
				return answer{"OPEN", ""}
			}
			return last
		}},
		{"N7-unix", "a local socket", false, func(aim) answer { return yes(socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)) }},
		{"N7-inet", "an internet socket", false, func(aim) answer { return yes(socket(unix.AF_INET, unix.SOCK_STREAM, 0)) }},
		{"N7-socketpair", "a pair of local sockets", false, func(aim) answer {
			var pair [2]int32
			e := call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, pointerTo(&pair))
			if e == 0 {
				unix.Close(int(pair[0]))
				unix.Close(int(pair[1]))
			}
			return yes(done(e))
		}},
		{"C067-bind-tcp", "a port of its own", false, func(aim) answer {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return done(err)
			}
			defer unix.Close(fd)
			return done(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		}},
		{"N8-shm", "a segment that the host's same uid left", false, func(a aim) answer { return done(call(unix.SYS_SHMGET, uintptr(a.number("shm")), 0, 0)) }},
		{"N8-shm-new", "a segment", false, func(aim) answer {
			id, e := value(unix.SYS_SHMGET, 0, 4096, 0o600|unix.IPC_CREAT)
			if e == 0 {
				call(unix.SYS_SHMCTL, id, unix.IPC_RMID)
			}
			return done(e)
		}},
		{"N8-sem-new", "a semaphore", false, func(aim) answer {
			id, e := value(unix.SYS_SEMGET, 0, 1, 0o600|unix.IPC_CREAT)
			if e == 0 {
				call(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID)
			}
			return done(e)
		}},
		{"N8-msg-new", "a queue", false, func(aim) answer {
			id, e := value(unix.SYS_MSGGET, 0, 0o600|unix.IPC_CREAT)
			if e == 0 {
				call(unix.SYS_MSGCTL, id, unix.IPC_RMID)
			}
			return done(e)
		}},
		{"N8-mqueue", "a POSIX queue", false, func(aim) answer {
			q := cstr("postern-probe")
			fd, e := value(unix.SYS_MQ_OPEN, q, unix.O_CREAT|unix.O_RDWR, 0o600, 0)
			if e == 0 {
				unix.Close(int(fd))
				call(unix.SYS_MQ_UNLINK, q)
			}
			return done(e)
		}},
		{"N9-kill-host", "a process of the host with the same uid", false, func(a aim) answer { return done(call(unix.SYS_KILL, uintptr(a.number("pid")), 0)) }},
		{"N9-tgkill-host", "the same by thread", false, func(a aim) answer {
			p := uintptr(a.number("pid"))
			return done(call(unix.SYS_TGKILL, p, p, 0))
		}},
		{"N10-kill-all", "every process at once (signal 0)", false, func(aim) answer { return done(call(unix.SYS_KILL, ^uintptr(0), 0)) }},
		{"N11-stdio", "a socket among stdin, stdout and stderr", false, func(aim) answer {
			for fd := range 3 {
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					return done(err)
				}
				if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
					return answer{"OPEN", ""}
				}
			}
			return answer{"CLOSED", ""}
		}},
		{"N12-in-flight", "descriptors in flight without a bound", true, func(aim) answer {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return done(err)
			}
			rights := unix.UnixRights(stdins()...)
			for range 20 { // 5,000 descriptors
				if err := unix.Sendmsg(pair[0], []byte("x"), rights, nil, 0); err != nil {
					return done(err)
				}
				if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0); err != nil {
					return done(err)
				}
			}
			return answer{"OPEN", ""}
		}},
		{"C060-N13-tiocsti", "type into the terminal", false, func(aim) answer { return reached(call(unix.SYS_IOCTL, 0, unix.TIOCSTI, bad)) }},
		{"C060-N13-tiocsti-high", "the same with high bits set", false, func(aim) answer { return reached(call(unix.SYS_IOCTL, 0, 5<<32|unix.TIOCSTI, bad)) }},
		{"C060-N13-tioclinux", "paste into the console", false, func(aim) answer { return reached(call(unix.SYS_IOCTL, 0, unix.TIOCLINUX, bad)) }},
		{"C060-N13-tioclinux-high", "the same with high bits set", false, func(aim) answer { return reached(call(unix.SYS_IOCTL, 0, 5<<32|unix.TIOCLINUX, bad)) }},
		{"N13-tty", "a controlling terminal", false, func(aim) answer {
			if os.Getpid() != 1 && unix.Getuid() == 0 {
				return info("not tried as root")
			}
			return done(opens("/dev/tty", unix.O_RDWR))
		}},
	}...)
	return all
}

func connect(family, kind int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

func socket(family, kind, protocol uintptr) answer {
	fd, e := value(unix.SYS_SOCKET, family, kind, protocol)
	if e == 0 {
		unix.Close(int(fd))
	}
	return done(e)
}

// stdins is standard input, 250 times: the most that one message carries is 253.
func stdins() []int {
	return make([]int, 250)
}
