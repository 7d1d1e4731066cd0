package main

import "syscall"

func int80(nr uintptr) uintptr
func thread() syscall.Errno
