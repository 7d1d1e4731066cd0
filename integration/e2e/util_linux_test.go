package e2e

import (
	"io/fs"
	"strconv"
	"syscall"
)

func itoa(n int) string { return strconv.Itoa(n) }

func uidOf(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
